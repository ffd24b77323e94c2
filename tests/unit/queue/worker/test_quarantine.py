"""A message that workers may have died of is handled with nothing beside it."""

import logging
import threading

import pytest

from holdfast.queue import Delivery
from holdfast.queue.backend import LeaseRequest
from holdfast.queue.worker.fetcher import QUARANTINE_WAIT, SUSPECT_DEATHS
from holdfast.queue.worker.leases import MAX_START_WAIT
from tests.unit.queue.worker.bench import Arrivals, Bench, texts

HOUR = 3600.0


class Handlers:
    """A queue's handler, which goes on with a message when it may."""

    def __init__(self, bench: Bench) -> None:
        self.began: Arrivals[bytes] = Arrivals()
        self.go: dict[bytes, threading.Event] = {}
        bench.queue.handle()(self.handle)

    def handle(self, delivery: Delivery) -> None:
        go = self.go.setdefault(delivery.body, threading.Event())
        self.began.put(delivery.body)
        go.wait()

    def let_go(self, body: bytes) -> None:
        self.go.setdefault(body, threading.Event()).set()


@pytest.fixture
def bench() -> Bench:
    return Bench(concurrency=4, lease=HOUR, max_attempts=10)


@pytest.fixture
def handlers(bench: Bench) -> Handlers:
    return Handlers(bench)


def die(bench: Bench, *bodies: bytes, times: int = SUSPECT_DEATHS) -> None:
    """Workers are given messages, so often, and are not heard of again."""
    bench.send(*bodies)
    for _ in range(times):
        given = 0
        while given < len(bodies):
            given += len(bench.backend.backend.lease(LeaseRequest(queue="work", count=9, lease=1.0)).deliveries)
            bench.clock.advance(HOUR)
    for _ in range(2):  # until that is noticed, and until they have parted
        bench.backend.backend.sweep("work")
        bench.clock.advance(2 * HOUR)
    bench.backend.backend.sweep("work")
    assert bench.depth() == (len(bodies), 0, 0, 0)


def leases(bench: Bench) -> int:
    return bench.backend.calls.count("lease")


def test_it_waits_for_the_others_and_nothing_is_taken_until_it_has_ended(
    bench: Bench, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    die(bench, b"suspect")
    bench.send(b"slow")
    bench.feed()
    assert handlers.began.next() == b"slow"
    bench.send(b"later")
    before = leases(bench)
    bench.feed()
    assert handlers.began.empty()
    handlers.let_go(b"slow")
    bench.settle_next()
    with caplog.at_level(logging.WARNING, "holdfast"):
        bench.feed()
    assert handlers.began.next() == b"suspect"
    assert [text for text in texts(caplog.records) if "in quarantine" in text]
    bench.feed()
    assert leases(bench) == before
    handlers.let_go(b"suspect")
    bench.settle()
    bench.feed()
    assert handlers.began.next() == b"later"
    handlers.let_go(b"later")
    bench.settle()


def test_of_several_one_is_kept_and_the_others_are_for_other_workers(bench: Bench, handlers: Handlers) -> None:
    die(bench, b"one", b"two", b"three")
    bench.feed()
    assert handlers.began.empty()
    bench.settle_next()
    assert bench.depth() == (2, 1, 0, 0)
    bench.feed()
    first = handlers.began.next()
    handlers.let_go(first)
    bench.settle()
    assert bench.depth() == (2, 0, 0, 0)


def test_it_does_not_wait_for_ever(bench: Bench, handlers: Handlers) -> None:
    die(bench, b"suspect")
    bench.send(b"endless")
    bench.feed()
    assert handlers.began.next() == b"endless"
    bench.clock.advance(QUARANTINE_WAIT)
    bench.feed()
    assert handlers.began.next() == b"suspect"
    for body in (b"suspect", b"endless"):
        handlers.let_go(body)
    bench.settle()


def test_it_is_not_handed_back_for_waiting_but_when_the_worker_stops(bench: Bench, handlers: Handlers) -> None:
    die(bench, b"suspect")
    bench.send(b"slow")
    bench.feed()
    assert handlers.began.next() == b"slow"
    bench.clock.advance(MAX_START_WAIT)
    bench.run.watchdog.step()
    assert bench.depth() == (0, 2, 0, 0)
    bench.run.watchdog.release("the worker stops", include_started=False)
    bench.settle_next()
    assert bench.depth() == (1, 1, 0, 0)
    handlers.let_go(b"slow")
    bench.settle()
    handlers.let_go(b"suspect")
    bench.feed()
    bench.feed()
    assert handlers.began.next() == b"suspect", "it is still one"
    bench.settle()


def test_one_death_is_no_reason_for_suspicion(bench: Bench, handlers: Handlers) -> None:
    die(bench, b"one", b"two", times=SUSPECT_DEATHS - 1)
    bench.feed()
    assert {handlers.began.next(), handlers.began.next()} == {b"one", b"two"}
    for body in (b"one", b"two"):
        handlers.let_go(body)
    bench.settle()


def test_if_no_thread_can_be_had_for_it_it_is_for_other_workers(
    bench: Bench, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    die(bench, b"suspect")
    bench.feed()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _cannot_start)
        with pytest.raises(RuntimeError, match="can't start"):
            bench.feed()
    bench.settle()
    assert bench.depth() == (1, 0, 0, 0)
    assert handlers.began.empty()


def _cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
