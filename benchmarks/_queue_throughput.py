"""Part `throughput`: no-op jobs from a producer through a store to a worker, each a process of its own.

End to end: all are sent, then all are handled; the time is that of both, until the last is acknowledged. Contended: the
worker is there from the start. Single: messages are sent one by one. Whether all of them were handled is checked.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, paired_ratio, run, table
from benchmarks._queue_child import Child
from benchmarks._queue_servers import Servers
from benchmarks._report import Report

TENANTS = [f"tenant-{number}" for number in range(20)]
LIMITED = TENANTS[::4]
PATIENCE = 120.0
PROCRASTINATE = {"concurrency": 30, "connections": 20, "delete": "always", "uvloop": True}


@dataclass(frozen=True)
class System:
    """A contender: its module, its options, where it keeps its messages, and how many make a round."""

    name: str
    module: str
    store: Callable[[], AbstractContextManager[Mapping[str, Any]]]
    count: int
    options: Mapping[str, Any] = field(default_factory=dict)


def systems(servers: Servers, scale: float) -> Sequence[System]:
    """All of them; so many messages that a round of each takes about as long."""

    @contextmanager
    def path() -> Iterator[Mapping[str, Any]]:
        with servers.file() as file:
            yield {"path": file}

    @contextmanager
    def sqlite() -> Iterator[Mapping[str, Any]]:
        with servers.file() as file:
            yield {"url": f"sqlite:{file}"}

    @contextmanager
    def postgres() -> Iterator[Mapping[str, Any]]:
        with servers.database() as url:
            yield {"url": url}

    def count(number: int) -> int:
        return int(number * scale) // 100 * 100

    limited = {"limited": LIMITED}
    return [
        System("sqlite: bare", "_queue_bare_sqlite", path, count(40_000)),
        System("sqlite: huey", "_queue_huey", path, count(4_000)),
        System("sqlite: holdfast", "_queue_holdfast", sqlite, count(20_000), limited),
        System("postgres: bare", "_queue_bare_postgres", postgres, count(30_000)),
        System("postgres: procrastinate", "_queue_procrastinate", postgres, count(1_500), PROCRASTINATE),
        System("postgres: holdfast", "_queue_holdfast", postgres, count(10_000), limited),
    ]


@contextmanager
def both(system: System) -> Iterator[tuple[Child, Child]]:
    """Its producer and its worker, ready."""
    with (
        system.store() as store,
        Child(system.module, "producer", **store, **system.options) as producer,
        Child(system.module, "worker", **store, **system.options) as worker,
    ):
        yield producer, worker
        worker.kill()


@contextmanager
def end_to_end(system: System, split: dict[str, list[tuple[float, float]]]) -> Iterator[Work]:
    with both(system) as (producer, worker):

        def work(count: int) -> int:
            sending = producer.ask("send", count=count, tenants=TENANTS)
            began = worker.ask("start", target=count, numbers=count)
            settled = finished(worker, system, count)
            split.setdefault(system.name, []).append((count / sending, count / (settled - began)))
            return count

        yield work


@contextmanager
def contended(system: System) -> Iterator[Work]:
    with both(system) as (producer, worker):

        def work(count: int) -> int:
            worker.ask("start", target=count, numbers=count)
            producer.ask("send", count=count, tenants=TENANTS)
            finished(worker, system, count)
            return count

        yield work


@contextmanager
def singles(system: System) -> Iterator[Work]:
    with (
        system.store() as store,
        Child(system.module, "producer", **store, **system.options) as producer,
    ):
        producer.ask("singles", count=50, tenants=TENANTS)

        def work(count: int) -> int:
            producer.ask("singles", count=count, tenants=TENANTS)
            return count

        yield work


def finished(worker: Child, system: System, count: int) -> float:
    """When the last message was acknowledged."""
    found = worker.ask("wait", patience=PATIENCE)
    if not found["done"] or found["distinct"] != count:
        raise RuntimeError(f"{system.name}: {found['distinct']} of {count} messages were handled: {found}")
    return float(found["settled"])


def measure(servers: Servers, report: Report, *, quick: bool) -> None:
    everybody = systems(servers, 0.5 if quick else 1.0)
    split: dict[str, list[tuple[float, float]]] = {}
    ends = [Contender(one.name, partial(end_to_end, one, split), one.count) for one in everybody]
    one_by_one = [
        Contender(f"{one.name}, single", partial(singles, one), 500 if quick else 2000)
        for one in everybody
        if one.name.endswith((": bare", ": holdfast"))
    ]
    apart = [Contender(f"{one.name}, contended", partial(contended, one), one.count) for one in everybody]
    first = Benchmark(contenders=[*ends, *one_by_one], goals=lambda _: [], rounds=3 if quick else 5)
    results = run(first, report.progress)
    second = Benchmark(contenders=apart, goals=lambda _: [], rounds=1 if quick else 3)
    while_producing = run(second, report.progress)
    for line in (*table(first, results), *list(table(second, while_producing))[1:]):
        report.say(line)
    for name, rates in split.items():
        sending, draining = (statistics.median(values) for values in zip(*rates[1:], strict=True))
        report.say(f"{name}: {sending:,.0f}/s sent, {draining:,.0f}/s handled")
        report.keep(f"{name}, sent per second", sending)
        report.keep(f"{name}, handled per second", draining)
    for found in (results, while_producing):
        for name in found.samples:
            report.keep(f"{name}, per second", statistics.median(found.rates(name)))
    for goal in goals(results):
        report.hold(goal)


def goals(results: Results) -> Iterator[Goal]:
    def ratio(name: str, base: str) -> float:
        return paired_ratio(results.rates(name), results.rates(base))

    for engine, peer, times, share in (("sqlite", "huey", 2.4, 0.3), ("postgres", "procrastinate", 10.0, 0.2)):
        ours, bare = f"{engine}: holdfast", f"{engine}: bare"
        yield Goal(f"{engine}, end to end, times {peer}", ratio(ours, f"{engine}: {peer}"), times, "higher")
        yield Goal(f"{engine}, end to end, share of bare", ratio(ours, bare), share, "higher")
        yield Goal(f"{engine}, single send, share of bare", ratio(f"{ours}, single", f"{bare}, single"), 0.6, "higher")
