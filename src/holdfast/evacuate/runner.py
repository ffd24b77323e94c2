"""Acting on a verdict: marking the zone as out."""

from holdfast._clock import Clock
from holdfast._types import StatusStore, Verdict, Zone, ZoneStatus
from holdfast.evacuate.guard import decide
from holdfast.status.change import Changes

BY = "holdfast"


class Evacuator:
    """Carries out what the guard allows. Idempotent: a verdict that was acted upon changes nothing more."""

    def __init__(self, store: StatusStore, clock: Clock, changes: Changes) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes

    def out(self, workload: str) -> frozenset[Zone]:
        """The zones that are out for a workload now, or for all."""
        now = self._clock.wall()
        return frozenset(
            status.zone for status in self._store.read() if status.workload in (None, workload) and status.is_out(now)
        )

    def act(self, verdict: Verdict, zones: frozenset[Zone]) -> ZoneStatus | None:
        """Mark the verdict's zone as out for its workload, if that is allowed; returns the new status if it was.

        Raises Conflict if somebody takes another zone out at the same moment.
        """
        decision = decide(verdict, zones, self.out(verdict.workload) & zones)
        if decision.zone is None:
            return None
        # What an operator has taken out meanwhile keeps its reason and its end.
        return self._changes.take_out(decision.zone, verdict.workload, by=BY, reason=decision.reason, renew=False)
