"""One zone above a threshold while the others are not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation, Side, Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect.detectors.threshold import ThresholdDetector, ThresholdOptions, ThresholdState
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinKey, Window, ZoneReading, build_window

ONE, TWO, THREE = Zone("az1"), Zone("az2"), Zone("az3")
GOOD = ZoneReading(requests=200, faults=0, latency=0.02, instances=2, failing_instances=0)
FAULTY = ZoneReading(requests=200, faults=80, latency=0.02, instances=2, failing_instances=2)
SLOW = ZoneReading(requests=200, faults=0, latency=0.9, instances=2, failing_instances=0)
SILENT = ZoneReading(requests=0, faults=0, latency=None, instances=0, failing_instances=0)


def windows(
    *readings: tuple[ZoneReading, ZoneReading, ZoneReading], out: frozenset[Zone] = frozenset()
) -> list[Window]:
    return [
        build_window(
            "shop",
            (ONE, TWO, THREE),
            1000.0 + 10 * number,
            10.0,
            {
                key: one
                for zone, reading in zip((ONE, TWO, THREE), row, strict=True)
                for key, one in bins(zone, reading)
            },
            states=dict.fromkeys(out, ZoneState.OUT),
        )
        for number, row in enumerate(readings)
    ]


def bins(zone: Zone, reading: ZoneReading) -> Iterator[tuple[BinKey, Bin]]:
    """The bins of the instances that add up to a reading."""
    for instance in range(reading.instances):
        requests = reading.requests // reading.instances + (instance < reading.requests % reading.instances)
        faults = 0
        if instance < reading.failing_instances:
            faults = reading.faults // reading.failing_instances + (
                instance < reading.faults % reading.failing_instances
            )
        assert faults <= requests
        successes = Histogram.of([] if reading.latency is None else [reading.latency] * (requests - faults))
        key = BinKey("shop", Operation("Home", "Index"), zone, f"i-{instance}", Side.SERVER)
        yield key, Bin(requests - faults, count_5xx=faults, faults=faults, success_seconds=successes)


def verdicts(
    *readings: tuple[ZoneReading, ZoneReading, ZoneReading], out: frozenset[Zone] = frozenset(), **options: Any
) -> list[Verdict]:
    detector, state, found = ThresholdDetector(ThresholdOptions(**options)), ThresholdState(), []
    for window in windows(*readings, out=out):
        state, verdict = detector.step(state, window)
        found.append(verdict)
    return found


ALL_GOOD = (GOOD, GOOD, GOOD)


def test_healthy_zones_give_a_healthy_verdict() -> None:
    assert [verdict.kind for verdict in verdicts(ALL_GOOD, ALL_GOOD, ALL_GOOD)] == [VerdictKind.HEALTHY] * 3


@pytest.mark.parametrize("bad", [FAULTY, SLOW])
def test_one_zone_in_trouble_for_two_windows_is_isolated(bad: ZoneReading) -> None:
    first, second, third, fourth = verdicts(ALL_GOOD, (GOOD, bad, GOOD), (GOOD, bad, GOOD), (GOOD, bad, GOOD))
    assert (first.kind, second.kind) == (VerdictKind.HEALTHY, VerdictKind.HEALTHY)
    assert (third.kind, third.zone, third.since, third.at) == (VerdictKind.ISOLATED, TWO, 1010.0, 1030.0)
    assert fourth.id == third.id, "one verdict from opening to closing"
    assert fourth.since == third.since


def test_trouble_that_does_not_last_is_not_enough() -> None:
    unhealthy_windows = [(GOOD, FAULTY, GOOD), ALL_GOOD] * 4
    assert {verdict.kind for verdict in verdicts(*unhealthy_windows)} == {VerdictKind.HEALTHY}


def test_several_zones_at_once_are_nobody_s_own_failure() -> None:
    found = verdicts((FAULTY, FAULTY, GOOD), (FAULTY, FAULTY, GOOD))
    assert (found[-1].kind, found[-1].zone) == (VerdictKind.REGIONAL, None)


def test_a_second_zone_that_has_just_begun_to_fail_holds_the_verdict_back() -> None:
    found = verdicts((GOOD, FAULTY, GOOD), (GOOD, FAULTY, SLOW))
    assert found[-1].kind is VerdictKind.REGIONAL


def test_one_bad_instance_of_several_is_not_a_bad_zone() -> None:
    one_instance = replace(FAULTY, failing_instances=1, faults=80)
    found = verdicts((GOOD, one_instance, GOOD), (GOOD, one_instance, GOOD))
    assert (found[-1].kind, found[-1].zone) == (VerdictKind.INSTANCE, TWO)


def test_a_zone_with_a_single_instance_can_be_bad() -> None:
    alone = replace(FAULTY, instances=1, failing_instances=1)
    assert verdicts((GOOD, alone, GOOD), (GOOD, alone, GOOD))[-1].kind is VerdictKind.ISOLATED


def test_too_few_requests_say_nothing() -> None:
    few = replace(FAULTY, requests=19, faults=19)
    assert {verdict.kind for verdict in verdicts((GOOD, few, GOOD), (GOOD, few, GOOD))} == {VerdictKind.HEALTHY}


@pytest.mark.parametrize("others", [SILENT, replace(GOOD, requests=19), replace(FAULTY, requests=19, faults=19)])
def test_zones_that_say_too_little_are_not_taken_to_be_well(others: ZoneReading) -> None:
    """Where would the traffic go? Nobody is sent away when nobody is known to be better."""
    found = verdicts((FAULTY, others, others), (FAULTY, others, others))[-1]
    assert (found.kind, found.zone) == (VerdictKind.UNKNOWN, None)


def test_one_zone_that_is_known_to_be_well_is_enough() -> None:
    found = verdicts((FAULTY, GOOD, SILENT), (FAULTY, GOOD, SILENT))[-1]
    assert (found.kind, found.zone) == (VerdictKind.ISOLATED, ONE)


def test_trouble_elsewhere_while_a_zone_is_out_is_nobody_s_own_failure() -> None:
    detector, state = ThresholdDetector(), ThresholdState()
    first, second, third, fourth, fifth = windows(
        (GOOD, FAULTY, GOOD), (GOOD, FAULTY, GOOD), (FAULTY, SILENT, GOOD), (FAULTY, SILENT, GOOD), (GOOD, SILENT, GOOD)
    )
    for window in (first, second):
        state, _ = detector.step(state, window)
    kinds = []
    for window in (third, fourth, fifth):
        state, verdict = detector.step(state, replace(window, states={TWO: ZoneState.OUT}))
        kinds.append(verdict.kind)
    assert kinds == [VerdictKind.ISOLATED, VerdictKind.REGIONAL, VerdictKind.HEALTHY]


def test_a_zone_that_is_out_keeps_its_verdict_though_it_is_silent() -> None:
    detector, state = ThresholdDetector(), ThresholdState()
    first, second, third, fourth = windows(
        (GOOD, FAULTY, GOOD), (GOOD, FAULTY, GOOD), (GOOD, SILENT, GOOD), (GOOD, SILENT, GOOD)
    )
    state, _ = detector.step(state, first)
    state, opened = detector.step(state, second)
    for window in (third, fourth):
        state, verdict = detector.step(state, replace(window, states={TWO: ZoneState.DRAINING}))
        assert (verdict.kind, verdict.id, verdict.at) == (VerdictKind.ISOLATED, opened.id, window.end)


def test_a_zone_that_is_out_is_not_accused_again() -> None:
    found = verdicts((GOOD, FAULTY, GOOD), (GOOD, FAULTY, GOOD), out=frozenset({TWO}))
    assert {verdict.kind for verdict in found} == {VerdictKind.HEALTHY}


def test_a_verdict_closes_when_the_zone_has_recovered() -> None:
    found = verdicts((GOOD, FAULTY, GOOD), (GOOD, FAULTY, GOOD), ALL_GOOD, ALL_GOOD)
    assert [verdict.kind for verdict in found[1:]] == [VerdictKind.ISOLATED, VerdictKind.HEALTHY, VerdictKind.HEALTHY]


def test_a_verdict_stays_open_while_no_zone_reports_anything() -> None:
    failing, silent = (GOOD, FAULTY, GOOD), (SILENT, SILENT, SILENT)
    found = verdicts(failing, failing, silent, silent, failing, ALL_GOOD)
    assert [each.kind for each in found[1:]] == [*[VerdictKind.ISOLATED] * 4, VerdictKind.HEALTHY]
    assert len({each.id for each in found[1:5]}) == 1, "it is the same failure"


def test_zones_without_requests_for_three_windows_are_unknown() -> None:
    found = verdicts(*[(GOOD, SILENT, GOOD)] * 4, *[(GOOD, SILENT, SILENT)] * 3, ALL_GOOD)
    kinds = [(each.kind, each.zone) for each in found]
    one, several, well = (VerdictKind.UNKNOWN, TWO), (VerdictKind.UNKNOWN, None), (VerdictKind.HEALTHY, None)
    assert kinds == [well, well, one, one, one, one, several, well]
    assert (found[2].summary, found[2].since) == ("az2: no requests are reported", 1000.0)
    assert found[6].summary == "az2, az3: no requests are reported"
    assert {each.kind for each in verdicts(*[(GOOD, SILENT, GOOD)] * 4, out=frozenset({TWO}))} == {VerdictKind.HEALTHY}


def test_the_evidence_says_what_was_seen_in_every_zone() -> None:
    evidence = verdicts((GOOD, FAULTY, SILENT), (GOOD, FAULTY, SILENT))[-1].evidence
    latency = pytest.approx(0.02, rel=0.05)
    assert evidence[TWO] == {"requests": 200, "fault_rate": 0.4, "latency": latency, "failing_instances": 2}
    assert evidence[THREE]["latency"] is None


READINGS = st.sampled_from([GOOD, FAULTY, SLOW, SILENT])


@given(st.lists(st.tuples(READINGS, READINGS, READINGS), max_size=12))
@example([(GOOD, GOOD, FAULTY), (GOOD, GOOD, FAULTY), (SILENT, SILENT, SILENT)])
def test_an_isolated_zone_is_in_trouble_and_the_only_one(
    unhealthy_windows: list[tuple[ZoneReading, ZoneReading, ZoneReading]],
) -> None:
    open_id = None
    for row, verdict in zip(unhealthy_windows, verdicts(*unhealthy_windows), strict=True):
        if verdict.kind is VerdictKind.ISOLATED:
            troubled = [zone for zone, reading in zip((ONE, TWO, THREE), row, strict=True) if reading in (FAULTY, SLOW)]
            is_kept = set(row) == {SILENT} and verdict.id == open_id  # it stays open while no zone reports anything
            assert troubled == [verdict.zone] or is_kept
        open_id = verdict.id


@pytest.mark.parametrize(
    "options",
    [
        {"max_fault_rate": 0},
        {"max_fault_rate": 1.1},
        {"max_latency": 0},
        {"min_requests": 0},
        {"consecutive_windows": 0},
        {"min_instances": 0},
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        ThresholdOptions(**options)


def test_one_window_that_was_missed_is_bridged_and_more_begin_the_count_anew() -> None:
    first, second, third, fourth = windows(*[(GOOD, FAULTY, GOOD)] * 4)
    detector = ThresholdDetector()
    state, _ = detector.step(ThresholdState(), first)
    assert detector.step(state, second)[1].kind is VerdictKind.ISOLATED
    assert detector.step(state, third)[1].kind is VerdictKind.ISOLATED
    for window in (fourth, first):  # too late, and once more
        again, verdict = detector.step(state, window)
        assert (again.unhealthy_windows, verdict.kind) == ({TWO: 1}, VerdictKind.HEALTHY)


def test_a_returning_zone_is_watched_like_one_that_is_in() -> None:
    detector, state = ThresholdDetector(), ThresholdState()
    first, second = windows((GOOD, FAULTY, GOOD), (GOOD, FAULTY, GOOD))
    state, _ = detector.step(state, replace(first, states={TWO: ZoneState.RETURNING}))
    _, verdict = detector.step(state, replace(second, states={TWO: ZoneState.RETURNING}))
    assert (verdict.kind, verdict.zone) == (VerdictKind.ISOLATED, TWO)


def test_the_state_survives_being_saved() -> None:
    detector, state = ThresholdDetector(), ThresholdState()
    for window in windows((GOOD, FAULTY, GOOD), (GOOD, FAULTY, GOOD)):
        state, _ = detector.step(state, window)
        assert msgspec.json.decode(msgspec.json.encode(state), type=detector.state_type) == state


def test_the_summary_says_what_a_person_should_know_first() -> None:
    only_faults = replace(FAULTY, requests=80, latency=None)
    sentences = {
        "no zone is unhealthy": ALL_GOOD,
        "az2: 40.0% of requests fail, p90 latency 0.02 s, 2 of 2 instances fail; other zones: at most 0.0%": (
            (GOOD, FAULTY, GOOD)
        ),
        "az2: 100.0% of requests fail, 2 of 2 instances fail; other zones: at most 0.0%": (
            GOOD,
            only_faults,
            SILENT,
        ),
        "more than one zone is unhealthy: az1, az2": (FAULTY, FAULTY, GOOD),
        "az1 is unhealthy, and no other zone has enough traffic": (FAULTY, SILENT, SILENT),
    }
    for sentence, row in sentences.items():
        assert verdicts(row, row)[-1].summary.startswith(sentence)
