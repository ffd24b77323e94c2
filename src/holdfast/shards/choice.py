"""Which design fits a fleet, and which of its slots stand for the workers of the design. Pure."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast._errors import InvalidValue
from holdfast.shards.designs import Disjoint, Families, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.designs.quadruples import MOST_BITS
from holdfast.shards.field import largest_prime_power
from holdfast.shards.fleet import Fleet
from holdfast.shards.hashed import diagonals, require_all, rounds

AnyDesign: TypeAlias = Disjoint | Families | Pairs | Parity | Polynomials | Quadruples | Tuples
Cells: TypeAlias = Sequence[Sequence[int]]
"""Slots in cells of equal width: worker w of cell c of a design is the slot at [c][w]."""


def choose(fleet: Fleet, first: int, size: int, overlap: int) -> tuple[AnyDesign, Cells]:
    """The design for the first slots of a fleet. Raises InvalidValue where none fits, saying what would."""
    groups = fleet.groups(first)
    count = sum(map(len, groups.values()))
    if not 1 <= size <= count:
        raise InvalidValue(f"shards of {size} in a fleet of {count}: expected 1 to {count} workers")
    if not 0 <= overlap < size:
        raise InvalidValue(f"overlap {overlap} of shards of {size}: expected 0 to {size - 1}")
    if len(groups) == 1:
        [places] = groups.values()
        if (size, overlap) == (4, 2) and count & (count - 1) == 0 and count <= 1 << MOST_BITS:
            # No other design has more shards, or leaves nothing over; and it can be doubled.
            return Quadruples(count.bit_length() - 1), [places]
        if (size, overlap) == (2, 1):
            return Pairs(count), [places]
    return _in_cells(*_cut(fleet, first, size), size, overlap)


def doubled(design: AnyDesign) -> AnyDesign:
    """The design on twice the workers in every cell, where nobody moves. Raises InvalidValue if there is none."""
    match design:
        case Quadruples() | Parity() | Disjoint():
            return design.doubled()
        case Families(one=Parity() | Disjoint() as one, count=count):
            return Families(one.doubled(), count)
    raise InvalidValue(
        f"shards of {design.size} that share at most {design.overlap} cannot be doubled in place: "
        "make new ones of the larger fleet, and move tenants over"
    )


def in_class(design: AnyDesign) -> Callable[[int, int], tuple[int, ...]] | None:
    """The shard at a place of a class, where all classes are alike: it spares the way over its number."""
    if len(design.segments) > 1:
        return None
    match design:
        case Quadruples() | Parity():
            return design.member
        case Polynomials(rounds=[[_]]):
            return design.member
    return None


def _cut(fleet: Fleet, first: int, size: int) -> tuple[Cells, Sequence[Sequence[Sequence[int]]]]:
    """Return the fleet in `size` cells or more, along diagonals through all groups, and the windows of each round."""
    groups = fleet.groups(first)
    names = [list(dict.fromkeys(group[number] for group in groups)) for number in range(len(next(iter(groups))))]
    require_all(names, groups)
    lines = diagonals([*map(len, names)])
    ordered = [groups[tuple(some[at] for some, at in zip(names, cell, strict=True))] for line in lines for cell in line]
    parts = math.ceil(size / len(ordered))
    for group in ordered:
        if len(group) < parts:
            raise InvalidValue(f"a group of {len(group)} workers for {parts} of each shard: expected no fewer")
    cells = [group[part::parts] for part in range(parts) for group in ordered]
    return cells, rounds(len(lines) * parts, len(lines[0]), size)


def _in_cells(
    cells: Cells, windows: Sequence[Sequence[Sequence[int]]], size: int, overlap: int
) -> tuple[AnyDesign, Cells]:
    fitting = largest_prime_power(min(map(len, cells)))
    if len(windows) > 1 and overlap and fitting is not None and fitting >= len(cells):
        return Polynomials(len(cells), fitting, overlap, windows), [cell[:fitting] for cell in cells]
    # All cells have a window at once, or the cells that are left over stay so.
    families = windows[0]
    taken = [cells[number] for window in families for number in window]
    width = min(map(len, taken))
    one: Disjoint | Parity | Polynomials | Tuples
    if overlap == 0:
        one = Disjoint(size, width)
    elif overlap == size - 1:
        one = Tuples(size, width)
    elif overlap == size - 2:
        one = Parity(size, width)
    else:
        fitting = largest_prime_power(width)
        if fitting is None or fitting < size:
            raise InvalidValue(
                f"shards of {size} that share at most {overlap} need {size} parts of the fleet with {size} workers "
                f"each, and the smallest has {width}: allow a larger overlap, make them smaller, or add workers"
            )
        width = fitting
        one = Polynomials(size, width, overlap)
    return one if len(families) == 1 else Families(one, len(families)), [cell[:width] for cell in taken]
