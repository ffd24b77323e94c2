"""Remove the subnets of a zone from the network configuration of a resource, and add them again.

Auto Scaling groups, ECS services and Lambda functions run in the zones of their subnets. None of them records who
changed the subnets, so a change is recognized by the subnets alone.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast._types import Zone
from holdfast.evacuate.action import ChangeState, Reading

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = ("ec2:DescribeAvailabilityZones", "ec2:DescribeSubnets")


def list_subnet_zones(session: "AwsSession") -> dict[str, Zone]:
    """Return the zone of each subnet of the account, by its id."""
    found = session.paginate("ec2", "describe_subnets")
    return {each["SubnetId"]: Zone(each["AvailabilityZoneId"]) for each in found}


def find_zone_name(session: "AwsSession", zone: Zone) -> str:
    """Return the name that the account has for a zone; "" if it does not know the zone."""
    described = session.client("ec2").describe_availability_zones()["AvailabilityZones"]
    return next((each["ZoneName"] for each in described if each["ZoneId"] == zone), "")


def find_existing(session: "AwsSession", removed: Sequence[str], current: Collection[str]) -> frozenset[str]:
    """Return those of the removed subnets that can be added again to the current ones of a resource.

    A subnet may have been deleted. If others have moved the resource to another VPC, AWS would refuse it.
    """
    if not removed:
        return frozenset()
    filters = [{"Name": "subnet-id", "Values": [*removed, *current]}]
    found = {
        each["SubnetId"]: each.get("VpcId") for each in session.paginate("ec2", "describe_subnets", Filters=filters)
    }
    networks = {found[each] for each in current if each in found}
    return frozenset(each for each in removed if each in found and (not networks or found[each] in networks))


def read_removal(
    current: Collection[str], removed: Sequence[str], existing: Collection[str] | None, *, is_effective: bool = True
) -> Reading:
    """Return whether the subnets `removed` are missing in the `current` ones. Pure.

    While a change is undone, pass the `existing` subnets: one that was deleted cannot be added again. While it is made,
    pass None.
    """
    if existing is None:
        state = ChangeState.ABSENT if set(removed) & set(current) else ChangeState.APPLIED
        return Reading(state=state, is_effective=is_effective, shows_owner=False)
    missing = [each for each in removed if each not in current and each in existing]
    deleted = [each for each in removed if each not in existing]
    note = f"{', '.join(deleted)} cannot be added again: deleted, or in another VPC now" if deleted else ""
    state = ChangeState.APPLIED if missing else ChangeState.ABSENT
    return Reading(state=state, note=note, is_effective=is_effective, shows_owner=False)


def remove_subnets(current: Iterable[str], removed: Collection[str]) -> list[str]:
    """Return the current subnets, in their order, without those that are removed. Pure."""
    return [each for each in current if each not in removed]


def add_subnets(current: Iterable[str], removed: Iterable[str], existing: Collection[str]) -> list[str]:
    """Return the current subnets, and after them those that were removed and still exist. Pure."""
    found = list(current)
    return [*found, *(each for each in removed if each in existing and each not in found)]
