"""Which cells of a fleet a shard has a worker in, so that it spreads over each dimension. Pure.

A cell is a combination of groups, one of each dimension: a zone, or a zone and a version. Along a diagonal every
dimension goes on by one from cell to cell and begins again at its end. So any cells in a row are spread over each
dimension as well as they can be, and the diagonals together are all cells.
"""

import math
from collections.abc import Collection, Sequence
from itertools import product

from holdfast._errors import InvalidValue

Window = Sequence[int]
"""The cells of a shard, by their numbers."""


def diagonals(dimensions: Sequence[int]) -> Sequence[Sequence[tuple[int, ...]]]:
    """All cells of a lattice of so many groups in each dimension, in diagonals of equal length."""
    length = math.lcm(*dimensions)
    found, seen = [], set[tuple[int, ...]]()
    for start in product(*(range(count) for count in dimensions)):
        if start not in seen:
            line = [
                tuple((at + step) % count for at, count in zip(start, dimensions, strict=True))
                for step in range(length)
            ]
            seen.update(line)
            found.append(line)
    return found


def rounds(count: int, length: int, size: int) -> Sequence[Sequence[Window]]:
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


def require_all(dimensions: Sequence[Sequence[str]], present: Collection[tuple[str, ...]]) -> None:
    """Raise InvalidValue if there is a combination of groups, one of each dimension, that is not present."""
    for cell in product(*dimensions):
        if cell not in present:
            raise InvalidValue(
                f"no worker in {' / '.join(cell)}: shards that spread over each dimension need some in every "
                "combination"
            )
