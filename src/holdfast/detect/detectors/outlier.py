"""Report the zone with significantly more errors than the others, by a chi-squared test over all zones. Pure.

The test compares numbers of errors, not rates: it suits zones with equal traffic. It finds a failing zone even if all
zones always have errors, and needs no past to compare with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, Verdict, VerdictKind, Zone
from holdfast.detect.detector import DETECTORS

if TYPE_CHECKING:
    from holdfast.telemetry.window import Window

TESTS, NEEDED_FLAGS = 5, 3
"""A zone is reported if three of the last five tests flagged it. This includes three in a row."""
ALL_REQUESTS = "all requests"
"""The only stream of the level `zone`."""
_ROUNDING_WINDOWS = 0.5  # margin for float rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierOptions:
    """Settings of the outlier test."""

    window_seconds: float = 60.0
    """Seconds of errors that one test compares. Longer windows find smaller differences, but later."""
    level: Literal["operation", "service", "zone"] = "operation"
    """Which errors are compared: those of each operation, of each service, or of all operations together. A failure of
    one operation is hidden in the sum of many; an operation with few requests has too few errors for a test."""

    def __post_init__(self) -> None:
        if not 1 <= self.window_seconds <= 3600:
            raise InvalidValue(f"window_seconds is {self.window_seconds}: expected 1 to 3600 seconds")
        if self.level not in ("operation", "service", "zone"):
            raise InvalidValue(f"level is {self.level!r}: expected operation, service or zone")


@dataclass(frozen=True, slots=True)
class ZoneCount:
    """The requests of one stream in one zone."""

    requests: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class OutlierState:
    """The detector's state between windows."""

    number: int | None = None
    """The number of the test for which errors are being counted: its start divided by `window_seconds`."""
    counts: Mapping[str, Mapping[Zone, ZoneCount]] = field(default_factory=dict)
    """Counts of that test so far, by stream and zone."""
    left_out: tuple[Zone, ...] = ()
    """Zones that were out at some time since that test began."""
    flagged: tuple[Mapping[str, Zone], ...] = ()
    """For each of the last tests, the newest last: the zone that it flagged, by stream."""
    verdict: Verdict | None = None
    """The verdict of the last test."""
    seen_until: float | None = None
    """End of the last window."""


