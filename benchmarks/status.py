"""What it costs to know which zones are out: to ask, to be told, to read, and to be right when servers are not there.

`bare route` is a Litestar application with one route and nothing else, on the same uvicorn; `status read` is `GET
/status/{zone}` of a real `holdfast up` with default settings. Both answer 8 connections that ask again and again. `dict
look-up` and `tracker read` are loops; what an empty loop takes is subtracted before they are compared.

Then, once each: 10,000 connections listen to one server and a zone is written; the server is killed and all of them
come back, as trackers do; a tracker follows five servers of which one is dead and one hangs, and a zone is written on
the three that live.
"""

import asyncio
import gc
import http.client
import json
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count as count_from
from itertools import repeat
from pathlib import Path
from typing import Self

sys.path[0] = str(Path(__file__).parents[1])  # finds `benchmarks`, and no file of it instead of a standard module

import uvloop

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_ratio
from holdfast import Zone, ZoneState, ZoneStatus
from holdfast._background import RECONNECT_BACKOFF
from holdfast.status import ZoneTracker

ZONE = "use1-az1"
ASKING = 8
"""Connections that ask at the same time."""
SETTINGS = "data_directory = 'data'\n[server]\nport = {port}\n[log]\nlevel = 'error'\n"
BARE = """
import sys
import uvicorn
from litestar import Litestar, get

@get("/bare", sync_to_thread=False)
def bare() -> dict[str, bool]:
    return {"state": "in"}

application = Litestar([bare], openapi_config=None, logging_config=None)
uvicorn.run(application, port=int(sys.argv[1]), log_config=None, access_log=False, server_header=False)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Server:
    """A process that answers on a port of loopback."""

    words: Sequence[str]
    folder: str
    port: int
    token: str = ""
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def holdfast(cls, folder: str) -> Self:
        port = free_port()
        Path(folder, "holdfast.toml").write_text(SETTINGS.format(port=port))
        command = [sys.executable, "-m", "holdfast.cli"]
        created = subprocess.run(
            [*command, "credential", "create", "--role", "operator", "--json"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        return cls([*command, "up"], folder, port, json.loads(created.stdout)["token"])

    @classmethod
    def bare(cls, folder: str) -> Self:
        port = free_port()
        return cls([sys.executable, "-c", BARE, str(port)], folder, port)

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self.words, cwd=self.folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self
        raise RuntimeError(f"{self.words} did not start")

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def megabytes(self) -> float:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def write(self, *, out: bool) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        body = json.dumps({"state": "out" if out else "in", "reason": "benchmark"})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        connection.request("PUT", f"/v1/zones/{ZONE}", body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"the write was answered {answer.status}: {answer.read()!r}")
        connection.close()


class Asker(asyncio.Protocol):
    """Asks again as soon as it is answered."""

    def __init__(self, request: bytes, share: int, done: Callable[[], None]) -> None:
        self.request = request
        self.left = share
        self.done = done

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        answers = data.count(b"HTTP/1.1 200")
        if not answers:
            return  # the body, which came apart from the head
        self.left -= 1
        if self.left:
            self.transport.write(self.request)
        else:
            self.transport.close()
            self.done()


def ask(port: int, path: str, count: int) -> int:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

    async def asking() -> None:
        loop = asyncio.get_running_loop()
        finished = asyncio.Semaphore(0)
        for _ in range(ASKING):
            await loop.create_connection(lambda: Asker(request, count // ASKING, finished.release), "127.0.0.1", port)
        async with asyncio.timeout(120):
            for _ in range(ASKING):
                await finished.acquire()

    uvloop.run(asking())
    return count // ASKING * ASKING


@contextmanager
def bare_route() -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder, Server.bare(folder) as server:
        ask(server.port, "/bare", 400)
        yield lambda count: ask(server.port, "/bare", count)


@contextmanager
def status_read() -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder, Server.holdfast(folder) as server:
        ask(server.port, f"/status/{ZONE}", 400)
        yield lambda count: ask(server.port, f"/status/{ZONE}", count)


def empty_loop(count: int) -> int:
    for _ in repeat(None, count):
        pass
    return count


def dict_look_up(count: int) -> int:
    known, name = {f"workload-{number}": frozenset[Zone]() for number in range(10)}, "workload-3"
    for _ in repeat(None, count):
        known[name]
    return count


def tracker_read(count: int) -> int:
    tracker, name = ZoneTracker("http://127.0.0.1:1"), "workload-3"
    status = ZoneStatus(
        zone=Zone(ZONE), workload=name, state=ZoneState.OUT, since=0.0, by="benchmark", reason="benchmark"
    )
    tracker.receive(0, [status], at=1.0)
    tracker.decide()
    assert tracker.zones_out(name)
    for _ in repeat(None, count):
        tracker.zones_out(name)
    return count


class Crowd:
    """Connections that listen to one server, and come back when it goes away."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        self.count = count
        self.greeted: set[int] = set()
        self.told = 0
        self.changed = asyncio.Event()
        self.lost: set[int] = set()

    async def until(self, true: Callable[[], bool], seconds: float) -> float:
        async with asyncio.timeout(seconds):
            while not true():
                self.changed.clear()
                await self.changed.wait()
        return time.monotonic()


