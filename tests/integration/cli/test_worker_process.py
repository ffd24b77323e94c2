"""`holdfast worker` as processes: signals, deaths, and what becomes of the messages."""

import json
import os
import random
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import OutgoingMessage
from holdfast.queue.backend import QueueChange, QueueSnapshot
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.policy import QueuePolicy
from tests.integration.server.process import COMMAND, STUCK, HoldfastServer, announcement, environment, holdfast
from tests.support.preloaded import Preloaded

LEASE = 2.0

# Writes a line when it begins and when it has done it: one system call each, so that lines are whole.
JOBS = """
    import os, time
    from pathlib import Path
    from holdfast.calls import Backoff
    from holdfast.queue import Delivery, Queue

    mail = Queue("mail", "sqlite:work.sqlite")

    def tell(text: str) -> None:
        file = os.open("told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{text}\\n".encode())
        os.close(file)

    @mail.handle()
    def handle(message: Delivery) -> None:
        name = message.body.decode()
        tell(f"begun {name} {message.attempt} {os.getpid()}")
        while name.startswith("wait") and not Path("go").exists():
            time.sleep(0.01)
        if name == "stuck" and message.attempt == 1:
            time.sleep(3600)
        tell(f"done {name} {message.attempt} {os.getpid()}")
"""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something that processes do; what it is."""
    deadline = time.monotonic() + STUCK
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come to be")


class Workers:
    """`holdfast worker`, which has announced itself."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.pids: list[int] = []
        with self.log.open("a") as errors:
            self.process = Preloaded(
                [*COMMAND, "worker", "jobs:mail", "--json", *words],
                cwd=folder,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def start(self) -> Self:
        """Return when they take messages."""
        self.pids = announcement(self.process, self.log)["processes"]
        return self

    def start_with_lines(self) -> Self:
        """The same where standard output is for metrics, and the announcement is in the log."""
        begun = '{"queues":'
        line = until(lambda: next((line for line in self._lines() if line.startswith(begun)), None), "announcement")
        self.pids = json.loads(line)["processes"]
        return self

    def end(self) -> None:
        """Also its processes, if it has left any: those that it announced."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for pid in self.pids:
            with suppress(OSError):  # it has ended
                if b"holdfast.cli.worker.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def told(self) -> list[list[str]]:
        file = self.folder / "told"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def begun(self, name: str, attempt: int = 1) -> int:
        """The process that began to handle a message; it is waited for."""
        wanted = ["begun", name, str(attempt)]
        line = until(lambda: next((line for line in self.told() if line[:3] == wanted), None), f"{name} begun")
        return int(line[3])

    def done(self) -> list[str]:
        return sorted(line[1] for line in self.told() if line[0] == "done")

    def messages(self) -> list[str]:
        return [entry.get("message", "") for entry in self.entries()]

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines() if line.startswith("{")]

    def _lines(self) -> list[str]:
        """Those that are written to their ends."""
        return self.log.read_text().split("\n")[:-1]

    def logged(self, text: str, times: int = 1) -> None:
        """Wait until so many entries of the log contain a text."""
        until(lambda: sum(text in message for message in self.messages()) >= times, f"{text} in the log")

    def wait(self) -> int:
        return self.process.wait(STUCK)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(textwrap.dedent(JOBS))
    with store(tmp_path) as backend:
        backend.change("mail", QueueChange(policy=QueuePolicy(lease=LEASE)), create=True)
    return tmp_path


@pytest.fixture
def begin(folder: Path) -> Iterator[Callable[..., Workers]]:
    all_workers: list[Workers] = []

    def begin(*words: str) -> Workers:
        all_workers.append(Workers(folder, *words))
        return all_workers[-1]

    yield begin
    for workers in all_workers:
        workers.end()


def store(folder: Path) -> SqlBackend:
    return SqlBackend(SqliteDatabase(folder / "work.sqlite"))


def send(folder: Path, *names: str) -> None:
    with store(folder) as backend:
        backend.send("mail", [OutgoingMessage(tenant=name, body=name.encode()) for name in names])


def look(folder: Path) -> QueueSnapshot:
    with store(folder) as backend:
        return backend.inspect("mail")


def free_ports(count: int) -> int:
    """The first of so many that nobody had a moment ago; none that the system gives to whoever asks for any."""
    while True:
        first = random.randrange(20_000, 30_000)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def scrape(port: int, path: str = "/metrics") -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=STUCK, trust_env=False)


def handled(port: int, result: str = "acked") -> int | None:
    """Messages that ended so in the process that listens there; None: nobody does, or its worker has not begun."""
    try:
        text = scrape(port).text
    except httpx.TransportError:
        return None
    lines = [
        line
        for line in text.splitlines()
        if line.startswith(f'holdfast_queue_handled_total{{queue="mail",result="{result}"}} ')
    ]
    if not lines:
        return None
    (line,) = lines
    return int(line.split()[-1])


by_processes = pytest.mark.parametrize("processes", ["1", "2"])
by_processes_and_signal = pytest.mark.parametrize(
    ("processes", "number"),
    [
        ("1", signal.SIGTERM),
        ("2", signal.SIGINT),
        pytest.param("1", signal.SIGINT, marks=pytest.mark.proof),
        pytest.param("2", signal.SIGTERM, marks=pytest.mark.proof),
    ],
)


@by_processes_and_signal
def test_told_to_stop_it_ends_what_it_began_and_hands_back_the_rest(
    folder: Path, begin: Callable[..., Workers], processes: str, number: signal.Signals
) -> None:
    workers = begin("--processes", processes, "--concurrency", "1").start()
    assert len(workers.pids) == int(processes)
    names = [f"wait-{position}" for position in range(6)]
    send(folder, *names)
    until(lambda: len(workers.told()) == int(processes), "a message in the hands of each")
    workers.process.send_signal(number)
    workers.logged("stopping", int(processes))
    until(lambda: sum(lane.leased for lane in look(folder).lanes) == int(processes), "the rest is released")
    assert len(workers.told()) == int(processes), "nothing else is begun"
    (folder / "go").touch()
    assert workers.wait() == 0
    assert len(workers.done()) == int(processes)
    lanes = look(folder).lanes
    assert (sum(lane.ready for lane in lanes), sum(lane.leased for lane in lanes)) == (6 - int(processes), 0)
    workers = begin("--until-empty")
    assert workers.wait() == 0
    assert workers.done() == names
    assert {line[2] for line in workers.told()} == {"1"}, "what was handed back was no attempt"


@by_processes
def test_a_handler_that_does_not_end_in_time_is_not_waited_for(
    folder: Path, begin: Callable[..., Workers], processes: str
) -> None:
    workers = begin("--processes", processes, "--shutdown-timeout", "0.2").start()
    send(folder, "stuck")
    workers.begun("stuck")
    workers.process.terminate()
    assert workers.wait() == 0
    assert sum(lane.ready for lane in look(folder).lanes) == 1, "it was handed back"


@by_processes
def test_a_second_interrupt_ends_it_at_once(folder: Path, begin: Callable[..., Workers], processes: str) -> None:
    workers = begin("--processes", processes, "--shutdown-timeout", "3600").start()
    send(folder, "stuck")
    workers.begun("stuck")
    workers.process.send_signal(signal.SIGINT)
    workers.logged("stopping", int(processes))
    workers.process.send_signal(signal.SIGINT)
    assert workers.wait() == 130
    assert sum(lane.leased for lane in look(folder).lanes) == 1, "there was no time to hand it back"


def test_a_process_that_is_killed_is_started_again_and_its_message_delivered_again(
    folder: Path, begin: Callable[..., Workers]
) -> None:
    workers = begin("--processes", "2").start()
    send(folder, "stuck")
    killed = workers.begun("stuck")
    assert killed in workers.pids
    os.kill(killed, signal.SIGKILL)
    workers.begun("stuck", attempt=2)
    until(lambda: workers.done() == ["stuck"], "it is done")
    workers.logged("was killed by SIGKILL: restarting it in 0.5 s")
    workers.logged("working on mail", 3)
    send(folder, *(f"message-{number}" for number in range(20)))
    until(lambda: len(workers.done()) == 21, "all are done")
    workers.process.terminate()
    assert workers.wait() == 0


@pytest.fixture
def _impatient(folder: Path) -> None:
    """Handlers have little time, a process whose handlers hang no more than that, and what hangs keeps a process."""
    (folder / "jobs.py").write_text(
        textwrap.dedent(JOBS)
        .replace("time.sleep(3600)", "threading.Thread(target=time.sleep, args=(3600,), daemon=False).start(); hang()")
        .replace("mail.handle()", "mail.handle(timeout=0.1, backoff=Backoff(base=0.0))")
        + textwrap.dedent("""
            import threading
            from holdfast.cli.worker import work

            def hang() -> None:
                time.sleep(3600)

            work.STUCK_SECONDS, work.LEAVE_SECONDS = 0.2, 1.0
        """)
    )


@pytest.mark.usefixtures("_impatient")
def test_a_process_whose_handlers_hang_ends_with_an_error(folder: Path, begin: Callable[..., Workers]) -> None:
    send(folder, "stuck")
    workers = begin("--concurrency", "1", "--until-empty")
    assert workers.wait() == 1
    told = json.loads(workers.log.read_text().splitlines()[-1])
    assert told["error"] == "error"
    assert told["detail"].startswith("all handlers of mail hang (1 per queue), and no messages are leased")
    assert begin("--concurrency", "1", "--until-empty").wait() == 0
    assert workers.done() == ["stuck"]


@pytest.mark.usefixtures("_impatient")
def test_a_process_whose_handlers_hang_is_started_anew_beside_others(
    folder: Path, begin: Callable[..., Workers]
) -> None:
    workers = begin("--concurrency", "1", "--processes", "2").start()
    send(folder, "stuck")
    workers.logged("all handlers of mail hang (1 per queue)")
    workers.logged("ended with code 1: restarting it in")
    workers.logged("working on mail", 3)
    until(lambda: workers.done() == ["stuck"], "it is done")
    workers.process.terminate()
    assert workers.wait() == 0


def test_processes_do_not_outlive_their_supervisor(folder: Path, begin: Callable[..., Workers]) -> None:
    workers = begin("--processes", "2").start()
    workers.process.kill()
    workers.logged("stopped", 2)


def test_several_processes_drain_a_queue_and_end(folder: Path, begin: Callable[..., Workers]) -> None:
    names = [f"message-{number:03}" for number in range(300)]
    send(folder, *names)
    workers = begin("--processes", "2", "--until-empty")
    assert workers.wait() == 0
    assert workers.done() == names
    assert "restarting it" not in workers.log.read_text()


def test_a_wrong_target_ends_all_processes_with_one_error(folder: Path, begin: Callable[..., Workers]) -> None:
    (folder / "jobs.py").write_text("mail = 3\n")
    workers = begin("--processes", "3")
    assert workers.wait() == 2
    assert workers.process.stdout is not None
    assert workers.process.stdout.read() == ""
    (line,) = workers.log.read_text().splitlines()
    assert json.loads(line) == {
        "error": "invalid-value",
        "detail": "jobs:mail is of type int: expected a holdfast.queue.Queue; there is no queue in jobs",
    }


def test_what_breaks_later_does_not_end_those_that_work(folder: Path, begin: Callable[..., Workers]) -> None:
    workers = begin("--processes", "2").start()
    (folder / "jobs.py").write_text("mail = 3\n")
    os.kill(workers.pids[0], signal.SIGKILL)
    workers.logged("worker process 0 cannot start: jobs:mail is of type int")
    send(folder, "message")
    assert workers.begun("message") == workers.pids[1]
    (folder / "jobs.py").write_text(textwrap.dedent(JOBS))
    workers.logged("working on mail", 3)


def test_a_store_that_cannot_be_opened_is_told_by_one_process_and_waited_for_by_several(
    folder: Path, begin: Callable[..., Workers]
) -> None:
    (folder / "jobs.py").write_text(textwrap.dedent(JOBS).replace("work.sqlite", "later/work.sqlite"))
    assert begin().wait() == 1
    assert "later/work.sqlite" in (folder / "log").read_text()
    workers = begin("--processes", "2")
    workers.logged("cannot start: ", 2)
    (folder / "later").mkdir()
    workers.start()
    workers.process.terminate()
    assert workers.wait() == 0


def test_a_zone_that_a_server_says_is_out_is_left_alone(folder: Path, begin: Callable[..., Workers]) -> None:
    send(folder, "message")
    with HoldfastServer.start(folder / "server") as server:
        words = ("--until-empty", "--zone", "use1-az1", "--endpoint", server.address)
        for change, done in (("out", []), ("in", ["message"])):
            changed = holdfast("zone", change, "use1-az1", "--reason", "gray", directory=server.directory)
            assert changed.returncode == 0, changed.stderr
            with server.client() as client:  # it reads what others wrote to its store twice a second
                while client.get("/status/use1-az1").status_code != (500 if change == "out" else 200):
                    pass
            workers = begin(*words)
            assert workers.wait() == 0
            assert workers.done() == done


class TestMetrics:
    """`--export prometheus`."""

    def test_each_process_serves_what_it_has_counted_on_a_port_of_its_own(
        self, folder: Path, begin: Callable[..., Workers]
    ) -> None:
        port = free_ports(2)
        workers = begin("--processes", "2", "--concurrency", "1", "--export", f"prometheus:{port}").start()
        assert [handled(port), handled(port + 1)] == [0, 0], "there from the start"
        send(folder, *(f"wait-{number}" for number in range(6)))
        until(lambda: len(workers.told()) == 2, "a message in the hands of each")
        (folder / "go").touch()
        until(lambda: (handled(port) or 0) + (handled(port + 1) or 0) == 6, "all are counted")
        assert 0 < (handled(port) or 0) < 6
        answer = scrape(port)
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'holdfast_queue_tenant_handled_total{queue="mail",tenant="wait-' in answer.text
        assert 'holdfast_queue_messages{queue="mail"' not in answer.text, "nobody looks how deep it is"
        assert scrape(port, "/").status_code == 404
        workers.process.terminate()
        assert workers.wait() == 0
        assert handled(port) is None

    def test_a_process_that_takes_the_place_of_another_has_its_port(
        self, folder: Path, begin: Callable[..., Workers]
    ) -> None:
        port = free_ports(2)
        workers = begin("--processes", "2", "--concurrency", "1", "--export", f"prometheus:{port}").start()
        send(folder, *(f"wait-{number}" for number in range(6)))
        until(lambda: len(workers.told()) == 2, "a message in the hands of each")
        (folder / "go").touch()
        until(lambda: (handled(port) or 0) + (handled(port + 1) or 0) == 6, "all are counted")
        before = handled(port)
        with socket.create_connection(("127.0.0.1", port + 1)):
            os.kill(workers.pids[1], signal.SIGKILL)
            until(lambda: handled(port + 1) == 0, "one that has counted nothing yet")
        assert handled(port) == before
        workers.logged("worker process 1 was killed by SIGKILL")
        workers.process.terminate()
        assert workers.wait() == 0

    def test_a_port_that_is_in_use_ends_the_command_before_a_message_is_taken(
        self, folder: Path, begin: Callable[..., Workers]
    ) -> None:
        send(folder, "message")
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            workers = begin("--export", f"prometheus:{port}", "--until-empty")
            assert workers.wait() == 3
        told = workers.entries()[-1]
        assert told["error"] == "engine-unavailable"
        assert told["detail"].startswith(f"cannot serve metrics on '127.0.0.1' port {port}: Address already in use; ")
        assert workers.told() == []
        assert sum(lane.ready for lane in look(folder).lanes) == 1

    def test_a_port_that_is_in_use_keeps_one_of_several_processes_waiting_and_not_the_others(
        self, folder: Path, begin: Callable[..., Workers]
    ) -> None:
        port = free_ports(2)
        with socket.create_server(("127.0.0.1", port + 1)):
            workers = begin("--processes", "2", "--export", f"prometheus:{port}")
            workers.logged(f"worker process 1 cannot start: cannot serve metrics on '127.0.0.1' port {port + 1}: ")
            send(folder, "message")
            workers.begun("message")
            until(lambda: handled(port) == 1, "it is counted")
        workers.start()
        assert handled(port + 1) == 0
        workers.process.terminate()
        assert workers.wait() == 0

    @by_processes
    def test_those_who_ask_and_hang_hold_up_neither_handlers_nor_the_end(
        self, folder: Path, begin: Callable[..., Workers], processes: str
    ) -> None:
        with (folder / "jobs.py").open("a") as file:  # an end that waits for them would not come
            file.write(
                "\nfrom holdfast.metrics import http_server\nhttp_server._MetricsRequestHandler.timeout = 3600\n"
            )
        port = free_ports(2)
        workers = begin("--processes", processes, "--export", f"prometheus:{port}").start()
        where = ("127.0.0.1", port)
        with socket.create_connection(where), socket.create_connection(where) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
            assert handled(port) == 0, "those who came before have been let in"
            send(folder, "message")
            until(lambda: workers.done() == ["message"], "it is done")
            workers.process.terminate()
            assert workers.wait() == 0
        workers.logged("stopped", int(processes))
        assert "kill" not in workers.log.read_text()


def lines_of(workers: Workers) -> list[dict[str, Any]]:
    """All that is on standard output, after the end."""
    assert workers.process.stdout is not None
    return [json.loads(line) for line in workers.process.stdout]


def done_in(lines: list[dict[str, Any]]) -> int:
    """Messages, by the lines of whole queues."""
    assert {line["Queue"] for line in lines} <= {"mail"}
    return sum(line["MessagesAcked"] for line in lines if "Tenant" not in line)


class TestLines:
    """`--export emf`."""

    @by_processes_and_signal
    def test_what_was_counted_is_on_standard_output_at_the_end_and_nothing_else_is(
        self, folder: Path, begin: Callable[..., Workers], processes: str, number: signal.Signals
    ) -> None:
        workers = begin("--export", "emf", "--processes", processes).start_with_lines()
        assert len(workers.pids) == int(processes)
        send(folder, *(f"wait-{position}" for position in range(6)))
        until(lambda: len(workers.told()) == 6, "all are begun")
        workers.process.send_signal(number)
        workers.logged("stopping", int(processes))
        (folder / "go").touch()
        assert workers.wait() == 0
        lines = lines_of(workers)
        assert done_in(lines) == 6, "also what was done after it was told to stop"
        (directive,) = lines[0]["_aws"]["CloudWatchMetrics"]
        assert (directive["Namespace"], directive["Dimensions"]) == ("holdfast/worker", [["Queue"]])
        assert {"Name": "MessagesAcked", "Unit": "Count"} in directive["Metrics"]
        assert {line["Tenant"] for line in lines if "Tenant" in line} == {f"wait-{position}" for position in range(6)}

    def test_people_are_told_on_standard_error_then(self, folder: Path) -> None:
        send(folder, "message")
        ran = holdfast(
            "worker", "jobs:mail", "--export", "emf", "--until-empty", "--workload", "shop", directory=folder
        )
        assert ran.returncode == 0
        assert " worker on mail\n" in ran.stderr
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        assert done_in(lines) == 1
        assert lines[0]["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "shop/worker"

    def test_lines_are_written_again_and_again_while_it_works(
        self, folder: Path, begin: Callable[..., Workers]
    ) -> None:
        with (folder / "jobs.py").open("a") as file:
            file.write(
                "\nfrom holdfast.metrics import EmfExporter\nEmfExporter.__init__.__kwdefaults__['interval'] = 0.01\n"
            )
        workers = begin("--export", "emf").start_with_lines()
        assert workers.process.stdout is not None
        output, text = workers.process.stdout.fileno(), b""
        os.set_blocking(output, False)

        def done_so_far() -> int:
            nonlocal text
            with suppress(BlockingIOError):
                text += os.read(output, 65_536)
            return done_in([json.loads(line) for line in text.split(b"\n")[:-1]])

        send(folder, "first")
        until(lambda: done_so_far() == 1, "a line on the first")
        send(folder, "second")
        until(lambda: done_so_far() == 2, "another one on the second")
        workers.process.terminate()
        assert workers.wait() == 0

    def test_both_kinds_of_metrics_and_the_log_are_told(self, folder: Path, begin: Callable[..., Workers]) -> None:
        port = free_ports(1)
        (folder / "jobs.py").write_text(
            textwrap.dedent(JOBS).replace("mail.handle()", "mail.handle(max_attempts=1)")
            + "    if name == 'bad':\n        raise ValueError(name)\n"
        )
        workers = begin("--export", "emf", "--export", f"prometheus:{port}").start_with_lines()
        send(folder, "good", "bad")
        until(lambda: (handled(port), handled(port, "buried")) == (1, 1), "they are counted")
        workers.process.terminate()
        assert workers.wait() == 0
        lines = [line for line in lines_of(workers) if "Tenant" not in line]
        assert sum(line["MessagesBuried"] for line in lines) == done_in(lines) == 1
        (entry,) = [entry for entry in workers.entries() if entry.get("result") == "buried"]
        assert entry["pid"] == workers.process.pid

    def test_a_reader_that_has_left_does_not_keep_messages_from_being_handled(
        self, folder: Path, begin: Callable[..., Workers]
    ) -> None:
        workers = begin("--export", "emf", "--processes", "2").start_with_lines()
        assert workers.process.stdout is not None
        workers.process.stdout.close()
        send(folder, "message")
        until(lambda: workers.done() == ["message"], "it is done")
        workers.process.terminate()
        assert workers.wait() == 0
        workers.logged("cannot write to standard output")


def test_every_process_says_in_the_log_who_it_is(begin: Callable[..., Workers]) -> None:
    workers = begin("--processes", "2").start()
    workers.process.terminate()
    assert workers.wait() == 0
    assert {entry["pid"] for entry in workers.entries() if entry["message"] == "working on mail"} == {*workers.pids}
