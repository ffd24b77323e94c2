"""The state of AWS ARC zonal shift in one account and region, with the behaviour that AWS documents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast._clock import Clock
from holdfast._types import Zone
from holdfast.simulate.aws.protocols import Refusal, ServiceError

MAX_MINUTES = 72 * 60
Handler = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Carries out one operation: from its parameters to its reply."""


@dataclass(slots=True)
class Shift:
    """A zonal shift, a practice run, or a FIS experiment."""

    id: str
    resource: str
    zone: Zone
    comment: str
    start: float
    expiry: float
    status: str = "ACTIVE"
    type: str = "ZONAL_SHIFT"

    def to_summary(self) -> dict[str, Any]:
        return {
            "zonalShiftId": self.id,
            "resourceIdentifier": self.resource,
            "awayFrom": self.zone,
            "expiryTime": self.expiry,
            "startTime": self.start,
            "status": self.status,
            "comment": self.comment,
        }


@dataclass(slots=True)
class ManagedResource:
    """A balancer, an Auto Scaling group or a cluster that has zonal shift enabled."""

    arn: str
    name: str
    zones: tuple[Zone, ...]
    autoshift: Zone | None = None
    """The zone that AWS has shifted traffic away from."""


@dataclass(slots=True)
class Arc:
    """The state of ARC in one account and region. The caller holds a lock."""

    clock: Clock
    resources: dict[str, ManagedResource] = field(default_factory=dict)
    shifts: list[Shift] = field(default_factory=list)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All operations, by name."""
        return {
            "ListManagedResources": self._list_resources,
            "GetManagedResource": self._get_resource,
            "ListZonalShifts": self._list_shifts,
            "ListAutoshifts": self._list_autoshifts,
            "StartZonalShift": self._start,
            "UpdateZonalShift": self._update,
            "CancelZonalShift": self._cancel,
        }

    def add(self, arn: str, name: str, *zones: Zone) -> ManagedResource:
        """Add a resource that has zonal shift enabled."""
        found = self.resources[arn] = ManagedResource(arn, name, zones)
        return found

    def start_shift(self, arn: str, zone: Zone, comment: str, *, minutes: int = 60, type: str = "ZONAL_SHIFT") -> Shift:  # noqa: A002
        """Start a shift of another person or program, without a call."""
        now = self.clock.wall()
        shift = Shift(f"shift-{len(self.shifts):06}", arn, zone, comment, now, now + 60 * minutes, type=type)
        self.shifts.append(shift)
        return shift

    def get_active(self, arn: str) -> Shift | None:
        """Return the active shift of a resource."""
        self._expire()
        found = [each for each in self.shifts if each.resource == arn and each.status == "ACTIVE"]
        return max(found, key=lambda each: _PRECEDENCE.index(each.type), default=None)

    def _expire(self) -> None:
        now = self.clock.wall()
        for each in self.shifts:
            if each.status == "ACTIVE" and now >= each.expiry:
                each.status = "EXPIRED"

    def _find(self, arn: str) -> ManagedResource:
        if arn not in self.resources:
            raise ServiceError("ResourceNotFoundException", f"{arn} is not a managed resource")
        return self.resources[arn]

    def _summarize(self, resource: ManagedResource) -> dict[str, Any]:
        shift = self.get_active(resource.arn)
        away = shift.zone if shift is not None else resource.autoshift
        shifts = [] if shift is None else [_to_part(shift)]
        autoshifts = []
        if resource.autoshift is not None:
            applied = "NOT_APPLIED" if shift is not None and shift.type == "ZONAL_SHIFT" else "APPLIED"
            autoshifts = [{"appliedStatus": applied, "awayFrom": resource.autoshift, "startTime": self.clock.wall()}]
        return {
            "arn": resource.arn,
            "name": resource.name,
            "availabilityZones": list(resource.zones),
            "appliedWeights": {zone: 0.0 if zone == away else 1.0 for zone in resource.zones},
            "zonalShifts": shifts,
            "autoshifts": autoshifts,
        }

    def _list_resources(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"items": [self._summarize(each) for _, each in sorted(self.resources.items())]}

    def _get_resource(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = self._summarize(self._find(values["resourceIdentifier"]))
        del found["availabilityZones"]
        return found

    def _list_shifts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._expire()
        wanted, arn = values.get("status"), values.get("resourceIdentifier")
        found = [
            each.to_summary() | {"shiftType": each.type}
            for each in self.shifts
            if wanted in (None, each.status) and arn in (None, each.resource)
        ]
        return {"items": found}

    def _list_autoshifts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        zones = sorted({each.autoshift for each in self.resources.values() if each.autoshift is not None})
        found = [{"awayFrom": zone, "startTime": self.clock.wall(), "status": "ACTIVE"} for zone in zones]
        return {"items": [] if values.get("status") == "COMPLETED" else found}

    def _start(self, values: Mapping[str, Any]) -> dict[str, Any]:
        resource = self._find(values["resourceIdentifier"])
        if values["awayFrom"] not in resource.zones:
            raise ServiceError(Refusal.INVALID, f"{resource.arn} is not in that zone", reason="UnsupportedAz")
        minutes = _parse_minutes(values["expiresIn"])
        active = self.get_active(resource.arn)
        if active is not None and active.type == "ZONAL_SHIFT":
            raise ServiceError(
                "ConflictException",
                f"{resource.arn} has a zonal shift already",
                reason="ZonalShiftAlreadyExists",
                zonalShiftId=active.id,
            )
        if active is not None:
            active.status = "CANCELED"  # a customer's shift ends a practice run
        return self.start_shift(resource.arn, values["awayFrom"], values["comment"], minutes=minutes).to_summary()

    def _update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        shift = self._require_active(values["zonalShiftId"])
        if "comment" in values:
            shift.comment = values["comment"]
        if "expiresIn" in values:
            shift.expiry = self.clock.wall() + 60 * _parse_minutes(values["expiresIn"])
        return shift.to_summary()

    def _cancel(self, values: Mapping[str, Any]) -> dict[str, Any]:
        shift = self._require_active(values["zonalShiftId"])
        shift.status = "CANCELED"
        return shift.to_summary()

    def _require_active(self, shift_id: str) -> Shift:
        self._expire()
        shift = next((each for each in self.shifts if each.id == shift_id), None)
        if shift is None:
            raise ServiceError("ResourceNotFoundException", f"there is no zonal shift {shift_id}")
        if shift.status != "ACTIVE":
            text = f"zonal shift {shift.id} is {shift.status}"
            raise ServiceError("ConflictException", text, reason="ZonalShiftStatusNotActive", zonalShiftId=shift.id)
        return shift


_PRECEDENCE = ("FIS_EXPERIMENT", "PRACTICE_RUN", "ZONAL_AUTOSHIFT", "ZONAL_SHIFT")


def _to_part(shift: Shift) -> dict[str, Any]:
    summary = shift.to_summary() | {"appliedStatus": "APPLIED", "shiftType": shift.type}
    del summary["status"]
    return summary


def _parse_minutes(text: str) -> int:
    minutes = int(text[:-1]) * (60 if text.endswith("h") else 1)
    if minutes > MAX_MINUTES:
        raise ServiceError(Refusal.INVALID, f"{text} is longer than three days", reason="InvalidExpiresIn")
    return minutes
