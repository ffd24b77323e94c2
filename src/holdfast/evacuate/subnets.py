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


def find_existing(session: "AwsSession", subnets: Sequence[str]) -> frozenset[str]:
    """Return those of some subnets that have not been deleted."""
    if not subnets:
        return frozenset()
    filters = [{"Name": "subnet-id", "Values": list(subnets)}]
    return frozenset(each["SubnetId"] for each in session.paginate("ec2", "describe_subnets", Filters=filters))


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
    note = f"{', '.join(deleted)} cannot be added again, because it was deleted" if deleted else ""
    state = ChangeState.APPLIED if missing else ChangeState.ABSENT
    return Reading(state=state, note=note, is_effective=is_effective, shows_owner=False)


def remove_subnets(current: Iterable[str], removed: Collection[str]) -> list[str]:
    """Return the current subnets, in their order, without those that are removed. Pure."""
    return [each for each in current if each not in removed]


def add_subnets(current: Iterable[str], removed: Iterable[str], existing: Collection[str]) -> list[str]:
    """Return the current subnets, and after them those that were removed and still exist. Pure."""
    found = list(current)
    return [*found, *(each for each in removed if each in existing and each not in found)]
