"""Cells of a fleet, along diagonals: whatever cells in a row a shard takes, it is spread over each dimension."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.shards.lattice import diagonals, rounds

DIMENSIONS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def imbalance(cells: Iterable[tuple[int, ...]], dimensions: Sequence[int]) -> int:
    """By how much the groups of a dimension differ, in the worst of them; those with no cell count as well."""
    cells = list(cells)
    found = 0
    for number, count in enumerate(dimensions):
        load = Counter(cell[number] for cell in cells)
        found = max(found, max(load.values()) - min(load.get(group, 0) for group in range(count)))
    return found


@given(DIMENSIONS)
def test_diagonals_are_all_cells_once(dimensions: list[int]) -> None:
    lines = diagonals(dimensions)
    assert sorted(cell for line in lines for cell in line) == list(product(*map(range, dimensions)))
    assert {len(line) for line in lines} == {math.lcm(*dimensions)}


@given(DIMENSIONS, st.data())
def test_cells_in_a_row_are_spread_over_each_dimension(dimensions: list[int], data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(diagonals(dimensions)))
    start, count = data.draw(st.integers(0, len(line) - 1)), data.draw(st.integers(1, 2 * len(line)))
    cells = [line[(start + step) % len(line)] for step in range(count)]
    assert imbalance(cells, dimensions) <= 1


def test_cells_by_rows_would_not_be_spread() -> None:
    """What the diagonals are for: three cells of a lattice of two by four as they are listed."""
    assert imbalance(list(product(range(2), range(4)))[:3], [2, 4]) == 3


def test_diagonals_of_a_lattice_of_three_by_two_are_one_line() -> None:
    assert diagonals([3, 2]) == [[(0, 0), (1, 1), (2, 0), (0, 1), (1, 0), (2, 1)]]
    assert diagonals([2, 2]) == [[(0, 0), (1, 1)], [(0, 1), (1, 0)]]
    assert diagonals([]) == [[()]], "without dimensions there is one cell"


SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(st.just(shape[0]), st.just(shape[1]), st.integers(1, shape[0] * shape[1]))
)


@given(SHAPES)
def test_windows_of_a_round_are_disjoint_and_all_rounds_take_each_cell_equally_often(
    shape: tuple[int, int, int],
) -> None:
    count, length, size = shape
    found = rounds(count, length, size)
    assert len({len(windows) for windows in found}) == 1
    taken: Counter[int] = Counter()
    for windows in found:
        cells = [cell for window in windows for cell in window]
        assert all(len(window) == size for window in windows)
        assert len(set(cells)) == len(cells), "in a round, none overlap"
        taken.update(cells)
    assert sorted(taken) == list(range(count * length))
    assert len(set(taken.values())) == 1


@given(SHAPES)
def test_where_one_round_takes_all_cells_there_is_no_other(shape: tuple[int, int, int]) -> None:
    count, length, size = shape
    found = rounds(count, length, size)
    assert (len(found) == 1) == (len(found[0]) * size == count * length)


@given(DIMENSIONS, st.integers(1, 2), st.data())
def test_every_window_is_spread_over_each_dimension(dimensions: list[int], parts: int, data: st.DataObject) -> None:
    """Also where groups are divided into parts, and a shard has several workers of each."""
    lines = [line for _ in range(parts) for line in diagonals(dimensions)]
    cells = [cell for line in lines for cell in line]
    size = data.draw(st.integers(1, len(cells)))
    for windows in rounds(len(lines), len(lines[0]), size):
        for window in windows:
            assert imbalance([cells[number] for number in window], dimensions) <= 1


@pytest.mark.parametrize(
    ("count", "length", "size", "windows", "turns"),
    [
        (1, 6, 2, 3, 1),  # all cells at once
        (1, 5, 2, 2, 5),  # one cell is left over in each round, another one each time
        (1, 5, 3, 1, 5),
        (2, 3, 4, 1, 6),  # a whole diagonal, and a cell of the other
        (3, 2, 4, 1, 3),  # two whole diagonals
        (4, 2, 4, 2, 1),
        (2, 3, 1, 6, 1),
        (3, 4, 5, 2, 12),  # a whole diagonal and a cell, twice
    ],
)
def test_as_many_windows_are_taken_at_once_as_fit(count: int, length: int, size: int, windows: int, turns: int) -> None:
    found = rounds(count, length, size)
    assert (len(found[0]), len(found)) == (windows, turns)
