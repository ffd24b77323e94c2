"""Evacuate the zone of a verdict: mark it as out, if the guard allows it."""

from collections.abc import Iterable, Mapping

from holdfast._clock import Clock
from holdfast._types import StatusStore, Verdict, Zone, ZoneState, ZoneStatus
from holdfast.evacuate.guard import decide_evacuation
from holdfast.status.writer import StatusWriter

BY = "holdfast"
_STRICTEST_FIRST = (ZoneState.OUT, ZoneState.DRAINING, ZoneState.RETURNING)


class Evacuator:
    """Takes zones out after verdicts, if `decide_evacuation` allows it. Repeating a verdict changes nothing."""

    def __init__(self, store: StatusStore, clock: Clock, status_writer: StatusWriter) -> None:
        self._store = store
        self._clock = clock
        self._status_writer = status_writer

    def read_states(self, workload: str) -> Mapping[Zone, ZoneState]:
        """Return the state of each zone that is not in, for `workload` or for all; the stricter of the two."""
        return find_states(self._store.read(), workload, self._clock.wall())

    def evacuate(self, verdict: Verdict, zones: frozenset[Zone]) -> ZoneStatus | None:
        """Mark the verdict's zone as out for its workload if `decide_evacuation` allows it. Return the status, or None.

        Raise Conflict if another zone is taken out at the same time.
        """
        decision = decide_evacuation(verdict, zones, self.read_states(verdict.workload))
        if decision.zone is None:
            return None
        # If an operator has taken the zone out meanwhile, keep the operator's reason and expiry.
        return self._status_writer.take_out(decision.zone, verdict.workload, by=BY, reason=decision.reason, renew=False)


def find_states(statuses: Iterable[ZoneStatus], workload: str, now: float) -> dict[Zone, ZoneState]:
    """Return the state of each zone that is not in, for `workload` or for all; the stricter of the two."""
    found: dict[Zone, ZoneState] = {}
    for status in statuses:
        state = status.state_at(now)
        if status.workload in (None, workload) and state is not ZoneState.IN:
            known = found.get(status.zone, state)
            found[status.zone] = min(known, state, key=_STRICTEST_FIRST.index)
    return found
