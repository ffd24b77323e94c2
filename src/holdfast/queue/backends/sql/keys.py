"""Deduplication keys of messages that were sent before. Read under the lock of the key's tenant."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.engines import Transaction
from holdfast.queue.backends.sql.dialect import Dialect
from holdfast.queue.backends.sql.step import Step

AT_ONCE = 1000
"""Keys that are deleted in one transaction."""
_FIND = (
    "select tenant, name, message, lane from holdfast_queue_key "
    "where tenant {tenants} and name {names} and expires > $3"
)
_KEEP = (
    "insert into holdfast_queue_key (tenant, name, message, lane, expires) values ($1, $2, $3, $4, $5) "
    "on conflict (tenant, name) do update set message = excluded.message, lane = excluded.lane, "
    "expires = excluded.expires"
)
_FORGET = (
    "delete from holdfast_queue_key where (tenant, name) in (select k.tenant, k.name from holdfast_queue_key k "
    "where k.expires <= $1 order by k.expires limit $2{skip}) returning 1"
)


class Key(NamedTuple):
    """A stored key, and the message that was sent with it."""

    tenant: int
    name: str
    message: int
    lane: int
    expires: int


def find(step: Step, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], tuple[int, int]]:
    """Return messages and their lanes, by tenant and key."""
    tenants, names = zip(*wanted, strict=True)
    statement = _FIND.format(tenants=step.dialect.among("$1"), names=step.dialect.named("$2"))
    parameters = step.dialect.numbers(set(tenants)), step.dialect.texts(set(names)), step.at
    rows = step.transaction.execute(statement, parameters)
    return {(tenant, name): (message, lane) for tenant, name, message, lane in rows}


def keep(step: Step, keys: Sequence[Key]) -> None:
    """Store keys, or replace what is stored for them."""
    step.transaction.execute_many(_KEEP, sorted(keys))


def forget(transaction: Transaction, dialect: Dialect, at: int) -> bool:
    """Delete expired keys of all queues. Return whether there may be more."""
    gone = transaction.execute(_FORGET.format(skip=dialect.skip("k")), (at, AT_ONCE))
    return len(gone) >= AT_ONCE
