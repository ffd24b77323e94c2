"""`holdfast aurora` shows, schedules, starts and stops runs. MiniStack executes them, and moto is the rest of AWS."""

import subprocess
import sys
import time
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
    assert f"{deployed.cluster}: db.t4g.medium at 19:15 Europe/Berlin, by {deployed.cluster}_" in down.out
    assert "custom endpoints: could not be checked" in down.err
    up = run("aurora", "schedule", *common, "--class", OLD, "--at", "07:00", "--force", "--json").result
    assert (up["target_class"], up["time"], up["timezone"]) == (OLD, "07:00", "Asia/Tokyo")
    day = (datetime.now(UTC) + timedelta(days=3)).strftime("%a").lower()
    deployed.session.client("rds").modify_db_cluster(
        DBClusterIdentifier=deployed.cluster, PreferredMaintenanceWindow=f"{day}:10:30-{day}:11:00"
    )
    daily = run("aurora", "schedule", *common, "--class", NEW, "--at", "19:15")  # 10:15 UTC, on that day, too
    assert f"would overlap the maintenance window {day}:10:30-{day}:11:00" in daily.err
    shown = run("aurora", "clusters", "--prefix", deployed.prefix).out
    assert "db.r6g.large at 07:00 Asia/Tokyo" in shown
    ended = run("aurora", "unschedule", *common)
    assert "19:15 Europe/Berlin" in ended.out
    assert run("aurora", "unschedule", *common, "--json").error["error"] == "not-found"


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
    assert "2 instances are changed, in about 0:44:00" in shown.out
    assert "saving per month: 96.00 (146.00 by instances, minus 50.00 for the network); reserved" in shown.out
    assert "refused" not in shown.out
    assert run("aurora", "history", deployed.cluster, "--prefix", deployed.prefix, "--json").result == []
    half = start_run(run, deployed, "--dry-run", "--old-price", "0.3", "--json")
    assert (half.code, "belong together" in half.error["detail"]) == (2, True)


def test_a_run_is_refused_with_all_reasons_and_force_ignores_only_warnings(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING, connections=5000.0)
    error = start_run(run, deployed, "--force", "--json").error
    assert error["detail"].startswith("refused: connections: ")
    assert "the run would be refused" in start_run(run, deployed, "--dry-run").out
    warned = start_run(run, deployed, "--max-connections", "9000", "--json").error
    assert "which --force ignores: " in warned["detail"]
    started = start_run(run, deployed, "--max-connections", "9000", "--force", "--json").result
    assert (started["cluster"], started["status"]) == (deployed.cluster, "RUNNING")


def test_a_run_is_shown_until_when_it_waits_and_stopped(run: Run, deploy: Deploy) -> None:
    deployed = deploy(WAITING)
    common = (deployed.cluster, "--prefix", deployed.prefix)
    assert f"{deployed.cluster} had no run" in run("aurora", "status", *common).out
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
    assert "the lock is free\na change that RDS has begun goes on" in stopped.out
    assert "stopped at WaitForFailover" in run("aurora", "history", *common).out
    assert run("aurora", "status", "--prefix", deployed.prefix).out == "no run is in progress\n"
    assert run("aurora", "stop", *common, "--json").error["error"] == "not-found"


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
    [(COMPLETED, "completed"), (SKIPPED, "skipped, because another run was in progress"), (FAILED, None)],
    ids=["completed", "skipped", "failed"],
)
def test_the_end_of_a_run_is_told(
    run: Run, deploy: Deploy, monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any], end: str | None
) -> None:
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.05)
    deployed = deploy(machine)
    ended = start_run(run, deployed, "--force", "--wait", "--json")
    if end is None:
        assert "failed at FailoverStatusError" in ended.error["detail"]
    else:
        assert ended.result["end"] == end
    [own] = run("aurora", "history", deployed.cluster, "--prefix", deployed.prefix, "--json").result
    assert own["ended_at"] >= own["started_at"]


@pytest.mark.parametrize(
    ("words", "said"), [("--help", "aurora"), ("aurora clusters --prefix shop", "needs the extra 'aws'")]
)
def test_without_boto3_the_help_is_shown_and_commands_say_what_to_install(words: str, said: str) -> None:
    code = "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None; from holdfast.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True)
    assert said in ran.stdout + ran.stderr
