"""Find out whether instances behind load balancers may leave a zone before its traffic does.

With cross-zone load balancing, a balancer sends requests to the targets of other zones instead. Without it, a zone gets
its full share for as long as it has a healthy target, so the last instances there would get all of it. They may leave
only after a zonal shift of the balancer, or if the balancer takes the zone out of its DNS name as soon as a target is
missing.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from shlex import join
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast._errors import HoldfastError
from holdfast._types import Zone
from holdfast.evacuate.action import PARALLEL_CALLS, Target
from holdfast.evacuate.cross_zone import PERMISSIONS as CROSS_ZONE_PERMISSIONS
from holdfast.evacuate.cross_zone import is_cross_zone

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "arc-zonal-shift:GetManagedResource",
    "arc-zonal-shift:ListManagedResources",
    *CROSS_ZONE_PERMISSIONS,
)
_MINIMUM = "target_group_health.dns_failover.minimum_healthy_targets.count"
_SHIFT = "arc-zonal-shift"


class TrafficRule(Struct, frozen=True, kw_only=True):
    """Whether the instances of one target group may leave a zone, and under which condition."""

    shifted_first: tuple[str, ...] = ()
    """The ARNs of the balancers that a zonal shift must have moved away before."""
    condition: str = ""
    """The condition in words; "" if there is none."""
    obstacle: str = ""
    """Why the instances must stay; "" if they may leave."""
    remedy: str = ""
    problem: str = ""
    """The error that kept the rule from being read; "" if it was read."""


class ZonalTargetGroup(Struct, frozen=True):
    """A target group without cross-zone load balancing."""

    arn: str
    name: str
    balancers: tuple[str, ...]
    minimum: int
    """With fewer healthy targets in a zone, its balancers take the zone out of DNS. 0 if they never do."""


def read_rules(
    session: "AwsSession", instances: Mapping[str, int], target: Target, is_tagged: Callable[[str], bool]
) -> dict[str, TrafficRule]:
    """Return the rule of each target group. `instances` has the number of its instances in the zone, by ARN.

    `is_tagged` says whether the resource with an ARN has the tags of the selection. A target group that cannot be read
    has a rule with a problem, and its instances stay.
    """
    errors = HoldfastError, session.client("elbv2").exceptions.ClientError

    def read(arn: str) -> ZonalTargetGroup | TrafficRule:
        try:
            return _read_zonal_group(session, arn) or TrafficRule()
        except errors as error:
            return _build_unknown(error)

    arns = [arn for arn, count in instances.items() if count]  # without instances, nothing is terminated
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        found = dict(zip(arns, pool.map(read, arns), strict=True))
    managed: Mapping[str, Mapping[str, Any]] | TrafficRule = {}
    if any(isinstance(each, ZonalTargetGroup) for each in found.values()):
        try:
            managed = {each["arn"]: each for each in session.paginate(_SHIFT, "list_managed_resources")}
        except errors as error:
            managed = _build_unknown(error)
    rules = dict.fromkeys(instances, TrafficRule())
    for arn, group in found.items():
        if isinstance(group, TrafficRule):
            rules[arn] = group
        elif group.minimum >= instances[arn]:
            rules[arn] = _build_failover_rule(group)
        elif isinstance(managed, TrafficRule):
            rules[arn] = managed
        else:
            rules[arn] = _decide_rule(group, instances[arn], managed, target, is_tagged)
    return rules


def find_unshifted(session: "AwsSession", balancers: Sequence[str], zone: Zone) -> list[str]:
    """Return the names of the balancers that still send traffic to a zone.

    Raise the errors of `holdfast.engines.aws`, and botocore's ClientError.
    """
    found: list[str] = []
    for arn in balancers:
        client = session.client(_SHIFT)
        try:
            is_out = _has_left(client.get_managed_resource(resourceIdentifier=arn), zone)
        except client.exceptions.ResourceNotFoundException:
            is_out = False
        found += [] if is_out else [_get_name(arn)]
    return found


def _read_zonal_group(session: "AwsSession", arn: str) -> ZonalTargetGroup | None:
    """Return a target group without cross-zone load balancing; None if it has such traffic, or was deleted."""
    if is_cross_zone(session, [arn]):
        return None
    client = session.client("elbv2")
    (group,) = client.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
    attributes = client.describe_target_group_attributes(TargetGroupArn=arn)["Attributes"]
    minimum = {each["Key"]: each["Value"] for each in attributes}.get(_MINIMUM, "1")
    balancers = tuple(group.get("LoadBalancerArns", ()))
    return ZonalTargetGroup(arn, group["TargetGroupName"], balancers, int(minimum) if minimum.isdecimal() else 0)


def _decide_rule(
    group: ZonalTargetGroup,
    instances: int,
    managed: Mapping[str, Mapping[str, Any]],
    target: Target,
    is_tagged: Callable[[str], bool],
) -> TrafficRule:
    """Return the rule of a target group whose balancers must leave the zone first. `managed`: resources of ARC."""
    obstacles, remedies, region = [], [], group.arn.split(":")[3]
    for arn in group.balancers:
        name, item = _get_name(arn), managed.get(arn)
        if item is None:
            obstacles.append(f"zonal shift is not enabled for {name}")
            if ":loadbalancer/gwy/" not in arn:  # ARC does not shift Gateway Load Balancers
                remedies.append(_build_shift_command(arn, region))
        elif not _has_left(item, target.zone) and not (
            is_tagged(arn) and target.selection.matches("load-balancer", item.get("name", name))
        ):
            obstacles.append(f"{name} is not chosen for this evacuation")
            remedies.append(f"choose the load balancer {name} as well")
    if not obstacles:
        names = ", ".join(_get_name(each) for each in group.balancers)
        condition = (
            f"cross-zone load balancing of {group.name} is off: the action `zonal-shift` must move {names} first"
        )
        return TrafficRule(shifted_first=group.balancers, condition=condition if group.balancers else "")
    either = " and ".join(remedies)
    command = _build_minimum_command(group.arn, region, instances)
    return TrafficRule(
        obstacle=f"cross-zone load balancing of its target group {group.name} is off, so the last instances in "
        f"{target.zone} would get all traffic of the zone; and {', '.join(obstacles)}",
        remedy=f"{either}; or {command}" if either else command,
    )


def _build_failover_rule(group: ZonalTargetGroup) -> TrafficRule:
    text = f"cross-zone load balancing of {group.name} is off: its balancer takes the zone out of DNS when fewer than"
    return TrafficRule(condition=f"{text} {group.minimum} targets there are healthy")


def _build_unknown(error: Exception) -> TrafficRule:
    obstacle = "it is not known whether its balancers would send traffic to the zone while the instances there end"
    return TrafficRule(obstacle=obstacle, remedy=f"allow {', '.join(PERMISSIONS)}", problem=str(error))


def _has_left(item: Mapping[str, Any], zone: Zone) -> bool:
    """Return whether a balancer sends no traffic to a zone. A balancer that is not in the zone sends none."""
    return bool(item.get("appliedWeights", {}).get(zone, 0) == 0)


def _get_name(arn: str) -> str:
    """Return the name of a balancer, as in `loadbalancer/app/name/0123456789abcdef`."""
    return arn.split("/")[-2]


def _build_shift_command(arn: str, region: str) -> str:
    command = ["elbv2", "modify-load-balancer-attributes", "--load-balancer-arn", arn]
    return join(["aws", *command, "--attributes", "Key=zonal_shift.config.enabled,Value=true", "--region", region])


def _build_minimum_command(arn: str, region: str, instances: int) -> str:
    command = ["elbv2", "modify-target-group-attributes", "--target-group-arn", arn]
    return join(["aws", *command, "--attributes", f"Key={_MINIMUM},Value={instances}", "--region", region])
