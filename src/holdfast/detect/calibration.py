"""Combine all evidence of the calibrated detector into one verdict. Pure.

A verdict opens when evidence passes all guards, and closes when there has been no evidence for five minutes. A shared
resource whose consumers fail in several zones comes first: a zone is not to blame for it, even the one that has the
resource. Then come isolated zones, regional failures, single instances and silence.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from holdfast._types import Side, Verdict, VerdictKind, Zone, ZoneState
from holdfast.detect import throughput
from holdfast.detect.cusum import Mask
from holdfast.detect.findings import (
    AFTER_DEPLOY,
    AFTER_REGIONAL,
    Finding,
    Guard,
    GuardConditions,
    Signal,
    find_all,
    find_strongest,
    is_regional,
)
from holdfast.detect.instances import InstanceReport, leave_out_worst
from holdfast.detect.measurements import list_keys, measure
from holdfast.detect.regional import Regional, ResourceView, find_regional, view_resources
from holdfast.detect.sentences import (
    EvaluatedWindow,
    describe_finding,
    describe_resource,
    describe_silence,
    format_time,
)
from holdfast.detect.streams import (
    INSTANCE_WINDOW,
    LEARNING,
    InstanceBin,
    StreamState,
    StreamStep,
    advance,
    arrange,
    arrange_instances,
    build_stream_state,
    clear_evidence,
    keep_only_baseline,
    shift_times,
)
from holdfast.telemetry.window import Window

CLOSE_AFTER = 300.0
"""Seconds without evidence after which a verdict closes: failures often come back within minutes."""
FLICKER = 60.0
"""Seconds in which a shared resource may seem to recover before the failure counts as one of the region."""
STILL_BAD = 0.2
"""Share of its highest excess from which a zone is still bad. Evidence alone fades too slowly if faults are rare."""
MAX_GAP = 60.0
"""Seconds without windows after which evidence from before no longer counts."""
MAX_AGE = 86_400.0
"""Seconds without windows after which everything is learned again: traffic may have changed."""


class CalibratedState(Struct):
    """The detector's state between windows."""

    max_age: ClassVar[float] = MAX_AGE
    """Seconds after which a saved state is not used any more."""
    streams: StreamState | None = None
    seen_until: float | None = None
    """End of the last window."""
    regional_until: float = 0.0
    verdict: Verdict | None = None
    """The open verdict."""
    confirmed_at: float = 0.0
    """End of the last window in which the zone of the open verdict was still bad."""
    worst: dict[Signal, float] = {}
    """The highest excess of that zone since the verdict opened."""
    seconds: float = 0.0
    """Length of the windows."""
    instances: list[InstanceBin] = []
    """Measurements by instance of the last minutes."""

    def fits(self, zones: Sequence[str], seconds: float) -> bool:
        """Return whether the state says something about these zones, in windows of this length."""
        return self.streams is not None and self.streams.zones == tuple(zones) and self.seconds == seconds

    def to_saved(self) -> "CalibratedState":
        """Return the part that is saved with every bin. Measurements by instance are too large."""
        return replace(self, instances=[])


class _Conclusion(Struct):
    """A verdict before it has an id."""

    kind: VerdictKind
    summary: str
    since: float
    zone: Zone | None = None
    resource: str | None = None


