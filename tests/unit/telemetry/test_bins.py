"""Bins of ten seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation, Outcome, Side, Zone
from holdfast.telemetry import BinKey, Bins, window_of
from holdfast.telemetry.bins import GRACE_SECONDS, MISSED_BINS

HOME = Operation("Home", "Index")
START = 1_700_000_000.0


def outcome(at: float, zone: str = "az1", instance: str = "i-1", *, faults: int = 0, seconds: float = 0.01) -> Outcome:
    return Outcome(
        workload="shop",
        operation=HOME,
        zone=Zone(zone),
        instance=instance,
        at=at,
        side=Side.SERVER,
        count_2xx=0 if faults else 1,
        count_5xx=faults,
        success_seconds=() if faults else (seconds,),
        fault_seconds=(seconds,) * faults,
    )


def test_a_bin_is_complete_some_seconds_after_its_end_and_only_once() -> None:
    bins = Bins()
    bins.add(outcome(START + 1), START + 1)
    assert list(bins.complete(START + 10 + GRACE_SECONDS - 0.01)) == []
    [(start, found)] = bins.complete(START + 10 + GRACE_SECONDS)
    assert start == START
    assert found[BinKey("shop", HOME, Zone("az1"), "i-1", Side.SERVER)].requests == 1
    assert list(bins.complete(START + 12)) == []


def test_bins_are_aligned_to_the_clock() -> None:
    bins = Bins()
    bins.add(outcome(START + 7), START + 7)
    bins.add(outcome(START + 13), START + 13)
    assert [start for start, _ in bins.complete(START + 22)] == [START, START + 10]


def test_a_silent_bin_is_reported_too() -> None:
    bins = Bins()
    bins.add(outcome(START), START)
    bins.add(outcome(START + 25), START + 25)
    assert [(start - START, len(found)) for start, found in bins.complete(START + 32)] == [(0, 1), (10, 0), (20, 1)]


def test_what_comes_after_its_bin_is_complete_is_counted_as_late() -> None:
    bins = Bins()
    bins.add(outcome(START), START)
    list(bins.complete(START + 12))
    bins.add(outcome(START + 9), START + 12)
    assert bins.late == 1
    assert [len(found) for _, found in bins.complete(START + 22)] == [0]


def test_what_comes_from_a_far_future_is_left_out() -> None:
    bins = Bins()
    bins.add(outcome(START + 3600), START)
    assert bins.late == 1
    assert all(not found for _, found in bins.complete(START + 4000))


def test_a_clock_that_is_set_back_starts_anew_at_the_new_time() -> None:
    bins = Bins()
    bins.add(outcome(START), START)
    list(bins.complete(START + 12))
    earlier = START - 3600
    assert list(bins.complete(earlier + 2)) == []
    bins.add(outcome(earlier + 3), earlier + 3)
    assert [(start - earlier, len(found)) for start, found in bins.complete(earlier + 12)] == [(0, 1)]
    assert bins.late == 0


def test_what_a_clock_that_is_set_back_has_counted_already_is_forgotten() -> None:
    bins = Bins()
    bins.add(outcome(START), START)
    list(bins.complete(START + 12))
    bins.add(outcome(START + 13), START + 13)
    assert list(bins.complete(START - 3600)) == []
    assert not bins._bins


def test_a_clock_that_jumps_ahead_does_not_report_years_of_silence() -> None:
    bins = Bins()
    bins.add(outcome(START), START)
    list(bins.complete(START + 12))
    bins.add(outcome(START + 13), START + 13)
    assert len(list(bins.complete(START + 365 * 86_400))) == MISSED_BINS
    assert not bins._bins


def test_old_bins_are_forgotten() -> None:
    bins = Bins()
    for number in range(MISSED_BINS * 2):
        at = START + 10 * number
        bins.add(outcome(at), at)
        list(bins.complete(at))
    assert len(bins._bins) <= 2


@given(st.lists(st.tuples(st.floats(0, 99), st.sampled_from(["az1", "az2"]), st.integers(0, 3)), max_size=50))
def test_nothing_is_lost_and_nothing_counted_twice(happened: list[tuple[float, str, int]]) -> None:
    bins = Bins()
    for at, zone, faults in happened:
        bins.add(outcome(START + at, zone, faults=faults), START + at)
    total = sum(one.requests for _, found in bins.complete(START + 200) for one in found.values())
    assert total == sum(max(faults, 1) for _, _, faults in happened)
    assert bins.late == 0


@pytest.mark.parametrize("seconds", [0, -1, 0.1, 601])
def test_bins_of_no_use_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        Bins(seconds)


def test_a_window_reads_every_zone_also_the_silent_ones() -> None:
    bins = Bins()
    for instance, faults in (("i-1", 0), ("i-1", 2), ("i-2", 0)):
        bins.add(outcome(START + 1, "az1", instance, faults=faults, seconds=0.1), START + 1)
    [(start, found)] = bins.complete(START + 12)
    window = window_of("shop", (Zone("az1"), Zone("az2")), start, bins.seconds, found)
    one, other = window.zones[Zone("az1")], window.zones[Zone("az2")]
    assert (one.requests, one.faults, one.instances, one.failing_instances) == (4, 2, 2, 1)
    assert one.fault_share == 0.5
    assert one.latency == pytest.approx(0.1, rel=0.05)
    assert (other.requests, other.fault_share, other.latency) == (0, 0.0, None)
    assert window.end == START + 10


def test_another_workload_and_the_clients_own_view_are_left_out_of_a_window() -> None:
    bins = Bins()
    bins.add(outcome(START + 1), START + 1)
    [(start, found)] = bins.complete(START + 12)
    assert window_of("other", (Zone("az1"),), start, 10, found).zones[Zone("az1")].requests == 0
    seen_by_client = {BinKey("shop", HOME, Zone("az1"), "i-1", Side.CLIENT): next(iter(found.values()))}
    assert window_of("shop", (Zone("az1"),), start, 10, seen_by_client).zones[Zone("az1")].requests == 0
