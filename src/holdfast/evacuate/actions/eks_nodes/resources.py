"""Find the nodes, node pools and pods of one EKS cluster that are in a zone, as resources of an evacuation.

The id of a resource is the ARN of its cluster with an ending, because the ARN itself belongs to the cluster.
"""

from collections.abc import Sequence
from typing import Any

from holdfast._errors import NotAllowed, NotFound
from holdfast.evacuate.action import Discovery, Resource, Unmovable
from holdfast.evacuate.actions.eks_nodes.clusters import Cluster
from holdfast.evacuate.actions.eks_nodes.kubernetes import NODES, KubernetesClient, Object
from holdfast.evacuate.actions.eks_nodes.node_pools import NODE_POOLS, list_other_zones, uses_zone
from holdfast.evacuate.actions.eks_nodes.nodes import NodeChange, list_pods, list_zone_nodes
from holdfast.evacuate.actions.eks_nodes.pods import BOUND_REASON, get_name, has_controller

NODES_TYPE, POOL_TYPE, POD_TYPE = "eks-nodes", "karpenter-node-pool", "pod"
_NODES_ENDING, _POOLS_PART, _PODS_PART = "/nodes", "/node-pools/", "/pods/"
"""The endings of the ids of resources, after the ARN of the cluster."""


def discover_cluster(
    client: KubernetesClient, cluster: Cluster, change: NodeChange, *, lists_unmovable: bool
) -> Discovery:
    """Find the nodes of a cluster in the zone, and the node pools that may launch nodes there.

    `lists_unmovable` says that a person reads the plan, so that pods are listed, too.
    """
    here = list_zone_nodes(client.list(NODES), change.zone, change.zone_name)
    pools, notes = _list_pools(client, cluster)
    resources = [
        build_resource(
            cluster,
            f"{_POOLS_PART}{each['metadata']['name']}",
            POOL_TYPE,
            f"{cluster.name}/{each['metadata']['name']}",
            zone_name=change.zone_name,
            other_zones=list_other_zones(each, change.zone_name),
        )
        for each in pools
        if uses_zone(each, change.zone_name)
    ]
    alone: list[str] = []
    unmovable: list[Unmovable] = []
    if here and lists_unmovable:
        pods = list_pods(client, here, change)
        alone = [get_name(each) for each in pods.movable if not has_controller(each)]
        unmovable = [_build_staying_pod(cluster, *each) for each in pods.staying.items()]
    if here:
        resources.insert(0, build_nodes(cluster, change, len(here), alone))
    return Discovery(resources=resources, unmovable=unmovable, notes=notes)


def _list_pools(client: KubernetesClient, cluster: Cluster) -> tuple[Sequence[Object], list[str]]:
    """Return the node pools of Karpenter, and a note if they cannot be listed. A cluster without Karpenter has none."""
    try:
        return client.list(NODE_POOLS), []
    except NotFound:
        return [], []
    except NotAllowed as error:
        return [], [f"{cluster.name}: the node pools of Karpenter cannot be listed, and are not changed: {error}"]


def build_nodes(
    cluster: Cluster, change: NodeChange, number: int | None, alone: Sequence[str], *, problem: str = ""
) -> Resource:
    """Return the nodes of a cluster as one resource. `alone` has the pods without a controller."""
    details = {"zone_name": change.zone_name, "nodes": number, "alone": list(alone), "problem": problem}
    return build_resource(cluster, _NODES_ENDING, NODES_TYPE, cluster.name, **details)


def _build_staying_pod(cluster: Cluster, name: str, reason: str) -> Unmovable:
    resource = build_resource(cluster, f"{_PODS_PART}{name}", POD_TYPE, f"{cluster.name}/{name}")
    remedy = "run a replica in another zone, with a volume of its own" if reason == BOUND_REASON else ""
    return Unmovable(resource=resource, reason=reason, remedy=remedy)


def build_resource(cluster: Cluster, ending: str, kind: str, name: str, **details: Any) -> Resource:
    """Return a resource whose id is the ARN of the cluster with an ending."""
    _, _, _, region, account, *_ = cluster.arn.split(":")
    return Resource(id=f"{cluster.arn}{ending}", type=kind, name=name, account=account, region=region, details=details)


def split_id(resource: str) -> tuple[str, str | None]:
    """Return the ARN of the cluster of a resource, and the name of the node pool; None for the nodes."""
    arn, part, pool = resource.partition(_POOLS_PART)
    return (arn, pool) if part else (resource.removesuffix(_NODES_ENDING), None)
