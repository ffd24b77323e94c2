"""Shards from names alone: no numbers to keep, no registry, and no promise about overlap but the odds. Pure.

Rendezvous hashing (Thaler and Ravishankar, A Name-Based Mapping Scheme for Rendezvous, 1996): every worker gets a score
for every tenant, and the highest scores are the tenant's shard. So a worker that comes or goes moves only those tenants
that win or lose it.

A cell of a fleet is a combination of groups, one of each dimension: a zone, or a zone and a version. Along a diagonal
every dimension goes on by one from cell to cell, so that any cells in a row are spread over each dimension as well as
they can be. The diagonals together are all cells.
"""

import math
from collections.abc import Collection, Sequence
from heapq import nlargest
from itertools import permutations, product

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet
from holdfast.shards.names import compute_score, encode_name, hash_name, mix_bits
from holdfast.shards.shard import Shard

Window = Sequence[int]
"""The cells of a shard, by their numbers."""


def build_diagonals(dimensions: Sequence[int]) -> Sequence[Sequence[tuple[int, ...]]]:
    """All cells of a lattice of so many groups in each dimension, in diagonals of equal length."""
    length = math.lcm(*dimensions)
    found, seen = [], set[tuple[int, ...]]()
    for start in product(*(range(count) for count in dimensions)):
        if start not in seen:
            line = [
                tuple((index + step) % count for index, count in zip(start, dimensions, strict=True))
                for step in range(length)
            ]
            seen.update(line)
            found.append(line)
    return found


