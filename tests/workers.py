"""Run tests in several processes, all of them forks of the one that collected the tests.

A pytest plugin, active with `--workers 5`. Collecting takes seconds of a core, and so do the imports of all tests: one
process does it for all. It hands out the tests and receives their reports. If a worker dies, the test that it ran has
failed, and a new worker takes its place. If the end of a worker's session fails, its last test has failed.
"""

import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, Literal, NoReturn, TypeVar

import pytest
from _pytest import junitxml
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory
from _pytest.unraisableexception import collect_unraisable

from tests.parts import group_of

END_SECONDS = 20.0
"""How long workers may take to tear down their fixtures when the run is interrupted, until they are killed."""

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N processes; 0: in this one")


@pytest.fixture(scope="session")
def worker_id(pytestconfig: pytest.Config) -> str:
    """The name of this worker, or `main` if there is none."""
    return str(getattr(pytestconfig, "workerinput", {}).get("workerid", "main"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    workers = min(option.workers, len(session.items))
    if workers < 1 or option.collectonly or option.usepdb or session.testsfailed:
        return None  # pytest does it alone
    with Controller(session, workers) as controller:
        controller.run()
    return True


def take(groups: deque[list[T]], workers: int) -> list[T]:
    """Remove the tests from `groups` that the next idle worker runs: the first group, or near the end a part of it."""
    if not groups:
        return []
    most = max(1, sum(map(len, groups)) // (2 * workers))
    group = groups.popleft()
    if len(group) > most:
        groups.appendleft(group[most:])
    return group[:most]


def in_groups(values: Iterable[T], key: Callable[[T], Hashable]) -> deque[list[T]]:
    """Return neighbours that have the same `key` as groups."""
    return deque(list(group) for _, group in groupby(values, key))


class Node:
    """A worker, as pytest knows it: printed above failures and with `-v`, and a key of a table for `--junitxml`."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self._workerinfocache = f"[{name}]"


@dataclass(eq=False)
class Worker:
    """A worker, as the controller knows it: the tests that it has and has not finished, by their index."""

    name: str
    pid: int
    connection: Connection
    unfinished: deque[int] = field(default_factory=deque)
    last_finished: int | None = None
    is_told_to_end: bool = False
    traceback: str = ""
    """Why it fails, if it could tell."""

    def __post_init__(self) -> None:
        self.node = Node(self.name)


class Controller:
    """Hands out the tests of a session to workers, and passes their reports to the plugins of this process."""

    def __init__(self, session: pytest.Session, workers: int) -> None:
        self._session = session
        self._hook = session.config.hook
        self._count = workers
        self._groups = in_groups(range(len(session.items)), lambda index: group_of(session.items[index].nodeid))
        self._names = (f"gw{number}" for number in count())
        self._workers: dict[Connection, Worker] = {}

    def __enter__(self) -> "Controller":
        # Each worker has a folder in it.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for _ in range(self._count):
            self._fork()
        return self

    def run(self) -> None:
        """Return when all tests have run. Raise what pytest raises if it is to stop before that."""
        while self._workers:
            for connection in wait(list(self._workers)):
                self._receive(self._workers[connection])  # type: ignore[index]
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)
            if self._session.shouldstop:
                raise self._session.Interrupted(self._session.shouldstop)

    def __exit__(self, *_: object) -> None:
        """Interrupt the workers that are left, and wait for them."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGINT)
            worker.connection.close()  # else it could wait until its reports are received
        deadline = time.monotonic() + END_SECONDS
        for worker in self._workers.values():
            while os.waitpid(worker.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(worker.pid, signal.SIGKILL)
                time.sleep(0.01)

    def _fork(self) -> None:
        if threading.active_count() > 1:
            raise RuntimeError(f"a fork would lose threads, and keep their locks: {threading.enumerate()}")
        self._session.config.pluginmanager.getplugin("terminalreporter").flush()  # else the worker prints it again
        name = next(self._names)
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self._workers):
                connection.close()  # else no worker would notice that this process has ended
            work(self._session, name, theirs)
        theirs.close()
        self._workers[ours] = Worker(name, pid, ours)

    def _receive(self, worker: Worker) -> None:
        try:
            kind, *content = worker.connection.recv()
        except (EOFError, OSError):
            self._reap(worker)
            return
        if kind == "idle":
            indexes = take(self._groups, self._count)
            worker.unfinished.extend(indexes)
            worker.is_told_to_end = not indexes
            worker.connection.send(indexes)
        elif kind == "warning":
            text, category, filename, lineno, when, nodeid, location = content
            message = warnings.WarningMessage(text, type(category, (Warning,), {}), filename, lineno)
            values = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            self._hook.pytest_warning_recorded.call_historic(kwargs=values)
        elif kind == "failure":
            (worker.traceback,) = content
        elif kind == "exit":
            raise pytest.exit.Exception(*content)
        else:
            worker.last_finished = worker.unfinished.popleft()
            for data in content:
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=data)
                self._log(worker, report)

    def _reap(self, worker: Worker) -> None:
        """Find out why `worker` has ended. If it was not told to, replace it."""
        del self._workers[worker.connection]
        worker.connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.unfinished:
            self._fail(worker, worker.unfinished.popleft(), "call", f"while it ran this test, with exit code {code}")
            if worker.unfinished:
                self._groups.appendleft(list(worker.unfinished))
        elif code or not worker.is_told_to_end:
            if worker.last_finished is None:  # the worker that replaces it would probably end, too
                raise RuntimeError(f"the worker {worker.name} ended before its first test\n{worker.traceback}")
            self._fail(worker, worker.last_finished, "teardown", f"after this test, with exit code {code}")
        if self._groups and not worker.is_told_to_end:
            self._fork()

    def _fail(self, worker: Worker, index: int, phase: Literal["call", "teardown"], when: str) -> None:
        item = self._session.items[index]
        why = f"the worker {worker.name} ended {when}\n{worker.traceback}"
        self._log(worker, pytest.TestReport(item.nodeid, item.location, {}, "failed", why, phase))

    def _log(self, worker: Worker, report: pytest.TestReport) -> None:
        report.node = worker.node  # type: ignore[attr-defined]
        self._hook.pytest_runtest_logreport(report=report)


def work(session: pytest.Session, name: str, connection: Connection) -> NoReturn:
    """Be a worker: run the tests that the controller hands out, and end this process."""
    # A process that a test forks would keep the pipe open, and the controller would not notice that this one has ended.
    os.register_at_fork(after_in_child=connection.close)
    code = 1
    reporter = Reporter(session.config, connection)
    try:
        begin(session.config, name)
        session.config.pluginmanager.register(reporter, "reporter")
        run(session, reporter)
        end(session)
        code = 0
    except BaseException:
        reporter.fail(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # neither the exit functions nor the fixtures of the process that it was forked from


def begin(config: pytest.Config, name: str) -> None:
    """Let this process have its own capture, temporary folder and name, and write nothing to the terminal."""
    config.workerinput = {"workerid": name}  # type: ignore[attr-defined]
    config.pluginmanager.unregister(name="terminalreporter")
    junitxml.pytest_unconfigure(config)  # the controller writes that file
    capture: CaptureManager = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.option.basetemp = config._tmp_path_factory.getbasetemp() / name  # type: ignore[attr-defined]
    config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]


def run(session: pytest.Session, reporter: "Reporter") -> None:
    """Run the tests that the controller hands out until there are no more, or the run is interrupted."""
    with suppress(ControllerGone, KeyboardInterrupt):
        try:
            while indexes := reporter.ask():
                items = [session.items[index] for index in indexes]
                # After the last one, only the session's fixtures stay: no test waits here until its worker is idle.
                for item, following in zip(items, [*items[1:], session], strict=True):
                    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    reporter.finish()
        except pytest.exit.Exception as error:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller interrupts all workers, this one as well
            reporter.send("exit", error.msg, error.returncode)


def end(session: pytest.Session) -> None:
    """Tear down all fixtures that are left. Raise if one fails, or if an object of a test could not be finalized."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller kills a worker that takes too long
    session._setupstate.teardown_exact(None)
    gc.collect()
    collect_unraisable(session.config)
    session.config.hook.pytest_sessionfinish(session=session, exitstatus=int(session.testsfailed > 0))


class ControllerGone(Exception):
    """The controller has ended, or does not listen any more because the run was interrupted."""


class Reporter:
    """Sends the reports of a worker to the controller, those of one test together."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reports: list[Any] = []

    def ask(self) -> list[int]:
        """Return the tests to run next, by their index."""
        self.send("idle")
        try:
            indexes: list[int] = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ControllerGone from error
        return indexes

    def finish(self) -> None:
        """Send the reports of the test that has ended."""
        self.send("reports", *self._reports)
        self._reports.clear()

    def fail(self, text: str) -> None:
        """Send the traceback of the error that ends this worker, or print it if the controller is gone."""
        try:
            self.send("failure", text)
        except ControllerGone:
            print(text, file=sys.stderr)

    def send(self, kind: str, *content: object) -> None:
        """Send a message to the controller, or raise ControllerGone."""
        try:
            self._connection.send((kind, *content))
        except OSError as error:
            raise ControllerGone from error

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        warned = warning_message
        # As text, because not every warning and not every class of one can be pickled.
        content = (str(warned.message), warned.category.__name__, warned.filename, warned.lineno)
        self.send("warning", *content, when, nodeid, location)
