"""Dramatiq on Valkey in the queue benchmark of the noise: eight threads, everything else as it comes.

Valkey keeps nothing on disk here, so Dramatiq's messages are not durable; nobody else is excused from that.
Options: `url`.
"""

from collections.abc import Callable, Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks._queue_roles import CONCURRENCY, Options, Tally


def add(broker: RedisBroker, name: str, function: Callable[[float], None]) -> "dramatiq.Actor[[float], None]":
    def job(number: float) -> None:
        function(number)

    return dramatiq.actor(actor_name=name, broker=broker)(job)


class Sender:
    def __init__(self, options: Options) -> None:
        self._broker = RedisBroker(url=options["url"])  # type: ignore[no-untyped-call]
        self._jobs = {name: add(self._broker, name, function) for name, function in Tally().jobs.items()}

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:
        for number in numbers:
            self.send_one(job, number, tenants[0])

    def send_one(self, job: str, number: float, tenant: str) -> None:  # noqa: ARG002 - it knows no tenants
        self._jobs[job].send(number)

    def close(self) -> None:
        self._broker.close()


class Runner:
    def __init__(self, options: Options, tally: Tally) -> None:
        self._broker = RedisBroker(url=options["url"])  # type: ignore[no-untyped-call]
        for name, function in tally.jobs.items():
            add(self._broker, name, function)
        self._worker = dramatiq.Worker(self._broker, worker_threads=CONCURRENCY)

    def start(self) -> None:
        self._worker.start()

    def is_settled(self) -> bool:
        return self._worker.work_queue.unfinished_tasks == 0

    def stop(self) -> None:
        self._worker.stop(timeout=1000)
        self._broker.close()
