"""Bins of ten seconds, and the windows that detectors see of them."""

from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation, Outcome, Side, Zone, ZoneState
from holdfast.telemetry import Bin, BinDelta, BinKey, Bins, Deployment, build_deltas, build_window
from holdfast.telemetry.bins import GRACE_SECONDS, MAX_EMPTY_BINS, bin_number

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


def add(bins: Bins, happened: Outcome, now: float) -> None:
    for delta in build_deltas([happened], bins.seconds):
        bins.add(delta, now)


def test_a_bin_is_complete_some_seconds_after_its_end_and_only_once() -> None:
    bins = Bins()
    add(bins, outcome(START + 1), START + 1)
    assert list(bins.pop_complete(START + 10 + GRACE_SECONDS - 0.01)) == []
    [(start, found)] = bins.pop_complete(START + 10 + GRACE_SECONDS)
    assert start == START
    assert found[BinKey("shop", HOME, Zone("az1"), "i-1", Side.SERVER)].requests == 1
    assert list(bins.pop_complete(START + 12)) == []


def test_bins_are_aligned_to_the_clock() -> None:
    bins = Bins()
    add(bins, outcome(START + 7), START + 7)
    add(bins, outcome(START + 13), START + 13)
    assert [start for start, _ in bins.pop_complete(START + 22)] == [START, START + 10]


def test_a_silent_bin_is_reported_too() -> None:
    bins = Bins()
    add(bins, outcome(START), START)
    add(bins, outcome(START + 25), START + 25)
    assert [(start - START, len(found)) for start, found in bins.pop_complete(START + 32)] == [(0, 1), (10, 0), (20, 1)]


def test_what_comes_after_its_bin_is_complete_is_counted_as_late() -> None:
    bins = Bins()
    add(bins, outcome(START), START)
    list(bins.pop_complete(START + 12))
    add(bins, outcome(START + 9), START + 12)
    assert bins.late_requests == 1
    assert [len(found) for _, found in bins.pop_complete(START + 22)] == [0]


def test_what_comes_from_a_far_future_is_left_out() -> None:
    bins = Bins()
    add(bins, outcome(START + 3600), START)
    assert bins.late_requests == 1
    assert all(not found for _, found in bins.pop_complete(START + 4000))


def test_a_clock_that_is_set_back_starts_anew_at_the_new_time() -> None:
    bins = Bins()
    add(bins, outcome(START), START)
    list(bins.pop_complete(START + 12))
    earlier = START - 3600
    assert list(bins.pop_complete(earlier + 2)) == []
    add(bins, outcome(earlier + 3), earlier + 3)
    assert [(start - earlier, len(found)) for start, found in bins.pop_complete(earlier + 12)] == [(0, 1)]
    assert bins.late_requests == 0


def test_what_a_clock_that_is_set_back_has_counted_already_is_forgotten() -> None:
    bins = Bins()
    add(bins, outcome(START), START)
    list(bins.pop_complete(START + 12))
    add(bins, outcome(START + 13), START + 13)
    assert list(bins.pop_complete(START - 3600)) == []
    assert not bins._bins


def test_a_clock_that_jumps_ahead_does_not_report_years_of_silence() -> None:
    bins = Bins()
    add(bins, outcome(START), START)
    list(bins.pop_complete(START + 12))
    add(bins, outcome(START + 13), START + 13)
    assert len(list(bins.pop_complete(START + 365 * 86_400))) == MAX_EMPTY_BINS
    assert not bins._bins


def test_old_bins_are_forgotten() -> None:
    bins = Bins()
    for number in range(MAX_EMPTY_BINS * 2):
        at = START + 10 * number
        add(bins, outcome(at), at)
        list(bins.pop_complete(at))
    assert len(bins._bins) <= 2


@given(st.lists(st.tuples(st.floats(0, 99), st.sampled_from(["az1", "az2"]), st.integers(0, 3)), max_size=50))
def test_nothing_is_lost_and_nothing_counted_twice(happened: list[tuple[float, str, int]]) -> None:
    bins = Bins()
    for at, zone, faults in happened:
        add(bins, outcome(START + at, zone, faults=faults), START + at)
    total = sum(one.requests for _, found in bins.pop_complete(START + 200) for one in found.values())
    assert total == sum(max(faults, 1) for _, _, faults in happened)
    assert bins.late_requests == 0


@pytest.mark.parametrize("seconds", [0, -1, 0.1, 601])
def test_bins_of_no_use_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        Bins(seconds)


def test_a_window_reads_every_zone_also_the_silent_ones() -> None:
    bins = Bins()
    for instance, faults in (("i-1", 0), ("i-1", 2), ("i-2", 0)):
        add(bins, outcome(START + 1, "az1", instance, faults=faults, seconds=0.1), START + 1)
    [(start, found)] = bins.pop_complete(START + 12)
    window = build_window("shop", (Zone("az1"), Zone("az2")), start, bins.seconds, found)
    one, other = window.reading(Zone("az1")), window.reading(Zone("az2"))
    assert (one.requests, one.faults, one.instances, one.failing_instances) == (4, 2, 2, 1)
    assert one.fault_rate == 0.5
    assert one.latency == pytest.approx(0.1, rel=0.05)
    assert (other.requests, other.fault_rate, other.latency) == (0, 0.0, None)
    assert window.end == START + 10


