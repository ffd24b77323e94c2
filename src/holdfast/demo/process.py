"""Child processes that never outlive their parent, even if it is killed."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from holdfast._errors import EngineUnavailable

STOP_SECONDS = 3.0
"""Maximum time for a child to stop before it is killed."""


def exit_with_parent() -> None:
    """Exit this child process when its standard input is closed, which happens at the latest when the parent ends."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, name="holdfast-parent", daemon=True).start()


def announce(**facts: Any) -> None:
    """Report to the parent, in one line, that this child process is ready, with `facts` such as its address."""
    sys.stdout.buffer.write(msgspec.json.encode(facts) + b"\n")
    sys.stdout.flush()


class Child:
    """One child process, started as `python -m MODULE`. Its standard error goes to the file `log`."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        self._module = module
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # A separate group, so that Ctrl-C reaches only the parent, which then stops the children in order.
                process_group=0,
            )

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until the child is ready, and return the facts it announced. Raise EngineUnavailable if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            tail = "".join(self._log.read_text(errors="replace").splitlines(keepends=True)[-5:])
            raise EngineUnavailable(f"{self._module} ended with exit code {code} before it was ready:\n{tail}")
        facts: dict[str, Any] = msgspec.json.decode(line)
        return facts

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Stop the process, and kill it if it does not end in time. May be repeated."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
