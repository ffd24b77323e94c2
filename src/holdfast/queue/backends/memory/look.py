"""Inspect a queue by its counters, without counting messages."""

from collections.abc import Sequence
from heapq import nlargest

from holdfast.queue.backend import LaneDepth, MessageInfo, MessageState, QueueSnapshot, TenantDepth, sum_lanes
from holdfast.queue.backends.memory.book import Book, Lane, Message, Place, Tenant

LANES = 2048
"""Maximum lanes that are listed: the deepest ones."""


def look(book: Book, tenants: Sequence[str], top: int, messages: Sequence[int], *, lanes: bool) -> QueueSnapshot:
    """Return the state of the queue."""
    filled = [_lane(lane) for lane in book.lanes.values() if lanes and _is_filled(lane)]
    listed = nlargest(LANES, filled, key=lambda lane: (lane.ready, -lane.lane))
    found = nlargest(top, book.busy.values(), key=lambda tenant: (tenant.ready, -tenant.id))
    found += [book.tenants[name] for name in dict.fromkeys(tenants) if name in book.tenants]
    return QueueSnapshot(
        queue=book.name,
        at=book.now,
        policy=book.policy,
        lanes=listed,
        tenants=[_tenant(tenant) for tenant in dict.fromkeys(found)],
        totals=sum_lanes(filled),
        topics=sorted(book.topics),
        lanes_left_out=len(filled) - len(listed),
        messages={number: state for number in messages if (state := _state(book, number)) is not None},
    )


def _is_filled(lane: Lane) -> bool:
    return bool(lane.waiting or lane.leased or lane.delayed or lane.dead)


def _lane(lane: Lane) -> LaneDepth:
    oldest = lane.waiting.first()
    return LaneDepth(
        lane=lane.number,
        ready=len(lane.waiting),
        leased=lane.leased,
        delayed=lane.delayed,
        dead=lane.dead,
        oldest_since=None if oldest is None else oldest / 1000,
    )


def _tenant(tenant: Tenant) -> TenantDepth:
    return TenantDepth(
        tenant=tenant.name,
        ready=tenant.ready - tenant.spilled,
        spilled=tenant.spilled,
        leased=tenant.leased,
        delayed=tenant.delayed,
        dead=tenant.dead,
        limits=tenant.own_limits,
    )


def _state(book: Book, number: int) -> MessageInfo | None:
    for dead in book.dead.between(number, number):
        return _described(dead.message, MessageState.DEAD)
    message = book.messages.get(number)
    if message is None or message.book is not book:
        return None
    if message.place is Place.PARKED:
        return _described(message, MessageState.DELAYED)
    if message.until <= book.at:  # due messages count as waiting, even if no worker has polled since
        return _described(message, MessageState.READY)
    return _described(
        message, MessageState.LEASED if message.place is Place.LEASED else MessageState.DELAYED, message.until / 1000
    )


def _described(message: Message, stage: MessageState, until: float | None = None) -> MessageInfo:
    return MessageInfo(
        tenant=message.tenant.name,
        state=stage,
        attempts=message.tries - message.returned,
        sent_at=message.age_from / 1000,
        until=until,
    )
