"""A real `holdfast agent`, as a process of its own; and one in this process, for what a process cannot be given."""

import asyncio
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from holdfast.agent import Agent
from tests.integration.server import process as server
from tests.integration.server.process import COMMAND, STUCK
from tests.support.preloaded import Preloaded


def until(true: Callable[[], bool]) -> None:
    """Wait for something to become so."""
    end = time.monotonic() + STUCK
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def ask(address: str, path: str) -> httpx.Response:
    return httpx.get(address + path, timeout=STUCK, trust_env=False)


@dataclass
class HoldfastAgent:
    """An agent that answers; ends when the context does."""

    process: subprocess.Popen[str]
    address: str
    log: Path
    announced: dict[str, str | None]

    @classmethod
    def start(
        cls, directory: Path, *words: str, zone: str | None = "use1-az1", variables: Mapping[str, str] | None = None
    ) -> Self:
        log = directory / "agent.log"
        with log.open("a") as errors:
            process = Preloaded(
                [*COMMAND, "agent", *(() if zone is None else ("--zone", zone)), "--port", "0", "--json", *words],
                cwd=directory,
                env=server.environment(**(variables or {})),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        announced = server.announcement(process, log)
        return cls(process, announced["address"], log, announced)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def get(self, path: str) -> httpx.Response:
        return ask(self.address, path)

    def known(self) -> Any:
        return self.get("/").json()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Ask it to stop; returns its exit code, and how many seconds that took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(STUCK), time.monotonic() - begun


@contextmanager
def running(agent: Agent) -> Iterator[str]:
    """Serve in a thread of this process; hands out the address. What the agent raises is raised at the end."""
    started = threading.Event()
    found: list[str] = []
    failed: list[BaseException] = []
    loops: list[asyncio.AbstractEventLoop] = []

    def announce(address: str) -> None:
        found.append(address)
        started.set()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await agent.serve(announce)

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
        started.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(STUCK)
    try:
        if found:
            yield found[0]
    finally:
        if not loops[0].is_closed():
            loops[0].call_soon_threadsafe(agent.stop)
        thread.join(STUCK)
    if failed:
        raise failed[0]
