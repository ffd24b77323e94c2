"""A conformance suite for detectors, as tests to inherit.

    class TestMyDetector(DetectorConformance):
        detector_type = MyDetector
        detects_within = 6

Needs pytest and NumPy. For readable failures, call `pytest.register_assert_rewrite("holdfast.testing.detectors")` in
`conftest.py`. All windows are simulated from fixed seeds, so a failure can be repeated.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from holdfast._types import Operation, Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect.detector import Detector, DetectorType
from holdfast.detect.encoding import decode_state, encode_state
from holdfast.simulate.zones.scenario import START, Size
from holdfast.simulate.zones.scenarios import create_scenario
from holdfast.simulate.zones.traffic import Effect, Fleet, SimulatedBin, TrafficSimulation
from holdfast.simulate.zones.windows import iterate_windows, to_window
from holdfast.telemetry.window import Window

__all__ = ["DetectorConformance", "SimulatedService"]

ZONES = tuple(Zone(f"use1-az{number}") for number in range(1, 7))
SECONDS = 10.0
INSTANCES = 4
FAILURE = 0.4
"""Share of the requests of a zone that fail."""
BINS = 30
"""Number of windows after which a test looks for a verdict that must never come: five minutes."""


class SimulatedService:
    """A small service whose windows the tests feed to a detector. Equal seeds give equal windows."""

    def __init__(self, *, zones: int = 3, operations: int = 3, instances: int = INSTANCES, seed: int = 1) -> None:
        fleet = Fleet(
            requests=np.full((operations, zones), 300.0),
            fault_rates=np.full((operations, zones), 0.002),
            latency=np.full(operations, 0.05),
            spread=np.full(operations, 0.6),
            instances=instances,
            cell_shape=3.0,
            clumped=0.2,
            common_noise=0.2,
            zone_noise=0.05,
        )
        self.zones = ZONES[:zones]
        self.operations = tuple(Operation("shop", f"operation{number}") for number in range(operations))
        self.instances = tuple(tuple(f"{zone}-{number}" for number in range(instances)) for zone in self.zones)
        self.at = START
        self._simulation = TrafficSimulation(fleet, np.random.default_rng(seed))

    def measure(
        self, faults: Sequence[float] = (), traffic: Sequence[float] = (), instance: int | None = None
    ) -> SimulatedBin:
        """Return the next bin, with a share of added faults and a factor of the traffic for each zone.

        With `instance`, only one instance of the zone has the added faults.
        """
        effect = Effect(
            start=0,
            end=math.inf,
            added=np.array(faults or 0.0),
            traffic=np.array(traffic or 1.0),
            instance=instance,
        )
        self._simulation.effects = (effect,)
        measured = self._simulation.step(self.at)
        self.at += SECONDS
        return measured

    def windows(
        self,
        count: int,
        faults: Sequence[float] = (),
        traffic: Sequence[float] = (),
        states: dict[Zone, ZoneState] | None = None,
        instance: int | None = None,
    ) -> Iterator[Window]:
        """Yield the next windows."""
        for _ in range(count):
            yield self.arrange(self.measure(faults, traffic, instance), states)

    def arrange(self, measured: SimulatedBin, states: dict[Zone, ZoneState] | None = None) -> Window:
        """Return the window of a bin."""
        return to_window(
            measured,
            zones=self.zones,
            operations=self.operations,
            instances=self.instances,
            seconds=SECONDS,
            states=states,
        )

    def skip(self, seconds: float) -> None:
        """Let time pass without windows."""
        self.at += seconds


class DetectorConformance:
    """Tests of the contract of `holdfast.detect.Detector`. Set `detector_type`."""

    detector_type: ClassVar[Any]
    """The class of the detector. See `holdfast.detect.DetectorType`."""
    options: ClassVar[Any] = None
    """The options to test with; None means the defaults."""
    learning: ClassVar[int] = 0
    """Number of windows that the detector needs before it says more than "unknown"."""
    detects_within: ClassVar[int | None] = None
    """Number of windows in which it isolates a zone that fails 40 % of its requests; None if it does not promise it."""
    least_zones: ClassVar[int] = 2
    """Least number of zones for which it keeps that promise."""
    reports_regional: ClassVar[bool] = False
    """Whether it promises to report a failure of all zones. A detector that only compares zones cannot see one."""
    tells_instances: ClassVar[bool] = False
    """Whether it promises to tell a failing instance from a failing zone, although others have some faults, too."""

    @classmethod
    def build(cls) -> Detector[Any]:
        """Return a detector with the options to test with."""
        kind: DetectorType = cls.detector_type
        return kind(kind.options_type() if cls.options is None else cls.options)

    @pytest.fixture
    def detector(self) -> Detector[Any]:
        """Return the detector under test."""
        return self.build()

    @pytest.fixture(scope="class")
    @classmethod
    def learned(cls) -> Any:
        """Return the state after the healthy windows that the detector needs. Tests must not change it."""
        detector, state = cls.build(), cls.detector_type.state_type()
        for window in SimulatedService().windows(cls.learning):
            state, _ = detector.step(state, window)
        return state

    @pytest.fixture
    def service(self) -> SimulatedService:
        """Return the service, at the time at which the detector has learned."""
        service = SimulatedService(seed=2)
        service.skip(self.learning * SECONDS)
        return service

    def test_equal_states_and_windows_give_equal_verdicts(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows = [*service.windows(6), *service.windows(9, faults=(0, FAILURE, 0)), *service.windows(3)]
        assert follow(detector, learned, windows) == follow(detector, learned, windows)

    def test_a_step_changes_neither_its_state_nor_its_window(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        state = learned
        for window in [*service.windows(3), *service.windows(6, faults=(0, FAILURE, 0))]:
            before, measured = encode_state(state), copy_counts(window)
            following, _ = detector.step(state, window)
            assert encode_state(state) == before
            assert all(np.array_equal(now, then) for now, then in zip(copy_counts(window), measured, strict=True))
            state = following

    def test_an_encoded_state_gives_the_same_verdicts(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        """A restart of the server must cost neither what was learned nor the evidence so far."""
        state = self.detector_type.state_type()
        assert decode_state(encode_state(state), self.detector_type.state_type) is not None
        state = restored = learned
        for window in [*service.windows(6), *service.windows(12, faults=(0, FAILURE, 0))]:
            restored = decode_state(encode_state(restored), self.detector_type.state_type)
            assert restored is not None
            restored, verdict = detector.step(restored, window)
            state, expected = detector.step(state, window)
            assert identify(verdict) == identify(expected)

    def test_a_verdict_is_complete_and_can_be_encoded(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows = [*service.windows(3), *service.windows(9, faults=(0, FAILURE, 0))]
        for window, verdict in zip(windows, follow(detector, learned, windows), strict=True):
            assert (verdict.workload, verdict.at) == (window.workload, window.end)
            assert verdict.id
            assert verdict.summary
            assert verdict.since <= verdict.at
            assert (verdict.kind is VerdictKind.ISOLATED) <= (verdict.zone in window.zones)
            assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) is not None

    def test_a_verdict_keeps_its_id_and_its_start(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows = [*service.windows(3), *service.windows(BINS, faults=(0, FAILURE, 0))]
        found = follow(detector, learned, windows)
        for verdict, following in pairwise(found):
            is_same = (verdict.kind, verdict.zone) == (following.kind, following.zone)
            if is_same and verdict.kind is not VerdictKind.HEALTHY:
                assert (following.id, following.since) == (verdict.id, verdict.since)

    def test_a_healthy_service_is_not_isolated(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        assert isolated(follow(detector, learned, service.windows(90))) == []

    @pytest.mark.parametrize("zone", range(3))
    def test_a_failing_zone_is_isolated_and_no_other(
        self, detector: Detector[Any], learned: Any, service: SimulatedService, zone: int
    ) -> None:
        faults = [FAILURE if each == zone else 0.0 for each in range(3)]
        found = follow(detector, learned, [*service.windows(3), *service.windows(BINS, faults=faults)])
        assert {each.zone for each in isolated(found)} <= {ZONES[zone]}
        if self.detects_within is not None:
            assert isolated(found[3 : 3 + self.detects_within]) != []
            assert found[-1].kind is VerdictKind.ISOLATED

    @pytest.mark.parametrize("zones", [2, 6])
    def test_a_failing_zone_of_two_or_six_is_isolated_and_no_other(self, detector: Detector[Any], zones: int) -> None:
        service = SimulatedService(zones=zones)
        faults = [0.0] * (zones - 1) + [FAILURE]
        windows = [*service.windows(self.learning + 3), *service.windows(BINS, faults=faults)]
        found = follow(detector, self.detector_type.state_type(), windows)
        assert {each.zone for each in isolated(found)} <= {ZONES[zones - 1]}
        if self.detects_within is not None and zones >= self.least_zones:
            assert isolated(found[: self.learning + 3 + self.detects_within]) != []

    def test_a_failure_of_all_zones_isolates_none(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        faults = (0.5, FAILURE, 0.3) if self.reports_regional else (FAILURE, FAILURE, FAILURE)
        windows = [*service.windows(3), *service.windows(BINS, faults=faults)]
        found = follow(detector, learned, windows)
        assert isolated(found) == []
        if self.reports_regional:
            assert found[-1].kind is VerdictKind.REGIONAL

    @pytest.mark.parametrize("state", [ZoneState.OUT, ZoneState.DRAINING])
    def test_a_zone_that_is_out_is_never_isolated(
        self, detector: Detector[Any], learned: Any, service: SimulatedService, state: ZoneState
    ) -> None:
        """The few requests that still reach it may all fail."""
        windows = service.windows(BINS, faults=(0, 1.0, 0), traffic=(1.5, 0.1, 1.5), states={ZONES[1]: state})
        assert isolated(follow(detector, learned, [*service.windows(3), *windows])) == []

    def test_no_zone_is_isolated_while_another_is_out(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        out = {ZONES[1]: ZoneState.OUT}
        moved = (1.5, 0.0, 1.5)
        windows = [
            *service.windows(6, traffic=moved, states=out),
            *service.windows(BINS, faults=(FAILURE, 0, 0), traffic=moved, states=out),
        ]
        found = follow(detector, learned, windows)
        assert isolated(found) == []
        assert found[-1].kind is not VerdictKind.HEALTHY

    def test_an_isolated_zone_that_is_taken_out_does_not_isolate_another(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows = [
            *service.windows(12, faults=(0, FAILURE, 0)),
            *service.windows(BINS, traffic=(1.5, 0.0, 1.5), states={ZONES[1]: ZoneState.OUT}),
        ]
        assert {each.zone for each in isolated(follow(detector, learned, windows))} <= {ZONES[1]}

    def test_silence_is_never_healthy(self, detector: Detector[Any], learned: Any, service: SimulatedService) -> None:
        """Neither windows without series, nor series without requests, nor one zone without requests."""
        silent = [
            [empty_window(service) for _ in range(6)],
            [*service.windows(6, traffic=(0.0, 0.0, 0.0))],
            [*service.windows(6, traffic=(1.0, 0.0, 1.0))],
        ]
        for number, windows in enumerate(silent):
            found = follow(detector, learned, [*service.windows(1), *windows])
            assert found[-1].kind is not VerdictKind.HEALTHY, number

    def test_a_silent_telemetry_isolates_no_zone(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        """The traffic of the other zones stays: the zone may be healthy, and only its telemetry be lost."""
        windows = [*service.windows(3), *service.windows(BINS, traffic=(1.0, 0.0, 1.0)), *service.windows(6)]
        assert isolated(follow(detector, learned, windows)) == []

    def test_the_first_windows_of_all_may_be_empty(self, detector: Detector[Any], service: SimulatedService) -> None:
        state = self.detector_type.state_type()
        windows = [*(empty_window(service) for _ in range(3)), *service.windows(3)]
        assert isolated(follow(detector, state, windows)) == []

    def test_evidence_does_not_outlast_a_gap(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows = [*service.windows(1, faults=(0, FAILURE, 0))]
        service.skip(3600)
        windows += service.windows(1, faults=(0, FAILURE, 0))
        service.skip(3600)
        windows += service.windows(6)
        assert isolated(follow(detector, learned, windows)) == []

    def test_a_repeated_window_is_no_new_evidence(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        [window] = service.windows(1, faults=(0, FAILURE, 0))
        assert isolated(follow(detector, learned, [window] * 12)) == []

    def test_operations_appear_and_vanish(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows: list[Window] = []
        for number in (1, 3, 7, 2, 5):
            other = SimulatedService(operations=number, seed=number)
            other.at = service.at
            windows += other.windows(6)
            service.at = other.at
        found = follow(detector, learned, windows)
        assert isolated(found) == []
        assert len(found) == len(windows)

    def test_a_zone_without_instances_and_one_without_names_are_accepted(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        missing = tuple(
            () if zone == ZONES[2] else names for zone, names in zip(service.zones, service.instances, strict=True)
        )
        windows = [replace(each, instances=missing) for each in service.windows(6, traffic=(1.0, 1.0, 0.0))]
        unnamed = SimulatedService(instances=1, seed=3)
        unnamed.at = service.at
        unnamed.instances = (("",),) * 3
        assert len(follow(detector, learned, [*windows, *unnamed.windows(6)])) == 12

    def test_a_single_zone_is_never_isolated(self, detector: Detector[Any]) -> None:
        """There is no zone to move its traffic to."""
        service = SimulatedService(zones=1)
        windows = [*service.windows(self.learning), *service.windows(BINS, faults=(FAILURE,))]
        assert isolated(follow(detector, self.detector_type.state_type(), windows)) == []

    def test_huge_counts_are_accepted(self, detector: Detector[Any], learned: Any, service: SimulatedService) -> None:
        """A source that counts wrong, with 10^9 requests in each cell, must stop no other workload."""
        windows = [*service.windows(3)]
        windows += [
            replace(window, cells={side: multiply(cells) for side, cells in window.cells.items()})
            for window in service.windows(3)
        ]
        found = follow(detector, learned, [*windows, *service.windows(3)])
        assert msgspec.json.encode(found)

    def test_a_failing_instance_is_not_taken_for_its_zone(
        self, detector: Detector[Any], learned: Any, service: SimulatedService
    ) -> None:
        windows = [*service.windows(3), *service.windows(BINS, faults=(0, 1.0, 0), instance=1)]
        found = follow(detector, learned, windows)
        assert {each.zone for each in found if each.zone is not None} <= {ZONES[1]}
        if self.tells_instances:
            assert isolated(found) == []
            assert found[-1].kind is VerdictKind.INSTANCE

    def test_a_failure_of_a_shared_resource_isolates_no_zone(self, detector: Detector[Any]) -> None:
        """The resource is in one zone, and the zones measure it as its clients."""
        created, random = create_scenario("shared-writer", 1, Size(hours=1, operations=3))
        windows = iterate_windows(created, random)
        assert isolated(follow(detector, self.detector_type.state_type(), windows)) == []


def follow(detector: Detector[Any], state: Any, windows: Any) -> list[Verdict]:
    """Return the verdict of each window."""
    found = []
    for window in windows:
        state, verdict = detector.step(state, window)
        found.append(verdict)
    return found


def isolated(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that isolate a zone."""
    return [verdict for verdict in verdicts if verdict.kind is VerdictKind.ISOLATED]


def identify(verdict: Verdict) -> tuple[Any, ...]:
    """Return everything but the evidence and the sentence."""
    return verdict.id, verdict.kind, verdict.zone, verdict.resource, verdict.since, verdict.at


def copy_counts(window: Window) -> list[Any]:
    """Return copies of all counts of a window."""
    return [
        np.array(counts)
        for cells in window.cells.values()
        for counts in (cells.requests, cells.faults, cells.success_seconds.values)
    ]


def empty_window(service: SimulatedService) -> Window:
    """Return the next window of a service that reports nothing."""
    measured = service.measure()
    return Window(workload="shop", start=measured.start, seconds=SECONDS, zones=service.zones)


def multiply(cells: Any) -> Any:
    """Return the counts of one side as if each cell had 10^9 requests."""
    return replace(cells, requests=np.full_like(cells.requests, 10**9), faults=np.minimum(cells.faults * 10**8, 10**9))