def build_rounds(count: int, length: int, size: int) -> Sequence[Sequence[Window]]:
    """The ways to take windows of `size` cells from so many diagonals of such a length: in a round, none overlap.

    Cell c of diagonal d is number d * length + c. A window has whole diagonals and cells in a row of one more. All
    rounds together take every cell equally often; where all cells are taken in one round, there is only this.
    """
    whole, rest = divmod(size, length)
    pieces = length // rest if rest else 0
    windows = max(
        number
        for number in range(1, count * length // size + 1)
        if number * whole + (math.ceil(number / pieces) if rest else 0) <= count
    )
    starts = range(count if whole else 1)
    turns = range(length if rest else 1)
    if windows * size == count * length:
        starts = turns = range(1)
    found = []
    for start in starts:
        order = [(start + number) % count for number in range(count)]
        for turn in turns:
            taken = []
            for window in range(windows):
                cells = [
                    line * length + step
                    for line in order[window * whole : (window + 1) * whole]
                    for step in range(length)
                ]
                if rest:
                    line = order[windows * whole + window // pieces]
                    first = turn + window % pieces * rest
                    cells += [line * length + (first + step) % length for step in range(rest)]
                taken.append(cells)
            found.append(taken)
    return found


def require_all_combinations(dimensions: Sequence[Sequence[str]], present: Collection[tuple[str, ...]]) -> None:
    """Raise InvalidValue if there is a combination of groups, one of each dimension, that is not present."""
    for cell in product(*dimensions):
        if cell not in present:
            raise InvalidValue(
                f"no worker in {' / '.join(cell)}: shards that spread over each dimension need some in every "
                "combination"
            )


_MAX_LISTED_ORDERS = 5040
"""Orders of dimensions that are gone through to tell the odds: past that they are as if cells were drawn alone."""


class HashedSharding:
    """The shards of a fleet, `size` workers each, spread over its groups; drained workers are in none. Immutable.

    A worker of weight 2 is twice as likely to be drawn as one of weight 1, and so in nearly twice as many shards.
    """

    def __init__(self, fleet: Fleet, size: int, *, key: bytes) -> None:
        self.fleet = fleet
        self._key = key
        # By what they are called: where a zone comes in the list of zones decides nothing.
        self._cells: dict[tuple[str, ...], dict[int, int]] = {}
        for index, slot in enumerate(fleet.slots):
            if not slot.is_drained:
                self._cells.setdefault(slot.group, {})[index] = hash_name(key, b"worker:" + slot.worker.encode())
        kept = {name for group in self._cells for name in enumerate(group)}
        self._dimensions = [
            {name: hash_name(key, b"%d:%b" % (number, name.encode())) for name in names if (number, name) in kept}
            for number, names in enumerate(fleet.dimensions())
        ]
        if self._cells:
            require_all_combinations([list(names) for names in self._dimensions], self._cells)
        self._cell_order = [cell for line in build_diagonals([*map(len, self._dimensions)]) for cell in line]
        self.size = self._check_size(size)

    def shard(self, tenant: str | bytes, size: int | None = None) -> Shard:
        """Return the shard of a tenant, of `size` workers if given; no group gives more than one more than another."""
        wanted = self.size if size is None else self._check_size(size)
        name = hash_name(self._key, encode_name(tenant))
        slots, chosen = self.fleet.slots, list[int]()
        for cell, count in self._count_per_cell(name, wanted).items():
            seeds = self._cells[cell]
            chosen += nlargest(count, seeds, key=lambda index: compute_score(name ^ seeds[index], slots[index].weight))
        return Shard(tuple(chosen), tuple([slots[index] for index in chosen]))

    def _count_per_cell(self, name: int, wanted: int) -> dict[tuple[str, ...], int]:
        """How many workers each cell gives: a walk along diagonals through dimensions that each tenant orders anew."""
        orders = [
            sorted(seeds, key=lambda group: mix_bits(name ^ seeds[group]), reverse=True) for seeds in self._dimensions
        ]
        found: dict[tuple[str, ...], int] = {}
        each, more = divmod(wanted, len(self._cells))
        for rank, cell in enumerate(self._cell_order if each else self._cell_order[:more]):
            found[tuple(order[index] for order, index in zip(orders, cell, strict=True))] = each + (rank < more)
        return found

    def overlap_probability(self, min_shared: int, tenants: int) -> float:
        """The share of tenants that have a neighbour with `min_shared` or more workers in common, of so many tenants.

        By the odds of two shards drawn by chance from groups of equal size and weight: real fleets are a little worse.
        """
        if min_shared < 0 or tenants < 1:
            raise InvalidValue(f"{min_shared} workers shared by {tenants} tenants: expected 0 or more, and 1 or more")
        count = sum(map(len, self._cells.values())) // len(self._cells)
        each, more = divmod(self.size, len(self._cells))
        pair = 0.0
        for both, odds in enumerate(self._common_cell_odds(more)):
            # Cells from which both have one worker more, only one of them, and neither.
            kinds = [(each + 1, each + 1)] * both + [(each + 1, each)] * 2 * (more - both)
            kinds += [(each, each)] * (len(self._cells) - len(kinds))
            pair += odds * _probability_of_sharing(min_shared, count, kinds) if odds else 0.0
        return -math.expm1((tenants - 1) * math.log1p(-pair)) if pair < 1 else 1.0

    def _common_cell_odds(self, more: int) -> Sequence[float]:
        """The odds that two tenants have 0, 1 and so on cells in common, of those that give one worker more."""
        sizes = [len(names) for names in self._dimensions]
        ways = math.prod(map(math.factorial, sizes))
        if len(sizes) <= 1 or ways > _MAX_LISTED_ORDERS:
            cells = len(self._cells)
            return [
                math.comb(more, both) * math.comb(cells - more, more - both) / math.comb(cells, more)
                for both in range(more + 1)
            ]
        mine, found = {*self._cell_order[:more]}, [0] * (more + 1)
        for orders in product(*(permutations(range(size)) for size in sizes)):
            other = {tuple(order[index] for order, index in zip(orders, cell, strict=True)) for cell in mine}
            found[len(mine & other)] += 1
        return [number / ways for number in found]

    def _check_size(self, size: int) -> int:
        most = min((len(members) for members in self._cells.values()), default=0) * len(self._cells)
        if not 1 <= size <= most:
            raise InvalidValue(f"shards of {size}: expected 1 to {most}, as many of each group as its smallest allows")
        return size


def _probability_of_sharing(shared: int, count: int, kinds: Sequence[tuple[int, int]]) -> float:
    """The odds that two shards share so many workers or more, of cells of so many from which they have so many."""
    odds = [1.0]
    for mine, other in kinds:
        one = [
            math.comb(mine, hit) * math.comb(count - mine, other - hit) / math.comb(count, other)
            for hit in range(min(mine, other) + 1)
        ]
        odds = [
            sum(odds[before] * one[total - before] for before in range(len(odds)) if 0 <= total - before < len(one))
            for total in range(len(odds) + len(one) - 1)
        ]
    return sum(odds[shared:])
