"""Nodes and node pools of EKS clusters: taints, evictions and requirements, on a simulated Kubernetes API server."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast import EngineUnavailable, NotAllowed, OutcomeUnknown
from holdfast.evacuate.action import ACTIONS, Action, ChangeState, PlannedChange, Reading, Resource, Target
from holdfast.evacuate.actions.eks_nodes.action import EksNodes, EksNodesOptions
from holdfast.evacuate.actions.eks_nodes.nodes import Eviction
from holdfast.evacuate.actions.eks_nodes.taints import EVACUATED_KEY, build_mark
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Plan, Report
from holdfast.evacuate.runner import Runner, build_run_id
from holdfast.evacuate.selection import Selection
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.simulate.kubernetes import ApiError, SimulatedCluster, serve
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE, Killed

TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")
NAMES = {ZONE: "us-east-1a", OTHER: "us-east-1b"}
GPU = {"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}


def build_taint(effect: str = "NoSchedule", run: str = "hf-1") -> dict[str, str]:
    return {"key": EVACUATED_KEY, "value": run, "effect": effect}


@pytest.fixture
def kube(region: SimulatedRegion) -> Iterator[SimulatedCluster]:
    """A cluster without zonal shift: two nodes in the zone, of which one has a taint already, and two elsewhere."""
    region.add("cluster", "shop", is_enabled=False)
    found = SimulatedCluster(region.arc.clock, has_karpenter=True)
    found.add_node("a1", ZONE, NAMES[ZONE])
    found.add_node("a2", ZONE, NAMES[ZONE], taints=[GPU], has_zone_id=False)
    found.add_node("b1", OTHER, NAMES[OTHER])
    found.add_node("b2", OTHER, NAMES[OTHER], has_zone_id=False)
    with serve(found) as address:
        region.endpoints["shop"] = {"endpoint": address}
        yield found


@pytest.fixture
def arn(region: SimulatedRegion, kube: SimulatedCluster) -> str:
    return next(iter(region.resources))


@pytest.fixture
def action(cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster) -> EksNodes:
    return open_action(cloud, region)


@pytest.fixture
def runner(region: SimulatedRegion, action: EksNodes) -> Runner:
    return open_runner(region, action)


def open_action(cloud: Cloud, region: SimulatedRegion, **options: Any) -> EksNodes:
    accounts = cloud.open({"the default account": ACCOUNT})
    return EksNodes(accounts, region.arc.clock, msgspec.convert(options, EksNodesOptions))


def open_runner(region: SimulatedRegion, action: Action, journal: MemoryJournal | None = None) -> Runner:
    return Runner({"eks-nodes": action}, journal or MemoryJournal(), region.arc.clock)


def evacuate(runner: Runner, planned: Plan | None = None) -> Report:
    used = planned or runner.plan(TARGET)
    return runner.evacuate(runner.begin(used, by="me@here"), used)


def restore(runner: Runner) -> Report:
    return runner.restore(runner.claim("hf-1"))


def states(report: Report) -> dict[str, EntryState]:
    return {each.resource.partition("cluster/")[2]: each.state for each in report.entries}


def get_taints(kube: SimulatedCluster) -> dict[str, Any]:
    return {name: node["spec"].get("taints", []) for name, node in kube.copy("nodes").items()}


def get_configuration(kube: SimulatedCluster) -> Any:
    """Return everything that an evacuation must bring back exactly."""
    return kube.copy("nodes"), kube.copy("nodepools")


def build_entry(action: EksNodes, resource: str, state: EntryState = EntryState.INTENDED, **fields: Any) -> Entry:
    (found,) = (each for each in action.discover(TARGET).resources if each.id == resource)
    planned = action.plan(found, TARGET)
    assert isinstance(planned, PlannedChange)
    entry = Entry(
        zone=ZONE,
        resource=resource,
        type=found.type,
        action="eks-nodes",
        run="hf-1",
        number=1,
        state=state,
        at=action._clock.wall(),
        change=planned.change,
    )
    return replace(entry, **fields)


def fail_once(wanted: str, error: Callable[[], Exception]) -> Callable[[str], None]:
    left = [wanted]

    def fail(call: str) -> None:
        if call in left:
            left.remove(call)
            raise error()

    return fail


class TestNodesConformance(DeletableActionConformance):
    """Two clusters. Their nodes have no pods, so that the first attempt is enough."""

    @pytest.fixture
    def action(self, cloud: Cloud, region: SimulatedRegion, action: EksNodes) -> Iterator[Action]:
        self.region = region
        region.add("cluster", "second", is_enabled=False)
        second = SimulatedCluster(region.arc.clock)
        second.add_node("a1", ZONE, NAMES[ZONE])
        with serve(second) as address:
            region.endpoints["second"] = {"endpoint": address}
            yield action

    def delete(self, resource: Resource) -> None:
        self.region.remove(resource.id.removesuffix("/nodes"))


class TestPoolsConformance(DeletableActionConformance):
    """Two node pools of Karpenter, in a cluster that has no nodes in the zone."""

    @pytest.fixture
    def action(self, kube: SimulatedCluster, action: EksNodes) -> Action:
        self.kube = kube
        del kube.objects["nodes"]["a1"], kube.objects["nodes"]["a2"]
        kube.add_pool("general")
        kube.add_pool("batch", [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}])
        return action

    def delete(self, resource: Resource) -> None:
        del self.kube.objects["nodepools"][resource.id.rpartition("/")[2]]


def test_nodes_are_tainted_pods_leave_and_taints_are_removed(kube: SimulatedCluster, runner: Runner) -> None:
    """Every page of a list has one item."""
    kube.page_size = 1
    for number in range(3):
        kube.add_pod(f"shop/web{number}", "a1")
    kube.add_pod("shop/agent", "a1", kind="DaemonSet")
    kube.add_pod("shop/mirror", "a1")
    kube.update(
        "pods", "shop/mirror", lambda pod: pod["metadata"].update(annotations={"kubernetes.io/config.mirror": "x"})
    )
    kube.add_pod("shop/done", "a2")
    kube.update("pods", "shop/done", lambda pod: pod["status"].update(phase="Succeeded"))
    start = get_configuration(kube)
    planned = runner.plan(TARGET)
    (change,) = planned.changes["eks-nodes"]
    assert (change.resource.type, change.resource.name) == ("eks-nodes", "shop")
    assert change.description == (
        "taint 2 nodes in use1-az1, then evict their pods within disruption budgets, for at most 600 s"
    )
    assert states(evacuate(runner, planned)) == {"shop/nodes": EntryState.APPLIED}
    assert get_taints(kube) == {"a1": [build_taint()], "a2": [GPU, build_taint()], "b1": [], "b2": []}
    kube._clock.sleep(60)
    assert kube.list_pods_on("a1", "a2") == ["shop/agent", "shop/done", "shop/mirror"]
    assert restore(runner).problems == []
    assert get_configuration(kube) == start


# Budgets


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=3))
def test_budgets_hold_and_pods_that_may_leave_do(
    cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster, workloads: list[tuple[int, int]]
) -> None:
    """Of each workload, at least the number that its budget needs is ready at any time."""
    kube.lowest.clear()
    for plural in ("pods", "poddisruptionbudgets"):
        kube.objects[plural].clear()
    for index, (pods, needed) in enumerate(workloads):
        labels = {"app": f"app{index}"}
        for number in range(pods):
            kube.add_pod(f"shop/app{index}n{number}", "a1" if number % 2 else "a2", labels=labels)
        kube.add_budget(f"shop/app{index}", labels, needed)
    runner = open_runner(region, open_action(cloud, region, eviction_deadline_seconds=120))
    report = evacuate(runner)
    assert states(report) == {"shop/nodes": EntryState.APPLIED}
    for index, (pods, needed) in enumerate(workloads):
        assert kube.lowest[f"shop/app{index}"] >= min(needed, pods)
    kube._clock.sleep(60)
    stuck = {f"shop/app{index}" for index, (pods, needed) in enumerate(workloads) if needed >= pods}
    assert {each.partition("n")[0] for each in kube.list_pods_on("a1", "a2")} == stuck
    note = report.entries[0].note
    assert all(f"{each}n0 (The disruption budget" in note for each in stuck if len(stuck) == 1)
    assert restore(runner).problems == []


def test_pods_that_stay_at_the_deadline_are_named_with_their_budget(kube: SimulatedCluster, runner: Runner) -> None:
    for number in range(7):
        kube.add_pod(f"shop/web{number}", "a1", labels={"app": "web"})
    kube.add_budget("shop/web", {"app": "web"}, 7)
    began = kube._clock.wall()
    (entry,) = evacuate(runner).entries
    assert 600 <= kube._clock.wall() - began < 660
    assert entry.state is EntryState.APPLIED
    assert entry.note.startswith(
        "pods that are left after 600 s: shop/web0 (The disruption budget web needs 7 healthy pods and has 7 currently)"
    )
    assert entry.note.endswith(" and 2 more")
    assert list(kube.calls).count("POST eviction") < 7 * 45  # every 15 seconds, not at every look
    plan = runner.plan(TARGET)
    report = runner.evacuate(runner.claim(TARGET.run), plan)
    assert report.is_partial, "a resumed run says so again"
    assert report.entries[0].note.startswith("pods that are left after 600 s: shop/web0")


@pytest.mark.parametrize(
    ("eviction", "seconds", "lowest"),
    [(Eviction.RESPECT_BUDGETS, 600, 1), (Eviction.FORCE_AT_DEADLINE, 540, 0), (Eviction.FORCE, 0, 0)],
)
def test_force_ignores_budgets_only_when_it_is_chosen(
    cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster, eviction: Eviction, seconds: float, lowest: int
) -> None:
    kube.add_pod("shop/web", "a1", labels={"app": "web"})
    kube.add_budget("shop/web", {"app": "web"}, 1)
    kube.add_pod("shop/other", "a2")
    start, began = get_configuration(kube), kube._clock.wall()
    runner = open_runner(region, open_action(cloud, region, eviction=str(eviction)))
    assert set(states(evacuate(runner)).values()) == {EntryState.APPLIED}
    assert seconds <= kube._clock.wall() - began <= seconds + 60
    effects = {name: [each["effect"] for each in taints if each != GPU] for name, taints in get_taints(kube).items()}
    both = ["NoSchedule", "NoExecute"]
    assert effects["a1"] == (["NoSchedule"] if eviction is Eviction.RESPECT_BUDGETS else both)
    assert effects["a2"] == (both if eviction is Eviction.FORCE else ["NoSchedule"])
    kube._clock.sleep(60)
    assert kube.list_pods_on("a1", "a2") == (["shop/web"] if lowest else [])
    assert kube.lowest == {"shop/web": lowest}
    assert restore(runner).problems == []
    assert get_configuration(kube) == start


# Pods that cannot move


@pytest.mark.parametrize("key", ["topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"])
def test_pods_with_a_volume_in_the_zone_are_listed_and_left_running(
    kube: SimulatedCluster, arn: str, runner: Runner, key: str
) -> None:
    kube.add_volume("shop/here", ["us-east-1a"], key=key)
    kube.add_volume("shop/both", ["us-east-1a", "us-east-1b"], key=key)
    kube.add_pod("shop/db-0", "a1", kind="StatefulSet", claim="here")
    kube.add_pod("shop/db-1", "a1", kind="StatefulSet", claim="both")
    kube.add_pod("shop/tolerant", "a1", tolerations=[{"operator": "Exists"}])
    kube.add_pod("shop/alone", "a2", kind="")
    planned = runner.plan(TARGET)
    assert {(each.resource.id, each.resource.type, each.reason) for each in planned.unmovable} == {
        (f"{arn}/pods/shop/db-0", "pod", "its volume is in this zone"),
        (f"{arn}/pods/shop/tolerant", "pod", "it tolerates the taint, so that it could return to the same node"),
    }
    assert "these pods have no controller, so they are lost: shop/alone" in planned.changes["eks-nodes"][0].side_effects
    (entry,) = evacuate(runner, planned).entries
    assert entry.note.startswith("pods that cannot move: shop/db-0 (its volume is in this zone), shop/tolerant (")
    kube._clock.sleep(60)
    assert kube.list_pods_on("a1", "a2") == ["shop/db-0", "shop/tolerant"]
    kube.calls.clear()
    assert runner.plan(replace(TARGET, lists_unmovable=False)).unmovable == []
    assert "GET pods" not in kube.calls


# Other writers


def test_taints_that_others_add_meanwhile_are_kept(kube: SimulatedCluster, runner: Runner) -> None:
    """Another writer changes a node between our read and our first two writes."""
    theirs = [{"key": f"theirs-{number}", "effect": "PreferNoSchedule"} for number in range(2)]
    left = list(theirs)

    def interfere(call: str) -> None:
        if call == "PATCH nodes" and left:
            added = left.pop(0)
            kube.update("nodes", "a1", lambda node: node["spec"].setdefault("taints", []).append(added))

    kube.faults = interfere
    assert set(states(evacuate(runner)).values()) == {EntryState.APPLIED}
    assert get_taints(kube)["a1"] == [*theirs, build_taint()]
    assert restore(runner).problems == []
    assert get_taints(kube) == {"a1": theirs, "a2": [GPU], "b1": [], "b2": []}


def test_nodes_that_another_run_has_tainted_are_found_and_left_to_it(
    kube: SimulatedCluster, action: EksNodes, arn: str
) -> None:
    entry = build_entry(action, f"{arn}/nodes")
    for name in ("a1", "a2"):
        kube.update("nodes", name, lambda node: node["spec"].update(taints=[build_taint(run="hf-2")]))
    reading = action.read(entry)
    assert (reading.state, reading.note) == (ChangeState.FOUND, "run hf-2 has tainted the nodes in use1-az1 already")
    kube.update("nodes", "a2", lambda node: node["spec"].update(taints=[]))
    assert action.read(entry).state is ChangeState.ABSENT
    action.apply(entry)
    assert action.read(entry).state is ChangeState.APPLIED
    action.restore(replace(entry, state=EntryState.RESTORING), Reading(state=ChangeState.APPLIED))
    assert get_taints(kube) == {"a1": [build_taint(run="hf-2")], "a2": [], "b1": [], "b2": []}


def test_taints_that_others_removed_from_all_nodes_are_a_lapse(kube: SimulatedCluster, runner: Runner) -> None:
    run = evacuate(runner).run
    kube.update("nodes", "a1", lambda node: node["spec"].pop("taints"))
    assert runner.renew(run) == []  # one node has its taint, so the other one gets it again
    assert get_taints(kube)["a1"] == [build_taint()]
    for name in ("a1", "a2"):
        kube.update("nodes", name, lambda node: node["spec"].pop("taints"))
    (lapsed,) = runner.renew(run)
    assert lapsed.note.startswith("others have removed the taints of this run from all nodes. The first `holdfast zone")
    assert set(states(restore(runner)).values()) == {EntryState.RESTORED}


# Kills


@pytest.mark.parametrize("ending", ["restore", "resume"])
@pytest.mark.parametrize("eviction", ["force-at-deadline", "force"])
def test_a_run_that_is_killed_after_any_write_is_continued_or_restored(
    cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster, eviction: str, ending: str
) -> None:
    kube.add_pool("general")
    start, options = get_configuration(kube), {"eviction": eviction, "eviction_deadline_seconds": 90}
    for number in range(100):
        kube.objects["pods"].clear()
        kube.add_pod("shop/web", "a1", labels={"app": "web"})
        kube.add_pod("shop/other", "a2")
        kube.objects["poddisruptionbudgets"].clear()
        kube.add_budget("shop/web", {"app": "web"}, 1)
        journal = MemoryJournal()
        runner = open_runner(region, KillingAction(open_action(cloud, region, **options), kube, number), journal)
        was_killed = False
        try:
            evacuate(runner)
        except Killed:
            was_killed = True
        kube.faults = lambda _: None
        region.arc.clock.sleep(61)  # the claim of the process ends
        next_runner = open_runner(region, open_action(cloud, region, **options), journal)
        if ending == "resume":
            planned = next_runner.plan(TARGET)
            report = next_runner.evacuate(next_runner.claim("hf-1"), planned)
            assert set(states(report).values()) == {EntryState.APPLIED}
            region.arc.clock.sleep(60)
            assert kube.list_pods_on("a1", "a2") == []
        assert set(states(restore(next_runner)).values()) == {EntryState.RESTORED}
        assert get_configuration(kube) == start
        if not was_killed:
            break
    assert number >= 3  # two nodes and a node pool


def test_a_restore_that_is_killed_after_any_write_is_finished(
    cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster
) -> None:
    kube.add_pool("general")
    start = get_configuration(kube)
    for number in range(4):
        journal, action = MemoryJournal(), open_action(cloud, region, eviction="force")
        evacuate(open_runner(region, action, journal))
        killed = open_runner(region, KillingAction(action, kube, number), journal)
        with contextlib.suppress(Killed):
            restore(killed)
        assert (get_configuration(kube) == start) is (number == 3)
        kube.faults = lambda _: None
        region.arc.clock.sleep(61)
        if number < 3:
            assert set(states(restore(open_runner(region, action, journal))).values()) == {EntryState.RESTORED}
        assert get_configuration(kube) == start


class KillingAction:
    """An action whose process is killed after a number of writes: later ones do not reach the cluster."""

    def __init__(self, action: EksNodes, kube: SimulatedCluster, number: int) -> None:
        self._action, self._left = action, number
        kube.faults = self._refuse
        self._is_dead = False
        self.evacuation_stage, self.restoration_stage = action.evacuation_stage, action.restoration_stage
        self.parallel_calls, self.timeout = 1, action.timeout
        self.discover, self.plan, self.renew = action.discover, action.plan, action.renew

    def _refuse(self, call: str) -> None:
        if call.startswith("GET"):
            return
        if self._left == 0:
            self._is_dead = True
            raise ApiError(403)
        self._left -= 1

    def _run(self, work: Callable[[], Any]) -> Any:
        if self._is_dead:
            raise Killed
        try:
            return work()
        finally:
            if self._is_dead:
                raise Killed

    def read(self, entry: Entry) -> Reading:
        found: Reading = self._run(lambda: self._action.read(entry))
        return found

    def apply(self, entry: Entry) -> None:
        self._run(lambda: self._action.apply(entry))

    def restore(self, entry: Entry, reading: Reading) -> None:
        self._run(lambda: self._action.restore(entry, reading))


# Failures


@pytest.mark.parametrize("call", ["GET nodes", "GET pods", "PATCH nodes", "POST eviction", "GET nodepools"])
@pytest.mark.parametrize("error", [lambda: ApiError(429), lambda: ApiError(500), lambda: ApiError(503), ReplyLost])
def test_throttling_and_lost_replies_delay_a_run_but_do_not_stop_it(
    kube: SimulatedCluster, runner: Runner, call: str, error: Callable[[], Exception]
) -> None:
    kube.add_pod("shop/web", "a1")
    start, planned = get_configuration(kube), runner.plan(TARGET)
    kube.faults = fail_once(call, error)
    assert set(states(evacuate(runner, planned)).values()) == {EntryState.APPLIED}
    assert get_taints(kube)["a1"] == [build_taint()]
    kube._clock.sleep(60)
    assert kube.list_pods_on("a1", "a2") == []
    kube.faults = fail_once(call, error)
    assert restore(runner).problems == []
    assert get_configuration(kube) == start


def test_a_refusal_after_a_write_leaves_a_run_that_can_be_restored(kube: SimulatedCluster, runner: Runner) -> None:
    start, seen = get_configuration(kube), []

    def refuse(call: str) -> None:
        if call == "PATCH nodes":
            seen.append(call)
            if len(seen) > 1:
                raise ApiError(403, "no")

    kube.faults = refuse
    (entry,) = evacuate(runner).entries
    assert entry.state is EntryState.INTENDED
    assert "create-access-entry" in entry.note
    kube.faults = lambda _: None
    assert set(states(restore(runner)).values()) == {EntryState.RESTORED}
    assert get_configuration(kube) == start


def test_a_refusal_before_any_write_fails_and_a_refused_eviction_is_noted(
    cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster, arn: str
) -> None:
    action = open_action(cloud, region, eviction_deadline_seconds=60)
    entry = build_entry(action, f"{arn}/nodes")

    def deny(wanted: str) -> Callable[[str], None]:
        def fail(call: str) -> None:
            if call == wanted:
                raise ApiError(403, "no")

        return fail

    kube.faults = deny("PATCH nodes")
    with pytest.raises(NotAllowed):
        action.apply(entry)
    kube.faults = lambda call: (_ for _ in ()).throw(ApiError(429)) if call == "GET pods" else None
    with pytest.raises(OutcomeUnknown, match="2 nodes were tainted, then a call failed"):
        action.apply(entry)
    with pytest.raises(EngineUnavailable):
        action.apply(entry)
    kube.add_pod("shop/web", "a1")
    kube.faults = deny("POST eviction")
    (outcome,) = evacuate(open_runner(region, action)).entries
    assert outcome.state is EntryState.APPLIED
    assert "shop/web (Kubernetes shop POST" in outcome.note


def test_a_cluster_without_access_entry_is_listed_with_the_command(
    kube: SimulatedCluster, arn: str, action: EksNodes, runner: Runner
) -> None:
    kube.accounts = frozenset({"210987654321"})
    planned = runner.plan(TARGET)
    assert planned.changes["eks-nodes"] == []
    (staying,) = planned.unmovable
    assert (staying.resource.id, staying.resource.type) == (f"{arn}/nodes", "eks-nodes")
    assert "aws eks create-access-entry --cluster-name shop" in staying.reason
    hidden = action.discover(replace(TARGET, lists_unmovable=False))
    assert (hidden.resources, hidden.unmovable, hidden.unreadable) == ([], [], [])
    assert hidden.notes[0].startswith("the default account in us-east-1: the nodes of the cluster shop are not moved:")


def test_a_cluster_that_can_never_be_reached_is_listed_and_stops_no_restore(
    region: SimulatedRegion, kube: SimulatedCluster, runner: Runner
) -> None:
    """Its endpoint is private: nothing listens at its address here."""
    region.add("cluster", "private", is_enabled=False)
    region.endpoints["private"] = {"endpoint": "http://127.0.0.1:9"}
    planned = runner.plan(TARGET)
    assert [each.resource.name for each in planned.changes["eks-nodes"]] == ["shop"]
    assert [(each.resource.name, "cannot be reached" in each.reason) for each in planned.unmovable] == [
        ("private", True)
    ]
    assert "the nodes of the cluster private are not moved" in planned.discoveries["eks-nodes"].notes[0]
    evacuate(runner, planned)
    assert not restore(runner).run.is_open


def test_a_cluster_that_is_throttled_is_planned_and_tried_for_longer(
    kube: SimulatedCluster, action: EksNodes, runner: Runner
) -> None:
    kube.faults = lambda _: (_ for _ in ()).throw(ApiError(503))
    planned = runner.plan(TARGET)
    (change,) = planned.changes["eks-nodes"]
    assert change.description.startswith("taint all nodes in use1-az1, ")
    assert "the cluster could not be read" in change.side_effects[-1]
    kube.faults = fail_once("GET nodes", lambda: ApiError(503))
    assert set(states(evacuate(runner, planned)).values()) == {EntryState.APPLIED}


@pytest.mark.parametrize("operation", ["ListClusters", "DescribeCluster", "DescribeAvailabilityZones"])
def test_an_account_that_cannot_be_read_is_reported(region: SimulatedRegion, action: EksNodes, operation: str) -> None:
    region.faults = fail_once(operation, lambda: ServiceError(Refusal.DENIED))
    (found,) = action.discover(TARGET).unreadable
    assert operation in found.reason


# New nodes


def test_new_nodes_are_tainted_and_emptied_by_a_renewal(kube: SimulatedCluster, runner: Runner) -> None:
    run = evacuate(runner).run
    kube.add_node("a3", ZONE, NAMES[ZONE])
    kube.add_pod("shop/web", "a3")
    assert {each.state for each in runner.verify(run).values()} == {ChangeState.APPLIED}
    assert runner.renew(run) == []
    assert get_taints(kube)["a3"] == [build_taint()]
    kube._clock.sleep(60)
    assert kube.list_pods_on("a3") == []
    for name in ("a1", "a2"):  # the node group has replaced its nodes
        del kube.objects["nodes"][name]
    kube.add_node("a4", ZONE, NAMES[ZONE])
    assert runner.renew(run) == []
    assert get_taints(kube)["a4"] == [build_taint()]
    assert restore(runner).problems == []
    assert get_taints(kube) == {each: [] for each in ("a3", "a4", "b1", "b2")}


def test_a_renewal_never_deletes_pods_because_of_an_old_deadline(
    cloud: Cloud, region: SimulatedRegion, kube: SimulatedCluster
) -> None:
    runner = open_runner(region, open_action(cloud, region, eviction="force-at-deadline"))
    run = evacuate(runner).run
    kube._clock.sleep(3600)
    kube.add_node("a3", ZONE, NAMES[ZONE])
    kube.add_pod("shop/web", "a3", labels={"app": "web"})
    kube.add_budget("shop/web", {"app": "web"}, 1)
    assert runner.renew(run) == []
    assert get_taints(kube)["a3"] == [build_taint()]


def test_a_restore_waits_until_a_node_of_the_zone_is_ready(kube: SimulatedCluster, action: EksNodes, arn: str) -> None:
    entry = build_entry(action, f"{arn}/nodes", EntryState.RESTORING)
    assert action.read(entry).is_effective
    for name in ("a1", "a2"):
        kube.update("nodes", name, lambda node: node["status"]["conditions"][0].update(status="Unknown"))
    reading = action.read(entry)
    assert (reading.state, reading.is_effective) == (ChangeState.ABSENT, False)
    for name in ("a1", "a2"):
        del kube.objects["nodes"][name]
    assert action.read(entry).is_effective


# Karpenter


def test_node_pools_get_a_requirement_and_lose_exactly_that(kube: SimulatedCluster, arn: str, runner: Runner) -> None:
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In"}
    kube.add_pool("general", [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}])
    kube.add_pool("elsewhere", [zones | {"values": ["us-east-1b"]}])
    kube.add_pool("excluded", [zones | {"operator": "NotIn", "values": ["us-east-1a"]}])
    kube.add_pool("single", [zones | {"values": ["us-east-1a"]}])
    start, planned = get_configuration(kube), runner.plan(TARGET)
    assert [each.resource.name for each in planned.changes["eks-nodes"]] == ["shop", "shop/general"]
    change = planned.changes["eks-nodes"][1]
    assert (change.resource.id, change.resource.type) == (f"{arn}/node-pools/general", "karpenter-node-pool")
    assert "drift" in change.side_effects[0]
    assert [(each.resource.name, each.reason) for each in planned.unmovable] == [
        ("shop/single", "it has no other zone")
    ]
    evacuate(runner, planned)
    pool = kube.copy("nodepools")["general"]
    added = {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["us-east-1a"]}
    assert pool["spec"]["template"]["spec"]["requirements"][-1] == added
    assert pool["metadata"]["annotations"] == {EVACUATED_KEY: "hf-1"}
    assert restore(runner).problems == []
    assert get_configuration(kube) == start


def test_a_requirement_that_others_removed_is_a_lapse_and_its_annotation_is_removed(
    kube: SimulatedCluster, runner: Runner
) -> None:
    kube.add_pool("general")
    start, run = get_configuration(kube), evacuate(runner).run
    kube.update("nodepools", "general", lambda pool: pool["spec"]["template"]["spec"].update(requirements=[]))
    (lapsed,) = runner.renew(run)
    assert lapsed.note == "others have removed the requirement that excludes us-east-1a"
    assert restore(runner).problems == []
    assert get_configuration(kube) == start


def test_the_same_requirement_of_others_is_kept(kube: SimulatedCluster, runner: Runner) -> None:
    kube.add_pool("general")
    planned = runner.plan(TARGET)
    same = {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["us-east-1a"]}
    kube.update("nodepools", "general", lambda pool: pool["spec"]["template"]["spec"].update(requirements=[same]))
    start = kube.copy("nodepools")
    assert states(evacuate(runner, planned))["shop/node-pools/general"] is EntryState.FOUND
    restore(runner)
    assert kube.copy("nodepools") == start


def test_a_cluster_without_karpenter_has_no_pools_and_a_refusal_is_a_note(
    kube: SimulatedCluster, action: EksNodes
) -> None:
    kube.add_pool("general")
    kube.faults = fail_once("GET nodepools", lambda: ApiError(403, "no"))
    found = action.discover(TARGET)
    assert [each.type for each in found.resources] == ["eks-nodes"]
    assert found.notes[0].startswith("shop: the node pools of Karpenter cannot be listed")
    del kube.objects["nodepools"]
    found = action.discover(TARGET)
    assert ([each.type for each in found.resources], found.notes) == (["eks-nodes"], [])


# Selection


def test_a_cluster_with_zonal_shift_is_left_to_that_action(region: SimulatedRegion, action: EksNodes) -> None:
    shifted = region.add("cluster", "shifted")
    region.endpoints["shifted"] = {"endpoint": "http://127.0.0.1:9"}
    found = action.discover(TARGET)
    assert [each.name for each in found.resources] == ["shop"]
    assert [(each.resource.id, each.reason) for each in found.unmovable] == [
        (shifted, "zonal shift is enabled for it, so only the action `zonal-shift` moves it")
    ]
    assert action.discover(replace(TARGET, lists_unmovable=False)).unmovable == []


def test_a_cluster_whose_nodes_are_moved_does_not_stay(cloud: Cloud, region: SimulatedRegion, action: EksNodes) -> None:
    shift = ZonalShift(cloud.open({"the default account": ACCOUNT}))
    runner = Runner({"eks-nodes": action, "zonal-shift": shift}, MemoryJournal(), region.arc.clock)
    plan = runner.plan(TARGET)
    assert [each.resource.name for each in plan.discoveries["zonal-shift"].unmovable] == ["shop"]
    assert plan.unmovable == []


def test_clusters_are_chosen_by_tags_and_by_nodes_in_the_zone(
    region: SimulatedRegion, kube: SimulatedCluster, arn: str, action: EksNodes
) -> None:
    region.add("cluster", "starting", is_enabled=False)  # it has no endpoint yet
    chosen = replace(TARGET, selection=Selection(tags={"team": "shop"}))
    assert action.discover(chosen).resources == []
    region.tags[arn] = {"team": "shop"}
    assert [each.id for each in action.discover(chosen).resources] == [f"{arn}/nodes"]
    for name in ("a1", "a2"):
        del kube.objects["nodes"][name]
    assert action.discover(TARGET).resources == []


def test_an_account_that_cannot_use_the_zone_has_nothing_there(region: SimulatedRegion, action: EksNodes) -> None:
    """Older zones are closed to new accounts."""
    del region.zones["us-east-1a"]
    found = action.discover(TARGET)
    assert (found.resources, found.unreadable) == ([], [])


# The rest


@pytest.mark.parametrize(
    ("run", "mark"),
    [
        ("hf-1", "hf-1"),
        (build_run_id(1_750_000_000.0, "use1-az1")[:-6] + "abcdef", "hf-use1-az1-684ee180-abcdef"),
        ("hf-" + "x" * 100, "hf-" + "x" * 47 + "-"),
        ("hf:1", "hf-1-"),
        ("-", ""),
    ],
)
def test_a_run_id_becomes_a_value_that_kubernetes_accepts(run: str, mark: str) -> None:
    found = build_mark(run)
    assert found.startswith(mark)
    assert 0 < len(found) <= 63
    assert found[0].isalnum()
    assert found[-1].isalnum()


def test_ids_that_differ_have_different_marks() -> None:
    assert len({build_mark(each) for each in ("hf:1", "hf-1", "hf/1", "x" * 70, "x" * 71)}) == 5


def test_the_action_is_registered_with_options() -> None:
    kind = ACTIONS.get("eks-nodes")
    assert kind.options_type is EksNodesOptions
    wanted = EksNodesOptions(eviction=Eviction.FORCE, eviction_deadline_seconds=30)
    assert msgspec.convert({"eviction": "force", "eviction_deadline_seconds": 30}, EksNodesOptions) == wanted
    for wrong in ({"eviction": "never"}, {"eviction_deadline_seconds": -1}, {"deadline": 3}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, EksNodesOptions)
    assert "eks:DescribeCluster" in kind.permissions
    assert "pods/eviction" in kind.terraform


def test_the_module_is_imported_without_boto3() -> None:
    code = (
        "import sys; sys.modules.update(boto3=None, botocore=None, urllib3=None); "
        "from holdfast.evacuate.action import ACTIONS; ACTIONS.get('eks-nodes')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
