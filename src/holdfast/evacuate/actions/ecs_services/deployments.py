"""Read the deployments of an ECS service, as DescribeServices returns them. Pure.

A change of the network configuration starts a deployment. If its tasks fail to start, a circuit breaker or an alarm
may roll the service back, with the subnets before the change. A change must then not be repeated again and again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

Description = Mapping[str, Any]
"""A service, or one of its deployments."""
_FAILED, _COMPLETED = "FAILED", "COMPLETED"
_ROLLING_BACK = "rolling back"
"""Text in the reason of a deployment that ECS has returned to."""


def get_network(description: Description) -> Mapping[str, Any]:
    """Return the network configuration of tasks with addresses of their own; empty for other tasks."""
    found: Mapping[str, Any] = description.get("networkConfiguration", {}).get("awsvpcConfiguration", {})
    return found


def get_subnets(description: Description) -> Sequence[str]:
    """Return the subnets of a service or a deployment."""
    subnets: Sequence[str] = get_network(description).get("subnets", ())
    return subnets


def find_primary(service: Description) -> Description:
    """Return the newest deployment, or an empty one."""
    return next((each for each in service.get("deployments", ()) if each.get("status") == "PRIMARY"), {})


def find_rollback(service: Description, removed: Collection[str], known_reason: str) -> str:
    """Return why ECS has returned to subnets that were removed; "" if it has not.

    There are two signs. A deployment without these subnets is listed as failed, while the primary deployment has them.
    Or the primary deployment says that ECS is rolling back, and did not say so when the change was planned: then its
    reason was `known_reason`.
    """
    primary = find_primary(service)
    if not set(removed) & {*get_subnets(primary), *get_subnets(service)}:
        return ""
    for each in _list_failed(service):
        if get_subnets(each) and not set(removed) & set(get_subnets(each)):
            return get_reason(each)
    reason = get_reason(primary)
    return reason if _ROLLING_BACK in reason and reason != known_reason else ""


def find_failed_return(service: Description, missing: Collection[str], since: float) -> str:
    """Return why a deployment with the missing subnets has failed; "" if none has. Older ones do not count."""
    for each in _list_failed(service):
        created = each.get("createdAt")
        if isinstance(created, datetime) and created.timestamp() >= since and set(missing) & set(get_subnets(each)):
            return get_reason(each)
    return ""


def get_failure(service: Description) -> str:
    """Return why the primary deployment has failed; "" if it has not."""
    primary = find_primary(service)
    return get_reason(primary) if primary.get("rolloutState") == _FAILED else ""


def is_deployed(service: Description, subnets: Collection[str]) -> bool:
    """Return whether all tasks run with a configuration that has some subnets."""
    primary = find_primary(service)
    if not set(subnets) <= set(get_subnets(primary) or get_subnets(service)):
        return False
    if "rolloutState" in primary:
        return bool(primary["rolloutState"] == _COMPLETED)
    # Services behind a Classic Load Balancer have no state.
    counts = primary or service
    return bool(counts.get("runningCount", 0) >= counts.get("desiredCount", 0))


def get_reason(deployment: Description) -> str:
    """Return the reason for the state of a deployment, in the words of ECS."""
    return str(deployment.get("rolloutStateReason") or deployment.get("rolloutState") or "")


def list_side_effects(service: Description) -> Iterator[str]:
    """Yield the effects that a change of the network configuration has on a service."""
    configuration = service.get("deploymentConfiguration", {})
    least, most = (configuration.get(each) for each in ("minimumHealthyPercent", "maximumPercent"))
    limits = "" if None in (least, most) else f", within {least} % and {most} % of the desired number"
    yield f"replaces ALL tasks{limits}; if its image tag points to another image now, they run other code"
    if find_primary(service).get("rolloutState") == "IN_PROGRESS":
        yield "interrupts a deployment that is in progress"
    strategy = configuration.get("strategy", "ROLLING")
    if strategy != "ROLLING":
        minutes = configuration.get("bakeTimeInMinutes", 0)
        yield f"its strategy {strategy} moves traffic step by step, with a bake time of {minutes} minutes"
    names = {"deploymentCircuitBreaker": "circuit breaker", "alarms": "deployment alarms"}
    rollbacks = [names[each] for each in names if _rolls_back(configuration.get(each, {}))]
    if rollbacks:
        yield f"if tasks fail to start elsewhere, ECS rolls back to the subnets in the zone ({' and '.join(rollbacks)})"
    if service.get("launchType") == "EC2":
        yield "tasks start only on instances in the other zones, which need room for them"
    if any("loadBalancerName" in each for each in service.get("loadBalancers", ())):
        yield (
            "it is behind a Classic Load Balancer: if its cross-zone load balancing is off, its last tasks in the zone "
            "get all traffic of the zone"
        )


def _rolls_back(setting: Mapping[str, Any]) -> bool:
    return bool(setting.get("enable") and setting.get("rollback"))


def _list_failed(service: Description) -> Iterator[Description]:
    """Yield the failed deployments that the primary deployment has replaced."""
    for each in service.get("deployments", ()):
        if each.get("rolloutState") == _FAILED and each.get("status") != "PRIMARY":
            yield each
