"""The Auto Scaling groups of one account and region, and the replies to calls about them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from holdfast._clock import Clock
from holdfast._types import Zone
from holdfast.simulate.aws.arc import Handler
from holdfast.simulate.aws.group_instances import Group, change_instances
from holdfast.simulate.aws.protocols import Refusal, ServiceError

PROCESSES = (
    *("Launch", "Terminate", "AddToLoadBalancer", "AlarmNotification", "AZRebalance", "HealthCheck"),
    *("InstanceRefresh", "ReplaceUnhealthy", "ScheduledActions"),
)
_UPDATED = {"AutoScalingGroupName", "VPCZoneIdentifier", "MinSize", "MaxSize", "DesiredCapacity"}
"""The parameters of UpdateAutoScalingGroup that are simulated."""


class Network(Protocol):
    """The zones and subnets of an account."""

    zones: dict[str, Zone]
    """The AZ-IDs, by the names that the account has for them."""
    subnets: dict[str, str]
    """The name of the zone of each subnet."""

    def register(
        self, kind: str, name: str, zones: Sequence[Zone], tags: Mapping[str, str], *, is_enabled: bool
    ) -> str:
        """Add a resource, and return its ARN. `is_enabled`: zonal shift is enabled for it."""


class Groups:
    """The Auto Scaling groups of one account and region. The caller of the handlers holds a lock."""

    def __init__(self, clock: Clock, network: Network) -> None:
        self._clock = clock
        self._network = network
        self._groups: dict[str, Group] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All operations, by name."""
        return {
            "DescribeAutoScalingGroups": self._list_groups,
            "UpdateAutoScalingGroup": self._update,
            "SuspendProcesses": self._suspend,
            "ResumeProcesses": self._resume,
            "DescribeInstanceRefreshes": self._list_refreshes,
            "DescribeScheduledActions": self._list_scheduled_actions,
            "DescribePolicies": self._list_policies,
        }

    def add(
        self,
        name: str,
        instances: Mapping[Zone, int],
        *,
        min_size: int = 0,
        max_size: int | None = None,
        desired: int | None = None,
        subnets: Sequence[str] | None = None,
        target_groups: Sequence[str] = (),
        policies: Sequence[Mapping[str, Any]] = (),
        scheduled_actions: Sequence[Mapping[str, Any]] = (),
        tags: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
        is_enabled: bool = False,
    ) -> str:
        """Add a group with a number of healthy instances in each of its zones. Return its ARN.

        By default, `desired` and `max_size` are the number of instances, and `subnets` has the first of each zone.
        With empty `subnets`, the group has only names of zones. `is_enabled`: zonal shift is enabled for it.
        """
        now, count = self._clock.wall(), sum(instances.values())
        names = [each for each, zone in self._network.zones.items() if zone in instances]
        arn = self._network.register("group", name, tuple(instances), tags or {}, is_enabled=is_enabled)
        details = {"AvailabilityZoneImpairmentPolicy": {"ZonalShiftEnabled": is_enabled}, **(details or {})}
        wanted = count if desired is None else desired
        group = self._groups[arn] = Group(
            arn=arn,
            name=name,
            subnets=self._find_subnets(names) if subnets is None else list(subnets),
            zone_names=names,
            min_size=min_size,
            max_size=max(count, wanted) if max_size is None else max_size,
            desired=wanted,
            tags=dict(tags or {}),
            target_groups=list(target_groups),
            policies=[dict(each) for each in policies],
            scheduled_actions=[dict(each) for each in scheduled_actions],
            details=details,
            created_at=now,
            seen_at=now,
        )
        for each in names:
            for _ in range(instances[self._network.zones[each]]):
                group.launch(each, ready_at=now).state = "InService"
        return arn

    def get(self, arn: str) -> Group:
        """Return a group as it is now."""
        group = self._groups[arn]
        self._go_on(group)
        return group

    def remove(self, arn: str) -> None:
        """Delete a group, if it exists."""
        self._groups.pop(arn, None)

    def count_instances(self, arn: str, state: str = "InService") -> dict[Zone, int]:
        """Return the number of instances of a group in each zone that has some."""
        names = [each.zone_name for each in self.get(arn).instances if each.state == state]
        return {zone: names.count(name) for name, zone in self._network.zones.items() if name in names}

    def _find_subnets(self, names: Collection[str]) -> list[str]:
        """Return the first subnet of each zone."""
        first = {name: subnet for subnet, name in reversed(self._network.subnets.items())}
        return [first[each] for each in names if each in first]

    def _find(self, values: Mapping[str, Any]) -> Group:
        name = values["AutoScalingGroupName"]
        for group in self._groups.values():
            if group.name == name:
                self._go_on(group)
                return group
        raise ServiceError(Refusal.INVALID, f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")

    def _get_zone_names(self, group: Group) -> list[str]:
        if not group.subnets:
            return group.zone_names
        used = {self._network.subnets[each] for each in group.subnets if each in self._network.subnets}
        return [each for each in self._network.zones if each in used]

    def _go_on(self, group: Group) -> None:
        """Carry out launches and terminations until now."""
        now = self._clock.wall()
        while True:
            change_instances(group, self._get_zone_names(group))
            due = [each for each in group.instances if each.state == "Pending" and each.ready_at <= now]
            if not due:
                break
            first = min(due, key=lambda each: each.ready_at)
            group.seen_at, first.state = first.ready_at, "InService"
        group.seen_at = now

    def _list_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        names, filters = values.get("AutoScalingGroupNames"), values.get("Filters", ())
        found = []
        for _, group in sorted(self._groups.items()):
            if (not names or group.name in names) and all(_has_tag(group, each) for each in filters):
                self._go_on(group)
                found.append(self._describe(group, has_instances=values.get("IncludeInstances", True)))
        return {"AutoScalingGroups": found}

    def _describe(self, group: Group, *, has_instances: bool) -> dict[str, Any]:
        names, zones = self._get_zone_names(group), self._network.zones
        network = {"VPCZoneIdentifier": ",".join(group.subnets)} if group.subnets else {}
        instances = [
            {
                "InstanceId": each.id,
                "InstanceType": each.type,
                "AvailabilityZone": each.zone_name,
                "AvailabilityZoneId": zones[each.zone_name],
                "LifecycleState": each.state,
                "HealthStatus": each.health,
                "ProtectedFromScaleIn": False,
                **({"WeightedCapacity": each.weight} if each.weight else {}),
            }
            for each in (group.instances if has_instances else ())
        ]
        return {
            "AutoScalingGroupARN": group.arn,
            "AutoScalingGroupName": group.name,
            "MinSize": group.min_size,
            "MaxSize": group.max_size,
            "DesiredCapacity": group.desired,
            "DefaultCooldown": 300,
            "HealthCheckType": "EC2",
            "CreatedTime": group.created_at,
            "AvailabilityZones": names,
            "AvailabilityZoneIds": [zones[each] for each in names],
            "Instances": instances,
            "TargetGroupARNs": group.target_groups,
            "Tags": [{"Key": key, "Value": value} for key, value in group.tags.items()],
            "SuspendedProcesses": [{"ProcessName": each} for each in sorted(group.suspended)],
            **network,
            **group.details,
        }

    def _update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        group = self._find(values)
        if unknown := sorted(set(values) - _UPDATED):
            raise ServiceError(Refusal.INVALID, f"{', '.join(unknown)} cannot be changed: this is not simulated")
        subnets = group.subnets
        if "VPCZoneIdentifier" in values:
            subnets = [each.strip() for each in values["VPCZoneIdentifier"].split(",")]
            for each in subnets:
                if each not in self._network.subnets:
                    raise ServiceError(Refusal.INVALID, f"The subnet ID '{each}' does not exist")
        least, most = values.get("MinSize", group.min_size), values.get("MaxSize", group.max_size)
        desired = values.get("DesiredCapacity", min(max(group.desired, least), most))
        if not 0 <= least <= desired <= most:
            text = f"Desired capacity:{desired} must be between the minimum {least} and the maximum {most}"
            raise ServiceError(Refusal.INVALID, text)
        group.subnets, group.min_size, group.max_size, group.desired = subnets, least, most, desired
        return {}

    def _suspend(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._find(values).suspended |= _read_processes(values)
        return {}

    def _resume(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._find(values).suspended -= _read_processes(values)
        return {}

    def _list_refreshes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        name = self._find(values).name
        return {"InstanceRefreshes": [{"AutoScalingGroupName": name, **each} for each in self._find(values).refreshes]}

    def _list_policies(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen = values.get("PolicyTypes")
        found = [
            {"AutoScalingGroupName": group.name, **each}
            for group in self._choose(values)
            for each in group.policies
            if not chosen or each.get("PolicyType") in chosen
        ]
        return {"ScalingPolicies": found}

    def _list_scheduled_actions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """List the actions that start in a period. Each has a `StartTime`."""
        start, end = (_read_time(values.get(each)) for each in ("StartTime", "EndTime"))
        found = [
            {"AutoScalingGroupName": group.name, **each}
            for group in self._choose(values)
            for each in group.scheduled_actions
            if (start is None or each["StartTime"] >= start) and (end is None or each["StartTime"] <= end)
        ]
        return {"ScheduledUpdateGroupActions": found}

    def _choose(self, values: Mapping[str, Any]) -> Iterator[Group]:
        """Yield the group that a call names; without a name, all of them."""
        if "AutoScalingGroupName" in values:
            yield self._find(values)
        else:
            yield from (group for _, group in sorted(self._groups.items()))


def _has_tag(group: Group, wanted: Mapping[str, Any]) -> bool:
    kind, _, key = wanted["Name"].partition(":")
    if kind == "tag" and key:
        return group.tags.get(key) in wanted["Values"]
    if kind == "tag-key":
        return any(each in group.tags for each in wanted["Values"])
    raise ServiceError(Refusal.INVALID, f"the filter {wanted['Name']} is not simulated")


def _read_processes(values: Mapping[str, Any]) -> set[str]:
    """Return the processes that a call names; without names, all of them."""
    found = set(values.get("ScalingProcesses", ())) or set(PROCESSES)
    if unknown := sorted(found - set(PROCESSES)):
        raise ServiceError(Refusal.INVALID, f"{unknown[0]} is not a process")
    return found


def _read_time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
