"""Read whether load balancers spread traffic over the targets of all zones.

A target group may override its balancer. If cross-zone load balancing is off anywhere, every zone of that balancer gets
the same part of the traffic, whatever the number of its targets.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = (
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DescribeTargetGroups",
)
_ATTRIBUTE = "load_balancing.cross_zone.enabled"
_AS_BALANCER = "use_load_balancer_configuration"
"""The value for a target group that follows its balancers, which is the default."""


def list_target_groups(group: Mapping[str, Any]) -> set[str]:
    """Return the ARNs of the target groups of an Auto Scaling group. Pure."""
    sources = [each["Identifier"] for each in group.get("TrafficSources", ()) if each.get("Type") == "elbv2"]
    return {*group.get("TargetGroupARNs", ()), *sources}


def is_cross_zone(session: "AwsSession", target_group_arns: Iterable[str]) -> bool:
    """Return whether the targets of all zones share the traffic of every target group.

    Without target groups, the answer is True. Target groups and balancers that were deleted meanwhile do not count.
    Raise the errors of `holdfast.engines.aws`, and botocore's ClientError.
    """
    client = session.client("elbv2")
    return all(_is_group_cross_zone(client, each) for each in target_group_arns)


def _is_group_cross_zone(client: Any, arn: str) -> bool:
    try:
        value = _read(client.describe_target_group_attributes(TargetGroupArn=arn), _AS_BALANCER)
        if value != _AS_BALANCER:
            return value == "true"
        (group,) = client.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
    except client.exceptions.TargetGroupNotFoundException:
        return True
    return all(_is_balancer_cross_zone(client, each) for each in group.get("LoadBalancerArns", ()))


def _is_balancer_cross_zone(client: Any, arn: str) -> bool:
    # Cross-zone load balancing is on by default only for Application Load Balancers.
    default = "true" if ":loadbalancer/app/" in arn else "false"
    try:
        return _read(client.describe_load_balancer_attributes(LoadBalancerArn=arn), default) == "true"
    except client.exceptions.LoadBalancerNotFoundException:
        return True


def _read(reply: Any, default: str) -> str:
    found = {each["Key"]: each["Value"] for each in reply["Attributes"]}
    return str(found.get(_ATTRIBUTE, default))
