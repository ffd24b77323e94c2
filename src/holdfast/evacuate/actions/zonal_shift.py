"""Shift the traffic of load balancers, Auto Scaling groups and EKS clusters away from a zone, by AWS ARC.

The comment of each shift has the id of our run, so that a shift of others is never cancelled or renewed. A shift
expires after 12 hours, unless it is renewed: if the operator's machine dies, balancers send traffic to the zone again.
The status does not expire: it stays out until somebody restores the zone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from holdfast._errors import Conflict, EngineError, HoldfastError, NotFound
from holdfast._types import Zone
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.action import (
    ACTIONS,
    PARALLEL_CALLS,
    RESTORE_SHIFT_STAGE,
    SHIFT_STAGE,
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
from holdfast.evacuate.discovering import discover_accounts
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.shift_candidates import PERMISSIONS, Candidates, build_resource, find_candidates
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS
from holdfast.evacuate.tags import find_tagged

SERVICE = "arc-zonal-shift"
DEFAULT_HOURS = 12
MAX_COMMENT = 128
_CUSTOMER_SHIFT, _AUTOSHIFT = "ZONAL_SHIFT", "ZONAL_AUTOSHIFT"
"""The types of a shift that a customer has started, by any tool, and of one that AWS has started."""
_WEAKER = {"PRACTICE_RUN": "a practice run", "FIS_EXPERIMENT": "an experiment of FIS"}
"""Shifts that ours ends. They are tests, so they are no sign that a zone fails."""
_CONNECTIONS = (
    "open connections stay until they are closed; target groups that are in one zone only, or that fail open, keep "
    "their traffic"
)
_SIDE_EFFECTS = {
    "loadbalancer/app": [_CONNECTIONS, "if it is behind a Network Load Balancer, only a shift of that has an effect"],
    "loadbalancer/net": [_CONNECTIONS],
    "autoScalingGroup": [
        "new instances start in other zones; those in the zone stay, and scaling policies do not remove them"
    ],
    "cluster": ["nodes in the zone are cordoned and get no traffic of services, but their pods keep running"],
}
"""By the beginning of the last part of the ARN."""
_REASONS = {
    "ZonalShiftAlreadyExists": "it has another zonal shift already",
    "ZonalShiftStatusNotActive": "the zonal shift has ended",
    "SimultaneousZonalShiftsConflict": "another zonal shift of it is being started or ended",
    "UnsupportedAz": "ARC does not support this zone for the resource: check in which zones it is",
    "InvalidAz": "this region has no such zone: check the AZ-ID",
}


class ZonalShiftOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the action `zonal-shift`."""

    hours: Annotated[int, Meta(ge=1, le=72)] = DEFAULT_HOURS
    """Hours after which a shift expires, unless it is renewed. AWS allows three days. Twelve hours outlast most
    incidents, and the night of an operator whose machine has died."""


