"""Decide what a worker leases: how many messages, from which lanes first, and how many of one tenant. Pure.

Three questions, in the order of this file. Which messages come next: fresh before backlog, urgent before less urgent,
spilled last, but each gets a share (`plan_turns`, `compute_quota`). How many messages of one tenant may be leased
(`compute_allowance`, `compute_caps`). How many messages a worker requests (`messages_to_request`): so few that none
waits in one worker while another is idle, but enough that no handler waits for the next one.
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
    """The age of messages in a lane: younger or older than `fresh_for`."""

    FRESH = 0
    BACKLOG = 1


class Source(NamedTuple):
    """The lanes of one rank, and which of their messages to lease."""

    rank: int
    """The rank of the lanes: their priority, plus PRIORITY_LEVELS for overflow lanes."""
    age: Age


class Turn(NamedTuple):
    """A number of messages to lease, from the first of these sources that has some."""

    wanted: int
    sources: Sequence[Source]


FRESH = tuple(Source(rank, Age.FRESH) for rank in range(PRIORITY_LEVELS))
BACKLOG = tuple(Source(rank, Age.BACKLOG) for rank in range(PRIORITY_LEVELS))
FRESH_SPILLED = tuple(Source(PRIORITY_LEVELS + rank, Age.FRESH) for rank in range(PRIORITY_LEVELS))
BACKLOG_SPILLED = tuple(Source(PRIORITY_LEVELS + rank, Age.BACKLOG) for rank in range(PRIORITY_LEVELS))
IN_ORDER = (*FRESH, *BACKLOG, *FRESH_SPILLED, *BACKLOG_SPILLED)
RANKS = frozenset(range(2 * PRIORITY_LEVELS))
_MAX_SHARED_LANES, _MAX_SPILL_LANES = 128, 64
MAX_LANES_BY_RANK = {
    rank: _MAX_SHARED_LANES if rank < PRIORITY_LEVELS else _MAX_SPILL_LANES for rank in range(2 * PRIORITY_LEVELS)
}
"""Lanes of a rank that every lease uses, those that were served longest ago: in most queues all shared lanes, and some
of the tenants' own and overflow lanes."""
MAX_FRESH_LANES = 100_000
"""If a rank has more lanes, up to this many are checked for fresh messages."""
FRESH_FACTOR = 8
"""Of the lanes with fresh messages, a lease also uses up to this many times `MAX_LANES_BY_RANK`."""
MAX_SKIPPED = 1000
"""Messages that one lease may examine without leasing them. Then the worker gets what was found, and may ask again."""
RUN, BACKLOG_RUN = 8, 32
"""Maximum messages leased from one lane in a row while other lanes wait: of fresh messages, and of backlog messages,
which have waited so long that a moment more does not matter."""
SMALL_REQUEST, SMALL_BACKLOG_REQUEST = 32, 8
"""A request for fewer than twice this many messages, fresh or backlog, leases one message from each lane, or more if
there are fewer lanes than messages."""
PERIOD = 1000
"""Leases after which the pattern of shares repeats: shares are counted in thousandths."""
_LESS_URGENT = tuple(reversed(range(1, PRIORITY_LEVELS)))


def _rotate_first_source(sources: Sequence[Source]) -> tuple[tuple[Source, ...], ...]:
    """Return search orders. Of A, B, C: A B C, C A B, A B C, B A C. Every second one is the given order."""
    return tuple(tuple(dict.fromkeys([*first, *sources])) for later in sources[:0:-1] for first in ([], [later]))


# The orders in which each share searches the sources, used in rotation: otherwise an endless backlog of one priority
# would use up the whole share.
_FOR_BACKLOG = tuple((*order, *BACKLOG_SPILLED) for order in _rotate_first_source(BACKLOG))
_FOR_LESS_URGENT = tuple(
    tuple(dict.fromkeys([age[other] for other in (rank, *_LESS_URGENT) for age in (FRESH, BACKLOG)] + list(IN_ORDER)))
    for rank in _LESS_URGENT
)
_FOR_SPILLED = _rotate_first_source((*FRESH_SPILLED, *BACKLOG_SPILLED))
_SHARES = (_FOR_BACKLOG, _FOR_LESS_URGENT, _FOR_SPILLED, (IN_ORDER,))


