"""Move the pods of EKS clusters away from a zone, by the Kubernetes API: taint its nodes, and evict their pods.

For clusters without zonal shift. Evictions respect disruption budgets, so they are repeated every 15 seconds until all
pods have gone, or until a deadline. The value of each taint is the id of our run: a restore removes only our own.

Node groups may start new nodes in the zone. `renew` taints those and evicts their pods: a server, or a command with
`--stay`, calls it every 15 minutes, and `zone resume` calls it once. Node pools of Karpenter get a requirement that
keeps them from launching nodes in the zone.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from holdfast._clock import Clock
from holdfast._errors import EngineUnavailable, HoldfastError, NotFound
from holdfast._names import format_count
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.action import (
    ACTIONS,
    CAPACITY_STAGE,
    PARALLEL_CALLS,
    RESTORE_CAPACITY_STAGE,
    ActionType,
    ChangeState,
    Discovery,
    PlannedChange,
    Reading,
    Resource,
    Target,
    Unmovable,
)
from holdfast.evacuate.actions.eks_nodes.clusters import PERMISSIONS, Cluster, Clusters, list_clusters
from holdfast.evacuate.actions.eks_nodes.kubernetes import KubernetesClient
from holdfast.evacuate.actions.eks_nodes.node_pools import NODE_POOLS, build_exclusion, build_inclusion, read_pool
from holdfast.evacuate.actions.eks_nodes.nodes import Eviction, NodeChange, evacuate_nodes, read_nodes, restore_nodes
from holdfast.evacuate.actions.eks_nodes.pods import describe_pods
from holdfast.evacuate.actions.eks_nodes.resources import (
    POOL_TYPE,
    build_nodes,
    build_resource,
    discover_cluster,
    split_id,
)
from holdfast.evacuate.actions.eks_nodes.taints import build_mark
from holdfast.evacuate.discovering import discover_accounts
from holdfast.evacuate.journal import Entry
from holdfast.evacuate.refusals import translate_refusals
from holdfast.evacuate.subnets import find_zone_name
from holdfast.evacuate.tags import PERMISSIONS as TAG_PERMISSIONS
from holdfast.evacuate.tags import find_tagged

MORE_SECONDS = 180.0
"""Seconds after the deadline in which the last taints and evictions must have been accepted."""
DISCOVERY_ATTEMPTS = 3
"""Attempts to read a cluster. If it is still throttled, its nodes are planned anyway: the run tries for longer."""
DISCOVERY_PAUSE = 0.5
"""Seconds between these attempts. A person waits for the plan."""
_DESCRIPTIONS = {
    Eviction.RESPECT_BUDGETS: "then evict their pods within disruption budgets, for at most {0:.0f} s",
    Eviction.FORCE_AT_DEADLINE: "then evict their pods within disruption budgets; 60 s before the deadline of "
    "{0:.0f} s, delete the pods that are left",
    Eviction.FORCE: "so that Kubernetes deletes their pods at once, whatever disruption budgets say",
}
_LOCAL_DATA = "data in emptyDir volumes of the pods is lost; after a restore, pods do not move back by themselves"
_FORCED = (
    "pods of daemon sets, and pods whose volume is in the zone, are deleted, too; the latter wait until the zone is "
    "restored"
)


class EksNodesOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the action `eks-nodes`."""

    eviction: Eviction = Eviction.RESPECT_BUDGETS
    eviction_deadline_seconds: Annotated[float, Meta(ge=0, le=3600)] = 600.0
    """Seconds for which evictions are repeated that disruption budgets forbid. Ten minutes are enough for most
    deployments to start other pods one by one."""


