"""What every shard shares with all others, counted exactly, in one pass over a table. Pure.

Two ways give the same numbers, and `method.py` says which is taken for which shards. The first counts, for every set of
workers that several shards have, the pairs of tenants that have it: a pair that shares i workers is in C(i, j) of the
sets of j, so that the number of pairs that share exactly i follows by inversion. The second looks at pairs of shards.
"""

import math
from dataclasses import dataclass

import numpy as np

from holdfast.shards.report.method import USUAL, Method, Way, second_largest
from holdfast.shards.report.pairs import Meeting, Product, meetings, products
from holdfast.shards.report.table import Distinct, Ints
from holdfast.shards.report.walk import sums, walk


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
    return method.apply(distinct, lambda way: _counted(distinct, method, way))


def _counted(distinct: Distinct, method: Method, way: Way) -> Scan:
    small, large = way.parts(distinct)
    tally = _Tally(distinct)
    tally.add_sets(small, method.block, way.most)
    if way.dense:
        for product in products(distinct, large, small, method.side):
            tally.add_product(product)
    else:
        for meeting in meetings(distinct, large, small, method.block):
            tally.add_meeting(meeting)
    return tally.scan()


class _Tally:
    """What was counted so far: at first the tenants with the same shard, then pairs of different shards, each once."""

    def __init__(self, distinct: Distinct) -> None:
        self._distinct = distinct
        counts, sizes = distinct.counts, distinct.sizes
        # By how many workers they share. Who shares none is what is left in the end.
        self._pairs = [0] * (int(sizes.max(initial=0)) + 1)
        for size in range(1, len(self._pairs)):
            same = counts[(sizes == size) & (counts > 1)]
            self._pairs[size] = sum(math.comb(count, 2) for count in same.tolist())
        self._worst = np.where(counts > 1, sizes, 0)
        self._touched = np.where(sizes > 0, counts - 1, 0)
        self._covered = self._touched.copy()

    def add_sets(self, numbers: Ints, block: int, most: float) -> None:
        """The pairs among some shards, from the sets of workers that several of them have."""
        among, counts = self._distinct.only(numbers), self._distinct.counts[numbers]
        sizes, squares = among.sizes, counts**2
        of_many_sizes = bool((sizes != sizes[:1]).any())
        deepest = second_largest(sizes)
        having = [0] * (deepest + 1)
        worst, touched, covered = (np.zeros(len(among), dtype=np.int64) for _ in range(3))
        for shared in walk(among, deepest, block, most):
            shards, lengths = shared.shards, shared.lengths()
            tenants = sums(shared, counts)
            having[shared.size] += int(((tenants**2 - sums(shared, squares)) // 2).sum())
            worst[shards] = np.maximum(worst[shards], shared.size)
            others = np.repeat(tenants, lengths) - counts[shards]
            # Inclusion and exclusion: what has two workers in common was counted at each of them.
            np.add.at(touched, shards, others if shared.size % 2 else -others)
            if of_many_sizes:
                # A shard that is the set itself lies within all others that have it.
                within = sums(shared, np.where(sizes == shared.size, counts, 0))
                larger = sizes[shards] > shared.size
                np.add.at(covered, shards[larger], np.repeat(within, lengths)[larger])
        self._worst[numbers] = np.maximum(self._worst[numbers], worst)
        self._touched[numbers] += touched
        self._covered[numbers] += covered
        for exact in range(1, deepest + 1):
            self._pairs[exact] += sum(
                (-1) ** (more - exact) * math.comb(more, exact) * having[more] for more in range(exact, deepest + 1)
            )

    def add_meeting(self, meeting: Meeting) -> None:
        """Pairs of shards, one by one."""
        counts, sizes = self._distinct.counts, self._distinct.sizes
        one, other, shared = meeting
        self._add_pairs(shared, counts[one] * counts[other])
        for left, right in ((one, other), (other, one)):
            np.maximum.at(self._worst, left, shared)
            np.add.at(self._touched, left, counts[right])
            within = np.flatnonzero(shared == sizes[right])
            np.add.at(self._covered, left[within], counts[right[within]])

    def add_product(self, product: Product) -> None:
        """Pairs of shards, all of one part with all of another."""
        counts, sizes = self._distinct.counts, self._distinct.sizes
        left, right, shared, is_square = product
        weights = np.outer(counts[left], counts[right])
        if is_square:
            weights = np.triu(weights, 1)  # every pair once
            shared = np.where(np.eye(len(left), dtype=np.bool_), 0, shared)  # and none of a shard with itself
        self._add_pairs(shared.ravel(), weights.ravel())
        for some, others, both in ((left, right, shared), (right, left, shared.T))[: 1 if is_square else 2]:
            self._worst[some] = np.maximum(self._worst[some], both.max(axis=1, initial=0))
            self._touched[some] += (both > 0) @ counts[others]
            self._covered[some] += ((both > 0) & (both == sizes[others])) @ counts[others]

    def _add_pairs(self, shared: Ints, tenants: Ints) -> None:
        # Sums of whole numbers below 2^53, which floats add exactly.
        found = np.bincount(shared, weights=tenants, minlength=len(self._pairs))
        for size in range(1, len(self._pairs)):
            self._pairs[size] += int(found[size])

    def scan(self) -> Scan:
        """All of it, once every pair of shards that share a worker was added."""
        tenants = int(self._distinct.counts.sum())
        self._pairs[0] = math.comb(tenants, 2) - sum(self._pairs[1:])
        return Scan(tuple(self._pairs), self._worst, self._touched, self._covered)
