"""Leases are kept while handlers are at work."""

import threading

import pytest

from holdfast._errors import EngineUnavailable, OutcomeUnknown
from holdfast.queue import CurrentMessage, Delivery, current_message
from holdfast.queue.backend import Ack, LeaseRequest, Settlement
from tests.unit.queue.worker.bench import Arrivals, Bench


class Long:
    """A handler that takes as long as the test likes."""

    def __init__(self, bench: Bench) -> None:
        self.go = threading.Event()
        self.began: Arrivals[CurrentMessage] = Arrivals()

        @bench.queue.handle()
        def handle(_: Delivery) -> None:
            self.began.put(current_message())
            self.go.wait()


def test_a_long_handler_keeps_its_message() -> None:
    bench = Bench(lease=30)
    long = Long(bench)
    bench.send(b"x")
    bench.feed()
    handling = long.began.next()
    for _ in range(3600 // 5):
        bench.clock.advance(5)
        bench.run.heartbeat.step()
        bench.run.watchdog.step()
    assert not bench.backend.backend.lease(LeaseRequest(queue="work", count=1, lease=1.0)).deliveries
    assert not handling.is_over
    long.go.set()
    bench.settle()
    assert bench.sink.endings == ["acked"]
    assert bench.sink.handled[0].seconds == 3600
    beats = bench.backend.calls.count("settle") - 1
    assert 3600 / 30 * 2 <= beats <= 3600 / 10


def test_a_young_lease_is_left_alone() -> None:
    bench = Bench(lease=30)
    long = Long(bench)
    bench.send(b"x")
    bench.feed()
    long.began.next()
    bench.clock.advance(9.9)
    bench.run.heartbeat.step()
    assert "settle" not in bench.backend.calls
    bench.clock.advance(0.1)
    bench.run.heartbeat.step()
    assert "settle" in bench.backend.calls
    long.go.set()


@pytest.mark.parametrize("error", [EngineUnavailable("away"), OutcomeUnknown("no reply")])
def test_two_heartbeats_may_fail(error: Exception) -> None:
    bench = Bench(lease=30)
    long = Long(bench)
    bench.send(b"x")
    bench.feed()
    handling = long.began.next()
    bench.backend.fail("settle", error, error)
    for seconds in (12, 6, 6):
        bench.clock.advance(seconds)
        bench.run.heartbeat.loop.run_step()
        bench.run.watchdog.step()
    assert bench.sink.troubles == [("extend", type(error).__name__)] * 2
    bench.clock.advance(20)
    bench.run.watchdog.step()
    assert not handling.is_over
    long.go.set()


def test_a_handler_is_told_before_its_lease_ends_when_the_backend_stays_away() -> None:
    bench = Bench(lease=30)
    long = Long(bench)
    bench.send(b"x")
    bench.feed()
    handling = long.began.next()
    bench.backend.fail("settle", *[EngineUnavailable("away")] * 100)
    seconds = 0
    while not handling.is_over:
        bench.clock.advance(1)
        seconds += 1
        assert 0 <= bench.run.heartbeat.loop.run_step() <= 1.0
        bench.run.watchdog.step()
    assert seconds == 25
    assert bench.backend.calls.count("settle") == 16  # from a third of the lease on, once in a while
    long.go.set()


def test_a_handler_is_told_when_another_worker_has_its_message(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(lease=30)
    long = Long(bench)
    bench.send(b"x")
    bench.feed()
    handling = long.began.next()
    held = bench.run.context.leased.list_undecided()[0]
    bench.clock.advance(31)
    held.lease_ends_at += 3600  # as far as this worker knows, there is time
    [other] = bench.backend.backend.lease(LeaseRequest(queue="work", count=1, lease=30.0)).deliveries
    held.lease_ends_at = bench.clock.monotonic()
    bench.run.heartbeat.step()
    assert handling.is_over
    assert handling.reason == "another worker has it"
    assert bench.sink.endings == ["lease_lost"]
    assert bench.backend.backend.settle([Settlement(other.receipt, Ack())]) == [True]
    long.go.set()
    bench.settle()
    assert bench.depth() == (0, 0, 0, 0)


def test_a_message_that_is_settled_during_a_heartbeat_is_not_lost() -> None:
    bench = Bench(lease=30)
    long = Long(bench)
    bench.send(b"x")
    bench.feed()
    long.began.next()
    bench.clock.advance(15)

    def settle_first() -> None:
        bench.backend.on.clear()
        long.go.set()
        bench.settle()

    bench.backend.on["settle"] = settle_first
    bench.run.heartbeat.step()
    assert bench.sink.endings == ["acked"]


def test_leases_of_one_second_are_looked_at_often_enough() -> None:
    bench = Bench(lease=1.0)
    Long(bench)
    assert bench.run.heartbeat.step() == pytest.approx(1 / 6)
    slow = Bench(lease=3600.0)
    Long(slow)
    assert slow.run.heartbeat.step() == 1.0
