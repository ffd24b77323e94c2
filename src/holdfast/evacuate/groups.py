"""Read descriptions of Auto Scaling groups, as DescribeAutoScalingGroups returns them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Description = Mapping[str, Any]
"""A group, or one of its instances."""


def list_subnets(group: Description) -> list[str]:
    """Return the subnets of a group in their order."""
    return [name for each in group.get("VPCZoneIdentifier", "").split(",") if (name := each.strip())]


def list_suspended(group: Description) -> set[str]:
    """Return the processes of a group that are suspended."""
    return {each["ProcessName"] for each in group.get("SuspendedProcesses", ())}


def list_target_groups(group: Description) -> set[str]:
    """Return the ARNs of the target groups of a group."""
    sources = [each["Identifier"] for each in group.get("TrafficSources", ()) if each.get("Type") == "elbv2"]
    return {*group.get("TargetGroupARNs", ()), *sources}


def is_healthy(instance: Description) -> bool:
    """Return whether an instance of a group serves."""
    return (instance["LifecycleState"], instance["HealthStatus"].lower()) == ("InService", "healthy")


def list_healthy(group: Description) -> list[Description]:
    """Return the instances of a group that serve."""
    return [each for each in group.get("Instances", ()) if is_healthy(each)]


def count_units(instances: Iterable[Description]) -> int:
    """Return the capacity of instances in the unit of DesiredCapacity: those of mixed groups may have weights."""
    return sum(int(each.get("WeightedCapacity") or 1) for each in instances)