class ZonalShift:
    """The action `zonal-shift`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = SHIFT_STAGE, RESTORE_SHIFT_STAGE
    parallel_calls = PARALLEL_CALLS
    timeout = 180.0
    """Seconds. A shift is mostly applied at once, but AWS promises no time."""

    def __init__(self, accounts: Accounts, *, hours: int = DEFAULT_HOURS) -> None:
        self._accounts = accounts
        self._expires_in = f"{hours}h"

    def discover(self, target: Target) -> Discovery:
        return discover_accounts(self._accounts, target, _discover)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        details = resource.details
        if details["away_from"] not in (None, target.zone):
            reason = f"{details['by']} has shifted it away from {details['away_from']}"
            return Unmovable(resource=resource, reason=reason)
        if len(details["zones"]) < 2:
            return Unmovable(resource=resource, reason="it has no other zone")
        effects = [f"ends {each}, which counts as interrupted" for each in details["ends"]]
        if target.zone in details["autoshifts"]:
            effects.append("takes precedence over the autoshift of AWS away from the same zone")
        ending = resource.id.split(":", 5)[5]
        effects += next((texts for start, texts in _SIDE_EFFECTS.items() if ending.startswith(start)), [])
        change = {
            "zone": target.zone,
            "run": target.run,
            "comment": build_comment(target),
            "expires_in": self._expires_in,
            "force": target.allows_second_zone,
        }
        text = f"start a zonal shift away from {target.zone} for {self._expires_in}"
        return PlannedChange(resource=resource, description=text, side_effects=effects, change=change)

    def read(self, entry: Entry) -> Reading:
        client = self._client(entry)
        try:
            with _translate(client):
                found = client.get_managed_resource(resourceIdentifier=entry.resource)
        except NotFound as error:
            return Reading(state=ChangeState.GONE, note=str(error))
        zone, shift = Zone(entry.change["zone"]), _find_shift(found)
        if shift is not None:
            return _read_shift(shift, entry, is_out=found["appliedWeights"].get(zone) == 0)
        if entry.state is EntryState.APPLIED and self._was_cancelled(entry):
            return Reading(
                state=ChangeState.DIFFERENT,
                note="others have cancelled the zonal shift of this run. The first `holdfast zone resume` only reports "
                "that, and the second one starts a new shift",
            )
        others = [each for each in _list_autoshifts(found) if each != zone]
        if others and entry.state is EntryState.INTENDED and not entry.change["force"]:
            # Ours would take precedence, and send traffic back to that zone.
            note = f"AWS has shifted it away from {others[0]}, by an autoshift"
            return Reading(state=ChangeState.DIFFERENT, note=note, other_zone=others[0])
        return Reading(state=ChangeState.ABSENT)

    def apply(self, entry: Entry) -> None:
        change, client = entry.change, self._client(entry)
        with _translate(client):
            client.start_zonal_shift(
                resourceIdentifier=entry.resource,
                awayFrom=change["zone"],
                expiresIn=change["expires_in"],
                comment=change["comment"],
            )

    def restore(self, entry: Entry, reading: Reading) -> None:
        client = self._client(entry)
        with _translate(client):
            client.cancel_zonal_shift(zonalShiftId=reading.record["id"])

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Extend the shift. Raise Conflict if it has ended meanwhile; the message says whether others ended it."""
        client = self._client(entry)
        try:
            with _translate(client):
                client.update_zonal_shift(zonalShiftId=reading.record["id"], expiresIn=entry.change["expires_in"])
        except Conflict as error:
            if self._was_cancelled(entry):
                raise Conflict(f"others have cancelled the zonal shift of this run, of {entry.resource}") from error
            raise

    def _was_cancelled(self, entry: Entry) -> bool:
        """Return whether our shift was cancelled, and has not just expired."""
        session = self._accounts.find(entry.resource).session
        # AWS does not say which states it lists by default.
        arguments = {"resourceIdentifier": entry.resource, "status": "CANCELED"}
        with _translate(session.client(SERVICE)):
            shifts = session.paginate(SERVICE, "list_zonal_shifts", **arguments)
            return any(each["zonalShiftId"] == entry.record.get("id") for each in shifts)

    def _client(self, entry: Entry) -> Any:
        return self._accounts.find(entry.resource).session.client(SERVICE)


def build_comment(target: Target) -> str:
    """Return the comment of a shift: the id of the run as a word, and as much of the reason as fits."""
    return f"{target.run} holdfast {target.reason}".strip()[:MAX_COMMENT]


def _discover(account: Account, target: Target) -> Discovery:
    """Find everything in one account."""
    session = account.reader
    with _translate(session.client(SERVICE)):
        items = list(session.paginate(SERVICE, "list_managed_resources"))
        autoshifts = list(session.paginate(SERVICE, "list_autoshifts", status="ACTIVE"))
    others = [OtherEvacuation(zone=Zone(each["awayFrom"]), source="an autoshift of AWS") for each in autoshifts]
    for item in items:
        shift = _find_shift(item)
        if shift is not None and not _is_of_run(shift, target.run):
            source = f"a zonal shift of {item.get('name', item['arn'])} ({shift['comment']!r})"
            others.append(OtherEvacuation(zone=Zone(shift["awayFrom"]), source=source, resource=item["arn"]))
    try:
        is_tagged = find_tagged(account, target.selection)
    except HoldfastError as error:  # the signs of other evacuations are known nevertheless
        return Discovery(
            other_evacuations=others, unreadable=[Unreadable(scope=f"the tags of {account.scope}", reason=str(error))]
        )
    candidates = Candidates([], [])
    if target.lists_unmovable:
        candidates = find_candidates(account, target.zone, {each["arn"] for each in items})
    here = [each for each in items if target.zone in each["availabilityZones"] and is_tagged(each["arn"])]
    return Discovery(
        resources=[_build_resource(each) for each in here],
        unmovable=[each for each in candidates.unmovable if is_tagged(each.resource.id)],
        other_evacuations=others,
        notes=candidates.notes,
    )


