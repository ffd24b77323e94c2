"""Decide whether a verdict may send a zone away, and mark it as out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._types import StatusStore, Verdict, VerdictKind, Zone, ZoneState, ZoneStatus

if TYPE_CHECKING:
    from holdfast._clock import Clock
    from holdfast.status.change import Changes

BY = "holdfast"
_STRICTEST_FIRST = (ZoneState.OUT, ZoneState.DRAINING, ZoneState.RETURNING)


@dataclass(frozen=True, slots=True)
class Decision:
    """Which zone to leave, if any, and why (not)."""

    zone: Zone | None
    reason: str


def decide(verdict: Verdict, zones: frozenset[Zone], states: Mapping[Zone, ZoneState]) -> Decision:
    """Leave the zone that a verdict isolates, unless another one is not fully in, or it is the last.

    `states` has the zones that are not in; one that is returning does not carry all of its traffic yet, and counts.
    """
    if verdict.kind is not VerdictKind.ISOLATED or verdict.zone is None:
        return Decision(None, f"a verdict of kind {verdict.kind} names no zone to leave")
    if states.get(verdict.zone) in (ZoneState.OUT, ZoneState.DRAINING):
        return Decision(None, f"zone {verdict.zone} is {states[verdict.zone]} already")
    others = sorted(f"{zone} is {state}" for zone, state in states.items() if zone in zones - {verdict.zone})
    if others:
        return Decision(None, f"zone {', '.join(others)}: never a second zone while one is not in")
    if not zones - {verdict.zone}:
        return Decision(None, f"zone {verdict.zone} is the only one there is")
    return Decision(verdict.zone, f"verdict {verdict.id}")


class Evacuator:
    """Carries out what the guard allows. Idempotent: acting on a verdict again changes nothing more."""

    def __init__(self, store: StatusStore, clock: "Clock", changes: "Changes") -> None:
        self._store = store
        self._clock = clock
        self._changes = changes

    def states(self, workload: str) -> Mapping[Zone, ZoneState]:
        """Return the state of each zone that is not in, for a workload or for all; the stricter one of the two."""
        now = self._clock.wall()
        found: dict[Zone, ZoneState] = {}
        for status in self._store.read():
            state = status.state_at(now)
            if status.workload in (None, workload) and state is not ZoneState.IN:
                known = found.get(status.zone, state)
                found[status.zone] = min(known, state, key=_STRICTEST_FIRST.index)
        return found

    def act(self, verdict: Verdict, zones: frozenset[Zone]) -> ZoneStatus | None:
        """Mark the verdict's zone as out for its workload, if that is allowed; return the new status if it was.

        Raise Conflict if another zone is taken out at the same moment.
        """
        decision = decide(verdict, zones, self.states(verdict.workload))
        if decision.zone is None:
            return None
        # A zone that an operator has taken out meanwhile keeps the operator's reason and end.
        return self._changes.take_out(decision.zone, verdict.workload, by=BY, reason=decision.reason, renew=False)
