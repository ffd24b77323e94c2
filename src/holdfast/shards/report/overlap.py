"""How much tenants share: the histogram of all pairs of them, and the pairs that share most. Exact. Pure.

A million tenants take seconds, for nowhere are pairs of tenants looked at one by one.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, groupby, islice

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.report.method import USUAL, Method, Way
from holdfast.shards.report.scan import Scan, meetings, products, scan
from holdfast.shards.report.table import Distinct, Ints, Table
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
            # All pairs that share more are chosen already.
            known = {(pair.row, pair.other) for pair in chosen}
            near = np.flatnonzero(found.worst >= shared)
            groups = _Groups(table, near, chosen, shared, wanted).lowest(method)
            tenants = [_tenants(table.distinct, shards, wanted + len(chosen) + 1) for shards in groups]
            pairs = (pair for pair, _ in groupby(heapq.merge(*(combinations(some, 2) for some in tenants))))
            for row, other in islice((pair for pair in pairs if pair not in known), wanted):
                both = {*table.shard(row)} & {*table.shard(other)}
                chosen.append(Neighbours(row, other, tuple(sorted(both))))
    return chosen


class _Groups:
    """Groups of shards that have so many workers in common, among them those with the lowest pairs of tenants.

    Shards are numbered as they first occur: the lowest two of a group have its lowest tenants.
    """

    def __init__(self, table: Table, near: Ints, chosen: Sequence[Neighbours], shared: int, wanted: int) -> None:
        self._table = table
        self._near = near
        self._chosen = chosen
        self._shared = shared
        self._wanted = wanted
        self._among = table.distinct.only(near)

    def lowest(self, method: Method) -> list[list[int]]:
        """Enough of them for the pairs that are wanted. Tenants with the same shard are a group, too."""
        counts, sizes, near = self._table.distinct.counts, self._table.distinct.sizes, self._near
        same = near[(counts[near] > 1) & (sizes[near] == self._shared)][: self._wanted]
        groups = method.apply(self._among, lambda way: self._lowest(method, way), self._shared)
        return [[shard] for shard in same.tolist()] + [near[group].tolist() for group in groups]

    def _lowest(self, method: Method, way: Way) -> list[list[int]]:
        small, large = way.parts(self._among)
        # A pair that shares more comes up again with every set of so many workers out of what it shares.
        sizes = self._table.sizes
        again = sum(
            math.comb(len(pair.places), self._shared)
            for pair in self._chosen
            if max(sizes[pair.row], sizes[pair.other]) <= way.largest
        )
        enough = self._wanted + again
        found: list[list[int]] = []
        for some in chain(
            self._by_sets(small, enough, method.block, way.most), self._by_pairs(large, small, method, way.dense)
        ):
            found = heapq.nsmallest(enough, [*found, *some])
        return found

    def _by_sets(self, small: Ints, enough: int, block: int, most: float) -> Iterator[list[list[int]]]:
        for sets in walk(self._among.only(small), self._shared, block, most):
            if sets.size == self._shared:
                firsts, seconds = sets.shards[sets.starts], sets.shards[sets.starts + 1]
                ends = sets.starts + np.minimum(sets.lengths(), self._wanted + len(self._chosen) + 1)
                lowest = np.lexsort((seconds, firsts))[:enough]
                yield [small[sets.shards[sets.starts[one] : ends[one]]].tolist() for one in lowest]

    def _by_pairs(self, large: Ints, small: Ints, method: Method, dense: bool) -> Iterator[list[list[int]]]:
        found = (
            (product.meeting(self._shared) for product in products(self._among, large, small, method.side))
            if dense
            else meetings(self._among, large, small, method.block)
        )
        for one, other, shared in found:
            pairs = np.column_stack([one, other])[shared == self._shared]
            pairs.sort(axis=1)
            lowest: list[list[int]] = pairs[np.lexsort(pairs.T[::-1])[: self._wanted]].tolist()
            yield lowest


def _tenants(distinct: Distinct, shards: Sequence[int], limit: int) -> list[int]:
    """The lowest rows of those who have one of these shards."""
    return sorted(row for shard in shards[:limit] for row in distinct.tenants(shard, limit))[:limit]
