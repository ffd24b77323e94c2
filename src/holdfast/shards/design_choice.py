"""The choice of a design for a fleet, and of the slots that are the design's workers. Pure."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast._errors import InvalidValue
from holdfast._names import format_count
from holdfast.shards.designs import Disjoint, Families, Pairs, Parity, Polynomials, Quadruples, Tuples
from holdfast.shards.designs.quadruples import MAX_BITS
from holdfast.shards.field import find_largest_prime_power
from holdfast.shards.fleet import Fleet
from holdfast.shards.hashed import Window, build_diagonals, build_rounds, require_all_combinations

AnyDesign: TypeAlias = Disjoint | Families | Pairs | Parity | Polynomials | Quadruples | Tuples
Cells: TypeAlias = Sequence[Sequence[int]]
"""Slots in cells of equal width: worker w of cell c of a design is the slot [c][w]."""


def choose_design(fleet: Fleet, slot_count: int, size: int, overlap: int) -> tuple[AnyDesign, Cells]:
    """Return the design for the first `slot_count` slots of a fleet. Raise InvalidValue with advice if none fits."""
    groups = fleet.indexes_by_group(slot_count)
    count = sum(map(len, groups.values()))
    if not 1 <= size <= count:
        raise InvalidValue(f"shards of {size} in a fleet of {count}: expected 1 to {count} workers")
    if not 0 <= overlap < size:
        raise InvalidValue(f"overlap {overlap} of shards of {size}: expected 0 to {size - 1}")
    if len(groups) == 1:
        [indexes] = groups.values()
        if (size, overlap) == (4, 2) and count & (count - 1) == 0 and count <= 1 << MAX_BITS:
            # No other design has more shards. It also uses all workers, and can be doubled.
            return Quadruples(count.bit_length() - 1), [indexes]
        if (size, overlap) == (2, 1):
            return Pairs(count), [indexes]
    return _choose_for_cells(*_split_into_cells(fleet, slot_count, size), size, overlap)


def double_design(design: AnyDesign) -> AnyDesign:
    """Return the design with twice the workers per cell and all shards unchanged. Raise InvalidValue if none exists."""
    match design:
        case Quadruples() | Parity() | Disjoint():
            return design.double()
        case Families(design=Parity() | Disjoint() as copied, count=count):
            return Families(copied.double(), count)
    raise InvalidValue(
        f"shards of {design.size} that share at most {design.overlap} cannot be doubled in place: "
        "make new shards of the larger fleet, and move tenants to them"
    )


def find_shard_in_class(design: AnyDesign) -> Callable[[int, int], tuple[int, ...]] | None:
    """Return a function from class and position to the shard if all classes are alike, else None. It is a fast path."""
    if len(design.segments) > 1:
        return None
    match design:
        case Quadruples() | Parity():
            return design.shard_in_class
        case Polynomials(windows_by_round=[[_]]):
            return design.shard_in_class
    return None


def _split_into_cells(fleet: Fleet, slot_count: int, size: int) -> tuple[Cells, Sequence[Sequence[Window]]]:
    """Return the fleet as `size` or more cells, along diagonals through all groups, and the windows of each round."""
    groups = fleet.indexes_by_group(slot_count)
    names = [list(dict.fromkeys(group[number] for group in groups)) for number in range(len(next(iter(groups))))]
    require_all_combinations(names, groups)
    lines = build_diagonals([*map(len, names)])
    ordered = [
        groups[tuple(kind[index] for kind, index in zip(names, cell, strict=True))] for line in lines for cell in line
    ]
    parts = math.ceil(size / len(ordered))
    for group in ordered:
        if len(group) < parts:
            workers = format_count(len(group), "worker")
            raise InvalidValue(f"a group of {workers} for {parts} of each shard: expected {parts} or more")
    cells = [group[part::parts] for part in range(parts) for group in ordered]
    return cells, build_rounds(len(lines) * parts, len(lines[0]), size)


def _choose_for_cells(
    cells: Cells, windows_by_round: Sequence[Sequence[Window]], size: int, overlap: int
) -> tuple[AnyDesign, Cells]:
    prime_power = find_largest_prime_power(min(map(len, cells)))
    if len(windows_by_round) > 1 and overlap and prime_power is not None and prime_power >= len(cells):
        return Polynomials(len(cells), prime_power, overlap, windows_by_round), [cell[:prime_power] for cell in cells]
    # Other designs use the first round only. Its windows have all cells, or the rest stays spare: with shards of two in
    # five zones, the windows are the first two zones and the next two.
    windows = windows_by_round[0]
    taken = [cells[number] for window in windows for number in window]
    width = min(map(len, taken))
    design: Disjoint | Parity | Polynomials | Tuples
    if overlap == 0:
        design = Disjoint(size, width)
    elif overlap == size - 1:
        design = Tuples(size, width)
    elif overlap == size - 2:
        design = Parity(size, width)
    else:
        prime_power = find_largest_prime_power(width)
        if prime_power is None or prime_power < size:
            raise InvalidValue(
                f"shards of {size} that share at most {overlap} need {size} parts of the fleet with {size} workers "
                f"each, and the smallest has {width}: allow a larger overlap, make shards smaller, or add workers"
            )
        width = prime_power
        design = Polynomials(size, width, overlap)
    return design if len(windows) == 1 else Families(design, len(windows)), [cell[:width] for cell in taken]