class EksNodes:
    """The action `eks-nodes`. See `holdfast.evacuate.action.Action`."""

    evacuation_stage, restoration_stage = CAPACITY_STAGE, RESTORE_CAPACITY_STAGE
    parallel_calls = PARALLEL_CALLS

    def __init__(self, accounts: Accounts, clock: Clock, options: EksNodesOptions | None = None) -> None:
        self._accounts = accounts
        self._clock = clock
        self._options = options or EksNodesOptions()
        self._clusters = Clusters(accounts, clock)
        self._lock = threading.Lock()
        self._refusals: dict[tuple[str, str], Mapping[str, str]] = {}
        """Why pods were not evicted in the last pass, by resource and run. Only notes for people use it."""
        self.timeout = self._options.eviction_deadline_seconds + MORE_SECONDS

    def discover(self, target: Target) -> Discovery:
        return discover_accounts(self._accounts, target, self._discover_account)

    def plan(self, resource: Resource, target: Target) -> PlannedChange | Unmovable:
        details = resource.details
        if resource.type == POOL_TYPE:
            if details["other_zones"] == []:
                return Unmovable(resource=resource, reason="it has no other zone")
            text = f"keep it from launching nodes in {target.zone} ({details['zone_name']})"
            effect = "Karpenter treats its nodes in the zone as drifted, and replaces them within disruption budgets"
            change = {"mark": build_mark(target.run), "zone_name": details["zone_name"]}
            return PlannedChange(resource=resource, description=text, side_effects=[effect], change=change)
        planned = self._build_change(target, details["zone_name"])
        nodes = "all nodes" if details["nodes"] is None else format_count(details["nodes"], "node")
        text = f"taint {nodes} in {target.zone}, {_DESCRIPTIONS[planned.eviction]}"
        effects = [_LOCAL_DATA] + ([] if planned.eviction is Eviction.RESPECT_BUDGETS else [_FORCED])
        if details["alone"]:
            effects.append(f"these pods have no controller, so they are lost: {describe_pods(details['alone'])}")
        if details["problem"]:
            effects.append(
                f"the cluster could not be read, so its pods and node pools are unknown: {details['problem']}"
            )
        return PlannedChange(
            resource=resource,
            description=text.format(planned.eviction_deadline_seconds),
            side_effects=effects,
            change=msgspec.to_builtins(planned),
        )

    def read(self, entry: Entry) -> Reading:
        arn, pool = split_id(entry.resource)
        try:
            client = self._clusters.open(arn)
            if pool is not None:
                found = client.get(_build_pool_path(pool))
                return read_pool(found, entry.change["mark"], entry.change["zone_name"], entry.state)
        except NotFound as error:
            return Reading(state=ChangeState.GONE, note=str(error))
        with self._lock:
            refusals = self._refusals.get((entry.resource, entry.run), {})
        return read_nodes(client, entry, _parse_change(entry), self._clock.wall(), refusals)

    def apply(self, entry: Entry) -> None:
        arn, pool = split_id(entry.resource)
        client = self._clusters.open(arn)
        if pool is None:
            self._evacuate(client, entry, age=self._clock.wall() - entry.at)
            return
        change, path = entry.change, _build_pool_path(pool)
        client.update(path, client.get(path), lambda found: build_exclusion(found, change["mark"], change["zone_name"]))

    def restore(self, entry: Entry, reading: Reading) -> None:  # noqa: ARG002 - the taints say what is ours
        arn, pool = split_id(entry.resource)
        client = self._clusters.open(arn)
        if pool is None:
            restore_nodes(client, entry.change["mark"])
            return
        change, path = entry.change, _build_pool_path(pool)
        client.update(path, client.get(path), lambda found: build_inclusion(found, change["mark"], change["zone_name"]))

    def renew(self, entry: Entry, reading: Reading) -> None:  # noqa: ARG002 - the nodes are read again
        """Taint new nodes of the zone, and ask once to evict the pods that are there. Delete none at the deadline.

        Called every 15 minutes by a server or a command with `--stay`, and once by `zone resume`.
        """
        arn, pool = split_id(entry.resource)
        if pool is None:
            self._evacuate(self._clusters.open(arn), entry, age=None)

    def _evacuate(self, client: KubernetesClient, entry: Entry, *, age: float | None) -> None:
        refusals = evacuate_nodes(client, _parse_change(entry), age)
        with self._lock:
            self._refusals[entry.resource, entry.run] = refusals

    def _build_change(self, target: Target, zone_name: str) -> NodeChange:
        return NodeChange(
            zone=target.zone,
            zone_name=zone_name,
            mark=build_mark(target.run),
            eviction=self._options.eviction,
            eviction_deadline_seconds=self._options.eviction_deadline_seconds,
        )

    def _discover_account(self, account: Account, target: Target) -> Discovery:
        is_tagged = find_tagged(account, target.selection)
        clusters = [each for each in list_clusters(account.reader) if is_tagged(each.arn)]
        if not clusters:
            return Discovery()
        with translate_refusals(account.reader):
            zone_name = find_zone_name(account.reader, target.zone)
        if not zone_name:  # the account cannot use the zone
            return Discovery()
        change = self._build_change(target, zone_name)
        with ThreadPoolExecutor(min(len(clusters), PARALLEL_CALLS)) as pool:
            found = list(pool.map(lambda each: self._discover_cluster(account, each, change, target), clusters))
        return Discovery(
            resources=[each for one in found for each in one.resources],
            unmovable=[each for one in found for each in one.unmovable],
            notes=[each for one in found for each in one.notes],
        )

    def _discover_cluster(self, account: Account, cluster: Cluster, change: NodeChange, target: Target) -> Discovery:
        """Find the nodes and node pools of one cluster. A cluster that cannot be read does not stop the others."""
        if cluster.has_zonal_shift:
            reason = "zonal shift is enabled for it, so only the action `zonal-shift` moves it"
            staying = Unmovable(resource=build_resource(cluster, "", "eks-cluster", cluster.name), reason=reason)
            return Discovery(unmovable=[staying] if target.lists_unmovable else [])
        client = self._clusters.connect(account, cluster)
        try:
            return self._read_cluster(client, cluster, change, target)
        except HoldfastError as error:
            if isinstance(error, EngineUnavailable) and client.has_answered:
                # It is throttled, or fails for a moment. A run tries for longer than a plan.
                return Discovery(resources=[build_nodes(cluster, change, None, (), problem=str(error))])
            # An entry of a cluster that can never be reached would stay open, and a restore would wait for it.
            staying = Unmovable(resource=build_nodes(cluster, change, None, ()), reason=str(error))
            note = f"{account.scope}: the nodes of the cluster {cluster.name} are not moved: {error}"
            return Discovery(unmovable=[staying] if target.lists_unmovable else [], notes=[note])

    def _read_cluster(
        self, client: KubernetesClient, cluster: Cluster, change: NodeChange, target: Target
    ) -> Discovery:
        """Read a cluster, at most DISCOVERY_ATTEMPTS times."""
        for _ in range(DISCOVERY_ATTEMPTS - 1):
            with suppress(EngineUnavailable):
                return discover_cluster(client, cluster, change, lists_unmovable=target.lists_unmovable)
            self._clock.sleep(DISCOVERY_PAUSE)
        return discover_cluster(client, cluster, change, lists_unmovable=target.lists_unmovable)


