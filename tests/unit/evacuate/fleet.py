"""A control plane in memory, with an action that moves its resources. Calls can fail as those of AWS do."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from holdfast import EngineUnavailable, OutcomeUnknown, StatusStore, Zone
from holdfast.evacuate.action import Action, ChangeState, Discovery, PlannedChange, Reading, Resource, Target, Unmovable
from holdfast.evacuate.actions.status import MarkOut
from holdfast.evacuate.evacuator import Evacuator
from holdfast.evacuate.journal import Entry, Journal
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.service import EvacuationMode, EvacuationService
from holdfast.status.writer import StatusWriter
from holdfast.testing import FakeClock

ZONE, OTHER = Zone("use1-az1"), Zone("use1-az2")


class Killed(BaseException):
    """Ends a run as kill -9 does: no handler of errors runs."""


class ControlPlane:
    """Resources, each with the zones that it uses, and the run that removed a zone."""

    def __init__(self, number: int) -> None:
        self.zones = {f"arn:{index:03}": {ZONE, OTHER} for index in range(number)}
        self.owners: dict[str, str] = {}
        """The run, or person, that removed ZONE from a resource."""
        self.writes = 0
        self.before_write: Callable[[str], None] = lambda _: None
        self.after_write: Callable[[str], None] = lambda _: None
        self.lock = threading.Lock()

    def copy(self) -> Mapping[str, Any]:
        return {name: frozenset(zones) for name, zones in self.zones.items()}

    def write(self, name: str, zones: set[Zone], owner: str | None) -> None:
        self.before_write(name)
        with self.lock:
            self.writes += 1
            self.zones[name] = zones
            self.owners.pop(name, None)
            if owner is not None:
                self.owners[name] = owner
        self.after_write(name)


class RemoveZone:
    """An action that removes a zone from the resources of a ControlPlane."""

    evacuation_stage, restoration_stage = 1, 2
    parallel_calls = 4
    timeout = 180.0

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def discover(self, target: Target) -> Discovery:
        return Discovery(resources=[Resource(id=name, type="group", name=name) for name in sorted(self.plane.zones)])

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        zones = self.plane.zones[resource.id]
        if zones == {target.zone}:
            return Unmovable(resource=resource, reason="it has no other zone")
        change = {"run": target.run, "zone": target.zone}
        return PlannedChange(resource=resource, description=f"remove {target.zone}", change=change)

    def read(self, entry: Entry) -> Reading:
        zones = self.plane.zones.get(entry.resource)
        if zones is None:
            return Reading(state=ChangeState.GONE)
        if entry.change["zone"] in zones:
            return Reading(state=ChangeState.ABSENT)
        is_ours = self.plane.owners.get(entry.resource) == entry.change["run"]
        return Reading(state=ChangeState.APPLIED if is_ours else ChangeState.FOUND, record={"was": "there"})

    def apply(self, entry: Entry) -> None:
        zones = self.plane.zones[entry.resource] - {entry.change["zone"]}
        self.plane.write(entry.resource, zones, entry.change["run"])

    def restore(self, entry: Entry, reading: Reading) -> None:
        self.plane.write(entry.resource, self.plane.zones[entry.resource] | {entry.change["zone"]}, None)

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Nothing expires."""


class MovingClock(FakeClock):
    """A clock whose sleeps pass at once, also in threads."""

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)


def lose_reply(_: str) -> None:
    raise OutcomeUnknown("the reply was lost")


def throttle(_: str) -> None:
    raise EngineUnavailable("too many requests")


def build_actions(store: StatusStore, clock: FakeClock, plane: ControlPlane | None = None) -> dict[str, Action]:
    """Return an action that marks zones as out, and with a control plane, one that removes them there."""
    actions: dict[str, Action] = {"status": MarkOut({"main": StatusWriter(store, clock)}, clock)}
    return actions if plane is None else actions | {"remove": RemoveZone(plane)}


def build_service(
    store: StatusStore,
    clock: FakeClock,
    zones: Collection[Zone] = (ZONE, OTHER),
    *,
    mode: EvacuationMode = EvacuationMode.AUTOMATIC,
    journal: Journal | None = None,
    plane: ControlPlane | None = None,
) -> EvacuationService:
    """Return a service that marks zones as out, and works in the foreground."""
    actions = build_actions(store, clock, plane)
    evacuator = Evacuator(actions, journal or MemoryJournal(), store, clock, find_zones=lambda *_: zones)
    return EvacuationService(evacuator, clock, mode=mode, name="server here", run_in_background=lambda work: work())
