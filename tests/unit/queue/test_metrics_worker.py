"""What a real worker tells of itself."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Outcome
from holdfast._multi_sink import MultiSink
from holdfast.queue import Queue, Reject, Worker, WorkerOptions
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.events import QueueObservation
from holdfast.queue.outcomes import WorkerOutcomes
from holdfast.queue.watcher import QueueWatcher
from tests.unit.queue.made import Scraped

STUCK = 10.0


class Until:
    """A sink that knows when so many messages have been handled."""

    def __init__(self, count: int) -> None:
        self._left = threading.Semaphore(0)
        self._count = count

    def emit(self, event: QueueObservation) -> None:
        if type(event).__name__ == "AttemptEvent":
            self._left.release()

    def wait(self) -> None:
        for _ in range(self._count):
            assert self._left.acquire(timeout=STUCK)


class Outcomes:
    def __init__(self) -> None:
        self.all: list[Outcome] = []

    def emit(self, event: Outcome) -> None:
        self.all.append(event)


def test_a_worker_its_queue_and_its_zone_are_told_by_one_sink_of_several() -> None:
    backend, metrics, outcomes, until = MemoryBackend(), Scraped(), Outcomes(), Until(7)
    queue = Queue("mail", backend)

    @queue.job
    def greet(name: str) -> None:
        if name == "nobody":
            raise Reject("there is nobody")

    watcher = QueueWatcher("mail", backend, metrics)
    zone = WorkerOutcomes("shop", "use1-az1", "i-1", outcomes)
    for name in ("a", "b", "c", "nobody"):
        greet.to("acme").send(name)
    for name in ("d", "e", "f"):
        greet.to("bolt").send(name)
    with Worker(queue, WorkerOptions(concurrency=2), sink=MultiSink[QueueObservation](metrics, watcher, zone, until)):
        until.wait()
        watcher.inspect()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.render())
        for sample in family.samples
    }
    assert found["holdfast_queue_received_total", "mail"] == 7
    assert found["holdfast_queue_handled_total", "mail", "acked"] == 6
    assert found["holdfast_queue_handled_total", "mail", "buried"] == 1
    assert found["holdfast_queue_first_attempt_age_seconds_count", "mail"] == 7
    assert found["holdfast_queue_tenant_handled_total", "mail", "bolt", "acked"] == 3
    assert found["holdfast_queue_messages", "mail", "dead"] == 1
    assert found["holdfast_queue_polls_total", "mail", "filled"] >= 1
    assert sum(outcome.count_2xx for outcome in outcomes.all) == 6
    assert sum(outcome.count_4xx for outcome in outcomes.all) == 1
    backend.close()


@pytest.mark.parametrize("broken", [True, False])
def test_a_sink_that_raises_does_not_disturb_the_worker_or_the_others(broken: bool) -> None:
    backend, until = MemoryBackend(), Until(3)
    queue = Queue("mail", backend)
    done: list[bytes] = []
    queue.handle()(lambda delivery: done.append(delivery.body))

    class Broken:
        def emit(self, event: QueueObservation) -> None:
            raise RuntimeError("no")

    sinks = (Broken(), until) if broken else (until,)
    for body in (b"1", b"2", b"3"):
        queue.send(body, tenant="acme")
    with Worker(queue, sink=MultiSink[QueueObservation](*sinks)):
        until.wait()
    assert sorted(done) == [b"1", b"2", b"3"]
    backend.close()
