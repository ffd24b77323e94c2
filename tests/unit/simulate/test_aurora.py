"""The real state machine and functions end every fault as specified, and keep their rules whatever happens.

A run takes half a second, because moto interprets the definition and answers every call of the functions.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.aurora import handlers
from holdfast.aurora.machine import (
    LOCK_SECONDS,
    MAX_EXTRA_ROUNDS,
    MAX_REPLACEMENTS,
    MAX_RETRIES,
    RETRY_WAIT,
    TASK_RETRIES,
    TIMEOUT_SECONDS,
)
from holdfast.aurora.rules import CheckOutcome, Decision
from holdfast.simulate.aurora import (
    ALWAYS,
    DEDICATED,
    FALLBACK_CLASS,
    NAMED_FAULTS,
    OLD_CLASS,
    REPLACEMENT,
    TARGET_CLASS,
    WRITER,
    Fault,
    FaultKind,
    Scenario,
    SimulatedRun,
    build_scenario,
    draw_scenario,
    find_violations,
    simulate,
)
from holdfast.simulate.aws.lifecycle import (
    AcceptedCall,
    InstanceState,
    PublishedMessage,
    RdsTimes,
    Snapshot,
    StateVisit,
)
from tests.table import sampled
from tests.unit.simulate.longest_run import LongestRun

EVENT_LIMIT = 25_000
"""The longest history that an execution may have, at AWS."""
EVENTS_OF_FAILED_ATTEMPT = 3

ENDS: dict[str, tuple[str, str, list[str], list[str]]] = {
    # fault: status, last state, ends of the subjects of notifications, states that the run must visit
    "deleting-instance": ("SUCCEEDED", "ScalingSucceeded", ["completed"], []),
    "failover-refused": ("SUCCEEDED", "ScalingSucceeded", ["completed"], ["RefreshFailoverInfo"]),
    "failover-never": ("FAILED", "ScalingFailed", ["failed at the failover"], ["FailoverStatusError"]),
    "failover-reverted": ("SUCCEEDED", "ScalingSucceeded", ["completed"], ["RefreshFailoverInfo"]),
    "scaled-in": ("SUCCEEDED", "ScalingSucceeded", ["completed"], ["RefreshAutoScalingReaderInfo"]),
    "scaled-out": ("SUCCEEDED", "ScalingSucceeded", ["completed"], []),
    "cluster-starting": ("SUCCEEDED", "ScalingSucceeded", ["completed"], ["WaitForClusterStart"]),
    "cluster-stopped": ("FAILED", "ScalingFailed", ["the cluster cannot be changed"], ["ClusterStateError"]),
    "throttling": ("SUCCEEDED", "ScalingSucceeded", ["completed"], []),
    "insufficient-capacity": ("FAILED", "ScalingFailed", ["class change failed"], ["UnexpectedError"]),
    "fallback-class": ("SUCCEEDED", "ScalingSucceeded", ["completed"], []),
    "class-never-applied": ("FAILED", "ScalingFailed", ["at the dedicated reader"], ["DedicatedReaderStatusError"]),
    "roles-swapped": ("SUCCEEDED", "ScalingSucceeded", ["completed"], []),
    "failing-notification": ("FAILED", "CompletionNotificationFailed", ["change completed"], []),
    "aborted": ("ABORTED", "WaitForOldWriterRetry", ["was stopped by someone"], []),
    "timed-out": ("TIMED_OUT", "WaitForOldWriterRetry", ["timed out"], []),
    "duplicate": ("SUCCEEDED", "ScalingSucceeded", ["skipped", "completed"], []),
}


def final_classes(result: SimulatedRun) -> dict[str, str]:
    return {name: spans[-1].instance_class for name, spans in result.build_timelines().items()}


def test_the_plain_run_takes_65_minutes_with_one_failover() -> None:
    result = simulate(build_scenario((), readers=1))
    assert (result.status, result.seconds, find_violations(result)) == ("SUCCEEDED", 3900.0, [])
    assert [(call.operation, call.instance_id) for call in result.calls] == [
        ("ModifyDBInstance", DEDICATED),
        ("FailoverDBCluster", DEDICATED),
        ("ModifyDBInstance", WRITER),
        ("ModifyDBInstance", "shop-reader-as-1"),
    ]
    assert set(final_classes(result).values()) == {TARGET_CLASS}
    writer = [(span.role, span.status) for span in result.build_timelines()[WRITER]]
    assert writer[:2] == [("writer", "available"), ("reader", "rebooting")]


def test_nothing_is_left_to_chance_or_to_the_real_clock() -> None:
    faults = (Fault(kind=FaultKind.THROTTLE, at=10.0, times=2), Fault(kind=FaultKind.ABORT, at=100.0))
    run = Scenario(readers=0, faults=faults)
    assert simulate(run) == simulate(run)


def test_every_fault_is_specified() -> None:
    assert ENDS.keys() == NAMED_FAULTS.keys()


SAMPLED_FAULTS = (
    "deleting-instance",
    "fallback-class",
    "insufficient-capacity",
    "failing-notification",
    "aborted",
    "timed-out",
    "duplicate",
)
"""At least one for each status and each kind of notification. A simulated run takes half a second of a core."""


@pytest.mark.parametrize(
    "fault", sampled(sorted(ENDS, key=lambda fault: fault not in SAMPLED_FAULTS), len(SAMPLED_FAULTS))
)
def test_a_fault_ends_as_specified_with_its_notification(fault: str) -> None:
    status, last, subjects, visited = ENDS[fault]
    result = simulate(build_scenario((fault,), readers=1))
    assert find_violations(result) == []
    assert (result.status, result.path[-1].name) == (status, last)
    assert [each.subject.endswith(end) for each, end in zip(result.notifications, subjects, strict=True)] == [
        True for _ in subjects
    ]
    assert {visit.name for visit in result.path} >= set(visited)
    for each in result.notifications:  # every end lists all instances with their classes
        assert each.text.count(": db.") == len(result.find_snapshot(each.at).instances)
    classes = final_classes(result)
    if fault == "deleting-instance":
        assert classes[REPLACEMENT] == TARGET_CLASS
        assert result.build_timelines()[DEDICATED][-1].end < result.seconds
    if fault == "fallback-class":
        assert set(classes.values()) == {FALLBACK_CLASS}
        assert "to db.t4g.large (fallback for db.t4g.medium) completed" in result.notifications[0].text
    if fault in {"cluster-stopped", "insufficient-capacity", "class-never-applied"}:
        assert set(classes.values()) == {OLD_CLASS}
    if fault == "insufficient-capacity":
        assert (
            "Reason: AWS has no capacity for db.t4g.medium, so shop-reader-dedicated keeps its class\n"
            in result.notifications[0].text
        )
    if fault == "failing-notification":
        assert result.notifications[0].at > result.seconds  # by the event of the changed status, at a second attempt


def test_each_of_two_instances_of_a_step_has_all_retries() -> None:
    """The first is promoted while it is modified for 23 minutes; then the second is modified for as long."""
    result = simulate(build_scenario(("roles-swapped",), readers=3, seed=8))
    assert (result.status, find_violations(result)) == ("SUCCEEDED", [])
    names = [visit.name for visit in result.path]
    assert names[names.index("ResetDedicatedReaderRetry") + 1] == "ScaleDedicatedReader"
    assert names[: names.index("RememberOldWriter")].count("IncrementDedicatedReaderRetry") > MAX_RETRIES


def test_a_failover_that_is_always_refused_is_told_with_the_refusal() -> None:
    result = simulate(Scenario(readers=0, faults=(Fault(kind=FaultKind.REFUSE_FAILOVER, times=ALWAYS),)))
    [told] = result.notifications
    assert told.subject.endswith("failed at the failover")
    assert f"Reason: {DEDICATED} is not the writer (last attempt: InvalidDBClusterStateFault: " in told.text


def test_an_old_writer_that_is_deleted_after_the_failover_is_replaced_like_every_other_instance() -> None:
    result = simulate(Scenario(faults=(Fault(kind=FaultKind.REPLACE_WRITER, at=1600.0),)))
    assert (result.status, find_violations(result)) == ("SUCCEEDED", [])
    assert [call.instance_id for call in result.calls] == [
        DEDICATED,
        DEDICATED,
        WRITER,
        REPLACEMENT,
        "shop-reader-as-1",
    ]
    assert "IncrementOverallRetry" not in {visit.name for visit in result.path}


def test_a_writer_that_fails_just_before_a_decision_delays_the_run() -> None:
    """While the cluster fails over, nothing is modified, although the target is available."""
    faults = (Fault(kind=FaultKind.CLASS_NOT_APPLIED), Fault(kind=FaultKind.CRASH_WRITER, at=1245.0))
    result = simulate(Scenario(tiers=(1, 0), faults=faults))
    assert (result.status, find_violations(result)) == ("SUCCEEDED", [])
    assert [call.instance_id for call in result.calls if call.at > 1200][:2] == [WRITER, WRITER]


@pytest.mark.parametrize("first", sampled(range(0, 500, 5)))
def test_random_clusters_and_faults_break_no_rule(first: int) -> None:
    for seed in range(first, first + 5):
        run = draw_scenario(seed)
        assert find_violations(simulate(run)) == [], (seed, run)


def test_functions_that_do_not_look_before_they_act_break_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {
        "decide_modification": (Decision.ACT, ""),
        "decide_failover": (Decision.ACT, ""),
        "check_instance": (CheckOutcome.READY, ""),
        "find_problems": [],
    }
    for name, result in planted.items():
        monkeypatch.setattr(handlers, name, lambda *_, result=result: result)
    found = "\n".join(find_violations(simulate(Scenario(faults=(Fault(kind=FaultKind.IGNORE_FAILOVER),)))))
    assert f"the writer {WRITER} was modified" in found
    assert f"{WRITER} was modified while {DEDICATED} was modifying" in found
    assert f"completed, but {WRITER} is" in found


def test_two_writers_no_writer_a_lock_and_a_missing_notification_are_violations() -> None:
    good = SimulatedRun(
        scenario=Scenario(),
        status="SUCCEEDED",
        seconds=1.0,
        path=(StateVisit(0.0, "ScalingSucceeded"),),
        notifications=(PublishedMessage(1.0, "Aurora shop-cluster: class change completed", ""),),
        snapshots=(Snapshot(0.0, "available", {"a": InstanceState(TARGET_CLASS, "available", True)}),),
        calls=(),
        event_count=1,
        is_locked=False,
    )
    reader, writer = InstanceState(TARGET_CLASS, "available", False), InstanceState(TARGET_CLASS, "available", True)
    old = Snapshot(0.0, "available", {"a": writer, "b": InstanceState(OLD_CLASS, "creating", False)})
    rows: list[tuple[Mapping[str, Any], str]] = [
        (
            {"snapshots": (old,), "calls": (AcceptedCall(0.5, "FailoverDBCluster", "b"),)},
            "b was promoted with the old class",
        ),
        ({"snapshots": (Snapshot(0.0, "available", {"a": writer, "b": writer}),)}, "2 writers"),
        ({"snapshots": (Snapshot(0.0, "failing-over", {"a": writer, "b": writer}),)}, "2 writers"),
        ({"snapshots": (Snapshot(0.0, "available", {"a": reader}),)}, "0 writers"),
        ({"is_locked": True}, "the lock was not released"),
        ({"notifications": ()}, "its notifications are: none"),
        ({"status": "FAILED"}, "the run has FAILED"),
    ]
    assert find_violations(good) == []
    assert find_violations(dataclasses.replace(good, snapshots=(Snapshot(0.0, "failing-over", {"a": reader}),))) == []
    for changes, expected in rows:
        found = find_violations(dataclasses.replace(good, **changes))
        assert len(found) == 1
        assert expected in found[0]


def test_a_run_after_an_aborted_one_skips_what_is_done() -> None:
    result = simulate(Scenario(changed=frozenset({DEDICATED, WRITER})))
    assert [call.instance_id for call in result.calls] == ["shop-reader-as-1"]
    nothing = simulate(Scenario(readers=0, changed=frozenset({DEDICATED, WRITER})))
    assert (nothing.status, nothing.calls, nothing.seconds) == ("SUCCEEDED", (), 0.0)


def test_a_reader_that_appears_too_late_for_the_map_is_changed_in_the_next_round() -> None:
    times = RdsTimes(modification=30, delay_before_modifying=5)
    result = simulate(Scenario(times=times, faults=(Fault(kind=FaultKind.SCALE_OUT, at=20.0),)))
    assert [visit.name for visit in result.path].count("IncrementOverallRetry") == 1
    assert (len(final_classes(result)), set(final_classes(result).values())) == (4, {TARGET_CLASS})
    assert (result.status, find_violations(result)) == ("SUCCEEDED", [])


def test_a_second_run_is_skipped_while_the_first_goes_on_inside_the_map() -> None:
    result = simulate(Scenario(faults=(Fault(kind=FaultKind.DUPLICATE, at=3000), Fault(kind=FaultKind.ABORT, at=3100))))
    assert [each.subject.partition("class change ")[2] for each in result.notifications] == [
        "skipped",
        "was stopped by someone",
    ]
    assert (result.status, result.path[-1].name) == ("ABORTED", "WaitForAutoScalingReaderRetry")
    assert find_violations(result) == []


def test_a_schedule_that_fires_twice_in_a_minute_starts_one_run() -> None:
    faults = (Fault(kind=FaultKind.DUPLICATE, at=30.0), Fault(kind=FaultKind.ABORT, at=100.0))
    result = simulate(Scenario(readers=0, faults=faults))
    assert [each.subject.partition("class change ")[2] for each in result.notifications] == ["was stopped by someone"]


def measure_longest(readers: int, *, retries: bool) -> tuple[int, float, int]:
    """Return the events and seconds of the longest run, and how many tasks it has."""
    longest = LongestRun(readers, retries=retries)
    result = simulate(Scenario(), longest.functions())
    assert result.path[-1].name == "ScalingFailed"
    assert sum(visit.name == "WaitBeforeRetry" for visit in result.path) == MAX_EXTRA_ROUNDS
    waits = sum(visit.name == "WaitForOldWriterRetry" for visit in result.path)
    assert waits == MAX_RETRIES * (MAX_EXTRA_ROUNDS + 1 + MAX_REPLACEMENTS)
    locks = sum(visit.name in {"AcquireLock", "ReleaseLockAfterError"} for visit in result.path)
    return result.event_count, result.seconds, longest.calls + locks


@pytest.mark.proof
def test_the_longest_run_stays_below_the_limits_of_aws_and_of_its_timeout() -> None:
    """Every reader adds the same, and so does every failed attempt of a task."""
    none, one = measure_longest(0, retries=False), measure_longest(1, retries=False)
    events, seconds, tasks = (base + 14 * (more - base) for base, more in zip(none, one, strict=True))
    assert (events, tasks) == (12_751, 1_340)
    assert events + tasks * TASK_RETRIES * EVENTS_OF_FAILED_ATTEMPT < EVENT_LIMIT
    longest = seconds + tasks * (2 + 4 + 8)
    assert longest < TIMEOUT_SECONDS
    assert longest / (MAX_EXTRA_ROUNDS + 1) + RETRY_WAIT < LOCK_SECONDS


@pytest.mark.proof
@pytest.mark.parametrize(("retries", "events"), [(False, 12_751), (True, 24_586)])
def test_the_longest_run_is_as_long_as_computed(retries: bool, events: int) -> None:
    found, seconds, _ = measure_longest(14, retries=retries)
    assert found == events < EVENT_LIMIT
    assert seconds < TIMEOUT_SECONDS


def test_more_readers_than_aurora_allows_are_refused() -> None:
    with pytest.raises(InvalidValue, match="readers is 15: expected 0 to 14"):
        Scenario(readers=15)


def test_a_seed_changes_the_times_and_combined_faults_add_up() -> None:
    assert build_scenario((), 1, seed=1).times != build_scenario((), 1, seed=2).times
    run = build_scenario(("fallback-class", "aborted"), 2)
    assert ([fault.kind for fault in run.faults], run.fallback_classes) == (
        [FaultKind.NO_CAPACITY, FaultKind.ABORT],
        (FALLBACK_CLASS,),
    )
