"""Simulate a run: the state machine and functions that are deployed, on a simulated cluster, with faults.

`simulate` runs a scenario in virtual time. `find_violations` checks the safety rules, which every run must keep,
whatever goes wrong.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast._errors import HoldfastError, InvalidValue
from holdfast.aurora.machine import Function, Resources, build_machine
from holdfast.simulate.aws.lifecycle import AcceptedCall, Outcome, PublishedMessage, RdsTimes, Snapshot, StateVisit
from holdfast.simulate.virtual import seeded_random

if TYPE_CHECKING:
    from holdfast.simulate.aws.emulator import Emulator
    from holdfast.simulate.aws.rds import Rds

PREFIX = "shop"
CLUSTER = f"{PREFIX}-cluster"
WRITER, DEDICATED, REPLACEMENT = f"{PREFIX}-writer", f"{PREFIX}-reader-dedicated", f"{PREFIX}-reader-dedicated-2"
REPLACEMENT_TIER = 1
OLD_CLASS, TARGET_CLASS, FALLBACK_CLASS = "db.r6g.large", "db.t4g.medium", "db.t4g.large"
LOCK_TABLE = "locks"
ROLE = "arn:aws:iam::123456789012:role/simulated"
ALWAYS = 1_000
"""Number of times for a fault that never stops."""


class FaultKind(StrEnum):
    """What can go wrong."""

    REPLACE_DEDICATED_READER = "replace-dedicated-reader"
    REPLACE_WRITER = "replace-writer"
    SCALE_IN = "scale-in"
    SCALE_OUT = "scale-out"
    CRASH_WRITER = "crash-writer"
    STOPPED = "stopped"
    STARTING = "starting"
    REFUSE_FAILOVER = "refuse-failover"
    IGNORE_FAILOVER = "ignore-failover"
    REVERT_FAILOVER = "revert-failover"
    THROTTLE = "throttle"
    THROTTLE_FUNCTIONS = "throttle-functions"
    NO_CAPACITY = "no-capacity"
    CLASS_NOT_APPLIED = "class-not-applied"
    FAIL_NOTIFICATION = "fail-notification"
    ABORT = "abort"
    TIME_OUT = "time-out"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, beginning `at` seconds after the start of the run."""

    kind: FaultKind
    at: float = 0.0
    times: int = 1
    """How many calls it affects. For THROTTLE: how many minutes it lasts. For SCALE_IN: the number of the reader."""


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault of `holdfast aurora simulate --fault`."""

    summary: str
    fault: Fault
    fallback_classes: tuple[str, ...] = ()


def _name_fault(summary: str, kind: FaultKind, at: float = 0.0, times: int = 1, *fallback_classes: str) -> NamedFault:
    return NamedFault(summary, Fault(kind=kind, at=at, times=times), fallback_classes)


NAMED_FAULTS: Mapping[str, NamedFault] = {
    "deleting-instance": _name_fault(
        "the dedicated reader is deleted and replaced", FaultKind.REPLACE_DEDICATED_READER, 300
    ),
    "failover-refused": _name_fault("RDS refuses the failover once", FaultKind.REFUSE_FAILOVER),
    "failover-never": _name_fault("RDS accepts failovers, and nothing happens", FaultKind.IGNORE_FAILOVER, 0, ALWAYS),
    "failover-reverted": _name_fault("Aurora promotes the old writer again, once", FaultKind.REVERT_FAILOVER),
    "scaled-in": _name_fault("Auto Scaling deletes a reader", FaultKind.SCALE_IN, 2700),
    "scaled-out": _name_fault("Auto Scaling adds a reader before the failover", FaultKind.SCALE_OUT, 600),
    "cluster-starting": _name_fault("the cluster is starting", FaultKind.STARTING),
    "cluster-stopped": _name_fault("the cluster is stopped", FaultKind.STOPPED),
    "throttling": _name_fault("RDS refuses all calls for ten minutes", FaultKind.THROTTLE, 1000, 10),
    "insufficient-capacity": _name_fault("AWS lacks the target class", FaultKind.NO_CAPACITY, 0, ALWAYS),
    "fallback-class": _name_fault(
        "AWS lacks the target class, but has another one", FaultKind.NO_CAPACITY, 0, ALWAYS, FALLBACK_CLASS
    ),
    "class-never-applied": _name_fault("changes end without effect", FaultKind.CLASS_NOT_APPLIED, 0, ALWAYS),
    "roles-swapped": _name_fault("the writer fails, and Aurora promotes a reader", FaultKind.CRASH_WRITER, 1500),
    "failing-notification": _name_fault("two notifications cannot be sent", FaultKind.FAIL_NOTIFICATION, 0, 2),
    "aborted": _name_fault("an operator stops the run", FaultKind.ABORT, 2000),
    "timed-out": _name_fault("the run exceeds its time limit", FaultKind.TIME_OUT, 2000),
    "duplicate": _name_fault("a second run starts meanwhile", FaultKind.DUPLICATE, 900),
}
"""The faults of `holdfast aurora simulate`."""
CONTRADICTIONS = (
    ("cluster-starting", "cluster-stopped"),
    ("insufficient-capacity", "fallback-class"),
    ("aborted", "timed-out"),
)
"""Faults that cannot be combined, because one of them would have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster of one writer, one dedicated reader and autoscaling readers, and the faults of a run on it."""

    readers: int = 1
    tiers: tuple[int, int] = (0, 1)
    """Promotion tiers of writer and dedicated reader."""
    changed: frozenset[str] = frozenset()
    """Instances that have the target class already, because an earlier run did not end."""
    faults: tuple[Fault, ...] = ()
    fallback_classes: tuple[str, ...] = ()
    times: RdsTimes = field(default_factory=RdsTimes)

    def __post_init__(self) -> None:
        if not 0 <= self.readers <= 14:
            raise InvalidValue(
                f"readers is {self.readers}: expected 0 to 14, as Aurora allows 15 with the dedicated one"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        return (TARGET_CLASS, *self.fallback_classes)

    def list_instances(self) -> list[tuple[str, int]]:
        """Return the ids and promotion tiers of all instances, the writer first."""
        readers = [(f"{PREFIX}-reader-as-{number + 1}", 15) for number in range(self.readers)]
        return [*zip((WRITER, DEDICATED), self.tiers, strict=True), *readers]


def build_scenario(faults: tuple[str, ...], readers: int, seed: int | None = None) -> Scenario:
    """Return a scenario with named faults. With a seed, changes take random times.

    Raise InvalidValue for faults that contradict each other, or that need a reader if there is none.
    """
    for pair in CONTRADICTIONS:
        if {*pair} <= {*faults}:
            raise InvalidValue(f"faults {pair[0]} and {pair[1]} contradict each other: choose one of them")
    if "scaled-in" in faults and readers == 0:
        raise InvalidValue("fault scaled-in deletes an autoscaling reader, and there are 0 readers: add one")
    chosen = [NAMED_FAULTS[name] for name in faults]
    return Scenario(
        readers=readers,
        faults=tuple(each.fault for each in chosen),
        fallback_classes=tuple(dict.fromkeys(name for each in chosen for name in each.fallback_classes)),
        times=RdsTimes() if seed is None else draw_times(seed),
    )


def draw_times(seed: int) -> RdsTimes:
    """Return random times, within the ranges that docs/how-to/aurora-simulate.md lists."""
    draw = seeded_random("times", seed).uniform
    return RdsTimes(
        modification=draw(180, 1800),
        delay_before_modifying=draw(0, 60),
        failover=draw(10, 120),
        reboot=draw(0, 60),
        creation=draw(200, 900),
        deletion=draw(60, 600),
        start=draw(300, 3600),
    )


def draw_scenario(seed: int) -> Scenario:
    """Return a random cluster with up to six random faults."""
    random = seeded_random("run", seed)
    faults = []
    for _ in range(random.randint(1, 6)):
        kind = random.choice(list(FaultKind))
        at = 0.0 if kind in {FaultKind.STOPPED, FaultKind.STARTING} else random.uniform(0, 8_000)
        # Lambda gives up the event of a changed status after three attempts.
        often = (1, 2) if kind is FaultKind.FAIL_NOTIFICATION else (1, 2, 3, 8, 20, ALWAYS)
        faults.append(Fault(kind=kind, at=at, times=random.choice(often)))
    readers = random.choice((0, 1, 1, 2, 2, 3, 4))
    names = [name for name, _ in Scenario(readers=readers).list_instances()]
    return Scenario(
        readers=readers,
        tiers=random.choice(((0, 1), (1, 0), (1, 1))),
        changed=frozenset(name for name in names if random.random() < 0.15),
        faults=tuple(faults),
        fallback_classes=(FALLBACK_CLASS,) if random.random() < 0.3 else (),
        times=draw_times(seed),
    )


@dataclass(frozen=True, slots=True)
class InstanceSpan:
    """A time during which class, role and status of an instance stay the same."""

    begin: float
    end: float
    instance_class: str
    role: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """The result of a simulation. Times are seconds after the start of the run."""

    scenario: Scenario
    status: str
    """The status of the execution: SUCCEEDED, FAILED, ABORTED or TIMED_OUT."""
    seconds: float
    """The duration of the execution."""
    path: tuple[StateVisit, ...]
    notifications: tuple[PublishedMessage, ...]
    snapshots: tuple[Snapshot, ...]
    calls: tuple[AcceptedCall, ...]
    """The changes that RDS accepted."""
    event_count: int
    """The length of the execution's history."""
    is_locked: bool
    """Whether the lock was not released."""

    def build_timelines(self) -> dict[str, list[InstanceSpan]]:
        """Return the spans of each instance, in their order."""
        spans: dict[str, list[InstanceSpan]] = {}
        snapshots = [each for each in self.snapshots if each.at <= self.seconds]
        ends = [*(each.at for each in snapshots[1:]), self.seconds]
        for snapshot, end in zip(snapshots, ends, strict=True):
            for name, state in snapshot.instances.items():
                role = "writer" if state.is_writer else "reader"
                span = InstanceSpan(snapshot.at, end, state.instance_class, role, state.status)
                found = spans.setdefault(name, [])
                if found and found[-1].begin == found[-1].end:
                    found.pop()  # replaced in the same moment
                if found and (found[-1].end, *_describe(found[-1])) == (span.begin, *_describe(span)):
                    span = dataclasses.replace(span, begin=found.pop().begin)
                found.append(span)
        return spans

    def find_snapshot(self, at: float) -> Snapshot:
        """Return the state of the cluster at a time."""
        return [each for each in self.snapshots if each.at <= at][-1]


