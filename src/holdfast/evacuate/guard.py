"""Decide whether a verdict may evacuate a zone. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast._types import Verdict, VerdictKind, Zone, ZoneState


@dataclass(frozen=True, slots=True)
class EvacuationDecision:
    """The zone to evacuate, or None, and the reason."""

    zone: Zone | None
    reason: str


def decide_evacuation(verdict: Verdict, zones: frozenset[Zone], states: Mapping[Zone, ZoneState]) -> EvacuationDecision:
    """Decide on the verdict's zone: evacuate it only if all other zones are in, and there is at least one.

    `states` has the zones that are not in. A returning zone counts: it does not carry all of its traffic yet.
    """
    if verdict.kind is not VerdictKind.ISOLATED or verdict.zone is None:
        return EvacuationDecision(None, f"a verdict of kind {verdict.kind} names no zone to evacuate")
    if states.get(verdict.zone) in (ZoneState.OUT, ZoneState.DRAINING):
        return EvacuationDecision(None, f"zone {verdict.zone} is {states[verdict.zone]} already")
    others = sorted(f"{zone} is {state}" for zone, state in states.items() if zone in zones - {verdict.zone})
    if others:
        return EvacuationDecision(
            None, f"zone {', '.join(others)}, and no second zone is evacuated while one is not in"
        )
    if not zones - {verdict.zone}:
        return EvacuationDecision(None, f"zone {verdict.zone} is the only zone of the workload")
    return EvacuationDecision(verdict.zone, f"verdict {verdict.id}")
