"""Part `outage`: nobody worked for an hour. 3.6 million messages of 1,000 tenants wait, and 400 come every second.

No-op jobs. What is measured: how long fresh messages wait, from just before they are sent until their job begins,
beside the same on an empty queue; how many messages are handled in a second, fresh and old together, beside a queue
with one lane and no protection (FIFO), which has the same backlog; and whether the worker's memory grows. The backlog
is not drained to the end. A fresh message whose job has not begun a second after the last was sent counts as having
waited for as long as was measured.

The backlog is sent in steps of 10,000 by a producer whose clock is an hour slow. There is no `max_waiting`, and there
are no limits; all else is Holdfast's default.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks._harness import Goal
from benchmarks._queue_child import Child
from benchmarks._queue_noise import FIFO
from benchmarks._queue_servers import Servers
from benchmarks._report import Report, milliseconds, percentile

RATE = 400.0
HOUR = 3600.0
TENANTS = [f"tenant-{number}" for number in range(1000)]
MODULE = "_queue_holdfast"
WARM = 2.0
"""Seconds before anything is measured: a worker that begins allocates what it needs."""
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "holdfast": {"max_waiting": None},
    "fifo": {**FIFO, "max_waiting": None},
}


@dataclass(frozen=True)
class Seen:
    """What came of some seconds."""

    latencies: Sequence[float]
    sent: int
    seconds: float
    handled_per_second: float
    megabytes_before: float
    megabytes_after: float

    @property
    def p50(self) -> float:
        return self._percentile(0.5)

    @property
    def p99(self) -> float:
        return self._percentile(0.99)

    def _percentile(self, share: float) -> float:
        missing = max(0, self.sent - len(self.latencies))
        return percentile([*self.latencies, *[self.seconds] * missing], share)


def load(urls: Mapping[str, str], count: int) -> None:
    """Fill them, all at the same time."""
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(Child(MODULE, "producer", url=url, policy=POLICIES[name], back=HOUR))
            for name, url in urls.items()
        ]
        for loader in loaders:
            loader.tell("load", job="nothing", count=count, tenants=TENANTS, at_once=10_000)
        for loader in loaders:
            loader.hear()


def watch(url: str, name: str, seconds: float) -> Seen:
    """Work on what is there, while fresh messages come."""
    options = {"url": url, "policy": POLICIES[name]}
    with Child(MODULE, "producer", **options) as producer, Child(MODULE, "worker", **options) as worker:
        worker.ask("start")
        producer.ask("fresh", rate=RATE, seconds=WARM, tenants=TENANTS)
        before = worker.ask("memory")
        worker.ask("expect", target=1 << 62)
        began = time.monotonic()
        sent = producer.ask("fresh", rate=RATE, seconds=seconds, tenants=TENANTS)
        after = worker.ask("memory")
        found = worker.ask("seen")
        handled = found["handled"] / (found["at"] - began)
        time.sleep(1.0)  # for those that were sent last
        latencies = [latency for at, latency in worker.ask("seen")["latencies"] if at >= began]
        worker.kill()
    return Seen(latencies, sent, seconds, handled, before, after)


def measure(servers: Servers, report: Report, *, quick: bool) -> None:
    count, seconds = (360_000, 8.0) if quick else (3_600_000, 20.0)
    with servers.file() as empty, servers.file() as full, servers.file() as plain:
        quiet = watch(f"sqlite:{empty}", "holdfast", seconds / 2)
        tell(report, "without backlog", quiet)
        urls = {"holdfast": f"sqlite:{full}", "fifo": f"sqlite:{plain}"}
        began = time.monotonic()
        load(urls, count)
        report.say(f"{count:,} old messages loaded, twice, in {time.monotonic() - began:.0f} s")
        backlog = watch(urls["holdfast"], "holdfast", seconds)
        tell(report, "with backlog", backlog)
        fifo = watch(urls["fifo"], "fifo", seconds)
        tell(report, "with backlog, fifo", fifo)
    report.hold(Goal("fresh p99 with backlog, times that without", backlog.p99 / quiet.p99, 3.0, "lower"))
    share = backlog.handled_per_second / fifo.handled_per_second
    report.hold(Goal("drain, share of FIFO", share, 0.95, "higher"))
    report.hold(
        Goal(
            "memory of the worker, times that before", backlog.megabytes_after / backlog.megabytes_before, 1.1, "lower"
        )
    )
    report.hold(Goal("fresh messages sent, share of those due", backlog.sent / (RATE * seconds), 0.95, "higher"))


def tell(report: Report, name: str, seen: Seen) -> None:
    report.say(
        f"{name}: {seen.sent / seen.seconds:,.0f}/s sent, {len(seen.latencies):,} of {seen.sent:,} fresh ones begun, "
        f"p50 {milliseconds(seen.p50)}, p99 {milliseconds(seen.p99)}; {seen.handled_per_second:,.0f}/s handled in all; "
        f"worker {seen.megabytes_before:.1f} MB, then {seen.megabytes_after:.1f} MB"
    )
    for what, value in (
        ("p50 seconds", seen.p50),
        ("p99 seconds", seen.p99),
        ("handled per second", seen.handled_per_second),
        ("megabytes before", seen.megabytes_before),
        ("megabytes after", seen.megabytes_after),
    ):
        report.keep(f"{name}, {what}", value)
