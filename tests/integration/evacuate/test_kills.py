"""An operator's process is killed in the middle of an evacuation: the journal on disk brings everything back.

Each kill needs a second or two: a process starts, and is killed at a call that it makes.
"""

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
