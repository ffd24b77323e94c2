"""Shift the traffic of load balancers, Auto Scaling groups and EKS clusters away from a zone, by AWS ARC.

The comment of each shift has the id of our run, so that a shift of somebody else is never cancelled or renewed. A shift
expires after 12 hours, unless it is renewed: if the operator's machine dies, the zone comes back by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from holdfast._errors import Conflict, EngineError, EngineUnavailable, HoldfastError, NotFound
from holdfast._types import Zone
from holdfast.engines.aws import AwsSession
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

DEFAULT_HOURS = 12
MAX_COMMENT = 128
_TYPES = {"elasticloadbalancing": "load-balancer", "autoscaling": "auto-scaling-group", "eks": "eks-cluster"}
"""The type of a resource, by the service in its ARN."""
_KINDS = {
    "ZONAL_SHIFT": "a zonal shift",
    "PRACTICE_RUN": "a practice run",
    "FIS_EXPERIMENT": "an experiment of FIS",
    "ZONAL_AUTOSHIFT": "an autoshift of AWS",
}


@dataclass(frozen=True, slots=True)
class Account:
    """One account in one region, and a session with it."""

    session: AwsSession
    """Its calls must not be repeated by botocore: `AwsOptions(max_attempts=1)`."""
    account: str
    region: str

    @property
    def scope(self) -> str:
        return f"{self.account} {self.region}"


class ZonalShift:
    """The action `zonal-shift`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = 1, 2

    def __init__(self, accounts: Sequence[Account], *, hours: int = DEFAULT_HOURS) -> None:
        self._accounts = {each.scope: each for each in accounts}
        self._expires_in = f"{hours}h"

    def discover(self, target: Target) -> Discovery:
        resources: list[Resource] = []
        others: list[OtherEvacuation] = []
        unreadable: list[Unreadable] = []
        for account in self._accounts.values():
            try:
                with _translate("ListManagedResources"):
                    found = list(account.session.paginate("arc-zonal-shift", "list_managed_resources"))
                    autoshifts = account.session.paginate("arc-zonal-shift", "list_autoshifts", status="ACTIVE")
                    others += [
                        OtherEvacuation(zone=Zone(each["awayFrom"]), source=_KINDS["ZONAL_AUTOSHIFT"])
                        for each in autoshifts
                    ]
            except HoldfastError as error:
                unreadable.append(Unreadable(scope=account.scope, reason=str(error)))
                continue
            for item in found:
                others += _find_others(item, target.run)
                if target.zone in item["availabilityZones"]:
                    resources.append(_build_resource(item, account))
        return Discovery(resources=resources, other_evacuations=others, unreadable=unreadable)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        away = resource.details.get("away_from")
        if away not in (None, target.zone):
            return Unmovable(resource=resource, reason=f"{resource.details['by']} has shifted it away from {away}")
        if len(resource.details["zones"]) < 2:
            return Unmovable(resource=resource, reason="it has no other zone")
        effects = []
        if resource.details.get("practice_run"):
            effects.append("ends a practice run, which counts as interrupted")
        change = {
            "zone": target.zone,
            "run": target.run,
            "scope": f"{resource.account} {resource.region}",
            "comment": build_comment(target),
            "expires_in": self._expires_in,
        }
        text = f"start a zonal shift away from {target.zone} for {self._expires_in}"
        return PlannedChange(resource=resource, description=text, side_effects=effects, change=change)

    def read(self, entry: Entry) -> Reading:
        client = self._client(entry)
        try:
            with _translate("GetManagedResource"):
                found = client.get_managed_resource(resourceIdentifier=entry.resource)
        except NotFound as error:
            return Reading(state=ChangeState.GONE, note=str(error))
        zone = entry.change["zone"]
        for shift in found["zonalShifts"]:
            if shift.get("shiftType", "ZONAL_SHIFT") != "ZONAL_SHIFT":
                continue  # ours ends a practice run
            is_ours = entry.change["run"] in shift["comment"].split()
            record = {"id": shift["zonalShiftId"], "expires": _to_seconds(shift["expiryTime"])}
            if is_ours and shift["awayFrom"] == zone:
                is_effective = shift["appliedStatus"] == "APPLIED" and found["appliedWeights"].get(zone) == 0
                return Reading(state=ChangeState.APPLIED, record=record, is_effective=is_effective)
            note = f"a zonal shift away from {shift['awayFrom']}, with the comment {shift['comment']!r}"
            state = ChangeState.FOUND if shift["awayFrom"] == zone else ChangeState.DIFFERENT
            return Reading(state=state, record=record, note=f"somebody else has started {note}")
        return Reading(state=ChangeState.ABSENT)

    def apply(self, entry: Entry) -> None:
        change = entry.change
        with _translate("StartZonalShift"):
            self._client(entry).start_zonal_shift(
                resourceIdentifier=entry.resource,
                awayFrom=change["zone"],
                expiresIn=change["expires_in"],
                comment=change["comment"],
            )

    def restore(self, entry: Entry, reading: Reading) -> None:
        with _translate("CancelZonalShift"):
            self._client(entry).cancel_zonal_shift(zonalShiftId=reading.record["id"])

    def renew(self, entry: Entry, reading: Reading) -> None:
        with _translate("UpdateZonalShift"):
            self._client(entry).update_zonal_shift(
                zonalShiftId=reading.record["id"], expiresIn=entry.change["expires_in"]
            )

    def _client(self, entry: Entry) -> Any:
        scope = entry.change["scope"]
        if scope not in self._accounts:
            raise NotFound(f"{entry.resource} is in account and region {scope}, which are not configured here")
        return self._accounts[scope].session.client("arc-zonal-shift")


