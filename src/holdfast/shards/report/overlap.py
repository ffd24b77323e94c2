"""How much tenants share: the histogram of all pairs of them, and the pairs that share most. Pure; exact.

A million tenants take seconds, for nowhere are pairs of tenants looked at one by one.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, islice

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.report.scan import USUAL, Method, Scan, products, scan
from holdfast.shards.report.table import Distinct, Ints, Shards, Table
from holdfast.shards.report.walk import walk


@dataclass(frozen=True, slots=True)
class Overlaps:
    """How many workers tenants have in common."""

    pairs: tuple[int, ...]
    """Pairs of tenants by the number of workers that they share, from 0 to the size of the largest shard."""
    worst: tuple[int, ...]
    """Tenants by the number of workers that they share with their worst neighbour; 0 also for one without others."""
    most: int
    """The most workers that any two tenants share."""

    def share_with(self, shared: int) -> float:
        """The share of tenants that have a neighbour with so many workers in common, or more."""
        return sum(self.worst[max(0, shared) :]) / max(1, sum(self.worst))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two tenants, and what both have."""

    row: int
    other: int
    """The row of the other, always the higher one."""
    places: tuple[int, ...]
    """The places that they share, in ascending order."""


def overlaps(table: npt.ArrayLike | Table) -> Overlaps:
    """Count what every two tenants share."""
    checked = Table.of(table)
    return summed(checked.distinct, scan(checked.distinct))


def summed(distinct: Distinct, found: Scan) -> Overlaps:
    """The histograms of what was counted."""
    worst = [int(distinct.counts[found.worst == shared].sum()) for shared in range(len(found.pairs))]
    most = max((shared for shared, pairs in enumerate(found.pairs) if pairs), default=0)
    return Overlaps(found.pairs, tuple(worst), most)


def worst_neighbours(table: npt.ArrayLike | Table, limit: int = 10) -> list[Neighbours]:
    """The pairs of tenants that share most, those that share more first, then by their rows, the lowest first.

    Pairs that share nothing are none of them.
    """
    checked = Table.of(table)
    return closest(checked, scan(checked.distinct), limit)


def closest(table: Table, found: Scan, limit: int, method: Method = USUAL) -> list[Neighbours]:
    """The same, where what shards share was counted already."""
    if limit < 0:
        raise InvalidValue(f"the {limit} worst neighbours: expected 0 or more")
    chosen: list[Neighbours] = []
    for shared in range(len(found.pairs) - 1, 0, -1):
        wanted = min(limit - len(chosen), found.pairs[shared])
        if wanted:
            # A pair that shares more comes up again with every set of so many workers out of what it shares.
            again = sum(math.comb(len(pair.places), shared) for pair in chosen)
            known = {(pair.row, pair.other) for pair in chosen}
            near = np.flatnonzero(found.worst >= shared)
            candidates = _candidates(table.distinct, near, shared, wanted + again, method)
            groups = [_tenants(table.distinct, shards, wanted + again + 1) for shards in candidates]
            pairs = (pair for pair, _ in groupby(heapq.merge(*(combinations(group, 2) for group in groups))))
            for row, other in islice((pair for pair in pairs if pair not in known), wanted):
                both = {*table.shard(row)} & {*table.shard(other)}
                chosen.append(Neighbours(row, other, tuple(sorted(both))))
    return chosen


def _candidates(distinct: Distinct, near: Ints, shared: int, enough: int, method: Method) -> list[list[int]]:
    """Groups of shards that have so many workers in common, among them those with the lowest pairs of tenants.

    Shards are numbered as they first occur: the lowest two of a group have its lowest tenants.
    """
    several = near[(distinct.counts[near] > 1) & (distinct.sizes[near] == shared)]
    same = [[int(shard)] for shard in several[:enough]]
    among = distinct.only(near)
    lowest: list[list[int]] = []
    by_sets = method.by_sets(among)
    groups = _by_sets(among, shared, enough, method) if by_sets else _by_pairs(among, shared, enough, method)
    for some in groups:
        lowest = heapq.nsmallest(enough, [*lowest, *([int(near[shard]) for shard in group] for group in some)])
    return same + lowest


def _by_sets(among: Shards, shared: int, enough: int, method: Method) -> Iterator[Iterable[Sequence[int]]]:
    for sets in walk(among, shared, method.block):
        if sets.size == shared:
            firsts, seconds = sets.shards[sets.starts], sets.shards[sets.starts + 1]
            ends = sets.starts + np.minimum(sets.lengths(), enough + 1)
            yield [sets.shards[sets.starts[one] : ends[one]].tolist() for one in np.lexsort((seconds, firsts))[:enough]]


def _by_pairs(among: Shards, shared: int, enough: int, method: Method) -> Iterator[Iterable[Sequence[int]]]:
    for left, right, found in products(among, method.side):
        rows, columns = (found == shared).nonzero()
        rows, columns = rows + left.start, columns + right.start
        upper = np.flatnonzero(rows < columns)[:enough]
        yield zip(rows[upper].tolist(), columns[upper].tolist(), strict=True)


def _tenants(distinct: Distinct, shards: Sequence[int], limit: int) -> list[int]:
    """The lowest rows of those who have one of these shards."""
    return sorted(row for shard in shards[:limit] for row in distinct.tenants(shard, limit))[:limit]
