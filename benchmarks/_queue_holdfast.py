"""Holdfast in the queue benchmark: typed jobs, with a worker's own defaults unless an option says otherwise.

Options: `url`; `policy`, for a queue that is made; `limited`, tenants that have limits: every one that there is, so
high that they are counted and never reached; `back`, seconds by which the producer's clock is slow, to send old
messages; `concurrency`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks._queue_roles import Options, Tally
from holdfast._clock import SystemClock
from holdfast.queue import Job, Limits, Queue, QueuePolicy, SentMessage
from holdfast.queue.backend import QueueChange

LIMITS = Limits(spill_rate=1e5, max_rate=1e6, run_rate=1e6, concurrency=100_000, max_waiting=10_000_000)


class SlowClock(SystemClock):
    """One that is behind."""

    __slots__ = ("_back",)

    def __init__(self, back: float) -> None:
        self._back = back

    def wall(self) -> float:
        return super().wall() - self._back


def opened(options: Options) -> Queue:
    policy = msgspec.convert(options.get("policy", {}), QueuePolicy)
    return Queue("work", options["url"], policy=policy, clock=SlowClock(options.get("back", 0.0)))


def add(queue: Queue, name: str, function: Callable[[float], None]) -> Job[[float], None]:
    def job(number: float) -> None:
        function(number)

    return queue.job(name=name)(job)


class Sender:
    def __init__(self, options: Options) -> None:
        self._queue = opened(options)
        self._jobs = {name: add(self._queue, name, function) for name, function in Tally().jobs.items()}
        limited = dict.fromkeys(options.get("limited", ()), LIMITS)
        self._queue.backend.change("work", QueueChange(limits=limited))

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:
        called, many = self._jobs[job], len(tenants)
        kept = self._queue.send_many([called.to(tenants[int(number) % many]).message(number) for number in numbers])
        if not all(isinstance(result, SentMessage) for result in kept):
            raise RuntimeError(f"refused: {next(result for result in kept if not isinstance(result, SentMessage))}")

    def send_one(self, job: str, number: float, tenant: str) -> None:
        self._jobs[job].to(tenant).send(number)

    def change(self, policy: Mapping[str, Any]) -> None:
        self._queue.backend.change("work", QueueChange(policy=msgspec.convert(policy, QueuePolicy)))

    def inspect(self, times: int) -> float:
        taken = []
        for _ in range(times):
            began = time.monotonic()
            self._queue.backend.inspect("work")
            taken.append(time.monotonic() - began)
        return sorted(taken)[times // 2]

    def close(self) -> None:
        self._queue.close()


class Runner:
    def __init__(self, options: Options, tally: Tally) -> None:
        from holdfast.queue import Worker, WorkerOptions

        self._queue = opened(options)
        for name, function in tally.jobs.items():
            add(self._queue, name, function)
        chosen = {"concurrency": options["concurrency"]} if "concurrency" in options else {}
        self._worker = Worker(self._queue, WorkerOptions(**chosen))
        self._queue.policy  # noqa: B018 - opens it

    def start(self) -> None:
        self._worker.start()

    def is_settled(self) -> bool:
        return not self._worker.in_flight

    def stop(self) -> None:
        self._worker.stop()
        self._queue.close()