def _describe(span: InstanceSpan) -> tuple[str, str, str]:
    return span.instance_class, span.role, span.status


def find_violations(result: SimulatedRun) -> list[str]:
    """Return the safety rules that were broken, in words: an empty list in every run, whatever goes wrong."""
    found = []
    for snapshot in result.snapshots:
        count = len(snapshot.writers)
        if count > 1 or (count == 0 and snapshot.cluster_status != "failing-over"):
            found.append(f"{snapshot.at:.0f} s: {count} writers while the cluster is {snapshot.cluster_status}")
    changed: set[str] = set()
    for call in result.calls:
        before = result.find_snapshot(call.at)
        if call.operation == "ModifyDBInstance":
            found += _check_modification(call, before, {*changed, *_find_dedicated(result.scenario, before)})
            changed.add(call.instance_id)
        elif before.instances[call.instance_id].instance_class not in result.scenario.classes:
            found.append(f"{call.at:.0f} s: {call.instance_id} was promoted with the old class")
    if result.is_locked:
        found.append("the lock was not released")
    completed = [each for each in result.notifications if "class change completed" in each.subject]
    ended = [each for each in result.notifications if "skipped" not in each.subject]
    has_completed = result.status == "SUCCEEDED" or result.path[-1].name == "CompletionNotificationFailed"
    if bool(completed) != has_completed or not ended:
        subjects = ", ".join(each.subject for each in result.notifications)
        found.append(f"the run has {result.status}, but its notifications are: {subjects or 'none'}")
    return found + [
        problem for each in completed for problem in _check_completion(result, min(each.at, result.seconds))
    ]


