"""Settle leased messages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.engines import Transaction
from holdfast.queue.backends.sql.dialect import Dialect
from holdfast.queue.backends.sql.extra import encode
from holdfast.queue.backends.sql.message import Message, columns, is_id, milliseconds
from holdfast.queue.backends.sql.remove import bury, count_out, remove
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.backends.sql.wake import wake_spilled
from holdfast.queue.message import Ack, Bury, Drop, ExtendLease, Release, RetryLater, Settlement

_FIND = (
    f"select {columns()}, l.number, q.id, q.name from holdfast_queue_message m "  # noqa: S608 - constants
    "join holdfast_queue_lane l on l.id = m.lane join holdfast_queue q on q.id = m.queue "
    "where m.leased = 1 and m.id {ids} order by m.id"
)
# Locked in the order of ids, as in settlements of other kinds.
_HELD = (
    "select m.id from holdfast_queue_message m where m.tries = $1 and m.leased = 1 and m.id {ids} order by m.id{lock}"
)
_DONE = (
    "delete from holdfast_queue_message where id {held} "  # noqa: S608 - constants
    f"returning {columns('holdfast_queue_message')}, holdfast_queue_message.queue"
)
_LONGER = "update holdfast_queue_message set until = $1 where id = $2"
_LATER = "update holdfast_queue_message set until = $1, at = $2, leased = 0, sent = $3, extra = $4 where id = $5"
_BACK = "update holdfast_queue_message set until = null, leased = 0, extra = $1 where id = $2"


class Settled(NamedTuple):
    """Which receipts were valid, and the queues that may have new ready messages."""

    were_held: list[bool]
    filled: list[str]


def settle(
    transaction: Transaction, dialect: Dialect, settlements: Sequence[Settlement], wall: float | None
) -> Settled:
    """Apply each settlement whose receipt is still valid."""
    done = {one.receipt.id: one.receipt.deliveries for one in settlements if type(one.disposition) is Ack}
    if len(done) == len(settlements) and len(set(done.values())) == 1:
        return _done(transaction, dialect, done, wall)
    ids = {one.receipt.id for one in settlements if is_id(one.receipt.id)}
    rows = transaction.execute(
        _FIND.format(ids=dialect.among("$1")) + dialect.lock("m"), (dialect.numbers(sorted(ids)),)
    )
    held = {row[0]: row for row in rows}
    results: list[bool] = []
    by_queue: dict[tuple[int, str], list[tuple[Message, Settlement]]] = {}
    numbers: dict[int, int] = {}
    for one in settlements:
        row = held.get(one.receipt.id)
        is_held = row is not None and row[3] == one.receipt.deliveries
        results.append(is_held)
        if row is not None and is_held:
            numbers[row[1]] = row[-3]
            by_queue.setdefault((row[-2], row[-1]), []).append((Message(*row[:-3]), one))
            if not isinstance(one.disposition, ExtendLease):
                del held[one.receipt.id]  # a receipt settles once
    filled: list[str] = []
    for (_, queue), some in sorted(by_queue.items()):  # in the order of ids, as in a publication to several queues
        step = Step(transaction, dialect, queue, wall)
        step.numbers.update(numbers)
        if _settle(step, some):
            filled.append(queue)
    return Settled(results, filled)


def _done(transaction: Transaction, dialect: Dialect, receipts: Mapping[int, int], wall: float | None) -> Settled:
    """Settle messages that are all acknowledged, after as many deliveries each: the deletion returns their rows."""
    ids = [id_ for id_, tries in receipts.items() if is_id(id_) and is_id(tries)]
    held = _HELD.format(ids=dialect.among("$2"), lock=dialect.lock("m"))
    by_queue: dict[int, list[Message]] = {}
    if ids:
        statement = _DONE.format(held=dialect.within(held))
        for row in transaction.execute(statement, (receipts[ids[0]], dialect.numbers(ids))):
            by_queue.setdefault(row[-1], []).append(Message(*row[:-1]))
    filled: list[str] = []
    for queue, messages in sorted(by_queue.items()):
        step = Step(transaction, dialect, queue, wall)
        capped = _ready_to_end(step, messages)
        count_out(step, messages)
        if _end(step, capped):
            filled.append(step.name)
    found = {message.id for messages in by_queue.values() for message in messages}
    return Settled([id_ in found for id_ in receipts], filled)


def _end(step: Step, capped: Sequence[int]) -> bool:
    """Save the step, and notify workers if messages became ready: the next of a group, or more of a tenant.

    This worker itself may be busy, or may wait because it has found nothing.
    """
    has_woken = wake_spilled(step, capped)
    filled = step.save()
    if filled or has_woken:
        step.dialect.wake(step.transaction, step.name)
    return bool(filled) or has_woken


def _ready_to_end(step: Step, messages: Sequence[Message]) -> list[int]:
    """Read the tenants of messages that end. Return those whose concurrency limit may allow more then."""
    step.know(message.tenant for message in messages)
    capped = [row.id for row in step.tenants.values() if row.limits.concurrency is not None]
    if capped or any(message.party is not None for message in messages):
        step.lock()
    return capped


def _settle(step: Step, settled: list[tuple[Message, Settlement]]) -> bool:
    """Apply the dispositions. Return whether messages may have become ready."""
    longer = [
        (step.at + milliseconds(one.disposition.seconds), message.id)
        for message, one in settled
        if isinstance(one.disposition, ExtendLease)
    ]
    if longer:
        step.transaction.execute_many(_LONGER, longer)
    ended = [(message, one.disposition) for message, one in settled if not isinstance(one.disposition, ExtendLease)]
    if not ended:
        return False
    capped = _ready_to_end(step, [message for message, _ in ended])
    remove(step, [message for message, outcome in ended if isinstance(outcome, Ack | Drop)])
    bury(step, [(message, outcome) for message, outcome in ended if isinstance(outcome, Bury)])
    _again(step, [(message, outcome) for message, outcome in ended if isinstance(outcome, RetryLater)])
    _back(step, [message for message, outcome in ended if isinstance(outcome, Release)])
    has_filled = _end(step, capped)
    # A worker that waits here must learn of retries that become due soon: they were not there when it polled.
    return has_filled or any(isinstance(outcome, RetryLater) for _, outcome in ended)


def _again(step: Step, messages: Sequence[tuple[Message, RetryLater]]) -> None:
    """Deliver messages later: fresh when they are due, but their age counts from when they were sent."""
    rows = []
    for message, again in messages:
        extra = message.extra if again.is_attempt else message.extra.handed_back()
        due = step.at + max(1, milliseconds(again.delay))
        rows.append((due, due, message.age_from, encode(extra), message.id))
        step.count(message.lane, message.tenant, leased=-1, delayed=1)
    if rows:
        step.transaction.execute_many(_LATER, rows)


def _back(step: Step, messages: Sequence[Message]) -> None:
    if messages:
        rows = [(encode(message.extra.handed_back()), message.id) for message in messages]
        step.transaction.execute_many(_BACK, rows)
    for message in messages:
        step.count(message.lane, message.tenant, leased=-1, ready=1)
        tally = step.lane(message.lane)
        tally.newest = max(tally.newest, message.at)
