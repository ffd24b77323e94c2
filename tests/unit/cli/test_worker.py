"""`holdfast worker`: which queues it works on, until when, and what it says about what cannot be."""

import json
import logging
import os
import re
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Zone, ZoneState, ZoneStatus
from holdfast._errors import InvalidValue
from holdfast.cli.worker.supervisor import FIRST_PAUSE, MAX_PAUSE, STEADY_SECONDS, next_pause
from holdfast.cli.worker.targets import find_queues
from holdfast.cli.worker.work import STUCK_SECONDS, QueueWorker, SignalHandlers, StopRequest, WorkerTask, run_workers
from holdfast.compose import Databases, open_status_store
from holdfast.config import Settings
from holdfast.queue import Delivery, Limits, OutgoingMessage, Queue, WorkerOptions
from holdfast.queue.backend import LeaseRequest, LeaseResult, QueueChange
from tests.support.metadata import MetadataServer, reply
from tests.unit.cli.conftest import Run
from tests.unit.cli.queues import STORE, bury, fill, of, opened, taken

STUCK = 30.0

JOBS = f"""
    from pathlib import Path
    from holdfast.queue import Delivery, Queue

    mail = Queue("mail", "sqlite:{STORE}")
    reports = Queue("reports", "sqlite:{STORE}")
    idle = Queue("idle", "sqlite:{STORE}")
    number = 3

    class Shop:
        mail = mail

    @mail.handle()
    def handle(message: Delivery) -> None:
        with Path("seen").open("a") as file:
            file.write(f"mail {{message.body.decode()}}\\n")

    @reports.job
    async def report(name: str) -> None:
        with Path("seen").open("a") as file:
            file.write(f"report {{name}}\\n")
"""


@pytest.fixture(autouse=True)
def _left_as_it_was(here: Path) -> Iterator[None]:
    """Modules and the path are those of the whole process."""
    path, modules = sys.path[:], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(here)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def jobs(here: Path) -> Path:
    STORE.parent.mkdir()
    return write(here / "jobs.py", JOBS)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))
    return file


def seen(here: Path) -> list[str]:
    file = here / "seen"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def make(*queues: str) -> None:
    with opened() as backend:
        for queue in queues:
            backend.change(queue, QueueChange(), create=True)


