"""What a worker leases: how many messages, from which lanes first, and how many of one tenant. Pure.

Three questions, in the order of this file. Whose turn is it: fresh before old, urgent before less urgent, spilled last,
none of them never (`plan_turns`, `compute_quota`). How many of one tenant's messages may be leased
(`compute_allowance`, `compute_caps`). How many does a worker ask for (`messages_to_request`): few, so that no message
waits in one worker while another is idle, but never so few that handlers wait for the next one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from holdfast.queue.message import PRIORITY_LEVELS
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.queue.rules import bucket
from holdfast.queue.rules.admission import TenantState


class Age(IntEnum):
    """Which messages of a lane are meant: those younger than `fresh_for`, or those older."""

    FRESH = 0
    BACKLOG = 1


class Source(NamedTuple):
    """Where to look for messages next."""

    rank: int
    """The lanes: their priority, from PRIORITY_LEVELS on those for excess."""
    age: Age


class Turn(NamedTuple):
    """So many messages, from the first of these sources that have them."""

    wanted: int
    sources: Sequence[Source]


FRESH = tuple(Source(rank, Age.FRESH) for rank in range(PRIORITY_LEVELS))
BACKLOG = tuple(Source(rank, Age.BACKLOG) for rank in range(PRIORITY_LEVELS))
FRESH_SPILLED = tuple(Source(PRIORITY_LEVELS + rank, Age.FRESH) for rank in range(PRIORITY_LEVELS))
BACKLOG_SPILLED = tuple(Source(PRIORITY_LEVELS + rank, Age.BACKLOG) for rank in range(PRIORITY_LEVELS))
IN_ORDER = (*FRESH, *BACKLOG, *FRESH_SPILLED, *BACKLOG_SPILLED)
RANKS = frozenset(range(2 * PRIORITY_LEVELS))
MAX_LANES_BY_RANK = {rank: 128 if rank < PRIORITY_LEVELS else 64 for rank in range(2 * PRIORITY_LEVELS)}
"""Lanes that are looked at, by rank: as many as most queues have at all, and some of those that tenants have for
themselves. Of more, those that waited longest."""
MAX_FRESH_LANES = 100_000
"""Lanes of a rank among which those with fresh messages are found, too, where there are more than are looked at."""
FRESH_FACTOR = 8
"""So many times as many of these are looked at, beside those that waited longest."""
MAX_SKIPPED = 1000
"""Messages that are looked at and not handed out, before the worker gets what there is and may ask again."""
RUN, BACKLOG_RUN = 8, 32
"""Messages that are taken from one lane at once, at most, while others wait for their turn: of fresh ones, and of
others, which have waited so long that a moment more or less is nothing to them."""
FEW, BACKLOG_FEW = 32, 8
"""Up to twice as many messages are taken from as many lanes."""
PERIOD = 1000
"""Turns after which their pattern repeats: shares count in thousandths."""
_LESS_URGENT = tuple(reversed(range(1, PRIORITY_LEVELS)))


def _each_at_times(sources: Sequence[Source]) -> tuple[tuple[Source, ...], ...]:
    """Every other time in their order; in between one of the later ones comes first, each as often as the others."""
    return tuple(tuple(dict.fromkeys([*first, *sources])) for later in sources[:0:-1] for first in ([], [later]))


# What the turns of each share look for, in this order again and again: an endless backlog of one priority would
# otherwise take all of the share for itself.
_FOR_BACKLOG = tuple((*order, *BACKLOG_SPILLED) for order in _each_at_times(BACKLOG))
_FOR_LESS_URGENT = tuple(
    tuple(dict.fromkeys([age[other] for other in (rank, *_LESS_URGENT) for age in (FRESH, BACKLOG)] + list(IN_ORDER)))
    for rank in _LESS_URGENT
)
_FOR_SPILLED = _each_at_times((*FRESH_SPILLED, *BACKLOG_SPILLED))
_SHARES = (_FOR_BACKLOG, _FOR_LESS_URGENT, _FOR_SPILLED, (IN_ORDER,))


def plan_turns(wanted: int, leased_before: int, policy: QueuePolicy, ranks: Collection[int] = RANKS) -> list[Turn]:
    """In what order to look for so many messages, when `leased_before` were handed out already.

    A share of them goes to old, to less urgent and to spilled messages first. It is counted over all that are handed
    out, so that it holds for workers that take one at a time as well. What finds nothing is for the others. `ranks`
    are those with messages at all: the others are not looked for.
    """
    present = _present(frozenset(ranks))
    in_order = present[-1][0]
    found: dict[tuple[Source, ...], int] = {}
    for orders, sums in zip(present, _pattern(policy), strict=True):
        first, last = (
            turn // PERIOD * sums[-1] + sums[turn % PERIOD] for turn in (leased_before, leased_before + wanted)
        )
        for index, order in enumerate(orders):
            # How many of the turns of this share have this order: those whose number is `index`, in a circle.
            number = (last - index - 1) // len(orders) - (first - index - 1) // len(orders)
            if number:
                sources = order or in_order
                found[sources] = found.get(sources, 0) + number
    rest = found.pop(in_order, 0)
    return [Turn(number, sources) for sources, number in (*found.items(), (in_order, rest)) if number and sources]


@lru_cache(maxsize=1 << len(RANKS))
def _present(ranks: frozenset[int]) -> tuple[tuple[tuple[Source, ...], ...], ...]:
    """The orders of all shares, without what is not there."""
    return tuple(
        tuple(tuple(source for source in sources if source.rank in ranks) for sources in orders) for orders in _SHARES
    )


def _pattern(policy: QueuePolicy) -> Sequence[Sequence[int]]:
    return _dealt(
        *(_thousandths(share) for share in (policy.backlog_share, policy.low_priority_share, policy.spill_share))
    )


def _thousandths(share: float) -> int:
    return max(1, round(share * PERIOD)) if share else 0


@lru_cache(maxsize=64)
def _dealt(*shares: int) -> Sequence[Sequence[int]]:
    """For each share, and for what is left: how many of the first 0, 1 and so on turns of a period are its own.

    The turn that is to be had the soonest comes first, none before its time: so no share is ever a whole turn ahead or
    behind, as in Baruah and others, Proportionate Progress (1996).
    """
    weights = [*shares, PERIOD - sum(shares)]
    sums = [[0] for _ in weights]
    for turn in range(PERIOD):
        begun = [kind for kind, weight in enumerate(weights) if sums[kind][-1] * PERIOD < weight * (turn + 1)]
        chosen = min(begun, key=lambda kind: -(-(sums[kind][-1] + 1) * PERIOD // weights[kind]))
        for kind, counted in enumerate(sums):
            counted.append(counted[-1] + (kind == chosen))
    return sums


def compute_quota(wanted: int, lanes: int, age: Age = Age.FRESH) -> int:
    """How many to take from each of so many lanes, so that all have their turn.

    Where many are wanted, some more, from fewer lanes: the others come first the next time, which is soon, and every
    lane that is touched costs as much as some messages do.
    """
    run, few = (RUN, FEW) if age is Age.FRESH else (BACKLOG_RUN, BACKLOG_FEW)
    return max(1, wanted // lanes, min(run, wanted // few)) if lanes else 0


NOISY_LEAST = 30
"""Messages in the hands of workers below which no tenant is noisy. This and the share are those of SQS fair queues."""
NOISY_SHARE = 0.1
"""The share of all messages in the hands of workers above which a tenant is noisy, as long as others wait."""

RECHECK_SECONDS = 1.0
"""Seconds after which a tenant that has as many messages in work as it may is looked at again, whatever happens."""


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """What may be handed out of one tenant, from lanes that it shares with others and in all."""

    shared: int
    """From lanes that it shares; what is found there beyond this is moved to where the tenant's excess waits."""
    total: int
    next_check_at: float
    """When to look again, if nothing more may be handed out now; infinity: when one of its messages is settled."""


