"""Lines on standard output, which several processes share."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.metrics.standard_output import MAX_LINES, LineWriter, StandardOutput

STUCK = 30.0


def _fill(output: StandardOutput) -> None:
    for _ in range(2):  # one of them may have been taken to be written
        output.write("x")


class TestStandardOutput:
    PROGRAM = """
import sys, threading
from holdfast.metrics.standard_output import StandardOutput
def write(name):
    for _ in range(20):
        output.write(name * 200_000)
with StandardOutput() as output:
    output.write("ready")
    sys.stdin.read()
    threads = [threading.Thread(target=write, args=(name,)) for name in sys.argv[1:]]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    output._lines.put(None)
    output._thread.join()
"""

    def test_lines_of_several_threads_and_processes_stay_whole_however_long_they_are(self) -> None:
        """Longer than what a pipe holds, and all at once."""
        reader, writer = os.pipe()
        command = [sys.executable, "-c", self.PROGRAM]
        processes = [
            subprocess.Popen([*command, *names], stdin=subprocess.PIPE, stdout=writer) for names in ("ab", "cd", "ef")
        ]
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert [pipe.readline() for _ in processes] == ["ready\n"] * 3
            for process in processes:
                assert process.stdin is not None
                process.stdin.close()
            lines = pipe.read().splitlines()
        assert [process.wait(STUCK) for process in processes] == [0, 0, 0]
        assert [len(line) for line in lines] == [200_000] * 120
        assert sorted(line[0] for line in lines if line == line[0] * 200_000) == sorted("abcdef" * 20)

    def test_half_a_line_that_a_handler_has_printed_is_not_in_it(self) -> None:
        program = "from holdfast.metrics.standard_output import StandardOutput\n"
        program += "print('half', end='')\nwith StandardOutput() as output: output.write('line')"
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert ran.stdout == "line\nhalf"

    def test_a_file_is_written_to_as_well(self, tmp_path: Path) -> None:
        with (tmp_path / "lines").open("wb") as file, StandardOutput(file.fileno()) as output:
            output.write("ä")
        assert (tmp_path / "lines").read_text() == "ä\n"

    def test_nobody_waits_for_whoever_does_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither those who write, nor the end; what does not fit is left out, and whoever writes it is told."""
        monkeypatch.setattr("holdfast.metrics.standard_output.CLOSE_SECONDS", 0.01)
        reader, writer = os.pipe()
        with ExitStack() as stack:
            stack.callback(os.close, writer)
            with StandardOutput(writer) as output:
                for _ in range(MAX_LINES):
                    output.write("x" * 100_000)
                with pytest.raises(OSError, match="standard output is not being read: 1000 lines are waiting"):
                    _fill(output)
                assert output._thread.is_alive()
            os.close(reader)  # so that the thread ends, too
            output._lines.get_nowait()
            output._lines.put(None)
            output._thread.join(STUCK)
        assert not output._thread.is_alive()

    def test_a_line_that_was_cut_short_ends_before_the_next(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        output = LineWriter(writer)
        with pytest.raises(BlockingIOError):
            output.write([b"x" * 1_000_000])
        with os.fdopen(reader) as pipe:
            cut = os.read(reader, 1_000_000)
            assert output.write([b"next"]) == 1
            os.close(writer)
            assert pipe.read() == "\nnext\n"
        assert set(cut) == {ord("x")}

    def test_lines_that_fit_are_told_from_those_that_do_not(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        output = LineWriter(writer)
        lines = [b"%04d" % number + b"x" * 995 for number in range(200)]  # the pipe has room for 65 of them
        fits = output.write(lines)
        assert 0 < fits < len(lines)
        assert os.read(reader, 1_000_000).startswith(b"\n".join(lines[:fits]))
        assert output.write(lines[fits : fits + 2]) == 2
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"\n" + b"\n".join(lines[fits : fits + 2]) + b"\n"

    def test_that_it_is_closed_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with StandardOutput(writer) as output:
            for _ in range(3):
                output.write("x")
        os.close(writer)
        assert caplog.text.count("cannot write to standard output") == 1