def evaluate(
    state: CalibratedState, window: Window, false_isolations: float, *, deploys_are_announced: bool
) -> tuple[CalibratedState, Verdict]:
    """Return the next state and the verdict of a window."""
    if state.seen_until is not None and state.seen_until - window.start > MAX_GAP:
        state = _set_back(state, window.start - state.seen_until)
    elif state.seen_until is not None and window.start < state.seen_until - window.seconds / 2:
        repeated = _Conclusion(VerdictKind.UNKNOWN, _REPEATED, state.seen_until)
        return state, state.verdict or _build_verdict(window, repeated)
    streams, instances = _continue(state, window)
    shared = {operation for resource in window.resources for operation in resource.operations}
    streams = arrange(streams, list_keys(window), shared, window.end)
    measurements = measure(window, streams.keys)
    active = _select_zones(window, ZoneState.OUT, ZoneState.DRAINING)
    balanced = _select_zones(window, ZoneState.OUT, ZoneState.DRAINING, ZoneState.RETURNING)
    step = advance(
        streams,
        measurements,
        window.end,
        window.seconds,
        active=active,
        balanced=balanced,
        false_isolations=false_isolations,
        is_learning=state.verdict is None or _is_lack_of_data(state.verdict),
    )
    kept = round(INSTANCE_WINDOW / window.seconds)
    instances = [*arrange_instances(instances, streams.keys), step.instances][-kept:]
    regional = find_regional(step, active, window.end, window.seconds)
    is_calm = not regional.zones and not is_regional(step.state)
    regional_until = state.regional_until if is_calm else window.end + AFTER_REGIONAL
    conditions = GuardConditions(
        window.end,
        window.seconds,
        active,
        regional_until,
        false_isolations,
        _find_deploys(window) if deploys_are_announced else np.ones(len(window.zones), np.bool_),
    )
    findings, reports = _check_instances(find_all(step, conditions), instances, step, window)
    evaluated = EvaluatedWindow(window, step, measurements, findings)
    resources = view_resources(step, measurements, window)
    conclusion = _conclude(evaluated, reports, resources, regional, conditions)
    evidence = _collect_evidence(evaluated, find_strongest(step, conditions), findings, reports, resources)
    verdict, confirmed_at = _choose(state, window, conclusion, findings, evidence)
    is_open = verdict.kind is not VerdictKind.HEALTHY and not _is_learning(step)
    worst = dict(state.worst) if state.verdict is not None and state.verdict.id == verdict.id else {}
    for each in findings if is_open else ():
        if window.zones[each.zone] == verdict.zone:
            worst[each.signal] = max(each.excess, worst.get(each.signal, 0.0))
    streams = step.state
    if state.verdict is not None and verdict.kind is VerdictKind.HEALTHY:
        streams = _clear_evidence_of(state.verdict, streams, window)
    found = CalibratedState(
        streams=streams,
        seen_until=window.end,
        regional_until=regional_until,
        verdict=verdict if is_open else None,
        confirmed_at=confirmed_at,
        worst=worst if is_open else {},
        seconds=window.seconds,
        instances=instances,
    )
    return found, verdict


_HEALTHY = "no zone is worse than the others"
_REPEATED = "this window was evaluated before"
_NO_DATA = "fewer than two zones report requests, so no zone can be compared with others"


def _set_back(state: CalibratedState, seconds: float) -> CalibratedState:
    """Return the state for a clock that was set back, by a negative number of seconds, as if a gap had passed since."""
    return replace(
        state,
        streams=None if state.streams is None else shift_times(state.streams, seconds - 2 * MAX_GAP),
        seen_until=(state.seen_until or 0.0) + seconds - 2 * MAX_GAP,
        regional_until=state.regional_until + seconds,
        confirmed_at=state.confirmed_at + seconds,
    )


def _continue(state: CalibratedState, window: Window) -> tuple[StreamState, Sequence[InstanceBin]]:
    """Return what is known before a window: after a gap without the evidence, and after a day nothing."""
    zones = tuple(window.zones)
    if state.streams is None or state.seen_until is None or not state.fits(zones, window.seconds):
        return build_stream_state(zones, window.start), ()
    gap = window.start - state.seen_until
    if gap > MAX_AGE:
        return build_stream_state(zones, window.start), ()
    return (keep_only_baseline(state.streams), ()) if gap > MAX_GAP else (state.streams, state.instances)


def _select_zones(window: Window, *without: ZoneState) -> Mask:
    return np.array([window.states.get(zone) not in without for zone in window.zones], np.bool_)


def _find_deploys(window: Window) -> Mask:
    """Return, by zone, whether an announced deploy runs, or ended a few minutes ago."""
    return np.array(
        [
            any(
                each.zone in (None, zone) and each.start < window.end and each.end + AFTER_DEPLOY > window.start
                for each in window.deployments
            )
            for zone in window.zones
        ],
        np.bool_,
    )


def _is_lack_of_data(verdict: Verdict) -> bool:
    """Return whether a verdict says only that there is too little data. It ends when there is data again."""
    return verdict.kind is VerdictKind.UNKNOWN and verdict.zone is None


def _is_learning(step: StreamStep) -> bool:
    """Return whether no operation is known well enough."""
    return not step.is_known[:-1].any()


def _check_instances(
    findings: Sequence[Finding], bins: Sequence[InstanceBin], step: StreamStep, window: Window
) -> tuple[list[Finding], dict[int, InstanceReport]]:
    """Return the findings, held back if a few instances may cause them, and the reports by index of the finding.

    Only bins since the evidence began are looked at: faults from before say nothing about this failure.
    """
    checked, reports = [], {}
    for index, finding in enumerate(findings):
        # A deploy does not explain a single bad instance, so that verdict need not outlast one.
        if finding.guard in (None, Guard.DEPLOY) and finding.signal is not Signal.THROUGHPUT:
            since = max(round((window.end - finding.since) / window.seconds), 1)
            report = reports[index] = leave_out_worst(finding, bins[-since:], step)
            is_held = finding.guard is None and not report.is_zone
            checked.append(replace(finding, guard=Guard.INSTANCES) if is_held else finding)
        else:
            checked.append(finding)
    return checked, reports