def compute_allowance(limits: Limits, state: TenantState, cap: int | None, now: float) -> Allowance:
    """What the tenant's limits, and a `cap` on messages in the hands of workers, leave room for."""
    total, next_check_at = 1 << 62, now
    if limits.concurrency is not None:
        total = max(0, limits.concurrency - state.leased)
        next_check_at = now if total else math.inf
    run = limits.bucket("run_rate")
    if run is not None:
        tokens = bucket.count_available(state.run_full_at, now, *run)
        if tokens < total:
            total, next_check_at = tokens, now + bucket.seconds_until_token(state.run_full_at, now, *run)
    shared = total if cap is None else min(total, max(0, cap - state.leased))
    soft = limits.bucket("rate")
    if soft is not None:
        shared = min(shared, bucket.count_available(state.lease_full_at, now, *soft))
    return Allowance(shared, total, next_check_at)


def update_after_lease(limits: Limits, state: TenantState, count: int, spilled: int, now: float) -> TenantState:
    """What is known of a tenant after so many were handed out, some of them of those that waited apart."""
    run, soft = limits.bucket("run_rate"), limits.bucket("rate")
    shared = count - spilled
    return msgspec.structs.replace(
        state,
        ready=state.ready - count,
        spilled=state.spilled - spilled,
        leased=state.leased + count,
        run_full_at=state.run_full_at if run is None else bucket.spend(state.run_full_at, now, count, *run),
        lease_full_at=state.lease_full_at if soft is None else bucket.spend(state.lease_full_at, now, shared, *soft),
    )