def test_another_workload_and_the_clients_own_view_are_left_out_of_a_window() -> None:
    bins = Bins()
    add(bins, outcome(START + 1), START + 1)
    [(start, found)] = bins.pop_complete(START + 12)
    assert build_window("other", (Zone("az1"),), start, 10, found).reading(Zone("az1")).requests == 0
    seen_by_client = {BinKey("shop", HOME, Zone("az1"), "i-1", Side.CLIENT): next(iter(found.values()))}
    assert build_window("shop", (Zone("az1"),), start, 10, seen_by_client).reading(Zone("az1")).requests == 0


def delta(start: float, requests: int, *, replaces: bool = False, seconds: float = 10.0) -> BinDelta:
    key = BinKey("shop", HOME, Zone("az1"), "i-1", Side.SERVER)
    return BinDelta(key=key, start=start, seconds=seconds, measured=Bin(requests=requests), replaces=replaces)


def test_a_delta_is_added_or_replaces_what_is_there() -> None:
    bins = Bins()
    for requests, replaces in ((5, False), (3, False), (10, True), (1, False)):
        bins.add(delta(START, requests, replaces=replaces), START)
    [(_, found)] = bins.pop_complete(START + 12)
    assert [one.requests for one in found.values()] == [11]


def test_a_delta_that_covers_more_than_a_bin_is_refused() -> None:
    with pytest.raises(InvalidValue, match="measurements of 60 s do not fit into bins of 10 s"):
        Bins().add(delta(START, 1, seconds=60.0), START)


def test_outcomes_are_added_up_by_bin_and_holdfast_s_own_are_left_out() -> None:
    happened = [outcome(START), outcome(START + 9.9), outcome(START + 10, faults=2), outcome(START, "az2")]
    found = build_deltas([*happened, replace(happened[0], is_ignored=True)], 10.0)
    assert [(one.start - START, one.key.zone, one.measured.requests, one.measured.faults) for one in found] == [
        (0.0, "az1", 2, 0),
        (10.0, "az1", 2, 2),
        (0.0, "az2", 1, 0),
    ]


def test_a_window_has_arrays_by_operation_zone_and_instance_for_each_side() -> None:
    zones = (Zone("az1"), Zone("az2"))
    cart = Operation("Cart", "Add")

    def key(operation: Operation, zone: str, instance: str, side: Side = Side.SERVER) -> BinKey:
        return BinKey("shop", operation, Zone(zone), instance, side)

    failing = Bin()
    failing.add(outcome(START, faults=3, seconds=0.5))
    bins = {
        key(HOME, "az1", "i-2"): Bin(requests=4, client_errors=1),
        key(cart, "az2", "i-9"): failing,
        key(HOME, "az1", "i-1", Side.CANARY): Bin(requests=7),
        key(HOME, "az3", "i-1"): Bin(requests=100),
    }
    deployment = Deployment(Zone("az2"), START, START + 5)
    states = {Zone("az2"): ZoneState.DRAINING, Zone("az1"): ZoneState.RETURNING}
    window = build_window("shop", zones, START, 10.0, bins, states=states, deployments=[deployment])
    assert (window.operations, window.instances) == ((cart, HOME), (("i-1", "i-2"), ("i-9",)))
    assert (window.shape, window.zones_out, window.deployments) == ((2, 2, 2), frozenset({Zone("az2")}), (deployment,))
    server = window.cells[Side.SERVER]
    requests = numpy.frombuffer(server.requests, "int64").reshape(window.shape)
    assert requests.tolist() == [[[0, 0], [3, 0]], [[0, 4], [0, 0]]]
    assert list(server.faults) == [0, 0, 3, 0, 0, 0, 0, 0]
    assert list(server.client_errors) == [0, 0, 0, 0, 0, 1, 0, 0]
    assert [one is not None for one in server.fault_seconds] == [False, False, True, False, False, False, False, False]
    assert list(window.cells[Side.CANARY].requests) == [0, 0, 0, 0, 7, 0, 0, 0]
    assert window.reading(Zone("az1"), Side.CANARY).requests == 7
    assert window.reading(Zone("az1"), Side.CLIENT).requests == 0


@given(st.floats(0.5, 600), st.floats(1e9, 2e9))
def test_the_start_of_a_bin_is_in_it_however_long_bins_are(seconds: float, at: float) -> None:
    bins = Bins(seconds)
    [delta] = build_deltas([outcome(at)], seconds)
    bins.add(delta, at)
    [(_, found)] = [(start, found) for start, found in bins.pop_complete(at + 3 * seconds + GRACE_SECONDS) if found]
    assert bin_number(delta.start, seconds) == bin_number(at, seconds)
    assert sum(one.requests for one in found.values()) == 1
    assert bins.late_requests == 0
