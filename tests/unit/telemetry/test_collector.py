"""Deltas are collected until their bin is complete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Outcome
from holdfast.telemetry import BinKey, build_deltas
from holdfast.telemetry.bins import RequestRow, bin_number, sum_requests
from holdfast.telemetry.collector import (
    DEFAULT_LATENESS,
    GRACE_SECONDS,
    MAX_AHEAD_SECONDS,
    MAX_EMPTY_BINS,
    MAX_LATENESS,
    Arrivals,
    Collector,
)
from holdfast.telemetry.series import OTHER, SeriesLimits, SeriesTable
from tests.table import every_row
from tests.unit.telemetry.measured import START, delta, key, outcome


def build(seconds: float = 10.0, **limits: int) -> Collector:
    return Collector(SeriesTable(SeriesLimits(**limits)), seconds)


def add(collector: Collector, happened: Outcome) -> Arrivals:
    return collector.add(build_deltas([happened], collector.seconds), happened.at)


def pop(collector: Collector, now: float) -> list[tuple[float, int]]:
    """Return the start of every complete bin after START, and its requests."""
    return [
        (number * collector.seconds - START, sum(one.requests for one in found.values()))
        for number, found in collector.pop_complete(now)
    ]


def test_a_bin_is_complete_some_seconds_after_its_end_and_only_once() -> None:
    collector = build()
    add(collector, outcome(START + 1))
    assert pop(collector, START + 10 + GRACE_SECONDS - 0.01) == []
    [(number, found)] = collector.pop_complete(START + 10 + GRACE_SECONDS)
    assert number == START / 10
    assert found[key()].requests == 1
    assert pop(collector, START + 12) == []


def test_bins_are_aligned_to_the_clock() -> None:
    collector = build()
    add(collector, outcome(START + 7))
    add(collector, outcome(START + 13))
    assert pop(collector, START + 22) == [(0, 1), (10, 1)]


def test_a_silent_bin_is_reported_too() -> None:
    collector = build()
    add(collector, outcome(START))
    add(collector, outcome(START + 25))
    assert pop(collector, START + 32) == [(0, 1), (10, 0), (20, 1)]


def test_a_collector_without_measurements_begins_with_the_bin_in_progress() -> None:
    collector = build()
    assert pop(collector, START + 3) == []
    assert pop(collector, START + 12) == [(0, 0)]


def test_measurements_of_a_complete_bin_are_late_and_wait_for_the_store() -> None:
    collector = build()
    add(collector, outcome(START))
    collector.pop_complete(START + 12)
    arrivals = collector.add([delta(START, 2), delta(START, 3)], START + 12)
    assert arrivals == Arrivals(late=5)
    assert pop(collector, START + 22) == [(10, 0)]
    late = collector.pop_late()
    assert {number: amendment.added[key()].requests for number, amendment in late.items()} == {START / 10: 5}
    assert not collector.pop_late()


def test_measurements_from_before_the_start_are_late_because_their_bin_may_be_stored() -> None:
    """They come from senders that could not reach the server while it restarted."""
    collector = build()
    deltas = [delta(START), delta(START + 10), delta(START + 20)]
    assert collector.add(deltas, START + 21) == Arrivals(on_time=1, late=2)
    assert list(collector.pop_late()) == [START / 10, START / 10 + 1]
    assert pop(collector, START + 32) == [(20, 1)]


def test_measurements_from_before_the_start_are_accepted_for_an_hour() -> None:
    """Nobody has judged them, and a detector can learn from them. Totals that replace others keep their allowance."""
    collector = build()
    now = START + 3600
    rows = {int(START // 10) + number: [(key(), 0, 2, False, 0.01)] for number in (-2, 0, 60)}
    assert collector.add_requests(rows, now) == Arrivals(late=2, too_late=1)
    assert collector.add([delta(START), delta(START - 20)], now) == Arrivals(late=1, too_late=1)
    assert collector.add([delta(START, replaces=True)], now) == Arrivals(too_late=1)
    assert collector.add([delta(now)], now + 100) == Arrivals(on_time=1), "its bin is not complete"
    collector.pop_complete(now + 100)
    assert collector.add([delta(now)], now + 100) == Arrivals(too_late=1)


def test_every_delta_has_one_outcome() -> None:
    """The bin that began at START ends at START + 10."""
    end, judged = START + 10, START + 10 + GRACE_SECONDS
    rows = [
        (START, judged - 0.01, DEFAULT_LATENESS, Arrivals(on_time=1)),
        (START, judged, DEFAULT_LATENESS, Arrivals(late=1)),
        (START, end + 60, 60.0, Arrivals(late=1)),
        (START, end + 60.01, 60.0, Arrivals(too_late=1)),
        (START, end + GRACE_SECONDS, 0.0, Arrivals(late=1)),
        (START, end + GRACE_SECONDS + 0.01, 0.0, Arrivals(too_late=1)),
        (START, end + MAX_LATENESS, 1e9, Arrivals(late=1)),
        (START, end + MAX_LATENESS + 0.01, 1e9, Arrivals(too_late=1)),
        (START + MAX_AHEAD_SECONDS, START, DEFAULT_LATENESS, Arrivals(on_time=1)),
        (START + MAX_AHEAD_SECONDS + 0.01, START, DEFAULT_LATENESS, Arrivals(too_early=1)),
        (START + 3600, START, DEFAULT_LATENESS, Arrivals(too_early=1)),
        (0.0, START, DEFAULT_LATENESS, Arrivals(too_late=1)),
    ]

    def check(row: tuple[float, float, float, Arrivals]) -> None:
        start, now, lateness, expected = row
        collector = build()
        collector.pop_complete(START)
        collector.pop_complete(now)
        assert collector.add([delta(start)], now, lateness) == expected

    every_row(rows, check)


def test_requests_beyond_a_limit_are_counted_and_kept_as_other() -> None:
    collector = build(max_instances=1)
    arrivals = collector.add([delta(START, 5), delta(START, 3, of=key(instance="i-2"))], START)
    assert arrivals == Arrivals(on_time=8, overflowed=3)
    [(_, found)] = collector.pop_complete(START + 12)
    assert {one.instance: measured.requests for one, measured in found.items()} == {"i-1": 5, OTHER: 3}


def test_a_delta_is_added_or_replaces_the_earlier_ones() -> None:
    collector = build()
    for requests, replaces in ((5, False), (3, False), (10, True), (1, False)):
        collector.add([delta(START, requests, replaces=replaces)], START)
    assert pop(collector, START + 12) == [(0, 11)]


@pytest.mark.parametrize("now", [START, START + 30])
def test_series_beyond_a_limit_are_added_up_and_replaced_together(now: float) -> None:
    collector = build(max_instances=1)
    collector.add([delta(START)], START)
    for requests in (1, 4):  # a source that reports totals reads them again
        others = [delta(START, requests, of=key(instance=f"i-{number}"), replaces=True) for number in (2, 3)]
        assert collector.add(others, now).overflowed == 2 * requests
    found = [bins for _, bins in collector.pop_complete(START + 12)]
    found += [bins for each in collector.pop_late().values() for bins in (each.added, each.replaced)]
    assert sum(measured.requests for bins in found for one, measured in bins.items() if one.instance == OTHER) == 8


def test_a_late_delta_is_added_or_replaces_the_earlier_ones() -> None:
    collector = build()
    for requests, replaces in ((5, False), (10, True), (1, False), (2, False)):
        collector.add([delta(START, requests, replaces=replaces)], START + 30)
    [amendment] = collector.pop_late().values()
    assert amendment.replaced[key()].requests == 10
    assert amendment.added[key()].requests == 3


def test_measurements_that_cover_more_than_a_bin_go_into_minutes() -> None:
    collector = build()
    arrivals = collector.add([delta(START + 60, 7, seconds=60.0), delta(START + 60, 2, seconds=30.0)], START + 60)
    assert arrivals == Arrivals(late=9)
    assert pop(collector, START + 72) == [(60, 0)]
    [(minute, amendment)] = collector.pop_late_minutes().items()
    assert (minute, amendment.added[key()].requests) == ((START + 60) / 60, 9)
    assert not collector.pop_late()
    assert not collector.pop_late_minutes()


def test_measurements_that_fit_into_no_bin_are_refused() -> None:
    rows = [(10.0, 60.5), (10.0, 300.0), (60.0, 61.0), (600.0, 601.0)]

    def check(row: tuple[float, float]) -> None:
        seconds, resolution = row
        with pytest.raises(InvalidValue, match=f"measurements of {resolution:g} s: expected at most"):
            build(seconds).add([delta(START, seconds=resolution)], START)

    every_row(rows, check)
    with pytest.raises(InvalidValue, match="measurements of 0 s"):
        build().require_resolution(0.0)


def test_a_clock_that_is_set_back_starts_anew_at_the_new_time() -> None:
    collector = build()
    add(collector, outcome(START))
    pop(collector, START + 12)
    earlier = START - 3600
    assert pop(collector, earlier + 2) == []
    assert add(collector, outcome(earlier + 3)) == Arrivals(on_time=1)
    assert pop(collector, earlier + 12) == [(-3600, 1)]


def test_a_clock_that_is_set_back_by_a_moment_changes_nothing() -> None:
    collector = build()
    pop(collector, START + 12)
    add(collector, outcome(START + 12))
    assert pop(collector, START + 11) == []
    assert pop(collector, START + 22) == [(10, 1)]


def test_bins_of_a_clock_that_was_set_back_are_forgotten() -> None:
    collector = build()
    add(collector, outcome(START))
    pop(collector, START + 12)
    add(collector, outcome(START + 13))
    assert pop(collector, START - 3600) == []
    assert not collector._open


def test_a_clock_that_jumps_ahead_does_not_report_years_of_silence() -> None:
    collector = build()
    add(collector, outcome(START))
    pop(collector, START + 12)
    add(collector, outcome(START + 13))
    assert len(pop(collector, START + 365 * 86_400)) == MAX_EMPTY_BINS
    assert not collector._open


def test_complete_bins_are_forgotten() -> None:
    collector = build()
    for number in range(MAX_EMPTY_BINS * 2):
        at = START + 10 * number
        add(collector, outcome(at))
        pop(collector, at)
    assert len(collector._open) <= 2


@given(st.lists(st.tuples(st.floats(0, 99), st.sampled_from(["az1", "az2"]), st.integers(0, 3)), max_size=50))
def test_no_request_is_lost_and_none_counted_twice(happened: list[tuple[float, str, int]]) -> None:
    collector = build()
    for at, zone, faults in sorted(happened):
        assert add(collector, outcome(START + at, zone, faults=faults)).on_time == max(faults, 1)
    assert sum(requests for _, requests in pop(collector, START + 200)) == sum(max(one[2], 1) for one in happened)


@given(st.floats(0.5, 600), st.floats(1e9, 2e9))
def test_an_outcome_is_in_the_bin_of_its_time_however_long_bins_are(seconds: float, at: float) -> None:
    collector = build(seconds)
    assert add(collector, outcome(at)) == Arrivals(on_time=1)
    complete = collector.pop_complete(at + 3 * seconds + GRACE_SECONDS)
    [(number, found)] = [(number, found) for number, found in complete if found]
    assert number == bin_number(at, seconds)
    assert {one: measured.requests for one, measured in found.items()} == {key(): 1}


@pytest.mark.parametrize("seconds", [0, -1, 0.1, 601, float("nan")])
def test_bins_of_no_use_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        build(seconds)


def test_the_key_of_a_known_series_is_used_as_it_is() -> None:
    collector = build(max_operations=1, max_instances=1, max_series=1)
    keys: list[BinKey] = [key(), key()]
    assert collector.add([delta(START, of=one) for one in keys], START) == Arrivals(on_time=2)


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(-900, 200),
        st.sampled_from([2, 3, 4, 5]),
        st.booleans(),
        st.none() | st.floats(0.001, 10),
    ),
    max_size=30,
)


@given(ROWS, st.integers(1, 3))
def test_single_requests_count_like_their_sum(
    drawn: list[tuple[str, int, int, bool, float | None]], max_instances: int
) -> None:
    rows: dict[int, list[RequestRow]] = {}
    for instance, after, status_class, is_fault, took in drawn:
        second = int(START) + after
        rows.setdefault(second // 10, []).append((key(instance=instance), second, status_class, is_fault, took))
    singly, summed = build(max_instances=max_instances), build(max_instances=max_instances)
    for collector in (singly, summed):
        collector.pop_complete(START)
    arrivals = singly.add_requests(rows, START)
    expected = Arrivals()
    for each in sum_requests(rows, 10.0):
        expected.merge(summed.add([each], START))
    assert arrivals == expected
    assert singly.pop_complete(START + 300) == summed.pop_complete(START + 300)
    assert singly.pop_late() == summed.pop_late()


def test_single_requests_beyond_a_limit_share_the_instance_other() -> None:
    collector = build(max_instances=1)
    second = int(START)
    rows = [(key(instance=name), second, 2, False, 0.1) for name in ("i-1", "i-1", "i-2", "i-3")]
    arrivals = collector.add_requests({second // 10: rows}, START)
    assert (arrivals.on_time, arrivals.overflowed) == (4, 2)
    [(_, found)] = collector.pop_complete(START + 12)
    assert {each.instance: measured.requests for each, measured in found.items()} == {"i-1": 2, OTHER: 2}
