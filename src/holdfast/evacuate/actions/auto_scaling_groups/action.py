"""Move the instances of Auto Scaling groups away from a zone, by removing the subnets of the zone from the groups.

AWS launches instances in the other zones first, and then terminates those in the zone. A group with zonal shift is left
to the action `zonal-shift`, and a node group of EKS to its cluster. Nothing in a group shows who changed its subnets,
so the journal decides whose change it is.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast._errors import EngineError, EngineUnavailable
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.action import (
    ACTIONS,
    CAPACITY_STAGE,
    PARALLEL_CALLS,
    RESTORE_CAPACITY_STAGE,
    ActionType,
    ChangeState,
    Discovery,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
)
from holdfast.evacuate.actions.auto_scaling_groups.discovery import PERMISSIONS as GROUP_PERMISSIONS
from holdfast.evacuate.actions.auto_scaling_groups.discovery import SERVICE, find_groups
from holdfast.evacuate.discovering import discover_accounts
from holdfast.evacuate.groups import count_units, list_healthy, list_subnets, list_suspended
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.refusals import BUSY, translate_refusals
from holdfast.evacuate.subnets import PERMISSIONS as SUBNET_PERMISSIONS
from holdfast.evacuate.subnets import add_subnets, find_existing, read_removal, remove_subnets
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS
from holdfast.evacuate.zonal_traffic import PERMISSIONS as TRAFFIC_PERMISSIONS
from holdfast.evacuate.zonal_traffic import require_shifted

_LAUNCHING = {"AZRebalance", "Launch"}
"""The processes without which a group launches no instances in a zone that comes back."""
_RECORDED = ("removed", "before", "instances", "units", "zone_name", "shifted_first")
"""The details of a group that are stored in the journal."""


class AutoScalingGroupsOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the action `auto-scaling-groups`. There are none."""


class AutoScalingGroups:
    """The action `auto-scaling-groups`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = CAPACITY_STAGE, RESTORE_CAPACITY_STAGE
    parallel_calls = PARALLEL_CALLS
    timeout = 900.0
    """Seconds. In a restore, instances must start, pass health checks and warm up before traffic returns."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def discover(self, target: Target) -> Discovery:
        return discover_accounts(self._accounts, target, _discover)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        details = resource.details
        remaining = len(remove_subnets(details["before"], details["removed"]))
        removed = ", ".join(details["removed"])
        text = f"remove {removed} in {target.zone} from its subnets; {remaining} in other zones remain"
        change = {"zone": target.zone, "name": resource.name, **{each: details[each] for each in _RECORDED}}
        effects = details["side_effects"]
        return PlannedChange(resource=resource, description=text, side_effects=effects, change=change)

    def read(self, entry: Entry) -> Reading:
        session, removed = self._accounts.find(entry.resource).session, entry.change["removed"]
        with translate_refusals(session, BUSY):
            group = _find_group(session.client(SERVICE), entry)
            if group is None:
                return Reading(state=ChangeState.GONE, note="the group was deleted")
            if group.get("Status"):
                return Reading(state=ChangeState.GONE, note=f"the group is being deleted ({group['Status']})")
            if entry.state is EntryState.RESTORING:
                existing = find_existing(session, removed, list_subnets(group))
                return _add_progress(read_removal(list_subnets(group), removed, existing), group, entry.change)
        if not remove_subnets(list_subnets(group), removed):
            return Reading(state=ChangeState.DIFFERENT, note="others have removed its subnets in the other zones")
        return read_removal(list_subnets(group), removed, None)

    def apply(self, entry: Entry) -> None:
        """Remove the subnets. Raise EngineError if a balancer that must leave the zone first has not done so."""
        session, change = self._accounts.find(entry.resource).session, entry.change
        client = session.client(SERVICE)
        with translate_refusals(session, BUSY):
            require_shifted(session, change["name"], change["shifted_first"], change["zone"])
            current = _read_subnets(client, entry)
            subnets = remove_subnets(current, change["removed"])
            if subnets == current:  # nothing is written, so the next read decides whose change it is
                raise EngineUnavailable(f"others have just removed the subnets of {entry.zone} from {change['name']}")
            if not subnets:
                raise EngineError(f"{change['name']} has no subnets in other zones any more, so it keeps its subnets")
            _write_subnets(client, entry, subnets)

    def restore(self, entry: Entry, reading: Reading) -> None:  # noqa: ARG002 - the subnets are read again
        """Add the subnets that still exist. The order is as before, unless others have changed the subnets."""
        session, change = self._accounts.find(entry.resource).session, entry.change
        client = session.client(SERVICE)
        with translate_refusals(session, BUSY):
            current = _read_subnets(client, entry)
            existing = find_existing(session, change["removed"], current)
            subnets = add_subnets(current, change["removed"], existing)
            _write_subnets(client, entry, change["before"] if set(subnets) == set(change["before"]) else subnets)

    def renew(self, entry: Entry, reading: Reading) -> None:
        """Nothing expires."""


def _discover(account: Account, target: Target) -> Discovery:
    with translate_refusals(account.reader, BUSY):
        return find_groups(account, target)


def _find_group(client: Any, entry: Entry) -> Mapping[str, Any] | None:
    """Return the group of an entry; None if it was deleted, even if another group has its name now."""
    found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[entry.change["name"]])["AutoScalingGroups"]
    return next((each for each in found if each["AutoScalingGroupARN"] == entry.resource), None)


def _read_subnets(client: Any, entry: Entry) -> list[str]:
    """Return the current subnets. Raise EngineError if the group was deleted just now."""
    group = _find_group(client, entry)
    if group is None:
        raise EngineError(f"{entry.change['name']} was deleted")
    return list_subnets(group)


def _write_subnets(client: Any, entry: Entry, subnets: list[str]) -> None:
    client.update_auto_scaling_group(AutoScalingGroupName=entry.change["name"], VPCZoneIdentifier=",".join(subnets))


def _add_progress(reading: Reading, group: Mapping[str, Any], change: Mapping[str, Any]) -> Reading:
    """Return the reading of a restore, with whether the zone has healthy capacity again."""
    if not set(change["removed"]) & set(list_subnets(group)):
        return reading  # no instances will start in the zone
    if suspended := sorted(list_suspended(group) & _LAUNCHING):
        text = f"the restore does not wait for instances in the zone, because {' and '.join(suspended)} is suspended"
        return replace(reading, note="; ".join(each for each in (reading.note, text) if each))
    wanted = min(change["units"], group["DesiredCapacity"] // max(len(group["AvailabilityZones"]), 1))
    units = count_units(each for each in list_healthy(group) if each["AvailabilityZone"] == change["zone_name"])
    if units >= wanted:
        return reading
    return replace(reading, is_effective=False, note=f"{units} of {wanted} healthy units in the zone")


ACTIONS.register("auto-scaling-groups")(
    ActionType(
        open=lambda _, resources: AutoScalingGroups(resources.accounts()),
        options_type=AutoScalingGroupsOptions,
        permissions=tuple(
            sorted(
                {
                    "autoscaling:UpdateAutoScalingGroup",
                    *GROUP_PERMISSIONS,
                    *SUBNET_PERMISSIONS,
                    *TAG_PERMISSIONS,
                    *TRAFFIC_PERMISSIONS,
                }
            )
        ),
        terraform="""\
# An evacuation removes the subnets of a zone. Without this, the next run of Terraform would add them again.
resource "aws_autoscaling_group" "example" {
  lifecycle {
    ignore_changes = [vpc_zone_identifier]
  }
}
""",
    )
)
