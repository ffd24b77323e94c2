"""The outlier test of errors per zone as a detector: windows, flags, and what they add up to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from holdfast import InvalidValue, Operation, Side, Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect import build_detector
from holdfast.detect.detectors.outlier import OutlierDetector, OutlierOptions, OutlierState
from holdfast.telemetry import Bin, BinKey, Window, build_window

ZONES = ONE, TWO, THREE, FOUR = tuple(Zone(f"az{number}") for number in range(1, 5))
HOME, CART, PAY = Operation("Home", "Index"), Operation("Home", "Cart"), Operation("Pay", "Card")
START = 1_700_000_400.0
EVEN, BAD = (25, 25, 25, 25), (20, 20, 20, 60)
NEARLY = (20, 20, 25, 35)
"""The example of the source: the statistic is 6.0, below the critical value 7.815 of three degrees of freedom."""


def build(
    at: float,
    errors: dict[Operation, Sequence[int]],
    *,
    seconds: float = 60.0,
    requests: int = 1000,
    out: Sequence[Zone] = (),
    side: Side = Side.SERVER,
) -> Window:
    """Return the window with the errors of each operation by zone. A negative number stands for no requests."""
    bins = {
        BinKey("shop", operation, zone, "i-1", side): Bin(requests - count, count_5xx=count, faults=count)
        for operation, by_zone in errors.items()
        for zone, count in zip(ZONES, by_zone, strict=True)
        if count >= 0
    }
    return build_window("shop", ZONES, at, seconds, bins, states=dict.fromkeys(out, ZoneState.OUT))


def run(windows: Sequence[Window], **options: Any) -> list[Verdict]:
    detector, state, found = OutlierDetector(OutlierOptions(**options)), OutlierState(), []
    for window in windows:
        state, verdict = detector.step(state, window)
        assert msgspec.json.decode(msgspec.json.encode(state), type=OutlierState) == state, "it can be saved"
        found.append(verdict)
    return found


def run_minutes(*minutes: Sequence[int], operation: Operation = HOME, **options: Any) -> list[Verdict]:
    return run([build(START + 60 * index, {operation: each}) for index, each in enumerate(minutes)], **options)


def kinds(verdicts: Sequence[Verdict]) -> list[str]:
    return [f"{each.kind}{f' {each.zone}' if each.zone else ''}" for each in verdicts]


def test_a_zone_is_reported_after_three_flags_in_a_row() -> None:
    found = run_minutes(EVEN, BAD, BAD, BAD, BAD)
    assert kinds(found) == ["healthy", "healthy", "healthy", "isolated az4", "isolated az4"]
    first, second = found[3:]
    assert (first.since, first.at) == (START + 60, START + 240)
    assert (second.id, second.since, second.at) == (first.id, first.since, START + 300)
    assert first.summary == (
        "az4 has 60 of 120 errors of Home/Index in 60 s; 3 of the last 4 tests say that it has more than its part"
    )


def test_three_flags_of_five_suffice_and_two_do_not() -> None:
    assert kinds(run_minutes(BAD, EVEN, BAD, EVEN, BAD))[-1] == "isolated az4"
    assert set(kinds(run_minutes(BAD, EVEN, BAD, EVEN, EVEN, BAD, EVEN, BAD))) == {"healthy"}
    assert kinds(run_minutes(BAD, BAD, BAD, EVEN, EVEN, EVEN))[3:] == ["isolated az4", "isolated az4", "healthy"]


def test_the_worked_example_of_the_source_is_not_significant() -> None:
    assert set(kinds(run_minutes(*[NEARLY] * 6))) == {"healthy"}
    assert kinds(run_minutes(*[(20, 20, 25, 38)] * 3))[-1] == "isolated az4"  # 8.15 with three degrees of freedom


def test_a_zone_with_far_fewer_errors_is_not_reported() -> None:
    """The test of the source flags it; the guard is ours."""
    assert set(kinds(run_minutes(*[(40, 40, 40, 0)] * 5))) == {"healthy"}


def test_flags_of_different_zones_do_not_add_up() -> None:
    assert set(kinds(run_minutes(BAD, (60, 20, 20, 20), BAD, (60, 20, 20, 20)))) == {"healthy"}


def test_several_zones_in_different_operations_are_regional() -> None:
    windows = [build(START + 60 * index, {HOME: BAD, PAY: (60, 20, 20, 20)}) for index in range(4)]
    found = run(windows)
    assert kinds(found) == ["healthy", "healthy", "regional", "regional"]
    assert (found[2].zone, found[2].since) == (None, START)
    assert found[2].summary == "az1, az4: more errors than expected, in different streams"


def test_the_level_says_which_errors_are_added_up() -> None:
    """Each operation of the service is almost even, and their sum is not."""
    weak, opposite = NEARLY, (35, 25, 20, 20)
    minutes = range(3)
    both = [build(START + 60 * index, {HOME: weak, CART: weak, PAY: opposite}) for index in minutes]
    assert kinds(run(both, level="operation"))[-1] == "healthy"
    found = run(both, level="service")[-1]
    assert (found.kind, found.zone) == (VerdictKind.ISOLATED, FOUR)
    assert "errors of Home in" in found.summary
    assert kinds(run(both, level="zone"))[-1] == "healthy"
    found = run([build(START + 60 * index, {HOME: weak, PAY: weak}) for index in minutes], level="zone")[-1]
    assert (found.kind, found.zone) == (VerdictKind.ISOLATED, FOUR)
    assert "70 of 200 errors of all requests" in found.summary


def test_bins_add_up_to_a_test_that_is_evaluated_at_its_end() -> None:
    """Six bins of ten seconds are one test of a minute; the tests begin with full minutes."""
    windows = [build(START + 10 * index, {HOME: (3, 3, 3, 10)}, seconds=10.0) for index in range(18)]
    found = run(windows)
    assert kinds(found[:5]) == ["unknown"] * 5
    assert {each.id for each in found[:5]} == {"shop/unknown/1700000400"}
    assert found[4].summary == "the first test is not complete yet"
    assert kinds(found[5:17]) == ["healthy"] * 12
    assert (found[7].at, found[7].since) == (START + 80, START + 60), "it is repeated between tests"
    assert kinds(found[17:]) == ["isolated az4"]
    assert found[17].evidence[FOUR] == {"requests": 6000, "errors": 60, "flags": {"Home/Index": 3}}
    assert found[17].evidence[ONE] == {"requests": 6000, "errors": 18, "flags": {}}


def test_a_longer_window_finds_a_smaller_difference() -> None:
    windows = [build(START + 60 * index, {HOME: (8, 8, 8, 15)}) for index in range(15)]
    assert set(kinds(run(windows))) == {"healthy"}  # 3.8 in each minute
    assert kinds(run(windows, window_seconds=300))[-1] == "isolated az4"  # 19.0 in five minutes


def test_bins_that_are_longer_than_a_test_are_a_test_each() -> None:
    found = run([build(START + 120 * index, {HOME: BAD}, seconds=120.0) for index in range(3)])
    assert (found[-1].kind, found[-1].since) == (VerdictKind.ISOLATED, START)


def test_without_two_zones_that_report_requests_nothing_is_known() -> None:
    silent = (-1, -1, -1, -1)
    assert kinds(run_minutes(silent)) == kinds(run_minutes((5, -1, -1, -1))) == ["unknown"]
    assert run_minutes((5, -1, -1, -1))[0].summary.startswith("fewer than two zones report requests")
    assert kinds(run_minutes((0, 0, -1, -1))) == ["healthy"]
    seen_by_clients = [build(START + 60 * index, {HOME: BAD}, side=Side.CLIENT) for index in range(3)]
    assert set(kinds(run(seen_by_clients))) == {"unknown"}


def test_a_zone_without_requests_of_an_operation_is_not_compared() -> None:
    """It has no errors because it has no traffic, so the others do not have too many."""
    assert set(kinds(run_minutes(*[(22, 20, 18, -1)] * 4))) == {"healthy"}
    assert kinds(run_minutes(*[(60, 20, 20, -1)] * 3))[-1] == "isolated az1"


def test_a_zone_that_was_out_during_a_test_is_left_out_of_it() -> None:
    windows = [build(START + 30 * index, {HOME: BAD}, seconds=30.0, out=[FOUR] * (index % 2)) for index in range(12)]
    assert set(kinds(run(windows))) == {"unknown", "healthy"}
    assert kinds(run(windows))[1] == "healthy"


def test_another_zone_in_trouble_while_one_is_out_is_regional() -> None:
    found = run([build(START + 60 * index, {HOME: BAD}, out=[ONE]) for index in range(3)])[-1]
    assert (found.kind, found.summary) == (VerdictKind.REGIONAL, "az4: more errors than expected while az1 is out")


def test_the_verdict_of_a_zone_that_is_out_stays_open_until_it_is_back() -> None:
    bad = [build(START + 60 * index, {HOME: BAD}) for index in range(3)]
    out = [build(START + 60 * index, {HOME: (20, 20, 20, -1)}, out=[FOUR]) for index in range(3, 9)]
    back = [build(START + 540, {HOME: EVEN})]
    found = run([*bad, *out, *back])
    assert {each.id for each in found[2:9]} == {found[2].id}
    assert found[8].at == START + 540
    assert kinds(found[9:]) == ["healthy"]


def test_a_gap_that_is_longer_than_a_test_begins_anew_and_a_repeated_window_changes_nothing() -> None:
    first, second, third, late = (build(START + at, {HOME: BAD}) for at in (0, 60, 120, 300))
    assert kinds(run([first, second, late])) == ["healthy"] * 3
    assert kinds(run([first, second, second, third])) == ["healthy", "healthy", "healthy", "isolated az4"]
    detector = OutlierDetector()
    state, _ = detector.step(OutlierState(), second)
    again, verdict = detector.step(state, first)
    assert (again, verdict) == (state, state.verdict)
    empty = OutlierState(seen_until=START + 60)
    assert detector.step(empty, first)[1].kind is VerdictKind.UNKNOWN


def test_the_state_that_is_passed_in_stays_as_it_is() -> None:
    detector = OutlierDetector()
    state, _ = detector.step(OutlierState(), build(START, {HOME: BAD}, seconds=10.0))
    before = msgspec.json.encode(state)
    detector.step(state, build(START + 10, {HOME: BAD, CART: BAD}, seconds=10.0))
    assert msgspec.json.encode(state) == before


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"window_seconds": 0.5}, "window_seconds is 0.5"),
        ({"window_seconds": 3601}, "window_seconds is 3601"),
        ({"level": "instance"}, "level"),
    ],
)
def test_options_that_make_no_sense_are_named(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        build_detector("outlier", given)
    with pytest.raises(InvalidValue, match=complaint):
        OutlierOptions(**given)


def test_a_status_that_expires_lets_the_test_continue() -> None:
    windows = [build(START + 60 * index, {HOME: BAD}) for index in range(4)]
    windows[0] = replace(windows[0], states={FOUR: ZoneState.DRAINING})
    assert kinds(run(windows)) == ["healthy", "healthy", "healthy", "isolated az4"]
