"""Accuse the one zone that is above a fixed threshold while the others are not. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from holdfast._errors import InvalidValue
from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.detect.detector import DETECTORS
from holdfast.telemetry import Window, ZoneReading

_MAX_GAP_WINDOWS = 1.5
"""Windows in a row: a gap of one is bridged, and the half is for what floats are worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdOptions:
    """When a zone is in trouble."""

    max_fault_rate: float = 0.05
    """Share of requests that fail. Healthy services stay well below 1 %; a gray failure that users notice does not."""
    max_latency: float = 0.5
    """Seconds that nine of ten successful requests may take at most: people notice waits from here on."""
    min_requests: int = 20
    """Fewer in a window say nothing: at 5 % that is a single failure."""
    min_instances: int = 2
    """Fewer failing instances than this are not the zone's fault, but theirs, unless the zone has no more."""
    consecutive_windows: int = 2
    """In a row. With bins of ten seconds a verdict comes 12 to 22 s after the fault, and one bad bin is not enough."""

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
    """What the detector remembers from window to window."""

    windows_in_trouble: Mapping[Zone, int] = field(default_factory=dict)
    """For how many windows in a row each zone has been in trouble."""
    verdict: Verdict | None = None
    """The verdict that is open."""
    seen_until: float | None = None
    """When the last window ended."""


@DETECTORS.register("threshold")
class ThresholdDetector:
    """Finds the one zone of a workload that is in trouble. See `holdfast.detect.Detector`."""

    options_type: ClassVar = ThresholdOptions
    state_type: ClassVar = ThresholdState

    def __init__(self, options: ThresholdOptions | None = None) -> None:
        self._options = options or ThresholdOptions()

    def step(self, state: ThresholdState, window: Window) -> tuple[ThresholdState, Verdict]:
        """Look at one window. A zone that is out is left out: it has no traffic that could say anything."""
        # A restart may cost one window, which says neither yes nor no; after a longer gap the count begins anew.
        gap = 0.0 if state.seen_until is None else (window.start - state.seen_until) / window.seconds
        is_consecutive = -0.5 < gap < _MAX_GAP_WINDOWS  # below that, it is a window that was looked at before
        before: Mapping[Zone, int] = state.windows_in_trouble if is_consecutive else {}
        out = window.zones_out
        readings = {zone: window.reading(zone) for zone in window.zones}
        windows_in_trouble = {
            zone: before.get(zone, 0) + 1
            for zone, reading in readings.items()
            if zone not in out and self._is_in_trouble(reading)
        }
        verdict = self._conclude(state.verdict, windows_in_trouble, window, readings)
        is_open = verdict.kind is not VerdictKind.HEALTHY
        return ThresholdState(windows_in_trouble, verdict if is_open else None, window.end), verdict

    def _conclude(
        self,
        open_verdict: Verdict | None,
        windows_in_trouble: Mapping[Zone, int],
        window: Window,
        readings: Mapping[Zone, ZoneReading],
    ) -> Verdict:
        out = window.zones_out
        certain = [zone for zone, row in windows_in_trouble.items() if row >= self._options.consecutive_windows]
        if not certain and open_verdict is not None and open_verdict.zone in out:
            # Nothing is known of a zone without traffic: what sent it away stands until it is back.
            return _renew(open_verdict, window, readings)
        if not certain:
            kind, zone = VerdictKind.HEALTHY, None
        elif len(windows_in_trouble) > 1 or out:
            # More than one zone at once is not a zone's failure, even if only one has been so for long enough.
            kind, zone = VerdictKind.REGIONAL, None
        elif not any(self._is_healthy(readings[other]) for other in window.zones if other != certain[0]):
            # Where would the traffic go? Zones that say nothing may be in the same trouble, or worse.
            kind, zone = VerdictKind.UNKNOWN, None
        else:
            kind, zone = self._classify(readings[certain[0]]), certain[0]
        if open_verdict is not None and (open_verdict.kind, open_verdict.zone) == (kind, zone):
            return _renew(open_verdict, window, readings)
        since = window.end - self._options.consecutive_windows * window.seconds if certain else window.end
        return Verdict(
            id=f"{window.workload}/{zone or kind}/{since:.12g}",
            workload=window.workload,
            kind=kind,
            zone=zone,
            since=since,
            at=window.end,
            sentence=_describe(kind, zone, readings),
            evidence=_collect_evidence(readings),
        )

    def _is_in_trouble(self, reading: ZoneReading) -> bool:
        if reading.requests < self._options.min_requests:
            return False
        slow = reading.latency is not None and reading.latency >= self._options.max_latency
        return slow or reading.fault_rate >= self._options.max_fault_rate

    def _is_healthy(self, reading: ZoneReading) -> bool:
        return reading.requests >= self._options.min_requests and not self._is_in_trouble(reading)

    def _classify(self, reading: ZoneReading) -> VerdictKind:
        """Return INSTANCE for one bad instance among several. Slowness is not counted by instance yet."""
        faulty = reading.fault_rate >= self._options.max_fault_rate
        needed = min(self._options.min_instances, reading.instances)
        return VerdictKind.INSTANCE if faulty and reading.failing_instances < needed else VerdictKind.ISOLATED


def _renew(verdict: Verdict, window: Window, readings: Mapping[Zone, ZoneReading]) -> Verdict:
    return replace(verdict, at=window.end, evidence=_collect_evidence(readings))


def _describe(kind: VerdictKind, zone: Zone | None, readings: Mapping[Zone, ZoneReading]) -> str:
    if zone is None:
        return _SENTENCES_WITHOUT_ZONE[kind]
    reading = readings[zone]
    others = [other for name, other in readings.items() if name != zone and other.requests]
    highest = max((other.fault_rate for other in others), default=0.0)
    slow = "" if reading.latency is None else f", nine of ten successes take up to {reading.latency:.2f} s"
    return (
        f"{zone} fails {reading.fault_rate:.1%} of its requests, the others at most {highest:.1%}{slow}; "
        f"{reading.failing_instances} of {reading.instances} instances fail"
    )


_SENTENCES_WITHOUT_ZONE = {
    VerdictKind.HEALTHY: "no zone is in trouble",
    VerdictKind.REGIONAL: "more than one zone is in trouble, or one while another is out",
    VerdictKind.UNKNOWN: "one zone is in trouble, and no other zone has enough traffic to be called healthy",
}


def _collect_evidence(readings: Mapping[Zone, ZoneReading]) -> dict[str, dict[str, float | int | None]]:
    return {
        zone: {
            "requests": reading.requests,
            "fault_rate": round(reading.fault_rate, 4),
            "latency": None if reading.latency is None else round(reading.latency, 4),
            "failing_instances": reading.failing_instances,
        }
        for zone, reading in readings.items()
    }
