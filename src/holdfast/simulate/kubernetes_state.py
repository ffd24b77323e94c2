"""The state of a simulated Kubernetes cluster: its objects, and everything that its controllers do as time passes.

An evicted pod vanishes after some seconds of the clock. Its controller creates another one, on a node whose taints the
pod tolerates. Taints with the effect NoExecute delete pods at once, and ignore budgets. Only the fields that Holdfast
reads are there.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from holdfast._clock import Clock
from holdfast._types import Zone

GRACE_SECONDS, START_SECONDS = 5.0, 5.0
"""Seconds until an evicted pod has ended, and until another one is ready."""
_BLOCKING = ("NoSchedule", "NoExecute")
"""The effects of taints that keep new pods away from a node."""

Json = dict[str, Any]


class ClusterState:
    """The objects of one cluster. `lock` is held while they are read or changed; methods to add objects hold it."""

    def __init__(self, clock: Clock, *, has_karpenter: bool = False) -> None:
        self.lowest: dict[str, int] = {}
        """The lowest number of ready pods of each budget so far."""
        self.objects: dict[str, dict[str, Json]] = {
            each: {}
            for each in ("nodes", "pods", "persistentvolumes", "persistentvolumeclaims", "poddisruptionbudgets")
        }
        """All objects by plural and name; those in a namespace have it before the name."""
        if has_karpenter:
            self.objects["nodepools"] = {}
        self._clock = clock
        self.lock = threading.RLock()
        self._version = 0
        self._ends: dict[str, float] = {}
        """When pods that are being deleted vanish, by UID."""
        self._ready_at: dict[str, float] = {}

    def add_node(
        self, name: str, zone: Zone, zone_name: str, *, taints: Sequence[Json] = (), has_zone_id: bool = True
    ) -> None:
        """Add a node that is ready."""
        labels = {"topology.kubernetes.io/zone": zone_name} | (
            {"topology.k8s.aws/zone-id": zone} if has_zone_id else {}
        )
        spec = {"taints": list(taints)} if taints else {}
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.add("nodes", name, {"metadata": {"labels": labels}, "spec": spec, "status": status})

    def add_pod(
        self,
        name: str,
        node: str,
        *,
        kind: str = "ReplicaSet",
        labels: Mapping[str, str] | None = None,
        claim: str = "",
        **fields: Any,
    ) -> None:
        """Add a pod that is ready. `kind` is that of its controller; "" means none. `fields` replace those of `spec`.

        Its name begins with that of its namespace, as in `shop/web-1`.
        """
        owners = {"ownerReferences": [{"kind": kind, "name": "owner", "controller": True}]} if kind else {}
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
        metadata = {"labels": dict(labels or {}), **owners}
        spec = {"nodeName": node, "volumes": volumes, "tolerations": [], "priority": 0, **fields}
        self.add("pods", name, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def add_budget(self, name: str, labels: Mapping[str, str], min_available: int) -> None:
        """Add a budget for the pods of its namespace that have some labels."""
        spec = {"selector": {"matchLabels": dict(labels)}, "minAvailable": min_available}
        self.add("poddisruptionbudgets", name, {"metadata": {}, "spec": spec})

    def add_volume(self, claim: str, zone_names: Sequence[str], *, key: str = "topology.kubernetes.io/zone") -> None:
        """Add a volume that is in some zones, and the claim that has it."""
        volume = f"pv-{claim.replace('/', '-')}"
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(zone_names)}]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        self.add("persistentvolumes", volume, {"metadata": {}, "spec": {"nodeAffinity": affinity}})
        self.add("persistentvolumeclaims", claim, {"metadata": {}, "spec": {"volumeName": volume}})

    def add_pool(self, name: str, requirements: Sequence[Json] = ()) -> None:
        """Add a node pool of Karpenter."""
        spec = {"template": {"spec": {"requirements": list(requirements)}}}
        self.add("nodepools", name, {"metadata": {}, "spec": spec})

    def add(self, plural: str, key: str, found: Json) -> None:
        """Add an object, or replace it."""
        namespace, _, name = key.rpartition("/")
        with self.lock:
            self._version += 1
            names = {"name": name, "uid": f"uid-{self._version}", "resourceVersion": str(self._version)}
            found["metadata"] |= names | ({"namespace": namespace} if namespace else {})
            self.objects[plural][key] = found

    def update(self, plural: str, key: str, change: Callable[[Json], None]) -> None:
        """Change an object as another program would."""
        with self.lock:
            found = self.objects[plural][key]
            change(found)
            self.touch(found)

    def copy(self, plural: str) -> dict[str, Json]:
        """Return all objects of one kind without their versions, to compare them."""
        with self.lock:
            found = deepcopy(self.objects[plural])
        for each in found.values():
            del each["metadata"]["resourceVersion"]
        return found

    def list_pods_on(self, *nodes: str) -> list[str]:
        """Return the names of pods that run on some nodes now."""
        with self.lock:
            self.advance()
            pods = self.objects["pods"].items()
            return sorted(key for key, each in pods if each["spec"].get("nodeName") in nodes)

    def advance(self) -> None:
        """Do everything that controllers have done until now."""
        now = self._clock.monotonic()
        for pod in list(self.objects["pods"].values()):
            node = self.objects["nodes"].get(pod["spec"].get("nodeName", ""))
            if node is not None and not _tolerates_all(pod, node, ("NoExecute",)):
                self.begin_deletion(pod)
        while ended := [each for each in self.objects["pods"].values() if self._ends.get(_uid(each), now + 1) <= now]:
            for pod in ended:
                self._replace(pod)
        for pod in self.objects["pods"].values():
            if "nodeName" not in pod["spec"]:
                self._place(pod, now)
        for name, budget in self.objects["poddisruptionbudgets"].items():
            ready = self.count_ready(budget)
            self.lowest[name] = min(self.lowest.get(name, ready), ready)

    def begin_deletion(self, pod: Json) -> None:
        """Let a pod end, unless it does already."""
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
            self._ends[_uid(pod)] = self._clock.monotonic() + GRACE_SECONDS
            self.touch(pod)

    def _replace(self, pod: Json) -> None:
        """Remove a pod that has ended, and create another one if it has a controller."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        ended = self._ends.pop(_uid(pod))
        del self.objects["pods"][f"{namespace}/{name}"]
        owners = pod["metadata"].get("ownerReferences", [])
        if not owners:
            return
        successor = deepcopy(pod)
        del successor["metadata"]["deletionTimestamp"]
        is_stateful = owners[0]["kind"] == "StatefulSet"
        key = f"{namespace}/{name}" if is_stateful else f"{namespace}/{name.partition('.')[0]}.{self._version}"
        del successor["spec"]["nodeName"]
        self.add("pods", key, successor)
        self._place(successor, ended)

    def _place(self, pod: Json, now: float) -> None:
        """Choose the node with the fewest pods for a new pod, or let it wait if there is none."""
        counts = {name: 0 for name, each in self.objects["nodes"].items() if self._accepts(each, pod)}
        for each in self.objects["pods"].values():
            if each["spec"].get("nodeName") in counts:
                counts[each["spec"]["nodeName"]] += 1
        pod["status"]["phase"] = "Running" if counts else "Pending"
        if counts:
            pod["spec"]["nodeName"] = min(counts, key=lambda each: (counts[each], each))
            self._ready_at[_uid(pod)] = now + START_SECONDS

    def _accepts(self, node: Json, pod: Json) -> bool:
        if not _tolerates_all(pod, node, _BLOCKING):
            return False
        labels = node["metadata"]["labels"].values()
        for volume in pod["spec"]["volumes"]:
            claim = f"{pod['metadata']['namespace']}/{volume['persistentVolumeClaim']['claimName']}"
            name = self.objects["persistentvolumeclaims"][claim]["spec"]["volumeName"]
            affinity = self.objects["persistentvolumes"][name]["spec"]["nodeAffinity"]["required"]
            (expression,) = affinity["nodeSelectorTerms"][0]["matchExpressions"]
            if not set(expression["values"]) & set(labels):
                return False
        return True

    def count_ready(self, budget: Json) -> int:
        """Return how many pods of a budget are ready."""
        return sum(self.is_ready(each) for each in self.objects["pods"].values() if covers(budget, each))

    def is_ready(self, pod: Json) -> bool:
        """Return whether a pod has started, and is not being deleted."""
        has_started = self._ready_at.get(_uid(pod), 0.0) <= self._clock.monotonic()
        return has_started and "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]

    def touch(self, found: Json) -> None:
        """Give an object a new version."""
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)


def _uid(found: Json) -> str:
    return str(found["metadata"]["uid"])


def covers(budget: Json, pod: Json) -> bool:
    """Return whether a budget applies to a pod."""
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    return bool(
        budget["metadata"]["namespace"] == pod["metadata"]["namespace"] and wanted <= pod["metadata"]["labels"].items()
    )


def _tolerates_all(pod: Json, node: Json, effects: Sequence[str]) -> bool:
    """Return whether a pod tolerates all taints of a node that have some effects."""
    if any(each.get("operator") == "Exists" and not each.get("key") for each in pod["spec"]["tolerations"]):
        return True
    if any(each["kind"] == "DaemonSet" for each in pod["metadata"].get("ownerReferences", ())):
        return True
    return not any(each["effect"] in effects for each in node["spec"].get("taints", ()))
