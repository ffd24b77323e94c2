"""Decide whether a verdict may send a zone away. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast._types import Verdict, VerdictKind, Zone, ZoneState


@dataclass(frozen=True, slots=True)
class EvacuationDecision:
    """Which zone to leave, if any, and why (not)."""

    zone: Zone | None
    reason: str


def decide_evacuation(verdict: Verdict, zones: frozenset[Zone], states: Mapping[Zone, ZoneState]) -> EvacuationDecision:
    """Leave the zone that a verdict isolates, unless another one is not fully in, or it is the last.

    `states` has the zones that are not in; one that is returning does not carry all of its traffic yet, and counts.
    """
    if verdict.kind is not VerdictKind.ISOLATED or verdict.zone is None:
        return EvacuationDecision(None, f"a verdict of kind {verdict.kind} names no zone to leave")
    if states.get(verdict.zone) in (ZoneState.OUT, ZoneState.DRAINING):
        return EvacuationDecision(None, f"zone {verdict.zone} is {states[verdict.zone]} already")
    others = sorted(f"{zone} is {state}" for zone, state in states.items() if zone in zones - {verdict.zone})
    if others:
        return EvacuationDecision(None, f"zone {', '.join(others)}: never a second zone while one is not in")
    if not zones - {verdict.zone}:
        return EvacuationDecision(None, f"zone {verdict.zone} is the only one there is")
    return EvacuationDecision(verdict.zone, f"verdict {verdict.id}")
