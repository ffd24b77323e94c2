"""Which nodes, pods and node pools an evacuation touches, and the patches that it sends: rules without a cluster."""

import re
from typing import Any

import pytest

from holdfast import Zone
from holdfast.evacuate.action import ChangeState
from holdfast.evacuate.actions.eks_nodes.node_pools import (
    build_exclusion,
    build_inclusion,
    list_other_zones,
    read_pool,
    uses_zone,
)
from holdfast.evacuate.actions.eks_nodes.pods import (
    BOUND_REASON,
    TOLERANT_REASON,
    belongs_elsewhere,
    describe_pods,
    find_bound_claims,
    find_obstacle,
    has_controller,
    list_claims,
)
from holdfast.evacuate.actions.eks_nodes.taints import (
    EVACUATED_KEY,
    NO_EXECUTE,
    NO_SCHEDULE,
    ZONE_ID_LABEL,
    ZONE_LABEL,
    build_addition,
    build_mark,
    build_removal,
    find_missing,
    is_in_zone,
    is_ready,
)
from holdfast.evacuate.journal import EntryState

ZONE, NAME, MARK = Zone("use1-az1"), "us-east-1a", "hf-1"
THEIRS = {"key": "gpu", "value": "yes", "effect": NO_SCHEDULE}
EXCLUDED = {"key": ZONE_LABEL, "operator": "NotIn", "values": [NAME]}


def build_node(*taints: dict[str, Any], labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels or {}}, "spec": {"taints": list(taints)}, "status": status}


def build_taint(mark: str, effect: str = NO_SCHEDULE) -> dict[str, Any]:
    return {"key": EVACUATED_KEY, "value": mark, "effect": effect}


def build_pod(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "web", **(metadata or {})}, "spec": spec, "status": {}}


def build_pool(*requirements: dict[str, Any], mark: str = "") -> dict[str, Any]:
    annotations = {EVACUATED_KEY: mark} if mark else {}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"template": {"spec": {"requirements": list(requirements)}}},
    }


def test_the_id_of_a_run_becomes_a_value_that_kubernetes_accepts() -> None:
    assert build_mark("hf-use1-az1-6abc") == "hf-use1-az1-6abc"
    for run in ("hf-" + "x" * 80, "hf/1", "::", "-hf-"):
        mark = build_mark(run)
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,61}[A-Za-z0-9]", mark)
    assert build_mark("hf/1") != build_mark("hf:1"), "two runs never have the same mark"


def test_a_node_is_in_a_zone_by_its_id_or_else_by_the_name_of_the_account() -> None:
    assert is_in_zone(build_node(labels={ZONE_ID_LABEL: ZONE, ZONE_LABEL: "other"}), ZONE, NAME)
    assert not is_in_zone(build_node(labels={ZONE_ID_LABEL: "use1-az2", ZONE_LABEL: NAME}), ZONE, NAME)
    assert is_in_zone(build_node(labels={ZONE_LABEL: NAME}), ZONE, NAME)
    assert not is_in_zone(build_node(), ZONE, NAME)
    assert is_ready(build_node(conditions=[{"type": "Ready", "status": "True"}]))
    assert not is_ready(build_node(conditions=[{"type": "Ready", "status": "Unknown"}]))


def test_only_our_own_taints_are_added_and_removed() -> None:
    node = build_node(THEIRS)
    assert find_missing(node, (NO_SCHEDULE,)) == [NO_SCHEDULE]
    added = build_addition(node, MARK, (NO_SCHEDULE, NO_EXECUTE))
    assert added == {"spec": {"taints": [THEIRS, build_taint(MARK), build_taint(MARK, NO_EXECUTE)]}}
    assert build_addition(build_node(build_taint("hf-2")), MARK, (NO_SCHEDULE,)) is None, "another run has done it"
    assert build_removal(build_node(THEIRS, build_taint(MARK)), MARK) == {"spec": {"taints": [THEIRS]}}
    assert build_removal(build_node(build_taint(MARK)), MARK) == {"spec": {"taints": None}}
    assert build_removal(build_node(build_taint("hf-2")), MARK) is None


def owner(kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "controller": True}]}