def _conclude(
    evaluated: EvaluatedWindow,
    reports: Mapping[int, InstanceReport],
    resources: Sequence[ResourceView],
    regional: Regional,
    conditions: GuardConditions,
) -> _Conclusion:
    window, streams, findings = evaluated.window, evaluated.step.state, evaluated.findings
    if _is_learning(evaluated.step):
        text = "no requests have been reported yet"
        if len(streams.first_seen):
            text = f"learning the usual behaviour until {format_time(float(streams.first_seen.min()) + LEARNING)}"
        return _Conclusion(VerdictKind.UNKNOWN, text, streams.started_at)
    failing = [each for each in resources if each.is_failing]
    if failing:
        view = failing[0]
        return _Conclusion(VerdictKind.SHARED, describe_resource(view), view.since, zone=view.zone, resource=view.name)
    isolating = [each for each in findings if each.guard is None]
    zones = sorted({each.zone for each in isolating})
    if len(zones) == 1 and not evaluated.zones_out:
        best = max(
            isolating, key=lambda each: (each.row < len(evaluated.step.thresholds) - 1, each.evidence - each.threshold)
        )
        return _Conclusion(
            VerdictKind.ISOLATED, describe_finding(evaluated, best), best.since, zone=window.zones[best.zone]
        )
    if zones or regional.zones:
        found = sorted({window.zones[each] for each in [*zones, *regional.zones]})
        while_out = f" while {', '.join(evaluated.zones_out)} is out" if evaluated.zones_out else ""
        what = f"{regional.describe(evaluated)}{while_out}"
        since = min(each.since for each in isolating) if regional.since is None else regional.since
        return _Conclusion(VerdictKind.REGIONAL, f"{', '.join(found)}: {what}", since)
    for index, report in reports.items():
        if report.is_instance:
            finding = findings[index]
            zone = window.zones[finding.zone]
            return _Conclusion(
                VerdictKind.INSTANCE, describe_finding(evaluated, finding, report), finding.since, zone=zone
            )
    return _conclude_without_failure(evaluated, conditions)


def _conclude_without_failure(evaluated: EvaluatedWindow, conditions: GuardConditions) -> _Conclusion:
    """Return whether all zones are healthy, or too little is known about them."""
    window, found = evaluated.window, evaluated.step.state.throughput
    silent = np.flatnonzero(throughput.find_silent(found, window.seconds) & conditions.active).tolist()
    if len(silent) == 1 and not evaluated.zones_out:
        quiet = int(silent[0])
        since = window.end - float(found.silent_bins[quiet]) * window.seconds
        path = _confirm_silence(evaluated, quiet, conditions.false_isolations)
        kind = VerdictKind.ISOLATED if path else VerdictKind.UNKNOWN
        return _Conclusion(kind, describe_silence(evaluated, quiet, path), since, zone=window.zones[quiet])
    if silent:
        names = ", ".join(window.zones[each] for each in silent)
        only = window.zones[silent[0]] if len(silent) == 1 else None
        return _Conclusion(VerdictKind.UNKNOWN, f"{names}: no requests are reported", window.end, zone=only)
    by_zone = evaluated.measurements.requests.sum(axis=(0, 2))
    if int((by_zone[conditions.active] > 0).sum()) < 2:
        return _Conclusion(VerdictKind.UNKNOWN, _NO_DATA, window.end)
    return _Conclusion(VerdictKind.HEALTHY, _HEALTHY, window.end)


def _confirm_silence(evaluated: EvaluatedWindow, zone: int, false_isolations: float) -> str:
    """Return the second path that confirms that a silent zone has failed; "" if there is none.

    A stall of telemetry alone looks the same: neither canaries nor the traffic of other zones show it then.
    """
    measurements, state = evaluated.measurements, evaluated.step.state
    canaries = [row for row, key in enumerate(state.keys) if key.side is Side.CANARY]
    failed = measurements.faults[canaries, zone].sum()
    if canaries and failed and failed >= 0.5 * measurements.requests[canaries, zone].sum():
        return "canaries fail"
    return "the other zones get its traffic" if throughput.has_moved(state.throughput, zone, false_isolations) else ""


