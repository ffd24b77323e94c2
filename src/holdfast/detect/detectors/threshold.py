"""Report the one zone that is above a fixed threshold while the others are below it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from holdfast._errors import InvalidValue
from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.detect.detector import DETECTORS

if TYPE_CHECKING:
    from holdfast.telemetry.window import Window, ZoneReading

_MAX_GAP_WINDOWS = 1
"""A restart may lose one window. After a longer gap, windows no longer count as consecutive."""
_ROUNDING_WINDOWS = 0.5  # margin for float rounding
_SILENT_WINDOWS = 3
"""Windows without requests after which nobody knows whether a zone is healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdOptions:
    """Thresholds from which a zone counts as unhealthy."""

    max_fault_rate: float = 0.05
    """Share of failed requests from which a zone is unhealthy. Healthy services stay well below 1 %."""
    max_latency: float = 0.5
    """90th percentile latency of successful requests, in seconds: people notice longer waits."""
    min_requests: int = 20
    """With fewer requests in a window, the zone is not evaluated: of 20 requests, one failure is already 5 %."""
    min_instances: int = 2
    """With fewer failing instances, the verdict is `instance`, not `isolated`. In a zone with fewer instances, it is
    `isolated` only if all of them fail."""
    consecutive_windows: int = 2
    """Unhealthy windows in a row before a verdict. With bins of ten seconds, it comes 12 to 22 s after the fault."""

    def __post_init__(self) -> None:
        if not 0 < self.max_fault_rate <= 1:
            raise InvalidValue(f"max_fault_rate is {self.max_fault_rate}: expected more than 0 and at most 1")
        if not self.max_latency > 0:
            raise InvalidValue(f"max_latency is {self.max_latency}: expected more than 0 seconds")
        for name in ("min_requests", "min_instances", "consecutive_windows"):
            if getattr(self, name) < 1:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected 1 or more")


@dataclass(frozen=True, slots=True)
class ThresholdState:
    """The detector's state between windows."""

    unhealthy_windows: Mapping[Zone, int] = field(default_factory=dict)
    """Number of consecutive windows in which each zone has been unhealthy."""
    silent_windows: Mapping[Zone, int] = field(default_factory=dict)
    """Number of consecutive windows in which each zone has had no requests."""
    verdict: Verdict | None = None
    """The open verdict."""
    seen_until: float | None = None
    """End of the last window."""