def _parse_change(entry: Entry) -> NodeChange:
    return msgspec.convert(entry.change, NodeChange)


def _build_pool_path(name: str) -> str:
    return f"{NODE_POOLS}/{quote(name)}"


ACTIONS.register("eks-nodes")(
    ActionType(
        open=lambda options, resources: EksNodes(resources.accounts(), resources.clock, options),
        options_type=EksNodesOptions,
        permissions=(*PERMISSIONS, *TAG_PERMISSIONS),
        terraform="""\
# The role of Holdfast needs access to the Kubernetes API of each cluster:
resource "aws_eks_access_entry" "holdfast" {
  cluster_name      = aws_eks_cluster.example.name
  principal_arn     = aws_iam_role.holdfast.arn
  kubernetes_groups = ["holdfast"]
}

resource "kubernetes_cluster_role_v1" "holdfast" {
  metadata {
    name = "holdfast"
  }
  rule {
    api_groups = [""]
    resources  = ["nodes"]
    verbs      = ["get", "list", "patch"]
  }
  rule {
    api_groups = [""]
    resources  = ["pods", "persistentvolumes", "persistentvolumeclaims"]
    verbs      = ["list"]
  }
  rule {
    api_groups = [""]
    resources  = ["pods/eviction"]
    verbs      = ["create"]
  }
  rule {
    api_groups = ["karpenter.sh"]
    resources  = ["nodepools"]
    verbs      = ["get", "list", "patch"]
  }
}

resource "kubernetes_cluster_role_binding_v1" "holdfast" {
  metadata {
    name = "holdfast"
  }
  role_ref {
    api_group = "rbac.authorization.k8s.io"
    kind      = "ClusterRole"
    name      = "holdfast"
  }
  subject {
    kind      = "Group"
    name      = "holdfast"
    api_group = "rbac.authorization.k8s.io"
  }
}
""",
    )
)
