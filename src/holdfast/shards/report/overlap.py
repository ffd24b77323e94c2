"""The overlap of tenants: exact histograms over all pairs, and the pairs that share most. Pure.

A million tenants take seconds, because pairs of tenants are never examined one by one.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, groupby, islice

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.report.overlap_counts import (
    OverlapCounts,
    build_overlap_matrices,
    count_shared_workers,
    find_overlapping_pairs,
)
from holdfast.shards.report.shared_sets import find_shared_sets
from holdfast.shards.report.strategy import DEFAULT_OPTIONS, CountingOptions, Strategy
from holdfast.shards.report.table import AssignmentTable, DistinctShards, IntArray


@dataclass(frozen=True, slots=True)
class Overlaps:
    """The numbers of workers that tenants have in common."""

    pairs_by_shared_workers: tuple[int, ...]
    """Number of pairs of tenants that share 0, 1, ... workers, up to the size of the largest shard."""
    tenants_by_max_shared: tuple[int, ...]
    """Number of tenants whose worst neighbour shares 0, 1, ... workers with them; a single tenant has 0."""
    max_shared: int

    def fraction_sharing(self, min_shared: int) -> float:
        """Return the fraction of tenants with a neighbour that shares `min_shared` or more workers."""
        return sum(self.tenants_by_max_shared[max(0, min_shared) :]) / max(1, sum(self.tenants_by_max_shared))


@dataclass(frozen=True, slots=True)
class NeighbourPair:
    """Two tenants and the slots that they share."""

    row: int
    other_row: int
    """Row of the other tenant, always the higher one."""
    slot_indexes: tuple[int, ...]
    """The shared slots, in ascending order."""


def count_overlaps(table: npt.ArrayLike | AssignmentTable) -> Overlaps:
    """Count the workers that every two tenants share."""
    checked = AssignmentTable.check(table)
    return summarize_overlaps(checked.distinct_shards, count_shared_workers(checked.distinct_shards))


def summarize_overlaps(distinct: DistinctShards, found: OverlapCounts) -> Overlaps:
    """Return the histograms of overlaps that were counted before."""
    worst = [
        int(distinct.counts[found.max_shared == shared].sum()) for shared in range(len(found.pairs_by_shared_workers))
    ]
    max_shared = max((shared for shared, pairs in enumerate(found.pairs_by_shared_workers) if pairs), default=0)
    return Overlaps(found.pairs_by_shared_workers, tuple(worst), max_shared)


def find_worst_neighbours(table: npt.ArrayLike | AssignmentTable, limit: int = 10) -> list[NeighbourPair]:
    """Return up to `limit` pairs of tenants, those that share the most workers first, then in the order of rows.

    Pairs that share no worker are left out.
    """
    checked = AssignmentTable.check(table)
    return select_worst_neighbours(checked, count_shared_workers(checked.distinct_shards), limit)


def select_worst_neighbours(
    table: AssignmentTable, found: OverlapCounts, limit: int, options: CountingOptions = DEFAULT_OPTIONS
) -> list[NeighbourPair]:
    """Return the worst neighbours of a table whose overlaps were counted before."""
    if limit < 0:
        raise InvalidValue(f"the {limit} worst neighbours: expected 0 or more")
    chosen: list[NeighbourPair] = []
    for shared in range(len(found.pairs_by_shared_workers) - 1, 0, -1):
        wanted = min(limit - len(chosen), found.pairs_by_shared_workers[shared])
        if wanted:
            # All pairs that share more are chosen already.
            known = {(pair.row, pair.other_row) for pair in chosen}
            near = np.flatnonzero(found.max_shared >= shared)
            groups = _CloseGroups(table, near, chosen, shared, wanted).lowest(options)
            tenants = [_find_lowest_rows(table.distinct_shards, shards, wanted + len(chosen) + 1) for shards in groups]
            pairs = (pair for pair, _ in groupby(heapq.merge(*(combinations(some, 2) for some in tenants))))
            for row, other in islice((pair for pair in pairs if pair not in known), wanted):
                both = {*table.shard(row)} & {*table.shard(other)}
                chosen.append(NeighbourPair(row, other, tuple(sorted(both))))
    return chosen


class _CloseGroups:
    """Groups of shards with `shared` workers in common, including those with the lowest pairs of tenants.

    Shards are numbered by their first rows, so that the lowest two shards of a group have its lowest tenants.
    """

    def __init__(
        self, table: AssignmentTable, near: IntArray, chosen: Sequence[NeighbourPair], shared: int, wanted: int
    ) -> None:
        self._table = table
        self._near = near
        self._chosen = chosen
        self._shared = shared
        self._wanted = wanted
        self._shard_array = table.distinct_shards.select(near)

    def lowest(self, options: CountingOptions) -> list[list[int]]:
        """Return enough groups for the wanted pairs. Tenants with the same shard are a group, too."""
        counts, sizes, near = self._table.distinct_shards.counts, self._table.distinct_shards.sizes, self._near
        same = near[(counts[near] > 1) & (sizes[near] == self._shared)][: self._wanted]
        groups = options.run(self._shard_array, lambda strategy: self._find_lowest(options, strategy), self._shared)
        return [[shard] for shard in same.tolist()] + [near[group].tolist() for group in groups]

    def _find_lowest(self, options: CountingOptions, strategy: Strategy) -> list[list[int]]:
        small, large = strategy.split(self._shard_array)
        # A pair that shares more occurs again with every set of `shared` workers out of those it shares.
        sizes = self._table.sizes
        repeated = sum(
            math.comb(len(pair.slot_indexes), self._shared)
            for pair in self._chosen
            if max(sizes[pair.row], sizes[pair.other_row]) <= strategy.max_shard_size
        )
        max_groups = self._wanted + repeated
        found: list[list[int]] = []
        for some in chain(
            self._by_sets(small, max_groups, options.block, strategy.max_sets),
            self._by_pairs(large, small, options, strategy.is_dense),
        ):
            found = heapq.nsmallest(max_groups, [*found, *some])
        return found

    def _by_sets(self, small: IntArray, max_groups: int, block: int, max_sets: float) -> Iterator[list[list[int]]]:
        for sets in find_shared_sets(self._shard_array.select(small), self._shared, block, max_sets):
            if sets.size == self._shared:
                firsts, seconds = sets.shards[sets.starts], sets.shards[sets.starts + 1]
                ends = sets.starts + np.minimum(sets.lengths(), self._wanted + len(self._chosen) + 1)
                lowest = np.lexsort((seconds, firsts))[:max_groups]
                yield [small[sets.shards[sets.starts[one] : ends[one]]].tolist() for one in lowest]

    def _by_pairs(
        self, large: IntArray, small: IntArray, options: CountingOptions, is_dense: bool
    ) -> Iterator[list[list[int]]]:
        found = (
            (
                matrix.select_pairs(self._shared)
                for matrix in build_overlap_matrices(self._shard_array, large, small, options.side)
            )
            if is_dense
            else find_overlapping_pairs(self._shard_array, large, small, options.block)
        )
        for one, other, shared in found:
            pairs = np.column_stack([one, other])[shared == self._shared]
            pairs.sort(axis=1)
            lowest: list[list[int]] = pairs[np.lexsort(pairs.T[::-1])[: self._wanted]].tolist()
            yield lowest


def _find_lowest_rows(distinct: DistinctShards, shards: Sequence[int], limit: int) -> list[int]:
    """Return the lowest rows of tenants that have one of these shards."""
    return sorted(row for shard in shards[:limit] for row in distinct.find_rows(shard, limit))[:limit]
