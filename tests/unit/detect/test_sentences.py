"""Verdicts in plain sentences."""

from collections.abc import Sequence
from dataclasses import replace as replace_window

import numpy as np
import pytest
from msgspec.structs import replace

from holdfast import Side, ZoneState
from holdfast.detect.findings import Finding, Signal
from holdfast.detect.instances import InstanceReport
from holdfast.detect.measurements import measure
from holdfast.detect.regional import Observability, ResourceView
from holdfast.detect.sentences import (
    EvaluatedWindow,
    describe_finding,
    describe_resource,
    describe_silence,
    format_time,
)
from holdfast.detect.streams import StreamStep
from holdfast.telemetry import Window
from tests.unit.detect.service import ONE, THREE, TWO, simulate, without_cells
from tests.unit.detect.steps import BEGIN, HOME, POOL, ZONE, build_slow_step, build_step, change_part


def build_scene(step: StreamStep, **changes: object) -> EvaluatedWindow:
    window: Window = next(iter(simulate(start=BEGIN + 50, length=10)))
    window = replace_window(window, **changes)  # type: ignore[arg-type]
    return EvaluatedWindow(window, step, measure(window, step.state.keys), [])


def find(signal: Signal, row: int = HOME) -> Finding:
    return Finding(ZONE, signal, row, 30.0, 20.0, BEGIN)


def set_rates(own: float, others: float) -> StreamStep:
    """Return a step in which one zone failed `own` of its requests in the last seconds, and the others `others`."""
    state = build_step().state.counts
    requests = np.full(state.requests_10s.shape, 1e6)
    share = np.full(state.requests_10s.shape, others)
    share[:, ZONE] = own
    return change_part(build_step(), "counts", requests_10s=requests, faults_10s=requests * share)


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (0.42, 0.003, "use1-az2 fails 42 % of Home/Index, the others 0.3 %; "),
        (0.061, 0.0, "use1-az2 fails 6.1 % of Home/Index, the others 0 %; "),
        (1.0, 0.00025, "use1-az2 fails 100 % of Home/Index, the others 0.025 %; "),
    ],
)
def test_a_failing_zone_is_described_by_its_rate_and_that_of_the_others(own: float, others: float, words: str) -> None:
    found = describe_finding(build_scene(set_rates(own, others)), find(Signal.FAULTS))
    assert found.startswith(words)
    assert found.endswith(" of 3 instances; since 22:50:00 UTC")
    assert " of all requests, " in describe_finding(build_scene(build_step()), find(Signal.FAULTS, POOL))


def test_rates_without_requests_are_zero() -> None:
    counts = build_step().state.counts
    step = change_part(build_step(), "counts", requests_10s=np.zeros_like(counts.requests_10s))
    assert build_scene(step).get_rate(HOME, [0, 2]) == 0.0


def test_failing_instances_are_named_and_the_others_counted() -> None:
    evaluated = build_scene(build_step())
    one, two, many = ("i-7",), ("i-7", "i-8"), "the other 2 instances of the zone"
    rows: Sequence[tuple[Signal, int, tuple[str, ...], int, str]] = [
        (Signal.FAULTS, HOME, one, 3, f"i-7 in use1-az2 fails requests of Home/Index, {many} do not; since"),
        (Signal.FAULTS, POOL, one, 3, f"i-7 in use1-az2 fails requests in all operations together, {many} do not; "),
        (Signal.FAULTS, HOME, one, 2, "i-7 in use1-az2 fails requests of Home/Index, the other one does not; "),
        (Signal.FAULTS, HOME, two, 4, f"i-7, i-8 in use1-az2 fail requests of Home/Index, {many} do not; "),
        (Signal.LATENCY, HOME, one, 2, "i-7 in use1-az2 is slower than usual in Home/Index, the other one is not; "),
        (Signal.LATENCY, POOL, two, 4, "i-7, i-8 in use1-az2 are slower than usual in all operations together, the"),
        (Signal.SLOW, HOME, one, 3, f"i-7 in use1-az2 is slower than usual in Home/Index, {many} are not; "),
    ]
    for signal, row, worst, instances, words in rows:
        report = InstanceReport(worst, instances, 12.0, -3.0, 9.0, 0.0)
        assert describe_finding(evaluated, find(signal, row), report).startswith(words)


