"""The stack on an emulator that enforces roles, with the functions of the real zip."""

import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from holdfast import Conflict, EngineError, NotFound
from holdfast.aurora.deploy import Change, Deployment, StackEvent
from holdfast.aurora.stack import ScalingStack
from holdfast.aurora.template import Network, Scheduler, TemplateOptions
from holdfast.cli import main
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.testing import FakeClock

PATIENCE = 60.0
T = TypeVar("T")
CLUSTER, OLD, NEW = "shop-cluster", "db.r6g.large", "db.t4g.medium"
EVENTS = ["events:PutRule", "events:DescribeRule", "events:DisableRule"]
EMULATOR_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["rds:DescribeDBInstances", "events:PutTargets"], "Resource": "*"},
        {"Effect": "Allow", "Action": EVENTS, "Resource": "arn:aws:events:*:*:rule/default/shop-schedule-scaling"},
    ],
}
"""MiniStack looks for these resources, and AWS for those of the template: `db:*` for DescribeDBInstances with a filter,
`rule/<name>` for rules of the default bus. Everything else is decided by the roles as they were deployed."""
PROBE = """
import boto3

def probe(event, context):
    client = boto3.client(event["service"])
    try:
        getattr(client, event["operation"])(**event["arguments"])
    except client.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
    return "allowed"
"""


