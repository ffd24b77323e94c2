"""Part `noise`: some tenants have sent far too much; how long do others wait who send one message each?

One tenant, or ten together, have sent 20,000 jobs of 5 ms before the worker begins, which does 8 at a time. Half a
second later 50 others send one each, 5 ms apart. A latency is the time from just before a message is sent until its job
begins. Quiet is the same with nobody else. With Holdfast this is repeated with 50 others in each wave while there still
is noise, and the waves are taken together; a peer's one wave waits for all that came before it, so there is one. Of the
250 others, the hands of two are wholly among those of the ten noisy tenants; of all tenants that is so for 0.4 %.

Peers know no tenants: for them one noisy tenant and ten are the same, and run once. Nobody is waited for longer than 60
seconds after the last was sent (`--quick`: 20): whose job has not begun by then counts as that. Throughput is that of
all jobs, noise and others, until the last one has ended; FIFO is Holdfast with one lane and nothing else: the same
worker, the same store.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks._harness import Goal
from benchmarks._queue_child import Child
from benchmarks._queue_roles import CONCURRENCY
from benchmarks._queue_servers import Engine, Servers
from benchmarks._report import Report, milliseconds, percentile

FIFO: Mapping[str, Any] = {
    "lanes": 1,
    "lanes_per_tenant": 1,
    "spill_above": None,
    "fresh_for": 0,
    "backlog_share": 0,
    "low_priority_share": 0,
    "spill_share": 0,
}
"""A queue as others have it."""
VICTIMS = 50
PAUSE = 0.005
"""Seconds between the messages of two victims."""
BETWEEN = 0.3
"""Seconds between two waves of them."""
ONE, TEN = ["noisy-0"], [f"noisy-{number}" for number in range(10)]
PROCRASTINATE = {"concurrency": CONCURRENCY, "connections": CONCURRENCY + 2, "delete": "always", "uvloop": True}


@dataclass(frozen=True)
class Noise:
    """Who has sent how much before, and how often victims come."""

    tenants: Sequence[str]
    count: int
    waves: int
    is_drained: bool
    """Whether to wait until all is done, to see how long that takes."""
    patience: float = 60.0
    """Seconds after which victims are not waited for any more."""


@dataclass(frozen=True)
class Heard:
    """How long victims waited, and how many jobs were done in a second."""

    latencies: Sequence[float]
    per_second: float | None = None

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 0.5)

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 0.99)


def listen(module: str, options: Mapping[str, Any], noise: Noise) -> Heard:
    """Make the noise, let the victims come, and measure."""
    expected = noise.waves * VICTIMS
    with Child(module, "producer", **options) as producer, Child(module, "worker", **options) as worker:
        if noise.count:
            producer.ask("load", job="nap", count=noise.count, tenants=noise.tenants)
        began = worker.ask("start", target=noise.count + expected, numbers=noise.count)
        time.sleep(0.5)
        for wave in range(noise.waves):
            if wave:
                time.sleep(BETWEEN)
            names = [f"victim-{wave}-{number}" for number in range(VICTIMS)]
            producer.ask("victims", tenants=names, pause=PAUSE)
        per_second = None
        if noise.is_drained:
            found = worker.ask("wait", patience=120.0)
            if not found["done"] or found["distinct"] != noise.count:
                raise RuntimeError(f"{module}: {found} of {noise.count} jobs and {expected} others")
            per_second = (noise.count + expected) / (found["ended"] - began)
        latencies = wait_for(worker, expected, noise.patience)
        worker.kill()
    return Heard(latencies, per_second)


def wait_for(worker: Child, expected: int, patience: float) -> Sequence[float]:
    """The latencies of all, with that of those who were not served at the end of all patience."""
    until = time.monotonic() + patience
    while True:
        latencies = [latency for _, latency in worker.ask("seen")["latencies"]]
        if len(latencies) >= expected or time.monotonic() > until:
            return [*latencies, *([patience] * (expected - len(latencies)))]
        time.sleep(0.1)


def measure(servers: Servers, report: Report, *, quick: bool) -> None:
    count, waves, patience = (5_000, 2, 20.0) if quick else (20_000, 5, 60.0)
    quiet = Noise((), 0, waves, is_drained=False)
    peers: dict[str, Heard] = {}
    others: tuple[tuple[str, Engine, Mapping[str, Any]], ...] = (
        ("dramatiq", "valkey", {}),
        ("procrastinate", "postgres", PROCRASTINATE),
    )
    for name, place, options in others:
        for kind, noise in (("quiet", quiet), ("noise", Noise(ONE, count, 1, is_drained=False, patience=patience))):
            with servers.store(place) as url:
                peers[name] = listen(f"_queue_{name}", {"url": url, **options}, noise)
            tell(report, f"{name}, {kind}", peers[name])
    engines: tuple[Engine, ...] = ("sqlite", "postgres")
    for engine in engines:
        heard: dict[str, Heard] = {}
        for kind, noise, policy in (
            ("quiet", quiet, {}),
            ("fifo", Noise(TEN, count, 1, is_drained=True), FIFO),
            ("one noisy", Noise(ONE, count, waves, is_drained=True), {}),
            ("ten noisy", Noise(TEN, count, waves, is_drained=True), {}),
        ):
            with servers.store(engine) as url:
                set_up = {"url": url, "policy": policy, "concurrency": CONCURRENCY}
                heard[kind] = listen("_queue_holdfast", set_up, noise)
            tell(report, f"holdfast on {engine}, {kind}", heard[kind])
        for goal in goals(engine, heard, peers):
            report.hold(goal)


def tell(report: Report, name: str, heard: Heard) -> None:
    rate = "" if heard.per_second is None else f", {heard.per_second:,.0f} jobs/s in all"
    waited = f"p50 {milliseconds(heard.p50)}, p99 {milliseconds(heard.p99)}"
    report.say(f"{name}: {len(heard.latencies)} victims wait {waited}{rate}")
    report.keep(f"{name}, p50 seconds", heard.p50)
    report.keep(f"{name}, p99 seconds", heard.p99)
    if heard.per_second is not None:
        report.keep(f"{name}, jobs per second", heard.per_second)


def goals(engine: str, heard: Mapping[str, Heard], peers: Mapping[str, Heard]) -> Iterator[Goal]:
    quiet, fifo = heard["quiet"].p99, heard["fifo"].per_second or 0.0
    for kind in ("one noisy", "ten noisy"):
        name = f"{engine}, {kind}"
        yield Goal(f"{name}: p99 seconds of victims", heard[kind].p99, max(3 * quiet, quiet + 0.010), "lower")
        yield Goal(f"{name}: throughput, share of FIFO", (heard[kind].per_second or 0.0) / fifo, 0.9, "higher")
    worst = max(heard["one noisy"].p99, heard["ten noisy"].p99)
    for peer, theirs in peers.items():
        yield Goal(f"{engine}, the worse: p99 of victims, share of {peer}", worst / theirs.p99, 0.01, "lower")
