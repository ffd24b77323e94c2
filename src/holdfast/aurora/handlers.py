"""The seven Lambda functions. Each decides by the rules, calls AWS, and returns a JSON object.

They need nothing but boto3, so that their zip contains only these modules. Reads are retried by botocore. Modify and
failover are sent once: if the reply is lost, the next check finds out what happened.
"""

import json
import logging
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeAlias

from botocore.exceptions import ClientError

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, EngineUnavailable, HoldfastError, InvalidValue, NotFound, OutcomeUnknown
from holdfast.aurora.cluster import AUTOSCALING_PATTERN, Cluster, Instance, describes_same_instances, parse_cluster
from holdfast.aurora.machine import LOCK_SECONDS, NOTIFICATION_ERRORS, Function
from holdfast.aurora.notification import NOTIFIED_ERRORS, build_notification
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
from holdfast.aurora.schedule import (
    DELIVERY,
    build_execution_name,
    build_rule_expression,
    check_class,
    check_cluster_id,
    is_one_off_expression,
    parse_schedule,
)
from holdfast.engines.aws import AwsOptions, AwsSession

Event: TypeAlias = Mapping[str, Any]
Response: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Event, Any], Response]

logger = logging.getLogger("holdfast.aurora")

READS = AwsOptions(max_attempts=3, connect_timeout=2.0, read_timeout=5.0)
"""A service that does not answer is noticed within 24 seconds, before check-instance-status times out after 30, so that
the run can wait for it."""
CHANGES = AwsOptions(max_attempts=1, read_timeout=20.0)
"""Modify and failover are sent once."""
BRIEF_READS = AwsOptions(max_attempts=1, connect_timeout=2.0, read_timeout=3.0)
"""For the list of instances in a notification, which must be sent whether RDS answers or not."""
MAX_CLUSTER_READS = 3
"""Attempts to read cluster and instances without a change between the two reads."""
CAPACITY_ERRORS = frozenset({"InsufficientDBInstanceCapacity", "InsufficientDBInstanceCapacityFault"})
RETRYABLE_ERRORS = frozenset(
    {
        *("InvalidDBInstanceState", "InvalidDBInstanceStateFault", "InvalidDBClusterStateFault"),
        *("DBInstanceNotFound", "DBInstanceNotFoundFault"),
    }
)
"""Errors of RDS after which a later attempt may succeed."""


class InsufficientCapacity(Exception):
    """AWS has no capacity for any of the classes."""


class PendingChanges(Exception):
    """An instance has pending changes, which RDS would apply together with ours."""


class FailoverNotReady(Exception):
    """The target of a failover is not ready to become the writer."""


