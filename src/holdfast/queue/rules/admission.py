"""Whether a tenant's messages are kept, and whether they wait beside everybody else's or apart. Pure.

Three questions, in this order: has the tenant so much waiting that more is refused (`compute_allowed_rate`), does it
send more than it may at all (`max_rate`), and is it more than may wait beside others (`rate`, `spill_above`). Only what
is kept uses up what the tenant may send.

Pressure: below a tenth of its `max_backlog` nothing is held back. From there on the tenant may send `drain_rate`
messages per second, falling in proportion to what is left, to nothing at all at `max_backlog`. Only the tenant's own
backlog counts: a tenant that happens to share a lane with it is not held back.
"""

import math
from collections.abc import Iterator
from enum import Enum

import msgspec

from holdfast.queue.message import RefusalReason
from holdfast.queue.policy import Limits, OverMaxRate, QueuePolicy
from holdfast.queue.rules import bucket

PRESSURE_STARTS_AT = 0.1
"""The part of the backlog that is no reason to worry."""
BURST_SECONDS = 1.0
"""Seconds of the rate that may be sent at once: short, as the rate falls with each message that is kept."""
MAX_WAIT = 60.0
"""Seconds after which it is worth another try, however far away the limit is."""
FULL_WAIT = 5.0
"""The same where there is no room at all: nobody knows when some of what waits will be done."""
_UNLIMITED = 1 << 62


class TenantState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a tenant in a queue. Buckets are kept as when they will be full again; see `bucket.py`."""

    ready: int = 0
    """Messages that wait, and could be handled now."""
    spilled: int = 0
    """Those of them that wait apart."""
    leased: int = 0
    """Messages that workers hold."""
    delayed: int = 0
    """Messages that are not due yet, or wait for others of their group."""
    rate_full_at: float = 0.0
    max_rate_full_at: float = 0.0
    pressure_full_at: float = 0.0
    spill_full_at: float = 0.0
    """That of what it may send beside others although it has much waiting: what is fresh must not wait until all of
    that is done."""
    run_full_at: float = 0.0
    lease_full_at: float = 0.0
    """The same rate as `rate`, counted when messages are handed out."""


class Admission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of several messages of one tenant: the first `live`, then `spilled`, `delays`, and `refused`."""

    live: int
    """Those that wait beside everybody else's."""
    is_own: bool
    """Whether these are in a lane of the tenant's own, where nobody else waits behind them."""
    spilled: int
    delays: tuple[float, ...] = ()
    """Seconds, more than 0, by which further ones are delayed: they exceed what the tenant may send, and are kept."""
    refused: int = 0
    refusal: RefusalReason | None = None
    retry_after: float = 0.0
    pressure: float = 0.0
    state: TenantState
    """What is known of the tenant now."""


def admit(policy: QueuePolicy, limits: Limits, state: TenantState, wanted: int, now: float) -> Admission:
    """Decide on so many messages of one tenant, and say what is known of it afterwards."""
    backlog_limit, hard = get_max_backlog(policy, limits), limits.bucket("max_rate")
    is_delaying = limits.over_max_rate is OverMaxRate.DELAY
    waiting = state.ready + state.delayed
    steady = compute_allowed_rate(waiting, backlog_limit, policy.drain_rate)
    kept = wanted if backlog_limit is None else min(wanted, max(0, backlog_limit - waiting))
    if steady is not None:
        kept = min(kept, bucket.count_available(state.pressure_full_at, now, *steady))
    if hard is not None and not is_delaying:
        kept = min(kept, bucket.count_available(state.max_rate_full_at, now, *hard))

    delays: list[float] = []
    full_at, pressure_full_at = state.max_rate_full_at, state.pressure_full_at
    if steady is not None:
        pressure_full_at = bucket.spend(pressure_full_at, now, kept, *steady)
    if hard is not None and is_delaying:
        delays, full_at = bucket.reserve(full_at, now, kept, *hard)
        delays = [delay for delay in delays if delay]
    elif hard is not None:
        full_at = bucket.spend(full_at, now, kept, *hard)
    state = msgspec.structs.replace(state, max_rate_full_at=full_at, pressure_full_at=pressure_full_at)

    refusal, retry_after = (
        _explain_refusal(policy, limits, state, waiting + kept, now) if kept < wanted else (None, 0.0)
    )
    at_once = kept - len(delays)
    live, state = _count_live(policy, limits, state, at_once, now)
    return Admission(
        live=live,
        is_own=policy.spill_above is not None and state.ready >= policy.spill_above,
        spilled=at_once - live,
        delays=tuple(delays),
        refused=wanted - kept,
        refusal=refusal,
        retry_after=retry_after,
        pressure=compute_pressure(waiting + kept, backlog_limit),
        state=msgspec.structs.replace(
            state,
            ready=state.ready + at_once,
            spilled=state.spilled + at_once - live,
            delayed=state.delayed + len(delays),
        ),
    )


class LaneKind(Enum):
    """Among what a message waits."""

    SHARED = "shared"
    OWN = "own"
    SPILLED = "spilled"


