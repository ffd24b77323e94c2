"""The simulated Kubernetes API server: evictions, budgets, taints and versions, as a real cluster has them."""

import json
from typing import Any

import pytest

from holdfast import Zone
from holdfast.simulate.kubernetes import Request, SimulatedCluster, build_token
from holdfast.simulate.kubernetes_state import GRACE_SECONDS, START_SECONDS
from holdfast.testing import FakeClock

ACCOUNT = "123456789012"
FIRST, SECOND = Zone("use1-az1"), Zone("use1-az2")
OURS = {"key": "holdfast.dev/evacuated", "value": "hf-1"}


@pytest.fixture
def cluster() -> SimulatedCluster:
    found = SimulatedCluster(FakeClock())
    found.add_node("a", FIRST, "us-east-1a")
    found.add_node("b", SECOND, "us-east-1b")
    return found


def call(cluster: SimulatedCluster, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    reply = cluster.answer(Request(method, path, content, build_token(ACCOUNT)))
    assert reply is not None
    return reply


def evict(cluster: SimulatedCluster, name: str) -> int:
    namespace, _, pod = name.partition("/")
    return call(cluster, "POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", {})[0]


def taint(cluster: SimulatedCluster, node: str, *taints: Any) -> int:
    version = cluster.objects["nodes"][node]["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": list(taints)}}
    return call(cluster, "PATCH", f"/api/v1/nodes/{node}", patch)[0]


def test_an_evicted_pod_ends_and_is_created_on_a_node_without_taints(cluster: SimulatedCluster) -> None:
    cluster.add_pod("shop/web", "a")
    cluster.add_pod("shop/db-0", "a", kind="StatefulSet")
    cluster.add_pod("shop/job", "a", kind="")
    assert taint(cluster, "a", {**OURS, "effect": "NoSchedule"}) == 200
    assert [evict(cluster, name) for name in ("shop/web", "shop/db-0", "shop/job")] == [201] * 3
    assert cluster.list_pods_on("a") == ["shop/db-0", "shop/job", "shop/web"]
    cluster._clock.sleep(GRACE_SECONDS)
    assert cluster.list_pods_on("a") == []
    names = cluster.list_pods_on("b")
    assert [each.partition(".")[0] for each in names] == ["shop/db-0", "shop/web"]
    assert evict(cluster, "shop/job") == 404


def test_a_pod_waits_while_no_node_accepts_it(cluster: SimulatedCluster) -> None:
    cluster.add_volume("shop/data", ["us-east-1a"])
    cluster.add_pod("shop/db-0", "a", kind="StatefulSet", claim="data")
    taint(cluster, "a", {**OURS, "effect": "NoSchedule"})
    evict(cluster, "shop/db-0")
    cluster._clock.sleep(GRACE_SECONDS)
    assert cluster.list_pods_on("a", "b") == []
    assert cluster.copy("pods")["shop/db-0"]["status"]["phase"] == "Pending"
    taint(cluster, "a")
    assert cluster.list_pods_on("a") == ["shop/db-0"]


def test_a_budget_forbids_evictions_until_other_pods_are_ready(cluster: SimulatedCluster) -> None:
    for number in range(2):
        cluster.add_pod(f"shop/web{number}", "a", labels={"app": "web"})
    cluster.add_budget("shop/web", {"app": "web"}, 1)
    assert [evict(cluster, f"shop/web{number}") for number in range(2)] == [201, 429]
    cluster._clock.sleep(GRACE_SECONDS + START_SECONDS - 1)
    assert evict(cluster, "shop/web1") == 429
    cluster._clock.sleep(1)
    assert evict(cluster, "shop/web1") == 201
    assert cluster.lowest == {"shop/web": 1}


def test_no_execute_deletes_pods_whatever_budgets_say(cluster: SimulatedCluster) -> None:
    cluster.add_pod("shop/web", "a", labels={"app": "web"})
    cluster.add_pod("shop/agent", "a", kind="DaemonSet")
    cluster.add_pod("shop/tolerant", "a", tolerations=[{"operator": "Exists"}])
    cluster.add_budget("shop/web", {"app": "web"}, 1)
    taint(cluster, "a", {**OURS, "effect": "NoExecute"})
    cluster._clock.sleep(GRACE_SECONDS)
    assert cluster.list_pods_on("a") == ["shop/agent", "shop/tolerant"]
    assert cluster.lowest == {"shop/web": 0}


@pytest.mark.parametrize(
    ("taints", "status"),
    [
        ([{**OURS, "effect": "NoSchedule"}, {**OURS, "effect": "NoExecute"}], 200),
        ([{**OURS, "effect": "NoSchedule"}, {**OURS, "value": "hf-2", "effect": "NoSchedule"}], 422),
        ([{**OURS, "value": "a b", "effect": "NoSchedule"}], 422),
        ([{**OURS, "value": "x" * 64, "effect": "NoSchedule"}], 422),
        ([{**OURS, "value": "x" * 63, "effect": "NoSchedule"}], 200),
    ],
)
def test_taints_are_validated(cluster: SimulatedCluster, taints: Any, status: int) -> None:
    assert taint(cluster, "a", *taints) == status


def test_a_patch_of_an_old_version_is_refused(cluster: SimulatedCluster) -> None:
    patch = {"metadata": {"resourceVersion": "0"}, "spec": {}}
    assert call(cluster, "PATCH", "/api/v1/nodes/a", patch)[0] == 409
    assert call(cluster, "PATCH", "/api/v1/nodes/c", patch)[0] == 404


def test_unknown_calls_and_tokens_are_refused(cluster: SimulatedCluster) -> None:
    assert call(cluster, "GET", "/apis/karpenter.sh/v1/nodepools")[0] == 404
    assert call(cluster, "GET", "/version")[0] == 404
    assert call(cluster, "DELETE", "/api/v1/nodes/a")[0] == 405
    assert call(cluster, "GET", "/api/v1/pods?fieldSelector=status.phase%3DRunning")[0] == 400
    refused = cluster.answer(Request("GET", "/api/v1/nodes", b"", "any"))
    assert refused is not None
    assert refused[0] == 401
