"""Runs are scheduled, started, watched and stopped on emulators of AWS."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Conflict, InvalidValue, NotFound
from holdfast.aurora.preflight import CheckResult, PlannedRun, check_run
from holdfast.aurora.stack import Run, ScalingStack
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.testing import FakeClock
from tests.support.aurora import NEW, OLD, REGION, ROLE, Deployed

Deploy = Callable[[str], Deployed]
WAITING = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}}}


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    opened: list[AwsSession] = []

    def connect(url: str) -> Deployed:
        opened.append(AwsSession(AwsOptions(region=REGION, endpoint_url=url, max_attempts=1, read_timeout=60)))
        return Deployed(opened[-1], f"op{uuid4().hex[:8]}")

    yield connect
    for session in opened:
        session.close()


def wait_for(stack: ScalingStack, arn: str, state: str) -> Run:
    limit = time.monotonic() + 60
    while (run := stack.read_run(arn)).progress is None or run.progress.state != state:
        assert time.monotonic() < limit, f"the run did not reach {state}: {run}"
        time.sleep(0.1)
    return run


def test_a_run_is_scheduled_started_watched_and_stopped_with_the_real_functions(
    deploy: Deploy, ministack_url: str
) -> None:
    """Takes six seconds, because four functions start a process each."""
    deployed = deploy(ministack_url)
    deployed.create_cluster("reader-dedicated")
    deployed.create_stack()
    stack, cluster = deployed.stack, deployed.cluster

    created = stack.schedule(cluster, (NEW, "db.t4g.large"), "19:15")
    assert stack.list_schedules() == [created]
    assert (created.time, created.timezone, created.fallback_classes) == ("19:15", "Asia/Tokyo", ("db.t4g.large",))
    rule = deployed.session.client("events").describe_rule(Name=created.eventbridge_name)
    assert (rule["ScheduleExpression"], rule["State"]) == ("cron(15 10 * * ? *)", "ENABLED")
    with pytest.raises(Conflict, match=rf"has one for {cluster} at 19:15 \(Asia/Tokyo\)"):
        stack.schedule("another-cluster", (NEW,), "20:00")
    with pytest.raises(InvalidValue, match="--timezone needs"):
        stack.schedule(cluster, (NEW,), "20:00", "Europe/Berlin")
    with pytest.raises(NotFound, match="no schedule at 19:16"):
        stack.unschedule(cluster, "19:16")
    assert stack.unschedule(cluster) == [created]
    assert not stack.list_schedules()[0].is_enabled

    arn = stack.start(cluster, (NEW,)).arn
    run = wait_for(stack, arn, "WaitForDedicatedReader")
    assert run.is_running
    assert run.progress is not None
    assert run.progress.waits_until == run.progress.since + 60
    assert run.progress.instance == f"{deployed.prefix}-reader-dedicated"
    assert stack.find_lock_holder(cluster) == arn
    assert [each.arn for each in stack.find_runs(cluster, running=True)] == [arn]

    assert stack.stop(cluster) == [arn]
    [ended] = stack.find_runs(cluster)
    assert (ended.status, ended.progress and ended.progress.state) == ("ABORTED", "WaitForDedicatedReader")
    assert ended.ended_at is not None
    assert stack.find_lock_holder(cluster) == ""
    with pytest.raises(NotFound, match="no run of"):
        stack.stop(cluster)


def test_facts_are_read_and_what_cannot_be_read_becomes_a_warning(deploy: Deploy, moto_url: str) -> None:
    deployed = deploy(moto_url)
    deployed.create_cluster("reader-dedicated", "reader-as-1", max_connections="450")
    deployed.create_stack(WAITING)
    stack, now = deployed.stack, datetime.now(UTC)
    deployed.session.client("cloudwatch").put_metric_data(
        Namespace="AWS/RDS",
        MetricData=[
            {
                "MetricName": "DatabaseConnections",
                "Dimensions": [{"Name": "DBInstanceIdentifier", "Value": f"{deployed.prefix}-writer"}],
                "Timestamp": now - timedelta(hours=2),
                "Value": value,
            }
            for value in (7.0, 500.0)
        ],
    )
    run = PlannedRun(cluster_id=deployed.cluster, classes=(NEW,), starts_at=now.timestamp())
    lock(deployed, "arn:aws:states:us-east-1:123456789012:execution:m:other_1", now.timestamp() + 60)
    facts = stack.read_facts(run)
    assert facts.connections == {f"{deployed.prefix}-writer": 500.0}
    assert {*facts.unreadable} == {"pending maintenance", "custom endpoints"}  # moto has neither
    assert [each.id for each in facts.cluster.other_readers] == [f"{deployed.prefix}-reader-as-1"]
    findings = {each.name: each for each in check_run(facts)}
    assert findings["connections"].result is CheckResult.REFUSED
    assert "allows about 450" in findings["connections"].text
    assert findings["custom endpoints"].result is CheckResult.WARNING
    assert findings["change needed"].text == "3 of 3 instances need the new class"
    assert "other_1 is in progress" in findings["other runs"].text


def test_facts_are_read_where_moto_has_none(deploy: Deploy, ministack_url: str) -> None:
    deployed = deploy(ministack_url)
    deployed.create_cluster("reader-dedicated")
    run = PlannedRun(cluster_id=deployed.cluster, classes=(NEW,), starts_at=0.0)
    facts = deployed.stack.read_facts(run)
    assert facts.maintenance == ()
    assert "pending maintenance" not in facts.unreadable
    assert "other runs" not in facts.unreadable  # without a stack, there are none


def lock(deployed: Deployed, holder: str, expires_at: float) -> None:
    item = {"lockId": deployed.cluster, "executionArn": holder}
    deployed.session.client("dynamodb").put_item(
        TableName=f"{deployed.prefix}-scaling-lock",
        Item={**{name: {"S": value} for name, value in item.items()}, "expiresAt": {"N": str(int(expires_at))}},
    )


def test_stop_ends_the_run_that_has_the_lock_whatever_its_name_and_frees_the_lock_of_one_that_has_ended(
    deploy: Deploy, moto_url: str
) -> None:
    deployed = deploy(moto_url)
    deployed.create_cluster("reader-dedicated")
    deployed.create_stack(WAITING)
    stack = deployed.stack
    machine = stack.start(deployed.cluster, (NEW,)).arn.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    assert len(stack.stop(deployed.cluster)) == 1

    client = deployed.session.client("stepfunctions")
    other = client.start_execution(stateMachineArn=machine, name="started-in-the-console", input="{}")
    lock(deployed, other["executionArn"], time.time() + 60)
    assert stack.stop(deployed.cluster) == [other["executionArn"]]
    assert client.describe_execution(executionArn=other["executionArn"])["status"] == "ABORTED"
    assert stack.find_lock_holder(deployed.cluster) == ""
    lock(deployed, other["executionArn"], time.time() + 60)
    assert stack.stop(deployed.cluster) == []
    assert stack.find_lock_holder(deployed.cluster) == ""

    lock(deployed, other["executionArn"], time.time() - 60)
    assert stack.find_lock_holder(deployed.cluster) == ""


@pytest.mark.parametrize("service", ["moto_url", "ministack_url"])
def test_a_second_run_within_a_minute_is_refused(deploy: Deploy, request: pytest.FixtureRequest, service: str) -> None:
    """Also by moto, which accepts, as AWS does, a second start with the same input and starts nothing."""
    deployed = deploy(request.getfixturevalue(service))
    deployed.create_cluster("reader-dedicated")
    deployed.create_stack(WAITING)
    stack = ScalingStack(deployed.session, FakeClock(), f"{deployed.prefix}-scaling")
    assert stack.start(deployed.cluster, (NEW,)).is_running
    with pytest.raises(Conflict, match="was already started in this minute"):
        stack.start(deployed.cluster, (NEW,))


def test_the_scheduler_has_several_schedules_in_time_zones(deploy: Deploy, moto_url: str) -> None:
    deployed = deploy(moto_url)
    deployed.session.client("scheduler").create_schedule_group(Name=deployed.prefix)
    deployed.create_stack(WAITING, ScheduleGroup=deployed.prefix, SchedulerRoleArn=ROLE)
    stack, cluster = deployed.stack, deployed.cluster
    down = stack.schedule(cluster, (NEW,), "19:15")
    up = stack.schedule(cluster, (OLD,), "07:00", "Europe/Berlin")
    once = stack.schedule(cluster, (OLD,), "2099-11-18 23:14")
    other = stack.schedule("another-cluster", (NEW,), "19:15")
    assert sorted(stack.list_schedules(), key=lambda each: each.eventbridge_name) == sorted(
        [down, up, once, other], key=lambda each: each.eventbridge_name
    )
    found: dict[str, Any] = deployed.session.client("scheduler").get_schedule(
        GroupName=deployed.prefix, Name=up.eventbridge_name
    )
    assert (found["ScheduleExpression"], found["ScheduleExpressionTimezone"]) == ("cron(0 7 * * ? *)", "Europe/Berlin")
    assert found["Target"]["DeadLetterConfig"]["Arn"].endswith(f":{deployed.prefix}")
    assert json.loads(found["Target"]["Input"])["scheduledTime"] == "<aws.scheduler.scheduled-time>"

    changed = stack.schedule(cluster, ("db.t4g.large",), "19:15")
    assert (changed.eventbridge_name, changed.target_class) == (down.eventbridge_name, "db.t4g.large")
    assert changed in stack.list_schedules()
    tokyo = stack.schedule(cluster, (OLD,), "07:00")
    with pytest.raises(Conflict, match="in Asia/Tokyo and Europe/Berlin: choose one with --timezone"):
        stack.unschedule(cluster, "07:00")
    assert stack.unschedule(cluster, "07:00", "Asia/Tokyo") == [tokyo]
    assert stack.unschedule(cluster, "07:00") == [up]
    assert {each.eventbridge_name for each in stack.unschedule(cluster)} == {
        changed.eventbridge_name,
        once.eventbridge_name,
    }
    assert stack.list_schedules() == [other]
    with pytest.raises(InvalidValue, match="Asia/Tokyo"):
        stack.schedule(cluster, (NEW,), "19:15", "Asia/Nowhere")
    with pytest.raises(InvalidValue, match="has passed"):
        stack.schedule(cluster, (NEW,), "2020-01-01 00:00")


def test_clusters_are_listed_before_anything_is_deployed(deploy: Deploy, moto_url: str) -> None:
    deployed = deploy(moto_url)
    deployed.create_cluster("reader-dedicated")
    deployed.session.client("rds").create_db_cluster(
        DBClusterIdentifier=f"{deployed.prefix}-multi-az",
        Engine="postgres",
        MasterUsername="master",
        MasterUserPassword="not-a-secret",
        DBClusterInstanceClass=OLD,
        StorageType="io1",
        AllocatedStorage=100,
        Iops=1000,
    )
    own = [each for each in deployed.stack.list_clusters() if each.id.startswith(deployed.prefix)]
    assert [each.id for each in own] == [deployed.cluster]
    assert own[0].writer is not None
    with pytest.raises(NotFound, match="deploy it"):
        deployed.stack.list_schedules()
    deployed.session.client("cloudformation").create_stack(
        StackName=f"{deployed.prefix}-scaling",
        TemplateBody=json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}),
    )
    with pytest.raises(NotFound, match="has no outputs"):
        deployed.stack.list_schedules()
