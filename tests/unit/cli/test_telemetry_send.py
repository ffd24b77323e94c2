"""`holdfast telemetry send`: lines from files and standard input to a server."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.telemetry.send import GIVE_UP_SECONDS, FileLines, FollowedLines, LineSender, StopSignals
from holdfast.telemetry.follow import FileFollower
from holdfast.testing import FakeClock
from tests.support.telemetry_receiver import TelemetryReceiver, receiving
from tests.unit.cli.conftest import Run


@pytest.fixture
def receiver() -> Iterator[TelemetryReceiver]:
    with receiving() as receiver:
        yield receiver


def test_files_are_sent_in_order_and_counted(
    here: Path, run: Run, receiver: TelemetryReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes a second: a sink holds fewer lines than there are, so the command has to wait for it."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "secret")
    lines = [b"%d" % number for number in range(12_000)]
    (here / "one").write_bytes(b"\n".join(lines[:7_000]) + b"\r\n\n")
    (here / "two").write_bytes(b"\n".join(lines[7_000:]))
    ran = run("telemetry", "send", "one", "two", "--server", receiver.address, "--json")
    assert ran.result == {"sent": 12_000, "refused": 0, "dropped": 0, "late": 0, "too_late": 0}
    assert [line.strip() for line in receiver.lines] == lines
    assert receiver.tokens == {"Bearer secret"}


def test_without_files_it_is_standard_input(
    run: Run, receiver: TelemetryReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\nwithout an end")
    os.close(writer)
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        ran = run("telemetry", "send", "--server", receiver.address)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "3 lines sent, 0 of them refused by the server; 0 not sent\n"
    assert receiver.lines == [b"one", b"two", b"without an end"]


def test_refused_lines_are_told_with_the_reason(here: Path, run: Run, receiver: TelemetryReceiver) -> None:
    (here / "emf").write_text("good\nbad\n")
    ran = run("telemetry", "send", "emf", "--server", receiver.address)
    assert (ran.code, ran.out) == (1, "2 lines sent, 1 of them refused by the server; 0 not sent\n")
    assert "a bad line" in ran.err
    assert "1 line refused and 0 not sent" in ran.err


def test_requests_that_arrive_late_or_too_late_are_counted(here: Path, run: Run, receiver: TelemetryReceiver) -> None:
    (here / "late").write_text("old\nold\ngood\n")
    ran = run("telemetry", "send", "late", "--server", receiver.address)
    assert (ran.code, ran.out.splitlines()[1]) == (
        0,
        "2 requests arrived late: stored, but not judged; 0 too late: dropped by the server",
    )
    (here / "too_late").write_text("ancient\ngood\nold\n")
    ran = run("telemetry", "send", "too_late", "--server", receiver.address, "--json")
    assert (ran.code, json.loads(ran.out)) == (1, {"sent": 3, "refused": 0, "dropped": 0, "late": 1, "too_late": 1})
    assert "the server dropped 1 request" in ran.err


def test_a_server_that_is_unavailable_is_told(here: Path, run: Run, receiver: TelemetryReceiver) -> None:
    receiver.status = 503
    (here / "emf").write_text("one\ntwo\n")
    ran = run("telemetry", "send", "emf", "--server", receiver.address, "--json")
    assert ran.code == 3
    assert '"dropped": 2' in ran.out
    assert '"error":"engine-unavailable"' in ran.err.splitlines()[-1]
    assert all(line.startswith("{") for line in ran.err.splitlines())


def test_lines_that_are_too_long_are_counted_as_not_sent(
    here: Path, run: Run, receiver: TelemetryReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.telemetry.follow.MAX_LINE_BYTES", 10)
    (here / "emf").write_text("short\n" + "x" * 11 + "\nlast\n")
    ran = run("telemetry", "send", "emf", "--server", receiver.address)
    assert (ran.code, ran.out) == (1, "2 lines sent, 0 of them refused by the server; 1 not sent\n")
    assert receiver.lines == [b"short", b"last"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["missing"], "missing cannot be read: No such file or directory"),
        (["/"], "/ is a folder: name the files in it"),
        (["--follow"], "--follow is for files"),
        (["--follow", "-"], "--follow is for files"),
        (["--server", "nowhere"], "address 'nowhere'"),
        (["-x"], "-x"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(run: Run, words: list[str], expected: str) -> None:
    server = [] if "--server" in words else ["--server", "http://127.0.0.1:1"]
    ran = run("telemetry", "send", *words, *server)
    assert ran.code == 2
    assert expected in ran.err


def test_a_closed_standard_input_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input is closed" in run("telemetry", "send", "--server", "http://127.0.0.1:1").err


class Sink:
    """A sink that holds what it gets until the test says that some lines were sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.sent_lines = 0

    @property
    def held_lines(self) -> int:
        return len(self.lines)

    def emit(self, line: bytes) -> None:
        self.lines.append(line)


