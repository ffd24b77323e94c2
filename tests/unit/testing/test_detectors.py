"""The conformance suite of detectors refuses detectors that break a promise."""

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar

import pytest

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.telemetry.window import Window
from holdfast.testing.detectors import DetectorConformance, SimulatedService
from tests.table import rows


@dataclass(frozen=True)
class NoOptions:
    """No settings."""


@dataclass
class Count:
    """The number of windows so far."""

    windows: int = 0
    verdicts: list[str] = field(default_factory=list)


class Fixed:
    """A detector that always gives one verdict."""

    options_type: ClassVar = NoOptions
    state_type: ClassVar = Count
    kind: ClassVar = VerdictKind.HEALTHY
    zone: ClassVar[Zone | None] = None

    def __init__(self, options: NoOptions) -> None:
        self.steps = 0

    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        return Count(state.windows + 1), self.build(window)

    def build(self, window: Window, name: str = "one", since: float = 0.0) -> Verdict:
        return Verdict(
            id=name, workload=window.workload, kind=self.kind, zone=self.zone, since=since, at=window.end, summary="so"
        )


class AlwaysIsolates(Fixed):
    kind: ClassVar = VerdictKind.ISOLATED
    zone: ClassVar = Zone("use1-az2")


class Impure(Fixed):
    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        self.steps += 1
        return state, self.build(window, name=str(self.steps))


class ChangesItsState(Fixed):
    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        state.windows += 1
        return state, self.build(window)


class ChangesItsWindow(Fixed):
    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        for cells in window.cells.values():
            cells.faults[:] = 0
        return state, self.build(window)


class NewIdEveryTime(Fixed):
    kind: ClassVar = VerdictKind.UNKNOWN

    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        return state, self.build(window, name=str(window.end))


class Wordless(Fixed):
    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        return state, replace(self.build(window), summary="")


class KeepsAnObject(Fixed):
    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        state = Count(state.windows + 1)
        state.verdicts = [object()]  # type: ignore[list-item]
        return state, self.build(window)


class CrashesOnEmptyWindows(Fixed):
    def step(self, state: Count, window: Window) -> tuple[Count, Verdict]:
        assert window.cells, "there are no cells"
        return state, self.build(window)


@rows(
    ("kind", "test", "arguments"),
    [
        (Impure, "test_equal_states_and_windows_give_equal_verdicts", {}),
        (ChangesItsState, "test_a_step_changes_neither_its_state_nor_its_window", {}),
        (ChangesItsWindow, "test_a_step_changes_neither_its_state_nor_its_window", {}),
        (KeepsAnObject, "test_an_encoded_state_gives_the_same_verdicts", {}),
        (Impure, "test_an_encoded_state_gives_the_same_verdicts", {}),
        (Wordless, "test_a_verdict_is_complete_and_can_be_encoded", {}),
        (NewIdEveryTime, "test_a_verdict_keeps_its_id_and_its_start", {}),
        (AlwaysIsolates, "test_a_healthy_service_is_not_isolated", {}),
        (AlwaysIsolates, "test_a_failing_zone_is_isolated_and_no_other", {"zone": 0}),
        (Fixed, "test_a_failing_zone_is_isolated_and_no_other", {"zone": 1}),
        (Fixed, "test_a_failure_of_all_zones_isolates_none", {}),
        (AlwaysIsolates, "test_a_zone_that_is_out_is_never_isolated", {"state": "out"}),
        (AlwaysIsolates, "test_no_zone_is_isolated_while_another_is_out", {}),
        (Fixed, "test_no_zone_is_isolated_while_another_is_out", {}),
        (Fixed, "test_silence_is_never_healthy", {}),
        (AlwaysIsolates, "test_a_silent_telemetry_isolates_no_zone", {}),
        (CrashesOnEmptyWindows, "test_the_first_windows_of_all_may_be_empty", {}),
        (AlwaysIsolates, "test_evidence_does_not_outlast_a_gap", {}),
        (AlwaysIsolates, "test_a_repeated_window_is_no_new_evidence", {}),
        (AlwaysIsolates, "test_operations_appear_and_vanish", {}),
        (AlwaysIsolates, "test_a_single_zone_is_never_isolated", {}),
        (AlwaysIsolates, "test_a_failing_instance_is_not_taken_for_its_zone", {}),
    ],
)
def test_a_detector_that_breaks_a_promise_fails(kind: type[Fixed], test: str, arguments: dict[str, Any]) -> None:
    class Suite(DetectorConformance):
        detector_type: ClassVar = kind
        detects_within = 3
        reports_regional = True
        tells_instances = True

    given = {"detector": kind(NoOptions()), "learned": Count(), "service": SimulatedService(), **arguments}
    method = getattr(Suite(), test)
    wanted = {name: value for name, value in given.items() if name in signature(method).parameters}
    with pytest.raises((AssertionError, NotImplementedError)):
        method(**wanted)
