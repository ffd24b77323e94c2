"""Find out whether targets of load balancers, such as instances or tasks, may leave a zone before its traffic does.

With cross-zone load balancing, a balancer sends requests to the targets of other zones instead. Without it, a zone gets
its full share for as long as it has a healthy target, so the last targets there would get all of it. They may leave
only after a zonal shift of the balancer, or if the balancer takes the zone out of its DNS name as soon as a target is
missing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from shlex import join
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast._errors import EngineError, HoldfastError
from holdfast._types import Zone
from holdfast.evacuate.action import Target
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.shift_candidates import build_enabling_command, build_resource
from holdfast.evacuate.target_groups import MINIMUM_TARGETS, TargetGroup, read_target_groups
from holdfast.evacuate.target_groups import PERMISSIONS as TARGET_GROUP_PERMISSIONS

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "arc-zonal-shift:GetManagedResource",
    "arc-zonal-shift:ListManagedResources",
    *TARGET_GROUP_PERMISSIONS,
)
_SHIFT = "arc-zonal-shift"


class TrafficRule(Struct, frozen=True, kw_only=True):
    """Whether the targets of one target group may leave a zone, and under which condition."""

    shifted_first: tuple[str, ...] = ()
    """The ARNs of the balancers that a zonal shift must have moved away before."""
    condition: str = ""
    """The condition in words; "" if there is none."""
    obstacle: str = ""
    """Why the targets must stay; "" if they may leave."""
    remedy: str = ""
    problem: str = ""
    """The error that kept the rule from being read; "" if it was read."""


def read_rules(
    session: "AwsSession",
    target_groups: Collection[str],
    count_targets: Callable[[str], int],
    target: Target,
    is_tagged: Callable[[str], bool],
) -> dict[str, TrafficRule]:
    """Return the rule of each target group, by ARN. Those that were deleted have none.

    `count_targets` returns the number of targets of a target group in the zone, and may ask AWS. `is_tagged` says
    whether the resource with an ARN has the tags of the selection. The targets of a group that cannot be read stay.
    """
    groups = read_target_groups(session, target_groups)
    rules = {arn: _build_unknown(error) for arn, error in groups.problems.items()}
    rules |= {arn: TrafficRule() for arn, each in groups.found.items() if each.is_cross_zone}
    zonal = [each for each in groups.found.values() if not each.is_cross_zone]
    try:
        with translate_refusals(session):
            counts = {each.arn: count_targets(each.arn) for each in zonal}
            rules |= {
                each.arn: _build_failover_rule(each) for each in zonal if each.minimum_targets >= counts[each.arn]
            }
            if all(arn in rules for arn in counts):
                return rules
            managed = {each["arn"]: each for each in session.paginate(_SHIFT, "list_managed_resources")}
    except HoldfastError as error:
        return {each.arn: _build_unknown(error) for each in zonal} | rules
    return {each.arn: _decide_rule(each, counts[each.arn], managed, target, is_tagged) for each in zonal} | rules


def find_obstacle(rules: Iterable[TrafficRule]) -> TrafficRule | None:
    """Return the first rule that keeps targets in the zone; None if all of them may leave. Pure."""
    return next((each for each in rules if each.obstacle), None)


def require_shifted(session: "AwsSession", name: str, balancers: Sequence[str], zone: Zone) -> None:
    """Raise EngineError if one of the balancers of the resource `name` still sends traffic to a zone.

    Raise the errors of `holdfast.engines.aws`, and botocore's ClientError.
    """
    client = session.client(_SHIFT)
    staying: list[str] = []
    for arn in balancers:
        try:
            is_out = _has_left(client.get_managed_resource(resourceIdentifier=arn), zone)
        except client.exceptions.ResourceNotFoundException:
            is_out = False
        staying += [] if is_out else [_get_name(arn)]
    if staying:
        raise EngineError(
            f"{name} was not changed: {', '.join(staying)} still sends traffic to {zone}, and cross-zone load "
            f"balancing is off. Shift it away from the zone, then run `holdfast zone resume {zone}`"
        )


def _decide_rule(
    group: TargetGroup,
    targets: int,
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
                remedies.append(
                    f"enable zonal shift of {name}: {build_enabling_command(build_resource(arn, name, ()))}"
                )
        elif not _has_left(item, target.zone) and not (
            is_tagged(arn) and target.selection.matches("load-balancer", item.get("name", name))
        ):
            obstacles.append(f"{name} is not chosen for this evacuation")
            remedies.append(f"choose the load balancer {name} as well (--type, --name, --tag or workload.resources)")
    if not obstacles:
        names = ", ".join(_get_name(each) for each in group.balancers)
        condition = (
            f"cross-zone load balancing of {group.name} is off: the action `zonal-shift` must move {names} first"
        )
        return TrafficRule(shifted_first=group.balancers, condition=condition if group.balancers else "")
    either = "; ".join(remedies)
    command = f"let the balancer take the zone out of DNS: {_build_minimum_command(group.arn, region, targets)}"
    return TrafficRule(
        obstacle=f"cross-zone load balancing of its target group {group.name} is off, so its last targets in "
        f"{target.zone} would get all traffic of the zone; and {', '.join(obstacles)}",
        remedy=f"{either}; or {command}" if either else command,
    )


def _build_failover_rule(group: TargetGroup) -> TrafficRule:
    text = f"cross-zone load balancing of {group.name} is off: its balancer takes the zone out of DNS when fewer than"
    return TrafficRule(condition=f"{text} {group.minimum_targets} targets there are healthy")


def _build_unknown(error: Exception) -> TrafficRule:
    obstacle = (
        "its target groups could not be read: without cross-zone load balancing, its last targets in the zone get "
    )
    obstacle += "all traffic of the zone"
    return TrafficRule(obstacle=obstacle, remedy=f"allow {', '.join(PERMISSIONS)}", problem=str(error))


def _has_left(item: Mapping[str, Any], zone: Zone) -> bool:
    """Return whether a balancer sends no traffic to a zone. A balancer that is not in the zone sends none."""
    weights = item.get("appliedWeights")
    return weights is not None and weights.get(zone, 0) == 0


def _get_name(arn: str) -> str:
    """Return the name of a balancer, as in `loadbalancer/app/name/0123456789abcdef`."""
    return arn.split("/")[-2]


def _build_minimum_command(arn: str, region: str, targets: int) -> str:
    command = ["elbv2", "modify-target-group-attributes", "--target-group-arn", arn]
    return join(["aws", *command, "--attributes", f"Key={MINIMUM_TARGETS},Value={targets}", "--region", region])
