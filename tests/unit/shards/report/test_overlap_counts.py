"""Pairs of shards, and how many workers each has in common."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.shards.report import build_table
from holdfast.shards.report import overlap_counts as pairing
from holdfast.shards.report.overlap_counts import build_overlap_matrices, find_overlapping_pairs
from holdfast.shards.report.table import AssignmentTable
from tests.unit.shards.report.samples import Shards, shards


@pytest.mark.no_cover
@pytest.mark.parametrize("cells", [0, 16, 1000], ids=["sorted", "usual", "counted"])
@settings(max_examples=100, deadline=None)
@given(sample=shards(), data=st.data())
def test_each_pair_with_one_of_some_shards_is_met_once(
    cells: int, sample: tuple[int, Shards], data: st.DataObject
) -> None:
    _, rows = sample
    distinct = AssignmentTable(build_table(rows)).distinct_shards
    unique = [{*rows[first]} for first in distinct.first_rows]
    is_some = np.array([data.draw(st.booleans()) for _ in unique], dtype=np.bool_)
    some, rest = np.flatnonzero(is_some), np.flatnonzero(~is_some)
    expected = {
        (one, other): len(unique[one] & unique[other])
        for one, other in combinations(range(len(unique)), 2)
        if is_some[one] or is_some[other]
    }
    met: dict[tuple[int, int], int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "_CELLS_PER_KEY", cells)
        for part in find_overlapping_pairs(distinct, some, rest, data.draw(st.integers(1, 40))):
            for one, other, shared in zip(*(values.tolist() for values in part), strict=True):
                assert (min(one, other), max(one, other)) not in met
                met[min(one, other), max(one, other)] = shared
    assert met == {pair: shared for pair, shared in expected.items() if shared}
    multiplied: dict[tuple[int, int], int] = {}
    for product in build_overlap_matrices(distinct, some, rest, data.draw(st.integers(1, 5))):
        for size in range(10):
            for one, other, shared in zip(*(values.tolist() for values in product.select_pairs(size)), strict=True):
                assert (min(one, other), max(one, other)) not in multiplied
                multiplied[min(one, other), max(one, other)] = shared
    assert multiplied == expected


def test_shards_that_meet_nobody_are_not_looked_at_one_by_one() -> None:
    rows = [(0, 1, 2), (2, 3), *((number, number + 1) for number in range(10, 2000, 2))]
    distinct = AssignmentTable(build_table(rows)).distinct_shards
    [part] = find_overlapping_pairs(distinct, np.array([0]), np.arange(1, len(distinct)), 1 << 20)
    assert [values.tolist() for values in part] == [[0], [1], [1]]


def test_a_fleet_of_very_many_workers_is_multiplied_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_MAX_FLOATS", 40)
    distinct = AssignmentTable(build_table([(0, 1), (1, 2), (0, 1), (5, 19), (19, 2)])).distinct_shards
    every = np.arange(len(distinct))
    assert {product.shared.shape for product in build_overlap_matrices(distinct, every, every[:0], 2048)} == {(2, 2)}
