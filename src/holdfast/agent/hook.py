"""Run a program of the host when zones go out or come in."""

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
"""The last bytes of a failed hook's output, which the agent logs."""
GRACE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL for a hook that timed out."""
STOPPING_GRACE_SECONDS = 0.5
"""Seconds between SIGTERM and SIGKILL while the agent itself stops, which must not take longer than 2 s."""
_POLL_SECONDS = 0.02
"""How often a hook that prints nothing is polled."""


class Hook:
    """A command that runs whenever the state changes: no shell, no input, own process group. Raises SettingsError."""

    def __init__(self, command: str, timeout: float, grace: float = GRACE_SECONDS) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise SettingsError(f"agent.hook {command!r} is not a valid command: {error}") from error
        if not self._words:
            raise SettingsError("agent.hook is empty: expected a command, or remove the setting")
        if shutil.which(self._words[0]) is None:
            raise SettingsError(
                f"agent.hook: this user cannot run a program {self._words[0]!r}: "
                "name one on the PATH, or by its full path"
            )
        self._timeout = timeout
        self._grace = grace

    def receive(self, state: AgentState, stopping: threading.Event) -> bool:
        """Run the hook; return False, and log a warning, if it failed or timed out."""
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
            logger.warning("could not start agent.hook, trying again: %s", error)
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
            how = f"exit code {process.returncode}" if is_over else f"timed out after {self._timeout:g} s"
            fields = {"exit_code": process.returncode, "output": output.text()}
            logger.warning("agent.hook failed (%s), trying again", how, extra=fields)
        return False


def build_environment(state: AgentState) -> Mapping[str, str]:
    """Return the environment variables that describe a state to the hook."""
    return {
        "HOLDFAST_ZONE": state.zone,
        "HOLDFAST_WORKLOAD": state.workload or "",
        "HOLDFAST_STATE": "out" if state.is_out else "in",
        "HOLDFAST_ZONES_OUT": " ".join(sorted(state.zones_out)),
    }


class _OutputTail:
    """The last bytes read from a pipe. Reads everything, so that the writing process never blocks."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for output, and read it."""
        if self._poll.poll(seconds * 1000):
            self.read()

    def read(self) -> None:
        """Read what is available, at most 64 KiB: the process may print forever."""
        try:
            content = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return
        self._kept = (self._kept + content)[-TAIL_BYTES:]
        if not content:  # closed; poll() would report it as readable forever
            with suppress(KeyError):
                self._poll.unregister(self._descriptor)

    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


def _wait(process: "subprocess.Popen[bytes]", output: _OutputTail, timeout: float, stopping: threading.Event) -> bool:
    """Return whether the process ended within `timeout` and before the agent must stop."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if stopping.is_set() or time.monotonic() >= deadline:
            return False
        output.wait(_POLL_SECONDS)
    return True


def _end(process: "subprocess.Popen[bytes]", output: _OutputTail, grace: float) -> None:
    """Send SIGTERM to the process group, and SIGKILL if it is still there after `grace` seconds."""
    deadline = time.monotonic() + grace
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)  # raises when no process of the group is left
            output.wait(_POLL_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