def _find_dedicated(scenario: Scenario, snapshot: Snapshot) -> list[str]:
    """Return the reader of lowest tier that Auto Scaling did not create, if there is one."""
    own = zip((*scenario.tiers, REPLACEMENT_TIER), (WRITER, DEDICATED, REPLACEMENT), strict=True)
    states = snapshot.instances
    readers = [(tier, name) for tier, name in own if name in states and not states[name].is_writer]
    return [name for _, name in sorted(readers) if states[name].status != "deleting"][:1]


def _check_modification(call: AcceptedCall, before: Snapshot, needed: set[str]) -> list[str]:
    found = []
    for name, state in before.instances.items():
        is_needed = state.is_writer or name in needed
        if name == call.instance_id:
            if state.is_writer:
                found.append(f"{call.at:.0f} s: the writer {name} was modified")
        elif is_needed and state.status != "deleting" and (state.status != "available" or state.is_pending):
            found.append(f"{call.at:.0f} s: {call.instance_id} was modified while {name} was {state.status}")
    return found


def _check_completion(result: SimulatedRun, at: float) -> list[str]:
    return [
        f"{at:.0f} s: completed, but {name} is {state.status} with {state.instance_class}"
        for name, state in result.find_snapshot(at).instances.items()
        if state.status not in {"creating", "deleting"}
        and (state.status != "available" or state.instance_class not in result.scenario.classes)
    ]


