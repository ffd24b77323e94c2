"""Read the ECS services of an account, with their running tasks in each zone and their scalable targets."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._errors import EngineError
from holdfast._types import Zone
from holdfast.evacuate.action import PARALLEL_CALLS
from holdfast.evacuate.actions.capacity.needs import LoadSource, Metric
from holdfast.evacuate.actions.capacity.services import SERVICE, ScaledService, collect, read_targets

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = ("ecs:DescribeServices", "ecs:DescribeTasks", "ecs:ListClusters", "ecs:ListServices", "ecs:ListTasks")
DIMENSION = "ecs:service:DesiredCount"
"""The size of an ECS service, in Application Auto Scaling."""
_SERVICES_PER_CALL, _TASKS_PER_CALL = 10, 100
"""By the limits of AWS."""


class EcsServices(NamedTuple):
    """The active services of all clusters, and the number of their running tasks by zone name."""

    services: list[Mapping[str, Any]]
    tasks: dict[str, Counter[str]]
    """By the ARN of the service."""


def list_ecs_services(session: "AwsSession") -> EcsServices:
    """Return the services that have a number of tasks, in all clusters. Those with one task per instance are left out.

    Raise the errors of `holdfast.engines.aws`, and botocore's ClientError.
    """
    client = session.client("ecs")

    def read(cluster: str) -> EcsServices:
        try:
            arns = list(session.paginate("ecs", "list_services", cluster=cluster))
            services = [
                each for batch in _divide(arns, _SERVICES_PER_CALL) for each in _describe(client, cluster, batch)
            ]
            counts = count_tasks(session, cluster) if services else {}
        except client.exceptions.ClusterNotFoundException:
            return EcsServices([], {})  # it was deleted meanwhile
        found = {each["serviceArn"]: counts.get(f"service:{each['serviceName']}", Counter()) for each in services}
        return EcsServices(services, found)

    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        found = list(pool.map(read, session.paginate("ecs", "list_clusters")))
    tasks = {arn: count for each in found for arn, count in each.tasks.items()}
    return EcsServices([service for each in found for service in each.services], tasks)


def _describe(client: Any, cluster: str, arns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    reply = client.describe_services(cluster=cluster, services=list(arns))
    for failure in reply.get("failures", ()):
        if failure["reason"] != "MISSING":
            raise EngineError(f"{failure.get('arn', cluster)} cannot be read: {failure['reason']}")
    for each in reply["services"]:
        if each["status"] == "ACTIVE" and each.get("schedulingStrategy", "REPLICA") == "REPLICA":
            yield each


def count_tasks(session: "AwsSession", cluster: str, **arguments: str) -> dict[str, Counter[str]]:
    """Return the number of running tasks of a cluster by the name of their zone, for each group such as `service:shop`.

    `arguments` restrict the list, such as `serviceName`.
    """
    counts: dict[str, Counter[str]] = {}
    arns = list(session.paginate("ecs", "list_tasks", cluster=cluster, **arguments))
    for batch in _divide(arns, _TASKS_PER_CALL):
        for task in session.client("ecs").describe_tasks(cluster=cluster, tasks=list(batch))["tasks"]:
            if task["lastStatus"] == "RUNNING" and "availabilityZone" in task:
                counts.setdefault(task.get("group", ""), Counter())[task["availabilityZone"]] += 1
    return counts


def read_services(
    found: EcsServices,
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
    balancers = service.get("loadBalancers", ())
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
        ),
        desired=service["desiredCount"],
        bounds=None if target is None else (target["MinCapacity"], target["MaxCapacity"]),
        target_groups=[each["targetGroupArn"] for each in balancers if "targetGroupArn" in each],
        subnets=_get_subnets(service),
        scalable_id="" if target is None else target["ResourceId"],
        suspended=suspended,
        runs_schedules=not suspended.get("ScheduledScalingSuspended", False),
        has_policies=bool(policies),
    )


def _divide(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[number : number + size] for number in range(0, len(items), size))
