"""What every shard shares with all others, counted exactly, in one pass over a table. Pure.

Two ways give the same numbers, and the one with less to do is taken. The first counts, for every set of workers that
several shards have, the pairs of tenants that have it: a pair that shares i workers is in C(i, j) of the sets of j, so
that the number of pairs that share exactly i follows by inversion. The second multiplies the table of who has which
worker with itself, and suits few tenants with large shards.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.shards.report.table import Distinct, Ints, Shards
from holdfast.shards.report.walk import BLOCK, sums, walk

_FLOATS = 1 << 25
"""Numbers in each factor, in a fleet of very many workers."""

# Nanoseconds on one core, as measured: for a set of workers of a shard where most are shared (else a fifth of it), for
# a pair of shards, and for each worker there is at a pair. Only how they compare matters.
_SET, _PAIR, _WORKER = 100.0, 48.0, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How it is counted. The numbers are the same whichever way."""

    sets: bool | None = None
    """Whether sets of workers are looked at, or else pairs of shards; None for whichever is less."""
    block: int = BLOCK
    side: int = 2048
    """Shards on each side of a product: its result takes 32 MB."""

    def by_sets(self, among: Shards) -> bool:
        """Whether to look at every set of workers of every shard, rather than at every pair of shards."""
        return _sets_are_fewer(among) if self.sets is None else self.sets


USUAL = Method()


@dataclass(frozen=True, slots=True)
class Scan:
    """What was counted. Where it says for each shard, it is for each different shard of the table."""

    pairs: tuple[int, ...]
    """Pairs of tenants by how many workers they share, from 0 to the size of the largest shard."""
    worst: Ints
    """For each shard, the most workers that one of its tenants shares with another tenant."""
    touched: Ints
    """For each shard, how many other tenants share a worker with one of its tenants, or more."""
    covered: Ints
    """For each shard, how many other tenants have no worker but those that it has."""


def scan(distinct: Distinct, method: Method = USUAL) -> Scan:
    """Count what shards share."""
    counts, sizes = distinct.counts, distinct.sizes
    several = counts > 1
    worst, touched, covered = np.where(several, sizes, 0), counts - 1, counts - 1
    touched[sizes == 0] = covered[sizes == 0] = 0
    different = _Different(distinct, worst, touched, covered)
    pairs = different.by_sets(method.block) if method.by_sets(distinct) else different.by_products(method.side)
    for size in range(len(pairs)):
        same = counts[sizes == size].tolist()
        pairs[size] += sum(math.comb(count, 2) for count in same)
    return Scan(tuple(pairs), worst, touched, covered)


def _sets_are_fewer(among: Shards) -> bool:
    deepest = _second_largest(among.sizes)
    numbers: list[int] = np.bincount(among.sizes).tolist()
    sets = sum(
        number * sum(math.comb(size, some) for some in range(1, deepest + 1)) for size, number in enumerate(numbers)
    )
    pairs = len(among) ** 2 / 2
    return sets * _SET <= pairs * (_PAIR + _WORKER * among.workers)


def _second_largest(sizes: Ints) -> int:
    """The most workers that two different shards can share."""
    return int(np.partition(sizes, -2)[-2]) if len(sizes) > 1 else 0


class _Different:
    """Tenants with different shards: the pairs of them, and in place what is known of each shard."""

    def __init__(self, distinct: Distinct, worst: Ints, touched: Ints, covered: Ints) -> None:
        self._distinct = distinct
        self._worst = worst
        self._touched = touched
        self._covered = covered
        tenants = int(distinct.counts.sum())
        self._all = (tenants**2 - sum(count**2 for count in distinct.counts.tolist())) // 2
        self._width = int(distinct.sizes.max(initial=0)) + 1

    def by_sets(self, block: int) -> list[int]:
        """The pairs by what they share, from the sets that several shards have."""
        counts, sizes = self._distinct.counts, self._distinct.sizes
        squares = counts**2
        of_many_sizes = bool((sizes != sizes[:1]).any())
        having = [self._all] + [0] * (self._width - 1)
        for shared in walk(self._distinct, _second_largest(sizes), block):
            shards, lengths = shared.shards, shared.lengths()
            tenants = sums(shared, counts)
            having[shared.size] += int(((tenants**2 - sums(shared, squares)) // 2).sum())
            self._worst[shards] = np.maximum(self._worst[shards], shared.size)
            others = np.repeat(tenants, lengths) - counts[shards]
            # Inclusion and exclusion: what has two workers in common was counted at each of them.
            np.add.at(self._touched, shards, others if shared.size % 2 else -others)
            if of_many_sizes:
                # A shard that is the set itself lies within all others that have it.
                within = sums(shared, np.where(sizes == shared.size, counts, 0))
                larger = sizes[shards] > shared.size
                np.add.at(self._covered, shards[larger], np.repeat(within, lengths)[larger])
        return [
            sum((-1) ** (more - exact) * math.comb(more, exact) * having[more] for more in range(exact, self._width))
            for exact in range(self._width)
        ]

    def by_products(self, side: int) -> list[int]:
        """The same from all pairs of shards."""
        counts, sizes = self._distinct.counts, self._distinct.sizes
        pairs = [0] * self._width
        for left, right, shared in products(self._distinct, side):
            weights = np.outer(counts[left], counts[right])
            if left == right:
                weights = np.triu(weights, 1)  # every pair once, and none of a shard with itself
            # Sums of whole numbers below 2^53, which floats add exactly.
            found = np.bincount(shared.ravel(), weights=weights.ravel(), minlength=self._width)
            pairs = [one + int(more) for one, more in zip(pairs, found, strict=True)]
            self._note(left, right, shared)
            if left != right:
                self._note(right, left, shared.T)
            else:
                # Each with itself is no pair of different shards.
                own = np.arange(left.start, left.start + len(shared))
                self._touched[own] -= np.where(sizes[own] > 0, counts[own], 0)
                self._covered[own] -= np.where(sizes[own] > 0, counts[own], 0)
        return pairs

    def _note(self, left: slice, right: slice, shared: Ints) -> None:
        counts, sizes = self._distinct.counts, self._distinct.sizes
        other = np.where(np.eye(len(shared), dtype=np.bool_), 0, shared) if left == right else shared
        self._worst[left] = np.maximum(self._worst[left], other.max(axis=1, initial=0))
        self._touched[left] += (shared > 0) @ counts[right]
        self._covered[left] += ((shared > 0) & (shared == sizes[right])) @ counts[right]


def products(among: Shards, side: int) -> Iterator[tuple[slice, slice, Ints]]:
    """How many workers each shard of one part shares with each of another, for all parts, the left not after the right.

    In ascending order of the left part, then of the right one.
    """
    side = max(1, min(side, _FLOATS // max(1, among.workers)))
    parts = [slice(first, min(first + side, len(among))) for first in range(0, len(among), side)]
    for number, left in enumerate(parts):
        having = _having(among.only(np.arange(left.start, left.stop)))
        for right in parts[number:]:
            other = _having(among.only(np.arange(right.start, right.stop)))
            yield left, right, np.rint(having @ other.T).astype(np.int64)


def _having(among: Shards) -> npt.NDArray[np.float32]:
    """A row for each shard, a column for each worker: 1 where it has it. Floats, for they are multiplied quickly."""
    having = np.zeros((len(among), among.workers + 1), dtype=np.float32)
    np.put_along_axis(having, among.places.astype(np.int64), 1.0, axis=1)
    return having[:, :-1]
