"""A real `holdfast up`, as a process of its own."""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.preloaded import Preloaded, run_preloaded

STUCK = 60.0
"""Seconds until a process that should have done something is taken to be stuck."""

COMMAND = [sys.executable, "-m", "holdfast.cli"]


def environment(**more: str) -> dict[str, str]:
    """The environment of the tests without what would steer Holdfast; what warns, fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "PYTHONWARNINGS": "error", **more}


def holdfast(*words: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return run_preloaded([*COMMAND, *words], cwd=directory, env=environment(**more), text=True, timeout=STUCK)


def announcement(process: "subprocess.Popen[str]", log: Path) -> dict[str, Any]:
    """What a process says, in its first line, when it takes requests. One that does not start is ended."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if selector.select(STUCK) else ""
    if not line:
        process.kill()
        process.communicate()
        raise AssertionError(f"it did not start: {log.read_text()}")
    return dict(json.loads(line))


@dataclass
class HoldfastServer:
    """A server that takes requests; ends when the context does."""

    process: subprocess.Popen[str]
    directory: Path
    address: str
    token: str | None
    log: Path

    @classmethod
    def start(
        cls,
        directory: Path,
        *words: str,
        settings: str = "",
        variables: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> Self:
        """Start one in `directory`, with its data in `data` there; returns when it takes requests."""
        directory.mkdir(exist_ok=True)
        (directory / "holdfast.toml").write_text(f"data_directory = 'data'\n{settings}")
        log = directory / "log"
        with log.open("a") as errors:
            process = Preloaded(
                [*COMMAND, "up", "--port", str(port), "--json", *words],
                cwd=directory,
                env=environment(**(variables or {})),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        announced = announcement(process, log)
        return cls(process, directory, announced["address"], announced["token"], log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill() if exception[0] else self.stop()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """Speaks to the server, as whoever the token belongs to."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # The port of loopback also where the server listens everywhere.
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=STUCK, trust_env=False)

    def operator(self) -> httpx.Client:
        assert self.token is not None
        return self.client(self.token)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=STUCK)

    def signal(self, number: signal.Signals) -> float:
        """Send a signal and wait for the end; returns how many seconds that took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(STUCK)
        return time.monotonic() - begun

    def stop(self) -> str:
        """Ask it to stop, if it still runs; returns what else it printed. May be repeated."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            printed, _ = self.process.communicate(timeout=STUCK)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        except ValueError:  # everything was read before
            return ""
        return printed

    def kill(self) -> None:
        """End it at once, with whatever it is doing. May be repeated."""
        self.process.kill()
        with suppress(ValueError):  # everything was read before
            self.process.communicate()

    def entries(self) -> list[dict[str, Any]]:
        """What was logged so far: every line is a JSON object."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def entry(self, **fields: object) -> dict[str, Any]:
        """The log's entry that has these fields. It is waited for: an answer is sent before its entry is written."""
        deadline = time.monotonic() + STUCK
        while time.monotonic() < deadline:
            lines = [line for line in self.log.read_text().split("\n")[:-1] if line.startswith("{")]
            for entry in map(json.loads, lines):
                if fields.items() <= entry.items():
                    return dict(entry)
            time.sleep(0.01)
        raise AssertionError(f"nothing with {fields} was logged: {self.log.read_text()}")
