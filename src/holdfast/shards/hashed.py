"""Shards computed from names: no numbers to store, and no bound on overlap, only probabilities. Pure.

Rendezvous hashing (Thaler and Ravishankar, A Name-Based Mapping Scheme for Rendezvous, 1996) gives every worker a score
for every tenant. The workers with the highest scores are the tenant's shard, so adding or removing a worker moves only
the tenants that win or lose it.

A cell of a fleet is a combination of groups, one of each dimension: a zone, or a zone and a version. In a diagonal,
every dimension advances by one from cell to cell, so that consecutive cells are spread evenly over each dimension.
Every cell is in one diagonal.
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
"""The numbers of the cells of a shard."""


def build_diagonals(dimensions: Sequence[int]) -> Sequence[Sequence[tuple[int, ...]]]:
    """Return all cells of a lattice, given its number of groups in each dimension, as diagonals of equal length."""
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
    """Return rounds of disjoint windows of `size` cells, from `count` diagonals of `length` cells.

    Cell c of diagonal d has number d * length + c. A window has whole diagonals, and consecutive cells of one more. All
    rounds together use every cell equally often. If one round uses all cells, it is the only one.
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
    """Raise InvalidValue unless every combination of groups, one of each dimension, is present."""
    for cell in product(*dimensions):
        if cell not in present:
            raise InvalidValue(
                f"no worker in {' / '.join(cell)}: shards that spread over each dimension need workers in every "
                "combination"
            )


_MAX_LISTED_ORDERS = 5040
"""Most orders of groups that are enumerated for exact odds. With more, cells count as drawn independently."""


class HashedSharding:
    """The shards of a fleet, `size` workers each, spread over its groups, without drained workers. Immutable.

    A worker of weight 2 is twice as likely to be drawn as one of weight 1, and so is in nearly twice as many shards.
    """

    def __init__(self, fleet: Fleet, size: int, *, key: bytes) -> None:
        self.fleet = fleet
        self._key = key
        # By names, because the order of workers and zones in the fleet must not matter.
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
        """Return the shard of a tenant, of `size` workers if given. Groups differ by at most one worker in a shard."""
        wanted = self.size if size is None else self._check_size(size)
        name = hash_name(self._key, encode_name(tenant))
        slots, chosen = self.fleet.slots, list[int]()
        for cell, count in self._count_per_cell(name, wanted).items():
            seeds = self._cells[cell]
            chosen += nlargest(count, seeds, key=lambda index: compute_score(name ^ seeds[index], slots[index].weight))
        return Shard(tuple(chosen), tuple([slots[index] for index in chosen]))

    def _count_per_cell(self, name: int, wanted: int) -> dict[tuple[str, ...], int]:
        """Return the number of workers from each cell: along diagonals, with groups in an order of the tenant's own."""
        orders = [
            sorted(seeds, key=lambda group: mix_bits(name ^ seeds[group]), reverse=True) for seeds in self._dimensions
        ]
        found: dict[tuple[str, ...], int] = {}
        each, more = divmod(wanted, len(self._cells))
        for rank, cell in enumerate(self._cell_order if each else self._cell_order[:more]):
            found[tuple(order[index] for order, index in zip(orders, cell, strict=True))] = each + (rank < more)
        return found

    def expected_fraction_sharing(self, min_shared: int, tenants: int) -> float:
        """Return the expected fraction of `tenants` that share `min_shared` or more workers with another tenant.

        It assumes random shards from groups of equal size and weight; real fleets are slightly worse.
        """
        if min_shared < 0 or tenants < 1:
            raise InvalidValue(f"{min_shared} workers shared by {tenants} tenants: expected 0 or more, and 1 or more")
        count = sum(map(len, self._cells.values())) // len(self._cells)
        each, more = divmod(self.size, len(self._cells))
        pair = 0.0
        for both, odds in enumerate(self._common_cell_odds(more)):
            # Cells from which both tenants have one worker more, only one of them, and neither.
            kinds = [(each + 1, each + 1)] * both + [(each + 1, each)] * 2 * (more - both)
            kinds += [(each, each)] * (len(self._cells) - len(kinds))
            pair += odds * _probability_of_sharing(min_shared, count, kinds) if odds else 0.0
        return -math.expm1((tenants - 1) * math.log1p(-pair)) if pair < 1 else 1.0

    def _common_cell_odds(self, more: int) -> Sequence[float]:
        """Return the odds that two tenants have 0, 1, ... cells in common, of those that give one worker more."""
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
        max_size = min((len(members) for members in self._cells.values()), default=0) * len(self._cells)
        if not 1 <= size <= max_size:
            raise InvalidValue(f"shards of {size}: expected 1 to {max_size} workers, which the smallest group allows")
        return size


def _probability_of_sharing(shared: int, count: int, kinds: Sequence[tuple[int, int]]) -> float:
    """Return the odds that two shards share `shared` or more, by the workers that each has of the `count` of a cell."""
    odds = [1.0]
    for mine, other in kinds:
        here = [
            math.comb(mine, hit) * math.comb(count - mine, other - hit) / math.comb(count, other)
            for hit in range(min(mine, other) + 1)
        ]
        odds = [
            sum(odds[before] * here[total - before] for before in range(len(odds)) if 0 <= total - before < len(here))
            for total in range(len(odds) + len(here) - 1)
        ]
    return sum(odds[shared:])
