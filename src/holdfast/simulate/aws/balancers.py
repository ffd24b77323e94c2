"""Target groups, and the attributes of balancers and target groups, in one account and region."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.simulate.aws.arc import Handler
from holdfast.simulate.aws.protocols import ServiceError

CROSS_ZONE = "load_balancing.cross_zone.enabled"
MINIMUM_HEALTHY = "target_group_health.dns_failover.minimum_healthy_targets.count"


@dataclass(slots=True)
class TargetGroup:
    """A target group, with the balancers that send requests to it."""

    arn: str
    name: str
    balancers: list[str]
    attributes: dict[str, str]


@dataclass(slots=True)
class Balancers:
    """The target groups of one account and region, and all attributes. The caller of the handlers holds a lock."""

    scope: str
    """The beginning of each ARN, up to the account."""
    target_groups: dict[str, TargetGroup] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The attributes of each balancer that differ from the defaults, by ARN."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The operations, by name. The region itself lists balancers."""
        return {
            "DescribeTargetGroups": self._list_target_groups,
            "DescribeTargetGroupAttributes": self._list_target_group_attributes,
            "DescribeLoadBalancerAttributes": self._list_attributes,
        }

    def add_target_group(self, name: str, *balancers: str, cross_zone: str = "", minimum_healthy: str = "1") -> str:
        """Add a target group behind some balancers, and return its ARN.

        `cross_zone` is "true" or "false"; by default, the setting of the balancer applies.
        """
        arn = f"{self.scope}:targetgroup/{name}/{len(self.target_groups) + 1:016x}"
        attributes = {
            CROSS_ZONE: cross_zone or "use_load_balancer_configuration",
            MINIMUM_HEALTHY: minimum_healthy,
        }
        self.target_groups[arn] = TargetGroup(arn, name, list(balancers), attributes)
        return arn

    def set_attribute(self, arn: str, key: str, value: str) -> None:
        """Set an attribute of a balancer."""
        self.attributes.setdefault(arn, {})[key] = value

    def _list_target_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen, balancer = values.get("TargetGroupArns", ()), values.get("LoadBalancerArn")
        for each in chosen:
            self._find(each)
        found = [
            {"TargetGroupArn": each.arn, "TargetGroupName": each.name, "LoadBalancerArns": each.balancers}
            for each in self.target_groups.values()
            if (not chosen or each.arn in chosen) and (balancer is None or balancer in each.balancers)
        ]
        return {"TargetGroups": found}

    def _find(self, arn: str) -> TargetGroup:
        if arn not in self.target_groups:
            raise ServiceError("TargetGroupNotFound", "One or more target groups not found")
        return self.target_groups[arn]

    def _list_target_group_attributes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return _build_reply(self._find(values["TargetGroupArn"]).attributes)

    def _list_attributes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        arn = values["LoadBalancerArn"]
        # As in AWS: Application Load Balancers use all zones, and others only their own.
        defaults = {CROSS_ZONE: "true" if ":loadbalancer/app/" in arn else "false"}
        return _build_reply({**defaults, **self.attributes.get(arn, {})})


def _build_reply(attributes: Mapping[str, str]) -> dict[str, Any]:
    return {"Attributes": [{"Key": key, "Value": value} for key, value in attributes.items()]}
