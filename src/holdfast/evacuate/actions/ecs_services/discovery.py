"""Find the ECS services that have subnets in a zone, and those that cannot be moved by their subnets."""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast._errors import EngineError, NotFound
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
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.subnets import PERMISSIONS as SUBNET_PERMISSIONS
from holdfast.evacuate.subnets import list_subnet_zones
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS
from holdfast.evacuate.tags import find_tagged

SERVICE = "ecs"
RESOURCE_TYPE = "ecs-service"
PERMISSIONS = (
    "ecs:DescribeServices",
    "ecs:ListClusters",
    "ecs:ListServices",
    *SUBNET_PERMISSIONS,
    *TAG_PERMISSIONS,
)
_PAGE_SIZE = 100
_DESCRIBED_SERVICES = 10
"""Services that one call of DescribeServices accepts."""
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
    with translate_refusals(account.reader, REFUSALS):
        services = list(_list_services(account))
        if not services:
            return Discovery()
        is_tagged = find_tagged(account, target.selection)
        zones = list_subnet_zones(account.reader)
    chosen = [each for each in services if each["status"] == "ACTIVE" and is_tagged(each["serviceArn"])]
    movable = [each for each in chosen if get_controller(each) == "ECS" and get_subnets(each)]
    resources = [_build_resource(each, target.zone, zones) for each in movable]
    unmovable = [found for each in chosen if (found := _explain(each, target.zone, zones)) is not None]
    return Discovery(
        resources=[each for each in resources if each.details["removed"]],
        unmovable=unmovable if target.lists_unmovable else [],
    )


def _list_services(account: Account) -> Iterator[Description]:
    session = account.reader
    client = session.client(SERVICE)
    pages = {"PageSize": _PAGE_SIZE}
    for cluster in session.paginate(SERVICE, "list_clusters", PaginationConfig=pages):
        try:
            arns = list(session.paginate(SERVICE, "list_services", cluster=cluster, PaginationConfig=pages))
            for start in range(0, len(arns), _DESCRIBED_SERVICES):
                some = arns[start : start + _DESCRIBED_SERVICES]
                yield from list_described(client.describe_services(cluster=cluster, services=some))
        except client.exceptions.ClusterNotFoundException:
            continue  # it was deleted meanwhile


def _build_resource(service: Description, zone: Zone, zones: Mapping[str, Zone]) -> Resource:
    _, _, _, region, account, *_ = service["serviceArn"].split(":")
    removed = [each for each in get_subnets(service) if zones.get(each) == zone]
    primary_reason = get_reason(find_primary(service))
    details = {
        "cluster": service["clusterArn"],
        "network": get_network(service),
        "removed": removed,
        "primary_reason": primary_reason,
        "was_deployed": is_deployed(service, get_subnets(service)),
        "rollback": find_rollback(service, removed, primary_reason),
        "side_effects": list(list_side_effects(service)),
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


def list_described(reply: Mapping[str, Any]) -> list[Description]:
    """Return the services of a reply of DescribeServices.

    Raise EngineError if a service could not be described, although it may exist.
    """
    for each in reply["failures"]:
        if each.get("reason") != "MISSING":
            raise EngineError(f"AWS cannot describe {each.get('arn')}: {each.get('reason')} {each.get('detail', '')}")
    return list(reply["services"])


def get_controller(service: Description) -> str:
    """Return the deployment controller of a service, such as CODE_DEPLOY."""
    return str(service.get("deploymentController", {}).get("type", "ECS"))
