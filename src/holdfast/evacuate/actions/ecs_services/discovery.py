"""Find the ECS services that have subnets in a zone, and those that cannot be moved by their subnets."""

from collections.abc import Mapping, Sequence

from holdfast._errors import NotFound
from holdfast._types import Zone
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.action import Discovery, Resource, Target, Unmovable
from holdfast.evacuate.actions.ecs_services.deployments import (
    Description,
    find_primary,
    find_rollback,
    get_network,
    get_reason,
    get_subnets,
    is_deployed,
    list_side_effects,
)
from holdfast.evacuate.ecs import PERMISSIONS as ECS_PERMISSIONS
from holdfast.evacuate.ecs import (
    TASK_PERMISSIONS,
    count_tasks,
    list_service_target_groups,
    list_services,
)
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.subnets import PERMISSIONS as SUBNET_PERMISSIONS
from holdfast.evacuate.subnets import find_zone_name, list_subnet_zones
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS
from holdfast.evacuate.tags import find_tagged
from holdfast.evacuate.zonal_traffic import PERMISSIONS as TRAFFIC_PERMISSIONS
from holdfast.evacuate.zonal_traffic import TrafficRule, find_obstacle, read_rules

SERVICE = "ecs"
RESOURCE_TYPE = "ecs-service"
PERMISSIONS = (
    *ECS_PERMISSIONS,
    *SUBNET_PERMISSIONS,
    *TAG_PERMISSIONS,
    *TASK_PERMISSIONS,
    *TRAFFIC_PERMISSIONS,
)
REFUSALS = dict.fromkeys(
    ("ClusterNotFoundException", "ServiceNotActiveException", "ServiceNotFoundException"), NotFound
)
"""The errors for codes that only ECS has."""
_REMEDIES = {
    "CODE_DEPLOY": "deploy it by CodeDeploy, with an AppSpec file that has subnets in other zones",
    "EXTERNAL": "create a task set with subnets in other zones, and make it the primary one",
}
"""How to move services whose network ECS itself cannot change, by their deployment controller."""


def find_services(account: Account, target: Target) -> Discovery:
    """Find the services of one account that have subnets in the zone."""
    session = account.reader
    with translate_refusals(session, REFUSALS):
        services = list_services(session)
        if not services:
            return Discovery()
        is_tagged = find_tagged(account, target.selection)
        zones = list_subnet_zones(session)
        chosen = [each for each in services if is_tagged(each["serviceArn"])]
        movable = [each for each in chosen if get_controller(each) == "ECS" and _list_removed(each, target.zone, zones)]
        used = {arn for each in movable for arn in list_service_target_groups(each)}
        zone_name = find_zone_name(session, target.zone) if used else ""

        def count(target_group: str) -> int:
            # Count the tasks of all services behind a target group: each gets a part of the traffic of the zone.
            sharing = [each for each in services if target_group in list_service_target_groups(each)]
            counts = (count_tasks(session, each["clusterArn"], serviceName=each["serviceName"]) for each in sharing)
            return sum(tasks[zone_name] for found in counts for tasks in found.values())

        rules = read_rules(session, used, count, target, is_tagged)
    unmovable = [found for each in chosen if (found := _explain(each, target.zone, zones)) is not None]
    resources = []
    for each in movable:
        applying = [rules[arn] for arn in list_service_target_groups(each) if arn in rules]
        resource, obstacle = _build_resource(each, target.zone, zones, applying), find_obstacle(applying)
        if obstacle is None:
            resources.append(resource)
        else:
            unmovable.append(Unmovable(resource=resource, reason=obstacle.obstacle, remedy=obstacle.remedy))
    return Discovery(
        resources=resources,
        unmovable=unmovable if target.lists_unmovable else [],
        notes=[
            f"{account.scope}: target groups or their balancers cannot be read, so services behind them stay: {problem}"
            for problem in sorted({each.problem for each in rules.values() if each.problem})
        ],
    )


def _list_removed(service: Description, zone: Zone, zones: Mapping[str, Zone]) -> list[str]:
    """Return the subnets of a service in a zone."""
    return [each for each in get_subnets(service) if zones.get(each) == zone]


def _build_resource(
    service: Description, zone: Zone, zones: Mapping[str, Zone], rules: Sequence[TrafficRule] = ()
) -> Resource:
    _, _, _, region, account, *_ = service["serviceArn"].split(":")
    removed = _list_removed(service, zone, zones)
    primary_reason = get_reason(find_primary(service))
    details = {
        "cluster": service["clusterArn"],
        "network": get_network(service),
        "removed": removed,
        "primary_reason": primary_reason,
        "was_deployed": is_deployed(service, get_subnets(service)),
        "rollback": find_rollback(service, removed, primary_reason),
        "shifted_first": sorted({arn for each in rules for arn in each.shifted_first}),
        "side_effects": [*list_side_effects(service), *(each.condition for each in rules if each.condition)],
    }
    name, arn = service["serviceName"], service["serviceArn"]
    return Resource(id=arn, type=RESOURCE_TYPE, name=name, account=account, region=region, details=details)


def _explain(service: Description, zone: Zone, zones: Mapping[str, Zone]) -> Unmovable | None:
    """Return why a service cannot be moved by its subnets; None if it can be, or is not in the zone."""
    controller = get_controller(service)
    used = {subnet for each in (service, *service.get("taskSets", ())) for subnet in get_subnets(each)}
    resource = _build_resource(service, zone, zones)
    if controller != "ECS" and any(zones.get(each) == zone for each in used):
        reason = f"its deployment controller is {controller}, so ECS does not change its subnets"
        return Unmovable(resource=resource, reason=reason, remedy=_REMEDIES.get(controller, ""))
    if not used and service.get("launchType") != "EXTERNAL":  # those run outside of AWS
        reason = "its tasks use the network of their instances, and may be in the zone"
        remedy = "move the Auto Scaling group of its capacity provider, by the action auto-scaling-groups"
        return Unmovable(resource=resource, reason=reason, remedy=remedy)
    return None


def get_controller(service: Description) -> str:
    """Return the deployment controller of a service, such as CODE_DEPLOY."""
    return str(service.get("deploymentController", {}).get("type", "ECS"))
