"""Find the groups and services of one account in a zone, measure their capacity, and decide how it is held.

Groups, services and scalable targets must be readable, or the account counts as unreadable. Everything else makes the
answer better: if it cannot be read, a note says so, and the more careful assumption is made.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast._errors import HoldfastError
from holdfast._types import Zone
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.action import Discovery, Resource, Target
from holdfast.evacuate.actions.capacity.ecs_tasks import DIMENSION, list_ecs_services, read_services
from holdfast.evacuate.actions.capacity.holds import SUFFIX, SUSPENDED_KEYS, Hold
from holdfast.evacuate.actions.capacity.needs import PERMISSIONS as NEED_PERMISSIONS
from holdfast.evacuate.actions.capacity.needs import find_needs
from holdfast.evacuate.actions.capacity.quotas import PERMISSIONS as QUOTA_PERMISSIONS
from holdfast.evacuate.actions.capacity.quotas import Quotas, SizeLimit
from holdfast.evacuate.actions.capacity.scale_out import NOTHING, ScaleOut, plan_scale_out
from holdfast.evacuate.actions.capacity.schedules import PERMISSIONS as SCHEDULE_PERMISSIONS
from holdfast.evacuate.actions.capacity.schedules import describe_group_actions, describe_service_actions
from holdfast.evacuate.actions.capacity.services import GROUP, ScaledService, read_groups
from holdfast.evacuate.capacity import ServiceCapacity, check_capacity
from holdfast.evacuate.ecs import PERMISSIONS as ECS_PERMISSIONS
from holdfast.evacuate.ecs import TASK_PERMISSIONS
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.tags import find_tagged
from holdfast.evacuate.target_groups import PERMISSIONS as TARGET_GROUP_PERMISSIONS
from holdfast.evacuate.target_groups import read_target_groups

PERMISSIONS = (
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingPolicies",
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribePolicies",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeSubnets",
    *ECS_PERMISSIONS,
    *NEED_PERMISSIONS,
    *QUOTA_PERMISSIONS,
    *SCHEDULE_PERMISSIONS,
    *TARGET_GROUP_PERMISSIONS,
    *TASK_PERMISSIONS,
)
TYPE = "capacity-hold"


class MeasurementOptions(Struct, frozen=True, kw_only=True):
    """Options of a measurement of capacity at a time."""

    days: int
    """Days whose highest load must fit."""
    scales_out: bool
    """Whether units are added in the other zones, where they lack."""
    now: float


def discover_capacity(account: Account, target: Target, options: MeasurementOptions) -> Discovery:
    """Return the holds and the capacities of one account. Raise HoldfastError if its groups or services are unknown."""
    reader = _Reader(account)
    found = reader.read_services(target)
    if not found:
        return Discovery(notes=reader.notes)
    needs = find_needs(account.reader, {each.arn: each.load for each in found}, days=options.days, now=options.now)
    reader.notes += [f"{account.scope}: {each}" for each in needs.notes]
    crossing, schedules = reader.read_cross_zone(found), reader.read_schedules()
    quotas = Quotas(account.reader, options.now)
    resources, capacities = [], []
    for service in found:
        need = needs.by_id[service.arn]
        capacity = ServiceCapacity(
            id=service.arn,
            name=service.name,
            type=service.type,
            by_zone=service.units,
            need=need.units,
            basis=need.basis,
            is_weak=need.is_weak,
            is_cross_zone=crossing[service.arn],
        )
        growth, is_chosen = NOTHING, reader.is_chosen(service, target.selection)
        if options.scales_out and is_chosen:
            growth = _plan_growth(service, capacity, target.zone, reader.count_addresses(service), quotas)
        if service.desired or any(service.units.values()):
            capacities.append(msgspec.structs.replace(capacity, added=growth.added, limit=growth.limit))
        names = [name for name, zone in reader.zones.items() if zone in service.units and zone != target.zone]
        hold = build_hold(service, growth, names)
        if hold is not None and schedules.sets_size(service):
            hold = msgspec.structs.replace(hold, size_before=0)  # its schedule decides the size after a restore
        if hold is not None and is_chosen:
            effects = _list_effects(service, hold, growth, schedules, options.now)
            resources.append(_build_resource(service, hold, effects))
    notes = [*reader.notes, *(f"{account.scope}: {each}" for each in sorted(quotas.problems))]
    return Discovery(resources=resources, capacities=capacities, notes=notes)


def build_hold(service: ScaledService, growth: ScaleOut, zone_names: Sequence[str]) -> Hold | None:
    """Return the change that holds the capacity of a service; None if nothing can remove any. Pure."""
    if service.bounds is None or service.is_foreign:
        return None
    before = service.bounds[0]
    is_group = service.type == GROUP
    held = max(before, growth.size, service.desired if is_group else 0)
    suspends = not is_group and not service.suspended.get(SUSPENDED_KEYS[0], False)
    if held == before and not suspends:
        return None
    return Hold(
        kind=service.type,
        name=service.name if is_group else service.scalable_id,
        before=before,
        held=held,
        suspends=suspends,
        zone_names=tuple(zone_names),
        others=growth.others,
        per_zone=growth.per_zone,
        size_before=service.desired if growth.size and not service.has_policies else 0,
    )


def _plan_growth(
    service: ScaledService, capacity: ServiceCapacity, zone: Zone, free: Mapping[Zone, float] | None, quotas: Quotas
) -> ScaleOut:
    """Return the size before traffic is moved, if the other zones lack capacity."""
    if check_capacity(capacity, zone).suffices:
        return NOTHING
    if service.is_foreign:
        return ScaleOut(size=0, added=0.0, limit="another service of AWS manages its size")
    if service.bounds is None:
        return ScaleOut(size=0, added=0.0, limit="it has no scalable target")
    most, name = service.bounds[1], "MaxSize" if service.type == GROUP else "MaxCapacity"
    limits = [SizeLimit(most, f"{name} {most}")]
    if (by_quota := quotas.find_limit(service)) is not None:
        limits.append(by_quota)
    size, reason = min(limits)
    growth = plan_scale_out(capacity, zone, desired=service.desired, max_size=size, max_reason=reason, free=free)
    quotas.take(service, growth.size)
    return growth


def _build_resource(service: ScaledService, hold: Hold, effects: Sequence[str]) -> Resource:
    _, _, _, region, account, *_ = service.arn.split(":")
    return Resource(
        id=f"{service.arn}{SUFFIX}",
        type=TYPE,
        name=service.name,
        account=account,
        region=region,
        details={"hold": msgspec.to_builtins(hold), "effects": list(effects)},
        is_always_included=True,
    )


def _list_effects(
    service: ScaledService, hold: Hold, growth: ScaleOut, schedules: "_Schedules", now: float
) -> list[str]:
    effects = []
    if growth.size:
        effects.append(f"starts {growth.added:g} more {service.load.unit}s in the other zones before traffic is moved")
        if not service.has_policies and service.type != GROUP:
            effects.append("no scaling policy removes them after a restore: set its desired size back by hand")
    if not service.runs_schedules:
        return effects
    size, region = max(hold.held, service.desired), service.arn.split(":")[3]
    if service.type == GROUP:
        return effects + describe_group_actions(
            schedules.of_groups, name=service.name, size=size, region=region, now=now
        )
    scale_in, scale_out, scheduled = SUSPENDED_KEYS
    suspended = {scale_in: True, scale_out: service.suspended.get(scale_out, False), scheduled: True}
    return effects + describe_service_actions(
        schedules.of_services, resource=service.scalable_id, size=size, suspended=suspended, region=region, now=now
    )


class _Schedules(Struct, frozen=True):
    """The scheduled actions of all groups, and of all services."""

    of_groups: list[Any]
    of_services: list[Any]

    def sets_size(self, service: ScaledService) -> bool:
        """Return whether scheduled actions decide the size of a service."""
        groups = {each["AutoScalingGroupName"] for each in self.of_groups}
        return service.name in groups or service.scalable_id in {each["ResourceId"] for each in self.of_services}


class _Reader:
    """Reads one account, and collects notes about lists that cannot be read."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._session = account.reader
        self._subnets: list[Any] = []
        self._is_tagged: Callable[[str], bool] = lambda _: True
        self.notes: list[str] = []
        self.zones: dict[str, Zone] = {}
        """The AZ-IDs, by the names of the account."""

    def read_services(self, target: Target) -> list[ScaledService]:
        """Return the groups and services of the workload in the zone, whatever the selection takes of them.

        A balancer that is moved alone sends its traffic to all of them.
        """
        session = self._session
        with translate_refusals(session):
            described = session.client("ec2").describe_availability_zones()["AvailabilityZones"]
            self.zones = {each["ZoneName"]: Zone(each["ZoneId"]) for each in described}
            groups = list(session.paginate("autoscaling", "describe_auto_scaling_groups"))
            services = list_ecs_services(session)
            ecs = {"ServiceNamespace": "ecs"}
            targets = list(session.paginate("application-autoscaling", "describe_scalable_targets", **ecs))
            self._is_tagged = find_tagged(self._account, target.selection)
            is_in_scope = self._is_tagged
            if target.scope.tags != target.selection.tags:
                is_in_scope = find_tagged(self._account, target.scope)
        self._subnets = self._read(
            "subnets, and so their free IP addresses,", lambda: session.paginate("ec2", "describe_subnets")
        )
        group_policies = self._read("policies of groups", lambda: session.paginate("autoscaling", "describe_policies"))
        service_policies = self._read(
            "policies of ECS services",
            lambda: session.paginate("application-autoscaling", "describe_scaling_policies", **ecs),
        )
        subnets = {each["SubnetId"]: Zone(each["AvailabilityZoneId"]) for each in self._subnets}
        found = read_groups(groups, self.zones, group_policies)
        found += read_services(services, self.zones, subnets, targets, service_policies)
        return [
            each
            for each in found
            if target.zone in each.units and is_in_scope(each.arn) and target.scope.matches(None, each.name)
        ]

    def is_chosen(self, service: ScaledService, selection: Selection) -> bool:
        """Return whether a service is held. Types do not matter: if only a balancer is moved, capacity is needed."""
        return self._is_tagged(service.arn) and selection.matches(None, service.name)

    def read_cross_zone(self, services: Sequence[ScaledService]) -> dict[str, bool]:
        """Return whether the traffic of each service is spread over all zones, by ARN."""
        groups = read_target_groups(self._session, {arn for each in services for arn in each.target_groups})
        unknown = {each.name: arn for each in services for arn in each.target_groups if arn in groups.problems}
        if unknown:
            names, error = ", ".join(sorted(unknown)), groups.problems[next(iter(unknown.values()))]
            text = f"cross-zone load balancing of {names} cannot be read, and is assumed to be off: {error}"
            self.notes.append(f"{self._account.scope}: {text}")
        zonal = {arn for arn, each in groups.found.items() if not each.is_cross_zone} | set(groups.problems)
        return {each.arn: not zonal & set(each.target_groups) for each in services}

    def read_schedules(self) -> _Schedules:
        """Return all scheduled actions."""
        session = self._session
        return _Schedules(
            self._read(
                "scheduled actions of groups", lambda: session.paginate("autoscaling", "describe_scheduled_actions")
            ),
            self._read(
                "scheduled actions of ECS services",
                lambda: session.paginate(
                    "application-autoscaling",
                    "describe_scheduled_actions",
                    ServiceNamespace="ecs",
                    ScalableDimension=DIMENSION,
                ),
            ),
        )

    def count_addresses(self, service: ScaledService) -> dict[Zone, float] | None:
        """Return the units for which the subnets of a service have addresses; None if its subnets are unknown."""
        used = [each for each in self._subnets if each["SubnetId"] in service.subnets]
        free: dict[Zone, float] = {}
        for each in used:
            zone = Zone(each["AvailabilityZoneId"])
            free[zone] = free.get(zone, 0.0) + each["AvailableIpAddressCount"] * service.load.weight
        return free if used else None

    def _read(self, what: str, lister: Callable[[], Iterable[Any]]) -> list[Any]:
        try:
            with translate_refusals(self._session):
                return list(lister())
        except HoldfastError as error:
            self.notes.append(f"{self._account.scope}: {what} cannot be read: {error}")
            return []
