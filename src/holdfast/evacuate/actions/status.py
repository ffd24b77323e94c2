"""Mark the zone as out in one or several status stores, which hosts, clients and DNS health checks obey.

Every store is a resource of its own. A run that reaches most of them is a success: readers of several stores follow the
majority.
"""

from collections.abc import Mapping

from holdfast._clock import Clock
from holdfast._errors import EngineError
from holdfast._types import StatusStore, Zone, ZoneState, ZoneStatus
from holdfast.evacuate.action import (
    ChangeState,
    Discovery,
    OtherEvacuation,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
    Unreadable,
)
from holdfast.evacuate.journal import Entry
from holdfast.status.writer import StatusWriter, find_others_out

TYPE = "status"


class MarkOut:
    """The action `status`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = 1, 2

    def __init__(self, stores: Mapping[str, StatusStore], clock: Clock) -> None:
        self._stores = stores
        self._clock = clock
        self._writers = {name: StatusWriter(store, clock) for name, store in stores.items()}

    def discover(self, target: Target) -> Discovery:
        resources: list[Resource] = []
        others: list[OtherEvacuation] = []
        unreadable: list[Unreadable] = []
        for name, store in self._stores.items():
            try:
                out = find_others_out(store.read(), target.zone, target.workload, self._clock.wall())
            except EngineError as error:
                unreadable.append(Unreadable(scope=name, reason=str(error)))
                continue
            others += [OtherEvacuation(zone=zone, source=f"the status store {name}") for zone in sorted(out)]
            resources.append(Resource(id=f"status:{name}", type=TYPE, name=name))
        return Discovery(resources=resources, other_evacuations=others, unreadable=unreadable)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        reason = f"{target.reason or 'evacuation'} (run {target.run})"
        change = {"store": resource.name, "zone": target.zone, "workload": target.workload, "run": target.run}
        text = f"mark {target.zone} as out for {target.workload or 'all workloads'}"
        return PlannedChange(resource=resource, description=text, change=change | {"reason": reason})

    def read(self, entry: Entry) -> Reading:
        status = self._find(entry)
        if status is None or not status.is_out(self._clock.wall()):
            return Reading(state=ChangeState.ABSENT)
        if status.by == entry.change["run"]:
            # One that expires is the first of the two writes by which a zone is taken out.
            is_final = status.expires is None
            return Reading(state=ChangeState.APPLIED, record={"version": status.version}, is_effective=is_final)
        return Reading(state=ChangeState.FOUND, note=f"{status.by} has marked it as out: {status.reason}")

    def apply(self, entry: Entry) -> None:
        change = entry.change
        writer = self._writers[change["store"]]
        writer.take_out(
            Zone(change["zone"]), change["workload"], by=change["run"], reason=change["reason"], renew=False
        )

    def restore(self, entry: Entry, reading: Reading) -> None:
        change = entry.change
        status = ZoneStatus(
            zone=Zone(change["zone"]),
            workload=change["workload"],
            state=ZoneState.IN,
            since=self._clock.wall(),
            by=change["run"],
            reason=f"restored (run {change['run']})",
        )
        self._stores[change["store"]].write(status, reading.record["version"])

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Nothing expires."""

    def _find(self, entry: Entry) -> ZoneStatus | None:
        key = entry.change["zone"], entry.change["workload"]
        found = self._stores[entry.change["store"]].read()
        return next((each for each in found if (each.zone, each.workload) == key), None)
