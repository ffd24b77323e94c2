"""Exact counts of the workers that every shard shares with all others, in one pass over a table. Pure.

Two methods give the same numbers; `strategy.py` chooses the method for each shard. The first counts, for every set of
workers that several shards have, the pairs of tenants that have it. A pair that shares i workers is in C(i, j) of the
sets of j, so that the number of pairs that share exactly i follows by inversion. The second examines pairs of shards.
It either goes along the lists of shards that have a worker, and so never meets a pair that shares nothing; or it
multiplies the matrix of shards and workers with itself, which takes the same time for every pair.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.shards.report.shared_sets import find_shared_sets, sum_per_set
from holdfast.shards.report.strategy import DEFAULT_OPTIONS, CountingOptions, Strategy, find_second_largest
from holdfast.shards.report.table import DistinctShards, IntArray, ShardArray

_MAX_FLOATS = 1 << 25
"""Most numbers in each factor of a matrix product, for fleets of very many workers."""

_CELLS_PER_KEY = 16
"""Cells of a counting array that are passed in the time that it takes to sort one key."""


class OverlappingPairs(NamedTuple):
    """Pairs of shards that share workers: one shard of each pair, the other, and how many workers they share."""

    one: IntArray
    other: IntArray
    shared: IntArray


class OverlapMatrix(NamedTuple):
    """The number of workers that each left shard shares with each right one."""

    left: IntArray
    right: IntArray
    shared: IntArray
    is_square: bool
    """Whether left and right are the same shards: then it has each pair twice, and each shard with itself."""

    def select_pairs(self, shared: int) -> OverlappingPairs:
        """Return the pairs that share exactly `shared` workers, each once."""
        rows, columns = (self.shared == shared).nonzero()
        if self.is_square:
            rows, columns = rows[rows < columns], columns[rows < columns]
        return OverlappingPairs(self.left[rows], self.right[columns], np.full(len(rows), shared))


def find_overlapping_pairs(
    shard_array: ShardArray, some: IntArray, rest: IntArray, block: int
) -> Iterator[OverlappingPairs]:
    """Yield every pair with a common worker and a shard of `some`, each pair once; `rest` has all other shards.

    A part has about `block` common workers, each of which takes at most two hundred bytes.
    """
    numbers = np.concatenate([some, rest])
    sizes = shard_array.sizes[numbers]
    # One entry for each worker of each shard, if a shard of `some` has that worker.
    shard = np.repeat(np.arange(len(numbers)), sizes)
    worker = shard_array.slot_indexes[numbers[shard], np.arange(len(shard)) - (np.cumsum(sizes) - sizes)[shard]]
    first = int(sizes[: len(some)].sum())
    is_met = np.zeros(shard_array.workers, dtype=np.bool_)
    is_met[worker[:first]] = True
    met = np.flatnonzero(is_met[worker])
    shard, worker = shard[met], worker[met]
    # The lists of shards, worker by worker. The stable sort keeps later shards after an entry of their list.
    order = np.argsort(worker, kind="stable")
    lists, listed = shard[order], worker[order]
    ends = np.searchsorted(listed, worker[:first], side="right")
    where = np.empty(len(order), dtype=np.int64)
    where[order] = np.arange(len(order))
    begins = where[:first] + 1
    more = np.append(0, np.cumsum(ends - begins))
    entries = np.append(0, np.cumsum(sizes[: len(some)]))
    before = more[entries]
    done = 0
    while done < len(some):
        last = max(done + 1, int(np.searchsorted(before, before[done] + block, side="right")) - 1)
        part = slice(entries[done], entries[last])
        lengths = ends[part] - begins[part]
        to = np.arange(lengths.sum()) + np.repeat(begins[part] - (more[part] - before[done]), lengths)
        keys = np.repeat((shard[part] - done) * len(numbers), lengths) + lists[to]
        pairs, shared = _count_keys(keys, (last - done) * len(numbers))
        one, other = np.divmod(pairs, len(numbers))
        yield OverlappingPairs(numbers[one + done], numbers[other], shared)
        done = last


def _count_keys(keys: IntArray, bound: int) -> tuple[IntArray, IntArray]:
    """Return the different keys, which are below `bound`, in ascending order, and how often each occurs."""
    if bound <= _CELLS_PER_KEY * len(keys):
        often = np.bincount(keys)
        found = np.flatnonzero(often)
        return found, often[found]
    keys.sort()
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return keys[starts], np.diff(starts, append=len(keys))


def build_overlap_matrices(
    shard_array: ShardArray, some: IntArray, rest: IntArray, side: int
) -> Iterator[OverlapMatrix]:
    """Yield the overlaps of some shards with each other and with the rest; left shards never come after right ones."""
    side = max(1, min(side, _MAX_FLOATS // max(1, shard_array.workers)))
    lefts = [some[first : first + side] for first in range(0, len(some), side)]
    rights = [rest[first : first + side] for first in range(0, len(rest), side)]
    for number, left in enumerate(lefts):
        having = _build_membership(shard_array.select(left))
        for right in [*lefts[number:], *rights]:
            shared = np.rint(having @ _build_membership(shard_array.select(right)).T).astype(np.int64)
            yield OverlapMatrix(left, right, shared, right is left)


def _build_membership(shard_array: ShardArray) -> npt.NDArray[np.float32]:
    """Return a row per shard and a column per worker: 1 if the shard has it. Floats, because they multiply faster."""
    having = np.zeros((len(shard_array), shard_array.workers + 1), dtype=np.float32)
    np.put_along_axis(having, shard_array.slot_indexes.astype(np.int64), 1.0, axis=1)
    return having[:, :-1]


@dataclass(frozen=True, slots=True)
class OverlapCounts:
    """Counted overlaps. Arrays have an entry for each different shard of the table."""

    pairs_by_shared_workers: tuple[int, ...]
    """Number of pairs of tenants that share 0, 1, ... workers, up to the size of the largest shard."""
    max_shared: IntArray
    """Most workers that a tenant of the shard shares with another tenant."""
    touched: IntArray
    """Number of other tenants that share a worker with a tenant of the shard."""
    covered: IntArray
    """Number of other tenants that have no worker outside the shard."""


def count_shared_workers(distinct: DistinctShards, options: CountingOptions = DEFAULT_OPTIONS) -> OverlapCounts:
    """Count the workers that shards share."""
    return options.run(distinct, lambda strategy: _count(distinct, options, strategy))


def _count(distinct: DistinctShards, options: CountingOptions, strategy: Strategy) -> OverlapCounts:
    small, large = strategy.split(distinct)
    counter = _OverlapCounter(distinct)
    counter.add_sets(small, options.block, strategy.max_sets)
    if strategy.is_dense:
        for matrix in build_overlap_matrices(distinct, large, small, options.side):
            counter.add_matrix(matrix)
    else:
        for pairs in find_overlapping_pairs(distinct, large, small, options.block):
            counter.add_pairs(pairs)
    return counter.result()


class _OverlapCounter:
    """Counts so far: first the tenants with the same shard, then pairs of different shards, each added once."""

    def __init__(self, distinct: DistinctShards) -> None:
        self._distinct = distinct
        counts, sizes = distinct.counts, distinct.sizes
        # Pairs by the number of workers that they share. Those that share none are the remainder, computed last.
        self._pairs = [0] * (int(sizes.max(initial=0)) + 1)
        for size in range(1, len(self._pairs)):
            same = counts[(sizes == size) & (counts > 1)]
            self._pairs[size] = sum(math.comb(count, 2) for count in same.tolist())
        self._max_shared = np.where(counts > 1, sizes, 0)
        self._touched = np.where(sizes > 0, counts - 1, 0)
        self._covered = self._touched.copy()

    def add_sets(self, numbers: IntArray, block: int, max_sets: float) -> None:
        """Add the pairs among some shards, from the sets of workers that several of them have."""
        shard_array, counts = self._distinct.select(numbers), self._distinct.counts[numbers]
        sizes, squares = shard_array.sizes, counts**2
        of_many_sizes = bool((sizes != sizes[:1]).any())
        max_size = find_second_largest(sizes)
        having = [0] * (max_size + 1)
        worst, touched, covered = (np.zeros(len(shard_array), dtype=np.int64) for _ in range(3))
        for shared in find_shared_sets(shard_array, max_size, block, max_sets):
            shards, lengths = shared.shards, shared.lengths()
            tenants = sum_per_set(shared, counts)
            having[shared.size] += int(((tenants**2 - sum_per_set(shared, squares)) // 2).sum())
            worst[shards] = np.maximum(worst[shards], shared.size)
            others = np.repeat(tenants, lengths) - counts[shards]
            # Inclusion and exclusion: shards with two workers in common were counted at each of them.
            np.add.at(touched, shards, others if shared.size % 2 else -others)
            if of_many_sizes:
                # A shard that equals the set lies within all others that have it.
                within = sum_per_set(shared, np.where(sizes == shared.size, counts, 0))
                larger = sizes[shards] > shared.size
                np.add.at(covered, shards[larger], np.repeat(within, lengths)[larger])
        self._max_shared[numbers] = np.maximum(self._max_shared[numbers], worst)
        self._touched[numbers] += touched
        self._covered[numbers] += covered
        for exact in range(1, max_size + 1):
            self._pairs[exact] += sum(
                (-1) ** (more - exact) * math.comb(more, exact) * having[more] for more in range(exact, max_size + 1)
            )

    def add_pairs(self, pairs: OverlappingPairs) -> None:
        counts, sizes = self._distinct.counts, self._distinct.sizes
        one, other, shared = pairs
        self._add_pair_counts(shared, counts[one] * counts[other])
        for left, right in ((one, other), (other, one)):
            np.maximum.at(self._max_shared, left, shared)
            np.add.at(self._touched, left, counts[right])
            within = np.flatnonzero(shared == sizes[right])
            np.add.at(self._covered, left[within], counts[right[within]])

    def add_matrix(self, matrix: OverlapMatrix) -> None:
        counts, sizes = self._distinct.counts, self._distinct.sizes
        left, right, shared, is_square = matrix
        weights = np.outer(counts[left], counts[right])
        if is_square:
            weights = np.triu(weights, 1)  # every pair once
            shared = np.where(np.eye(len(left), dtype=np.bool_), 0, shared)  # without pairs of a shard with itself
        self._add_pair_counts(shared.ravel(), weights.ravel())
        for some, others, both in ((left, right, shared), (right, left, shared.T))[: 1 if is_square else 2]:
            self._max_shared[some] = np.maximum(self._max_shared[some], both.max(axis=1, initial=0))
            self._touched[some] += (both > 0) @ counts[others]
            self._covered[some] += ((both > 0) & (both == sizes[others])) @ counts[others]

    def _add_pair_counts(self, shared: IntArray, tenants: IntArray) -> None:
        # Floats are exact here: they add whole numbers below 2^53.
        found = np.bincount(shared, weights=tenants, minlength=len(self._pairs))
        for size in range(1, len(self._pairs)):
            self._pairs[size] += int(found[size])

    def result(self) -> OverlapCounts:
        """Return the counts, once every pair of shards that share a worker has been added."""
        tenants = int(self._distinct.counts.sum())
        self._pairs[0] = math.comb(tenants, 2) - sum(self._pairs[1:])
        return OverlapCounts(tuple(self._pairs), self._max_shared, self._touched, self._covered)
