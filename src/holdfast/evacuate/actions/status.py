"""Mark the zone as out in one or several status stores, which hosts, clients and DNS health checks obey.

Every store is a resource of its own. Readers of several stores follow the majority, so they avoid the zone as soon as
most stores have it as out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast._clock import Clock
from holdfast._errors import EngineError, InvalidValue, NotFound
from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.evacuate.action import (
    ACTIONS,
    LOCK_STAGE,
    PARALLEL_CALLS,
    RESTORE_STATUS_STAGE,
    ActionType,
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
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.status.stores import STATUS_STORES
from holdfast.status.writer import MAX_REASON_CHARACTERS, StatusWriter, find_others_out

TYPE = "status"


class StatusOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the action `status`."""

    stores: tuple[str, ...] = ()
    """Addresses of status stores; none means `status.store` of the settings."""

    def __post_init__(self) -> None:
        for address in self.stores:
            try:
                STATUS_STORES.check(address)
            except InvalidValue as error:
                raise InvalidValue(f"stores: {error}") from error


class MarkOut:
    """The action `status`. See `holdfast.evacuate.action.Action`."""

    # First, and last in a restore: of two operators who evacuate different zones at the same time, the store stops one.
    evacuation_stage, restoration_stage = LOCK_STAGE, RESTORE_STATUS_STAGE
    parallel_calls = PARALLEL_CALLS
    timeout = 20.0
    """Seconds. All other actions wait for the stores, so a store that is down must not delay them for long; it is more
    than the settling time of a write."""

    def __init__(self, writers: Mapping[str, StatusWriter], clock: Clock) -> None:
        self._writers = writers
        self._clock = clock

    def discover(self, target: Target) -> Discovery:
        resources: list[Resource] = []
        others: list[OtherEvacuation] = []
        unreadable: list[Unreadable] = []
        for name, writer in self._writers.items():
            try:
                out = find_others_out(writer.store.read(), target.zone, None, self._clock.wall())
            except EngineError as error:
                unreadable.append(Unreadable(scope=f"the status store {name}", reason=str(error)))
                continue
            others += [OtherEvacuation(zone=zone, source=f"a status in the store {name}") for zone in sorted(out)]
            resources.append(Resource(id=_build_id(name, target.workload), type=TYPE, name=name))
        return Discovery(resources=resources, other_evacuations=others, unreadable=unreadable)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        ending = f" (run {target.run})"
        reason = (target.reason or "evacuation")[: MAX_REASON_CHARACTERS - len(ending)] + ending
        change = {
            "store": resource.name,
            "zone": target.zone,
            "workload": target.workload,
            "run": target.run,
            "force": target.allows_second_zone,
        }
        text = f"mark {target.zone} as out for {target.workload or 'all workloads'}"
        return PlannedChange(resource=resource, description=text, change=change | {"reason": reason})

    def read(self, entry: Entry) -> Reading:
        change, now = entry.change, self._clock.wall()
        statuses = self._get_writer(entry).store.read()
        status = _find(statuses, change)
        if status is not None and status.is_out(now) and status.by != change["run"]:
            return Reading(state=ChangeState.FOUND, note=f"{status.by} has marked it as out: {status.reason}")
        # For any workload: other actions move resources of all workloads.
        others = sorted(find_others_out(statuses, Zone(change["zone"]), None, now))
        other = others[0] if others and entry.state is EntryState.INTENDED and not change["force"] else None
        # A status that expires is the first of the two writes by which a zone is taken out.
        is_final = status is not None and (status.expires is None or entry.state is EntryState.RESTORING)
        if status is not None and status.is_out(now) and is_final:
            return Reading(state=ChangeState.APPLIED, record={"version": status.version}, other_zone=other)
        if other is not None:
            note = f"{other} is out, and only one zone of a region may be out"
            return Reading(state=ChangeState.DIFFERENT, note=note, other_zone=other)
        return Reading(state=ChangeState.ABSENT)

    def apply(self, entry: Entry) -> None:
        change = entry.change
        known = _find(self._get_writer(entry).store.read(), change)
        self._get_writer(entry).take_out(
            Zone(change["zone"]),
            change["workload"],
            by=change["run"],
            reason=change["reason"],
            force=change["force"],
            any_workload=True,  # other actions move resources of all workloads
            renew=known is not None and known.by == change["run"],  # never a status of an operator
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
        self._get_writer(entry).store.write(status, reading.record["version"])

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Nothing expires."""

    def _get_writer(self, entry: Entry) -> StatusWriter:
        name = entry.change["store"]
        if name not in self._writers:
            raise NotFound(f"the status store {name} is not configured here: add it to the action `status`")
        return self._writers[name]


def _build_id(store: str, workload: str | None) -> str:
    """Return the name of a store for one workload, because two workloads have statuses of their own in it."""
    return f"status:{store}" if workload is None else f"status:{store} ({workload})"


def _find(statuses: Sequence[ZoneStatus], change: Mapping[str, Any]) -> ZoneStatus | None:
    key = change["zone"], change["workload"]
    return next((each for each in statuses if (each.zone, each.workload) == key), None)


ACTIONS.register("status")(
    ActionType(
        open=lambda options, resources: MarkOut(resources.status_writers(options.stores), resources.clock),
        options_type=StatusOptions,
    )
)
