"""Whether a verdict may send a zone away. Pure."""

from dataclasses import dataclass

from holdfast._types import Verdict, VerdictKind, Zone


@dataclass(frozen=True, slots=True)
class Decision:
    """Which zone to leave, if any, and why (not)."""

    zone: Zone | None
    reason: str


def decide(verdict: Verdict, zones: frozenset[Zone], out: frozenset[Zone]) -> Decision:
    """Leave the zone that a verdict isolates, unless one is out already or it is the last."""
    if verdict.kind is not VerdictKind.ISOLATED or verdict.zone is None:
        return Decision(None, f"a verdict of kind {verdict.kind} names no zone to leave")
    if verdict.zone in out:
        return Decision(None, f"zone {verdict.zone} is out already")
    if out:
        return Decision(None, f"zone {', '.join(sorted(out))} is out: never a second zone while one is")
    if not zones - {verdict.zone}:
        return Decision(None, f"zone {verdict.zone} is the only one there is")
    return Decision(verdict.zone, f"verdict {verdict.id}")
