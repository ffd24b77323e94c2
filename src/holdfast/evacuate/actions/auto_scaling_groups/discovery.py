"""Find the Auto Scaling groups in a zone, with everything that is needed to remove the zone from them.

Node groups of EKS are left out, because their cluster is moved as a whole. A group stays in the zone if it has no other
subnet, if another action moves it, or if its balancers would send traffic to instances that are about to end.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from holdfast._errors import HoldfastError
from holdfast._names import format_count
from holdfast._types import Zone
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.action import PARALLEL_CALLS, Discovery, Resource, Target, Unmovable
from holdfast.evacuate.groups import count_units, list_subnets, list_suspended, list_target_groups
from holdfast.evacuate.shift_candidates import NODE_GROUP_TAG, build_resource
from holdfast.evacuate.subnets import find_zone_name, list_subnet_zones
from holdfast.evacuate.tags import find_tagged
from holdfast.evacuate.zonal_traffic import TrafficRule, find_obstacle, read_rules

PERMISSIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeInstanceRefreshes",
)
SERVICE = "autoscaling"
_REFRESHING = {"Pending", "InProgress", "Baking", "Cancelling", "RollbackInProgress"}
"""The states of an instance refresh that has not ended."""


@dataclass(frozen=True, slots=True)
class GroupInZone:
    """A group that may have instances in the zone."""

    description: Mapping[str, Any]
    """The description by AWS."""
    removed: Sequence[str]
    """Its subnets in the zone; none if the group has only names of zones."""
    zone_name: str
    """The name of the zone in the account."""
    zones: Sequence[Zone]
    """All its zones that are known."""

    @property
    def instances(self) -> list[Mapping[str, Any]]:
        return list_instances(self.description, self.zone_name)

    def build_resource(self, **details: Any) -> Resource:
        found = self.description
        return build_resource(found["AutoScalingGroupARN"], found["AutoScalingGroupName"], self.zones, **details)


def list_instances(group: Mapping[str, Any], zone_name: str) -> list[Mapping[str, Any]]:
    """Return the instances in a zone that are not about to leave. Pure."""
    return [
        each
        for each in group.get("Instances", ())
        if each["AvailabilityZone"] == zone_name and not each["LifecycleState"].startswith(("Terminat", "Detach"))
    ]


def find_groups(account: Account, target: Target) -> Discovery:
    """Return the groups of an account in the zone. Raise the errors of `holdfast.engines.aws`, and ClientError."""
    session = account.reader
    groups = list(session.paginate(SERVICE, "describe_auto_scaling_groups"))
    is_tagged = find_tagged(account, target.selection)
    chosen = [each for each in groups if is_tagged(each["AutoScalingGroupARN"])]
    zone_name = find_zone_name(session, target.zone)
    found = list(_list_in_zone(chosen, list_subnet_zones(session), target.zone, zone_name))
    movable = [each for each in found if not _find_obstacle(each)]
    # Count the instances of all groups behind a target group: each gets a part of the traffic of the zone.
    counts = {
        arn: sum(len(list_instances(group, zone_name)) for group in groups if arn in list_target_groups(group))
        for each in movable
        for arn in list_target_groups(each.description)
    }
    used = [arn for arn, count in counts.items() if count]  # without instances, nothing is terminated
    rules = read_rules(session, used, lambda arn: counts[arn], target, is_tagged)
    notes = [
        f"{account.scope}: target groups or their balancers cannot be read, so groups behind them stay: {problem}"
        for problem in sorted({each.problem for each in rules.values() if each.problem})
    ]
    moved = [each for each in movable if find_obstacle(_list_rules(each, rules)) is None]
    refreshing: Collection[str] = ()
    if target.lists_unmovable:  # refreshes matter only to a person who reads the plan, and each group needs a call
        refreshing = _find_refreshing(account, moved, notes)
    return Discovery(
        resources=[_build_movable(each, rules, refreshing) for each in moved],
        unmovable=[_build_unmovable(each, rules) for each in found if each not in moved and target.lists_unmovable],
        notes=notes,
    )


def _list_in_zone(
    groups: Iterable[Mapping[str, Any]], subnet_zones: Mapping[str, Zone], zone: Zone, zone_name: str
) -> Iterator[GroupInZone]:
    """Yield the groups in a zone, except node groups of EKS."""
    for group in groups:
        subnets = list_subnets(group)
        removed = [each for each in subnets if subnet_zones.get(each) == zone]
        is_node_group = any(each["Key"] == NODE_GROUP_TAG for each in group.get("Tags", ()))
        if not is_node_group and (removed or (not subnets and zone_name in group["AvailabilityZones"])):
            zones = sorted({subnet_zones[each] for each in subnets if each in subnet_zones})
            yield GroupInZone(group, removed, zone_name, zones)


def _find_obstacle(found: GroupInZone) -> str:
    """Return why a group stays in the zone; "" if only its balancers may be a reason. Pure."""
    group = found.description
    if group.get("Status"):
        return f"it is being deleted ({group['Status']})"
    if group.get("AvailabilityZoneImpairmentPolicy", {}).get("ZonalShiftEnabled"):
        return "zonal shift is enabled for it, so only the action `zonal-shift` moves it"
    if not found.removed:
        return "it has names of zones instead of subnets, and only subnets can be removed"
    if len(found.zones) < 2:
        return "it has no subnet in another zone"
    return ""


def _list_rules(found: GroupInZone, rules: Mapping[str, TrafficRule]) -> list[TrafficRule]:
    """Return the rules of the target groups of a group."""
    return [rules[arn] for arn in sorted(list_target_groups(found.description)) if arn in rules]


def _find_refreshing(account: Account, groups: Sequence[GroupInZone], notes: list[str]) -> set[str]:
    """Return the names of the groups with an instance refresh under way. Add a note if refreshes cannot be read."""
    client = account.reader.client(SERVICE)
    problems: list[str] = []

    def is_refreshing(name: str) -> bool:
        try:
            found = client.describe_instance_refreshes(AutoScalingGroupName=name)
        except (HoldfastError, client.exceptions.ClientError) as error:
            problems.append(str(error))
            return False
        return any(each["Status"] in _REFRESHING for each in found.get("InstanceRefreshes", ()))

    names = [each.description["AutoScalingGroupName"] for each in groups]
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        found = {name for name, is_found in zip(names, pool.map(is_refreshing, names), strict=True) if is_found}
    if problems:
        notes.append(
            f"{account.scope}: instance refreshes cannot be read (autoscaling:DescribeInstanceRefreshes), so the plan "
            f"does not name those under way: {problems[0]}"
        )
    return found


def _build_unmovable(found: GroupInZone, rules: Mapping[str, TrafficRule]) -> Unmovable:
    if reason := _find_obstacle(found):
        return Unmovable(resource=found.build_resource(), reason=reason)
    rule = find_obstacle(_list_rules(found, rules)) or TrafficRule()
    return Unmovable(resource=found.build_resource(), reason=rule.obstacle, remedy=rule.remedy)


def _build_movable(found: GroupInZone, rules: Mapping[str, TrafficRule], refreshing: Collection[str]) -> Resource:
    used = _list_rules(found, rules)
    side_effects = [*_list_side_effects(found, refreshing), *(each.condition for each in used if each.condition)]
    return found.build_resource(
        before=list_subnets(found.description),
        removed=list(found.removed),
        instances=len(found.instances),
        units=count_units(found.instances),
        zone_name=found.zone_name,
        shifted_first=sorted({arn for each in used for arn in each.shifted_first}),
        side_effects=side_effects,
    )


def _list_side_effects(found: GroupInZone, refreshing: Collection[str]) -> Iterator[str]:
    """Yield everything that an operator should know before the subnets are removed."""
    group, count = found.description, format_count(len(found.instances), "instance")
    if found.instances:
        yield (
            f"AWS launches instances in the other zones first, then terminates the {count} in the zone; meanwhile the "
            f"group may exceed its maximum of {group['MaxSize']} by 10 %"
        )
    if "Launch" in list_suspended(group):
        yield "its process Launch is suspended, so no instances start in the other zones"
    if group["AutoScalingGroupName"] in refreshing:
        yield "an instance refresh is under way, which replaces instances at the same time"
    if "Operator" in group:
        yield f"{group['Operator']['Principal']} manages it, and may refuse or undo the change"
    strategy = group.get("AvailabilityZoneDistribution", {}).get("CapacityDistributionStrategy")
    if strategy == "balanced-only":
        yield "its distribution is balanced-only: if one of the other zones has no capacity, it keeps trying there"
    if "WarmPoolConfiguration" in group:
        yield "it has a warm pool, whose instances in the zone are not counted here"
    if "MixedInstancesPolicy" in group:
        yield f"it has mixed instances: those in the zone have {count_units(found.instances)} units of its capacity"
    if names := group.get("LoadBalancerNames"):
        yield (
            f"it is behind the Classic Load Balancer {', '.join(names)}: if its cross-zone load balancing is off, its "
            "last instances in the zone get all traffic of the zone"
        )
