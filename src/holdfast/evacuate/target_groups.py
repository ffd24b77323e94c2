"""Read target groups of load balancers, and whether their traffic is spread over the targets of all zones.

A target group may override the setting of its balancers. If cross-zone load balancing is off, every zone of a balancer
gets the same part of the traffic, whatever the number of its targets. Each target group and each balancer is read once,
because AWS allows only about ten such calls in a second.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from holdfast._errors import HoldfastError
from holdfast.evacuate.refusals import translate_refusals

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DescribeTargetGroups",
)
MINIMUM_TARGETS = "target_group_health.dns_failover.minimum_healthy_targets.count"
"""The attribute of a target group that says when its balancers take a zone out of DNS."""
PARALLEL_READS = 8
"""Calls at the same time: ELB allows bursts of 40 reads, and 10 in a second."""
_CROSS_ZONE = "load_balancing.cross_zone.enabled"
_AS_BALANCER = "use_load_balancer_configuration"
"""The value for a target group that follows its balancers, which is the default."""

T = TypeVar("T")


class TargetGroup(Struct, frozen=True, kw_only=True):
    """A target group of load balancers."""

    arn: str
    name: str
    balancers: tuple[str, ...]
    """The ARNs of the balancers that send requests to it."""
    is_cross_zone: bool
    """Whether the targets of all zones share the traffic."""
    minimum_targets: int
    """With fewer healthy targets in a zone, its balancers take the zone out of DNS. 0 if they never do."""


class TargetGroups(NamedTuple):
    """Target groups by their ARNs. Those that were deleted are missing in both."""

    found: Mapping[str, TargetGroup]
    problems: Mapping[str, HoldfastError]
    """Why some of them could not be read."""


def read_target_groups(session: "AwsSession", arns: Collection[str]) -> TargetGroups:
    """Return target groups. Errors of AWS are reported for each of them, and not raised."""
    if not arns:
        return TargetGroups({}, {})
    client = session.client("elbv2")
    try:
        with translate_refusals(session):
            listed = {each["TargetGroupArn"]: each for each in session.paginate("elbv2", "describe_target_groups")}
    except HoldfastError as error:
        return TargetGroups({}, dict.fromkeys(arns, error))
    chosen = [arn for arn in arns if arn in listed]

    def read_group(arn: str) -> dict[str, str] | None:
        try:
            return _read_attributes(client.describe_target_group_attributes(TargetGroupArn=arn))
        except client.exceptions.TargetGroupNotFoundException:
            return None

    def read_balancer(arn: str) -> bool:
        # Cross-zone load balancing is on by default only for Application Load Balancers.
        default = "true" if ":loadbalancer/app/" in arn else "false"
        try:
            reply = client.describe_load_balancer_attributes(LoadBalancerArn=arn)
        except client.exceptions.LoadBalancerNotFoundException:
            return True  # a balancer that was deleted sends no traffic
        return _read_attributes(reply).get(_CROSS_ZONE, default) == "true"

    attributes, problems = _read_all(session, chosen, read_group)
    following = {arn for arn, each in attributes.items() if each and _get_setting(each) == _AS_BALANCER}
    used = {balancer for arn in following for balancer in listed[arn].get("LoadBalancerArns", ())}
    balancers, unknown = _read_all(session, sorted(used), read_balancer)
    found = {}
    for arn, each in attributes.items():
        if each is None:
            continue  # it was deleted meanwhile
        behind = tuple(listed[arn].get("LoadBalancerArns", ()))
        if arn in following and (reasons := [unknown[balancer] for balancer in behind if balancer in unknown]):
            problems[arn] = reasons[0]
            continue
        is_cross_zone = all(balancers[it] for it in behind) if arn in following else _get_setting(each) == "true"
        minimum = each.get(MINIMUM_TARGETS, "1")
        found[arn] = TargetGroup(
            arn=arn,
            name=listed[arn]["TargetGroupName"],
            balancers=behind,
            is_cross_zone=is_cross_zone,
            minimum_targets=int(minimum) if minimum.isdecimal() else 0,
        )
    return TargetGroups(found, problems)


def _read_all(
    session: "AwsSession", arns: Iterable[str], read: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, HoldfastError]]:
    """Return the results of `read` for all ARNs, and the errors of those for which it fails."""
    problems: dict[str, HoldfastError] = {}

    def try_reading(arn: str) -> list[tuple[str, T]]:
        try:
            with translate_refusals(session):
                return [(arn, read(arn))]
        except HoldfastError as error:
            problems[arn] = error
            return []

    with ThreadPoolExecutor(PARALLEL_READS) as pool:
        return {arn: found for pairs in pool.map(try_reading, arns) for arn, found in pairs}, problems


def _get_setting(attributes: Mapping[str, str]) -> str:
    return attributes.get(_CROSS_ZONE, _AS_BALANCER)


def _read_attributes(reply: Any) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in reply["Attributes"]}
