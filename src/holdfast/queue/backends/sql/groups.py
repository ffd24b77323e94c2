"""Messages of one group, of which one at a time may be handled; after it, the one with the lowest number.

All that is done here is done under the lock of the group's tenant, and so is all that is done to messages that are
parked.
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
    """The groups of tenants, by tenant and name; those that are not there are made."""
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
    """Those groups that have messages: whoever comes now waits for them."""
    statement = _USED.format(each=step.dialect.each("$1"))
    return {party for (party,) in step.transaction.execute(statement, (step.dialect.numbers(set(parties)),))}


def names_of(step: Step, parties: Iterable[int | None]) -> dict[int | None, str]:
    """The names of groups."""
    ids = sorted({party for party in parties if party is not None})
    return dict(with_ids(step, _NAMES, ids)) if ids else {}


def follow(step: Step, gone: Sequence[Message]) -> None:
    """Let the next of each group have its turn, after messages were removed whose turn it was.

    One that still waited for its turn leaves the group to whoever has it: not always the one with the lowest number.
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
    """Forget groups that have no messages left, living or dead."""
    ids = sorted(parties)
    if ids:
        with_ids(step, _FORGET, ids)
