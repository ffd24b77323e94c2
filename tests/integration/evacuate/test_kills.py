"""An operator's process is killed in the middle of an evacuation: the journal on disk brings everything back.

Each kill needs a second or two: a process starts, and is killed at a call that it makes.
"""

import json
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from holdfast._clock import SystemClock
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journal import CLAIM_SECONDS, EntryState
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.evacuate.runner import Runner
from holdfast.simulate.aws.control_plane import ReplyLost, serve
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from tests.integration.evacuate.child import open_accounts
from tests.integration.server.process import COMMAND, STUCK, environment, holdfast
from tests.integration.server.test_detection import until
from tests.support.preloaded import Preloaded
from tests.table import sampled

RESOURCES = 3
CALLS = 7 + 3 * RESOURCES
"""Calls of a whole run: the account, two lists of ARC, zone names, and three other lists; then for each resource
a read, a write, and a read."""


class LaterClock(SystemClock):
    """The clock of an operator who comes back after the claim of the killed process has expired."""

    def wall(self) -> float:
        return super().wall() + CLAIM_SECONDS


@pytest.mark.parametrize("is_carried_out", sampled([True, False]))
@pytest.mark.parametrize("step", sampled(range(CALLS - 1, -1, -1)))
def test_after_a_kill_a_restore_leaves_no_shift(
    step: int, is_carried_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call at which the process is killed is carried out, or not."""
    region, numbers = SimulatedRegion(SystemClock()), count()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", region.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    for number in range(RESOURCES):
        region.add("cluster", f"shop-{number}")
    file = tmp_path / "journal.db"
    with serve([region]) as url:
        command = [sys.executable, "-m", "tests.integration.evacuate.child", url, str(file)]
        child = subprocess.Popen(command)

        def kill(_: str) -> None:
            if next(numbers) == step:
                child.kill()
                raise ReplyLost if is_carried_out else ServiceError(Refusal.THROTTLED)

        region.faults = kill
        assert child.wait(timeout=60) == -signal.SIGKILL
        shifts_of_the_child = len(region.arc.shifts)
        region.faults = lambda _: None
        with SqliteDatabase(file) as database, open_accounts(url) as accounts:
            journal = SqlJournal(database)
            runner = Runner({"zonal-shift": ZonalShift(accounts)}, journal, LaterClock())
            for run in journal.read_runs().open:
                report = runner.restore(runner.claim(run.id))
                assert {each.state for each in report.entries} <= {EntryState.RESTORED}
            assert journal.read_runs().open == ()
    assert [each.status for each in region.arc.shifts] == ["CANCELED"] * shifts_of_the_child


SETTINGS = """
[aws]
endpoint_url = "{url}"
[[evacuation.action]]
name = "zonal-shift"
"""


@pytest.mark.parametrize("command", sampled(["resume", "restore"]))
def test_a_command_that_was_killed_is_continued_or_undone_at_once(command: str, tmp_path: Path) -> None:
    """Nobody waits for the claim of a process that has ended on the same host."""
    region, numbers = SimulatedRegion(SystemClock()), count()
    for number in range(RESOURCES):
        region.add("cluster", f"shop-{number}")
    variables = {"AWS_ACCESS_KEY_ID": region.access_key, "AWS_SECRET_ACCESS_KEY": "any"}
    with serve([region]) as url:
        (tmp_path / "holdfast.toml").write_text(SETTINGS.format(url=url))
        words = ["zone", "evacuate", "use1-az1", "--reason", "it fails", "--yes", "--override", "verdict"]
        child = Preloaded([*COMMAND, *words], cwd=tmp_path, env=environment(**variables), stdout=subprocess.DEVNULL)

        def kill(operation: str) -> None:
            if operation == "StartZonalShift" and next(numbers) == 0:
                child.kill()  # this call is carried out nevertheless, but no other one that is under way
            elif operation == "StartZonalShift":
                raise ServiceError(Refusal.THROTTLED)

        region.faults = kill
        assert child.wait(STUCK) == -signal.SIGKILL
        until(lambda: len(region.arc.shifts) == 1)
        region.faults = lambda _: None
        ran = holdfast("zone", command, "use1-az1", "--json", directory=tmp_path, **variables)
    assert (ran.returncode, ran.stderr) == (0, "")
    done = {"resume": ("evacuated", "applied", "ACTIVE"), "restore": ("restored", "restored", "CANCELED")}[command]
    report = json.loads(ran.stdout)
    assert (report["run"]["state"], {each["state"] for each in report["entries"]}) == (done[0], {done[1]})
    assert {each.status for each in region.arc.shifts} == {done[2]}
    assert command == "restore" or len(region.arc.shifts) == RESOURCES
