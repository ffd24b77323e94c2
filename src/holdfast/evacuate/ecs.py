"""Read the ECS services of an account, and count their running tasks in each zone."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from holdfast._errors import EngineError
from holdfast.evacuate.action import PARALLEL_CALLS

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = ("ecs:DescribeServices", "ecs:ListClusters", "ecs:ListServices")
TASK_PERMISSIONS = ("ecs:DescribeTasks", "ecs:ListTasks")
_SERVICES_PER_CALL, _TASKS_PER_CALL = 10, 100
"""By the limits of AWS."""


def list_services(session: "AwsSession") -> list[Mapping[str, Any]]:
    """Return the active services of all clusters. Those of clusters that are deleted meanwhile are missing.

    Raise EngineError if a service cannot be described, the errors of `holdfast.engines.aws`, and ClientError.
    """
    client = session.client("ecs")

    def read(cluster: str) -> list[Mapping[str, Any]]:
        try:
            arns = list(session.paginate("ecs", "list_services", cluster=cluster))
            replies = (
                client.describe_services(cluster=cluster, services=each) for each in _divide(arns, _SERVICES_PER_CALL)
            )
            return [each for reply in replies for each in list_described(reply) if each["status"] == "ACTIVE"]
        except client.exceptions.ClusterNotFoundException:
            return []

    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        return [each for found in pool.map(read, session.paginate("ecs", "list_clusters")) for each in found]


def list_described(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the services of a reply of DescribeServices. Pure.

    Raise EngineError if a service could not be described, although it may exist.
    """
    for each in reply.get("failures", ()):
        if each.get("reason") != "MISSING":
            raise EngineError(f"AWS cannot describe {each.get('arn')}: {each.get('reason')} {each.get('detail', '')}")
    return list(reply["services"])


def count_tasks(session: "AwsSession", cluster: str, **arguments: str) -> dict[str, Counter[str]]:
    """Return the number of running tasks of a cluster by the name of their zone, for each group such as `service:shop`.

    `arguments` restrict the list, such as `serviceName`.
    """
    counts: dict[str, Counter[str]] = {}
    arns = list(session.paginate("ecs", "list_tasks", cluster=cluster, **arguments))
    for batch in _divide(arns, _TASKS_PER_CALL):
        for task in session.client("ecs").describe_tasks(cluster=cluster, tasks=batch)["tasks"]:
            if task["lastStatus"] == "RUNNING" and "availabilityZone" in task:
                counts.setdefault(task.get("group", ""), Counter())[task["availabilityZone"]] += 1
    return counts


def list_service_target_groups(service: Mapping[str, Any]) -> list[str]:
    """Return the ARNs of the target groups of a service. Pure. A service with two of them takes turns between both."""
    balancers = service.get("loadBalancers", ())
    found = [each.get("targetGroupArn") for each in balancers]
    found += [each.get("advancedConfiguration", {}).get("alternateTargetGroupArn") for each in balancers]
    return [each for each in found if each]


def _divide(items: Sequence[str], size: int) -> Iterator[list[str]]:
    return (list(items[number : number + size]) for number in range(0, len(items), size))
