"""Polynomials with more groups than a shard has workers: windows that take turns."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.shards.designs import Polynomials
from holdfast.shards.hashed import build_rounds


def designs(per_group: int) -> st.SearchStrategy[Polynomials]:
    """Any shape of lattice that has no more cells than workers in one."""

    def of_cells(shape: tuple[int, int, int, int]) -> Polynomials:
        lines, length, size, overlap = shape
        return Polynomials(lines * length, per_group, overlap, build_rounds(lines, length, size))

    return (
        st.integers(1, 4)
        .flatmap(lambda lines: st.tuples(st.just(lines), st.integers(1, per_group // lines)))
        .filter(lambda cells: cells[0] * cells[1] > 2)
        .flatmap(lambda cells: st.tuples(st.just(cells[0]), st.just(cells[1]), st.integers(2, cells[0] * cells[1] - 1)))
        .flatmap(lambda cells: st.tuples(*map(st.just, cells), st.integers(1, min(cells[2] - 1, 4))))
        .map(of_cells)
    )


@given(st.sampled_from([9, 16, 25, 27]).flatmap(designs), st.data())
def test_any_two_shards_share_no_more_than_is_promised(design: Polynomials, data: st.DataObject) -> None:
    one = data.draw(st.integers(0, design.capacity - 1))
    # Those that differ little in their numbers as well: other windows of the same polynomial, other constants.
    near = st.integers(max(0, one - 3 * design.per_group), min(design.capacity - 1, one + 3 * design.per_group))
    other = data.draw(near | st.integers(0, design.capacity - 1))
    first, second = set(design.shard(one)), set(design.shard(other))
    assert len(first) == len(second) == design.size
    assert one == other or len(first & second) <= design.overlap


@pytest.mark.parametrize(
    ("lines", "length", "size", "per_group"), [(1, 5, 3, 5), (1, 7, 3, 7), (2, 3, 4, 7), (3, 2, 3, 8), (4, 2, 5, 9)]
)
def test_a_shard_has_one_worker_of_each_group_of_its_window(lines: int, length: int, size: int, per_group: int) -> None:
    windows = build_rounds(lines, length, size)
    design = Polynomials(lines * length, per_group, 1, windows)
    for number in range(design.capacity):
        polynomial, which = divmod(number // per_group, design.windows)
        expected = windows[polynomial % len(windows)][which]
        assert [worker // per_group for worker in design.shard(number)] == list(expected)


def test_shards_of_one_polynomial_share_nothing() -> None:
    """Two windows of each, or other constants: they are of one class and of one round."""
    design = Polynomials(7, 7, 2, build_rounds(1, 7, 3))
    assert design.windows == 2
    for first in range(0, design.capacity, 14):
        for one, other in combinations([set(design.shard(number)) for number in range(first, first + 14)], 2):
            assert not one & other


def test_every_group_has_its_turn() -> None:
    design = Polynomials(5, 25, 1, build_rounds(1, 5, 3))
    whole, *left = design.segments
    assert not left
    assert (whole.class_size, whole.classes) == (125, 5)
    for first in range(0, design.capacity, whole.class_size):
        load = Counter(worker for number in range(first, first + whole.class_size) for worker in design.shard(number))
        assert load == Counter(dict.fromkeys(range(125), 3))


def test_more_groups_give_more_shards_than_families_would() -> None:
    """Three zones of twenty and shards of four: six parts of nine, not one family of four parts of ten."""
    assert Polynomials(6, 9, 2, build_rounds(2, 3, 4)).capacity == 729
    assert Polynomials(8, 9, 2, build_rounds(1, 8, 4)).capacity == 2 * 729
