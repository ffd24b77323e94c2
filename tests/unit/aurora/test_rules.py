"""The rules of a run decide by the cluster as it is, and never endanger what clients depend on."""

from dataclasses import replace

from holdfast.aurora.cluster import Cluster, Instance
from holdfast.aurora.rules import (
    CheckOutcome,
    ClusterState,
    Decision,
    NextStep,
    Role,
    Step,
    check_instance,
    choose_instance,
    decide_failover,
    decide_modification,
    decide_next_step,
    decide_start,
    find_problems,
)
from tests.table import every_row

OLD, NEW, OTHER = "db.r6g.large", "db.t4g.medium", "db.t4g.large"
CLASSES = (NEW, OTHER)
W = Instance(id="w", instance_class=OLD, status="available", is_writer=True, tier=0)
D = Instance(id="d", instance_class=OLD, status="available", tier=1)
A = Instance(id="a", instance_class=OLD, status="available", is_autoscaling=True)
B = Instance(id="b", instance_class=OLD, status="available", is_autoscaling=True)


def cluster(*instances: Instance, status: str = "available", engine: str = "aurora-postgresql") -> Cluster:
    return Cluster(id="shop", status=status, engine=engine, instances=instances or (W, D, A, B))


def test_a_check_wants_an_available_instance_of_the_class_in_the_role() -> None:
    rows = [
        (D, Role.ANY, CheckOutcome.RETRY, "d is available with db.r6g.large, and not yet available with"),
        (replace(D, instance_class=NEW), Role.ANY, CheckOutcome.READY, "d is available with db.t4g.medium"),
        (replace(D, instance_class=OTHER), Role.ANY, CheckOutcome.READY, "db.t4g.large"),
        (replace(D, instance_class=NEW), Role.WRITER, CheckOutcome.RETRY, "d is not the writer"),
        (replace(D, instance_class=NEW, is_writer=True), Role.WRITER, CheckOutcome.READY, ""),
        (replace(D, instance_class=NEW, status="modifying"), Role.ANY, CheckOutcome.RETRY, "d is modifying"),
        (replace(D, instance_class=NEW, pending=frozenset({"DBInstanceClass"})), Role.ANY, CheckOutcome.RETRY, ""),
        (replace(D, status="stopped"), Role.ANY, CheckOutcome.FAILED, "d is stopped"),
        (replace(D, status="incompatible-parameters"), Role.ANY, CheckOutcome.FAILED, "by itself"),
        (W, Role.ANY, CheckOutcome.RETRY, "d does not exist any more"),
    ]

    def check(row: tuple[Instance, Role, CheckOutcome, str]) -> None:
        instance, role, outcome, text = row
        found, reason = check_instance(cluster(instance), "d", CLASSES, role)
        assert (found, text in reason) == (outcome, True)

    every_row(rows, check)
    assert check_instance(cluster(), "", CLASSES, Role.ANY)[1] == "the instance does not exist any more"


def test_an_instance_is_modified_only_while_all_others_that_matter_are_available() -> None:
    changed = replace(A, instance_class=NEW)
    rows = [
        (cluster(), "d", Decision.ACT, "d has db.r6g.large"),
        (cluster(W, replace(D, instance_class=NEW), A), "d", Decision.ALREADY_DONE, "d has db.t4g.medium"),
        (cluster(W, A), "d", Decision.BLOCKED, "d does not exist any more"),
        (cluster(), "", Decision.BLOCKED, "the instance does not exist"),
        (cluster(), "w", Decision.BLOCKED, "w is the writer, which is never modified"),
        (cluster(W, replace(D, pending=frozenset({"Port"}))), "d", Decision.MUST_STOP, "pending changes (Port)"),
        (cluster(W, replace(D, status="rebooting")), "d", Decision.BLOCKED, "d is rebooting"),
        (cluster(W, replace(D, pending=frozenset({"DBInstanceClass"}))), "d", Decision.BLOCKED, "being changed"),
        (cluster(W, D, A, status="failing-over"), "d", Decision.BLOCKED, "cluster shop is failing-over"),
        (cluster(replace(W, is_writer=False), D, A), "d", Decision.BLOCKED, "d waits, because cluster shop is"),
        (cluster(replace(W, status="rebooting"), D), "d", Decision.BLOCKED, "d waits, because w is rebooting"),
        (cluster(W, replace(D, status="creating"), A), "a", Decision.BLOCKED, "a waits, because d is creating"),
        (cluster(W, D, replace(changed, status="rebooting"), B), "b", Decision.BLOCKED, "b waits, because a"),
        (cluster(W, D, replace(A, status="modifying"), B), "b", Decision.BLOCKED, "b waits, because a is modifying"),
        (
            cluster(W, D, replace(A, pending=frozenset({"DBInstanceClass"})), B),
            *("b", Decision.BLOCKED, "b waits, because a is available with a pending class"),
        ),
        (cluster(W, D, replace(A, pending=frozenset({"Port"})), B), "b", Decision.ACT, ""),
        # Auto Scaling creates readers, and clients do not depend yet on those.
        (cluster(W, D, replace(changed, status="creating"), B), "b", Decision.ACT, ""),
        (cluster(W, D, replace(A, status="rebooting"), B), "b", Decision.ACT, ""),
    ]

    def check(row: tuple[Cluster, str, Decision, str]) -> None:
        found, name, decision, text = row
        decided, reason = decide_modification(found, name, CLASSES)
        assert (decided, text in reason) == (decision, True)

    every_row(rows, check)


