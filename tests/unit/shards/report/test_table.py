"""Tables: what is accepted, and what is refused with the row that is wrong."""

import subprocess
import sys

import numpy as np
import pytest

from holdfast import InvalidValue
from holdfast.shards import Fleet
from holdfast.shards.report import AssignmentTable, build_table, compute_load, count_overlaps
from tests.table import rows


def test_shards_of_any_sizes_become_a_table() -> None:
    made = build_table([(3, 1), (2,), (0, 1, 2)])
    assert made.tolist() == [[3, 1, -1], [2, -1, -1], [0, 1, 2]]
    assert made.dtype == np.int32
    assert build_table([]).shape == (0, 1)
    checked = AssignmentTable(made, 4)
    assert [checked.shard(row) for row in range(3)] == [(1, 3), (2,), (0, 1, 2)]
    assert checked.array().tolist() == [[1, 3, -1], [2, -1, -1], [0, 1, 2]]


@rows(
    ("table", "said"),
    [
        ([1, 2, 3], r"shape \(3,\): expected a row for each tenant"),
        (np.zeros((4, 0), dtype=np.int32), r"shape \(4, 0\)"),
        ([[0.0, 1.0]], "float64: expected whole numbers"),
        ([["a", "b"]], "expected whole numbers"),
        ([[0, 1], [2]], "rows of different lengths"),
        ([[0, 1], [2, 8]], "slot 8 of tenant 1: expected 0 to 7"),
        ([[0, 1], [2, -2]], "slot -2 of tenant 1: expected 0 to 7, or -1"),
        (np.array([[2**63]], dtype=np.uint64), "slot 9223372036854775808 of tenant 0"),
        ([[0, 1], [-1, -1]], "tenant 1 has no worker"),
        ([[0, 1, 2], [3, -1, 4]], r"tenant 1 has a slot after -1: .*found \[3, -1, 4\]"),
        ([[0, 1, 2], [4, 1, 4]], r"tenant 1 has a worker twice: .*found \[4, 1, 4\]"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_row(table: object, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        compute_load(Fleet.from_workers("abcdefgh"), table)  # type: ignore[arg-type]


def test_a_place_beyond_all_fleets_is_refused_also_where_no_fleet_is_known() -> None:
    with pytest.raises(InvalidValue, match="slot 16777216 of tenant 0: expected 0 to 16777215"):
        count_overlaps([[1 << 24]])


def test_a_table_that_was_checked_is_taken_as_it_is_for_its_fleet_only() -> None:
    checked = AssignmentTable([[0, 1], [2, 3]], 4)
    assert AssignmentTable.check(checked, 4) is checked
    assert checked.distinct_shards is checked.distinct_shards
    with pytest.raises(InvalidValue, match="a fleet of 4 workers: expected one of 5"):
        compute_load(Fleet.from_workers("abcde"), checked)


def test_the_caller_keeps_its_array_as_it_was() -> None:
    array = np.array([[3, 1], [2, -1]], dtype=np.int32)
    count_overlaps(array)
    assert array.tolist() == [[3, 1], [2, -1]]


def test_different_shards_are_numbered_as_they_first_occur_however_wide_they_are() -> None:
    """Wider than what fits one number at a time."""
    base = list(range(0, 1 << 20, 1 << 15))
    rows = [base, [*base[:-1], 5], [*base], [7, *base[1:]], [*base[:-1], 5]]
    distinct = AssignmentTable(rows).distinct_shards
    assert distinct.numbers.tolist() == [0, 1, 0, 2, 1]
    assert distinct.first_rows.tolist() == [0, 1, 3]
    assert distinct.counts.tolist() == [2, 2, 1]
    assert distinct.find_rows(1, 9) == [1, 4]
    assert distinct.find_rows(1, 1) == [1]


def test_rows_that_differ_in_what_no_longer_fits_one_number_are_different() -> None:
    """Numbers of 20 bits each: without care the first of five would be shifted out of 64 bits, and be lost."""
    rest = [1000, 2000, 3000, (1 << 20) - 2]
    table = AssignmentTable([[7, *rest], [8, *rest], [7, *rest]], (1 << 20) - 1)
    assert table.distinct_shards.numbers.tolist() == [0, 1, 0]


def test_without_numpy_the_message_says_what_to_install() -> None:
    script = "import sys; sys.modules['numpy'] = None; import holdfast.shards; import holdfast.shards.report"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingExtra: the report on shards (holdfast shards report, blast-radius) needs the extra" in outcome.stderr