def test_a_slow_zone_is_described_by_how_much_longer_it_takes() -> None:
    found = describe_finding(build_scene(build_slow_step()), find(Signal.LATENCY))
    assert found.startswith("use1-az2 takes 3.4 times as long as usual for Home/Index, ")
    assert found.endswith("the others 1.0 times; since 22:50:00 UTC")
    slow = build_slow_step().state.slow
    step = change_part(
        build_slow_step(),
        "slow",
        faults_40s=np.full_like(slow.faults_40s, 20.0),
        expected_40s=np.full_like(slow.expected_40s, 4.5),
    )
    found = describe_finding(build_scene(step), find(Signal.SLOW))
    assert found == "use1-az2 has 4.1 times as many slow requests as usual in Home/Index; since 22:50:00 UTC"
    found = describe_finding(build_scene(step), find(Signal.SLOW, POOL))
    assert found.startswith("use1-az2 has 4.1 times as many slow requests as usual in all operations together; since")
    found = describe_finding(build_scene(step), find(Signal.LATENCY, POOL))
    assert " times as long as usual for all requests, the others " in found


def test_lost_traffic_is_described_by_what_remains() -> None:
    evaluated = build_scene(replace(build_step(), predicted_requests=np.full(3, 1000.0)))
    share = evaluated.read(ZONE)["requests"] / 1000
    found = describe_finding(evaluated, find(Signal.THROUGHPUT, POOL))
    assert found == f"use1-az2 gets {100 * share:.0f} % of its share of the current traffic; since 22:50:00 UTC"
    nothing = build_scene(replace(build_step(), predicted_requests=np.zeros(3)))
    assert " gets 0 % of " in describe_finding(nothing, find(Signal.THROUGHPUT, POOL))


def test_a_single_instance_is_said_to_be_one() -> None:
    step = build_step()
    windows = simulate(start=BEGIN + 50, length=10, instances=1)
    window = next(iter(windows))
    evaluated = EvaluatedWindow(window, step, measure(window, step.state.keys), [])
    found = describe_finding(evaluated, find(Signal.FAULTS))
    assert found.endswith("; the zone has only one instance, which may be what fails; since 22:50:00 UTC")


def test_a_shared_resource_is_described_with_the_advice_to_fail_it_over() -> None:
    view = ResourceView("db", TWO, (ONE, THREE), (THREE,), BEGIN, Observability.GRAY)
    assert describe_resource(view) == (
        "consumers of db, which is in use1-az2, are affected in use1-az1, use1-az3; no answers in use1-az3; "
        "since 22:50:00 UTC: fail it over, do not evacuate a zone"
    )
    unknown = ResourceView("db", None, (ONE, THREE), (), BEGIN, Observability.GRAY)
    assert describe_resource(unknown).startswith("consumers of db are affected in use1-az1, use1-az3; since 22:50:00")


def test_a_silent_zone_is_described_with_the_path_that_confirms_it() -> None:
    step = change_part(build_step(), "throughput", silent_bins=np.array([0.0, 3.0, 0.0]))
    evaluated = build_scene(step)
    assert describe_silence(evaluated, ZONE, "") == (
        "use1-az2 reports no requests since 22:50:30 UTC: it may have failed, or only its telemetry"
    )
    assert describe_silence(evaluated, ZONE, "canaries fail") == (
        "use1-az2 reports no requests since 22:50:30 UTC, and canaries fail"
    )


def test_a_reading_has_the_counts_of_the_window_and_no_rate_without_requests() -> None:
    evaluated = build_scene(build_step(), states={TWO: ZoneState.OUT, ONE: ZoneState.RETURNING})
    assert evaluated.zones_out == [TWO]
    reading = evaluated.read(ZONE)
    assert (reading["instances"], reading["requests"] > 100) == (3, True)
    assert reading["fault_rate"] == pytest.approx(reading["failed_requests"] / reading["requests"], abs=1e-4)
    window = evaluated.window
    for operation in window.operations:
        for side in (Side.SERVER, Side.CLIENT):
            window = without_cells(window, side, operation, ZONE)
    silent = evaluated._replace(window=window, measurements=measure(window, evaluated.step.state.keys))
    assert silent.read(ZONE) == {
        "requests": 0,
        "failed_requests": 0,
        "fault_rate": None,
        "instances": 0,
        "failing_instances": 0,
    }


def test_times_are_in_utc() -> None:
    assert format_time(0.0) == "00:00:00 UTC"