Handlers = Mapping[Function, Callable[[Mapping[str, Any]], Mapping[str, Any]]]


def simulate(scenario: Scenario, replaced: Handlers | None = None) -> SimulatedRun:
    """Run the state machine to its end. `replaced` replaces functions, to force a path."""
    from holdfast.simulate.aws.emulator import Emulator
    from holdfast.simulate.aws.rds import Rds

    rds = Rds(scenario.times)
    deployment = _SimulatedDeployment(scenario, rds, replaced or {})
    with Emulator(rds, deployment.invoke) as aws, aws.open_session(5) as reads, aws.open_session(1) as changes:
        deployment.prepare(aws, reads, changes)
        for fault in scenario.faults:
            deployment.add(fault)
        deployment.start()
        first = aws.list_executions()[0]
        ended = aws.describe(first)
        path, events = aws.get_path(first), aws.get_events(first)
        seconds = aws.clock.now
        aws.cancel_planned()  # no other run begins while the end of this one is notified
        deployment.deliver_status(first)
        locks = reads.client("dynamodb").scan(TableName=LOCK_TABLE)["Count"]
    return SimulatedRun(
        scenario=scenario,
        status=ended["status"],
        seconds=seconds,
        path=path,
        notifications=tuple(aws.published),
        snapshots=tuple(rds.snapshots),
        calls=tuple(rds.calls),
        event_count=len(events),
        is_locked=locks > 0,
    )