class TestTargets:
    def test_the_only_queue_of_a_module_is_named(self, here: Path) -> None:
        write(here / "one.py", "from holdfast.queue import Queue\nmail = Queue('mail', 'memory:')\n")
        with pytest.raises(InvalidValue, match="one: expected MODULE:QUEUE; the queue in one is one:mail"):
            find_queues(["one"])

    def test_a_queue_is_found_in_a_module_of_this_folder_and_of_a_package(self, here: Path) -> None:
        write(here / "pack" / "__init__.py", "")
        write(here / "pack" / "more.py", JOBS.replace('"mail"', '"others"'))
        queues = find_queues(["jobs:mail", "jobs:reports", "pack.more:Shop.mail"])
        assert [queue.name for queue in queues] == ["mail", "reports", "others"]

    @pytest.mark.parametrize(
        ("target", "told"),
        [
            ("nix:mail", "nix:mail: there is no module nix; expected one in "),
            ("jobs.nix:mail", "jobs.nix:mail: there is no module jobs.nix; expected one in "),
            ("jobs:nix", "jobs:nix: there is no nix in jobs; queues in jobs are jobs:mail, jobs:reports, jobs:idle"),
            ("jobs:Shop.nix", "jobs:Shop.nix: there is no Shop.nix in jobs; queues in jobs are"),
            ("jobs:number", "jobs:number is of type int: expected a holdfast.queue.Queue; queues in jobs are"),
            ("jobs", "jobs: expected MODULE:QUEUE; queues in jobs are jobs:mail"),
            ("jobs:", "jobs:: expected MODULE:QUEUE; queues in jobs are jobs:mail"),
            (":mail", "':mail': expected MODULE:QUEUE, such as jobs:mail"),
            ("", "'': expected MODULE:QUEUE, such as jobs:mail"),
            ("jobs.py:mail", "jobs.py:mail: expected the name of a module, not a file"),
            ("./jobs:mail", "./jobs:mail: expected the name of a module, not a file"),
            (".jobs:mail", ".jobs:mail: .jobs is not the name of a module"),
            ("a-b:mail", "a-b:mail: a-b is not the name of a module"),
            ("jobs:idle", "jobs:idle: queue idle has no jobs and no handler; expected functions with @idle.job"),
            ("plain:x", "plain:x: there is no x in plain; there is no queue in plain"),
            ("broken:x", "broken:x: broken cannot be imported: ZeroDivisionError: division by zero ("),
            ("leaves:x", "leaves:x: leaves cannot be imported: SystemExit: 3 ("),
            ("needs:x", "needs:x: needs cannot be imported: ModuleNotFoundError: No module named 'nowhere' ("),
            ("wrong:x", "wrong:x: wrong cannot be imported: SyntaxError: "),
        ],
    )
    def test_a_wrong_target_is_told_with_what_is_wrong_and_what_there_is(
        self, run: Run, here: Path, target: str, told: str
    ) -> None:
        write(here / "plain.py", "")
        write(here / "broken.py", "\n1 / 0")
        write(here / "leaves.py", "raise SystemExit(3)")
        write(here / "needs.py", "import nowhere")
        write(here / "wrong.py", "def")
        ran = run("worker", target, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert ran.error["detail"].startswith(told)

    def test_where_an_import_fails_is_told(self, here: Path) -> None:
        write(here / "inner.py", "\n\n1 / 0")
        write(here / "outer.py", "import inner")
        with pytest.raises(InvalidValue, match=r"inner\.py, line 3\)"):
            find_queues(["outer:x"])

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            # Refused by Holdfast itself, and by the standard library that it asks.
            ("\n@mail.job\ndef twice(*addresses: str) -> None: ...", r"InvalidValue: .* \(HERE, line 6\)"),
            ("\n@mail.job(timeout=-1)\ndef late() -> None: ...", r"InvalidValue: .* \(HERE, line 6\)"),
            ("\nmail.job(dict)", r"ValueError: no signature .* \(HERE, line 6\)"),
            ("\n@mail.job\ndef odd(x: '1 +') -> None: ...", r"SyntaxError: Forward reference .* \(HERE, line 6\)"),
            ("\n\nint('x')", r"ValueError: invalid literal .* \(HERE, line 7\)"),
            ("import json\njson.loads('{')", r"JSONDecodeError: .* \(HERE, line 6\)"),
            ("x = eval('1 +')", r"SyntaxError: invalid syntax \(<string>, line 1\) \(HERE, line 5\)"),
            # Found before a line of it is run.
            ("\nx = (", r"SyntaxError: '\(' was never closed \(HERE, line 6\)"),
            ("def f():\n\tpass\n        pass", r"TabError: [^()]* \(HERE, line 7\)"),
            ("\udcff", r"SyntaxError: [^()]*\(unicode error\) 'utf-8' codec .* \(HERE[^()]*\)"),
        ],
    )
    def test_a_mistake_is_told_with_the_line_it_was_made_in(self, here: Path, text: str, told: str) -> None:
        """Not with one of Holdfast's, or of what imports the module."""
        head = 'from holdfast.queue import Queue\n\nmail = Queue("mail", "memory:")\n\n'
        file = here / "mistaken.py"
        file.write_bytes((head + text).encode(errors="surrogateescape"))
        place = re.escape(str(file))
        with pytest.raises(InvalidValue, match=f"cannot be imported: {told.replace('HERE', place)}$"):
            find_queues(["mistaken:mail"])

    def test_a_mistake_in_what_is_imported_is_told_with_its_own_line(self, here: Path) -> None:
        write(here / "inner.py", "\n\nx =")
        write(here / "outer.py", "\nimport inner")
        place = re.escape(str(here / "inner.py"))
        with pytest.raises(InvalidValue, match=rf"outer cannot be imported: SyntaxError: [^()]+ \({place}, line 3\)$"):
            find_queues(["outer:x"])

    def test_a_mistake_that_is_in_no_line_is_told_without_one(self, here: Path) -> None:
        (here / "nothing.py").write_bytes(b"x = 1\n\0")
        with pytest.raises(InvalidValue, match="source code string cannot contain null bytes") as raised:
            find_queues(["nothing:x"])
        assert "importlib" not in str(raised.value)

    def test_a_queue_has_one_worker(self, run: Run) -> None:
        ran = run("worker", "jobs:mail", "jobs:Shop.mail", "--json")
        assert ran.error["detail"] == "jobs:Shop.mail: queue mail is given twice; expected every queue once"

    def test_without_a_target_there_is_nothing_to_do(self, run: Run) -> None:
        for processes in ("1", "2"):
            ran = run("worker", "--processes", processes, "--json")
            assert ran.error["detail"] == "no queue: name one as MODULE:QUEUE, such as jobs:mail"

    @pytest.mark.parametrize(
        "words", [["--concurrency", "0"], ["--shutdown-timeout", "-1"], ["--shutdown-timeout", "nan"]]
    )
    def test_options_that_cannot_be_right_are_refused_before_anything_starts(self, run: Run, words: list[str]) -> None:
        ran = run("worker", "nix:nix", "--processes", "2", *words, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert ran.error["detail"].startswith("a worker's ")


class TestOnce:
    def test_what_waits_is_handled_and_then_it_ends(self, run: Run, here: Path) -> None:
        make("mail", "reports")
        fill("mail", *of("a", *(b"%03d" % number for number in range(200))))
        (queue,) = find_queues(["jobs:reports"])
        queue.jobs["report"].to("a").send("friday")
        queue.close()
        ran = run("worker", "jobs:mail", "jobs:reports", "--until-empty", "--json")
        assert ran.code == 0
        assert json.loads(ran.out) == {"queues": ["mail", "reports"], "processes": [os.getpid()]}
        assert seen(here) == [f"mail {number:03}" for number in range(200)] + ["report friday"]
        with opened() as backend:
            assert backend.inspect("mail").lanes == []
        messages = [json.loads(line)["message"] for line in ran.err.splitlines()]
        assert messages == ["working on mail, reports", "stopping", "stopped"]

    def test_people_are_told_on_a_line_of_its_own(self, run: Run) -> None:
        assert run("worker", "jobs:mail", "--until-empty").out.endswith(" worker on mail\n")

    def test_a_queue_that_is_not_there_yet_is_made(self, run: Run) -> None:
        assert run("worker", "jobs:mail", "--until-empty").code == 0
        with opened() as backend:
            assert backend.inspect("mail").lanes == []

    def test_what_is_dead_or_delayed_is_left(self, run: Run, here: Path) -> None:
        make("mail")
        bury("mail", *of("a", b"dead"))
        fill("mail", *of("a", b"now"), OutgoingMessage(tenant="a", body=b"later", delay=600.0))
        assert run("worker", "jobs:mail", "--until-empty").code == 0
        assert seen(here) == ["mail now"]

    def test_what_another_worker_has_leased_is_told_with_the_time_when_it_is_free_again(self, run: Run) -> None:
        make("mail")
        fill("mail", *of("a", b"leased"))
        taken("mail")
        ran = run("worker", "jobs:mail", "--until-empty")
        assert ran.code == 0
        [told] = [
            entry["message"] for line in ran.err.splitlines() if (entry := json.loads(line))["level"] == "warning"
        ]
        assert re.fullmatch(
            r"queue mail: other workers have leased 1 message; the leases of workers that died expire within 30 s, by "
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ: run this again then, or wait for them with --until-settled",
            told,
        )

    def test_what_a_dead_worker_has_leased_is_waited_for_if_wanted(self, run: Run, here: Path) -> None:
        make("mail")
        fill("mail", *of("a", b"leased"))
        taken("mail", lease=1.0)
        ran = run("worker", "jobs:mail", "--until-settled")
        assert (ran.code, seen(here)) == (0, ["mail leased"])
        assert "other workers" not in ran.err

    def test_what_is_being_handled_is_waited_for(self) -> None:
        """Also what waits behind it here: nothing waits in the queue any more, and it is not done."""
        queue, go, begun = Queue("mail", f"sqlite:{STORE}"), threading.Event(), threading.Event()

        @queue.handle()
        def handle(_: Delivery) -> None:
            begun.set()
            go.wait()

        one = QueueWorker(queue, WorkerOptions(concurrency=1), None)
        assert not one.is_drained(), "nobody has looked yet"
        queue.send(b"1", tenant="a")
        with one.worker, queue:
            assert begun.wait(STUCK)
            assert not one.is_drained()
            go.set()
            deadline = time.monotonic() + STUCK
            while not one.is_drained():
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def test_what_is_on_its_way_to_the_worker_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store has handed it out, and the worker does not have it yet."""
        queue, go, is_taken = Queue("mail", f"sqlite:{STORE}"), threading.Event(), threading.Event()
        handled: list[bytes] = []

        @queue.handle()
        def handle(message: Delivery) -> None:
            handled.append(message.body)

        lease = queue.backend.lease

        def slow_lease(want: LeaseRequest) -> LeaseResult:
            leased = lease(want)
            if leased.deliveries:
                is_taken.set()
                go.wait(STUCK)
            return leased

        monkeypatch.setattr(queue.backend, "lease", slow_lease)
        one = QueueWorker(queue, WorkerOptions(concurrency=1), None)
        with one.worker, queue:
            until(one.is_drained)
            queue.send(b"1", tenant="a")
            assert is_taken.wait(STUCK)
            assert not one.is_drained()
            go.set()
            until(one.is_drained)
            assert handled == [b"1"]

    def test_what_a_tenant_may_not_have_handled_yet_is_waited_for(self, run: Run, here: Path) -> None:
        make("mail")
        with opened() as backend:
            backend.change("mail", QueueChange(limits={"a": Limits(run_rate=20.0, run_burst=1.0)}))
        fill("mail", *of("a", *(b"%d" % number for number in range(6))))
        assert run("worker", "jobs:mail", "--until-empty").code == 0
        assert len(seen(here)) == 6


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STUCK
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestStuck:
    def test_a_worker_whose_handlers_hang_for_long_is_lost(self) -> None:
        queue, go = Queue("mail", f"sqlite:{STORE}"), threading.Event()

        @queue.handle(timeout=0.02)
        def handle(_: Delivery) -> None:
            go.wait()

        one = QueueWorker(queue, WorkerOptions(concurrency=1), None)
        assert not one.worker.is_stuck, "it has not begun"
        with one.worker, queue:
            assert not one.is_stuck_too_long(0.0)
            queue.send(b"1", tenant="a")
            until(lambda: one.worker.is_stuck)
            assert not one.is_stuck_too_long(100.0), "it has just been seen"
            assert not one.is_stuck_too_long(100.0 + STUCK_SECONDS - 0.1)
            assert one.is_stuck_too_long(100.0 + STUCK_SECONDS)
            go.set()
            until(lambda: not one.worker.is_stuck)
            assert not one.is_stuck_too_long(300.0), "handlers have returned"


def test_where_it_works_is_logged_and_that_nobody_else_can_send_to_its_memory(
    here: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.logs.configure_logging", lambda *_, **__: None)
    write(here / "there.py", "from holdfast.queue import Queue\n")
    with (here / "there.py").open("a") as file:
        for name, at in (("mail", f"sqlite:{STORE}"), ("notes", "memory:")):
            file.write(f"{name} = Queue({name!r}, {at!r})\n{name}.handle()(print)\n")
    with caplog.at_level(logging.INFO, "holdfast.worker"):
        run_workers(
            WorkerTask(targets=("there:mail", "there:notes"), concurrency=1, shutdown_timeout=1.0, until_empty=True),
            StopRequest(),
            lambda _: None,
        )
    [begun] = [record for record in caplog.records if record.message.startswith("working on")]
    assert vars(begun)["stores"] == ["memory:", f"sqlite:{Path(STORE).absolute()}"]
    assert "queue notes is in the memory of this process" in caplog.text


def test_what_fails_and_what_is_buried_is_logged_and_what_goes_well_is_not(run: Run, here: Path) -> None:
    handler = """
        from holdfast.calls import Backoff, Jitter

        # Not by chance at once, which would be another attempt before the worker ends.
        @{queue}.handle(max_attempts={max_attempts}, backoff=Backoff(base=600.0, cap=600.0, jitter=Jitter.NONE))
        def {queue}_handler(message: Delivery) -> None:
            if message.body == b"bad":
                raise ValueError("no")
    """
    text = "".join(
        textwrap.dedent(handler).format(queue=queue, max_attempts=n) for queue, n in (("mail", 1), ("idle", 2))
    )
    write(here / "failing.py", JOBS.replace("@mail.handle()", ""))
    with (here / "failing.py").open("a") as file:
        file.write(text)
    make("mail", "idle")
    _, buried = fill("mail", *of("a", b"good", b"bad"))
    _, retried = fill("idle", *of("a", b"good", b"bad"))
    ran = run("worker", "failing:mail", "failing:idle", "--until-empty")
    entries = [json.loads(line) for line in ran.err.splitlines()]
    told = {(one["level"], one["queue"], one["message_id"], one["result"]) for one in entries if "message_id" in one}
    assert told == {("warning", "mail", buried, "buried"), ("info", "idle", retried, "retried")}
    [entry] = [one for one in entries if one.get("message_id") == buried]
    assert f"message {buried} of tenant a was buried after attempt 1" in entry["message"]
    assert entry["message"].endswith(": ValueError: no")
    assert 'raise ValueError("no")\nValueError: no' in entry["exception"]


class TestZones:
    def out(self, *, is_out: bool) -> None:
        values = Settings()
        with Databases(values) as databases:
            store = open_status_store(values, databases)
            version = next((status.version for status in store.read()), 0)
            status = ZoneStatus(
                zone=Zone("use1-az1"),
                workload=None,
                state=ZoneState.OUT if is_out else ZoneState.IN,
                since=1.0,
                by="me",
                reason="gray",
                version=version,
            )
            store.write(status, version)

    def test_a_worker_takes_nothing_while_its_zone_is_out(self, run: Run, here: Path) -> None:
        make("mail")
        fill("mail", *of("a", b"1"))
        self.out(is_out=True)
        words = ("worker", "jobs:mail", "--until-empty", "--zone")
        assert run(*words, "use1-az1").code == 0
        assert seen(here) == []
        self.out(is_out=False)
        assert run(*words, "use1-az1").code == 0
        assert seen(here) == ["mail 1"]

    def test_other_zones_do_not_matter(self, run: Run, here: Path) -> None:
        make("mail")
        fill("mail", *of("a", b"1"))
        self.out(is_out=True)
        assert run("worker", "jobs:mail", "--until-empty", "--zone", "use1-az2").code == 0
        assert seen(here) == ["mail 1"]

    def test_the_zone_of_the_settings_counts(self, run: Run, here: Path) -> None:
        make("mail")
        fill("mail", *of("a", b"1"))
        self.out(is_out=True)
        (here / "holdfast.toml").write_text("[agent]\nzone = 'use1-az1'\n")
        assert run("worker", "jobs:mail", "--until-empty").code == 0
        assert seen(here) == []

    def test_a_worker_that_could_not_know_of_zones_does_not_begin(self, run: Run) -> None:
        ran = run("worker", "jobs:mail", "--until-empty", "--zone", "use1-az1", "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert "there is no store at holdfast-data/status.sqlite" in ran.error["detail"]
        assert "with --endpoint or agent.endpoints" in ran.error["detail"]

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--zone", "us-east-1a"], "us-east-1a is the name of a zone"),
            (["--zone", "use1-az1", "--workload", "a b"], "workload 'a b'"),
            (["--zone", "use1-az1", "--endpoint", "http://127.0.0.1/{workload}/{zone}"], "agent.endpoints: "),
        ],
    )
    def test_what_cannot_be_a_zone_is_refused(self, run: Run, words: list[str], told: str) -> None:
        ran = run("worker", "jobs:mail", "--until-empty", *words, "--json")
        assert ran.code == 2
        assert ran.error["detail"].startswith(told)

    @pytest.mark.parametrize(("status", "handled"), [(500, []), (200, ["mail 1"])])
    def test_a_worker_that_follows_statuses_finds_its_zone(
        self, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, status: int, handled: list[str]
    ) -> None:
        make("mail")
        fill("mail", *of("a", b"1"))
        with MetadataServer() as metadata:
            metadata.on_instance(reply("use1-az4")).on("GET /status/use1-az4", reply("{}", status))
            monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
            monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
            endpoint = f"{metadata.url}/status/{{zone}}"
            assert run("worker", "jobs:mail", "--until-empty", "--endpoint", endpoint).code == 0
        assert seen(here) == handled

    def test_a_worker_that_only_has_a_status_store_works_without_a_zone_and_says_so(
        self, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make("mail")
        fill("mail", *of("a", b"1"))
        monkeypatch.setenv("HOLDFAST_STATUS__STORE", "s3:zones")
        ran = run("worker", "jobs:mail", "--until-empty")
        assert ran.code == 0
        assert "this worker does not follow zone statuses: the AZ-ID of this process cannot be found" in ran.err
        assert seen(here) == ["mail 1"]

    def test_a_worker_that_has_servers_to_ask_does_not_begin_without_a_zone(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_AGENT__ENDPOINTS", "http://127.0.0.1:1")
        ran = run("worker", "jobs:mail", "--until-empty", "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert ran.error["detail"].startswith("the AZ-ID of this process cannot be found")

    def test_a_silent_server_keeps_nobody_from_work_and_is_told(self, run: Run, here: Path) -> None:
        make("mail")
        fill("mail", *of("a", b"1"))
        ran = run("worker", "jobs:mail", "--until-empty", "--zone", "use1-az1", "--endpoint", "http://127.0.0.1:1")
        assert ran.code == 0
        assert "zone statuses are not available yet; assuming that all zones are in" in ran.err
        assert seen(here) == ["mail 1"]


def test_settings_that_are_wrong_are_told_before_anything_is_imported(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text("[server]\nprot = 1\n")
    for processes in ("1", "2"):
        ran = run("worker", "nix:nix", "--processes", processes, "--json")
        assert (ran.code, ran.error["error"]) == (2, "settings")


class TestSignals:
    def test_one_signal_is_a_wish_and_a_second_interrupt_an_order(self) -> None:
        told: list[str] = []
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        with SignalHandlers(lambda: told.append("stop"), lambda: told.append("leave")):
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGINT):
                signal.raise_signal(number)
        assert told == ["stop", "stop", "stop", "leave"]
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


class TestRestarts:
    def test_pauses_double_up_to_a_bound(self) -> None:
        expired_leases, pauses = 0, []
        for _ in range(10):
            expired_leases, pause = next_pause(expired_leases, ran=0.1)
            pauses.append(pause)
        assert pauses[:4] == [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4, FIRST_PAUSE * 8]
        assert pauses[-1] == MAX_PAUSE

    def test_one_that_ran_for_long_is_started_again_soon(self) -> None:
        assert next_pause(9, STEADY_SECONDS) == (1, FIRST_PAUSE)
        assert next_pause(9, STEADY_SECONDS - 0.1) == (10, MAX_PAUSE)

    @given(st.integers(0, 10**6), st.floats(0, 1e9))
    def test_there_is_always_a_pause_and_never_a_long_one(self, expired_leases: int, ran: float) -> None:
        assert FIRST_PAUSE <= next_pause(expired_leases, ran)[1] <= MAX_PAUSE