def _choose(
    state: CalibratedState,
    window: Window,
    conclusion: _Conclusion,
    findings: Sequence[Finding],
    evidence: Mapping[str, Any],
) -> tuple[Verdict, float]:
    """Return the verdict: the open one as long as there is evidence for it, or a new one."""
    known = state.verdict
    key = conclusion.kind, conclusion.zone, conclusion.resource
    if known is not None and key == (known.kind, known.zone, known.resource):
        return _renew(known, window, evidence, is_confirmed=True), window.end
    if known is not None and not _is_lack_of_data(known) and _is_weaker(conclusion, known):
        is_out = known.is_about(window.zones_out)
        is_supported = known.kind is not VerdictKind.SHARED and any(
            each.excess >= STILL_BAD * state.worst.get(each.signal, 0.0) and each.signal in state.worst
            for each in findings
            if window.zones[each.zone] == known.zone and each.guard not in (Guard.SMALL, Guard.ENDED)
        )
        patience = FLICKER if conclusion.kind is VerdictKind.REGIONAL else CLOSE_AFTER
        if is_out or is_supported:
            return _renew(known, window, evidence, is_confirmed=False), window.end
        if window.end - state.confirmed_at < patience:
            return _renew(known, window, evidence, is_confirmed=False), state.confirmed_at
        if conclusion.kind is VerdictKind.INSTANCE:
            # The failure is over, and the rest of its evidence shows no other one.
            conclusion = _Conclusion(VerdictKind.HEALTHY, _HEALTHY, window.end)
    return _build_verdict(window, conclusion, evidence), window.end


def _is_weaker(conclusion: _Conclusion, known: Verdict) -> bool:
    """Return whether a conclusion says less than the open verdict about the same failure."""
    kind = conclusion.kind
    if kind is VerdictKind.INSTANCE:
        return known.kind is VerdictKind.ISOLATED and conclusion.zone == known.zone
    if kind is VerdictKind.REGIONAL:
        return known.kind is VerdictKind.SHARED
    if kind is VerdictKind.UNKNOWN:
        return conclusion.zone == known.zone or conclusion.summary == _NO_DATA
    return kind is VerdictKind.HEALTHY


def _clear_evidence_of(verdict: Verdict, streams: StreamState, window: Window) -> StreamState:
    """Return the state without the evidence of a verdict that has closed. Silence is no evidence."""
    if verdict.kind is VerdictKind.UNKNOWN:
        return streams
    found = [index for index, zone in enumerate(window.zones) if verdict.is_about((zone,))]
    return clear_evidence(streams, found[0] if found else None)


def _renew(verdict: Verdict, window: Window, evidence: Mapping[str, Any], *, is_confirmed: bool) -> Verdict:
    return dataclasses.replace(verdict, at=window.end, evidence=evidence, is_confirmed=is_confirmed)


def _build_verdict(window: Window, found: _Conclusion, evidence: Mapping[str, Any] | None = None) -> Verdict:
    name = found.resource or found.zone or found.kind
    return Verdict(
        id=f"{window.workload}/{found.kind}/{name}/{found.since:.12g}",
        workload=window.workload,
        kind=found.kind,
        zone=found.zone,
        resource=found.resource,
        since=found.since,
        at=window.end,
        summary=found.summary,
        evidence={} if evidence is None else evidence,
    )


def _collect_evidence(
    evaluated: EvaluatedWindow,
    strongest: Sequence[Finding],
    findings: Sequence[Finding],
    reports: Mapping[int, InstanceReport],
    resources: Sequence[ResourceView],
) -> dict[str, Any]:
    """Return, for every zone and signal, how much evidence there is, how much is needed, and what holds it back."""
    zones: dict[str, Any] = {zone: evaluated.read(index) for index, zone in enumerate(evaluated.window.zones)}
    # The last finding of a zone and signal is shown: one that isolates, or else that with the most evidence.
    ordered = sorted(findings, key=lambda each: (each.guard is None, each.evidence / each.threshold))
    above = {(each.zone, each.signal): each for each in ordered}
    for each in strongest:
        found = above.get((each.zone, each.signal), each)
        zones[evaluated.window.zones[each.zone]][str(each.signal)] = {
            "evidence": round(found.evidence, 1),
            "needed": round(found.threshold, 1),
            "operation": evaluated.name_stream(found.row),
            "since": found.since,
            "held_back": None if found.guard is None else str(found.guard),
        }
    for index, report in reports.items():
        if not report.is_zone:
            zone = evaluated.window.zones[findings[index].zone]
            zones[zone]["worst_instances"] = list(report.worst)
    return zones | {each.name: each.to_evidence() for each in resources}
