"""Start a service under its guard, wait until it really answers, and stop it again."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

# Chromium on a busy machine with a cold disk is the slowest by far: 0.5 s when all is well.
START_TIMEOUT = 30.0
# The guard gives a service 5 s before it kills it.
STOP_TIMEOUT = 15.0
# A free port may be taken before the service binds it; three times in a row it is something else.
PORTS_TRIED = 3
LOG_LINES = 30


class ServiceFailed(Exception):
    """A service that the tests need did not start or did not stop: the test fails, it is never skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Everything there is to know about running one service."""

    url: str
    command: Sequence[str]
    answers: Callable[[], object]
    """Asks the service something; raises as long as it does not answer."""
    listening: str
    """What it writes to its log once it listens: proof that the answer comes from it, and not from another run's
    service that took the port first."""
    prepare: Sequence[Sequence[str]] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    group: int | None = None
    stop: signal.Signals = signal.SIGTERM


Recipe: TypeAlias = Callable[[Path, int], Order]
"""Given an empty directory of its own and a port, says how to run the service."""


def free_port() -> int:
    """A port of loopback that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(recipe: Recipe, directory: Path, controller: int, port: int | None = None) -> str:
    """Return the URL of the service, which now answers; with a `port`, on that or not at all."""
    problem = ""
    for chosen in [port] if port else (free_port() for _ in range(PORTS_TRIED)):
        order = recipe(directory, chosen)
        _launch(order, directory, controller)
        try:
            if _answers(order, directory):
                return order.url
        except BaseException:
            stop([directory])
            raise
        problem = f"{order.command[0]} ended instead of answering at {order.url}; {_tail(directory)}"
    raise ServiceFailed(problem)


def stop(directories: Iterable[Path]) -> None:
    """End the services in `directories`, all at once, and wait until they are gone. May be repeated."""
    running = [directory for directory in directories if alive(directory)]
    for directory in running:
        os.kill(int((directory / "guard.pid").read_text()), signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    for directory in running:
        while alive(directory):
            if time.monotonic() > deadline:
                raise ServiceFailed(f"the service in {directory} did not stop within {STOP_TIMEOUT} s")
            time.sleep(0.01)


def alive(directory: Path) -> bool:
    """Whether a guard still keeps the service in `directory`."""
    try:
        with (directory / "guard.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _launch(order: Order, directory: Path, controller: int) -> None:
    # Nothing of the user's own settings, proxies, credentials or coverage reaches a service.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    environment |= {"HOME": str(directory), "TMPDIR": str(directory), **order.environment}
    note = {
        "controller": controller,
        "prepare": [list(command) for command in order.prepare],
        "command": list(order.command),
        "environment": environment,
        "user": order.user,
        "group": order.group,
        "stop": order.stop,
    }
    (directory / "order.json").write_text(json.dumps(note))
    with (directory / "log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            # Ctrl-C at the terminal reaches pytest only, which then ends the services in order.
            start_new_session=True,
            check=True,
        )


def _answers(order: Order, directory: Path) -> bool:
    """Wait for an answer; False when the service ended first."""
    deadline = time.monotonic() + START_TIMEOUT
    problem = f"its log does not say {order.listening!r}"
    while alive(directory):
        if order.listening in (directory / "log").read_text(errors="replace"):
            try:
                order.answers()
            except Exception as error:
                problem = repr(error)
            else:
                return True
        if time.monotonic() > deadline:
            raise ServiceFailed(f"{order.url} gave no answer in {START_TIMEOUT} s ({problem}); {_tail(directory)}")
        time.sleep(0.02)
    return False


def _tail(directory: Path) -> str:
    lines = (directory / "log").read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n  ".join(["the end of its log:", *lines])