def test_a_failover_needs_a_ready_target_and_an_available_cluster() -> None:
    ready = replace(D, instance_class=NEW)
    rows = [
        (cluster(W, ready), Decision.ACT, "d is ready"),
        (cluster(W, replace(ready, is_writer=True)), Decision.ALREADY_DONE, "d is the writer"),
        (cluster(W, D), Decision.BLOCKED, "d is available with db.r6g.large"),
        (cluster(W, ready, status="failing-over"), Decision.BLOCKED, "cluster shop is failing-over"),
        (cluster(W, A), Decision.BLOCKED, "d does not exist any more"),
    ]

    def check(row: tuple[Cluster, Decision, str]) -> None:
        found, decision, text = row
        decided, reason = decide_failover(found, "d", CLASSES)
        assert (decided, text in reason) == (decision, True)

    every_row(rows, check)
    assert "the dedicated reader" in decide_failover(cluster(), "", CLASSES)[1]


def test_after_a_refresh_a_deleted_instance_is_replaced_by_the_dedicated_reader() -> None:
    new = replace(D, id="new")
    promoted = replace(D, is_writer=True)
    rows = [
        (Step.DEDICATED_READER, cluster(W, D, new), "d", "d"),
        (Step.DEDICATED_READER, cluster(W, new), "d", "new"),
        (Step.DEDICATED_READER, cluster(replace(W, is_writer=False), promoted), "d", "w"),
        (Step.FAILOVER, cluster(W, new), "d", "new"),
        (Step.FAILOVER, cluster(replace(W, is_writer=False), promoted), "d", "d"),
        (Step.OLD_WRITER, cluster(replace(W, is_writer=False), promoted), "w", "w"),
        (Step.OLD_WRITER, cluster(promoted, new), "w", "new"),
        (Step.OLD_WRITER, cluster(promoted, new), "", "new"),
        (Step.OLD_WRITER, cluster(promoted, A), "w", ""),
        (Step.AUTOSCALING_READER, cluster(W, D), "a", "a"),
    ]

    def check(row: tuple[Step, Cluster, str, str]) -> None:
        step, found, given, expected = row
        assert choose_instance(found, step, given) == expected

    every_row(rows, check)


def test_after_a_refresh_a_step_goes_on_where_the_cluster_is() -> None:
    changed, promoted = replace(D, instance_class=NEW), replace(D, is_writer=True)
    rows = [
        (Step.DEDICATED_READER, cluster(W, D), NextStep.SCALE),
        (Step.DEDICATED_READER, cluster(W, changed), NextStep.CHECK),
        (Step.DEDICATED_READER, cluster(W, replace(D, status="modifying")), NextStep.CHECK),
        (Step.DEDICATED_READER, cluster(W), NextStep.CHECK),
        (Step.FAILOVER, cluster(W, changed), NextStep.FAIL_OVER),
        (Step.FAILOVER, cluster(W, changed, status="failing-over"), NextStep.CHECK),
        (Step.FAILOVER, cluster(W, D), NextStep.SCALE_DEDICATED_READER),
        (Step.FAILOVER, cluster(W, promoted), NextStep.CHECK),
        (Step.FAILOVER, cluster(W, replace(D, status="creating")), NextStep.CHECK),
        (Step.FAILOVER, cluster(W), NextStep.CHECK),
        (Step.OLD_WRITER, cluster(W, D), NextStep.SCALE),
        (Step.OLD_WRITER, cluster(promoted), NextStep.FAIL_OVER),
        (Step.OLD_WRITER, cluster(replace(promoted, instance_class=NEW)), NextStep.CHECK),
        (Step.AUTOSCALING_READER, cluster(W, D), NextStep.SCALE),
        (Step.AUTOSCALING_READER, cluster(W), NextStep.COMPLETE),
        (Step.AUTOSCALING_READER, cluster(promoted), NextStep.COMPLETE),
    ]
    every_row(rows, lambda row: _require(decide_next_step(row[1], row[0], "d", CLASSES) is row[2]))


def test_a_run_begins_when_an_aurora_cluster_with_a_dedicated_reader_is_available() -> None:
    rows = [
        (cluster(), ClusterState.READY, "is available"),
        (cluster(engine="postgres"), ClusterState.REFUSED, "no Aurora cluster"),
        (cluster(status="stopped"), ClusterState.REFUSED, "start it first"),
        (cluster(status="stopping"), ClusterState.REFUSED, "start it first"),
        (cluster(status="starting"), ClusterState.STARTING, "is starting"),
        (cluster(W, replace(D, status="stopped")), ClusterState.STARTING, ""),
        (cluster(W, replace(D, instance_class="db.serverless")), ClusterState.REFUSED, "serverless"),
        (cluster(D, A), ClusterState.STARTING, "has no writer"),
        (cluster(W, A), ClusterState.REFUSED, "no dedicated reader"),
        (cluster(W, D, status="modifying"), ClusterState.STARTING, "is modifying"),
        (cluster(W, replace(D, status="starting")), ClusterState.STARTING, ""),
    ]

    def check(row: tuple[Cluster, ClusterState, str]) -> None:
        found, state, text = row
        decided, reason = decide_start(found)
        assert (decided, text in reason) == (state, True)

    every_row(rows, check)


def test_the_final_verification_names_what_is_not_ready_but_no_new_reader_of_the_right_class() -> None:
    creating = replace(B, instance_class=NEW, status="creating")
    assert find_problems([W, creating, replace(D, instance_class=NEW)], CLASSES) == ["w is available with db.r6g.large"]
    assert find_problems([replace(B, status="creating")], CLASSES) == ["b is creating with db.r6g.large"]


def _require(condition: bool) -> None:
    assert condition