class Subscriber(asyncio.Protocol):
    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd = crowd
        self.number = number
        self.text = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(f"GET /v1/status/events HTTP/1.1\r\nHost: 127.0.0.1:{self.crowd.port}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self.text += data
        while b"\n\n" in self.text:
            event, _, self.text = self.text.partition(b"\n\n")
            if b"event: snapshot" in event:
                self.crowd.greeted.add(self.number)
            elif b"event: status" in event:
                self.crowd.told += 1
        if len(self.crowd.greeted) == self.crowd.count or self.crowd.told >= self.crowd.count:
            self.crowd.changed.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.crowd.lost.add(self.number)


def pauses(seed: int) -> Iterator[float]:
    chance = random.Random(seed).random
    return (RECONNECT_BACKOFF.delay(number, 0.0, chance) for number in count_from(1))


async def join(crowd: Crowd, number: int, *, waits: Iterator[float] | None = None) -> None:
    loop = asyncio.get_running_loop()
    while True:
        if waits is not None:
            await asyncio.sleep(next(waits))
        try:
            await loop.create_connection(lambda: Subscriber(crowd, number), "127.0.0.1", crowd.port)
        except OSError:
            if waits is None:
                raise
        else:
            return


@dataclass(frozen=True)
class Pushed:
    told_seconds: float
    megabytes: float
    back_seconds: float
    slowest_read: float


async def push(server: Server, count: int) -> Pushed:
    crowd = Crowd(server.port, count)
    gate = asyncio.Semaphore(500)

    async def admitted(number: int) -> None:
        async with gate:
            await join(crowd, number)

    await asyncio.gather(*(admitted(number) for number in range(count)))
    await crowd.until(lambda: len(crowd.greeted) == count, 60)
    gc.collect()
    begun = time.monotonic()
    writing = asyncio.create_task(asyncio.to_thread(server.write, out=True))
    told = await crowd.until(lambda: crowd.told >= count, 60) - begun
    await writing
    megabytes = server.megabytes
    # All of them lose the server in the same instant, and come back to a new one.
    crowd.greeted.clear()
    server.__exit__()
    await asyncio.to_thread(server.__enter__)
    begun = time.monotonic()
    reads: list[float] = []
    asking = asyncio.create_task(asyncio.to_thread(keep_reading, server.port, reads, crowd, count))
    await asyncio.gather(*(join(crowd, number, waits=pauses(number)) for number in range(count)))
    back = await crowd.until(lambda: len(crowd.greeted) == count, 120) - begun
    await asking
    return Pushed(told, megabytes, back, max(reads))


def keep_reading(port: int, seconds: list[float], crowd: Crowd, count: int) -> None:
    """What somebody else sees who asks for a zone while everybody comes back."""
    while len(crowd.greeted) < count:
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/status/{ZONE}")
        connection.getresponse().read()
        connection.close()
        seconds.append(time.monotonic() - begun)
        time.sleep(0.05)


def measure_push(count: int) -> Pushed:
    with tempfile.TemporaryDirectory() as folder, Server.holdfast(folder) as server:
        return uvloop.run(push(server, count))


def measure_quorum() -> tuple[float, float]:
    """Seconds until a tracker is right with two of five servers away, and the longest that reading it took."""
    with ExitStack() as stack:
        alive = [
            stack.enter_context(Server.holdfast(stack.enter_context(tempfile.TemporaryDirectory()))) for _ in range(3)
        ]
        hanging = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # accepts, and never answers
        ports = [free_port(), hanging.getsockname()[1], *(server.port for server in alive)]
        tracker = stack.enter_context(ZoneTracker(*(f"http://127.0.0.1:{port}" for port in ports)))
        while sum(source.age is not None for source in tracker.sources()) < 3:
            time.sleep(0.01)
        stop, slowest = threading.Event(), [0.0]

        def read() -> None:
            while not stop.is_set():
                begun = time.perf_counter()
                tracker.zones_out("shop")
                slowest[0] = max(slowest[0], time.perf_counter() - begun)
                time.sleep(0.0005)

        reading = threading.Thread(target=read)
        reading.start()
        taken = []
        for out in (True, False, True):
            begun = time.monotonic()
            for server in alive:
                server.write(out=out)
            while (ZONE in tracker.zones_out("shop")) is not out:
                if time.monotonic() > begun + 30:
                    raise RuntimeError("the tracker did not learn of it")
                time.sleep(0.001)
            taken.append(time.monotonic() - begun)
        stop.set()
        reading.join()
        return max(taken), slowest[0]


def goals(results: Results, subscribers: int) -> Sequence[Goal]:
    pushed = measure_push(subscribers)
    right, slowest = measure_quorum()
    empty = results.seconds("empty loop")
    tracker, look_up = (
        [taken - nothing for taken, nothing in zip(results.seconds(name), empty, strict=True)]
        for name in ("tracker read", "dict look-up")
    )
    print(f"{subscribers:,} subscribers, server killed: all back in {pushed.back_seconds:.1f} s after its start")
    return [
        Goal(
            "status read, share of a bare route",
            paired_ratio(results.rates("status read"), results.rates("bare route")),
            0.7,
            "higher",
        ),
        Goal(
            "tracker read, times a dict look-up",
            statistics.median(a / b for a, b in zip(tracker, look_up, strict=True)),
            5.0,
            "lower",
        ),
        Goal(f"{subscribers:,} subscribers, seconds until all are told", pushed.told_seconds, 1.0, "lower"),
        Goal(f"{subscribers:,} subscribers, megabytes of the server", pushed.megabytes, 450.0, "lower"),
        Goal("all come back: slowest status read meanwhile, seconds", pushed.slowest_read, 2.0, "lower"),
        Goal("two of five servers away: seconds until right", right, 2.0, "lower"),
        Goal("two of five servers away: slowest tracker read, seconds", slowest, 0.1, "lower"),
    ]


def build(quick: bool) -> Benchmark:
    subscribers = 1_000 if quick else 10_000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    needed = subscribers * 11 // 10 + 300  # a server has files of its own, and keeps connections for other requests
    if most < needed:
        raise SystemExit(
            f"{subscribers} connections need {needed} open files, and {most} are allowed: see `ulimit -Hn`"
        )
    loops, requests = (200_000, 4_000) if quick else (1_000_000, 20_000)
    return Benchmark(
        contenders=[
            Contender("bare route", bare_route, requests),
            Contender("status read", status_read, requests),
            Contender.plain("empty loop", empty_loop, loops),
            Contender.plain("dict look-up", dict_look_up, loops),
            Contender.plain("tracker read", tracker_read, loops),
        ],
        goals=lambda results: goals(results, subscribers),
        rounds=3 if quick else 7,
    )


if __name__ == "__main__":
    sys.exit(main("status", build))
