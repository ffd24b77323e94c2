"""Acting on a verdict: marking the zone as out."""

from holdfast._clock import Clock
from holdfast._errors import Conflict
from holdfast._types import StatusStore, Verdict, Zone, ZoneStatus
from holdfast.evacuate.guard import decide

BY = "holdfast"
_TRIES = 3
"""Writes of the same status that may collide before somebody must look: operators do not write faster than that."""


class Evacuator:
    """Carries out what the guard allows. Idempotent: a verdict that was acted upon changes nothing more."""

    def __init__(self, store: StatusStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def out(self, workload: str) -> frozenset[Zone]:
        """The zones that are out for a workload now, or for all."""
        now = self._clock.wall()
        return frozenset(
            status.zone for status in self._store.read() if status.workload in (None, workload) and status.is_out(now)
        )

    def act(self, verdict: Verdict, zones: frozenset[Zone]) -> ZoneStatus | None:
        """Mark the verdict's zone as out for its workload, if that is allowed; returns the new status if it was."""
        for attempt in range(_TRIES):
            decision = decide(verdict, zones, self.out(verdict.workload))
            if decision.zone is None:
                return None
            known = {(status.zone, status.workload): status.version for status in self._store.read()}
            status = ZoneStatus(
                zone=decision.zone,
                workload=verdict.workload,
                out=True,
                since=self._clock.wall(),
                by=BY,
                reason=decision.reason,
            )
            try:
                return self._store.write(status, known.get((decision.zone, verdict.workload), 0))
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
        return None
