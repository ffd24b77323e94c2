"""Describe ECS services by their running tasks in each zone and their scalable targets."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._types import Zone
from holdfast.evacuate.action import PARALLEL_CALLS
from holdfast.evacuate.actions.capacity.needs import LoadSource, Metric
from holdfast.evacuate.actions.capacity.services import SERVICE, ScaledService, collect, read_targets
from holdfast.evacuate.ecs import count_tasks, list_service_target_groups, list_services

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

DIMENSION = "ecs:service:DesiredCount"
"""The size of an ECS service, in Application Auto Scaling."""


class ListedServices(NamedTuple):
    """The active services of all clusters, and the number of their running tasks by zone name."""

    services: list[Mapping[str, Any]]
    tasks: dict[str, Counter[str]]
    """By the ARN of the service."""


def list_ecs_services(session: "AwsSession") -> ListedServices:
    """Return the services that have a number of tasks, in all clusters. Those with one task per instance are left out.

    Raise the errors of `list_services`.
    """
    services = [each for each in list_services(session) if each.get("schedulingStrategy", "REPLICA") == "REPLICA"]
    client = session.client("ecs")

    def count(cluster: str) -> dict[str, Counter[str]]:
        try:
            return count_tasks(session, cluster)
        except client.exceptions.ClusterNotFoundException:
            return {}  # it was deleted meanwhile

    clusters = sorted({each["clusterArn"] for each in services})
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        counts = dict(zip(clusters, pool.map(count, clusters), strict=True))
    none: Counter[str] = Counter()
    tasks = {
        each["serviceArn"]: counts[each["clusterArn"]].get(f"service:{each['serviceName']}", none) for each in services
    }
    return ListedServices(services, tasks)


def read_services(
    found: ListedServices,
    zones: Mapping[str, Zone],
    subnets: Mapping[str, Zone],
    targets: Iterable[Mapping[str, Any]],
    policies: Iterable[Mapping[str, Any]],
) -> list[ScaledService]:
    """Return ECS services with their scalable targets and policies. Pure. `subnets` has the zone of each subnet."""
    by_id = {each["ResourceId"]: each for each in targets if each["ScalableDimension"] == DIMENSION}
    policies_by_id = collect(policies, "ResourceId")
    result = []
    for service in found.services:
        units = Counter({subnets[each]: 0 for each in _get_subnets(service) if each in subnets})
        for zone_name, number in found.tasks[service["serviceArn"]].items():
            units[zones.get(zone_name, Zone(zone_name))] += number
        scalable_id = _get_scalable_id(service)
        result.append(_read_service(service, units, by_id.get(scalable_id), policies_by_id.get(scalable_id, [])))
    return result


def _get_scalable_id(service: Mapping[str, Any]) -> str:
    return f"service/{service['clusterArn'].rpartition('/')[2]}/{service['serviceName']}"


def _get_subnets(service: Mapping[str, Any]) -> Sequence[str]:
    """Return the subnets of a service; none if its tasks use the network of their instances."""
    found: Sequence[str] = service.get("networkConfiguration", {}).get("awsvpcConfiguration", {}).get("subnets", ())
    return found


def _read_service(
    service: Mapping[str, Any],
    units: Counter[Zone],
    target: Mapping[str, Any] | None,
    policies: Sequence[Mapping[str, Any]],
) -> ScaledService:
    request_targets, cpu_target = read_targets(policies, "TargetTrackingScalingPolicyConfiguration")
    suspended = {} if target is None else dict(target.get("SuspendedState", {}))
    _, cluster, name = _get_scalable_id(service).split("/")
    dimensions = (("ClusterName", cluster), ("ServiceName", name))
    return ScaledService(
        arn=service["serviceArn"],
        name=name,
        type=SERVICE,
        units=dict(units),
        load=LoadSource(
            unit="task",
            running=sum(units.values()),
            desired=service["desiredCount"],
            request_targets=request_targets,
            cpu=Metric("AWS/ECS", "CPUUtilization", "Average", dimensions),
            cpu_target=cpu_target,
            # Every task sends one sample in a minute.
            past_running=Metric("AWS/ECS", "CPUUtilization", "SampleCount", dimensions),
        ),
        desired=service["desiredCount"],
        bounds=None if target is None else (target["MinCapacity"], target["MaxCapacity"]),
        target_groups=list_service_target_groups(service),
        subnets=_get_subnets(service),
        task_definition=service.get("taskDefinition", "") if service.get("launchType") == "FARGATE" else "",
        scalable_id="" if target is None else target["ResourceId"],
        suspended=suspended,
        runs_schedules=not suspended.get("ScheduledScalingSuspended", False),
        has_policies=bool(policies),
    )