def test_pods_of_the_node_itself_and_pods_that_have_ended_stay() -> None:
    assert belongs_elsewhere(build_pod(owner("ReplicaSet")))
    assert not belongs_elsewhere(build_pod(owner("DaemonSet")))
    assert not belongs_elsewhere(build_pod({"annotations": {"kubernetes.io/config.mirror": "x"}}))
    assert not belongs_elsewhere(build_pod({"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert not belongs_elsewhere(build_pod() | {"status": {"phase": "Succeeded"}})
    assert has_controller(build_pod(owner("ReplicaSet")))
    assert not has_controller(build_pod({"ownerReferences": [{"kind": "Node"}]}))


def build_volume(name: str, *terms: list[dict[str, Any]]) -> dict[str, Any]:
    selectors = [{"matchExpressions": each} for each in terms]
    return {
        "metadata": {"name": name},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": selectors}}} if terms else {},
    }


def test_a_pod_whose_volume_is_in_the_zone_cannot_move() -> None:
    here = {"key": ZONE_LABEL, "operator": "In", "values": [NAME]}
    both = {"key": ZONE_LABEL, "operator": "In", "values": [NAME, "us-east-1b"]}
    volumes = [build_volume("zonal", [here]), build_volume("free"), build_volume("two", [here], [both])]
    claims = [
        {"metadata": {"namespace": "shop", "name": name}, "spec": {"volumeName": volume}}
        for name, volume in (("data", "zonal"), ("web-cache", "zonal"), ("other", "free"), ("spread", "two"))
    ]
    bound = find_bound_claims(claims, volumes, {ZONE, NAME})
    assert bound == {"shop/data", "shop/web-cache"}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    assert find_obstacle(build_pod(volumes=[volume]), bound, MARK) == BOUND_REASON
    own = build_pod(volumes=[{"name": "cache", "ephemeral": {}}, {"name": "tmp", "emptyDir": {}}])
    assert list_claims(own) == ["shop/web-cache"]
    assert find_obstacle(own, bound, MARK) == BOUND_REASON
    assert find_obstacle(build_pod(), bound, MARK) == ""


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": EVACUATED_KEY, "effect": NO_SCHEDULE}, True),
        ({"key": EVACUATED_KEY, "value": MARK}, True),
        ({"key": EVACUATED_KEY, "value": "hf-2"}, False),
        ({"operator": "Exists", "key": "gpu"}, False),
        ({"operator": "Exists", "effect": NO_EXECUTE}, False),
        ({"key": "gpu", "value": MARK}, False),
    ],
)
def test_a_pod_that_tolerates_the_taint_stays(toleration: dict[str, str], stays: bool) -> None:
    found = find_obstacle(build_pod(tolerations=[toleration]), (), MARK)
    assert found == (TOLERANT_REASON if stays else "")


def test_a_note_names_the_first_pods() -> None:
    assert describe_pods(["a", "b"]) == "a, b"
    assert describe_pods(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_a_pool_uses_a_zone_unless_a_requirement_forbids_it() -> None:
    limited = {"key": ZONE_LABEL, "operator": "In", "values": [NAME, "us-east-1b"]}
    assert uses_zone(build_pool(), NAME)
    assert uses_zone(build_pool(limited, {"key": "arch", "operator": "In", "values": ["arm64"]}), NAME)
    assert not uses_zone(build_pool(limited), "us-east-1c")
    assert not uses_zone(build_pool(EXCLUDED), NAME)
    assert uses_zone(build_pool(EXCLUDED), "us-east-1b")
    assert list_other_zones(build_pool(limited), NAME) == ["us-east-1b"]
    assert list_other_zones(build_pool(), NAME) is None


def test_a_pool_shows_whose_requirement_it_has() -> None:
    evacuating, restoring = EntryState.INTENDED, EntryState.RESTORING
    for pool, state, expected, note in (
        (build_pool(), evacuating, ChangeState.ABSENT, ""),
        (build_pool(EXCLUDED, mark=MARK), evacuating, ChangeState.APPLIED, ""),
        (build_pool(mark=MARK), evacuating, ChangeState.ABSENT, "others have removed the requirement"),
        (build_pool(mark=MARK), restoring, ChangeState.APPLIED, ""),
        (build_pool(EXCLUDED, mark="hf-2"), evacuating, ChangeState.FOUND, "run hf-2 keeps it"),
        (build_pool(EXCLUDED), evacuating, ChangeState.FOUND, "another person or program keeps it"),
    ):
        reading = read_pool(pool, MARK, NAME, state)
        assert (reading.state, reading.note.startswith(note)) == (expected, True)


def test_exactly_our_requirement_is_added_and_removed() -> None:
    arch = {"key": "arch", "operator": "In", "values": ["arm64"]}
    added = build_exclusion(build_pool(arch), MARK, NAME)
    assert added == {
        "metadata": {"annotations": {EVACUATED_KEY: MARK}},
        "spec": {"template": {"spec": {"requirements": [arch, EXCLUDED]}}},
    }
    assert build_exclusion(build_pool(EXCLUDED), MARK, NAME) is None
    removed = build_inclusion(build_pool(EXCLUDED, arch, EXCLUDED, mark=MARK), MARK, NAME)
    assert removed is not None
    assert removed["spec"]["template"]["spec"]["requirements"] == [EXCLUDED, arch], "the first is of others"
    assert removed["metadata"]["annotations"] == {EVACUATED_KEY: None}
    left = build_inclusion(build_pool(arch, mark=MARK), MARK, NAME)
    assert left is not None
    assert left["spec"]["template"]["spec"]["requirements"] == [arch]
    assert build_inclusion(build_pool(EXCLUDED, mark="hf-2"), MARK, NAME) is None