class Functions:
    """The functions, with the sessions and the clock that they use."""

    def __init__(
        self,
        reads: AwsSession,
        changes: AwsSession,
        brief_reads: AwsSession,
        clock: Clock,
        environment: Mapping[str, str],
    ) -> None:
        self._read_session = reads
        self._change_session = changes
        """The session for calls that must not be sent twice."""
        self._brief_session = brief_reads
        """The session for reads that are given up after a few seconds."""
        self._clock = clock
        self._environment = environment

    def find(self, name: Function) -> Handler:
        """Return a function by its name, with logging."""
        methods: dict[Function, Callable[[Event], Response]] = {
            Function.UPDATE_SCHEDULE: self.update_schedule,
            Function.SCHEDULE_SCALING: self.schedule_scaling,
            Function.MODIFY_INSTANCE: self.modify_instance,
            Function.CHECK_INSTANCE_STATUS: self.check_instance_status,
            Function.GET_CLUSTER_INSTANCES: self.get_cluster_instances,
            Function.FAILOVER_CLUSTER: self.failover_cluster,
            Function.SEND_NOTIFICATION: self.send_notification,
        }
        return _log_calls(name, methods[name])

    def update_schedule(self, event: Event) -> Response:
        """Set the time, cluster and class of the rule that starts runs, and enable it."""
        cluster, target = check_cluster_id(event.get("clusterIdentifier")), check_class(event.get("targetClass"))
        fallbacks = [check_class(each) for each in event.get("fallbackClasses", ())]
        expression = build_rule_expression(parse_schedule(str(event.get("scheduleTime"))), self._clock.wall())
        rule, events = self._environment["RULE_NAME"], self._read_session.client("events")
        constant = {"clusterIdentifier": cluster, "targetClass": target, "fallbackClasses": fallbacks}
        template = json.dumps(constant)[:-1] + ', "scheduledTime": <time>}'
        # Without a queue (outside a deployment), an event that cannot be delivered is lost.
        dead_letters = self._environment.get("DEAD_LETTER_ARN")
        # The target first: a rule that fired with the target of an earlier schedule would scale the wrong cluster.
        put = events.put_targets(
            Rule=rule,
            Targets=[
                {
                    "Id": "schedule-scaling",
                    "Arn": self._environment["SCHEDULE_SCALING_ARN"],
                    "InputTransformer": {"InputPathsMap": {"time": "$.time"}, "InputTemplate": template},
                    "RetryPolicy": DELIVERY,
                    **({"DeadLetterConfig": {"Arn": dead_letters}} if dead_letters else {}),
                }
            ],
        )
        if put["FailedEntryCount"]:
            raise EngineError(f"EventBridge did not accept the target of {rule}, try again: {put['FailedEntries']}")
        events.put_rule(Name=rule, ScheduleExpression=expression, State="ENABLED")
        return {"ruleName": rule, "scheduleExpression": expression}

    def schedule_scaling(self, event: Event) -> Response:
        """Start a run. A second delivery of the same event starts nothing, because its run has the same name."""
        cluster_id, target = check_cluster_id(event.get("clusterIdentifier")), check_class(event.get("targetClass"))
        scheduled = _parse_time(event.get("scheduledTime"), self._clock)
        cluster = self._read_cluster(cluster_id)
        run = {
            "targetClass": target,
            "clusterIdentifier": cluster_id,
            **describe_roles(cluster),
            "fallbackClasses": list(event.get("fallbackClasses", ())),
        }
        name = build_execution_name(cluster_id, scheduled)
        try:
            self._read_session.client("stepfunctions").start_execution(
                stateMachineArn=self._environment["STATE_MACHINE_ARN"], name=name, input=json.dumps(run)
            )
        except ClientError as error:
            if get_error_code(error) != "ExecutionAlreadyExists":
                raise
        self._disable_one_off(scheduled)
        return {"executionName": name}

    def modify_instance(self, event: Event) -> Response:
        """Give an instance another class, unless it has it already or cannot be changed now."""
        cluster = self._read_cluster_or_reason(event)
        if isinstance(cluster, str):
            return {"alreadyDone": False, "reason": cluster}
        classes = _get_classes(event)
        decision, reason = decide_modification(cluster, event["instanceId"], classes)
        if decision is Decision.MUST_STOP:
            raise PendingChanges(reason)
        if decision is Decision.ACT:
            reason = self._modify(event["instanceId"], classes)
        return {"alreadyDone": decision is Decision.ALREADY_DONE, "reason": reason}

    def check_instance_status(self, event: Event) -> Response:
        """Check one instance; or, with `verify`, either writer and dedicated reader or all other readers."""
        result: Response = {
            "outcome": CheckOutcome.RETRY,
            "reason": "",
            "writerInstanceId": "",
            "writerHasClass": False,
            "isVerified": False,
            "problems": [],
            "instances": [],
        }
        cluster = self._read_cluster_or_reason(event)
        if isinstance(cluster, str):
            return {**result, "reason": cluster, "problems": [cluster]}
        classes, writer = _get_classes(event), cluster.writer
        result["writerInstanceId"] = writer.id if writer is not None else ""
        result["writerHasClass"] = writer is not None and writer.has_class(classes)
        if "verify" in event:
            return {**result, **_verify(cluster, event["verify"], classes)}
        outcome, reason = check_instance(cluster, event["instanceId"], classes, Role(event.get("role", Role.ANY)))
        return {**result, "outcome": outcome, "reason": reason}

    def get_cluster_instances(self, event: Event) -> Response:
        """Return the roles of the cluster's instances as they are now, and how the step goes on."""
        step = Step(event.get("step", Step.START))
        now = int(self._clock.wall())
        given = event["input"] if step is Step.START and "input" in event else event
        known = given.get("cluster") or {key: given.get(key, "") for key in describe_roles(None)}
        classes = _get_classes(given)
        result: Response = {
            "cluster": {**known, "classes": classes},
            "state": ClusterState.STARTING,
            "reason": "",
            "nextStep": NextStep.CHECK,
            "isReplaced": False,
            # DynamoDB wants numbers as text.
            "lock": {"now": str(now), "expiresAt": str(now + LOCK_SECONDS)},
        }
        cluster = self._read_cluster_or_reason(given)
        if isinstance(cluster, str):
            return {**result, "reason": cluster}
        state, reason = decide_start(cluster)
        instance_id = choose_instance(cluster, step, given.get("instanceId", ""))
        roles = {**known, **describe_roles(cluster), "classes": classes}
        if step in {Step.DEDICATED_READER, Step.FAILOVER}:
            roles["dedicatedReaderInstanceId"] = instance_id
        if step is Step.OLD_WRITER:
            roles["oldWriterInstanceId"] = instance_id
        return {
            **result,
            "cluster": roles,
            "state": state,
            "reason": reason,
            "nextStep": decide_next_step(cluster, step, instance_id, classes),
            "isReplaced": instance_id not in ("", given.get("instanceId", "")),
        }

    def failover_cluster(self, event: Event) -> Response:
        """Make an instance the writer, unless it is. Raise FailoverNotReady if it cannot be now."""
        cluster = self._read_cluster(event["clusterIdentifier"])
        decision, reason = decide_failover(cluster, event["instanceId"], _get_classes(event))
        if decision is Decision.BLOCKED:
            raise FailoverNotReady(reason)
        if decision is Decision.ACT:
            self._change_session.client("rds").failover_db_cluster(
                DBClusterIdentifier=cluster.id, TargetDBInstanceIdentifier=event["instanceId"]
            )
        return {"alreadyDone": decision is Decision.ALREADY_DONE, "reason": reason}

    def send_notification(self, event: Event) -> Response:
        """Publish a notification of the state machine, or about an execution that ended without sending one."""
        kind, run, execution = event.get("kind", ""), event.get("run", {}), event.get("execution", "")
        detail = event.get("detail")
        if isinstance(detail, Mapping):  # the event of a changed status
            if detail.get("error") in NOTIFIED_ERRORS:
                return {"messageId": ""}
            ended_well = {error: kind for kind, error in NOTIFICATION_ERRORS.items()}
            kind, execution = ended_well.get(detail.get("error", ""), detail["status"]), detail["executionArn"]
            given = json.loads(detail.get("input") or "{}")
            run = {**(given if isinstance(given, Mapping) else {}), "cause": detail.get("cause")}
            self._release_lock(run.get("clusterIdentifier"), execution)
        notification = build_notification(kind, run, execution, self._list_instances(run.get("clusterIdentifier")))
        sent = self._read_session.client("sns").publish(
            TopicArn=self._environment["TOPIC_ARN"], Subject=notification.subject, Message=notification.text
        )
        return {"messageId": sent["MessageId"]}

    def _list_instances(self, cluster_id: object) -> list[dict[str, str]]:
        """Return the instances of a cluster for a notification; none if they cannot be read now."""
        try:
            described = describe_cluster(self._brief_session, check_cluster_id(cluster_id), max_reads=1)
        except (HoldfastError, ClientError) as error:
            logger.warning("%s", json.dumps({"message": f"the instances cannot be listed: {error}"}))
            return []
        return [_describe_instance(each) for each in parse_cluster(*described).instances]

    def _read_cluster(self, cluster_id: str) -> Cluster:
        pattern = self._environment.get("AUTOSCALING_PATTERN", AUTOSCALING_PATTERN)
        return parse_cluster(*describe_cluster(self._read_session, cluster_id), pattern)

    def _read_cluster_or_reason(self, event: Event) -> Cluster | str:
        """Return the cluster, or the reason why it cannot be read now."""
        try:
            return self._read_cluster(event["clusterIdentifier"])
        except EngineUnavailable as error:
            return str(error)

    def _modify(self, instance_id: str, classes: Sequence[str]) -> str:
        """Ask RDS for the first class that it has capacity for. Return what happened, in words."""
        for instance_class in classes:
            try:
                self._change_session.client("rds").modify_db_instance(
                    DBInstanceIdentifier=instance_id, DBInstanceClass=instance_class, ApplyImmediately=True
                )
            except ClientError as error:
                if get_error_code(error) in CAPACITY_ERRORS:
                    continue
                if get_error_code(error) in RETRYABLE_ERRORS:
                    return str(error)
                raise
            except (EngineUnavailable, OutcomeUnknown) as error:
                return str(error)
            return f"{instance_id} is being changed to {instance_class}"
        raise InsufficientCapacity(f"AWS has no capacity for {' or '.join(classes)}, so {instance_id} keeps its class")

    def _disable_one_off(self, scheduled: datetime) -> None:
        """Disable the rule if it has fired for the only time, and was not given another schedule meanwhile."""
        rule = self._environment.get("RULE_NAME")
        if not rule:
            return
        events = self._read_session.client("events")
        expression = events.describe_rule(Name=rule).get("ScheduleExpression", "")
        at = scheduled.astimezone(UTC)
        fired = f"cron({at.minute} {at.hour} {at.day} {at.month} ? {at.year})"
        if is_one_off_expression(expression) and expression == fired:
            events.disable_rule(Name=rule)

    def _release_lock(self, cluster_id: object, execution: str) -> None:
        """Delete the lock of an execution that cannot do it itself. A run without a cluster has none."""
        if not isinstance(cluster_id, str) or not cluster_id:
            return
        try:
            self._read_session.client("dynamodb").delete_item(
                TableName=self._environment["LOCK_TABLE"],
                Key={"lockId": {"S": cluster_id}},
                ConditionExpression="executionArn = :own",
                ExpressionAttributeValues={":own": {"S": execution}},
            )
        except ClientError as error:
            if get_error_code(error) != "ConditionalCheckFailedException":
                raise


