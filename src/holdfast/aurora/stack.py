"""Use one deployed stack: read clusters and runs, set schedules, start and stop runs.

The names of the state machine, rule and table come from the outputs of the CloudFormation stack.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from botocore.exceptions import ClientError

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineError, InvalidValue, NotFound
from holdfast.aurora.cluster import AUTOSCALING_PATTERN, Cluster, parse_cluster
from holdfast.aurora.facts import ClusterFactReader
from holdfast.aurora.handlers import describe_cluster, describe_roles, get_error_code
from holdfast.aurora.preflight import ClusterFacts, PlannedRun
from holdfast.aurora.progress import Progress, read_progress
from holdfast.aurora.schedule import (
    DEFAULT_TIMEZONE,
    DELIVERY,
    JST,
    build_execution_name,
    build_rule_expression,
    build_scheduler_expression,
    check_class,
    check_cluster_id,
    format_schedule,
    parse_schedule,
    read_expression,
)
from holdfast.engines.aws import AwsSession

__all__ = ["Run", "ScalingStack", "ScheduledRun", "open_stack"]

HISTORY_EVENTS = 1000
"""Events of an execution that are read, the latest first. One reader takes about 60."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRun:
    """One schedule of runs."""

    cluster: str
    target_class: str
    fallback_classes: tuple[str, ...]
    time: str
    """`HH:MM` every day, or `YYYY-MM-DD HH:MM` once."""
    timezone: str
    eventbridge_name: str
    """The name of the rule, or of the schedule in EventBridge Scheduler."""
    is_rule: bool
    is_enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of the state machine."""

    cluster: str
    name: str
    arn: str
    target_class: str
    status: str
    """The status in Step Functions; `SKIPPED` if another run was in progress."""
    started_at: float
    ended_at: float | None
    progress: Progress | None
    """The state that it is in, or in which it ended."""

    @property
    def is_running(self) -> bool:
        return self.status == "RUNNING"


class ScalingStack:
    """The deployed parts of one stack. Thread-safe, as the session is."""

    def __init__(self, session: AwsSession, clock: Clock, stack: str) -> None:
        self._session = session
        self._clock = clock
        self._stack = stack

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """The outputs of the stack. Raise NotFound if it is not deployed."""
        try:
            found = self._session.client("cloudformation").describe_stacks(StackName=self._stack)["Stacks"]
        except ClientError as error:
            if "does not exist" not in str(error):
                raise
            text = f"there is no stack {self._stack} in this region: deploy it, or name another --prefix"
            raise NotFound(text) from error
        outputs = {each["OutputKey"]: each["OutputValue"] for each in found[0].get("Outputs", ())}
        if "StateMachineArn" not in outputs:
            raise NotFound(f"stack {self._stack} is {found[0].get('StackStatus')}, and has no outputs: deploy it again")
        return outputs

    def list_clusters(self) -> list[Cluster]:
        """Return the Aurora clusters of the region."""
        members: dict[str, list[Mapping[str, Any]]] = {}
        for each in self._session.paginate("rds", "describe_db_instances"):
            members.setdefault(each.get("DBClusterIdentifier", ""), []).append(each)
        return [
            parse_cluster(each, members.get(each["DBClusterIdentifier"], ()), self._pattern)
            for each in self._session.paginate("rds", "describe_db_clusters")
            if each.get("Engine", "").startswith("aurora")
        ]

    def read_cluster(self, cluster_id: str) -> Cluster:
        """Return a cluster. Raise NotFound if there is none."""
        return parse_cluster(*describe_cluster(self._session, check_cluster_id(cluster_id)), self._pattern)

    @property
    def _pattern(self) -> str:
        try:
            return self._outputs.get("AutoscalingPattern", AUTOSCALING_PATTERN)
        except NotFound:  # clusters can be read before anything is deployed
            return AUTOSCALING_PATTERN

    def read_facts(self, run: PlannedRun) -> ClusterFacts:
        """Read what the checks before a run need. Only cluster and instances have to be readable."""

        def find_other_run() -> str:
            with suppress(NotFound):  # before anything is deployed, there are no runs
                return self.find_lock_holder(run.cluster_id)
            return ""

        reader = ClusterFactReader(self._session, self._pattern)
        return reader.read(run, find_other_run, self._clock.wall())

    def find_lock_holder(self, cluster_id: str) -> str:
        """Return the ARN of the execution that has locked a cluster; empty if there is none."""
        found = self._session.client("dynamodb").get_item(
            TableName=self._outputs["LockTable"], Key={"lockId": {"S": cluster_id}}, ConsistentRead=True
        )
        item = found.get("Item")
        if item is None or float(item["expiresAt"]["N"]) < self._clock.wall():
            return ""
        return str(item["executionArn"]["S"])

    def list_schedules(self) -> list[ScheduledRun]:
        """Return all schedules of the stack: that of the rule if it has been set, and those in Scheduler."""
        rule = self._read_rule()
        return [*([rule] if rule else []), *self._read_schedules()]

    def _read_rule(self) -> ScheduledRun | None:
        events, name = self._session.client("events"), self._outputs["RuleName"]
        rule = events.describe_rule(Name=name)
        templates = [
            each["InputTransformer"]["InputTemplate"]
            for each in events.list_targets_by_rule(Rule=name)["Targets"]
            if "InputTransformer" in each
        ]
        if not templates:
            return None
        run = json.loads(templates[0].replace("<time>", "null"))
        schedule = read_expression(rule.get("ScheduleExpression", ""), UTC, JST)
        time = format_schedule(schedule) if schedule else rule.get("ScheduleExpression", "")
        return _build_schedule(run, time, DEFAULT_TIMEZONE, name, is_rule=True, is_enabled=rule["State"] == "ENABLED")

    def _read_schedules(self) -> Iterator[ScheduledRun]:
        group = self._outputs.get("ScheduleGroup")
        if not group:
            return
        scheduler = self._session.client("scheduler")
        for each in self._session.paginate("scheduler", "list_schedules", GroupName=group):
            found = scheduler.get_schedule(GroupName=group, Name=each["Name"])
            timezone = found.get("ScheduleExpressionTimezone", "UTC")
            schedule = read_expression(found["ScheduleExpression"], UTC, UTC)
            time = format_schedule(schedule) if schedule else found["ScheduleExpression"]
            run, is_enabled = json.loads(found["Target"]["Input"]), found.get("State") == "ENABLED"
            yield _build_schedule(run, time, timezone, each["Name"], is_rule=False, is_enabled=is_enabled)

    def schedule(
        self, cluster_id: str, classes: Sequence[str], at: str, timezone: str | None = None, *, force: bool = False
    ) -> ScheduledRun:
        """Start runs on a schedule: daily at `HH:MM`, or once at `YYYY-MM-DD HH:MM`.

        Raise Conflict, unless `force` is set, if the rule has a schedule of another cluster, which this one would
        replace. With EventBridge Scheduler, a schedule replaces only that of the same cluster at the same time.
        """
        target, *fallbacks = [check_class(each) for each in classes]
        run = {"clusterIdentifier": check_cluster_id(cluster_id), "targetClass": target, "fallbackClasses": fallbacks}
        if self._outputs.get("ScheduleGroup"):
            return self._put_schedule(run, at, timezone or DEFAULT_TIMEZONE)
        if timezone is not None:
            raise InvalidValue("--timezone needs EventBridge Scheduler: deploy the stack with --scheduler scheduler")
        build_rule_expression(parse_schedule(at), self._clock.wall())
        present = self._read_rule()
        if present is not None and present.is_enabled and present.cluster != cluster_id and not force:
            raise Conflict(
                f"the rule {present.eventbridge_name} can have only one schedule, and has one for {present.cluster} at "
                f"{present.time} ({present.timezone}): replace it with --force, or deploy with --scheduler scheduler"
            )
        event = json.dumps({**run, "scheduleTime": at}).encode()
        reply = self._session.client("lambda").invoke(FunctionName=self._outputs["UpdateScheduleArn"], Payload=event)
        if "FunctionError" in reply:
            raise EngineError(f"the function update-schedule failed: {reply['Payload'].read().decode()}")
        return _build_schedule(run, at, DEFAULT_TIMEZONE, self._outputs["RuleName"], is_rule=True, is_enabled=True)

    def _put_schedule(self, run: Mapping[str, Any], at: str, timezone: str) -> ScheduledRun:
        zone, schedule = find_zone(timezone), parse_schedule(at)
        expression = build_scheduler_expression(schedule, self._clock.wall(), zone)
        cluster = run["clusterIdentifier"]
        digest = hashlib.sha256(f"{cluster} {at} {timezone}".encode()).hexdigest()[:8]
        name = f"{cluster[:55]}_{digest}"
        arguments = {
            "Name": name,
            "GroupName": self._outputs.get("ScheduleGroup"),
            "ScheduleExpression": expression,
            "ScheduleExpressionTimezone": timezone,
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "State": "ENABLED",
            "ActionAfterCompletion": "DELETE" if schedule.is_once else "NONE",
            "Target": {
                "Arn": self._outputs["ScheduleScalingArn"],
                "RoleArn": self._outputs["SchedulerRoleArn"],
                "Input": json.dumps({**run, "scheduledTime": "<aws.scheduler.scheduled-time>"}),
                "RetryPolicy": DELIVERY,
                "DeadLetterConfig": {"Arn": self._outputs["DeadLettersArn"]},
            },
        }
        scheduler = self._session.client("scheduler")
        try:
            scheduler.create_schedule(**arguments)
        except ClientError as error:
            if get_error_code(error) != "ConflictException":
                raise
            scheduler.update_schedule(**arguments)
        return _build_schedule(run, at, timezone, name, is_rule=False, is_enabled=True)

    def unschedule(self, cluster_id: str, at: str | None = None, timezone: str | None = None) -> list[ScheduledRun]:
        """End the schedules of a cluster, or only those at a time or in a time zone. Return them. Runs go on.

        Raise Conflict if there are schedules at that time in several time zones, and `timezone` does not choose one.
        """
        time = None if at is None else format_schedule(parse_schedule(at))
        ended = [
            each
            for each in self.list_schedules()
            if each.cluster == cluster_id
            and each.is_enabled
            and time in (None, each.time)
            and timezone in (None, each.timezone)
        ]
        zones = sorted({each.timezone for each in ended})
        if at is not None and len(zones) > 1:
            raise Conflict(f"{cluster_id} has schedules at {at} in {' and '.join(zones)}: choose one with --timezone")
        for each in ended:
            if each.is_rule:
                self._session.client("events").disable_rule(Name=each.eventbridge_name)
            else:
                self._session.client("scheduler").delete_schedule(
                    GroupName=self._outputs.get("ScheduleGroup"), Name=each.eventbridge_name
                )
        if not ended:
            self.read_cluster(cluster_id)  # says so if the id is wrong
            where = ("" if at is None else f" at {at}") + ("" if timezone is None else f" in {timezone}")
            raise NotFound(f"{cluster_id} has no schedule{where}")
        return ended

    def start(self, cluster_id: str, classes: Sequence[str]) -> Run:
        """Start a run. Raise Conflict if one of this cluster was started in the same minute.

        Step Functions may not know the run for a moment, so reading it immediately may fail.
        """
        target, *fallbacks = classes
        cluster = self.read_cluster(cluster_id)
        run = {
            "targetClass": check_class(target),
            "clusterIdentifier": cluster.id,
            **describe_roles(cluster),
            "fallbackClasses": [check_class(each) for each in fallbacks],
            # With equal input, Step Functions would accept a second start of the same name, and start nothing.
            "requestId": uuid4().hex,
        }
        now = self._clock.wall()
        name = build_execution_name(cluster.id, datetime.fromtimestamp(now, UTC))
        try:
            started = self._session.client("stepfunctions").start_execution(
                stateMachineArn=self._outputs["StateMachineArn"], name=name, input=json.dumps(run)
            )
        except ClientError as error:
            if get_error_code(error) != "ExecutionAlreadyExists":
                raise
            text = f"a run of {cluster.id} was already started in this minute ({name})"
            raise Conflict(f"{text}: see `holdfast aurora status {cluster.id}`") from error
        return Run(
            cluster=cluster.id,
            name=name,
            arn=started["executionArn"],
            target_class=target,
            status="RUNNING",
            started_at=now,
            ended_at=None,
            progress=None,
        )

    def find_runs(self, cluster_id: str | None = None, *, running: bool = False, limit: int = 20) -> list[Run]:
        """Return the latest runs of one cluster or of all, newest first."""
        arguments = {
            "stateMachineArn": self._outputs["StateMachineArn"],
            **({"statusFilter": "RUNNING"} if running else {}),
        }
        found: list[Run] = []
        for each in self._session.paginate("stepfunctions", "list_executions", **arguments):
            if len(found) == limit:
                break
            if cluster_id in (None, each["name"].rpartition("_")[0]):
                found.append(self.read_run(each["executionArn"]))
        return found

    def read_run(self, arn: str) -> Run:
        """Return a run with the state that it is in, or in which it ended."""
        client = self._session.client("stepfunctions")
        execution = client.describe_execution(executionArn=arn)
        history = client.get_execution_history(executionArn=arn, reverseOrder=True, maxResults=HISTORY_EVENTS)
        run, ended = json.loads(execution.get("input") or "{}"), execution.get("stopDate")
        progress, status = read_progress(history["events"]), execution["status"]
        is_skipped = progress is not None and progress.state in {"SendSkippedNotification", "ScalingSkipped"}
        return Run(
            cluster=run.get("clusterIdentifier", execution["name"].rpartition("_")[0]),
            name=execution["name"],
            arn=arn,
            target_class=run.get("targetClass", ""),
            status="SKIPPED" if is_skipped and status == "SUCCEEDED" else status,
            started_at=execution["startDate"].timestamp(),
            ended_at=None if ended is None or status == "RUNNING" else ended.timestamp(),
            progress=progress,
        )

    def stop(self, cluster_id: str) -> list[str]:
        """Stop the runs of a cluster in progress, and release its lock. Return the stopped executions.

        A change that RDS has begun goes on. Raise NotFound if there is no run and no lock, or no such cluster.
        """
        stopped = [each.arn for each in self.find_runs(cluster_id, running=True)]
        for arn in stopped:
            self._stop_execution(arn)
        holder = self.find_lock_holder(cluster_id)
        if not stopped and not holder:
            self.read_cluster(cluster_id)  # says so if the id is wrong
            raise NotFound(f"no run of {cluster_id} is in progress")
        # A run that has just begun, or was started under another name, is not in the list, but has the lock.
        if holder and holder not in stopped and self.read_run(holder).is_running:
            self._stop_execution(holder)
            stopped.append(holder)
        if holder:
            dynamodb = self._session.client("dynamodb")
            with suppress(dynamodb.exceptions.ConditionalCheckFailedException):  # another run has begun meanwhile
                dynamodb.delete_item(
                    TableName=self._outputs["LockTable"],
                    Key={"lockId": {"S": cluster_id}},
                    ConditionExpression="executionArn = :holder",
                    ExpressionAttributeValues={":holder": {"S": holder}},
                )
        return stopped

    def _stop_execution(self, arn: str) -> None:
        client = self._session.client("stepfunctions")
        client.stop_execution(executionArn=arn, error="Stopped", cause="Stopped by an operator")


@contextmanager
def open_stack(session: AwsSession, clock: Clock, stack: str) -> Iterator[ScalingStack]:
    """Open a stack for a block. Within it, refusals of AWS that have no other meaning raise EngineError."""
    try:
        yield ScalingStack(session, clock, stack)
    except ClientError as error:
        raise EngineError(f"stack {stack}: {error}") from error


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name. Raise InvalidValue if there is none."""
    if re.fullmatch(r"[A-Za-z0-9_+/-]+", name):
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    raise InvalidValue(f"timezone is {name!r}: expected a name such as Asia/Tokyo")


def _build_schedule(
    run: Mapping[str, Any], time: str, timezone: str, name: str, *, is_rule: bool, is_enabled: bool
) -> ScheduledRun:
    return ScheduledRun(
        cluster=run.get("clusterIdentifier", ""),
        target_class=run.get("targetClass", ""),
        fallback_classes=tuple(run.get("fallbackClasses", ())),
        time=time,
        timezone=timezone,
        eventbridge_name=name,
        is_rule=is_rule,
        is_enabled=is_enabled,
    )
