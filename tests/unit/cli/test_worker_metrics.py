"""What `holdfast worker` tells of its work: over HTTP, and on standard output."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from holdfast._errors import EngineUnavailable
from holdfast.cli.worker.scrapes import MOST_AT_ONCE, Scrapes, _Scrape
from holdfast.cli.worker.standard_output import MOST, StandardOutput
from tests.services.start import free_port
from tests.unit.cli.conftest import Run
from tests.unit.forked import in_child

STUCK = 30.0


def get(address: str) -> httpx.Response:
    return httpx.get(address, timeout=STUCK, trust_env=False)


@pytest.fixture
def scrapes() -> Iterator[Scrapes]:
    with Scrapes("127.0.0.1", free_port(), lambda: "counted 1\n") as scrapes:
        yield scrapes


class TestScrapes:
    def test_metrics_are_answered_as_prometheus_expects_them(self, scrapes: Scrapes) -> None:
        for address in (scrapes.address, f"{scrapes.address}?name=x"):
            answer = get(address)
            assert (answer.status_code, answer.text) == (200, "counted 1\n")
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"

    @pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics2", "/health"])
    def test_there_is_nothing_else(self, scrapes: Scrapes, path: str) -> None:
        assert get(scrapes.address.replace("/metrics", path)).status_code == 404

    def test_an_address_of_the_newer_kind_is_as_good(self) -> None:
        with Scrapes("::1", free_port(), lambda: "counted 1\n") as scrapes:
            assert scrapes.address.startswith("http://[::1]:")
            assert get(scrapes.address).text == "counted 1\n"

    @pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
    def test_where_it_cannot_listen_it_says_what_to_change(self, scrapes: Scrapes, host: str) -> None:
        port = scrapes.server_address[1]
        reason = "Address already in use" if host == "127.0.0.1" else "Cannot assign requested address"
        with pytest.raises(EngineUnavailable, match=f"cannot serve metrics on '{host}' port {port}: {reason}; give"):
            Scrapes(host, int(port), str)

    def test_those_who_hang_take_a_bounded_number_of_threads_and_give_them_back(self, scrapes: Scrapes) -> None:
        where = ("127.0.0.1", int(scrapes.server_address[1]))
        until(lambda: answering() == 0)
        with ExitStack() as stack:
            for _ in range(MOST_AT_ONCE):
                stack.enter_context(socket.create_connection(where, timeout=STUCK))
            with socket.create_connection(where, timeout=STUCK) as one_too_many:
                assert one_too_many.recv(1) == b"", "it is closed at once"
            assert answering() == MOST_AT_ONCE
        until(lambda: answering() == 0)
        assert get(scrapes.address).status_code == 200

    def test_one_that_is_silent_for_long_is_cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_Scrape, "timeout", _Scrape.timeout / 1000)
        with (
            Scrapes("127.0.0.1", free_port(), str) as scrapes,
            socket.create_connection(("127.0.0.1", int(scrapes.server_address[1])), timeout=STUCK) as silent,
        ):
            assert silent.recv(1) == b""

    def test_one_that_leaves_in_the_middle_is_no_trouble(
        self, scrapes: Scrapes, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with socket.create_connection(("127.0.0.1", int(scrapes.server_address[1])), timeout=STUCK) as hasty:
            hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, and no end
        until(lambda: answering() == 0)
        assert get(scrapes.address).status_code == 200
        assert capfd.readouterr().err == ""

    def test_a_forked_child_leaves_the_port_to_its_parent(self, scrapes: Scrapes) -> None:
        in_child(lambda: scrapes.socket.fileno() == -1)
        assert get(scrapes.address).status_code == 200

    def test_it_is_not_imported_where_nobody_asks_for_it(self) -> None:
        program = (
            "import sys, holdfast.cli.worker.command, holdfast.cli.worker.work; print('http.server' in sys.modules)"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert ran.stdout == "False\n"


def answering() -> int:
    """Threads that answer somebody, or wait for him to ask."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def until(condition: Callable[[], bool]) -> None:
    gone = threading.Event()
    for _ in range(int(STUCK / 0.01)):
        if condition():
            return
        gone.wait(0.01)
    raise AssertionError("it did not come to be")


def _fill(output: StandardOutput) -> None:
    for _ in range(2):  # one of them may have been taken to be written
        output.write("x")


class TestStandardOutput:
    PROGRAM = """
import sys, threading
from holdfast.cli.worker.standard_output import StandardOutput
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
        program = "from holdfast.cli.worker.standard_output import StandardOutput\n"
        program += "print('half', end='')\nwith StandardOutput() as output: output.write('line')"
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert ran.stdout == "line\nhalf"

    def test_a_file_is_written_to_as_well(self, here: Path) -> None:
        with (here / "lines").open("wb") as file, StandardOutput(file.fileno()) as output:
            output.write("ä")
        assert (here / "lines").read_text() == "ä\n"

    def test_nobody_waits_for_whoever_does_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither those who write, nor the end; what does not fit is left out, and whoever writes it is told."""
        monkeypatch.setattr("holdfast.cli.worker.standard_output.PATIENCE", 0.01)
        reader, writer = os.pipe()
        with ExitStack() as stack:
            stack.callback(os.close, writer)
            with StandardOutput(writer) as output:
                for _ in range(MOST):
                    output.write("x" * 100_000)
                with pytest.raises(OSError, match="nobody reads standard output: 1000 lines wait"):
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
        output = StandardOutput(writer)
        with pytest.raises(BlockingIOError):
            output._write("x" * 1_000_000)
        with os.fdopen(reader) as pipe:
            cut = os.read(reader, 1_000_000)
            output._write("next")
            os.close(writer)
            assert pipe.read() == "\nnext\n"
        assert set(cut) == {ord("x")}

    def test_that_it_is_closed_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with StandardOutput(writer) as output:
            for _ in range(3):
                output.write("x")
        os.close(writer)
        assert caplog.text.count("standard output cannot be written to") == 1


class TestOptions:
    @pytest.mark.parametrize("port", ["0", "65536", "-1"])
    def test_a_port_has_to_be_one(self, run: Run, port: str) -> None:
        ran = run("worker", "nix:nix", "--metrics-port", port, "--json")
        assert (ran.code, ran.error["error"]) == (2, "usage")

    def test_every_process_has_to_have_a_port(self, run: Run) -> None:
        ran = run("worker", "nix:nix", "--metrics-port", "65534", "--processes", "3", "--json")
        assert ran.code == 2
        assert ran.error["detail"].startswith("--metrics-port 65534: expected at most 65533, because each of 3 process")
        ran = run("worker", "nix:nix", "--metrics-port", "65535", "--json")
        assert json.loads(ran.err)["detail"].startswith("nix:nix: there is no module nix"), "the port is good"