def build_comment(target: Target) -> str:
    """Return the comment of a shift: the id of the run as a word, and as much of the reason as fits."""
    return f"{target.run} holdfast {target.reason}".strip()[:MAX_COMMENT]


def _build_resource(item: Mapping[str, Any], account: Account) -> Resource:
    active = next(
        (each for each in item.get("zonalShifts", ()) if each.get("shiftType", "ZONAL_SHIFT") == "ZONAL_SHIFT"), None
    )
    details: dict[str, Any] = {
        "zones": list(item["availabilityZones"]),
        "practice_run": any(each.get("shiftType") == "PRACTICE_RUN" for each in item.get("zonalShifts", ())),
    }
    if active is not None:
        details |= {"away_from": active["awayFrom"], "by": f"a zonal shift with the comment {active['comment']!r}"}
    service = item["arn"].split(":")[2]
    return Resource(
        id=item["arn"],
        type=_TYPES.get(service, service),
        name=item.get("name", item["arn"]),
        account=account.account,
        region=account.region,
        details=details,
    )


def _find_others(item: Mapping[str, Any], run: str) -> Iterator[OtherEvacuation]:
    """Yield who else has shifted traffic of a resource. A practice run has little effect, and ours would end it."""
    for shift in item.get("zonalShifts", ()):
        kind = shift.get("shiftType", "ZONAL_SHIFT")
        if run not in shift["comment"].split() and kind == "ZONAL_SHIFT":
            source = f"{_KINDS[kind]} of {item.get('name', item['arn'])} ({shift['comment']!r})"
            yield OtherEvacuation(zone=Zone(shift["awayFrom"]), source=source, resource=item["arn"])


def _to_seconds(value: datetime | float) -> float:
    return value.timestamp() if isinstance(value, datetime) else float(value)


@contextmanager
def _translate(call: str) -> Iterator[None]:
    """Translate the errors that only ARC has."""
    try:
        yield
    except ClientError as error:
        code, reason = error.response["Error"]["Code"], error.response.get("reason", "")
        message = f"ARC refused {call}: {error.response['Error'].get('Message') or error.response.get('message', code)}"
        if code == "ConflictException":
            raise Conflict(message) from error  # read again: it may be our own shift
        if code == "ResourceNotFoundException":
            raise NotFound(f"{message}. It was deleted, or zonal shift is not enabled for it") from error
        if code == "InternalServerException":
            raise EngineUnavailable(message) from error
        raise EngineError(f"{message} ({reason})" if reason else message) from error
