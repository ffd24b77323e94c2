"""Decide which pods of a node are evicted, and which of them cannot move. Pure.

Pods of daemon sets and mirror pods belong to their node. A pod whose volume is in one zone only would wait for a node
in that zone, so it is left running. The same applies to a pod that tolerates the taint: it could return to its node.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from holdfast.evacuate.actions.eks_nodes.taints import EVACUATED_KEY, NO_SCHEDULE, ZONE_ID_LABEL, ZONE_LABEL

MAX_NAMED = 5
"""Pods that a note names. A person can look up the others."""
_ZONE_KEYS = (ZONE_LABEL, "topology.ebs.csi.aws.com/zone", "failure-domain.beta.kubernetes.io/zone", ZONE_ID_LABEL)
"""The keys by which volumes name their zone."""
_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
BOUND_REASON = "its volume is in this zone"
TOLERANT_REASON = "it tolerates the taint, so that it could return to the same node"

Pod = Mapping[str, Any]


def get_name(pod: Pod) -> str:
    """Return the namespace and the name of a pod."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def belongs_elsewhere(pod: Pod) -> bool:
    """Return whether a pod should leave a zone: it runs, and does not belong to its node."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    return _MIRROR_ANNOTATION not in metadata.get("annotations", {}) and _get_controller(pod) != "DaemonSet"


def has_controller(pod: Pod) -> bool:
    """Return whether a controller creates a pod again after its eviction."""
    return _get_controller(pod) != ""


def list_claims(pod: Pod) -> list[str]:
    """Return the claims for persistent volumes of a pod, each with its namespace."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            found.append(f"{namespace}/{volume['persistentVolumeClaim']['claimName']}")
        elif "ephemeral" in volume:
            found.append(f"{namespace}/{name}-{volume['name']}")
    return found


def find_bound_claims(
    claims: Iterable[Mapping[str, Any]], volumes: Iterable[Mapping[str, Any]], zone_names: Collection[str]
) -> frozenset[str]:
    """Return the claims, each with its namespace, whose volume is only in the zone with one of some names."""
    bound = {each["metadata"]["name"] for each in volumes if _is_bound(each, zone_names)}
    return frozenset(get_name(each) for each in claims if each["spec"].get("volumeName") in bound)


def find_obstacle(pod: Pod, bound_claims: Collection[str], mark: str) -> str:
    """Return why a pod cannot move away from its zone; "" if it can."""
    if any(each in bound_claims for each in list_claims(pod)):
        return BOUND_REASON
    return TOLERANT_REASON if _tolerates(pod, mark) else ""


def describe_pods(names: Sequence[str]) -> str:
    """Return the first names of some pods, and the number of the others."""
    rest = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _get_controller(pod: Pod) -> str:
    """Return the kind of the controller of a pod; "" if it has none."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(each["kind"]) for each in owners if each.get("controller")), "")


def _is_bound(volume: Mapping[str, Any], zone_names: Collection[str]) -> bool:
    """Return whether every term of the affinity of a volume allows no other zone."""
    required = volume["spec"].get("nodeAffinity", {}).get("required", {})
    terms = required.get("nodeSelectorTerms") or ()
    return bool(terms) and all(
        any(
            each["key"] in _ZONE_KEYS and each["operator"] == "In" and set(each["values"]) <= set(zone_names)
            for each in term.get("matchExpressions") or ()
        )
        for term in terms
    )


def _tolerates(pod: Pod, mark: str) -> bool:
    for each in pod["spec"].get("tolerations") or ():
        if each.get("effect") not in (None, "", NO_SCHEDULE):
            continue
        key, operator = each.get("key") or "", each.get("operator") or "Equal"
        if operator == "Exists" and key in ("", EVACUATED_KEY):
            return True
        if operator == "Equal" and key == EVACUATED_KEY and each.get("value", "") == mark:
            return True
    return False