def wait_for(look: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + PATIENCE
    while (found := look()) is None:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def options(prefix: str = "shop", **changes: Any) -> TemplateOptions:
    return TemplateOptions(**{"prefix": prefix, "network": Network.NONE, **changes})


@pytest.fixture(scope="module")
def deployment(root: AwsSession) -> Deployment:
    return Deployment(root, FakeClock())


@pytest.fixture(scope="module")
def outputs(root: AwsSession, deployment: Deployment) -> Iterator[dict[str, str]]:
    """The outputs of the deployed stack, beside a cluster of three instances."""
    found = deployment.execute(deployment.prepare(options(), None), lambda event: None)
    root.client("iam").put_role_policy(
        RoleName="shop-lambda-scaling-role", PolicyName="emulator", PolicyDocument=json.dumps(EMULATOR_POLICY)
    )
    rds = root.client("rds")
    rds.create_db_cluster(
        DBClusterIdentifier=CLUSTER, Engine="aurora-postgresql", MasterUsername="shop", MasterUserPassword="not-secret"
    )
    for tier, name in enumerate(("shop-writer", "shop-reader-dedicated", "shop-reader-as-1")):
        rds.create_db_instance(
            DBInstanceIdentifier=name,
            DBClusterIdentifier=CLUSTER,
            Engine="aurora-postgresql",
            DBInstanceClass=OLD,
            PromotionTier=tier,
        )
    yield dict(found)
    deployment.remove("shop", lambda event: None, force=True)


def invoke(root: AwsSession, name: str, event: dict[str, Any]) -> Any:
    reply = root.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    result = json.loads(reply["Payload"].read())
    assert "FunctionError" not in reply, result
    return result


def probe(root: AwsSession, role: str, service: str, operation: str, **arguments: Any) -> str:
    """Make a call with the credentials that a function with this role gets. Return the code of the refusal."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("code.py", PROBE)
    account = root.client("sts").get_caller_identity()["Account"]
    functions, name = root.client("lambda"), f"probe-{role}"
    if not any(each["FunctionName"] == name for each in functions.list_functions()["Functions"]):
        functions.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Handler="code.probe",
            Role=f"arn:aws:iam::{account}:role/{role}",
            Code={"ZipFile": file.getvalue()},
        )
    return str(invoke(root, name, {"service": service, "operation": operation, "arguments": arguments}))


def test_a_run_of_the_deployed_machine_changes_every_instance(root: AwsSession, outputs: dict[str, str]) -> None:
    """Needs seconds: seven functions start as processes of their own, and each imports boto3."""
    event = {"clusterIdentifier": CLUSTER, "targetClass": NEW}
    scheduled = invoke(root, outputs["UpdateScheduleArn"], {**event, "scheduleTime": "19:15"})
    assert scheduled == {"ruleName": outputs["RuleName"], "scheduleExpression": "cron(15 10 * * ? *)"}
    [target] = root.client("events").list_targets_by_rule(Rule=outputs["RuleName"])["Targets"]
    assert (target["Id"], target["Arn"]) == ("schedule-scaling", outputs["ScheduleScalingArn"])
    assert target["DeadLetterConfig"] == {"Arn": outputs["DeadLettersArn"]}
    started = invoke(root, outputs["ScheduleScalingArn"], {**event, "scheduledTime": "2025-11-18T10:15:00Z"})
    assert started == {"executionName": "shop-cluster_20251118T1015Z"}
    machines = root.client("stepfunctions")
    [execution] = machines.list_executions(stateMachineArn=outputs["StateMachineArn"])["executions"]

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = machines.describe_execution(executionArn=execution["executionArn"])
        return None if found["status"] == "RUNNING" else found

    assert wait_for(ended)["status"] == "SUCCEEDED"
    instances = root.client("rds").describe_db_instances()["DBInstances"]
    assert {each["DBInstanceClass"] for each in instances} == {NEW}
    [cluster] = root.client("rds").describe_db_clusters()["DBClusters"]
    writers = [each["DBInstanceIdentifier"] for each in cluster["DBClusterMembers"] if each["IsClusterWriter"]]
    assert writers == ["shop-reader-dedicated"]
    assert root.client("dynamodb").scan(TableName=outputs["LockTable"])["Items"] == []
    stack = ScalingStack(root, FakeClock(), "shop-scaling")
    [run] = stack.find_runs(CLUSTER)
    assert (run.status, run.progress and run.progress.state) == ("SUCCEEDED", "ScalingSucceeded")
    assert [(each.cluster, each.time) for each in stack.list_schedules()] == [(CLUSTER, "19:15")]


@pytest.mark.usefixtures("outputs")
def test_a_call_outside_a_role_is_refused(root: AwsSession) -> None:
    """Needs seconds: two more functions start."""
    modify = {"DBInstanceIdentifier": "shop-reader-as-1", "DBInstanceClass": OLD}
    notification, scaling = "shop-lambda-notification-role", "shop-lambda-scaling-role"
    assert probe(root, notification, "rds", "modify_db_instance", **modify) == "AccessDenied"
    assert probe(root, scaling, "rds", "modify_db_instance", **modify) == "allowed"
    modify["DBInstanceIdentifier"] = "orders-writer"
    assert probe(root, scaling, "rds", "modify_db_instance", **modify) == "AccessDenied"
    assert probe(root, scaling, "rds", "delete_db_cluster", DBClusterIdentifier=CLUSTER) == "AccessDenied"
    lock = {"TableName": "shop-scaling-lock", "Key": {"lockId": {"S": CLUSTER}}}
    assert probe(root, scaling, "dynamodb", "delete_item", **lock) == "AccessDeniedException"
    assert probe(root, notification, "dynamodb", "delete_item", **lock) == "allowed"


@pytest.mark.usefixtures("outputs")
def test_an_update_shows_what_it_would_change_and_changes_nothing_before_it_is_executed(
    deployment: Deployment,
) -> None:
    same = deployment.prepare(options(), None)
    assert (same.is_new, same.changes) == (False, ())
    deployment.discard(same)
    change_set = deployment.prepare(options(scheduler=Scheduler.SCHEDULER), None)
    assert Change("add", "ScheduleGroup", "AWS::Scheduler::ScheduleGroup") in change_set.changes
    deployment.discard(change_set)
    assert deployment.prepare(options(scheduler=Scheduler.SCHEDULER), None).changes == change_set.changes


@pytest.fixture
def waiting(root: AwsSession, deployment: Deployment) -> Callable[[str], str]:
    """Deploys another stack, whose state machine waits forever, and starts runs. Returns the ARN of a run."""
    found = deployment.execute(deployment.prepare(options("busy"), None), lambda event: None)
    machines, machine = root.client("stepfunctions"), found["StateMachineArn"]
    activity = machines.create_activity(name="nobody")["activityArn"]  # a task that no worker ever takes
    wait = {"Type": "Task", "Resource": activity, "End": True}
    definition = json.dumps({"StartAt": "Wait", "States": {"Wait": wait}})
    machines.update_state_machine(stateMachineArn=machine, definition=definition)

    def start_run(name: str) -> str:
        run = json.dumps({"clusterIdentifier": "busy-cluster", "targetClass": NEW})
        return str(machines.start_execution(stateMachineArn=machine, name=name, input=run)["executionArn"])

    return start_run


def test_an_aborted_run_is_notified_and_its_lock_released_and_no_stack_is_removed_under_a_run(
    root: AwsSession, deployment: Deployment, waiting: Callable[[str], str]
) -> None:
    """Needs seconds: a function starts."""
    execution = waiting("first")
    lock = {"lockId": {"S": "busy-cluster"}, "executionArn": {"S": execution}, "expiresAt": {"N": "9999999999"}}
    root.client("dynamodb").put_item(TableName="busy-scaling-lock", Item=lock)
    inbox = "arn:aws:sqs:ap-northeast-1:000000000000:inbox"
    from_topic = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
    policy = {"Version": "2012-10-17", "Statement": [{**from_topic, "Resource": inbox}]}
    sqs = root.client("sqs")
    queue = sqs.create_queue(QueueName="inbox", Attributes={"Policy": json.dumps(policy)})["QueueUrl"]
    topic = inbox.replace(":sqs:", ":sns:").replace("inbox", "busy-scaling")
    root.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=inbox)
    with pytest.raises(Conflict, match="first is in progress"):
        deployment.remove("busy", lambda event: None)
    root.client("stepfunctions").stop_execution(executionArn=execution)
    [message] = wait_for(lambda: sqs.receive_message(QueueUrl=queue).get("Messages"))
    assert json.loads(message["Body"])["Subject"] == "Aurora busy-cluster: class change was stopped by someone"
    assert root.client("dynamodb").scan(TableName="busy-scaling-lock")["Items"] == []
    waiting("second")
    deployment.remove("busy", lambda event: None, force=True)
    with pytest.raises(NotFound, match="no stack busy-scaling"):
        deployment.remove("busy", lambda event: None)


@pytest.mark.usefixtures("root")
def test_a_failed_creation_says_why_and_can_be_removed(enforcing_url: str, deployment: Deployment) -> None:
    events: list[StackEvent] = []
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=enforcing_url, max_attempts=1)) as elsewhere:
        elsewhere.client("s3").create_bucket(Bucket="elsewhere")
    change_set = deployment.prepare(options("lost"), "elsewhere")
    assert change_set.is_new
    with pytest.raises(EngineError, match=r"failed \(ROLLBACK_COMPLETE\): "):
        deployment.execute(change_set, events.append)
    assert any(each.status == "CREATE_FAILED" for each in events)
    with pytest.raises(Conflict, match="holdfast aurora remove"):
        deployment.prepare(options("lost"), None)
    deployment.remove("lost", events.append)


def test_a_refusal_of_aws_is_an_error_of_ours(deployment: Deployment) -> None:
    with pytest.raises(EngineError, match="NoSuchBucket"):
        deployment.prepare(options("other"), "no-such-bucket-at-all")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("root")
def test_commands_show_the_changes_ask_and_then_make_them(
    enforcing_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Needs a second: a stack is created and deleted."""
    monkeypatch.setenv("HOLDFAST_AWS__ENDPOINT_URL", enforcing_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("holdfast.aurora.deploy.POLL_SECONDS", 0.05)

    def run(*words: str, answer: str = "") -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", _Terminal(answer))
        code = main(["aurora", *words, "--prefix", "told", "--region", "eu-west-1"])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out, printed.err

    shown, asked = run("deploy", "--network", "none", answer="n\n")
    assert "add     ModifyInstance" in shown
    assert shown.endswith("Nothing was changed.\n")
    assert "changes to stack told-scaling? [y/N]" in asked
    shown, told = run("deploy", "--network", "none", answer="y\n")
    assert "StateMachineArn: arn:aws:states:eu-west-1:000000000000:stateMachine:told-scaling" in shown
    assert "CREATE_COMPLETE StateMachine" in told
    again = json.loads(run("deploy", "--network", "none", "--yes", "--json")[0])
    assert again == {"stack": "told-scaling", "changes": [], "deployed": False, "outputs": {}}
    assert json.loads(run("remove", "--json", answer="no\n")[0]) == {"stack": "told-scaling", "removed": False}
    shown, told = run("remove", "--yes")
    assert shown == "Stack told-scaling was deleted.\n"
    assert "DELETE_COMPLETE StateMachine" in told
