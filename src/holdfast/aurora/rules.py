"""Decide each step of a run: what to modify, what to fail over, what to check, and where to go on. Pure.

A decision comes with its reason in words.

A run never modifies the writer, and modifies no instance while another that clients depend on is not available. Every
step looks at the cluster as it is now, so that a step which is already done changes nothing, and a run can be
repeated without harm.
"""

from collections.abc import Sequence
from enum import StrEnum

from holdfast.aurora.cluster import Availability, Cluster, Instance


class Role(StrEnum):
    """The role that an instance must have for a check to succeed."""

    ANY = "any"
    WRITER = "writer"


class CheckOutcome(StrEnum):
    """The result of checking one instance."""

    READY = "ready"
    RETRY = "retry"
    FAILED = "failed"
    """It cannot become ready by waiting."""


def check_instance(cluster: Cluster, instance_id: str, classes: Sequence[str], role: Role) -> tuple[CheckOutcome, str]:
    """Check whether an instance is available, has one of `classes`, and has the role."""
    instance = cluster.find(instance_id)
    if instance is None:
        return CheckOutcome.RETRY, f"{instance_id or 'the instance'} does not exist any more"
    state = f"{instance.id} is {instance.status} with {instance.instance_class}"
    if instance.availability in {Availability.BROKEN, Availability.STOPPED}:
        return CheckOutcome.FAILED, f"{state}: it does not become available by itself"
    if not instance.is_ready(classes):
        return CheckOutcome.RETRY, f"{state}, and not yet available with {' or '.join(classes)}"
    if role is Role.WRITER and not instance.is_writer:
        return CheckOutcome.RETRY, f"{instance.id} is not the writer"
    return CheckOutcome.READY, state


class Decision(StrEnum):
    """Whether to modify an instance, or to fail over to it."""

    ACT = "act"
    ALREADY_DONE = "already-done"
    BLOCKED = "blocked"
    """Not now: the next check finds out whether it is possible later."""
    MUST_STOP = "must-stop"
    """Never: the run must end."""


def decide_modification(cluster: Cluster, instance_id: str, classes: Sequence[str]) -> tuple[Decision, str]:
    """Decide whether to give an instance another class now."""
    instance = cluster.find(instance_id)
    if instance is None:
        return Decision.BLOCKED, f"{instance_id or 'the instance'} does not exist any more"
    if instance.has_class(classes):
        return Decision.ALREADY_DONE, f"{instance.id} has {instance.instance_class}"
    if instance.is_writer:
        return Decision.BLOCKED, f"{instance.id} is the writer, which is never modified"
    others = instance.pending - {"DBInstanceClass"}
    if others:
        names = ", ".join(sorted(others))
        return Decision.MUST_STOP, f"{instance.id} has pending changes ({names}), which RDS would apply with the class"
    if instance.pending:
        return Decision.BLOCKED, f"{instance.id} is already being changed"
    if instance.availability is not Availability.AVAILABLE:
        return Decision.BLOCKED, f"{instance.id} is {instance.status}"
    if cluster.writer is None or cluster.status != "available":
        return Decision.BLOCKED, f"{instance.id} waits, because cluster {cluster.id} is {cluster.status}"
    # Just after it was asked for, a change is pending while the instance is still available.
    unavailable = [
        f"{each.id} is {each.status}" + (" with a pending class" if "DBInstanceClass" in each.pending else "")
        for each in _find_needed(cluster, classes)
        if each.availability is not Availability.AVAILABLE or "DBInstanceClass" in each.pending
    ]
    if unavailable:
        return Decision.BLOCKED, f"{instance.id} waits, because {', '.join(unavailable)}"
    return Decision.ACT, f"{instance.id} has {instance.instance_class}"


def _find_needed(cluster: Cluster, classes: Sequence[str]) -> list[Instance]:
    """Return the instances of which only one may be unavailable: writer, dedicated reader, and changed ones."""
    roles = (cluster.writer, cluster.dedicated_reader)
    return [each for each in cluster.instances if each in roles or _was_changed(each, classes)]


def _was_changed(instance: Instance, classes: Sequence[str]) -> bool:
    if instance.status == "creating":
        return False  # by Auto Scaling, after the failover with the new writer's class
    return instance.instance_class in classes or instance.status == "modifying" or bool(instance.pending)


def decide_failover(cluster: Cluster, target_id: str, classes: Sequence[str]) -> tuple[Decision, str]:
    """Decide whether to make `target_id` the writer now."""
    target = cluster.find(target_id)
    if target is None:
        return Decision.BLOCKED, f"{target_id or 'the dedicated reader'} does not exist any more"
    if target.is_writer:
        return Decision.ALREADY_DONE, f"{target.id} is the writer"
    if not target.is_ready(classes):
        return Decision.BLOCKED, f"{target.id} is {target.status} with {target.instance_class}"
    if cluster.status != "available":
        return Decision.BLOCKED, f"cluster {cluster.id} is {cluster.status}"
    return Decision.ACT, f"{target.id} is ready"


