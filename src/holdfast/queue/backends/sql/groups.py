"""Groups: one message of a group is handled at a time, in the order of their ids.

Everything here, and every change of a parked message, happens under the lock of the group's tenant.
"""

from collections.abc import Iterable, Sequence

from holdfast.queue.backends.sql.message import Message, columns
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step, with_ids

_FIND = "select tenant, name, id from holdfast_queue_party where tenant {tenants} and name {names}"
_ADD = "insert into holdfast_queue_party (tenant, name) values ($1, $2)"
_NAMES = "select id, name from holdfast_queue_party where id {ids}"
_USED = "select one.value from {each} where exists (select 1 from holdfast_queue_message m where m.party = one.value)"
_HEADS = (
    f"select {columns()}, l.number from holdfast_queue_message m join holdfast_queue_lane l on l.id = m.lane "  # noqa: S608 - constants
    "where m.id in (select (select h.id from holdfast_queue_message h where h.party = one.value order by h.id limit 1) "
    "from {each})"
)
_UNPARK = "update holdfast_queue_message set until = $1 where id = $2"
_FORGET = (
    "delete from holdfast_queue_party where id {ids} "
    "and not exists (select 1 from holdfast_queue_message m where m.party = holdfast_queue_party.id) "
    "and not exists (select 1 from holdfast_queue_dead d where d.party = holdfast_queue_party.id)"
)


def enrol(step: Step, members: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return the ids of groups by tenant and name. Create missing ones."""
    wanted = set(members)
    found = _find(step, wanted)
    missing = sorted(wanted.difference(found))
    if missing:
        step.transaction.execute_many(_ADD, missing)
        found |= _find(step, missing)
    return found


def _find(step: Step, members: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    tenants, names = zip(*members, strict=True)
    statement = _FIND.format(tenants=step.dialect.among("$1"), names=step.dialect.named("$2"))
    parameters = step.dialect.numbers(set(tenants)), step.dialect.texts(set(names))
    return {(tenant, name): id_ for tenant, name, id_ in step.transaction.execute(statement, parameters)}


def used(step: Step, parties: Iterable[int]) -> set[int]:
    """Return the groups that have messages: a new message must wait for them."""
    statement = _USED.format(each=step.dialect.each("$1"))
    return {party for (party,) in step.transaction.execute(statement, (step.dialect.numbers(set(parties)),))}


def names_of(step: Step, parties: Iterable[int | None]) -> dict[int | None, str]:
    """Return the names of groups by id."""
    ids = sorted({party for party in parties if party is not None})
    return dict(with_ids(step, _NAMES, ids)) if ids else {}


def follow(step: Step, gone: Sequence[Message]) -> None:
    """Let the next message of each group be handled, after messages were removed that were not parked.

    Removing a parked message changes nothing for its group: the current one is not always the one with the lowest id.
    """
    parties = sorted({one.party for one in gone if one.party is not None and one.until != PARKED})
    if not parties:
        return
    heads = step.transaction.execute(_HEADS.format(each=step.dialect.each("$1")), (step.dialect.numbers(parties),))
    for row in heads:
        step.numbers[row[1]] = row[-1]
        _unpark(step, Message(*row[:-1]))
    forget(step, set(parties).difference(row[9] for row in heads))


def _unpark(step: Step, head: Message) -> None:
    if head.until != PARKED:
        return
    is_due = head.at <= step.at
    step.transaction.execute(_UNPARK, (None if is_due else head.at, head.id))
    if is_due:
        step.count(head.lane, head.tenant, delayed=-1, ready=1)
        tally = step.lane(head.lane)
        tally.newest = max(tally.newest, head.at)


def forget(step: Step, parties: Iterable[int]) -> None:
    """Delete groups that have no messages left, dead letters included."""
    ids = sorted(parties)
    if ids:
        with_ids(step, _FORGET, ids)