@DETECTORS.register("outlier")
class OutlierDetector:
    """A detector that compares the errors of zones by a chi-squared test. See `holdfast.detect.Detector`."""

    options_type: ClassVar = OutlierOptions
    state_type: ClassVar = OutlierState

    def __init__(self, options: OutlierOptions | None = None) -> None:
        self._options = options or OutlierOptions()

    def step(self, state: OutlierState, window: "Window") -> tuple[OutlierState, Verdict]:
        """Add one window to the current test. At the end of the test, evaluate it."""
        gap = 0.0 if state.seen_until is None else window.start - state.seen_until
        if gap <= -_ROUNDING_WINDOWS * window.seconds:  # this window was counted before
            return state, state.verdict or _build_waiting(window)
        if gap > self._options.window_seconds:
            state = OutlierState(verdict=state.verdict)  # tests before the gap are not followed by the next one
        rounding = _ROUNDING_WINDOWS * window.seconds
        number = int((window.start + rounding) // self._options.window_seconds)
        if state.number != number:
            state = replace(state, number=number, counts={}, left_out=())
        left_out = tuple(sorted({*state.left_out, *window.zones_out}))
        state = replace(state, counts=self._add(state.counts, window), left_out=left_out, seen_until=window.end)
        if window.end + rounding < (number + 1) * self._options.window_seconds:
            verdict = replace(state.verdict, at=window.end) if state.verdict else _build_waiting(window)
            return replace(state, verdict=verdict), verdict
        flagged = (*state.flagged, self._test(state))[-TESTS:]
        verdict = self._conclude(replace(state, flagged=flagged), window)
        return OutlierState(flagged=flagged, verdict=verdict, seen_until=window.end), verdict

    def _add(
        self, counts: Mapping[str, Mapping[Zone, ZoneCount]], window: "Window"
    ) -> dict[str, Mapping[Zone, ZoneCount]]:
        found = dict(counts)
        cells = window.cells.get(Side.SERVER)
        if cells is None:
            return found
        requests, errors = (each.sum(axis=2).tolist() for each in (cells.requests, cells.faults))
        for operation, requests_by_zone, errors_by_zone in zip(window.operations, requests, errors, strict=True):
            stream = self._name_stream(operation)
            before = found.get(stream, {})
            found[stream] = {
                zone: ZoneCount(known.requests + more_requests, known.errors + more_errors)
                for zone, more_requests, more_errors in zip(window.zones, requests_by_zone, errors_by_zone, strict=True)
                for known in (before.get(zone, ZoneCount()),)
            }
        return found

    def _name_stream(self, operation: Operation) -> str:
        if self._options.level == "zone":
            return ALL_REQUESTS
        return operation.service if self._options.level == "service" else str(operation)

    def _test(self, state: OutlierState) -> dict[str, Zone]:
        """Return the zone that is flagged, for each stream whose errors are significantly uneven.

        The test also flags a zone that has far fewer errors than the others. Such a zone is no reason to leave it, so
        this detector only takes flags of zones with more errors than expected.
        """
        from holdfast.alarms.chi_squared import find_outlier

        flagged = {}
        for stream, counts in state.counts.items():
            errors = {
                zone: float(count.errors)
                for zone, count in counts.items()
                if count.requests and zone not in state.left_out
            }
            result = find_outlier(errors)
            for zone, flag in result.flags.items():
                if flag and errors[zone] > result.expected:
                    flagged[stream] = zone
        return flagged

    def _conclude(self, state: OutlierState, window: "Window") -> Verdict:
        """Return the verdict at the end of a test."""
        before = state.verdict
        certain = {stream: zone for stream, zone in _find_certain(state.flagged).items() if zone not in state.left_out}
        zones = sorted(set(certain.values()))
        if not zones and before is not None and before.zone is not None and before.zone in window.zones_out:
            # Without traffic nothing can be measured: the verdict stays open until its zone is back.
            return replace(before, at=window.end, evidence=_collect_evidence(state))
        kind = _find_kind(state, zones, window)
        zone = zones[0] if kind is VerdictKind.ISOLATED else None
        if before is not None and (before.kind, before.zone) == (kind, zone):
            return replace(before, at=window.end, evidence=_collect_evidence(state))
        since = window.end
        if certain:
            tests = max(
                len(state.flagged) - index
                for stream, flagged_zone in certain.items()
                for index, each in enumerate(state.flagged)
                if each.get(stream) == flagged_zone
            )
            since = window.end - tests * max(self._options.window_seconds, window.seconds)
        return Verdict(
            id=f"{window.workload}/{zone or kind}/{since:.12g}",
            workload=window.workload,
            kind=kind,
            zone=zone,
            since=since,
            at=window.end,
            summary=self._describe(kind, certain, state, window),
            evidence=_collect_evidence(state),
        )

    def _describe(self, kind: VerdictKind, certain: Mapping[str, Zone], state: OutlierState, window: "Window") -> str:
        if kind is VerdictKind.UNKNOWN:
            return "fewer than two zones report requests, so no zone can be compared with others"
        if kind is VerdictKind.HEALTHY:
            return "no zone has significantly more errors than the others"
        names = ", ".join(sorted(set(certain.values())))
        if kind is VerdictKind.REGIONAL:
            out = ", ".join(sorted(window.zones_out))
            return f"{names}: more errors than expected{f' while {out} is out' if out else ', in different streams'}"
        stream, zone = max(certain.items(), key=lambda item: _count_flags(state.flagged, *item))
        counts = state.counts.get(stream, {})
        errors = sum(count.errors for count in counts.values())
        return (
            f"{zone} has {counts.get(zone, ZoneCount()).errors} of {errors} errors of {stream} in "
            f"{self._options.window_seconds:g} s; {_count_flags(state.flagged, stream, zone)} of the last "
            f"{len(state.flagged)} tests say that it has more than its part"
        )


def _find_kind(state: OutlierState, zones: list[Zone], window: "Window") -> VerdictKind:
    if zones:
        return VerdictKind.ISOLATED if len(zones) == 1 and not window.zones_out else VerdictKind.REGIONAL
    compared = (
        sum(bool(count.requests) and zone not in state.left_out for zone, count in counts.items())
        for counts in state.counts.values()
    )
    return VerdictKind.HEALTHY if max(compared, default=0) > 1 else VerdictKind.UNKNOWN


def _find_certain(flagged: tuple[Mapping[str, Zone], ...]) -> dict[str, Zone]:
    """Return, by stream, the zone that enough of the last tests flagged."""
    return {
        stream: zone
        for each in flagged
        for stream, zone in each.items()
        if _count_flags(flagged, stream, zone) >= NEEDED_FLAGS
    }


def _count_flags(flagged: tuple[Mapping[str, Zone], ...], stream: str, zone: Zone) -> int:
    return sum(each.get(stream) == zone for each in flagged)


def _collect_evidence(state: OutlierState) -> dict[str, Any]:
    """Return the requests and errors of each zone in the last test, and the streams in which it was flagged."""
    zones = {zone for counts in state.counts.values() for zone in counts}
    return {
        zone: {
            "requests": sum(counts.get(zone, ZoneCount()).requests for counts in state.counts.values()),
            "errors": sum(counts.get(zone, ZoneCount()).errors for counts in state.counts.values()),
            "flags": {
                stream: _count_flags(state.flagged, stream, zone)
                for stream in sorted({stream for each in state.flagged for stream in each})
                if _count_flags(state.flagged, stream, zone)
            },
        }
        for zone in sorted(zones)
    }


def _build_waiting(window: "Window") -> Verdict:
    """Return the verdict before the end of the first test."""
    return Verdict(
        id=f"{window.workload}/{VerdictKind.UNKNOWN}/{window.start:.12g}",
        workload=window.workload,
        kind=VerdictKind.UNKNOWN,
        since=window.start,
        at=window.end,
        summary="the first test is not complete yet",
    )
