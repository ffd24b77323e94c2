"""A terminal for the commands of one page: a shell that remembers, and servers that run beside it."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

COMMAND_SECONDS = 60.0
"""Longest that one command may take: the slowest, a test suite, takes two on an idle machine."""
STOP_SECONDS = 10.0
_DONE = "--- done, status "


class Background:
    """A command that runs until it is ended, such as a server in a terminal of its own."""

    def __init__(self, command: str, directory: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit status. May be repeated."""
        if self.running:
            self._process.send_signal(how)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


class Terminal:
    """One bash in one directory: what a command sets or makes, the next one finds. Ends all that it started."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._background: list[Background] = []
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[str, int]:
        """The output of a command, standard error included, and its exit status."""
        assert self._shell.stdin is not None
        # The command must not read what is meant for the shell, and `$?` must be the last command's, not ours.
        script = f'{{ {command}\n}} </dev/null\n_status=$?; printf "\\n{_DONE}%s\\n" $_status; (exit $_status)\n'
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()
        text = self._read(command)
        output, _, status = text.rpartition(f"\n{_DONE}")
        return output.removesuffix("\n"), int(status)

    def start(self, command: str, log: Path, **environment: str) -> Background:
        """Start a command that does not end by itself."""
        self._background.append(Background(command, self._directory, {**self._environment, **environment}, log))
        return self._background[-1]

    def end_background(self) -> None:
        """End what was started, the last first. May be repeated."""
        while self._background:
            self._background.pop().end()

    def close(self) -> None:
        try:
            self.end_background()
        finally:
            if self._shell.poll() is None:
                os.killpg(self._shell.pid, signal.SIGKILL)  # its own session: the shell and what it left running
            self._shell.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, command: str) -> str:
        assert self._shell.stdout is not None
        output = self._shell.stdout.fileno()
        deadline = time.monotonic() + COMMAND_SECONDS
        text = b""
        while not (text.endswith(b"\n") and text.splitlines()[-1].startswith(_DONE.encode())):
            if not select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"`{command}` did not end within {COMMAND_SECONDS:g} s; so far: {text.decode()}")
            chunk = os.read(output, 65_536)
            if not chunk:
                raise ChildProcessError(f"`{command}` ended the shell: {text.decode()}")
            text += chunk
        return text.decode()


def environment(home: Path, tools: Path) -> dict[str, str]:
    """Like a new user's: `tools` first, then this project's commands, and nothing that steers Holdfast or the tests."""
    ours = ("HOLDFAST_", "PYTEST_", "COV_", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    commands = [str(tools), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    plain = {"TERM": "dumb", "COLUMNS": "120", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {**kept, "PATH": os.pathsep.join(commands), "HOME": str(home), **plain}
