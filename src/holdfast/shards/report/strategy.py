"""How to find what shards share: which of them by sets of workers, and which by pairs of shards. Pure.

Small shards have few sets of workers, and a million of them are counted by what several have. A large shard has more
sets than anybody can count, also if it is the only one of its kind: it is compared with all others instead. So shards
are parted by their size, where it is least to do.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.shards.report.shared_sets import BLOCK, TooManySets
from holdfast.shards.report.table import IntArray, ShardArray

# Nanoseconds on one core, as measured; only how they compare matters. For a set of workers of a shard where most are
# shared; for a worker that two shards have in common; and, where all are multiplied, for a pair of shards, and for each
# worker there is at a pair.
_SET, _COMMON, _PAIR, _WORKER = 100.0, 60.0, 48.0, 0.03

_SHARED_SETS_SHARE = 1 / 30
"""Share of the sets of workers of a shard that are looked at in a fleet so large that most have no other shard.

Nobody knows before: where it makes a difference, it is tried.
"""

_TRIAL_SHARE = 0.25
"""How long that is tried, as a share of what the other way takes: so much is lost at most."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to count. The numbers are the same whichever it is."""

    max_shard_size: int
    """Shards of up to so many workers are looked at by their sets of workers; larger ones are compared with all."""
    is_dense: bool = False
    """Whether shards are compared by multiplying who has which worker: it suits shards that share a lot."""
    max_sets: float = math.inf
    """Sets that are looked at before it is given up."""

    def split(self, shard_array: ShardArray) -> tuple[IntArray, IntArray]:
        """The numbers of the shards that are looked at by their sets, and of those that are compared."""
        small = shard_array.sizes <= self.max_shard_size
        return np.flatnonzero(small), np.flatnonzero(~small)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingOptions:
    """How it is counted."""

    strategy: Strategy | None = None
    """None for the one with the least to do."""
    block: int = BLOCK
    side: int = 2048
    """Shards on each side of a product: its result takes 32 MB."""

    def run(self, shard_array: ShardArray, count: Callable[[Strategy], _Found], max_size: float = math.inf) -> _Found:
        """Count in the way with the least to do, where no sets of more than `max_size` workers are needed."""
        if self.strategy is not None:
            return count(self.strategy)
        optimistic, safe = _choose_strategies(shard_array, max_size)
        if optimistic.max_shard_size > safe.max_shard_size:
            with suppress(TooManySets):
                return count(optimistic)
        return count(safe)


DEFAULT_OPTIONS = CountingOptions()


def find_second_largest(sizes: IntArray) -> int:
    """The most workers that two different shards can share."""
    return int(np.partition(sizes, -2)[-2]) if len(sizes) > 1 else 0


class _Cost(NamedTuple):
    """What there is to do if shards of up to so many workers are looked at by their sets."""

    max_shard_size: int
    sets: float
    """The most it can be: if every set of workers of a shard has another shard."""
    pairs: float
    is_dense: bool


def _choose_strategies(shard_array: ShardArray, max_size: float) -> tuple[Strategy, Strategy]:
    """The best if most sets of workers have one shard only, and the best if all have several, which is the most."""
    cuts = _estimate_costs(shard_array, max_size)
    none = next(cuts)
    # The larger the shards, the more sets there are: soon far more than anything else would take.
    some = [none, *takewhile(lambda cut: cut.sets * _SHARED_SETS_SHARE <= none.pairs, cuts)]
    safe = min(some, key=lambda cut: cut.sets + cut.pairs)
    optimistic = min(some, key=lambda cut: cut.sets * _SHARED_SETS_SHARE + cut.pairs)
    return (
        Strategy(
            max_shard_size=optimistic.max_shard_size,
            is_dense=optimistic.is_dense,
            max_sets=_TRIAL_SHARE * (safe.sets + safe.pairs) / _SET,
        ),
        Strategy(max_shard_size=safe.max_shard_size, is_dense=safe.is_dense),
    )


def _estimate_costs(shard_array: ShardArray, max_size: float) -> Iterator[_Cost]:
    """What there is to do with no sets at all, then with those of the smallest shards, and so on to those of all."""
    sizes, counts = np.unique(shard_array.sizes, return_counts=True)
    numbers = {0: 0, **dict(zip(sizes.tolist(), counts.tolist(), strict=True))}
    every, small = np.zeros(shard_array.workers), np.zeros(shard_array.workers)
    for size in numbers:
        every += _count_shards_per_worker(shard_array, size)
    done = smaller = 0
    for size, number in numbers.items():
        done += number
        small += _count_shards_per_worker(shard_array, size)
        # Two of the largest may share all they have; one alone shares no more than the next has.
        most = min(max_size, size if number > 1 else smaller)
        sets = sum(numbers[other] * _subsets(other, most) for other in numbers if other <= size)
        apart = (_PAIR + _WORKER * shard_array.workers) * (len(shard_array) ** 2 - done**2) / 2
        common = _COMMON * float(every @ every - small @ small) / 2
        yield _Cost(size, _SET * sets, min(apart, common), apart < common)
        smaller = size


def _count_shards_per_worker(shard_array: ShardArray, size: int) -> npt.NDArray[np.float64]:
    """For each worker, how many of the shards of that size have it."""
    indexes = shard_array.slot_indexes[shard_array.sizes == size, :size]
    return np.bincount(indexes.ravel(), minlength=shard_array.workers).astype(np.float64)


def _subsets(size: int, most: float) -> float:
    """How many sets of 1 to so many of its workers a shard has."""
    found, sets = 0.0, 1.0
    for taken in range(int(min(size, most))):
        sets *= (size - taken) / (taken + 1)
        found += sets
    return found
