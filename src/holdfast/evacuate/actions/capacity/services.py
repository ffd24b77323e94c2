"""Describe groups and services by their healthy units in each zone, and read the Auto Scaling groups."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast._types import Zone
from holdfast.evacuate.actions.capacity.needs import LoadSource, Metric, RequestTarget
from holdfast.evacuate.groups import count_units, list_healthy, list_subnets, list_suspended, list_target_groups
from holdfast.evacuate.shift_candidates import NODE_GROUP_TAG

GROUP, SERVICE = "auto-scaling-group", "ecs-service"
"""The types of scaled services."""
_CPU_METRICS = {
    "ASGAverageCPUUtilization",
    "ECSServiceAverageCPUUtilization",
    "ECSServiceAverageCPUUtilizationHighResolution",
}
"""The predefined metrics of policies that track the average CPU."""


class ScaledService(Struct, frozen=True, kw_only=True):
    """An Auto Scaling group or an ECS service."""

    arn: str
    name: str
    type: str
    """GROUP or SERVICE."""
    units: Mapping[Zone, float]
    """Healthy units in service, in every zone in which it may run."""
    load: LoadSource
    desired: int
    bounds: tuple[int, int] | None
    """The smallest and the largest size; None for an ECS service that nothing scales."""
    target_groups: Sequence[str] = ()
    subnets: Sequence[str] = ()
    """The subnets in which new units get their addresses."""
    instance_types: Sequence[str] = ()
    """The types of its instances, if new ones have the same types and are On-Demand instances."""
    task_definition: str = ""
    """The task definition of a service on Fargate; "" for all others."""
    scalable_id: str = ""
    """The name of an ECS service in Application Auto Scaling, such as `service/cluster/name`."""
    suspended: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """The suspended state of a scalable target, as AWS returns it."""
    runs_schedules: bool = True
    """Whether its scheduled actions are carried out."""
    has_policies: bool = False
    """Whether a policy scales it in and out."""
    is_foreign: bool = False
    """Whether another service of AWS, such as EKS, manages its size."""


def read_groups(
    groups: Iterable[Mapping[str, Any]], zones: Mapping[str, Zone], policies: Iterable[Mapping[str, Any]]
) -> list[ScaledService]:
    """Return the groups of DescribeAutoScalingGroups, except those that are being deleted. Pure.

    `zones` has the AZ-IDs by name, and `policies` are those of DescribePolicies.
    """
    by_group = collect(policies, "AutoScalingGroupName")
    return [
        _read_group(each, zones, by_group.get(each["AutoScalingGroupName"], []))
        for each in groups
        if not each.get("Status")
    ]


def _read_group(
    group: Mapping[str, Any], zones: Mapping[str, Zone], policies: Sequence[Mapping[str, Any]]
) -> ScaledService:
    name = group["AutoScalingGroupName"]
    healthy = list_healthy(group)
    # A zone whose subnets were removed may still have instances.
    names = {*group["AvailabilityZones"], *(each["AvailabilityZone"] for each in group.get("Instances", ()))}
    units = Counter({zone: 0 for zone_name, zone in zones.items() if zone_name in names})
    for zone_name, number in count_group_units(group).items():
        units[zones.get(zone_name, Zone(zone_name))] += number
    recorded = {each["Metric"] for each in group.get("EnabledMetrics", ())}
    dimension = (("AutoScalingGroupName", name),)
    request_targets, cpu_target = read_targets(policies, "TargetTrackingConfiguration")
    tags = {each["Key"] for each in group.get("Tags", ())}
    return ScaledService(
        arn=group["AutoScalingGroupARN"],
        name=name,
        type=GROUP,
        units=dict(units),
        load=LoadSource(
            unit="instance",
            running=len(healthy),
            desired=group["DesiredCapacity"],
            weight=sum(units.values()) / len(healthy) if healthy else 1.0,
            request_targets=request_targets,
            cpu=Metric("AWS/EC2", "CPUUtilization", "Average", dimension),
            cpu_target=cpu_target,
            past_running=_find_recorded("GroupInServiceInstances", recorded, dimension),
            past_desired=_find_recorded("GroupDesiredCapacity", recorded, dimension),
        ),
        desired=group["DesiredCapacity"],
        bounds=(group["MinSize"], group["MaxSize"]),
        target_groups=sorted(list_target_groups(group)),
        subnets=list_subnets(group),
        instance_types=_list_types(group),
        runs_schedules="ScheduledActions" not in list_suspended(group),
        has_policies=bool(policies),
        is_foreign=NODE_GROUP_TAG in tags or "Operator" in group,
    )


def _list_types(group: Mapping[str, Any]) -> list[str]:
    """Return the types of instances of a group; none for a group with mixed instances, which may be of any type."""
    if "MixedInstancesPolicy" in group:
        return []
    return sorted({each["InstanceType"] for each in group.get("Instances", ()) if "InstanceType" in each})


def count_group_units(group: Mapping[str, Any]) -> Counter[str]:
    """Return the healthy units of a group by the name of their zone. Pure."""
    units: Counter[str] = Counter()
    for each in list_healthy(group):
        units[each["AvailabilityZone"]] += count_units([each])
    return units


def read_targets(policies: Iterable[Mapping[str, Any]], key: str) -> tuple[list[RequestTarget], float | None]:
    """Return the targets for requests, and the lowest target for CPU, of policies that track a predefined metric."""
    requests, cpu = [], []
    for policy in policies:
        configuration = policy.get(key, {})
        metric = configuration.get("PredefinedMetricSpecification", {})
        kind, label = metric.get("PredefinedMetricType"), metric.get("ResourceLabel", "")
        if kind == "ALBRequestCountPerTarget" and "/targetgroup/" in label:
            balancer, _, group = label.partition("/targetgroup/")
            dimensions = (("LoadBalancer", balancer), ("TargetGroup", f"targetgroup/{group}"))
            counted = Metric("AWS/ApplicationELB", "RequestCount", "Sum", dimensions)
            requests.append(RequestTarget(counted, configuration["TargetValue"]))
        elif kind in _CPU_METRICS:
            cpu.append(float(configuration["TargetValue"]))
    return requests, min(cpu, default=None)


def _find_recorded(name: str, recorded: set[str], dimensions: tuple[tuple[str, str], ...]) -> Metric | None:
    return Metric("AWS/AutoScaling", name, "Maximum", dimensions) if name in recorded else None


def collect(items: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return items by the value of one of their fields. Pure."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in items:
        found.setdefault(each[key], []).append(each)
    return found
