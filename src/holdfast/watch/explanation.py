"""Explain a verdict: the evidence against each zone, how much is missing, and what holds it back.

Detectors without such evidence are explained by the measurements that they have compared.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast._types import Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate.guards import Situation, check_guards, describe_refusals
from holdfast.evacuate.journal import RecordedRuns
from holdfast.evacuate.service import EvacuationMode, build_command

_MEANINGS = {
    "healthy": "neither its consumers nor its own monitoring see a failure",
    "masked": "only its own monitoring sees a failure, consumers are not affected",
    "detected": "its consumers and its own monitoring see a failure",
    "gray": "only its consumers see a failure, its own monitoring does not",
}
"""The four states of a shared resource, by who sees a failure."""


class SignalExplanation(Struct, frozen=True, kw_only=True):
    """The strongest evidence of one kind against a zone."""

    signal: str
    operation: str
    """The operation with this evidence, or `all requests`."""
    evidence: float
    needed: float
    """Evidence in nats: the natural logarithm of how much likelier a failure makes the measurements."""
    share: float
    """Evidence divided by the needed evidence."""
    since: float | None
    """When the evidence began to rise; None if there is none."""
    held_back: str | None
    """The reason why it does not isolate the zone; None if it does."""
    lifted_by: str | None
    """The change that lifts this reason, if it is known."""
    sentence: str


class ZoneExplanation(Struct, frozen=True, kw_only=True):
    """The evidence against one zone."""

    zone: Zone
    state: ZoneState
    measured: Mapping[str, Any]
    """The measurements of the last window, as the detector gives them."""
    signals: Sequence[SignalExplanation]
    worst_instances: Sequence[str]
    sentence: str


class ResourceExplanation(Struct, frozen=True, kw_only=True):
    """A shared resource, as its consumers and its own monitoring see it."""

    resource: str
    observability: str
    meaning: str
    affected_zones: Sequence[str]


class VerdictExplanation(Struct, frozen=True, kw_only=True):
    """The verdict of the latest window of a workload, and the reasons for it."""

    workload: str
    detector: str
    verdict: Verdict
    evacuation: str
    """Whether the zone is evacuated, is evacuated next, or is not, and why."""
    zones: Sequence[ZoneExplanation]
    resources: Sequence[ResourceExplanation]


def explain_verdict(
    verdict: Verdict,
    *,
    detector: str,
    zones: Sequence[Zone],
    states: Mapping[Zone, ZoneState],
    may_evacuate: bool,
    mode: EvacuationMode,
    runs: RecordedRuns,
    now: float,
) -> VerdictExplanation:
    """Return the explanation. `states` has the zones that are not in, `runs` the evacuations in the journal."""
    evidence = verdict.evidence
    situation = Situation(
        zone=verdict.zone or Zone(""),
        workload=verdict.workload,
        zones=zones,
        now=now,
        states=states,
        runs=runs,
        discoveries={},
        verdict=verdict,
    )
    return VerdictExplanation(
        workload=verdict.workload,
        detector=detector,
        verdict=verdict,
        evacuation=_describe_evacuation(verdict, situation, detector=detector, may_evacuate=may_evacuate, mode=mode),
        zones=[_explain_zone(zone, states.get(zone, ZoneState.IN), _get_table(evidence, zone)) for zone in zones],
        resources=[
            ResourceExplanation(
                resource=name,
                observability=found["observability"],
                meaning=_MEANINGS.get(found["observability"], ""),
                affected_zones=found.get("affected_zones", ()),
            )
            for name, found in evidence.items()
            if isinstance(found, Mapping) and isinstance(found.get("observability"), str)
        ],
    )


def _describe_evacuation(
    verdict: Verdict, situation: Situation, *, detector: str, may_evacuate: bool, mode: EvacuationMode
) -> str:
    if verdict.kind is not VerdictKind.ISOLATED or verdict.zone is None:
        return "not evacuated: only a verdict of kind isolated evacuates a zone"
    state = situation.states.get(verdict.zone, ZoneState.IN)
    if state.is_out:
        return f"evacuation {'done' if state is ZoneState.OUT else 'begun'}: {verdict.zone} is {state}"
    if not verdict.is_confirmed:
        return "not evacuated: the latest window does not show the failure"
    command = f"`{build_command(verdict.zone, verdict.workload, mode)}`"
    if not may_evacuate:
        return (
            f"not evacuated: verdicts of detector {detector} only advise, because evacuation.detectors does not name "
            f"it; evacuate the zone with {command}"
        )
    if mode is EvacuationMode.ADVISE:
        return f"not evacuated: the server only advises, by evacuation.mode; evacuate the zone with {command}"
    refusals = describe_refusals(check_guards(situation, {}))
    if refusals:
        return f"not evacuated: {refusals}"
    if mode is EvacuationMode.CONFIRM:
        return f"not evacuated: the server waits for approval; approve with {command}"
    return f"evacuation next: the server evacuates {verdict.zone}"


def _get_table(evidence: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = evidence.get(name)
    return found if isinstance(found, Mapping) else {}


def _explain_zone(zone: Zone, state: ZoneState, found: Mapping[str, Any]) -> ZoneExplanation:
    signals = [
        _explain_signal(name, each, state)
        for name, each in found.items()
        if isinstance(each, Mapping) and {"evidence", "needed", "operation"} <= each.keys()
    ]
    measured = {name: each for name, each in found.items() if not isinstance(each, Mapping | list)}
    strongest = max(signals, key=lambda each: each.share, default=None)
    if strongest is not None:
        text = strongest.sentence
    else:
        text = ", ".join(f"{name.replace('_', ' ')} {_format(each)}" for name, each in measured.items())
    worst = found.get("worst_instances")
    return ZoneExplanation(
        zone=zone,
        state=state,
        measured=measured,
        signals=signals,
        worst_instances=worst if isinstance(worst, list) else [],
        sentence=f"{zone}: {text or 'the verdict has no measurements of it'}",
    )


def _explain_signal(name: str, found: Mapping[str, Any], state: ZoneState) -> SignalExplanation:
    evidence, needed, held_back = float(found["evidence"]), float(found["needed"]), found.get("held_back")
    share = evidence / needed if needed > 0 else 0.0
    since = found.get("since") if evidence > 0 else None
    lifted_by = _list_lifts().get(held_back) if held_back is not None else None
    if state.is_out:  # evidence that is left from before says nothing about the zone now
        text = f"{name}: not evaluated while the zone is {state}"
    elif evidence <= 0 and _is_learning(held_back):
        text = f"{name}: not evaluated: {held_back}"
    elif evidence <= 0:
        text = f"{name}: no evidence"
    else:
        began = "" if since is None else f", since {_format_time(since)}"
        text = f"{name} of {found['operation']} {evidence:.1f} of {needed:.1f} nats ({share:.0%}){began}"
        text += "; isolates the zone" if held_back is None else f"; held back: {held_back}"
        text += "" if lifted_by is None else f"; needs: {lifted_by}"
    return SignalExplanation(
        signal=name,
        operation=str(found["operation"]),
        evidence=evidence,
        needed=needed,
        share=round(share, 3),
        since=since,
        held_back=held_back,
        lifted_by=lifted_by,
        sentence=text,
    )


def _is_learning(held_back: str | None) -> bool:
    if held_back is None:
        return False
    from holdfast.detect.findings import Guard  # imports NumPy, as below

    return held_back == str(Guard.LEARNING)


def _list_lifts() -> Mapping[str, str]:
    """Return, for each guard of the calibrated detector, the change that lifts it."""
    from holdfast.detect.findings import Guard  # imports NumPy, which a command that asks a server does not need

    return {
        str(Guard.LEARNING): "half an hour of requests of this operation",
        str(Guard.EVIDENCE): "more affected requests, or the same for longer",
        str(Guard.OTHERS_TOO): "healthy other zones, or a larger difference to them",
        str(Guard.OWN_PAST): "a zone that gets worse than it was in the last hours",
        str(Guard.NOT_WORSE): "a larger difference to the worst other zone",
        str(Guard.UNWELL): "healthy other zones, or a much larger difference to them",
        str(Guard.SMALL): "more affected requests",
        str(Guard.REGIONAL): "15 minutes in which no second zone is worse than usual",
        str(Guard.ENDED): "a failure that goes on",
        str(Guard.DEPLOY): "evidence that lasts longer than a deploy, or a large share of all requests affected",
        str(Guard.INSTANCES): "evidence against the other instances of the zone, too",
        str(Guard.TRAFFIC): "more requests in the zone",
        str(Guard.SCALING): "a loss of about two thirds or more",
        str(Guard.SILENT): "failing canaries in the zone, or other zones that get its traffic",
    }


def _format(value: object) -> str:
    return "none" if value is None else f"{value:,.4g}" if isinstance(value, int | float) else str(value)


def _format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