def describe_cluster(
    session: AwsSession, cluster_id: str, max_reads: int = MAX_CLUSTER_READS
) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    """Return how RDS describes a cluster and its instances. Raise NotFound if there is no such cluster."""
    rds = session.client("rds")
    described: Mapping[str, Any] = {}
    instances: Sequence[Mapping[str, Any]] = ()
    for _ in range(max_reads):
        try:
            described = rds.describe_db_clusters(DBClusterIdentifier=cluster_id)["DBClusters"][0]
        except ClientError as error:
            if get_error_code(error) in {"DBClusterNotFound", "DBClusterNotFoundFault"}:
                raise NotFound(
                    f"there is no cluster {cluster_id} in this region: `holdfast aurora clusters` lists them"
                ) from error
            raise
        filters = [{"Name": "db-cluster-id", "Values": [cluster_id]}]
        instances = list(session.paginate("rds", "describe_db_instances", Filters=filters))
        if describes_same_instances(described, instances):
            break
    return described, instances


def _verify(cluster: Cluster, part: str, classes: Sequence[str]) -> Response:
    leading = [each for each in (cluster.writer, cluster.dedicated_reader) if each is not None]
    instances: Sequence[Instance] = leading if part == "writerAndDedicatedReader" else cluster.other_readers
    problems = find_problems(instances, classes)
    if part == "writerAndDedicatedReader" and len(leading) < 2:
        problems.append(f"cluster {cluster.id} has no writer or no dedicated reader")
    listed = [_describe_instance(each) for each in instances]
    return {"isVerified": not problems, "problems": problems, "instances": listed}