class _SimulatedDeployment:
    """The resources of a deployment, and the faults of a run."""

    def __init__(self, scenario: Scenario, rds: "Rds", replaced: Handlers) -> None:
        self._scenario = scenario
        self._rds = rds
        self._replaced = replaced
        self._throttled_functions = 0

    def prepare(self, aws: "Emulator", reads: Any, changes: Any) -> None:
        from holdfast.aurora.handlers import Functions  # imports boto3

        self._aws = aws
        self._rds.create_cluster(
            CLUSTER,
            [
                (name, TARGET_CLASS if name in self._scenario.changed else OLD_CLASS, tier)
                for name, tier in self._scenario.list_instances()
            ],
        )
        key = "lockId"
        reads.client("dynamodb").create_table(
            TableName=LOCK_TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )
        resources = Resources(functions={each: each.value for each in Function}, lock_table=LOCK_TABLE)
        machine = reads.client("stepfunctions").create_state_machine(
            name="scaling", definition=json.dumps(build_machine(resources)), roleArn=ROLE
        )
        environment = {
            "TOPIC_ARN": reads.client("sns").create_topic(Name="scaling")["TopicArn"],
            "LOCK_TABLE": LOCK_TABLE,
            "STATE_MACHINE_ARN": machine["stateMachineArn"],
        }
        self._functions = Functions(reads, changes, changes, aws.clock, environment)

    def invoke(self, name: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a function, as Lambda does."""
        from holdfast.simulate.aws.emulator import FunctionThrottled

        function = Function(name)
        if self._throttled_functions:
            self._throttled_functions -= 1
            raise FunctionThrottled
        if function in self._replaced:
            return self._replaced[function](event)
        return self._functions.find(function)(event, None)

    def start(self) -> None:
        """Let the schedule fire. Return when the run has ended."""
        event = {
            "clusterIdentifier": CLUSTER,
            "targetClass": TARGET_CLASS,
            "fallbackClasses": list(self._scenario.fallback_classes),
        }
        self._invoke_asynchronously(Function.SCHEDULE_SCALING, event)

    def deliver_status(self, execution: str) -> None:
        """Deliver the event of an execution that did not succeed, as EventBridge does."""
        described = self._aws.describe(execution)
        if described["status"] != "SUCCEEDED":
            names = ("executionArn", "status", "input", "error", "cause")
            detail = {name: described.get(name) for name in names}
            self._invoke_asynchronously(Function.SEND_NOTIFICATION, {"detail": detail})

    def _invoke_asynchronously(self, function: Function, event: Mapping[str, Any]) -> None:
        """Call a function up to three times, as Lambda does for events."""
        for pause in (60, 120, None):
            try:
                self._functions.find(function)(event, None)
            except HoldfastError:
                if pause is None and function is Function.SCHEDULE_SCALING:
                    raise  # there is no run; a notification that cannot be sent is lost
                self._aws.wait(pause or 0)
            else:
                return

    def add(self, fault: Fault) -> None:
        """Plan a fault."""
        rds, times = self._rds, fault.times
        execution_faults: Mapping[FaultKind, Callable[[], object]] = {
            FaultKind.ABORT: partial(self._stop, FaultKind.ABORT),
            FaultKind.TIME_OUT: partial(self._stop, FaultKind.TIME_OUT),
            FaultKind.DUPLICATE: self.start,
        }
        if fault.kind in execution_faults:
            self._aws.plan(fault.at, execution_faults[fault.kind])
            return
        scaled_in = f"{PREFIX}-reader-as-{1 + (times - 1) % max(1, self._scenario.readers)}"
        actions: Mapping[FaultKind, Callable[[], object]] = {
            FaultKind.REPLACE_DEDICATED_READER: partial(self._replace, DEDICATED),
            FaultKind.REPLACE_WRITER: partial(self._replace, WRITER),
            FaultKind.SCALE_IN: partial(rds.delete, scaled_in),
            FaultKind.SCALE_OUT: rds.scale_out,
            FaultKind.CRASH_WRITER: rds.crash_writer,
            FaultKind.STOPPED: rds.stop_cluster,
            FaultKind.STARTING: rds.start_cluster,
            FaultKind.REFUSE_FAILOVER: partial(rds.refuse, "FailoverDBCluster", "InvalidDBClusterStateFault", times),
            FaultKind.IGNORE_FAILOVER: partial(rds.set_outcomes, "FailoverDBCluster", Outcome.IGNORED, times),
            FaultKind.REVERT_FAILOVER: partial(rds.set_outcomes, "FailoverDBCluster", Outcome.REVERTED, times),
            FaultKind.THROTTLE: partial(rds.throttle, 60.0 * times),
            FaultKind.THROTTLE_FUNCTIONS: partial(self._throttle_functions, times),
            FaultKind.NO_CAPACITY: partial(rds.refuse_class, TARGET_CLASS, times),
            FaultKind.CLASS_NOT_APPLIED: partial(rds.set_outcomes, "ModifyDBInstance", Outcome.IGNORED, times),
            FaultKind.FAIL_NOTIFICATION: partial(self._fail_notifications, times),
        }
        rds.schedule(fault.at, actions[fault.kind])

    def _replace(self, name: str) -> None:
        """Delete an instance, and create another one. Only the first call of a run does it."""
        if REPLACEMENT not in self._rds.backend.databases:
            self._rds.delete(name)
            self._rds.create_instance(REPLACEMENT, OLD_CLASS, REPLACEMENT_TIER)

    def _fail_notifications(self, times: int) -> None:
        # Not the sum of two faults: after three attempts the notification is a dead letter, which an alarm reports.
        self._aws.publications_to_fail = max(times, self._aws.publications_to_fail)

    def _throttle_functions(self, times: int) -> None:
        self._throttled_functions += times

    def _stop(self, kind: FaultKind) -> None:
        from holdfast.simulate.aws.emulator import StopReason

        reason = StopReason.ABORTED if kind is FaultKind.ABORT else StopReason.TIMED_OUT
        for execution in self._aws.list_executions()[:1]:  # none, if the first call of the schedule has failed
            self._aws.stop_execution(execution, reason)