class TestLineSender:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules["holdfast.cli.telemetry.send"], "MAX_HELD_LINES", 4)

    def sender(self, sink: Any, clock: FakeClock, *, can_drop: bool, takes: int = 0) -> LineSender:
        def sleep(seconds: float) -> None:
            clock.advance(seconds)
            if takes and sink.lines:
                sink.sent_lines += 1
                del sink.lines[:takes]

        return LineSender(sink, can_drop=can_drop, clock=clock.monotonic, sleep=sleep)

    def test_lines_are_sent_no_faster_than_the_server_takes_them(self) -> None:
        sink, clock = Sink(), FakeClock()
        sender = self.sender(sink, clock, can_drop=False, takes=1)
        assert sender.send([b"x"] * 1000, StopSignals())
        assert sink.held_lines == 2
        assert sink.sent_lines == 998

    def test_files_are_given_up_if_the_server_takes_nothing(self) -> None:
        sink, clock = Sink(), FakeClock()
        before = clock.monotonic()
        assert not self.sender(sink, clock, can_drop=False).send([b"x"] * 1000, StopSignals())
        assert sink.held_lines == 2
        assert clock.monotonic() - before == pytest.approx(GIVE_UP_SECONDS, abs=0.1)

    def test_a_program_that_writes_waits_once_and_not_for_every_line(self) -> None:
        sink, clock = Sink(), FakeClock()
        before = clock.monotonic()
        sender = self.sender(sink, clock, can_drop=True)
        assert sender.send([b"x"] * 500, StopSignals())
        assert sender.send([b"x"] * 500, StopSignals())
        assert sink.held_lines == 1000, "a real sink drops the oldest"
        assert clock.monotonic() - before == pytest.approx(GIVE_UP_SECONDS, abs=0.1)

    def test_after_a_stop_was_requested_it_does_not_wait(self) -> None:
        sink, clock, stop = Sink(), FakeClock(), StopSignals()
        before = clock.monotonic()
        stop.is_requested = True
        assert self.sender(sink, clock, can_drop=False).send([b"x"] * 10, stop)
        assert clock.monotonic() == before


def test_followed_files_are_read_once_more_after_a_stop_and_problems_are_told_once(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, log, pauses = StopSignals(), here / "emf.log", 0

    def sleep(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            log.write_text("one\n")
        if pauses == 4:
            stop.is_requested = True
            log.write_text("one\ntwo\n")

    with FileFollower([str(log)]) as follower:
        lines = FollowedLines(follower, as_json=False, sleep=sleep)
        assert [line for part in lines.read(stop) for line in part] == [b"one", b"two"]
    assert capsys.readouterr().err.count("cannot be read, trying again") == 1


def test_reading_ends_at_a_stop(here: Path) -> None:
    (here / "emf").write_text("one\n")
    stop = StopSignals()
    stop.is_requested = True
    with (here / "emf").open("rb") as file:
        assert list(FileLines([file.fileno()]).read(stop)) == [[]]


def test_a_pipe_is_live_and_a_file_is_not(here: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w"), (here / "emf").open("w") as file:
        assert FileLines([reader, file.fileno()]).is_live
        assert not FileLines([file.fileno()]).is_live
