"""Whose turn it is: fresh before old, urgent before less urgent, what was spilled last; none of them never. Pure."""

from collections.abc import Collection, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from holdfast.queue.message import PRIORITIES
from holdfast.queue.policy import QueuePolicy


class Age(IntEnum):
    """Which messages of a lane are meant: those younger than `fresh_for`, or those older."""

    FRESH = 0
    OLD = 1


class Source(NamedTuple):
    """Where to look for messages next."""

    rank: int
    """The lanes: their priority, from PRIORITIES on those for excess."""
    age: Age


class Turn(NamedTuple):
    """So many messages, from the first of these sources that have them."""

    number: int
    sources: Sequence[Source]


FRESH = tuple(Source(rank, Age.FRESH) for rank in range(PRIORITIES))
OLD = tuple(Source(rank, Age.OLD) for rank in range(PRIORITIES))
FRESH_SPILLED = tuple(Source(PRIORITIES + rank, Age.FRESH) for rank in range(PRIORITIES))
OLD_SPILLED = tuple(Source(PRIORITIES + rank, Age.OLD) for rank in range(PRIORITIES))
IN_ORDER = (*FRESH, *OLD, *FRESH_SPILLED, *OLD_SPILLED)
RANKS = frozenset(range(2 * PRIORITIES))
LANES = {rank: 128 if rank < PRIORITIES else 64 for rank in range(2 * PRIORITIES)}
"""Lanes that are looked at, by rank: as many as most queues have at all, and some of those that tenants have for
themselves. Of more, those that waited longest."""
FRESH_LANES = 100_000
"""Lanes of a rank among which those with fresh messages are found, too, where there are more than are looked at."""
MORE_FRESH = 8
"""So many times as many of these are looked at, beside those that waited longest."""
IN_VAIN = 1000
"""Messages that are looked at and not handed out, before the worker gets what there is and may ask again."""
RUN, OLD_RUN = 8, 32
"""Messages that are taken from one lane at once, at most, while others wait for their turn: of fresh ones, and of
others, which have waited so long that a moment more or less is nothing to them."""
FEW, OLD_FEW = 32, 8
"""Up to twice as many messages are taken from as many lanes."""
PERIOD = 1000
"""Turns after which their pattern repeats: shares count in thousandths."""
_LESS_URGENT = tuple(reversed(range(1, PRIORITIES)))


def _each_at_times(sources: Sequence[Source]) -> tuple[tuple[Source, ...], ...]:
    """Every other time in their order; in between one of the later ones comes first, each as often as the others."""
    return tuple(tuple(dict.fromkeys([*first, *sources])) for later in sources[:0:-1] for first in ([], [later]))


# What the turns of each share look for, in this order again and again: an endless backlog of one priority would
# otherwise take all of the share for itself.
_FOR_OLD = tuple((*order, *OLD_SPILLED) for order in _each_at_times(OLD))
_FOR_LESS_URGENT = tuple(
    tuple(dict.fromkeys([age[other] for other in (rank, *_LESS_URGENT) for age in (FRESH, OLD)] + list(IN_ORDER)))
    for rank in _LESS_URGENT
)
_FOR_SPILLED = _each_at_times((*FRESH_SPILLED, *OLD_SPILLED))
_SHARES = (_FOR_OLD, _FOR_LESS_URGENT, _FOR_SPILLED, (IN_ORDER,))


def turns(wanted: int, before: int, policy: QueuePolicy, ranks: Collection[int] = RANKS) -> list[Turn]:
    """In what order to look for so many messages, when `before` were handed out already.

    A share of them goes to old, to less urgent and to spilled messages first. It is counted over all that are handed
    out, so that it holds for workers that take one at a time as well. What finds nothing is for the others. `ranks`
    are those with messages at all: the others are not looked for.
    """
    present = _present(frozenset(ranks))
    in_order = present[-1][0]
    found: dict[tuple[Source, ...], int] = {}
    for orders, sums in zip(present, _pattern(policy), strict=True):
        first, last = (turn // PERIOD * sums[-1] + sums[turn % PERIOD] for turn in (before, before + wanted))
        for place, order in enumerate(orders):
            # How many of the turns of this share have this order: those whose number is `place`, in a circle.
            number = (last - place - 1) // len(orders) - (first - place - 1) // len(orders)
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
    return _dealt(*(_thousandths(share) for share in (policy.old_share, policy.low_share, policy.spill_share)))


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


def quota(wanted: int, lanes: int, age: Age = Age.FRESH) -> int:
    """How many to take from each of so many lanes, so that all have their turn.

    Where many are wanted, some more, from fewer lanes: the others come first the next time, which is soon, and every
    lane that is touched costs as much as some messages do.
    """
    run, few = (RUN, FEW) if age is Age.FRESH else (OLD_RUN, OLD_FEW)
    return max(1, wanted // lanes, min(run, wanted // few)) if lanes else 0
