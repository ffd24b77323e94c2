"""Evacuate, resume and restore a zone with all actions, each in a process that a test can kill at any write.

    python -m tests.integration.evacuate.commands URL SOCKET CLOCK

opens its AWS clients once, which takes a second, and then forks for every line `COMMAND DATABASE` of its standard
input. When the fork has ended, it prints the exit code.

Each fork connects to SOCKET, and sends its pid. Before each write to the database it sends `begin NAME` and waits for a
number; after the write it sends `end NUMBER` and waits again. So the test decides at which write the fork ends.
"""

import gc
import mmap
import os
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from holdfast import Zone, ZoneStatus
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate import Evacuator
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.guards import GuardName
from holdfast.evacuate.journal import Entry, RecordedRuns, Run
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.writer import StatusWriter
from holdfast.testing import FakeClock
from tests.unit.evacuate.fleet import ZONE
from tests.unit.evacuate.shop import open_all_actions

SERVICES = (
    "application-autoscaling",
    "arc-zonal-shift",
    "autoscaling",
    "cloudwatch",
    "ec2",
    "ecs",
    "eks",
    "elbv2",
    "lambda",
    "sts",
)


class SharedClock(FakeClock):
    """A clock that processes share through a file with one number. A sleep takes no time, and advances the clock.

    Threads that sleep at the same time wake up as if the time had passed for all of them. Only one process sleeps at a
    time, so the file needs no lock.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        if not file.exists():
            file.write_bytes(struct.pack("d", super().wall()))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), struct.calcsize("d"))
        self._writing = threading.Lock()

    def wall(self) -> float:
        (now,) = struct.unpack_from("d", self._shared)
        return float(now)

    def monotonic(self) -> float:
        return self.wall()

    def sleep(self, seconds: float) -> None:
        due = self.wall() + seconds
        with self._writing:
            struct.pack_into("d", self._shared, 0, max(due, self.wall()))


class Supervisor:
    """The test that started this process, and may kill it at a write. Thread-safe."""

    def __init__(self, address: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        self._stream = self._connection.makefile("rw")
        self._lock = threading.Lock()
        self._ask(str(os.getpid()))

    @contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """Tell the test of a write: before it, and after it."""
        number = self._ask(f"begin {name}")
        yield
        self._ask(f"end {number}")

    def close(self) -> None:
        """Tell the test that no more writes follow."""
        self._stream.close()
        self._connection.close()

    def _ask(self, message: str) -> str:
        with self._lock:
            self._stream.write(f"{message}\n")
            self._stream.flush()
            return self._stream.readline().strip()


class WatchedJournal(SqlJournal):
    """A journal whose writes a supervisor watches."""

    def __init__(self, database: SqliteDatabase, supervisor: Supervisor) -> None:
        super().__init__(database)
        self._supervisor = supervisor

    def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
        with self._supervisor.watch("write runs"):
            return super().write_runs(runs, expected)

    def write_entries(self, entries: Sequence[Entry]) -> None:
        with self._supervisor.watch("write entries") if entries else nullcontext():
            super().write_entries(entries)

    def delete_entries(self, entries: Sequence[Entry]) -> None:
        with self._supervisor.watch("delete entries") if entries else nullcontext():
            super().delete_entries(entries)


class WatchedStatusStore(SqlStatusStore):
    """A status store whose writes a supervisor watches."""

    def __init__(self, database: SqliteDatabase, supervisor: Supervisor) -> None:
        super().__init__(database)
        self._supervisor = supervisor

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        with self._supervisor.watch("write status"):
            return super().write(status, expected)


def run(command: str, evacuator: Evacuator) -> None:
    """Begin an evacuation, or resume or restore those that are open."""
    if command == "evacuate":
        overrides = {str(each): "a test" for each in (GuardName.VERDICT, GuardName.CAPACITY)}
        proposal = evacuator.prepare(ZONE, reason="requests fail", overrides=overrides, lists_unmovable=False)
        evacuator.evacuate(*evacuator.begin(proposal, by="me@here"))
        return
    for each in evacuator.read_runs().open:
        claim = evacuator.claim(each)
        if command == "resume":
            evacuator.resume(claim)
        else:
            evacuator.restore(claim)


def run_in_this_process(command: str, file: str, address: str, accounts: Accounts, clock: FakeClock) -> None:
    """Carry out one command, with the journal and the statuses in one database."""
    with closing(Supervisor(address)) as supervisor, SqliteDatabase(Path(file)) as database:
        store = WatchedStatusStore(database, supervisor)
        actions = open_all_actions(clock, accounts, StatusWriter(store, clock))
        run(command, Evacuator(actions, WatchedJournal(database, supervisor), store, clock))


def main(url: str, address: str, clock_file: str) -> None:
    """Fork for every line of standard input."""
    clock = SharedClock(Path(clock_file))
    session = AwsSession(AwsOptions(region="us-east-1", endpoint_url=url, max_attempts=1))
    for service in SERVICES:
        session.client(service)

    def find_region(_: Zone) -> str:
        return "us-east-1"

    accounts = Accounts([("the default account", lambda *_: session)], find_region)
    gc.freeze()  # so that collections in the forks do not copy the memory that they share
    for line in sys.stdin:
        command, file = line.split()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run_in_this_process(command, file, address, accounts, clock)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
