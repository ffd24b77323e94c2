"""The functions call AWS as the rules decide, and report what AWS answered. AWS is simulated in this process."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from holdfast import EngineError, InvalidValue, NotFound
from holdfast.aurora.handlers import (
    BRIEF_READS,
    CHANGES,
    READS,
    FailoverNotReady,
    Functions,
    InsufficientCapacity,
    PendingChanges,
)
from holdfast.aurora.machine import TIMEOUTS, Function
from holdfast.engines.aws import AwsSession
from holdfast.simulate.aws.emulator import ACCOUNT, Emulator
from holdfast.simulate.aws.lifecycle import RdsTimes
from holdfast.simulate.aws.rds import REGION, Rds
from tests.table import every_row

OLD, NEW, OTHER = "db.r6g.large", "db.t4g.medium", "db.t4g.large"
CLUSTER, RULE, EXECUTION = "shop-cluster", "shop-schedule-scaling", "arn:execution"
RUN = {"clusterIdentifier": CLUSTER, "targetClass": NEW}
DONE = {"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}
PLACEHOLDER_SCHEDULE = "cron(0 0 1 1 ? 2199)"


class Account:
    """A cluster, a rule, a lock table, a topic and a state machine that ends at once."""

    def __init__(self, aws: Emulator, rds: Rds, session: AwsSession) -> None:
        self.aws, self.rds, self.session = aws, rds, session
        self.events = session.client("events")
        rds.create_cluster(CLUSTER, [("w", OLD, 0), ("d", OLD, 1), ("a", OLD, 15)])
        self.events.put_rule(Name=RULE, ScheduleExpression=PLACEHOLDER_SCHEDULE, State="DISABLED")
        key = "lockId"
        session.client("dynamodb").create_table(
            TableName="locks",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )
        machine = session.client("stepfunctions").create_state_machine(
            name="scaling", definition=json.dumps(DONE), roleArn=f"arn:aws:iam::{ACCOUNT}:role/x"
        )
        self.environment = {
            "RULE_NAME": RULE,
            "SCHEDULE_SCALING_ARN": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:schedule-scaling",
            "STATE_MACHINE_ARN": machine["stateMachineArn"],
            "LOCK_TABLE": "locks",
            "TOPIC_ARN": session.client("sns").create_topic(Name="scaling")["TopicArn"],
        }
        self.functions = Functions(session, session, session, aws.clock, self.environment)

    def modify(self, name: str, *classes: str) -> dict[str, Any]:
        event = {"clusterIdentifier": CLUSTER, "instanceId": name, "classes": classes or (NEW,)}
        return self.functions.modify_instance(event)

    def tell(self, **detail: Any) -> None:
        """Deliver the event of an execution that has ended."""
        self.functions.send_notification({"detail": {"status": "ABORTED", "executionArn": EXECUTION, **detail}})

    def describe_rule(self) -> tuple[str, str]:
        rule = self.events.describe_rule(Name=RULE)
        return rule["ScheduleExpression"], rule["State"]

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.instance_id, call.instance_class) for call in self.rds.calls]


@pytest.fixture
def account() -> Iterator[Account]:
    rds = Rds(RdsTimes())
    with Emulator(rds, lambda *_: {}) as aws, aws.open_session(1) as session:
        yield Account(aws, rds, session)


def test_a_schedule_sets_the_target_and_enables_the_rule(account: Account) -> None:
    result = account.functions.update_schedule({**RUN, "scheduleTime": "19:15", "fallbackClasses": [OTHER]})
    assert result == {"ruleName": RULE, "scheduleExpression": "cron(15 10 * * ? *)"}
    assert account.describe_rule() == ("cron(15 10 * * ? *)", "ENABLED")
    [target] = account.events.list_targets_by_rule(Rule=RULE)["Targets"]
    assert target["Arn"] == account.environment["SCHEDULE_SCALING_ARN"]
    sent = target["InputTransformer"]["InputTemplate"].replace("<time>", '"2025-11-18T10:15:00Z"')
    assert json.loads(sent) == {**RUN, "fallbackClasses": [OTHER], "scheduledTime": "2025-11-18T10:15:00Z"}


def test_a_target_that_is_not_accepted_leaves_the_rule_as_it_was(account: Account) -> None:
    """EventBridge answers with success, and lists the targets that it did not accept."""

    def refuse(parsed: dict[str, Any], **_event: Any) -> None:
        parsed.update(FailedEntryCount=1, FailedEntries=[{"ErrorCode": "ConcurrentModificationException"}])

    account.events.meta.events.register("after-call.eventbridge.PutTargets", refuse)
    with pytest.raises(EngineError, match=r"did not accept the target.*ConcurrentModification"):
        account.functions.update_schedule({**RUN, "scheduleTime": "19:15"})
    assert account.describe_rule() == (PLACEHOLDER_SCHEDULE, "DISABLED")


def test_only_a_one_off_is_disabled_and_only_if_it_is_the_one_that_fired(account: Account) -> None:
    fired = "2025-11-18T14:14:00Z"
    rows = [
        ("cron(14 14 18 11 ? 2025)", "DISABLED"),
        ("cron(14 14 * * ? *)", "ENABLED"),  # every day
        ("cron(0 3 19 11 ? 2025)", "ENABLED"),  # set while the other one fired
    ]

    def check(row: tuple[str, str]) -> None:
        account.events.put_rule(Name=RULE, ScheduleExpression=row[0], State="ENABLED")
        result = account.functions.schedule_scaling({**RUN, "scheduledTime": fired})
        assert result["executionName"] == "shop-cluster_20251118T1414Z"
        assert account.describe_rule() == row

    every_row(rows, check)
    started = account.session.client("stepfunctions").list_executions(
        stateMachineArn=account.environment["STATE_MACHINE_ARN"]
    )
    assert [each["name"] for each in started["executions"]] == ["shop-cluster_20251118T1414Z"]


def test_a_schedule_of_no_cluster_or_at_no_time_starts_nothing(account: Account) -> None:
    with pytest.raises(NotFound, match="no cluster other-cluster"):
        account.functions.schedule_scaling({**RUN, "clusterIdentifier": "other-cluster"})
    with pytest.raises(InvalidValue, match="scheduledTime is 'soon'"):
        account.functions.schedule_scaling({**RUN, "scheduledTime": "soon"})


def test_pending_changes_of_an_instance_end_the_run_before_they_are_applied(account: Account) -> None:
    vars(account.rds.backend.databases["d"])["pending_modified_values"] = {"Port": 5433}
    with pytest.raises(PendingChanges, match=r"d has pending changes \(Port\)"):
        account.modify("d")
    assert account.calls == []


def test_an_answer_of_rds_is_a_reason_to_try_again_another_class_or_the_end(account: Account) -> None:
    account.rds.refuse("ModifyDBInstance", "InvalidDBInstanceState", 1)
    assert "InvalidDBInstanceState" in account.modify("d")["reason"]
    account.rds.refuse("ModifyDBInstance", "StorageTypeNotSupported", 1)
    with pytest.raises(ClientError, match="StorageTypeNotSupported"):
        account.modify("d")
    account.rds.refuse_class(NEW, 2)
    with pytest.raises(InsufficientCapacity, match=r"no capacity for db\.t4g\.medium, so d keeps its class"):
        account.modify("d")
    assert account.modify("d", NEW, OTHER) == {"alreadyDone": False, "reason": "d is being changed to db.t4g.large"}
    assert account.calls == [("d", OTHER)]


def test_a_change_whose_reply_is_lost_is_not_sent_again(account: Account) -> None:
    def lose(**_event: Any) -> None:
        account.rds.modify(account.rds.backend.databases["d"], NEW, is_immediate=True)
        raise ReadTimeoutError(endpoint_url="https://rds")

    account.session.client("rds").meta.events.register("before-send.rds.ModifyDBInstance", lose)
    assert "may or may not have been done" in account.modify("d")["reason"]
    assert account.modify("d")["reason"] == "d is already being changed"
    assert account.calls == [("d", NEW)]


def test_a_cluster_that_changes_between_two_reads_is_read_again(account: Account) -> None:
    reads: list[int] = []

    def lack_a_member(parsed: dict[str, Any], **_event: Any) -> None:
        members = parsed["DBClusters"][0]["DBClusterMembers"]
        reads.append(len(members))
        if len(reads) == 1:
            del members[:2]  # writer and dedicated reader, which only the list of instances has

    account.session.client("rds").meta.events.register("after-call.rds.DescribeDBClusters", lack_a_member)
    found = account.functions.get_cluster_instances({"step": "Start", "input": RUN})
    assert (found["state"], found["cluster"]["writerInstanceId"], reads) == ("ready", "w", [3, 3])


def test_a_failover_to_an_instance_that_is_not_ready_is_an_error_which_the_machine_catches(account: Account) -> None:
    with pytest.raises(FailoverNotReady, match=r"d is available with db\.r6g\.large"):
        account.functions.failover_cluster({**RUN, "instanceId": "d"})
    assert account.calls == []


def test_an_execution_that_ended_by_itself_is_told_and_its_lock_released_whatever_its_input_was(
    account: Account,
) -> None:
    dynamodb = account.session.client("dynamodb")
    dynamodb.put_item(TableName="locks", Item={"lockId": {"S": CLUSTER}, "executionArn": {"S": "arn:another"}})
    account.tell(input=json.dumps(RUN))
    assert dynamodb.scan(TableName="locks")["Count"] == 1
    account.tell(input=json.dumps(RUN), executionArn="arn:another", cause="by Ann")
    assert dynamodb.scan(TableName="locks")["Count"] == 0
    for given in ("{}", "[]", '"text"', None, '{"clusterIdentifier": 7}'):
        account.tell(input=given, status="FAILED", error="States.Runtime")
    account.tell(input="{}", status="FAILED", error="ScalingError")  # it has sent its notification
    subjects = [each.subject for each in account.aws.published]
    assert subjects[:2] == ["Aurora shop-cluster: class change was stopped by someone"] * 2
    assert subjects[2:] == [*["Aurora unknown cluster: class change failed"] * 4, "Aurora 7: class change failed"]
    assert "Reason: by Ann" in account.aws.published[1].text


def test_a_run_that_ended_well_without_its_notification_is_told_as_it_ended(account: Account) -> None:
    account.tell(
        status="FAILED", error="CompletedNotificationError", cause="it could not be sent", input=json.dumps(RUN)
    )
    account.tell(status="FAILED", error="SkippedNotificationError", cause="it could not be sent", input=json.dumps(RUN))
    completed, skipped = account.aws.published
    assert completed.subject == "Aurora shop-cluster: class change completed"
    assert "Note: it could not be sent\nInstances:\n  w: db.r6g.large, available, writer\n" in completed.text
    assert "un it again" not in completed.text
    assert skipped.subject == "Aurora shop-cluster: class change skipped"


def test_every_notification_lists_the_instances_and_is_sent_if_they_cannot_be_read(account: Account) -> None:
    failed = {"kind": "DedicatedReaderStatusError", "run": RUN, "execution": EXECUTION}
    account.functions.send_notification(failed)
    account.rds.throttle(60)
    account.functions.send_notification(failed)
    listed, unlisted = (each.text for each in account.aws.published)
    assert "Instances:\n  w: db.r6g.large, available, writer\n  d: db.r6g.large, available, reader\n  a: " in listed
    assert "Instances:" not in unlisted


def test_no_lock_is_looked_for_without_a_cluster(account: Account) -> None:
    """DynamoDB refuses an empty key, and then nobody would be told."""
    sent: list[object] = []
    account.session.client("dynamodb").meta.events.register("before-call.dynamodb", lambda **event: sent.append(event))
    account.tell(input="{}")
    assert (sent, len(account.aws.published)) == ([], 1)


def test_a_service_that_does_not_answer_is_noticed_before_the_function_times_out() -> None:
    pauses = sum(2**number for number in range(READS.max_attempts - 1))
    slowest = READS.max_attempts * (READS.connect_timeout + READS.read_timeout) + pauses
    assert slowest < min(TIMEOUTS.values())
    # Two reads of RDS must leave time for one call of SNS.
    brief = 2 * (BRIEF_READS.connect_timeout + BRIEF_READS.read_timeout)
    assert brief + READS.connect_timeout + READS.read_timeout < TIMEOUTS[Function.SEND_NOTIFICATION]
    change = CHANGES.connect_timeout + CHANGES.read_timeout
    assert CHANGES.max_attempts == 1
    assert slowest + change < min(TIMEOUTS[Function.MODIFY_INSTANCE], TIMEOUTS[Function.FAILOVER_CLUSTER])


class Context:
    """What Lambda passes to a function beside its event."""

    def get_remaining_time_in_millis(self) -> int:
        return 29_500


def test_each_call_logs_json_with_the_remaining_time_and_an_error_with_code_message_and_traceback(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.aurora")
    call = account.functions.find(Function.MODIFY_INSTANCE)
    event = {"clusterIdentifier": CLUSTER, "instanceId": "w", "classes": [NEW]}
    result = call(event, Context())
    account.rds.refuse("ModifyDBInstance", "StorageTypeNotSupported", 1)
    with pytest.raises(ClientError):
        call({**event, "instanceId": "d"}, None)
    begins, ended, _, failed = (json.loads(record.message) for record in caplog.records)
    common = {"level": "INFO", "function": "modify-instance", "remainingMilliseconds": 29_500}
    assert begins == {**common, "message": "begins", "event": event}
    assert ended == {**common, "message": "ended", "result": result}
    assert (failed["level"], failed["errorCode"]) == ("ERROR", "StorageTypeNotSupported")
    assert "ModifyDBInstance is refused" in failed["message"]
    assert failed["traceback"].startswith("Traceback")
    assert failed["remainingMilliseconds"] is None
