"""A program of the host's that is run when zones go out or come in."""

import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from holdfast._errors import SettingsError
from holdfast.agent.state import AgentState

logger = logging.getLogger("holdfast.agent")

TAIL_BYTES = 2000
"""Of what a hook printed, for the log when it fails: an error's last lines."""
GRACE_SECONDS = 2.0
"""Between asking a hook to end and killing it."""
STOPPING_GRACE_SECONDS = 0.5
"""The same when the agent itself stops, which must not take longer than 2 s."""
_LOOK_SECONDS = 0.02
"""How often a hook that prints nothing is looked at."""


class Hook:
    """Runs one command for a state: no shell, no input, its own process group. Raises SettingsError."""

    def __init__(self, command: str, timeout: float, grace: float = GRACE_SECONDS) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise SettingsError(f"agent.hook {command!r} is no command: {error}") from error
        if not self._words:
            raise SettingsError("agent.hook is empty: expected a command, or no setting at all")
        if shutil.which(self._words[0]) is None:
            raise SettingsError(
                f"agent.hook: there is no program {self._words[0]!r} that this user may run: "
                "name one on the PATH, or by its whole path"
            )
        self._timeout = timeout
        self._grace = grace

    def receive(self, state: AgentState, stopping: threading.Event) -> bool:
        """Run it; false, and a warning in the log, if it failed or was not done in time."""
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **build_environment(state)},
            )
        except OSError as error:
            logger.warning("agent.hook could not be started, and will be tried again: %s", error)
            return False
        assert process.stdout is not None
        with process.stdout:
            output = _OutputTail(process.stdout.fileno())
            is_over = _wait(process, output, self._timeout, stopping)
            if not is_over:
                _end(process, output, STOPPING_GRACE_SECONDS if stopping.is_set() else self._grace)
            output.read()
        if is_over and process.returncode == 0:
            return True
        if not stopping.is_set():
            how = f"exit code {process.returncode}" if is_over else f"ended after {self._timeout:g} s"
            logger.warning(
                "agent.hook failed (%s), and will be tried again",
                how,
                extra={"exit_code": process.returncode, "output": output.text()},
            )
        return False


def build_environment(state: AgentState) -> Mapping[str, str]:
    """What a hook is told, in its environment."""
    return {
        "HOLDFAST_ZONE": state.zone,
        "HOLDFAST_WORKLOAD": state.workload or "",
        "HOLDFAST_STATE": "out" if state.is_out else "in",
        "HOLDFAST_ZONES_OUT": " ".join(sorted(state.zones_out)),
    }


class _OutputTail:
    """The end of what comes out of a pipe. Takes all there is, so that whoever prints is never held up."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Take what comes, for a while or until something has come."""
        if self._poll.poll(seconds * 1000):
            self.read()

    def read(self) -> None:
        """Take what is there, a pipe full at the most: somebody may print for ever."""
        try:
            content = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return
        self._kept = (self._kept + content)[-TAIL_BYTES:]
        if not content:  # closed, and ready to be read ever after
            with suppress(KeyError):
                self._poll.unregister(self._descriptor)

    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


def _wait(process: "subprocess.Popen[bytes]", output: _OutputTail, timeout: float, stopping: threading.Event) -> bool:
    """Whether it has ended, in time and before the agent has to."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if stopping.is_set() or time.monotonic() >= deadline:
            return False
        output.wait(_LOOK_SECONDS)
    return True


def _end(process: "subprocess.Popen[bytes]", output: _OutputTail, grace: float) -> None:
    """Ask the whole group to end, and kill what is left of it after the grace."""
    deadline = time.monotonic() + grace
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)  # raises when nobody is left
            output.wait(_LOOK_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
