"""A shop with resources of every kind that an evacuation changes: a simulated AWS account, and a Kubernetes cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast._clock import Clock
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import ACTIONS, Action
from holdfast.evacuate.actions.eks_nodes.taints import EVACUATED_KEY
from holdfast.simulate.aws.ecs import EcsService
from holdfast.simulate.aws.functions import Function
from holdfast.simulate.aws.group_instances import Group
from holdfast.simulate.aws.region import ZONES, SimulatedRegion
from holdfast.simulate.kubernetes import SimulatedCluster
from holdfast.status.writer import StatusWriter
from tests.unit.evacuate.fleet import OTHER, ZONE

ACTION_NAMES = (
    "status",
    "zonal-shift",
    "capacity",
    "auto-scaling-groups",
    "ecs-services",
    "lambda-functions",
    "eks-nodes",
)
NAMES = {ZONE: "us-east-1a", OTHER: "us-east-1b"}
EVEN = dict.fromkeys(ZONES, 2)
MIN_SIZE, SIZE = 1, 6
SCALABLE = "service/main/cart"
GPU = {"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}


class _Resources:
    """The resources of all actions. See `holdfast.evacuate.action.ActionResources`."""

    def __init__(self, clock: Clock, accounts: Accounts, writer: StatusWriter) -> None:
        self.clock = clock
        self._accounts, self._writer = accounts, writer

    def accounts(self) -> Accounts:
        return self._accounts

    def status_writers(self, addresses: Sequence[str]) -> Mapping[str, StatusWriter]:
        return {"main": self._writer}


def open_all_actions(clock: Clock, accounts: Accounts, writer: StatusWriter) -> dict[str, Action]:
    """Return all actions with their default options, by name."""
    resources, kinds = _Resources(clock, accounts, writer), {name: ACTIONS.get(name) for name in ACTION_NAMES}
    return {name: kind.open(kind.options_type(), resources) for name, kind in kinds.items()}


class Shop:
    """A balancer and a group with zonal shift, a group without, an ECS service, a function, and an EKS cluster.

    Deployments, launches and updates take no time. The subnet in ZONE is the second of each resource, so that a restore
    that adds it at the end is noticed.
    """

    def __init__(self, clock: Clock) -> None:
        self.region = region = SimulatedRegion(clock)
        region.ecs.deploy_seconds = region.functions.update_seconds = 0.0
        self.zone_subnet, self.subnet, self.third_subnet = region.subnets
        self.subnets = [self.subnet, self.zone_subnet, self.third_subnet]
        self.shifted = [region.add("application", "front"), self._add_group("legacy", is_enabled=True)]
        self._moved = self._add_group("shop", is_enabled=False)
        self.service: EcsService = region.ecs.services[region.ecs.add("main", "cart")]
        assert self.service.network is not None
        self.service.network |= {"subnets": list(self.subnets), "assignPublicIp": "ENABLED"}
        self.target = region.scaling.add(SCALABLE, 2, 12, ScheduledScalingSuspended=True)
        self.function: Function = region.functions.functions[region.functions.add("mail")]
        self.function.subnets, self.function.allows_ipv6 = list(self.subnets), True
        region.add("cluster", "shop", is_enabled=False)
        self.cluster = cluster = SimulatedCluster(clock, has_karpenter=True)
        cluster.add_node("a1", ZONE, NAMES[ZONE])
        cluster.add_node("a2", ZONE, NAMES[ZONE], taints=[GPU])
        cluster.add_node("b1", OTHER, NAMES[OTHER])
        cluster.add_node("b2", OTHER, NAMES[OTHER])
        cluster.add_pod("shop/web0", "a1", labels={"app": "web"})
        cluster.add_pod("shop/web1", "a2", labels={"app": "web"})
        cluster.add_budget("shop/web", {"app": "web"}, 1)
        cluster.add_pool("general", [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}])

    def _add_group(self, name: str, *, is_enabled: bool) -> str:
        groups = self.region.groups
        arn = groups.add(name, EVEN, min_size=MIN_SIZE, max_size=12, subnets=self.subnets, is_enabled=is_enabled)
        groups.get(arn).launch_seconds = 0.0
        return arn

    @property
    def group(self) -> Group:
        """The group without zonal shift."""
        return self.region.groups.get(self._moved)

    @property
    def groups(self) -> list[Group]:
        """Both groups."""
        return [self.region.groups.get(self.shifted[1]), self.group]

    def serve_at(self, address: str) -> None:
        """Let EKS name the address of the cluster."""
        self.region.endpoints["shop"] = {"endpoint": address}

    def list_shifted(self) -> list[str]:
        """Return the resources with an active zonal shift."""
        return [arn for arn in self.region.arc.resources if self.region.arc.get_active(arn) is not None]

    def copy_configuration(self) -> dict[str, Any]:
        """Return everything that a restore must bring back exactly."""
        function, target = self.function, self.target
        return {
            "groups": [(list(each.subnets), each.min_size, each.max_size, each.desired) for each in self.groups],
            "suspended": [set(each.suspended) for each in self.groups],
            "service": (dict(self.service.network or {}), self.service.desired),
            "target": (target.min_capacity, target.max_capacity, dict(target.suspended)),
            "function": (list(function.subnets), list(function.security_groups), function.allows_ipv6),
            "description": function.description,
            "nodes": self.cluster.copy("nodes"),
            "pools": self.cluster.copy("nodepools"),
            "shifted": self.list_shifted(),
        }

    def find_left(self) -> list[str]:
        """Return what an evacuation has left in ZONE, or in use of it. Nothing is left after a whole one."""
        network = self.service.network or {}
        pools, nodes = self.cluster.copy("nodepools"), self.cluster.copy("nodes")
        left = {
            "traffic": set(self.list_shifted()) != set(self.shifted),
            "the group": self.zone_subnet in self.group.subnets,
            "a group that may shrink": any(each.min_size != SIZE for each in self.groups),
            "the service": self.zone_subnet in network["subnets"],
            "a service that may shrink": not self.target.suspended["DynamicScalingInSuspended"],
            "the function": self.zone_subnet in self.function.subnets,
            "a node without a taint": any(not _is_tainted(nodes[each]) for each in ("a1", "a2")),
            "pods": bool(self.cluster.list_pods_on("a1", "a2")),
            "a pool": EVACUATED_KEY not in pools["general"]["metadata"].get("annotations", {}),
        }
        return [name for name, is_left in left.items() if is_left]


def _is_tainted(node: dict[str, Any]) -> bool:
    return any(each["key"] == EVACUATED_KEY for each in node["spec"].get("taints", ()))
