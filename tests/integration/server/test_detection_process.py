"""The supervisor of the detection process, with children that misbehave in every way that a real one might."""

import asyncio
import gzip
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import uvloop

from holdfast import EngineUnavailable, InvalidValue, VerdictKind, Zone, ZoneState
from holdfast._process import ProcessIdentity, encode_identity
from holdfast.config import Settings, WorkloadSettings
from holdfast.config.settings import DatabaseSettings
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.detection import process
from holdfast.server.detection.child import Channel, decompress
from holdfast.server.detection.lease import DetectionLease
from holdfast.server.detection.messages import IngestResult, ReadStates
from holdfast.server.detection.process import OUTDATED, RESTARTING, STANDBY, DetectionProcess
from holdfast.telemetry.query import SeriesQuery
from holdfast.testing import FakeClock
from holdfast.watch.lease import LeaseStore
from tests.integration.server.process import STUCK

QUERY = SeriesQuery(workload="shop", start=0, end=60)
PROLOGUE = """
import pathlib, sys, time
import msgspec
from holdfast._types import Verdict, VerdictKind
from holdfast.server.detection.messages import *
from holdfast.watch import CurrentVerdict

folder = pathlib.Path(sys.argv[1])
run = len(list(folder.glob("run-*"))) + 1
(folder / f"run-{run}").touch()

def send(message):
    sys.stdout.buffer.write(encode_message(message))
    sys.stdout.buffer.flush()

def read():
    length = sys.stdin.buffer.read(4)
    return decode_to_child(sys.stdin.buffer.read(LENGTH.unpack(length)[0])) if length else sys.exit()

def work():
    send(Ready())
    while True:
        message = read()
        if isinstance(message, Ingest):
            send(Answer(message.number, msgspec.msgpack.encode(IngestResult(7, 0))))
        elif isinstance(message, Answer):
            (folder / f"answer-{run}").touch()

"""