def _build_resource(item: Mapping[str, Any]) -> Resource:
    shift = _find_shift(item)
    return build_resource(
        item["arn"],
        item.get("name", item["arn"]),
        item["availabilityZones"],
        away_from=None if shift is None else shift["awayFrom"],
        by="" if shift is None else f"a zonal shift with the comment {shift['comment']!r}",
        ends=[_WEAKER[kind] for each in item.get("zonalShifts", ()) if (kind := each.get("shiftType")) in _WEAKER],
        autoshifts=_list_autoshifts(item),
    )


def _find_shift(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the zonal shift that a person or a program has started. A resource has at most one."""
    shifts: Sequence[Mapping[str, Any]] = item.get("zonalShifts", ())
    return next((each for each in shifts if each.get("shiftType", _CUSTOMER_SHIFT) == _CUSTOMER_SHIFT), None)


def _list_autoshifts(item: Mapping[str, Any]) -> list[Zone]:
    """Return the zones that AWS has shifted traffic of a resource away from, by autoshifts that are applied."""
    found = [*item.get("autoshifts", ())]
    found += [each for each in item.get("zonalShifts", ()) if each.get("shiftType") == _AUTOSHIFT]
    return [Zone(each["awayFrom"]) for each in found if each["appliedStatus"] == "APPLIED"]


def _is_of_run(shift: Mapping[str, Any], run: str) -> bool:
    return run in shift["comment"].split()


def _read_shift(shift: Mapping[str, Any], entry: Entry, *, is_out: bool) -> Reading:
    """Return what a zonal shift means for a change. `is_out` says that no traffic goes to the zone."""
    away, zone, expiry = Zone(shift["awayFrom"]), entry.change["zone"], shift["expiryTime"]
    expires = expiry.timestamp() if isinstance(expiry, datetime) else float(expiry)
    record = {"id": shift["zonalShiftId"], "expires": expires}
    if _is_of_run(shift, entry.change["run"]) and away == zone:
        is_effective = is_out and shift["appliedStatus"] == "APPLIED"
        return Reading(state=ChangeState.APPLIED, record=record, is_effective=is_effective)
    note = f"others have started a zonal shift away from {away}, with the comment {shift['comment']!r}"
    if away == zone:
        return Reading(state=ChangeState.FOUND, record=record, note=note)
    other_zone = None if entry.change["force"] else away
    return Reading(state=ChangeState.DIFFERENT, record=record, note=note, other_zone=other_zone)


@contextmanager
def _translate(client: Any) -> Iterator[None]:
    """Translate the errors that only ARC has."""
    try:
        yield
    except client.exceptions.ClientError as error:
        code, reason = error.response["Error"]["Code"], error.response.get("reason", "")
        text = error.response["Error"].get("Message") or error.response.get("message", code)
        message = f"AWS refused {error.operation_name}: {_REASONS.get(reason, reason or code)} ({text})"
        if code == "ConflictException":
            raise Conflict(message) from error  # read again: it may be our own shift
        if code == "ResourceNotFoundException":
            raise NotFound(f"{message}. It was deleted, or zonal shift is not enabled for it") from error
        raise EngineError(message) from error


ACTIONS.register("zonal-shift")(
    ActionType(
        open=lambda options, resources: ZonalShift(resources.accounts(), hours=options.hours),
        options_type=ZonalShiftOptions,
        permissions=(
            "arc-zonal-shift:CancelZonalShift",
            "arc-zonal-shift:GetManagedResource",
            "arc-zonal-shift:ListAutoshifts",
            "arc-zonal-shift:ListManagedResources",
            "arc-zonal-shift:ListZonalShifts",
            "arc-zonal-shift:StartZonalShift",
            "arc-zonal-shift:UpdateZonalShift",
            *PERMISSIONS,
            *TAG_PERMISSIONS,
        ),
        terraform="""\
# Terraform does not know zonal shifts, so it does not undo them. Enable them beforehand:
resource "aws_lb" "example" {
  enable_zonal_shift = true
}

resource "aws_eks_cluster" "example" {
  zonal_shift_config {
    enabled = true
  }
}
""",
    )
)