def decide_each(admission: Admission) -> Iterator[tuple[LaneKind, float | None]]:
    """For one message after the other: where it waits, and by how much it is delayed; None: it is refused."""
    yield from [(LaneKind.OWN if admission.is_own else LaneKind.SHARED, 0.0)] * admission.live
    yield from [(LaneKind.SPILLED, 0.0)] * admission.spilled
    for delay in admission.delays:
        yield LaneKind.SHARED, delay
    while True:
        yield LaneKind.SHARED, None


def is_unlimited(limits: Limits) -> bool:
    """Whether nothing that a tenant does has to be counted, but for how much it has waiting."""
    return limits.rate is limits.max_rate is limits.run_rate is limits.concurrency is limits.max_backlog is None


def get_room(policy: QueuePolicy, limits: Limits) -> int:
    """How many messages a tenant may have, due or not, below which how many there are does not matter for one more."""
    backlog_limit = get_max_backlog(policy, limits)
    pressed = _UNLIMITED if backlog_limit is None else math.ceil(backlog_limit * PRESSURE_STARTS_AT) - 1
    return min(pressed, _UNLIMITED if policy.spill_above is None else policy.spill_above - 1)


def _explain_refusal(
    policy: QueuePolicy, limits: Limits, state: TenantState, waiting: int, now: float
) -> tuple[RefusalReason, float]:
    """What is in the way of one more message, and for how many seconds; of two obstacles, the one that stays longer."""
    backlog_limit, hard = get_max_backlog(policy, limits), limits.bucket("max_rate")
    for_backlog = for_rate = 0.0
    steady = compute_allowed_rate(waiting, backlog_limit, policy.drain_rate)
    if backlog_limit is not None and waiting >= backlog_limit:
        for_backlog = FULL_WAIT
    elif steady is not None:
        for_backlog = bucket.seconds_until_token(state.pressure_full_at, now, *steady)
    if hard is not None and limits.over_max_rate is OverMaxRate.REJECT:
        for_rate = bucket.seconds_until_token(state.max_rate_full_at, now, *hard)
    reason = RefusalReason.RATE if for_rate > for_backlog else RefusalReason.BACKLOG
    return reason, min(MAX_WAIT, max(for_rate, for_backlog))


def _count_live(
    policy: QueuePolicy, limits: Limits, state: TenantState, kept: int, now: float
) -> tuple[int, TenantState]:
    """How many may wait beside everybody else's."""
    is_capped = limits.concurrency is not None or limits.run_rate is not None
    if is_capped and (state.spilled or (limits.concurrency is not None and state.leased >= limits.concurrency)):
        return 0, state  # it would be spilled as soon as it is looked at, and overtake what was
    live = min(kept, _count_unspilled_room(policy, state, now))
    soft = limits.bucket("rate")
    if soft is not None:
        live, full_at = bucket.take(state.rate_full_at, now, live, *soft)
        state = msgspec.structs.replace(state, rate_full_at=full_at)
    return live, _spend_fresh(policy, state, kept, live, now)


def _count_unspilled_room(policy: QueuePolicy, state: TenantState, now: float) -> int:
    """How many more may wait beside everybody else's, as far as what waits already decides.

    Up to `spill_above`, whatever their age. A tenant that has more than that may be at it again after an outage: in
    every `fresh_for` it may send as many again, which come as soon as everybody else's, in a lane of its own.
    """
    if policy.spill_above is None:
        return _UNLIMITED
    fresh = _get_fresh_bucket(policy)
    if state.ready < policy.spill_above or fresh is None:
        return max(0, policy.spill_above - state.ready)
    return bucket.count_available(state.spill_full_at, now, *fresh)


def _spend_fresh(policy: QueuePolicy, state: TenantState, kept: int, live: int, now: float) -> TenantState:
    """The same tenant, when so many were kept, and so many of them wait beside everybody else's."""
    fresh, limit = _get_fresh_bucket(policy), policy.spill_above
    if fresh is None or limit is None or state.ready + kept < limit:
        return state
    spent = live if state.ready >= limit else limit  # who reaches it has just sent as many as it may
    return msgspec.structs.replace(state, spill_full_at=bucket.spend(state.spill_full_at, now, spent, *fresh))


def _get_fresh_bucket(policy: QueuePolicy) -> tuple[float, float] | None:
    """The rate and burst of what a tenant with much waiting may send beside others; None: nothing, ever."""
    if not policy.spill_above or not policy.fresh_for:
        return None
    return policy.spill_above / policy.fresh_for, policy.spill_above


def get_max_backlog(policy: QueuePolicy, limits: Limits) -> int | None:
    """Return how many messages a tenant with such limits may have waiting; None: as many as it likes."""
    return policy.max_backlog if limits.max_backlog is None else limits.max_backlog


def compute_pressure(waiting: int, backlog_limit: int | None) -> float:
    """The part of its backlog that a tenant has used: 0 to 1."""
    return 0.0 if backlog_limit is None else min(1.0, waiting / backlog_limit)


def compute_allowed_rate(waiting: int, backlog_limit: int | None, drain_rate: float) -> tuple[float, float] | None:
    """The rate and burst at which it may send more; None: as it likes."""
    if backlog_limit is None or waiting < backlog_limit * PRESSURE_STARTS_AT:
        return None
    left = max(0.0, (backlog_limit - waiting) / (backlog_limit * (1 - PRESSURE_STARTS_AT)))
    rate = drain_rate * min(1.0, left)
    return rate, max(1.0, rate * BURST_SECONDS)