class Handler:
    """Knows zone states once it is released."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.released = threading.Event()

    def read_states(self, workload: str) -> Mapping[Zone, ZoneState]:
        self.is_asked.set()
        self.released.wait(STUCK)
        return {}

    def evacuate(self, verdict: object, zones: object) -> None: ...


class Supervised:
    """A detection process whose child is a script, and all that it publishes."""

    def __init__(
        self, folder: Path, script: str | None, monkeypatch: pytest.MonkeyPatch, lease: DetectionLease | None = None
    ) -> None:
        if script is not None:
            monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", PROLOGUE + script, str(folder)))
        self.handler = Handler()
        self.clock = FakeClock()
        self.published: list[tuple[str, bytes]] = []
        workload = WorkloadSettings(name="shop", region="us-east-1", zones=("use1-az1", "use1-az2"))
        settings = Settings(workload=(workload,), data_directory=folder, database=DatabaseSettings(timeout=0.1))
        self.process = DetectionProcess(
            settings,
            self.handler,
            lambda *event: self.published.append(event),
            clock=self.clock,
            lease=lease,
            answer_stored=lambda query: f"stored measurements of {query.workload}".encode(),
        )

    def run(
        self,
        test: Callable[[DetectionProcess], Coroutine[Any, Any, None]],
        runner: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
    ) -> None:
        async def start_and_stop() -> None:
            async with asyncio.timeout(STUCK):
                await self.process.start()
                try:
                    await test(self.process)
                finally:
                    self.handler.released.set()
                    await self.process.close()

        runner(start_and_stop())

    @property
    def verdict(self) -> tuple[VerdictKind, str]:
        verdict = self.process.current_verdicts()["shop"]
        return verdict.kind, verdict.summary


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 - the child is another process
        await asyncio.sleep(0.01)


async def ingest(detection: DetectionProcess, body: bytes = b"{}") -> IngestResult:
    return await detection.ingest(body, is_gzip=False, sender="sender", allowed=None, batch=None)


@pytest.mark.parametrize(
    "fails",
    [
        "sys.stdout.buffer.write(LENGTH.pack(5) + b'hello'); sys.stdout.buffer.flush(); time.sleep(60)",
        "send(Ready()); send(Event('current', b'no verdict')); time.sleep(60)",
        "send(Ready()); time.sleep(60)",  # as if it were stopped
        "time.sleep(60)",
        "send(Ready())",
        "sys.exit(1)",
    ],
)
def test_a_child_that_fails_in_any_way_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setattr(process, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(process, "LOAD_SECONDS", 5.0 if "Ready" in fails else 1.0)
    monkeypatch.setattr(process, "STOP_SECONDS", 0.1)
    script = f"if run == 1:\n    {fails}\nelse:\n    work()"

    async def test(detection: DetectionProcess) -> None:
        await until(lambda: detection.restarts > 0)
        monkeypatch.setattr(process, "SILENT_SECONDS", STUCK)
        monkeypatch.setattr(process, "LOAD_SECONDS", STUCK)
        await until(lambda: detection.is_running)
        assert (await ingest(detection)).accepted == 7

    Supervised(tmp_path, script, monkeypatch).run(test)


def test_a_child_that_does_not_answer_delays_no_sender_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.1)

    async def test(detection: DetectionProcess) -> None:
        with pytest.raises(EngineUnavailable, match=r"did not answer within 0\.1 s"):
            await ingest(detection)

    Supervised(tmp_path, "send(Ready())\nwhile True: read()", monkeypatch).run(test)


def test_a_child_that_has_just_ended_is_unavailable_in_the_loop_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(detection: DetectionProcess) -> None:
        child = detection._child
        assert child is not None
        assert child.stdin is not None
        child.stdin.transport.abort()
        await asyncio.sleep(0)  # the loop closes it, and the end of the child is not known yet
        with pytest.raises(EngineUnavailable):
            await ingest(detection)

    Supervised(tmp_path, "work()", monkeypatch).run(test, uvloop.run)


def test_queries_that_wait_keep_no_telemetry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_QUERIES", 2)

    async def test(detection: DetectionProcess) -> None:
        slow = [asyncio.create_task(detection.answer(QUERY)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(EngineUnavailable, match="2 requests are waiting"):
            await detection.answer(QUERY)
        assert (await ingest(detection)).accepted == 7
        for each in slow:
            each.cancel()

    Supervised(tmp_path, "work()", monkeypatch).run(test)


def test_a_server_stops_also_if_the_child_has_sent_more_than_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS", 0.2)

    async def test(detection: DetectionProcess) -> None:
        assert detection.is_running

    Supervised(tmp_path, "send(Ready())\nwhile True: send(Answer(0, bytes(3_000_000)))", monkeypatch).run(test)


def test_an_answer_never_reaches_the_next_child_which_numbers_its_questions_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised = Supervised(tmp_path, "if run == 1:\n    send(ReadStates(1, 'shop'))\nelse:\n    work()", monkeypatch)

    async def test(detection: DetectionProcess) -> None:
        await asyncio.to_thread(supervised.handler.is_asked.wait, STUCK)
        await until(lambda: detection.restarts > 0 and detection.is_running)
        answering = [task for task in asyncio.all_tasks() if "_serve" in repr(task.get_coro())]
        supervised.handler.released.set()
        await asyncio.gather(*answering)
        assert (await ingest(detection)).accepted == 7  # the child reads in order, so it has read an answer before
        assert len(answering) == 1

    supervised.run(test)
    assert not list(tmp_path.glob("answer-*"))


class TestVerdicts:
    HEALTHY = """
verdict = Verdict(id="1", workload="shop", kind=VerdictKind.HEALTHY, since=0.0, at=0.0, summary="well")
send(Ready())
if run == 1:
    send(Event("current", msgspec.json.encode(CurrentVerdict(verdict))))
    read(), read()
