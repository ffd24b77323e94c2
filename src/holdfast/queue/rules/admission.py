"""Decide whether a tenant's messages are accepted, and whether they go to shared lanes or are spilled. Pure.

Three checks, in this order: whether the tenant has so many messages waiting that more are refused
(`compute_allowed_rate`), whether the tenant exceeds its `max_rate`, and whether messages are spilled (`spill_rate`,
`spill_above`). Only accepted messages count against the limits.

Backpressure: below a tenth of its `max_waiting`, a tenant may send without restriction. From there on it may send
`rate_under_backpressure` messages per second, falling linearly to 0 at `max_waiting`. Only the tenant's own messages
count: a tenant that happens to share a lane with it is not slowed down. Every message of a batch lowers the rate for
the next one, so that a batch gets no more than its messages sent one by one.
"""

import math
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from holdfast.queue.message import RefusalReason
from holdfast.queue.policy import Limits, OverMaxRate, QueuePolicy, RateLimit
from holdfast.queue.rules import bucket

PRESSURE_STARTS_AT = 0.1
"""The share of `max_waiting` at which backpressure begins."""
BURST_SECONDS = 1.0
"""Seconds of the allowed rate that may be sent in one burst: few, as the rate falls with each accepted message."""
MIN_WAIT = 0.001
"""Minimum `retry_after` in seconds: a shorter one is shown as 0, and rounding may outweigh it."""
MAX_WAIT = 60.0
"""Maximum `retry_after` in seconds, however distant the limit."""
FULL_WAIT = 5.0
"""`retry_after` in seconds at `max_waiting`: it is not known when messages will be handled."""
FORGET_AFTER = 600.0
"""Seconds without a change of its messages after which a tenant may be forgotten, if nothing refers to it. To create it
again costs as much as sending ten messages, so tenants that send now and then stay known."""
_UNLIMITED = 1 << 62


class TenantState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The counters and buckets of a tenant in a queue. `*_full_at` is when a bucket is full again: see `bucket.py`."""

    ready: int = 0
    """Messages that can be handled now, spilled ones included. `Totals.ready` does not include them."""
    spilled: int = 0
    """Those of the ready messages that are spilled."""
    leased: int = 0
    """Messages leased to workers."""
    delayed: int = 0
    """Messages that are not due yet, or wait for earlier messages of their group."""
    spill_rate_full_at: float = 0.0
    """The bucket of `spill_rate`, charged when messages are sent."""
    max_rate_full_at: float = 0.0
    pressure_full_at: float = 0.0
    fresh_full_at: float = 0.0
    """The bucket of fresh messages that a tenant above `spill_above` may send without spilling, so that they need not
    wait for its whole backlog."""
    run_full_at: float = 0.0
    lease_full_at: float = 0.0
    """A second bucket of `spill_rate`, charged when messages are leased; `spill_rate_full_at` when they are sent."""

    def has_full_buckets(self, now: float) -> bool:
        """Return whether all buckets are full, as those of a new tenant are."""
        buckets = (self.spill_rate_full_at, self.max_rate_full_at, self.pressure_full_at, self.fresh_full_at)
        return max(*buckets, self.run_full_at, self.lease_full_at) <= now


class Admission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision on several messages of one tenant, in this order: not spilled, spilled, delayed, refused."""

    live: int
    """Messages that are not spilled: they go to shared lanes or to the tenant's own lane."""
    is_own: bool
    """Whether the live messages go to the tenant's own lane, where they delay no other tenant."""
    spilled: int
    delays: tuple[float, ...] = ()
    """Delays in seconds, each more than 0, of messages that exceed `max_rate` and are accepted anyway."""
    refused: int = 0
    refusal: RefusalReason | None = None
    retry_after: float = 0.0
    pressure: float = 0.0
    state: TenantState
    """The tenant's new counters and buckets."""


class _Refusal(NamedTuple):
    reason: RefusalReason | None
    retry_after: float


_NOT_REFUSED = _Refusal(None, 0.0)