def plan_turns(wanted: int, leased_so_far: int, policy: QueuePolicy, ranks: Collection[int] = RANKS) -> list[Turn]:
    """Plan in which order to search for `wanted` messages, after `leased_so_far` were leased.

    A share of the leases goes to backlog, to less urgent and to spilled messages first. Shares are counted over all
    leases of a worker, so that they also apply to workers that lease one message at a time. A share that finds nothing
    goes to the other messages. `ranks` are those with messages; others are not searched.
    """
    present = _present(frozenset(ranks))
    in_order = present[-1][0]
    found: dict[tuple[Source, ...], int] = {}
    for orders, sums in zip(present, _pattern(policy), strict=True):
        first, last = (
            turn // PERIOD * sums[-1] + sums[turn % PERIOD] for turn in (leased_so_far, leased_so_far + wanted)
        )
        for index, order in enumerate(orders):
            # The number of this share's leases that use this order: those whose number modulo len(orders) is `index`.
            number = (last - index - 1) // len(orders) - (first - index - 1) // len(orders)
            if number:
                sources = order or in_order
                found[sources] = found.get(sources, 0) + number
    rest = found.pop(in_order, 0)
    return [Turn(number, sources) for sources, number in (*found.items(), (in_order, rest)) if number and sources]


@lru_cache(maxsize=1 << len(RANKS))
def _present(ranks: frozenset[int]) -> tuple[tuple[tuple[Source, ...], ...], ...]:
    """Return the orders of all shares, without sources of other ranks."""
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
    """Return one list for each share, and one for the rest: entry n says how many of the first n leases belong to it.

    Each lease goes to the share whose next lease is due soonest, among those that may have one already. So no share is
    ever a whole lease ahead or behind, as in Baruah and others, Proportionate Progress (1996).
    """
    weights = [*shares, PERIOD - sum(shares)]
    sums = [[0] for _ in weights]
    for turn in range(PERIOD):
        allowed = [kind for kind, weight in enumerate(weights) if sums[kind][-1] * PERIOD < weight * (turn + 1)]
        chosen = min(allowed, key=lambda kind: -(-(sums[kind][-1] + 1) * PERIOD // weights[kind]))
        for kind, counted in enumerate(sums):
            counted.append(counted[-1] + (kind == chosen))
    return sums


def compute_quota(wanted: int, lanes: int, age: Age = Age.FRESH) -> int:
    """Return how many messages to lease from each of `lanes` lanes, so that all lanes get their turn.

    If many messages are wanted, lease more from fewer lanes: the other lanes come first in the next request, which is
    soon, and touching a lane costs as much as leasing a few messages.
    """
    run, small = (RUN, SMALL_REQUEST) if age is Age.FRESH else (BACKLOG_RUN, SMALL_BACKLOG_REQUEST)
    return max(1, wanted // lanes, min(run, wanted // small)) if lanes else 0


NOISY_LEAST = 30
"""Leased messages up to which no tenant is noisy. This number and the share are those of SQS fair queues."""
NOISY_SHARE = 0.1
"""The share of all leased messages above which a tenant is noisy, while other tenants wait."""

RECHECK_SECONDS = 1.0
"""Seconds after which a tenant at its concurrency limit is checked again, even if none of its messages is settled."""


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """How many messages of one tenant may be leased now."""

    shared: int
    """Maximum from shared lanes. Further messages found there are spilled."""
    total: int
    """Maximum from all lanes."""
    next_check_at: float
    """When to check again if `total` is 0. Infinity means when one of the tenant's messages is settled."""


def compute_allowance(limits: Limits, state: TenantState, cap: int | None, now: float) -> Allowance:
    """Return what the tenant's limits, and a `cap` on its leased messages, allow."""
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
    spill = limits.bucket("spill_rate")
    if spill is not None:
        shared = min(shared, bucket.count_available(state.lease_full_at, now, *spill))
    return Allowance(shared, total, next_check_at)


def update_after_lease(limits: Limits, state: TenantState, count: int, spilled: int, now: float) -> TenantState:
    """Return a tenant's state after `count` messages were leased, `spilled` of them from its overflow lane."""
    run, spill = limits.bucket("run_rate"), limits.bucket("spill_rate")
    shared = count - spilled
    return msgspec.structs.replace(
        state,
        ready=state.ready - count,
        spilled=state.spilled - spilled,
        leased=state.leased + count,
        run_full_at=state.run_full_at if run is None else bucket.spend(state.run_full_at, now, count, *run),
        lease_full_at=state.lease_full_at if spill is None else bucket.spend(state.lease_full_at, now, shared, *spill),
    )


class TenantCounters(msgspec.Struct, frozen=True, gc=False):
    """The ready and leased messages of a tenant."""

    ready: int
    """Spilled messages included."""
    leased: int


def compute_caps(tenants: Mapping[str, TenantCounters], in_flight: int, *, are_others_waiting: bool) -> dict[str, int]:
    """Return caps for tenants that lease more than their share of the workers while others wait."""
    if not are_others_waiting:
        return {}
    share = max(NOISY_LEAST, math.ceil(in_flight * NOISY_SHARE))
    return {tenant: share for tenant, seen in tenants.items() if seen.leased > share}


MAX_LOCAL_WAIT = 0.05
"""Maximum seconds that a prefetched message may wait for a handler. Messages that would wait longer are not fetched."""
QUICK_LOCAL_WAIT = 0.02
"""The same maximum if a fetch takes less than a third of this value, because then the next messages arrive soon."""
MAX_PREFETCHED = 1000
"""Maximum messages leased in addition to those being handled: more would not be faster."""
SMOOTHING = 0.3
"""The weight of the latest measurement."""


class Pace(NamedTuple):
    """The recent speed of a worker."""

    rate: float = 0.0
    """Messages handled per second."""
    handler_seconds: float = 0.0
    """Seconds that a handler takes for one message."""
    fetch_seconds: float = 0.0
    """Seconds that one fetch takes."""


def compute_lease_target(concurrency: int, pace: Pace) -> int:
    """Return how many messages to have leased: those being handled, plus twice those handled during one fetch.

    So the next fetch starts when half of the prefetched ones are left. Limited to those handled in `MAX_LOCAL_WAIT`.
    """
    needed = 2 * concurrency * pace.fetch_seconds / pace.handler_seconds if pace.handler_seconds > 0 else math.inf
    max_wait = min(MAX_LOCAL_WAIT, max(QUICK_LOCAL_WAIT, 3 * pace.fetch_seconds))
    return concurrency + math.floor(min(MAX_PREFETCHED, pace.rate * max_wait, math.ceil(min(MAX_PREFETCHED, needed))))


def messages_to_request(concurrency: int, pace: Pace, leased: int) -> int:
    """Return how many messages to request: 0 unless a handler is idle, or half of the prefetched ones are used up."""
    target = compute_lease_target(concurrency, pace)
    is_worth_it = leased < concurrency or leased <= (concurrency + target) // 2
    return max(0, target - leased) if is_worth_it else 0


def pace_after_handling(pace: Pace, handled: int, busy: float, elapsed: float) -> Pace:
    """Return the pace after `handled` messages in `elapsed` seconds, in which handlers were busy for `busy` seconds."""
    if elapsed <= 0:
        return pace
    seconds = _smoothed(pace.handler_seconds, busy / handled) if handled else pace.handler_seconds
    return pace._replace(rate=_smoothed(pace.rate, handled / elapsed), handler_seconds=seconds)


def pace_after_fetch(pace: Pace, seconds: float) -> Pace:
    """Return the pace after a fetch that took `seconds`."""
    return pace._replace(fetch_seconds=_smoothed(pace.fetch_seconds, seconds))


def _smoothed(before: float, now: float) -> float:
    return before + SMOOTHING * (now - before) if before else now  # the first measurement counts fully