"""

    def test_a_verdict_that_is_not_renewed_becomes_unknown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        supervised = Supervised(tmp_path, f"{self.HEALTHY}work()", monkeypatch)

        async def test(_: DetectionProcess) -> None:
            await until(lambda: supervised.verdict[0] is VerdictKind.HEALTHY)
            supervised.clock.advance(31)  # three bins, and the time to wait for the last measurements
            assert supervised.verdict[0] is VerdictKind.HEALTHY
            supervised.clock.advance(1)
            assert supervised.verdict == (VerdictKind.UNKNOWN, OUTDATED)

        supervised.run(test)

    def test_a_verdict_is_unknown_and_published_as_such_when_the_child_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        supervised = Supervised(tmp_path, f"{self.HEALTHY}work() if run > 1 else 0", monkeypatch)

        async def test(detection: DetectionProcess) -> None:
            await until(lambda: supervised.verdict[0] is VerdictKind.HEALTHY)
            with pytest.raises(EngineUnavailable, match=RESTARTING):
                await ingest(detection)  # the second message that it reads: it ends
            assert b'"kind":"unknown"' in supervised.published[-1][1]
            await until(lambda: detection.is_running)
            assert supervised.verdict[1].startswith("there is no whole bin of measurements")

        supervised.run(test)


def test_the_child_imports_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)

    async def test(detection: DetectionProcess) -> None:
        assert detection.is_running

    Supervised(tmp_path / "data", None, monkeypatch).run(test)


def test_a_question_to_a_server_that_stops_is_refused_at_once() -> None:
    target = BytesIO()
    channel = Channel(BytesIO(), target)
    errors: list[str] = []

    def ask() -> None:
        try:
            channel.ask(ReadStates(0, "shop"), 2 * STUCK)
        except EngineUnavailable as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    while not target.getvalue():
        pass
    assert channel.read() is None
    thread.join(STUCK)
    ask()
    assert errors == ["the server has closed the connection"] * 2


def test_a_compressed_body_may_have_several_members_but_not_so_many_that_they_take_seconds() -> None:
    assert decompress(b"".join(map(gzip.compress, [b"one\n", b"", b"two\n"]))) == b"one\ntwo\n"
    with pytest.raises(InvalidValue, match="more than 1,000 members"):
        decompress(gzip.compress(b"") * 50_000)


def test_a_child_runs_only_while_its_server_has_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    with SqliteDatabase(tmp_path / "watch.sqlite") as database:
        identity, other = ProcessIdentity.of_this_process(), ProcessIdentity.of_this_process()
        clock = FakeClock()
        lease = DetectionLease(
            LeaseStore(database, encode_identity(identity), "http://own", 10.0), identity, 10.0, clock
        )
        lease._loop.start = lambda: None  # type: ignore[method-assign]  # each step is made below
        another = LeaseStore(database, encode_identity(other), "http://other", 10.0)

        async def test(detection: DetectionProcess) -> None:
            await until(lambda: detection.is_running)
            assert (detection.is_standby, detection.other_address, len(taken)) == (False, None, 1)
            number = lease.number
            assert number is not None
            another.note_standby(number)
            lease.step()
            clock.advance(9.5)
            with pytest.raises(EngineUnavailable, match="cannot renew its lease: another one may evaluate now"):
                await ingest(detection)
            lease.step()
            assert (await ingest(detection)).accepted == 7

            database.write_statement("update holdfast_lease set expires_at = 1")
            second = another.take()
            assert second is not None
            lease.step()
            await until(lambda: detection.pid is None)
            assert (detection.is_standby, detection.is_running, detection.other_address) == (True, True, "http://other")
            assert supervised.verdict == (VerdictKind.UNKNOWN, STANDBY)
            assert await detection.answer(QUERY) == b"stored measurements of shop"
            assert detection.restarts == 0

            another.release(second)
            lease.step()
            await until(lambda: (tmp_path / "run-2").exists() and detection.pid is not None)
            assert not detection.is_standby

        supervised = Supervised(tmp_path, "work()", monkeypatch, lease)
        supervised.process.on_takeover = lambda: taken.append("taken")
        supervised.run(test)
        assert len(taken) == 2
        assert another.take() is not None, "it was released"
