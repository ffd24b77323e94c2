"""Deltas of outcomes, and the sum of bins."""

import copy
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, build_deltas
from holdfast.telemetry.bins import bin_number
from tests.unit.telemetry.measured import BINS, START, outcome


def test_outcomes_are_added_up_by_bin_and_holdfast_s_own_are_left_out() -> None:
    happened = [outcome(START), outcome(START + 9.9), outcome(START + 10, faults=2), outcome(START, "az2")]
    found = build_deltas([*happened, replace(happened[0], is_ignored=True)], 10.0)
    assert [(one.start - START, one.key.zone, one.measured.requests, one.measured.faults) for one in found] == [
        (0.0, "az1", 2, 0),
        (10.0, "az1", 2, 2),
        (0.0, "az2", 1, 0),
    ]
    assert [one.measured.by_second for one in found] == [{START: 1, START + 9: 1}, {START + 10: 2}, {START: 1}]


def test_an_outcome_keeps_its_status_classes_and_latencies() -> None:
    happened = replace(outcome(START, seconds=0.1), count_3xx=2, count_4xx=3, count_5xx=4, fault_seconds=(0.5, 0.5))
    [found] = build_deltas([happened], 10.0)
    assert found.measured == Bin(1, 2, 3, 4, 4, Histogram.of([0.1]), Histogram.of([0.5, 0.5]), {int(START): 10})
    assert (found.seconds, found.replaces, found.measured.requests) == (10.0, False, 10)


@given(BINS, BINS)
def test_a_merged_bin_has_the_measurements_of_both(one: Bin, other: Bin) -> None:
    merged = copy.deepcopy(one)
    merged.merge(other)
    for name in ("count_2xx", "count_3xx", "count_4xx", "count_5xx", "faults", "requests"):
        assert getattr(merged, name) == getattr(one, name) + getattr(other, name)
    for name in ("success_seconds", "fault_seconds"):
        assert getattr(merged, name).count == getattr(one, name).count + getattr(other, name).count
    seconds = one.by_second.keys() | other.by_second.keys()
    assert merged.by_second == {at: one.by_second.get(at, 0) + other.by_second.get(at, 0) for at in seconds}
    assert merged.is_coarse == (one.is_coarse or other.is_coarse)


def test_two_new_bins_share_nothing() -> None:
    one, other = Bin(), Bin()
    one.merge(Bin(count_2xx=1, success_seconds=Histogram.of([0.1]), by_second={1: 1}))
    assert other == Bin()


@given(st.floats(0.5, 600), st.integers(1_000_000, 100_000_000))
def test_the_start_of_a_bin_is_in_it_however_long_bins_are(seconds: float, number: int) -> None:
    assert bin_number(number * seconds, seconds) == number
    assert bin_number((number + 0.999) * seconds, seconds) == number
