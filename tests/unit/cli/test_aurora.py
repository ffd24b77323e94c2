"""`holdfast aurora` shows, schedules, starts and stops runs. MiniStack executes them, and moto is the rest of AWS."""

import io
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast import SystemClock
from holdfast.cli.aurora import runs, schedules
from holdfast.engines.aws import AwsOptions, AwsSession
from tests.support.aurora import NEW, OLD, REGION, ROLE, Deployed
from tests.unit.cli.conftest import Ran, Run

WAITING = {"StartAt": "WaitForFailover", "States": {"WaitForFailover": {"Type": "Wait", "Seconds": 600, "End": True}}}
COMPLETED = {"StartAt": "ReleaseLock", "States": {"ReleaseLock": {"Type": "Pass", "End": True}}}
SKIPPED = {"StartAt": "ScalingSkipped", "States": {"ScalingSkipped": {"Type": "Succeed"}}}
FAILED = {
    "StartAt": "FailoverStatusError",
    "States": {
        "FailoverStatusError": {"Type": "Pass", "Next": "ScalingFailed"},
        "ScalingFailed": {"Type": "Fail", "Error": "ScalingError"},
    },
}
UNNOTIFIED = {
    "StartAt": "CompletionNotificationFailed",
    "States": {"CompletionNotificationFailed": {"Type": "Fail", "Error": "CompletedNotificationError"}},
}
Deploy = Callable[..., Deployed]


