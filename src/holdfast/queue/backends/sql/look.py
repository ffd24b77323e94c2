"""Inspect a queue by its counters, without counting messages."""

from collections.abc import Sequence

from holdfast.engines import Row
from holdfast.queue.backend import LaneDepth, MessageInfo, MessageState, QueueSnapshot, TenantDepth, Totals, sum_lanes
from holdfast.queue.backends.sql.extra import decode
from holdfast.queue.backends.sql.message import is_id, is_storable
from holdfast.queue.backends.sql.schema import PARKED
from holdfast.queue.backends.sql.step import Step, with_ids
from holdfast.queue.backends.sql.tenant import limits_of

LANES = 2048
"""Maximum lanes that are listed: the deepest ones."""
_FILLED = (
    "from holdfast_queue_lane l where l.queue = $1 and (l.ready > 0 or l.leased > 0 or l.delayed > 0 or l.dead > 0)"
)
_OLDEST = "(select m.at from holdfast_queue_message m where m.lane = l.id and m.until is null order by m.at limit 1)"
_LANES = (
    f"select l.number, l.ready, l.leased, l.delayed, l.dead, {_OLDEST} {_FILLED} "
    "order by l.ready desc, l.number limit $2"
)
# The oldest message only of lanes with waiting messages: each needs an index lookup.
_TOTALS = (
    "select sum(case when number >= 0 then ready else 0 end), sum(case when number < 0 then ready else 0 end), "  # noqa: S608 - constants
    "sum(leased), sum(delayed), sum(dead), count(*), min(oldest), min(case when number >= 0 then oldest end) from "
    f"(select l.number, l.ready, l.leased, l.delayed, l.dead, case when l.ready > 0 then {_OLDEST} end as oldest "
    f"{_FILLED}) as filled"
)
_TENANTS = "select name, ready, spilled, leased, delayed, dead, limits from holdfast_queue_tenant where queue = $1 and "
_BUSIEST = f"{_TENANTS}magnitude > 0 order by magnitude desc, ready desc, id limit $2"
_TOPICS = "select topic from holdfast_queue_subscription where queue = $1 order by topic"
_MESSAGES = (
    "select m.id, t.name, m.tries, coalesce(m.sent, m.at), m.extra, m.until, m.leased from holdfast_queue_message m "
    "join holdfast_queue_tenant t on t.id = m.tenant where m.queue = $1 and m.id {ids}"
)
_DEAD = (
    "select d.id, t.name, d.tries, d.sent, d.extra from holdfast_queue_dead d "
    "join holdfast_queue_tenant t on t.id = d.tenant where d.queue = $1 and d.id {ids}"
)


def look(step: Step, tenants: Sequence[str], top: int, messages: Sequence[int], *, lanes: bool) -> QueueSnapshot:
    """Return the state of the queue in this transaction."""
    execute = step.transaction.execute
    listed = [_lane(row) for row in execute(_LANES, (step.queue, LANES))] if lanes else []
    totals = sum_lanes(listed) if len(listed) < LANES else _totals(execute(_TOTALS, (step.queue,))[0])
    found = execute(_BUSIEST, (step.queue, top)) if top else []
    if tenants:
        statement = f"{_TENANTS}name {step.dialect.named('$2')}"
        names = step.dialect.texts(filter(is_storable, tenants))
        asked = {row[0]: row for row in execute(statement, (step.queue, names))}
        found += [asked[name] for name in tenants if name in asked]
    return QueueSnapshot(
        queue=step.name,
        at=step.now,
        policy=step.policy,
        lanes=listed,
        tenants=[_tenant(row) for row in {row[0]: row for row in found}.values()],
        totals=totals,
        topics=[topic for (topic,) in execute(_TOPICS, (step.queue,))],
        lanes_left_out=totals.lanes_in_use - len(listed),
        messages=_messages(step, messages) if messages else {},
    )


def _messages(step: Step, ids: Sequence[int]) -> dict[int, MessageInfo]:
    ids = [number for number in ids if is_id(number)]
    found = {row[0]: _state(step, row) for row in with_ids(step, _MESSAGES, ids, step.queue)}
    for row in with_ids(step, _DEAD, ids, step.queue):
        found[row[0]] = _described(row, MessageState.DEAD)
    return found


def _state(step: Step, row: Row) -> MessageInfo:
    until, leased = row[5:]
    if until is None or until <= step.at:  # due messages count as waiting, even if no worker has polled since
        return _described(row, MessageState.READY)
    return _described(
        row, MessageState.LEASED if leased else MessageState.DELAYED, None if until == PARKED else until / 1000
    )


def _described(row: Row, stage: MessageState, until: float | None = None) -> MessageInfo:
    _, tenant, tries, sent, kept = row[:5]
    attempts = tries - decode(kept).returned
    return MessageInfo(tenant=tenant, state=stage, attempts=attempts, sent_at=sent / 1000, until=until)


def _lane(row: Row) -> LaneDepth:
    number, ready, leased, delayed, dead, oldest = row
    return LaneDepth(
        lane=number,
        ready=ready,
        leased=leased,
        delayed=delayed,
        dead=dead,
        oldest_since=_seconds(oldest),
    )


def _totals(row: Row) -> Totals:
    ready, spilled, leased, delayed, dead, lanes_in_use = map(int, row[:6])  # PostgreSQL's sums are decimals
    oldest_since, oldest_ready_since = map(_seconds, row[6:])
    return Totals(
        ready=ready,
        spilled=spilled,
        leased=leased,
        delayed=delayed,
        dead=dead,
        lanes_in_use=lanes_in_use,
        oldest_since=oldest_since,
        oldest_ready_since=oldest_ready_since,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _tenant(row: Row) -> TenantDepth:
    name, ready, spilled, leased, delayed, dead, kept = row
    return TenantDepth(
        tenant=name,
        ready=ready - spilled,
        spilled=spilled,
        leased=leased,
        delayed=delayed,
        dead=dead,
        limits=None if kept is None else limits_of(bytes(kept)),
    )