def admit(policy: QueuePolicy, limits: Limits, state: TenantState, wanted: int, now: float) -> Admission:
    """Decide on `wanted` messages of one tenant, and return the decision with the tenant's new state."""
    waiting_limit, max_rate = get_max_waiting(policy, limits), limits.bucket("max_rate")
    is_delaying = limits.over_max_rate is OverMaxRate.DELAY
    waiting = state.ready + state.delayed
    accepted = wanted
    if max_rate is not None and not is_delaying:
        accepted = min(accepted, bucket.count_available(state.max_rate_full_at, now, *max_rate))
    accepted, pressure_full_at = _take_under_pressure(policy, waiting_limit, state, accepted, now)

    delays: list[float] = []
    full_at = state.max_rate_full_at
    if max_rate is not None and is_delaying:
        delays, full_at = bucket.reserve(full_at, now, accepted, *max_rate)
        delays = [delay for delay in delays if delay]
    elif max_rate is not None:
        full_at = bucket.spend(full_at, now, accepted, *max_rate)
    state = msgspec.structs.replace(state, max_rate_full_at=full_at, pressure_full_at=pressure_full_at)

    refusal = _explain_refusal(policy, limits, state, waiting + accepted, now) if accepted < wanted else _NOT_REFUSED
    undelayed = accepted - len(delays)
    live, state = _count_live(policy, limits, state, undelayed, now)
    return Admission(
        live=live,
        is_own=policy.spill_above is not None and state.ready >= policy.spill_above,
        spilled=undelayed - live,
        delays=tuple(delays),
        refused=wanted - accepted,
        refusal=refusal.reason,
        retry_after=refusal.retry_after,
        pressure=compute_pressure(waiting + accepted, waiting_limit),
        state=msgspec.structs.replace(
            state,
            ready=state.ready + undelayed,
            spilled=state.spilled + undelayed - live,
            delayed=state.delayed + len(delays),
        ),
    )


class LaneKind(Enum):
    """The kind of lane in which a message waits."""

    SHARED = "shared"
    OWN = "own"
    SPILLED = "spilled"


class MessageDecision(NamedTuple):
    """The decision on one message."""

    lane: LaneKind
    delay: float | None
    """Seconds of delay, or None if the message is refused."""


def decide_each(admission: Admission) -> Iterator[MessageDecision]:
    """Yield the decision on one message after the other."""
    yield from [MessageDecision(LaneKind.OWN if admission.is_own else LaneKind.SHARED, 0.0)] * admission.live
    yield from [MessageDecision(LaneKind.SPILLED, 0.0)] * admission.spilled
    for delay in admission.delays:
        yield MessageDecision(LaneKind.SHARED, delay)
    while True:
        yield MessageDecision(LaneKind.SHARED, None)


def is_unlimited(limits: Limits) -> bool:
    """Return whether a tenant has no limits, so that only its waiting messages must be counted."""
    return limits.spill_rate is limits.max_rate is limits.run_rate is limits.concurrency is limits.max_waiting is None


def get_room(policy: QueuePolicy, limits: Limits) -> int:
    """Return how many messages a tenant may have, due or not, without backpressure or spilling for the next one."""
    waiting_limit = get_max_waiting(policy, limits)
    pressed = _UNLIMITED if waiting_limit is None else math.ceil(waiting_limit * PRESSURE_STARTS_AT) - 1
    return min(pressed, _UNLIMITED if policy.spill_above is None else policy.spill_above - 1)


def _take_under_pressure(
    policy: QueuePolicy, waiting_limit: int | None, state: TenantState, wanted: int, now: float
) -> tuple[int, float]:
    """Return how many of `wanted` messages backpressure allows, and when its bucket will be full again."""
    waiting, full_at = state.ready + state.delayed, state.pressure_full_at
    if waiting_limit is None:
        return wanted, full_at
    free = max(0, math.ceil(waiting_limit * PRESSURE_STARTS_AT) - waiting)
    for taken in range(min(free, wanted), wanted):
        allowed_rate = compute_allowed_rate(waiting + taken, waiting_limit, policy.rate_under_backpressure)
        assert allowed_rate is not None
        if bucket.seconds_until_token(full_at, now, *allowed_rate):
            return taken, full_at
        full_at = bucket.spend(full_at, now, 1, *allowed_rate)
    return wanted, full_at