@pytest.fixture
def deploy(moto_url: str, ministack_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Deploy a stack with a machine, and a cluster whose connections fit the new class."""
    variables = {"ACCESS_KEY_ID": "testing", "SECRET_ACCESS_KEY": "testing", "DEFAULT_REGION": REGION}
    for name, value in {**variables, "ENDPOINT_URL": moto_url, "ENDPOINT_URL_SFN": ministack_url}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    # moto answers calls that it does not have with an error that would be retried after a pause.
    monkeypatch.setattr(schedules, "open_aws_session", lambda _: AwsSession(AwsOptions(max_attempts=1)))
    with AwsSession(AwsOptions(max_attempts=1, read_timeout=60)) as session:

        def start(machine: dict[str, Any], *readers: str, connections: float = 12.0, **outputs: str) -> Deployed:
            deployed = Deployed(session, f"op{uuid4().hex[:8]}")
            deployed.create_cluster(*(readers or ("reader-dedicated",)))
            deployed.create_stack(machine, **outputs)
            metric = {
                "MetricName": "DatabaseConnections",
                "Dimensions": [{"Name": "DBInstanceIdentifier", "Value": f"{deployed.prefix}-writer"}],
                "Timestamp": datetime.now(UTC) - timedelta(hours=2),
                "Value": connections,
            }
            session.client("cloudwatch").put_metric_data(Namespace="AWS/RDS", MetricData=[metric])
            return deployed

        yield start


def start_run(run: Run, deployed: Deployed, *words: str) -> Ran:
    return run("aurora", "run", deployed.cluster, "--prefix", deployed.prefix, "--class", NEW, *words)


def wait_for_a_state(deployed: Deployed) -> None:
    """Wait until the run has entered its first state."""
    limit = time.monotonic() + 60
    while deployed.stack.find_runs(deployed.cluster)[0].progress is None:
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_clusters_are_shown_with_roles_classes_and_schedules(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING, "reader-dedicated", "reader-as-1")
    found = run("aurora", "clusters", "--prefix", deployed.prefix, "--json").result
    [own] = [each for each in found if each["id"] == deployed.cluster]
    roles = {each["id"].removeprefix(f"{deployed.prefix}-"): each["role"] for each in own["instances"]}
    assert roles == {"writer": "writer", "reader-dedicated": "dedicated reader", "reader-as-1": "autoscaling reader"}
    assert {each["class"] for each in own["instances"]} == {OLD}
    shown = run("aurora", "clusters", "--prefix", "nothing", "--region", REGION)
    assert f"{deployed.prefix}-reader-as-1" in shown.out
    assert "schedules are not shown: there is no stack nothing-scaling" in shown.err


def test_a_cluster_has_several_schedules_with_the_scheduler(run: Run, deploy: Deploy) -> None:
    group = f"group{uuid4().hex[:8]}"
    deployed = deploy(WAITING, ScheduleGroup=group, SchedulerRoleArn=ROLE)
    deployed.session.client("scheduler").create_schedule_group(Name=group)
    common = (deployed.cluster, "--prefix", deployed.prefix)
    down = run("aurora", "schedule", *common, "--class", NEW, "--at", "19:15", "--timezone", "Europe/Berlin")
    assert down.code == 0
    assert f"{deployed.cluster}: db.t4g.medium at 19:15 Europe/Berlin (schedule {deployed.cluster}_" in down.out
    assert "custom endpoints: could not be checked" in down.err
    up = json.loads(run("aurora", "schedule", *common, "--class", OLD, "--at", "07:00", "--json").out)
    assert (up["target_class"], up["time"], up["timezone"]) == (OLD, "07:00", "Asia/Tokyo")
    day = (datetime.now(UTC) + timedelta(days=3)).strftime("%a").lower()
    deployed.session.client("rds").modify_db_cluster(
        DBClusterIdentifier=deployed.cluster, PreferredMaintenanceWindow=f"{day}:10:30-{day}:11:00"
    )
    daily = run("aurora", "schedule", *common, "--class", NEW, "--at", "19:15")  # 10:15 UTC, on that day, too
    assert f"would overlap the maintenance window {day}:10:30-{day}:11:00" in daily.err
    shown = run("aurora", "clusters", "--prefix", deployed.prefix).out
    assert "db.r6g.large at 07:00 Asia/Tokyo" in shown
    assert shown.count("db.r6g.large at 07:00") == 1
    up_in_berlin = ("--class", OLD, "--at", "07:00", "--timezone", "Europe/Berlin")
    assert run("aurora", "schedule", *common, *up_in_berlin).code == 0
    both = run("aurora", "unschedule", *common, "--at", "07:00", "--json").error
    assert "at 07:00 in Asia/Tokyo and Europe/Berlin: choose one with --timezone" in both["detail"]
    one = run("aurora", "unschedule", *common, "--at", "07:00", "--timezone", "Europe/Berlin").out
    assert ("07:00 Europe/Berlin" in one, "Asia/Tokyo" in one) == (True, False)
    ended = run("aurora", "unschedule", *common)
    assert "19:15 Europe/Berlin" in ended.out
    assert "has no schedule" in run("aurora", "unschedule", *common, "--json").error["detail"]
    unknown = ("unschedule", "nope", "--prefix", deployed.prefix)
    assert "there is no cluster nope" in run("aurora", *unknown, "--json").error["detail"]


def test_only_a_schedule_that_replaces_another_one_in_the_rule_says_so(
    run: Run, deploy: Deploy, ministack_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function only answers: the rule itself is set here."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", ministack_url)
    function = f"answer{uuid4().hex[:8]}"
    deployed = deploy(WAITING, UpdateScheduleArn=function)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("entry.py", "def answer(event, context):\n    return {}\n")
    with AwsSession(AwsOptions(max_attempts=1, read_timeout=60)) as session:
        session.client("lambda").create_function(
            FunctionName=function,
            Runtime="python3.11",
            Role=ROLE,
            Handler="entry.answer",
            Code={"ZipFile": archive.getvalue()},
        )
    words = ("aurora", "schedule", deployed.cluster, "--prefix", deployed.prefix, "--class", NEW, "--at", "20:00")
    first = run(*words)
    assert (first.code, "replaces" in first.err) == (0, False), first
    events, name = deployed.session.client("events"), f"{deployed.prefix}-schedule-scaling"
    event = {"clusterIdentifier": deployed.cluster, "targetClass": OLD}
    transformer = {"InputPathsMap": {"time": "$.time"}, "InputTemplate": json.dumps(event)}
    target = {"Id": "schedule-scaling", "Arn": "arn:aws:lambda:us-east-1:1:function:x", "InputTransformer": transformer}
    events.put_targets(Rule=name, Targets=[target])
    events.put_rule(Name=name, ScheduleExpression="cron(15 10 * * ? *)", State="ENABLED")
    said = f"this replaces the earlier schedule of the rule: {deployed.cluster}, {OLD} at 19:15 Asia/Tokyo\n"
    assert said in run(*words).err


def test_a_cluster_without_instances_is_shown(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING)
    deployed.session.client("rds").create_db_cluster(
        DBClusterIdentifier=f"{deployed.prefix}-empty",
        Engine="aurora-postgresql",
        MasterUsername="master",
        MasterUserPassword="not-a-secret",
    )
    lines = run("aurora", "clusters", "--prefix", deployed.prefix).out.splitlines()
    [empty] = [line.split() for line in lines if line.startswith(f"{deployed.prefix}-empty")]
    assert empty[1:] == ["(no", "instances)"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "SHOP", "--class", NEW], "CLUSTER is 'SHOP': expected the id of a cluster, in lower case"),
        (["history", "a--b"], "CLUSTER is 'a--b'"),
        (["run", "shop", "--class", "t4g.medium"], "--class is 't4g.medium': expected an instance class"),
        (["run", "shop", "--class", NEW, "--fallback-class", "t4g"], "--fallback-class is 't4g'"),
        (["schedule", "shop", "--class", NEW, "--at", "7:00"], "--at is '7:00': expected HH:MM for every day, such as"),
        (["unschedule", "shop", "--at", "7:00"], "--at is '7:00'"),
        *(
            (["run", "shop", "--class", NEW, option, value], option)
            for option in ("--modification-seconds", "--old-price", "--new-price", "--hours", "--network-cost")
            for value in ("nan", "-1", "inf")
        ),
    ],
)
def test_wrong_words_are_refused_by_the_name_that_was_typed(run: Run, words: list[str], said: str) -> None:
    ran = run("aurora", *words, "--prefix", "shop")
    assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_schedule_that_cannot_work_is_refused(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING)
    words = ("aurora", "schedule", deployed.cluster, "--prefix", deployed.prefix, "--at", "19:15")
    error = run(*words, "--class", "db.t9z.medium", "--force", "--json").error
    assert error["error"] == "conflict"
    assert "target class: db.t9z.medium does not exist" in error["detail"]
    failed = run(*words, "--class", NEW, "--json").error  # this stack has a rule, but no functions
    assert (failed["error"], "Function not found" in failed["detail"]) == ("engine", True)


def test_a_dry_run_shows_checks_steps_and_saving_and_changes_nothing(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING)
    prices = ("--old-price", "0.3", "--new-price", "0.1", "--hours", "12", "--network-cost", "50")
    found = start_run(run, deployed, "--dry-run", *prices, "--json").result
    assert found["can_start"]
    assert (found["seconds"], found["changed_count"]) == (2640.0, 2)
    assert [each["state"] for each in found["steps"]][-1] == "SendCompletionNotification"
    assert found["saving"]["total"] == pytest.approx(2 * 0.2 * 12 * 365 / 12 - 50)
    assert {each["name"]: each["result"] for each in found["findings"]}["target class"] == "ok"
    shown = start_run(run, deployed, "--dry-run", *prices)
    assert "a run would change 2 instances, and take about 0:44:00" in shown.out
    assert "saving per month: 96.00 (146.00 by instances, minus 50.00 for the network); you pay" in shown.out
    assert "refused" not in shown.out
    assert run("aurora", "history", deployed.cluster, "--prefix", deployed.prefix, "--json").result == []
    half = start_run(run, deployed, "--dry-run", "--old-price", "0.3", "--json")
    assert (half.code, "give all three" in half.error["detail"]) == (2, True)


def test_a_run_is_refused_with_all_reasons_and_force_ignores_only_warnings(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING, connections=5000.0)
    error = start_run(run, deployed, "--force", "--json").error
    assert error["detail"].startswith("refused by these checks:\n  connections: ")
    dry = start_run(run, deployed, "--dry-run")
    assert (dry.code, "FailoverToDedicatedReader" in dry.out) == (1, False)
    assert "refused by these checks:\n  connections: " in dry.err
    warned = start_run(run, deployed, "--max-connections", "9000", "--json").error
    assert "because of these warnings (--force starts it anyway):\n  pending maintenance: " in warned["detail"]
    started = start_run(run, deployed, "--max-connections", "9000", "--force", "--json").result
    assert (started["cluster"], started["status"]) == (deployed.cluster, "RUNNING")


def test_a_planned_run_that_would_fail_is_not_shown_as_one_that_completes(run: Run, deploy: Deploy) -> None:
    shown = start_run(run, deploy(WAITING), "--dry-run", "--modification-seconds", "1e9").out
    assert "the run fails here: " in shown
    assert "a run would not complete" in shown
    assert "a run would change" not in shown


def test_a_run_is_shown_until_when_it_waits_and_stopped(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING)
    common = (deployed.cluster, "--prefix", deployed.prefix)
    assert f"there has been no run of {deployed.cluster} yet" in run("aurora", "status", *common).out
    assert start_run(run, deployed, "--force").code == 0
    wait_for_a_state(deployed)
    shown = run("aurora", "status", *common).out
    assert f"run {deployed.cluster}_" in shown
    assert "wait for failover" in shown
    assert "waits until " in shown
    assert f"{deployed.prefix}-writer" in shown
    [own] = run("aurora", "status", "--prefix", deployed.prefix, "--json").result["runs"]
    assert own["progress"]["state"] == "WaitForFailover"
    stopped = run("aurora", "stop", *common)
    assert stopped.out.startswith(f"stopped {own['name']}\n")
    assert "the lock is released\na change that RDS has begun goes on" in stopped.out
    assert "stopped at WaitForFailover" in run("aurora", "history", *common).out
    assert run("aurora", "status", "--prefix", deployed.prefix).out == "no run is in progress\n"
    assert "no run of" in run("aurora", "stop", *common, "--json").error["detail"]
    for command in ("stop", "history", "status"):
        unknown = run("aurora", command, "nope", "--prefix", deployed.prefix, "--json").error
        assert unknown["detail"] == "there is no cluster nope in this region: `holdfast aurora clusters` lists them"


class StoppingClock(SystemClock):
    """Stops the run, once its progress has been shown, instead of sleeping."""

    deployed: Deployed
    shown = False

    def sleep(self, seconds: float) -> None:
        if self.shown:
            self.deployed.stack.stop(self.deployed.cluster)
        wait_for_a_state(self.deployed)
        self.shown = True


def test_waiting_shows_the_progress_and_fails_with_the_run(
    run: Run, deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    StoppingClock.deployed = deployed = deploy(WAITING)
    monkeypatch.setattr(runs, "SystemClock", StoppingClock)
    ended = start_run(run, deployed, "--force", "--wait")
    assert ended.code == 1
    assert "wait for failover" in ended.out
    assert "stopped at WaitForFailover; run it again to continue" in ended.err


@pytest.mark.parametrize(
    ("machine", "end"),
    [
        (COMPLETED, "completed"),
        (SKIPPED, "skipped, because another run was in progress"),
        (FAILED, "failed at FailoverStatusError; run it again to continue"),
        (UNNOTIFIED, "completed, but its notification could not be sent"),
    ],
    ids=["completed", "skipped", "failed", "unnotified"],
)
def test_the_end_of_a_run_is_told(
    run: Run, deploy: Deploy, monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any], end: str
) -> None:
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.05)
    deployed = deploy(machine)
    ended = start_run(run, deployed, "--force", "--wait", "--json")
    if machine in (FAILED, UNNOTIFIED):
        assert ended.error["detail"].endswith(f": {end}")
    else:
        assert ended.result["result"] == end
    [own] = run("aurora", "history", deployed.cluster, "--prefix", deployed.prefix, "--json").result
    assert own["ended_at"] >= own["started_at"]


@pytest.mark.parametrize(
    ("words", "said"), [("--help", "aurora"), ("aurora clusters --prefix shop", "needs the extra 'aws'")]
)
def test_without_boto3_the_help_is_shown_and_commands_say_what_to_install(words: str, said: str) -> None:
    code = "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None; from holdfast.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True)
    assert said in ran.stdout + ran.stderr
