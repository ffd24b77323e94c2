"""An operator's process is killed in the middle of an evacuation: the journal on disk brings everything back.

Each kill needs a second or two: a process starts, and is killed at a call that it makes.
"""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from holdfast import Zone
from holdfast._clock import SystemClock
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.actions.zonal_shift import Account, ZonalShift
from holdfast.evacuate.journal import CLAIM_SECONDS, EntryState
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.evacuate.runner import Runner
from holdfast.simulate.aws.arc import Arc, ArcError, ReplyLost, serve
from tests.table import sampled

ZONE, OTHER = Zone("use1-az1"), Zone("use1-az2")
RESOURCES = 3
CALLS = 2 + 3 * RESOURCES
"""Calls of a whole run: two lists, then for each resource a read, a write, and a read."""


class LaterClock(SystemClock):
    """The clock of an operator who comes back after the claim of the killed process has expired."""

    def wall(self) -> float:
        return super().wall() + CLAIM_SECONDS


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return dict(os.environ)


@pytest.mark.parametrize("is_carried_out", sampled([True, False]))
@pytest.mark.parametrize("step", sampled(range(CALLS)))
def test_after_a_kill_a_restore_leaves_no_shift(
    step: int, is_carried_out: bool, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The call at which the process is killed is carried out, or not."""
    arc, numbers = Arc(SystemClock()), count()
    for number in range(RESOURCES):
        arc.add(f"arn:aws:eks:us-east-1:123456789012:cluster/{number}", ZONE, OTHER)
    file = tmp_path / "journal.db"
    with serve(arc) as url:
        command = [sys.executable, "-m", "tests.integration.evacuate.child", url, str(file)]
        child = subprocess.Popen(command, env=environment)

        def kill(_: str) -> None:
            if next(numbers) == step:
                child.kill()
                raise ReplyLost if is_carried_out else ArcError("InternalServerException", "not carried out")

        arc.faults = kill
        assert child.wait(timeout=60) == -signal.SIGKILL
        shifts_of_the_child = len(arc.shifts)
        arc.faults = lambda _: None
        options = AwsOptions(region="us-east-1", endpoint_url=url, max_attempts=1)
        with SqliteDatabase(file) as database, AwsSession(options) as session:
            journal = SqlJournal(database)
            action = ZonalShift([Account(session, "123456789012", "us-east-1")])
            for run in journal.read_runs().runs:
                report = Runner({"zonal-shift": action}, journal, LaterClock()).restore(run.id)
                assert {each.state for each in report.entries} <= {EntryState.RESTORED}
            assert journal.read_runs().runs == ()
    assert [each.status for each in arc.shifts] == ["CANCELED"] * shifts_of_the_child
