"""Telemetry in files and on standard output."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.telemetry.sinks.files import FileSink
from tests.unit.forked import in_child


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    path.write_text("before\n")
    with FileSink(path) as sink:
        sink.emit(b"one")
        sink.emit("zwei ä".encode())
    assert lines_of(path) == ["before", "one", "zwei ä"]


def test_half_a_line_of_a_process_that_was_killed_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    path.write_text("whole\nhal")
    with FileSink(path) as sink:
        sink.emit(b"one")
    assert lines_of(path) == ["whole", "hal", "one"]


def test_a_new_file_is_not_for_every_user(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    with FileSink(path) as sink:
        sink.emit(b"one")
    assert path.stat().st_mode & 0o007 == 0


def test_after_a_rotation_lines_go_to_the_new_file(tmp_path: Path) -> None:
    path, old = tmp_path / "telemetry.ndjson", tmp_path / "telemetry.ndjson.1"
    with FileSink(path) as sink:
        sink.emit(b"one")
        assert sink.flush()
        path.rename(old)
        sink.emit(b"two")
        assert sink.flush()
        path.unlink()
        sink.emit(b"three")
        assert sink.flush()
        path.rename(old)
        path.write_text("made by the rotating tool\n")
        sink.emit(b"four")
    assert lines_of(path) == ["made by the rotating tool", "four"]
    assert lines_of(old) == ["three"]
    assert (sink.sent_lines, sink.dropped_lines) == (4, 0)


def test_a_file_that_was_copied_and_cut_is_continued_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    with FileSink(path) as sink:
        sink.emit(b"one")
        assert sink.flush()
        os.truncate(path, 0)
        sink.emit(b"two")
    assert path.read_bytes() == b"two\n"


def test_a_folder_that_is_missing_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "missing" / "telemetry.ndjson"
    sink = FileSink(path)
    sink.emit(b"one")
    assert not sink.flush()
    assert f"cannot write telemetry to {path}, 1 line not sent" in caplog.text
    path.parent.mkdir()
    sink.close()
    assert lines_of(path) == ["one"]


def test_a_full_disk_drops_nothing_but_the_oldest_and_is_used_again_when_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.telemetry.sinks.buffered.MAX_HELD_LINES", 10)
    path = tmp_path / "telemetry.ndjson"
    path.symlink_to("/dev/full")  # every write finds no room
    sink = FileSink(path)
    for number in range(30):
        sink.emit(b"%d" % number)
        sink._loop.run_step()
    assert sink._loop.is_failing
    assert sink.sent_lines == 0
    assert sink.held_lines + sink.dropped_lines == 30
    path.unlink()
    assert sink.flush()
    assert lines_of(path) == [str(number) for number in range(30)][-sink.sent_lines :]
    assert 10 <= sink.sent_lines <= 20, "those in the buffer, and the batch that could not be written"
    sink.close()


def test_a_line_that_a_full_disk_has_cut_is_written_again_as_a_whole(tmp_path: Path) -> None:
    """In a child, because a limit of the size of files stands for the full disk: it cuts writes short, too."""
    path = tmp_path / "telemetry.ndjson"

    def work() -> bool:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1050, most))
        sink = FileSink(path)
        for number in range(20):
            sink.emit(b"%d" % (number % 10) * 99)
        sink._loop.run_step()
        if (sink.sent_lines, sink.held_lines, sink._loop.is_failing) != (10, 10, True):
            return False
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return sink.flush() and (sink.sent_lines, sink.dropped_lines) == (20, 0)

    in_child(work)
    whole = [str(number % 10) * 99 for number in range(20)]
    assert lines_of(path) == [*whole[:10], "0" * 50, *whole[10:]]


def test_processes_and_threads_that_share_a_file_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    sink = FileSink(path).start()

    def emit(name: bytes) -> None:
        for _ in range(100):
            sink.emit(name * 20_000)

    def work() -> bool:
        threads = [threading.Thread(target=emit, args=(name,)) for name in (b"a", b"b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sink.flush()

    in_child(work)
    emit(b"c")
    in_child(work)
    sink.close()
    found = lines_of(path)
    assert {line[0] * 20_000 == line for line in found} == {True}
    assert sorted(line[0] for line in found) == sorted("a" * 200 + "b" * 200 + "c" * 100)


PROGRAM = """
from holdfast.telemetry.sinks.files import StandardOutputSink
with StandardOutputSink() as sink:
    for number in range(1000):
        sink.emit(b"%d" % number)
"""


def test_standard_output_gets_every_line() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, check=True)
    assert ran.stdout == b"".join(b"%d\n" % number for number in range(1000))


def test_a_standard_output_that_is_closed_stops_nobody() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = PROGRAM + "import sys; print(sink.sent_lines, sink.held_lines, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=True, text=True)
    os.close(writer)
    assert "cannot write telemetry to standard output" in ran.stderr
    assert ran.stderr.endswith("0 1000\n")


def test_a_standard_output_that_nobody_reads_stops_nobody() -> None:
    program = """
from holdfast.telemetry.sinks import buffered
from holdfast.telemetry.sinks.files import StandardOutputSink
buffered.STOP_SECONDS = 0.01
sink = StandardOutputSink().start()
for _ in range(20_000):
    sink.emit(b"x" * 100)
assert not sink.flush(timeout=0.01)
sink.flush = lambda: False
sink.close()
assert sink.sent_lines + sink.dropped_lines + sink.held_lines == 20_000
"""
    reader, writer = os.pipe()
    try:
        subprocess.run([sys.executable, "-c", program], stdout=writer, check=True, timeout=30)
    finally:
        os.close(writer)
        os.close(reader)