def _explain_refusal(policy: QueuePolicy, limits: Limits, state: TenantState, waiting: int, now: float) -> _Refusal:
    """Return the limit that refuses the next message, and for how many seconds. Of two limits, return the longer."""
    waiting_limit, max_rate = get_max_waiting(policy, limits), limits.bucket("max_rate")
    for_waiting = for_rate = 0.0
    allowed_rate = compute_allowed_rate(waiting, waiting_limit, policy.rate_under_backpressure)
    if waiting_limit is not None and waiting >= waiting_limit:
        for_waiting = FULL_WAIT
    elif allowed_rate is not None:
        for_waiting = bucket.seconds_until_token(state.pressure_full_at, now, *allowed_rate)
    if max_rate is not None and limits.over_max_rate is OverMaxRate.REFUSE:
        for_rate = bucket.seconds_until_token(state.max_rate_full_at, now, *max_rate)
    reason = RefusalReason.MAX_RATE if for_rate > for_waiting else RefusalReason.MAX_WAITING
    return _Refusal(reason, max(MIN_WAIT, min(MAX_WAIT, max(for_rate, for_waiting))))


def _count_live(
    policy: QueuePolicy, limits: Limits, state: TenantState, accepted: int, now: float
) -> tuple[int, TenantState]:
    """Return how many of `accepted` messages are not spilled, and the tenant's new state."""
    is_capped = limits.concurrency is not None or limits.run_rate is not None
    if is_capped and (state.spilled or (limits.concurrency is not None and state.leased >= limits.concurrency)):
        # Leasing would spill them anyway, and they would overtake messages that are spilled already.
        return 0, _spend_fresh(policy, state, accepted, 0, now)
    live = min(accepted, _count_unspilled_room(policy, state, now))
    spill_rate = limits.bucket("spill_rate")
    if spill_rate is not None:
        live, full_at = bucket.take(state.spill_rate_full_at, now, live, *spill_rate)
        state = msgspec.structs.replace(state, spill_rate_full_at=full_at)
    return live, _spend_fresh(policy, state, accepted, live, now)


def _count_unspilled_room(policy: QueuePolicy, state: TenantState, now: float) -> int:
    """Return how many more messages need not be spilled, as far as waiting messages decide.

    Up to `spill_above` messages, whatever their age. A tenant with more may have returned after an outage: in every
    `fresh_for` seconds it may send `spill_above` further messages to its own lane, which is served like shared lanes.
    """
    if policy.spill_above is None:
        return _UNLIMITED
    fresh = _get_fresh_bucket(policy)
    if state.ready < policy.spill_above or fresh is None:
        return max(0, policy.spill_above - state.ready)
    return bucket.count_available(state.fresh_full_at, now, *fresh)


def _spend_fresh(policy: QueuePolicy, state: TenantState, accepted: int, live: int, now: float) -> TenantState:
    """Return the tenant's state after `accepted` messages were accepted, `live` of them not spilled."""
    fresh, limit = _get_fresh_bucket(policy), policy.spill_above
    if fresh is None or limit is None or state.ready + accepted < limit:
        return state
    spent = live if state.ready >= limit else limit  # a tenant that reaches the limit has just used up its allowance
    return msgspec.structs.replace(state, fresh_full_at=bucket.spend(state.fresh_full_at, now, spent, *fresh))


def _get_fresh_bucket(policy: QueuePolicy) -> RateLimit | None:
    """Return the rate at which a tenant above `spill_above` may send without spilling, or None for not at all."""
    if not policy.spill_above or not policy.fresh_for:
        return None
    return RateLimit(policy.spill_above / policy.fresh_for, policy.spill_above)


def get_max_waiting(policy: QueuePolicy, limits: Limits) -> int | None:
    """Return how many messages a tenant with these limits may have waiting, or None for any number."""
    return policy.max_waiting if limits.max_waiting is None else limits.max_waiting


def compute_pressure(waiting: int, waiting_limit: int | None) -> float:
    """Return the share of `waiting_limit` in use, 0 to 1."""
    return 0.0 if waiting_limit is None else min(1.0, waiting / waiting_limit)


def compute_allowed_rate(waiting: int, waiting_limit: int | None, rate_under_backpressure: float) -> RateLimit | None:
    """Return the rate at which a tenant may send under backpressure, or None for no restriction."""
    if waiting_limit is None or waiting < waiting_limit * PRESSURE_STARTS_AT:
        return None
    left = max(0.0, (waiting_limit - waiting) / (waiting_limit * (1 - PRESSURE_STARTS_AT)))
    rate = rate_under_backpressure * min(1.0, left)
    return RateLimit(rate, max(1.0, rate * BURST_SECONDS))