@DETECTORS.register("threshold")
class ThresholdDetector:
    """A detector that finds the one unhealthy zone of a workload. See `holdfast.detect.Detector`."""

    options_type: ClassVar = ThresholdOptions
    state_type: ClassVar = ThresholdState

    def __init__(self, options: ThresholdOptions | None = None) -> None:
        self._options = options or ThresholdOptions()

    def step(self, state: ThresholdState, window: "Window") -> tuple[ThresholdState, Verdict]:
        """Evaluate one window. Zones that are out are skipped: without traffic nothing can be measured."""
        gap = 0.0 if state.seen_until is None else (window.start - state.seen_until) / window.seconds
        is_repeated = gap <= -_ROUNDING_WINDOWS  # this window was evaluated before
        is_consecutive = not is_repeated and gap < _MAX_GAP_WINDOWS + _ROUNDING_WINDOWS
        before: Mapping[Zone, int] = state.unhealthy_windows if is_consecutive else {}
        silent_before: Mapping[Zone, int] = state.silent_windows if is_consecutive else {}
        out = window.zones_out
        readings = {zone: window.reading(zone) for zone in window.zones}
        silent_windows = {
            zone: silent_before.get(zone, 0) + 1
            for zone, reading in readings.items()
            if zone not in out and not reading.requests
        }
        if state.verdict is not None and not any(reading.requests for reading in readings.values()):
            # Without measurements nobody knows whether the failure has ended.
            verdict = _renew(state.verdict, window, readings)
            return ThresholdState(before, silent_windows, verdict, window.end), verdict
        unhealthy_windows = {
            zone: before.get(zone, 0) + 1
            for zone, reading in readings.items()
            if zone not in out and self._is_unhealthy(reading)
        }
        silent = sorted(zone for zone, count in silent_windows.items() if count >= _SILENT_WINDOWS)
        verdict = self._conclude(state.verdict, unhealthy_windows, silent, window, readings)
        is_open = verdict.kind is not VerdictKind.HEALTHY
        return ThresholdState(unhealthy_windows, silent_windows, verdict if is_open else None, window.end), verdict

    def _conclude(
        self,
        open_verdict: Verdict | None,
        unhealthy_windows: Mapping[Zone, int],
        silent: Sequence[Zone],
        window: "Window",
        readings: "Mapping[Zone, ZoneReading]",
    ) -> Verdict:
        out = window.zones_out
        certain = [zone for zone, count in unhealthy_windows.items() if count >= self._options.consecutive_windows]
        if not certain and open_verdict is not None and open_verdict.zone in out:
            # Without traffic nothing can be measured: the verdict stays open until its zone is back.
            return _renew(open_verdict, window, readings)
        if not certain and silent:
            kind, zone = VerdictKind.UNKNOWN, silent[0] if len(silent) == 1 else None
        elif not certain:
            kind, zone = VerdictKind.HEALTHY, None
        elif len(unhealthy_windows) > 1 or out:
            # Several unhealthy zones are not a zonal failure, even if only one has been unhealthy for long enough.
            kind, zone = VerdictKind.REGIONAL, None
        elif not any(self._is_healthy(readings[other]) for other in window.zones if other != certain[0]):
            # There is no zone to move traffic to: zones with too few requests may be as unhealthy, or worse.
            kind, zone = VerdictKind.UNKNOWN, None
        else:
            kind, zone = self._classify(readings[certain[0]]), certain[0]
        if open_verdict is not None and (open_verdict.kind, open_verdict.zone) == (kind, zone):
            return _renew(open_verdict, window, readings)
        windows = self._options.consecutive_windows if certain else _SILENT_WINDOWS if silent else 0
        since = window.end - windows * window.seconds
        return Verdict(
            id=f"{window.workload}/{zone or kind}/{since:.12g}",
            workload=window.workload,
            kind=kind,
            zone=zone,
            since=since,
            at=window.end,
            summary=_describe(kind, zone, readings, sorted(unhealthy_windows) if certain else silent, sorted(out)),
            evidence=_collect_evidence(readings),
        )

    def _is_unhealthy(self, reading: "ZoneReading") -> bool:
        if reading.requests < self._options.min_requests:
            return False
        slow = reading.latency is not None and reading.latency >= self._options.max_latency
        return slow or reading.fault_rate >= self._options.max_fault_rate

    def _is_healthy(self, reading: "ZoneReading") -> bool:
        return reading.requests >= self._options.min_requests and not self._is_unhealthy(reading)

    def _classify(self, reading: "ZoneReading") -> VerdictKind:
        """Return INSTANCE if only some instances fail, ISOLATED otherwise. Latency is not measured by instance yet."""
        faulty = reading.fault_rate >= self._options.max_fault_rate
        needed = min(self._options.min_instances, reading.instances)
        return VerdictKind.INSTANCE if faulty and reading.failing_instances < needed else VerdictKind.ISOLATED


def _renew(verdict: Verdict, window: "Window", readings: "Mapping[Zone, ZoneReading]") -> Verdict:
    return replace(verdict, at=window.end, evidence=_collect_evidence(readings))


def _describe(
    kind: VerdictKind,
    zone: Zone | None,
    readings: "Mapping[Zone, ZoneReading]",
    unhealthy: Sequence[Zone],
    out: Sequence[Zone],
) -> str:
    names = ", ".join(unhealthy)
    if kind is VerdictKind.REGIONAL:
        return (
            f"more than one zone is unhealthy: {names}"
            if not out
            else f"{names}: unhealthy, while {', '.join(out)} is out"
        )
    if kind is VerdictKind.UNKNOWN and not any(readings[each].requests for each in unhealthy):
        return f"{names}: no requests are reported"
    if kind is VerdictKind.UNKNOWN:
        return f"{names} is unhealthy, and no other zone has enough traffic to be called healthy"
    if zone is None:
        return "no zone is unhealthy"
    reading = readings[zone]
    others = [other for name, other in readings.items() if name != zone and other.requests]
    highest = max((other.fault_rate for other in others), default=0.0)
    latency = "" if reading.latency is None else f", p90 latency {reading.latency:.2f} s"
    return (
        f"{zone}: {reading.fault_rate:.1%} of requests fail{latency}, {reading.failing_instances} of "
        f"{reading.instances} instances fail; other zones: at most {highest:.1%} of requests fail"
    )


def _collect_evidence(readings: "Mapping[Zone, ZoneReading]") -> dict[str, dict[str, float | int | None]]:
    return {
        zone: {
            "requests": reading.requests,
            "fault_rate": round(reading.fault_rate, 4),
            "latency": None if reading.latency is None else round(reading.latency, 4),
            "failing_instances": reading.failing_instances,
        }
        for zone, reading in readings.items()
    }
