"""The choice of the method to count what shards share: by sets of workers, or by pairs of shards. Pure.

Small shards have few sets of workers, so that even a million of them are counted by the sets that several have. A
single large shard has more sets than can be counted: it is compared with all others instead. So shards are divided by
size, at the size with the lowest cost.
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

# Measured nanoseconds on one core, of which only the ratios matter.
_SET_COST = 100.0  # for a set of workers of a shard, if most sets are shared
_COMMON_COST = 60.0  # for a worker that two shards have in common
_PAIR_COST = 48.0  # for a pair of shards in a matrix product
_PAIR_WORKER_COST = 0.03  # for a pair of shards in a matrix product, per worker of the fleet

_SHARED_SETS_SHARE = 1 / 30
"""Fraction of the sets of workers of a shard that are examined if the fleet is so large that most are not shared.

This is not known in advance. If it makes a difference, the optimistic strategy is tried first.
"""

_TRIAL_SHARE = 0.25
"""Maximum cost of that trial, as a fraction of the cost of the safe strategy."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A method of counting. All methods give the same numbers."""

    max_shard_size: int
    """Shards of up to this size are counted by their sets of workers; larger ones are compared with all others."""
    is_dense: bool = False
    """Whether shards are compared by a matrix product, which suits shards that share a lot."""
    max_sets: float = math.inf
    """Sets that are examined before TooManySets is raised."""

    def split(self, shard_array: ShardArray) -> tuple[IntArray, IntArray]:
        """Return the numbers of the shards that are counted by their sets, and of those that are compared."""
        small = shard_array.sizes <= self.max_shard_size
        return np.flatnonzero(small), np.flatnonzero(~small)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingOptions:
    """Options of counting."""

    strategy: Strategy | None = None
    """None for the cheapest."""
    block: int = BLOCK
    side: int = 2048
    """Shards on each side of a matrix product, whose result then takes 32 MB."""

    def run(self, shard_array: ShardArray, count: Callable[[Strategy], _Found], max_size: float = math.inf) -> _Found:
        """Count by the cheapest strategy, if no sets of more than `max_size` workers are needed."""
        if self.strategy is not None:
            return count(self.strategy)
        optimistic, safe = _choose_strategies(shard_array, max_size)
        if optimistic.max_shard_size > safe.max_shard_size:
            with suppress(TooManySets):
                return count(optimistic)
        return count(safe)


DEFAULT_OPTIONS = CountingOptions()


def find_second_largest(sizes: IntArray) -> int:
    """Return the most workers that two different shards can share."""
    return int(np.partition(sizes, -2)[-2]) if len(sizes) > 1 else 0


class _Cost(NamedTuple):
    """The cost if shards of up to `max_shard_size` workers are counted by their sets."""

    max_shard_size: int
    sets: float
    """Upper limit, reached if every set of workers is shared."""
    pairs: float
    is_dense: bool


def _choose_strategies(shard_array: ShardArray, max_size: float) -> tuple[Strategy, Strategy]:
    """Return the best strategy if few sets of workers are shared, and the best if all are, which is the worst case."""
    cuts = _estimate_costs(shard_array, max_size)
    none = next(cuts)
    # Larger shards have more sets, which soon cost far more than everything else.
    some = [none, *takewhile(lambda cut: cut.sets * _SHARED_SETS_SHARE <= none.pairs, cuts)]
    safe = min(some, key=lambda cut: cut.sets + cut.pairs)
    optimistic = min(some, key=lambda cut: cut.sets * _SHARED_SETS_SHARE + cut.pairs)
    return (
        Strategy(
            max_shard_size=optimistic.max_shard_size,
            is_dense=optimistic.is_dense,
            max_sets=_TRIAL_SHARE * (safe.sets + safe.pairs) / _SET_COST,
        ),
        Strategy(max_shard_size=safe.max_shard_size, is_dense=safe.is_dense),
    )


def _estimate_costs(shard_array: ShardArray, max_size: float) -> Iterator[_Cost]:
    """Yield the cost without any sets, then with those of the smallest shards, and so on to those of all shards."""
    sizes, counts = np.unique(shard_array.sizes, return_counts=True)
    numbers = {0: 0, **dict(zip(sizes.tolist(), counts.tolist(), strict=True))}
    every, small = np.zeros(shard_array.workers), np.zeros(shard_array.workers)
    for size in numbers:
        every += _count_shards_per_worker(shard_array, size)
    done = smaller = 0
    for size, number in numbers.items():
        done += number
        small += _count_shards_per_worker(shard_array, size)
        # Two largest shards may share all workers; a single one shares no more than the next smaller has.
        max_shared = min(max_size, size if number > 1 else smaller)
        sets = sum(numbers[other] * _count_subsets(other, max_shared) for other in numbers if other <= size)
        dense = (_PAIR_COST + _PAIR_WORKER_COST * shard_array.workers) * (len(shard_array) ** 2 - done**2) / 2
        listed = _COMMON_COST * float(every @ every - small @ small) / 2
        yield _Cost(size, _SET_COST * sets, min(dense, listed), dense < listed)
        smaller = size


def _count_shards_per_worker(shard_array: ShardArray, size: int) -> npt.NDArray[np.float64]:
    """Return for each worker how many shards of `size` workers have it."""
    indexes = shard_array.slot_indexes[shard_array.sizes == size, :size]
    return np.bincount(indexes.ravel(), minlength=shard_array.workers).astype(np.float64)


def _count_subsets(size: int, max_size: float) -> float:
    """Return the number of sets of 1 to `max_size` workers that a shard of `size` has."""
    found, sets = 0.0, 1.0
    for taken in range(int(min(size, max_size))):
        sets *= (size - taken) / (taken + 1)
        found += sets
    return found