class TenantCounters(msgspec.Struct, frozen=True, gc=False):
    """How much of a tenant there is."""

    ready: int
    leased: int


def compute_caps(tenants: Mapping[str, TenantCounters], in_flight: int, *, are_others_waiting: bool) -> dict[str, int]:
    """Caps for tenants that hold more than their share of the workers while others wait; a lone tenant has none."""
    if not are_others_waiting:
        return {}
    share = max(NOISY_LEAST, math.ceil(in_flight * NOISY_SHARE))
    return {tenant: share for tenant, seen in tenants.items() if seen.leased > share}


MAX_LOCAL_WAIT = 0.05
"""Seconds that a message may wait here for a handler. Where it would be more, none is fetched ahead."""
QUICK_LOCAL_WAIT = 0.02
"""The same where it takes less than a third of that to fetch more: what comes later need not wait so long."""
MAX_PREFETCHED = 1000
"""Messages that are held at most beyond those being handled: more would not make anything quicker."""
SMOOTHING = 0.3
"""How much the last measurement counts."""


class Pace(NamedTuple):
    """How fast a worker has been of late."""

    rate: float = 0.0
    """Messages that were handled per second."""
    handler_seconds: float = 0.0
    """What each of them took a handler."""
    fetch_seconds: float = 0.0
    """Seconds that it takes to fetch more."""


def messages_to_hold(concurrency: int, pace: Pace) -> int:
    """Return how many messages to hold: those being handled, and twice those handled while more are fetched.

    That is, it asks when half of them are left. Those not handled within `MAX_LOCAL_WAIT` are too many.
    """
    needed = 2 * concurrency * pace.fetch_seconds / pace.handler_seconds if pace.handler_seconds > 0 else math.inf
    patience = min(MAX_LOCAL_WAIT, max(QUICK_LOCAL_WAIT, 3 * pace.fetch_seconds))
    return concurrency + math.floor(min(MAX_PREFETCHED, pace.rate * patience, math.ceil(min(MAX_PREFETCHED, needed))))


def messages_to_request(concurrency: int, pace: Pace, held: int) -> int:
    """Return how many to ask for; 0 unless a handler is idle, or half of what was fetched ahead is used up."""
    most = messages_to_hold(concurrency, pace)
    is_worth_it = held < concurrency or held <= (concurrency + most) // 2
    return max(0, most - held) if is_worth_it else 0


def pace_after_handling(pace: Pace, handled: int, busy: float, elapsed: float) -> Pace:
    """The pace, after so many were handled in so many seconds more, for which handlers were busy so many seconds."""
    if elapsed <= 0:
        return pace
    seconds = _smoothed(pace.handler_seconds, busy / handled) if handled else pace.handler_seconds
    return pace._replace(rate=_smoothed(pace.rate, handled / elapsed), handler_seconds=seconds)


def pace_after_fetch(pace: Pace, seconds: float) -> Pace:
    """The pace, after fetching took so many seconds."""
    return pace._replace(fetch_seconds=_smoothed(pace.fetch_seconds, seconds))


def _smoothed(before: float, now: float) -> float:
    return before + SMOOTHING * (now - before) if before else now  # nothing is known yet: it counts alone
