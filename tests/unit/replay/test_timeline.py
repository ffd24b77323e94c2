"""Rows become bins in the order of time, and those that arrive late are lost for detectors."""

import numpy as np
import pytest

from holdfast._errors import InvalidValue
from holdfast.replay.rows import Rows
from holdfast.replay.timeline import OutOfOrder, RecordedBin, Timeline, check_bin_seconds, find_bin_seconds
from tests.unit.replay.recorded import START, read

HEADER = "time,arrived,operation,zone,requests,faults\n"


def build(*rows: tuple[int, float | None]) -> Rows:
    """Return rows at some seconds after the start, each with the seconds until its arrival."""
    lines = (f"{START + at},{'' if late is None else START + late},a/b,z1,{at + 1},0\n" for at, late in rows)
    return read(HEADER + "".join(lines))[1]


def show(bins: list[RecordedBin]) -> list[tuple[float, list[int]]]:
    return [(each.start - START, [] if each.rows is None else each.rows.requests.tolist()) for each in bins]


def test_bins_are_complete_when_no_row_of_them_can_follow() -> None:
    timeline = Timeline(10.0, horizon=20.0)
    assert show(list(timeline.add(build((0, None), (12, None)), START + 12))) == []
    assert show(list(timeline.add(build((31, None), (5, None)), START + 31))) == [(0, [1, 6])]
    assert show(list(timeline.add(build((33, None)), START + 33))) == []
    assert show(list(timeline.finish())) == [(10, [13]), (20, []), (30, [32, 34])]
    assert list(timeline.finish()) == []


def test_a_row_older_than_a_complete_bin_is_out_of_order() -> None:
    timeline = Timeline(10.0, horizon=0.0)
    assert len(list(timeline.add(build((0, None), (50, None)), START + 50))) == 1
    with pytest.raises(OutOfOrder):
        list(timeline.add(build((3, None)), START + 60))


def test_without_an_end_of_the_horizon_all_rows_are_sorted() -> None:
    timeline = Timeline(10.0, horizon=float("inf"))
    assert list(timeline.add(build((50, None), (0, None)), START + 50)) == []
    assert [start for start, _ in show(list(timeline.finish()))] == [0, 10, 20, 30, 40, 50]


def test_a_row_that_arrives_after_its_bin_is_judged_is_lost_for_detectors() -> None:
    timeline = Timeline(10.0)
    rows = build((0, 11), (1, 11.5), (2, 11.6), (3, 71), (4, None), (5, -61))
    list(timeline.add(rows, START))
    (found,) = timeline.finish()
    assert found.rows is not None
    assert found.rows.requests.tolist() == [1, 2, 5]
    assert found.arrived == START + 11.5
    assert found.late is not None
    assert found.late.requests.tolist() == [3]  # not the one that is later than sources may be
    assert timeline.lost_requests == 3 + 4 + 6
    list(timeline.add(build((20, 50)), START + 20))
    assert [(each.rows, each.arrived) for each in timeline.finish()] == [(None, START + 20), (None, START + 30)]


def test_a_pause_of_more_than_a_day_is_skipped() -> None:
    timeline = Timeline(10.0)
    list(timeline.add(build((0, None), (200_000, None)), START))
    assert [start for start, _ in show(list(timeline.finish()))] == [0, 200_000]
    assert timeline.skipped_seconds == 199_990


def test_the_length_of_a_bin_is_that_between_the_rows_of_a_series() -> None:
    assert find_bin_seconds(build((0, None), (60, None), (120, None), (240, None), (300, None))) == 60
    assert find_bin_seconds(build((0, None))) is None


@pytest.mark.parametrize("seconds", [0.5, 5.0, 10.0, 60.0, 600.0])
def test_bins_may_have_a_multiple_or_a_part_of_the_time_between_rows(seconds: float) -> None:
    check_bin_seconds(build((0, None), (10, None), (20, None), (50, None)), seconds)


def test_bins_that_do_not_fit_the_time_between_rows_are_refused() -> None:
    with pytest.raises(InvalidValue, match="rows are 10 s apart; --bin-seconds 7 does not fit"):
        check_bin_seconds(build((0, None), (10, None), (20, None), (50, None)), 7.0)


def test_bins_of_any_length_fit_rows_at_any_time() -> None:
    check_bin_seconds(build((0, None), (10, None), (23, None), (33, None)), 7.0)
    check_bin_seconds(build((0, None)), 7.0)


def test_a_part_of_rows_keeps_its_latencies() -> None:
    _, rows, _ = read(
        "p50_ms,time,operation,zone,requests,faults\n" + "".join(f"{n}0,5,a/b,z,9,0\n" for n in (1, 2, 3))
    )
    part = rows.slice(1, 3)
    assert [round(part.latencies.row(each).quantile(0.5) or 0, 2) for each in (0, 1)] == [0.02, 0.03]
    assert np.array_equal(part.latencies.buckets, rows.take(np.array([1, 2])).latencies.buckets)
