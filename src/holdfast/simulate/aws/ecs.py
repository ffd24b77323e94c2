"""The ECS clusters and services of one account and region, with deployments that take time.

A change of the network configuration replaces all tasks: the deployment is in progress for some seconds, and then the
tasks are in the zones of its subnets. A service whose deployments fail returns to the last good deployment if its
circuit breaker rolls back, and otherwise keeps its tasks.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast._clock import Clock
from holdfast._types import Zone
from holdfast.simulate.aws.arc import Handler
from holdfast.simulate.aws.protocols import ServiceError

DEPLOY_SECONDS = 60.0
MAX_SERVICES, MAX_TASKS, MAX_SUBNETS = 10, 100, 16
"""Services and tasks that one call describes, and subnets of a service."""
ROLLBACK = {"deploymentCircuitBreaker": {"enable": True, "rollback": True}}
"""The deployment configuration of a service that rolls back."""
_BREAKER = "ECS deployment circuit breaker"
_UPDATED = {"cluster", "service", "desiredCount", "networkConfiguration"}
"""The parameters of UpdateService that are simulated."""


class Network(Protocol):
    """The zones, subnets and tags of an account."""

    zones: dict[str, Zone]
    """The AZ-IDs, by the names that the account has for them."""
    subnets: dict[str, str]
    """The name of the zone of each subnet."""
    tags: dict[str, dict[str, str]]
    """The tags of resources, by ARN."""


@dataclass(slots=True, kw_only=True)
class Deployment:
    """A deployment of a service: its tasks are in the zones of its network configuration."""

    number: int
    network: dict[str, Any] | None
    created: float
    started: float
    state: str = "IN_PROGRESS"
    reason: str = ""
    has_tasks: bool = False
    """Whether the running tasks are those of this deployment."""

    @property
    def id(self) -> str:
        return f"ecs-svc/{self.number:019}"

    def end(self, state: str) -> None:
        """End it as COMPLETED or FAILED."""
        self.state, self.has_tasks = state, state == "COMPLETED"
        self.reason = (
            f"ECS deployment {self.id} completed." if self.has_tasks else f"{_BREAKER}: tasks failed to start."
        )

    def roll_back(self, now: float) -> None:
        """Begin it again, because the deployment after it has failed."""
        self.state, self.started = "IN_PROGRESS", now
        self.reason = f"{_BREAKER}: rolling back to deploymentId {self.id}."


@dataclass(slots=True, kw_only=True)
class EcsService:
    """A service. Tests may change every field."""

    arn: str
    cluster: str
    """The ARN of its cluster."""
    name: str
    network: dict[str, Any] | None
    """The `awsvpcConfiguration`, or None for tasks in the network of their instances."""
    desired: int
    task_zones: list[Zone] | None = None
    """The zone of each running task, if it does not follow from the subnets."""
    pending: int = 0
    """Tasks that are not running yet, in addition to those that are desired."""
    status: str = "ACTIVE"
    controller: str = "ECS"
    configuration: dict[str, Any] = field(default_factory=lambda: {"maximumPercent": 200, "minimumHealthyPercent": 100})
    details: dict[str, Any] = field(default_factory=lambda: {"launchType": "FARGATE", "schedulingStrategy": "REPLICA"})
    """Further fields of the description, which have no effect."""
    reports_rollout: bool = True
    """Whether deployments have a `rolloutState`. Those behind a Classic Load Balancer have none."""
    fails: bool = False
    """Whether deployments that end from now on fail."""
    deployments: list[Deployment] = field(default_factory=list)
    """The primary deployment first, then those that it replaces."""
    deployed: int = 0
    """Deployments so far."""

    def deploy(self, now: float) -> None:
        """Begin a deployment with the configuration as it is."""
        self.deployed += 1
        self.deployments.insert(0, Deployment(number=self.deployed, network=self.network, created=now, started=now))
        self.task_zones = None


class Ecs:
    """The clusters and services of one account and region. The caller of the handlers holds a lock."""

    def __init__(self, clock: Clock, prefix: str, network: Network) -> None:
        """`prefix` is the beginning of all ARNs, such as `arn:aws:ecs:us-east-1:123456789012`."""
        self.services: dict[str, EcsService] = {}
        self.clusters: list[str] = []
        """The ARNs of all clusters."""
        self.deploy_seconds = DEPLOY_SECONDS
        self.task_cpu = "1024"
        """The CPU units of each task: 1024 are one vCPU."""
        self._clock, self._prefix, self._network = clock, prefix, network

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """All operations, by name."""
        return {
            "ListClusters": lambda _: {"clusterArns": list(self.clusters)},
            "ListServices": self._list_services,
            "DescribeServices": self._describe_services,
            "UpdateService": self._update,
            "ListTasks": self._list_tasks,
            "DescribeTasks": self._describe_tasks,
            "DescribeTaskDefinition": self._describe_definition,
        }

    def add(
        self,
        cluster: str,
        service: str,
        *zones: Zone,
        desired: int = 6,
        tasks: Mapping[Zone, int] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Add a service in some zones, or in all, and its cluster. Return the ARN of the service.

        `tasks` has the number of running tasks in each zone; by default they are spread over the zones.
        """
        used = zones or tuple(tasks or self._network.zones.values())
        cluster_arn, arn = f"{self._prefix}:cluster/{cluster}", f"{self._prefix}:service/{cluster}/{service}"
        placed = None if tasks is None else [zone for zone, number in tasks.items() for _ in range(number)]
        network = {
            "subnets": [each for each, name in self._network.subnets.items() if self._network.zones[name] in used],
            "securityGroups": ["sg-shop"],
            "assignPublicIp": "DISABLED",
        }
        count = desired if placed is None else len(placed)
        added = EcsService(arn=arn, cluster=cluster_arn, name=service, network=network, desired=count)
        added.deploy(self._clock.wall())
        added.deployments[0].end("COMPLETED")
        added.task_zones = placed
        self.services[arn] = added
        self._network.tags[arn] = dict(tags or {})
        if cluster_arn not in self.clusters:
            self.clusters.append(cluster_arn)
        return arn

    def count_tasks(self, arn: str) -> Mapping[Zone, int]:
        """Return the number of running tasks in each zone."""
        return Counter(self._list_zones(self.services[arn]))

    def _list_zones(self, service: EcsService) -> list[Zone]:
        """Return the zone of each running task. Tasks in the network of their instances are in all zones."""
        self._advance(service)
        if service.task_zones is not None:
            return service.task_zones
        network = next(each.network for each in service.deployments if each.has_tasks)
        subnets = list(self._network.subnets) if network is None else network["subnets"]
        zones = [self._network.zones[self._network.subnets[each]] for each in subnets if each in self._network.subnets]
        return [zones[number % len(zones)] for number in range(service.desired if zones else 0)]

    def _advance(self, service: EcsService) -> None:
        """End the deployment of a service if it was in progress for long enough."""
        primary, now = service.deployments[0], self._clock.wall()
        if primary.state != "IN_PROGRESS" or now < primary.started + self.deploy_seconds:
            return
        if not service.fails or primary.has_tasks:  # a rollback itself does not fail
            primary.end("COMPLETED")
            service.deployments = [primary]
            return
        primary.end("FAILED")
        if service.configuration.get("deploymentCircuitBreaker", {}).get("rollback"):
            before = next(each for each in service.deployments if each.has_tasks)
            before.roll_back(now)
            service.network = before.network
            service.deployments = [before, primary]

    def _list_services(self, values: Mapping[str, Any]) -> dict[str, Any]:
        cluster = self._find_cluster(values)
        return {"serviceArns": sorted(arn for arn, each in self.services.items() if each.cluster == cluster)}

    def _describe_services(self, values: Mapping[str, Any]) -> dict[str, Any]:
        cluster, wanted = self._find_cluster(values), values["services"]
        _require_at_most(MAX_SERVICES, wanted, "services")
        found = {each: self._find_service(cluster, each) for each in wanted}
        missing = [{"arn": each, "reason": "MISSING"} for each, service in found.items() if service is None]
        services = [self._describe(each) for each in found.values() if each is not None]
        return {"services": services, "failures": missing}

    def _update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        service = self._find_service(self._find_cluster(values), values["service"])
        if set(values) - _UPDATED:
            raise ServiceError("InvalidParameterException", f"not simulated: {set(values) - _UPDATED}")
        if service is None:
            raise ServiceError("ServiceNotFoundException", "Service not found.")
        if service.status != "ACTIVE":
            raise ServiceError("ServiceNotActiveException", "Service was not ACTIVE.")
        self._advance(service)
        service.desired = values.get("desiredCount", service.desired)
        if "networkConfiguration" in values:
            given = values["networkConfiguration"]["awsvpcConfiguration"]
            self._check_network(service, given["subnets"])
            # Parts that are left out get their defaults: they do not stay as they were.
            service.network = {"securityGroups": ["sg-default"], "assignPublicIp": "DISABLED", **given}
            service.deploy(self._clock.wall())
        return {"service": self._describe(service)}

    def _check_network(self, service: EcsService, subnets: Sequence[str]) -> None:
        if service.controller != "ECS":
            text = f"Unable to update network parameters on services with a {service.controller} deployment controller."
            raise ServiceError("InvalidParameterException", text)
        if service.network is None:
            text = "Network Configuration is not valid for the given networkMode of this task definition."
            raise ServiceError("InvalidParameterException", text)
        if not subnets:
            raise ServiceError("InvalidParameterException", "subnets can not be empty.")
        _require_at_most(MAX_SUBNETS, subnets, "subnets")
        unknown = [each for each in subnets if each not in self._network.subnets]
        if unknown:
            raise ServiceError("InvalidParameterException", f"The subnet ID '{unknown[0]}' does not exist")

    def _list_tasks(self, values: Mapping[str, Any]) -> dict[str, Any]:
        cluster = self._find_cluster(values)
        wanted = values.get("serviceName")
        if wanted is not None and self._find_service(cluster, wanted) is None:
            raise ServiceError("ServiceNotFoundException", "Service not found.")
        if values.get("desiredStatus", "RUNNING") != "RUNNING":
            return {"taskArns": []}
        chosen = [each for each in self.services.values() if wanted in (None, each.name, each.arn)]
        return {"taskArns": [task["taskArn"] for each in chosen for task in self._build_tasks(each, cluster)]}

    def _describe_tasks(self, values: Mapping[str, Any]) -> dict[str, Any]:
        cluster, wanted = self._find_cluster(values), values["tasks"]
        _require_at_most(MAX_TASKS, wanted, "tasks")
        tasks = {task["taskArn"]: task for each in self.services.values() for task in self._build_tasks(each, cluster)}
        found = {each: tasks.get(each, tasks.get(f"{_get_task_prefix(cluster)}/{each}")) for each in wanted}
        missing = [{"arn": each, "reason": "MISSING"} for each, task in found.items() if task is None]
        return {"tasks": [each for each in found.values() if each is not None], "failures": missing}

    def _build_tasks(self, service: EcsService, cluster: str) -> list[dict[str, Any]]:
        """Return the tasks of a service in the form of DescribeTasks; none if it is in another cluster."""
        if service.cluster != cluster:
            return []
        names = {zone: name for name, zone in self._network.zones.items()}
        zones = self._list_zones(service)
        position = list(self.services).index(service.arn)
        states = [(zone, "RUNNING") for zone in zones]
        states += [(next(iter(names)), "PENDING")] * service.pending
        return [
            {
                "taskArn": f"{_get_task_prefix(cluster)}/{position:016x}{number:016x}",
                "clusterArn": cluster,
                "group": f"service:{service.name}",
                "availabilityZone": names[zone],
                "lastStatus": state,
                "desiredStatus": "RUNNING",
            }
            for number, (zone, state) in enumerate(states)
        ]

    def _describe_definition(self, values: Mapping[str, Any]) -> dict[str, Any]:
        arn = values["taskDefinition"]
        return {"taskDefinition": {"taskDefinitionArn": arn, "status": "ACTIVE", "cpu": self.task_cpu}}

    def _describe(self, service: EcsService) -> dict[str, Any]:
        running = len(self._list_zones(service))
        network = {} if service.network is None else {"networkConfiguration": {"awsvpcConfiguration": service.network}}
        return {
            "serviceArn": service.arn,
            "serviceName": service.name,
            "clusterArn": service.cluster,
            "taskDefinition": service.arn.replace(":service/", ":task-definition/"),
            "status": service.status,
            "desiredCount": service.desired,
            "runningCount": running,
            "pendingCount": service.pending,
            "deploymentController": {"type": service.controller},
            "deploymentConfiguration": service.configuration,
            "deployments": [_describe_deployment(each, service, running) for each in service.deployments],
            **network,
            **service.details,
        }

    def _find_cluster(self, values: Mapping[str, Any]) -> str:
        wanted = values.get("cluster", "default")
        for each in self.clusters:
            if wanted in (each, each.rpartition("/")[2]):
                return each
        raise ServiceError("ClusterNotFoundException", "Cluster not found.")

    def _find_service(self, cluster: str, wanted: str) -> EcsService | None:
        found = (each for each in self.services.values() if each.cluster == cluster and wanted in (each.arn, each.name))
        return next(found, None)


def _describe_deployment(deployment: Deployment, service: EcsService, running: int) -> dict[str, Any]:
    network = {"networkConfiguration": {"awsvpcConfiguration": deployment.network}} if deployment.network else {}
    rollout = {"rolloutState": deployment.state, "rolloutStateReason": deployment.reason}
    return {
        "id": deployment.id,
        "status": "PRIMARY" if deployment is service.deployments[0] else "ACTIVE",
        "createdAt": deployment.created,
        "desiredCount": service.desired,
        "runningCount": running if deployment.has_tasks else 0,
        **network,
        **(rollout if service.reports_rollout else {}),
    }


def _get_task_prefix(cluster: str) -> str:
    return cluster.replace(":cluster/", ":task/")


def _require_at_most(limit: int, items: Collection[str], name: str) -> None:
    if len(items) > limit:
        raise ServiceError("InvalidParameterException", f"{name} can have at most {limit} items.")