def _describe_instance(instance: Instance) -> dict[str, str]:
    role = "writer" if instance.is_writer else "reader"
    return {"id": instance.id, "class": instance.instance_class, "status": instance.status, "role": role}


def describe_roles(cluster: Cluster | None) -> Response:
    """Return the ids of the instances by their roles, as the input of a run has them."""
    writer = cluster.writer if cluster else None
    dedicated = cluster.dedicated_reader if cluster else None
    return {
        "writerInstanceId": writer.id if writer else "",
        "dedicatedReaderInstanceId": dedicated.id if dedicated else "",
        "autoScalingReaderInstanceIds": [each.id for each in cluster.other_readers] if cluster else [],
    }


def _get_classes(event: Event) -> list[str]:
    given = event.get("classes") or _find_known_classes(event)
    return [check_class(each) for each in given or (event.get("targetClass"), *event.get("fallbackClasses", ()))]


def _find_known_classes(event: Event) -> Sequence[str]:
    known = event.get("cluster")
    return known.get("classes", ()) if isinstance(known, Mapping) else ()


def get_error_code(error: ClientError) -> str:
    """Return the code of a refusal by AWS."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _parse_time(text: object, clock: Clock) -> datetime:
    """Return the time at which a schedule fired; now if the event does not say it."""
    if text is None:
        return datetime.fromtimestamp(clock.wall(), UTC)
    if not isinstance(text, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z?", text):
        raise InvalidValue(f"scheduledTime is {text!r}: expected a time such as 2025-11-18T14:14:00Z")
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)


def _log_calls(name: Function, method: Callable[[Event], Response]) -> Handler:
    """Return the Lambda handler of a function, which logs each call as JSON."""

    @wraps(method)
    def call(event: Event, context: Any) -> Response:
        def log(level: int, message: str, **fields: Any) -> None:
            remaining = getattr(context, "get_remaining_time_in_millis", None)
            left = remaining() if remaining is not None else None
            record = {"level": logging.getLevelName(level), "function": name, "message": message, **fields}
            logger.log(level, "%s", json.dumps({**record, "remainingMilliseconds": left}, default=str))

        log(logging.INFO, "begins", event=event)
        try:
            result = method(event)
        except Exception as error:
            code = get_error_code(error) if isinstance(error, ClientError) else type(error).__name__
            log(logging.ERROR, str(error), errorCode=code, traceback=traceback.format_exc())
            raise
        log(logging.INFO, "ended", result=result)
        return result

    return call


def create_functions() -> Functions:
    """Return the functions as they run in Lambda."""
    return Functions(AwsSession(READS), AwsSession(CHANGES), AwsSession(BRIEF_READS), SystemClock(), os.environ)
