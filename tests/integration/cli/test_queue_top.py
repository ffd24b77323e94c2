"""`holdfast queue top` at a terminal: a picture that changes, a key that ends it, and a terminal as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import OutgoingMessage
from holdfast.queue.backend import QueueChange
from holdfast.queue.backends.sql import SqlBackend
from tests.integration.server.process import COMMAND, STUCK, environment
from tests.support.preloaded import Preloaded

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal of 100 columns with `holdfast queue top` in it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self._seen = ""
        self.process = Preloaded(
            [*COMMAND, "queue", "top", "--backend", "sqlite:work.sqlite", *words],
            cwd=folder,
            env=environment(TERM="xterm"),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
        )

    def read(self, until: str) -> str:
        """What was shown, when a text is among it; what is shown after that is for the next time."""
        deadline = time.monotonic() + STUCK
        while until not in _ESCAPES.sub("", self._seen):
            assert time.monotonic() < deadline, f"{until} is not in {self._seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self._seen += os.read(self._master, 65536).decode(errors="replace")
        seen, self._seen = _ESCAPES.sub("", self._seen), ""
        return seen

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def wait(self) -> int:
        """The exit code; whatever is still shown is read, or it could not end."""
        deadline = time.monotonic() + STUCK
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.05)[0]:
                self._seen += os.read(self._master, 65536).decode(errors="replace")
        return self.process.wait(0)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self.slave)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[SqlBackend]:
    with SqlBackend(SqliteDatabase(tmp_path / "work.sqlite")) as backend:
        backend.change("mail", QueueChange(), create=True)
        yield backend


@pytest.fixture
def terminal(tmp_path: Path, backend: SqlBackend) -> Iterator[Terminal]:
    backend.send("mail", [OutgoingMessage(tenant="[bold]tenant", body=b"x")] * 3)
    terminal = Terminal(tmp_path, "--interval", "0.1")
    yield terminal
    terminal.close()


def test_it_shows_what_changes_until_q_is_pressed(terminal: Terminal, backend: SqlBackend) -> None:
    seen = terminal.read("[bold]tenant")
    assert "work.sqlite" in seen.replace("\r\n", "")  # the address may be longer than a line
    assert "q quits" in seen
    assert re.search(r"mail +3 ", seen)
    backend.send("mail", [OutgoingMessage(tenant="another", body=b"x")] * 5)
    assert re.search(r"mail +8 ", terminal.read("another"))
    terminal.press(b"x")
    terminal.press(b"q")
    assert terminal.wait() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.parametrize("words", [["--json"], []])
def test_what_is_printed_to_a_file_leaves_the_terminal_alone(
    tmp_path: Path, backend: SqlBackend, words: list[str]
) -> None:
    """In the background, whoever changes the terminal is stopped by it."""
    backend.send("mail", [OutgoingMessage(tenant="a", body=b"x")])
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with (tmp_path / "looks").open("w") as file:
        process = Preloaded(
            [*COMMAND, "queue", "top", "--backend", "sqlite:work.sqlite", "--interval", "0.1", *words],
            cwd=tmp_path,
            env=environment(),
            stdin=slave,
            stdout=file,
        )
    try:
        deadline = time.monotonic() + STUCK
        while (tmp_path / "looks").read_text().count("\n") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert termios.tcgetattr(slave) == before
        process.send_signal(signal.SIGINT)
        assert process.wait(STUCK) == 130
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_an_interrupt_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.read("[bold]tenant")
    assert termios.tcgetattr(terminal.slave) != terminal.before, "keys are seen at once"
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 130
    assert termios.tcgetattr(terminal.slave) == terminal.before
