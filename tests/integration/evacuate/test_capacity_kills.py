"""A process that evacuates a zone with all actions is killed at every write, in turn: the journal brings all back.

A kill at a read leaves the same state as a kill after the write before it. So only writes are counted: calls that
change something in AWS or Kubernetes, and writes to the journal and to the status store. The process is killed before
the write is carried out, or afterwards, but before the reply.

A test needs a second, because it runs two or three processes one after the other. The first one also waits until a
process has opened its AWS clients, for two seconds.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.simulate.aws import control_plane
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.simulate.kubernetes import ApiError
from holdfast.simulate.kubernetes import serve as serve_cluster
from holdfast.simulate.kubernetes_state import GRACE_SECONDS
from holdfast.status.stores.database import SqlStatusStore
from holdfast.status.writer import find_states
from tests.integration.evacuate.commands import SharedClock
from tests.integration.server.process import STUCK, environment
from tests.integration.server.test_detection import until
from tests.support.preloaded import ROOT, Preloaded
from tests.table import sampled
from tests.unit.evacuate.fleet import ZONE
from tests.unit.evacuate.shop import Shop

EVACUATION_WRITES, RESTORE_WRITES = 34, 30
"""The writes of a whole evacuation, and of a whole restore."""
_READS = ("Describe", "Get", "List", "GET ")


class KillPoint(NamedTuple):
    """The write at which a process is killed."""

    number: int
    is_carried_out: bool

    def __str__(self) -> str:
        return f"{'after' if self.is_carried_out else 'before'} write {self.number}"


def list_points(writes: int) -> list[KillPoint]:
    """Return all kill points of a command, those in the middle first."""
    numbers = sorted(range(writes), key=lambda each: abs(each - writes // 2))
    return [KillPoint(number, is_carried_out) for number in numbers for is_carried_out in (True, False)]


class Writes:
    """Counts the writes of one process, and kills it at one of them. Thread-safe."""

    def __init__(self, kill_at: KillPoint | None) -> None:
        self.names: list[str] = []
        self.pid = 0
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def call(self, name: str, refusal: Exception) -> None:
        """Note a call to AWS or Kubernetes before it is carried out. See `SimulatedRegion.faults`."""
        if name.startswith(_READS) or not self.is_last(self.add(name)):
            return
        self.kill()
        assert self._kill_at is not None
        raise ReplyLost if self._kill_at.is_carried_out else refusal

    def answer(self, message: str) -> str:
        """Note a message of the process about a write to its database. Return the reply; "" after a kill."""
        kind, _, name = message.partition(" ")
        number = self.add(name) if kind == "begin" else int(name)
        if self.is_last(number) and self._kill_at == KillPoint(number, kind == "end"):
            self.kill()
            return ""
        return str(number)

    def add(self, name: str) -> int:
        """Count a write, and return its number."""
        with self._lock:
            self.names.append(name)
            return len(self.names) - 1

    def is_last(self, number: int) -> bool:
        """Return whether the process is killed at the write with a number."""
        return self._kill_at is not None and self._kill_at.number == number

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)


class Commands:
    """Runs commands in processes of their own. See `tests.integration.evacuate.commands`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.clock = SharedClock(folder / "clock")
        self.regions = [SimulatedRegion(self.clock)]
        self.url = stack.enter_context(control_plane.serve(self.regions))
        self._listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(folder / "socket"))
        self._listener.listen()
        self._listener.settimeout(STUCK)
        words = [sys.executable, "-m", "tests.integration.evacuate.commands", self.url]
        variables = environment(AWS_ACCESS_KEY_ID=self.regions[0].access_key, AWS_SECRET_ACCESS_KEY="any")
        pipe = subprocess.PIPE
        program = Preloaded(
            [*words, str(folder / "socket"), str(folder / "clock")],
            cwd=ROOT,
            env=variables,
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        self._program = stack.enter_context(program)  # it ends when its standard input is closed

    def run(self, command: str, file: Path, writes: Writes) -> int:
        """Run one command to its end, and return its exit code."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{command} {file}\n")
        self._program.stdin.flush()
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rw") as stream, suppress(ConnectionError):
            writes.pid = int(stream.readline())
            reply = "start"
            while reply:
                stream.write(f"{reply}\n")
                stream.flush()
                message = stream.readline()
                reply = writes.answer(message.strip()) if message else ""
        return int(self._program.stdout.readline())


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with ExitStack() as stack:
        yield Commands(tmp_path_factory.mktemp("commands"), stack)


class Operator:
    """Evacuates and restores the shop, with one database for journal and statuses."""

    def __init__(self, commands: Commands, file: Path, stack: ExitStack) -> None:
        self.shop = Shop(commands.clock)
        commands.regions[:] = [self.shop.region]
        self._cluster_url = stack.enter_context(serve_cluster(self.shop.cluster))
        self.shop.serve_at(self._cluster_url)
        self._commands, self._file = commands, file
        self.before = self.copy_all()

    def run(self, command: str, kill_at: KillPoint | None = None) -> list[str]:
        """Run one command, and return the names of its writes. With a kill point, it must be killed there."""
        writes, known = Writes(kill_at), set(threading.enumerate())
        self.shop.region.faults = lambda name: writes.call(name, ServiceError(Refusal.THROTTLED))
        self.shop.cluster.faults = lambda name: writes.call(name, ApiError(503))
        code = self._commands.run(command, self._file, writes)
        assert code == (0 if kill_at is None else -signal.SIGKILL)
        # Requests that the process had sent when it was killed are carried out, too, before another process begins.
        for url in (self._commands.url, self._cluster_url):
            wait_until_accepted(url)
        until(lambda: set(threading.enumerate()) <= known)
        return writes.names

    def copy_all(self) -> dict[str, Any]:
        """Return the whole configuration, and the zones that are not in."""
        with SqliteDatabase(self._file) as database:
            states = find_states(SqlStatusStore(database).read(), None, self._commands.clock.wall())
        return {**self.shop.copy_configuration(), "zones": {str(zone): str(each) for zone, each in states.items()}}

    def read_journal(self) -> tuple[int, list[Entry]]:
        """Return the number of open runs, and all entries."""
        with SqliteDatabase(self._file) as database:
            journal = SqlJournal(database)
            return len(journal.read_runs().open), list(journal.read_entries())

    def check_restored(self) -> None:
        """Fail unless everything is as it was at first, and no run is open."""
        assert self.copy_all() == self.before
        number, entries = self.read_journal()
        assert (number, {each.state for each in entries} - {EntryState.RESTORED}) == (0, set())

    def check_moved(self) -> None:
        """Fail unless everything has left the zone, and is recorded in one open run."""
        self._commands.clock.sleep(GRACE_SECONDS)  # evicted pods end
        assert (self.shop.find_left(), self.copy_all()["zones"]) == ([], {str(ZONE): "out"})
        number, entries = self.read_journal()
        assert (number, {each.state for each in entries}) == (1, {EntryState.APPLIED})


def wait_until_accepted(url: str) -> None:
    """Return when a server has accepted all connections that were made before. It accepts them in their order."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=STUCK)
    connection.request("GET", "/", headers={"connection": "close"})
    connection.getresponse().read()
    connection.close()


@pytest.fixture
def operator(commands: Commands, tmp_path: Path) -> Iterator[Operator]:
    with ExitStack() as stack:
        yield Operator(commands, tmp_path / "holdfast.db", stack)


def test_the_number_of_writes_is_known(operator: Operator) -> None:
    """So that the other tests kill a process at each of them."""
    evacuation = operator.run("evacuate")
    operator.check_moved()
    restore = operator.run("restore")
    operator.check_restored()
    numbers = EVACUATION_WRITES, RESTORE_WRITES
    assert (len(evacuation), len(restore)) == numbers, f"correct the numbers: {evacuation}, {restore}"


@pytest.mark.parametrize("point", sampled(list_points(EVACUATION_WRITES)), ids=str)
def test_a_killed_evacuation_is_undone_completely(operator: Operator, point: KillPoint) -> None:
    operator.run("evacuate", point)
    operator.run("restore")
    operator.check_restored()


@pytest.mark.parametrize("point", sampled(list_points(EVACUATION_WRITES)), ids=str)
def test_a_killed_evacuation_is_completed_when_it_is_resumed(operator: Operator, point: KillPoint) -> None:
    """If it was killed before it was recorded, there is nothing to resume, and nothing was changed."""
    operator.run("evacuate", point)
    if operator.read_journal() == (0, []):
        assert (point, operator.copy_all()) == (KillPoint(0, False), operator.before)
        return
    operator.run("resume")
    operator.check_moved()
    operator.run("restore")
    operator.check_restored()


@pytest.mark.parametrize("point", sampled(list_points(RESTORE_WRITES)), ids=str)
def test_a_killed_restore_is_completed_by_the_next_one(operator: Operator, point: KillPoint) -> None:
    operator.run("evacuate")
    operator.run("restore", point)
    operator.run("restore")
    operator.check_restored()