class Step(StrEnum):
    """The parts of a run that are checked and repeated."""

    START = "Start"
    DEDICATED_READER = "DedicatedReader"
    FAILOVER = "Failover"
    OLD_WRITER = "OldWriter"
    AUTOSCALING_READER = "AutoScalingReader"


def choose_instance(cluster: Cluster, step: Step, instance_id: str) -> str:
    """Return the instance to go on with: `instance_id`, or the dedicated reader if that one is gone or promoted early.

    After the failover the dedicated reader is the one that replaces the old writer. An autoscaling reader is not
    replaced. The result is empty if there is no dedicated reader.
    """
    instance = cluster.find(instance_id)
    is_promoted = step is Step.DEDICATED_READER and instance is not None and instance.is_writer
    if step is Step.AUTOSCALING_READER or (instance is not None and not is_promoted):
        return instance_id
    dedicated = cluster.dedicated_reader
    return dedicated.id if dedicated is not None else ""


class NextStep(StrEnum):
    """Where a run goes on after it has refreshed what it knows."""

    CHECK = "check"
    SCALE = "scale"
    SCALE_DEDICATED_READER = "scale-dedicated-reader"
    FAIL_OVER = "fail-over"
    COMPLETE = "complete"


def decide_next_step(cluster: Cluster, step: Step, instance_id: str, classes: Sequence[str]) -> NextStep:
    """Decide how to go on with a step after waiting. `instance_id` is the instance of the step, as it is now."""
    instance = cluster.find(instance_id)
    if step is Step.FAILOVER:
        return _decide_after_failover(cluster, instance, classes)
    if step is Step.AUTOSCALING_READER and (instance is None or instance.is_writer):
        return NextStep.COMPLETE  # scaled in; or promoted, which the final verification finds
    if step is Step.OLD_WRITER and instance is not None and instance.is_writer and not instance.has_class(classes):
        return NextStep.FAIL_OVER  # Aurora has promoted it again
    can_scale = instance is not None and instance.availability is Availability.AVAILABLE
    return NextStep.SCALE if instance and can_scale and not instance.has_class(classes) else NextStep.CHECK


def _decide_after_failover(cluster: Cluster, target: Instance | None, classes: Sequence[str]) -> NextStep:
    if target is None or target.is_writer or target.availability is not Availability.AVAILABLE:
        return NextStep.CHECK
    if not target.has_class(classes):
        return NextStep.SCALE_DEDICATED_READER  # a replacement
    return NextStep.FAIL_OVER if cluster.status == "available" else NextStep.CHECK


class ClusterState(StrEnum):
    """Whether a run can begin."""

    READY = "ready"
    STARTING = "starting"
    REFUSED = "refused"


def decide_start(cluster: Cluster) -> tuple[ClusterState, str]:
    """Decide whether a run can begin. A stopped cluster is never started."""
    if not cluster.engine.startswith("aurora"):
        return ClusterState.REFUSED, f"{cluster.id} is no Aurora cluster: its engine is {cluster.engine}"
    if cluster.status in {"stopped", "stopping"}:
        return ClusterState.REFUSED, f"cluster {cluster.id} is {cluster.status}: start it first"
    if not cluster.instances:
        return ClusterState.REFUSED, f"cluster {cluster.id} has no instances: there is nothing to change"
    stopped = [each.id for each in cluster.instances if each.availability is Availability.STOPPED]
    if cluster.status == "starting" or stopped:
        return ClusterState.STARTING, f"cluster {cluster.id} is {cluster.status}"
    if any(each.instance_class == "db.serverless" for each in cluster.instances):
        return ClusterState.REFUSED, f"cluster {cluster.id} has serverless instances: change its capacity instead"
    if cluster.writer is None:
        return ClusterState.STARTING, f"cluster {cluster.id} has no writer"
    if cluster.dedicated_reader is None:
        text = f"cluster {cluster.id} has no dedicated reader: without one, the database would be down for minutes"
        return ClusterState.REFUSED, text
    leading = (cluster.writer, cluster.dedicated_reader)
    if cluster.status != "available" or any(each.status == "starting" for each in leading):
        return ClusterState.STARTING, f"cluster {cluster.id} is {cluster.status}"
    return ClusterState.READY, f"cluster {cluster.id} is available"


def find_problems(instances: Sequence[Instance], classes: Sequence[str]) -> list[str]:
    """Return what keeps these instances from being ready, in words. A reader that is being created is no problem."""
    return [
        f"{each.id} is {each.status} with {each.instance_class}"
        for each in instances
        if not each.is_ready(classes) and not (each.status == "creating" and each.has_class(classes))
    ]
