"""Handlers are ended in time, and nothing waits in the hands of a worker that cannot handle it."""

import asyncio
import logging
import threading

import pytest

from holdfast._errors import LeaseLost
from holdfast._types import Zone
from holdfast.queue import CurrentMessage, Delivery, current_message
from tests.unit.queue.worker.bench import QUICK, Arrivals, Bench, texts

HERE, THERE = Zone("use1-az1"), Zone("use1-az2")


class Stuck:
    """Handlers that hang until they are let go, and do not listen."""

    def __init__(self, bench: Bench, **options: float) -> None:
        self.go = threading.Event()
        self.began: Arrivals[CurrentMessage] = Arrivals()
        self.ended: Arrivals[int] = Arrivals()

        @bench.queue.handle(timeout=options.get("timeout"))
        def handle(delivery: Delivery) -> None:
            self.began.put(current_message())
            if delivery.body != b"quick":
                self.go.wait()
            self.ended.put(delivery.id)


def test_a_handler_is_told_when_its_lease_cannot_be_kept(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(lease=30)
    stuck = Stuck(bench)
    bench.send(b"x")
    bench.feed()
    handling = stuck.began.next()
    bench.clock.advance(24.9)
    bench.run.watchdog.step()
    assert not handling.is_over
    handling.check()
    bench.clock.advance(0.2)  # the last sixth of the lease begins: the handler must have ended when it ends
    bench.run.watchdog.step()
    assert handling.is_over
    with pytest.raises(LeaseLost, match="its lease could not be extended"):
        handling.check()
    assert handling.wait(3600)
    assert bench.sink.endings == ["lease_lost"]
    assert bench.sink.handled[0].seconds == pytest.approx(25.1)
    assert len(bench.run.context.leased) == 0
    assert "stopping its handler: its lease could not be extended" in texts(caplog.records)[0]
    stuck.go.set()
    stuck.ended.next()


def test_a_handler_that_waits_through_its_message_is_woken() -> None:
    bench = Bench(lease=30)
    results: Arrivals[bool] = Arrivals()
    waiting = threading.Event()

    @bench.queue.handle()
    def handle(_: Delivery) -> None:
        assert not current_message().wait(0)
        waiting.set()
        results.put(current_message().wait(3600))

    bench.send(b"x")
    bench.feed()
    waiting.wait()
    bench.clock.advance(29)
    bench.run.watchdog.step()
    assert results.next() is True


def test_an_asynchronous_handler_is_cancelled_before_its_lease_ends() -> None:
    bench = Bench(lease=30)
    began: Arrivals[CurrentMessage] = Arrivals()
    ended: Arrivals[bool] = Arrivals()

    @bench.queue.handle()
    async def handle(_: Delivery) -> None:
        began.put(current_message())
        try:
            await asyncio.Event().wait()
        finally:
            ended.put(current_message().is_over)

    bench.send(b"x")
    bench.feed()
    began.next()
    bench.clock.advance(25.1)
    bench.run.watchdog.step()
    assert ended.next()
    assert bench.sink.endings == ["lease_lost"]
    assert bench.depth() == (0, 1, 0, 0)  # until the lease ends: it may be somebody else's by then


def test_a_handler_that_takes_too_long_has_failed() -> None:
    bench = Bench(max_attempts=2)
    stuck = Stuck(bench, timeout=5.0)
    bench.send(b"x")
    bench.feed()
    stuck.began.next()
    bench.clock.advance(4.9)
    bench.run.watchdog.step()
    assert bench.sink.endings == []
    bench.clock.advance(0.1)
    bench.run.watchdog.step()
    bench.settle()
    assert bench.sink.endings == ["retried"]
    assert bench.sink.handled[0].error == "TimeoutError"
    assert bench.depth() == (0, 0, 1, 0)
    stuck.go.set()
    stuck.ended.next()
    bench.clock.advance(10)
    stuck.go.clear()
    bench.feed()
    stuck.began.next()
    bench.clock.advance(5)
    bench.run.watchdog.step()
    bench.settle()
    [letter] = bench.dead()
    assert letter.reason == "TimeoutError: the handler took longer than 5 s"
    assert letter.attempts == 2
    stuck.go.set()


def test_a_handler_that_hangs_leaves_its_place_to_another() -> None:
    bench = Bench(concurrency=2)
    stuck = Stuck(bench, timeout=5.0)
    bench.send(b"hangs")
    bench.feed()
    stuck.began.next()
    bench.clock.advance(5)
    bench.run.watchdog.step()
    bench.settle()
    executor = bench.run.executors._threads
    assert executor is not None
    assert (len(executor._abandoned), executor.is_stuck) == (1, False)
    bench.send(b"quick", b"quick")
    bench.feed()
    stuck.ended.next()
    stuck.ended.next()
    bench.settle()
    assert bench.sink.endings == ["retried", "acked", "acked"]
    stuck.go.set()
    stuck.ended.next()


def test_a_worker_whose_handlers_all_hang_takes_no_more_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(concurrency=3, max_attempts=10)
    stuck = Stuck(bench, timeout=5.0)
    bench.send(*[b"hangs"] * 3)
    bench.feed()
    for _ in range(3):
        stuck.began.next()
    bench.clock.advance(5)
    bench.run.watchdog.step()
    bench.settle()
    bench.send(*[b"quick"] * 10)
    polls = bench.backend.calls.count("lease")
    bench.run.watchdog.step()
    bench.run.watchdog.step()
    assert bench.run.fetcher.step() > 0
    assert bench.backend.calls.count("lease") == polls
    assert bench.depth()[0] == 10
    # asyncio complains whenever the garbage collector finds a task that an earlier test left hanging.
    errors = [it for it in caplog.records if it.levelno == logging.ERROR and it.name.startswith("holdfast")]
    [text] = texts(errors)
    assert text.startswith("queue work: handlers have not returned after they were told to stop, so no more can start ")
    stuck.go.set()
    for _ in range(3):
        stuck.ended.next()
    bench.wait_until_unstuck()
    bench.run.watchdog.step()
    assert "hanging handlers have returned" in texts(caplog.records)[-1]
    bench.feed()
    for _ in range(3):
        stuck.began.next()
    bench.settle()
    assert bench.sink.endings == ["retried"] * 3 + ["acked"] * 3


def test_threads_are_bounded_also_when_those_in_the_place_of_others_hang_too() -> None:
    bench = Bench(concurrency=2, max_attempts=10)
    stuck = Stuck(bench, timeout=5.0)
    for _ in range(2):  # the second pair was given to the worker before it knew
        bench.send(b"hangs", b"hangs")
        bench.feed_blindly()
        stuck.began.next()
        stuck.began.next()
        bench.clock.advance(5)
        bench.run.watchdog.step()
        bench.settle()
    bench.send(b"quick")
    bench.feed_blindly()
    executor = bench.run.executors._threads
    assert executor is not None
    assert (len(executor._abandoned), len(executor._threads)) == (4, 0)
    bench.run.watchdog.step()  # nobody is there to handle it: another worker shall have it
    bench.settle()
    assert bench.depth()[1] == 0
    stuck.go.set()
    for _ in range(4):
        stuck.ended.next()


def test_what_waits_too_long_for_a_handler_is_handed_back() -> None:
    """A batch of quick jobs turned out to be slow ones: others may be idle."""
    bench = Bench(concurrency=1)
    stuck = Stuck(bench)
    bench.run.fetcher._pace = QUICK
    bench.send(*[b"x"] * 4)
    bench.feed()
    stuck.began.next()
    assert bench.depth() == (0, 4, 0, 0)
    bench.clock.advance(0.9)
    bench.run.watchdog.step()
    assert len(bench.run.context.leased.list_undecided()) == 4
    bench.clock.advance(0.1)
    bench.run.watchdog.step()
    bench.settle_next()
    assert bench.depth() == (3, 1, 0, 0)
    assert bench.sink.endings == []  # none of them was begun
    stuck.go.set()
    bench.settle()
    bench.feed()
    assert stuck.began.next().delivery.attempt == 1


def test_it_looks_often_enough_for_the_least_patient_handler() -> None:
    bench = Bench()
    Stuck(bench, timeout=0.4)
    assert bench.run.watchdog.step() == pytest.approx(0.1)
    quick = Bench()
    Stuck(quick, timeout=0.001)
    assert quick.run.watchdog.step() == 0.02
    assert Bench.made
    plain = Bench(lease=1.2)
    Stuck(plain)
    assert plain.run.watchdog.step() == pytest.approx(0.1)


class TestZone:
    @pytest.mark.parametrize("key", [None, "shop"])
    def test_a_worker_in_a_zone_that_is_out_takes_nothing(self, key: str | None) -> None:
        bench = Bench(zone=HERE, workload="shop")
        Stuck(bench)
        bench.send(b"x")
        bench.zones.are_out = {key: frozenset({HERE})}
        assert bench.run.fetcher.step() > 0
        assert bench.worker.is_zone_out
        assert "lease" not in bench.backend.calls

    def test_other_zones_and_workloads_do_not_matter(self) -> None:
        bench = Bench(zone=HERE, workload="shop")
        stuck = Stuck(bench)
        bench.zones.are_out = {None: frozenset({THERE}), "other": frozenset({HERE})}
        bench.send(b"quick")
        bench.feed()
        stuck.ended.next()

    def test_it_hands_back_what_it_holds_and_goes_on_when_the_zone_is_in_again(self) -> None:
        bench = Bench(zone=HERE, shutdown_timeout=20.0, concurrency=1)
        stuck = Stuck(bench)
        bench.run.fetcher._pace = QUICK
        bench.send(*[b"x"] * 3)
        bench.feed()
        handling = stuck.began.next()
        bench.zones.are_out = {None: frozenset({HERE})}
        bench.run.watchdog.step()
        bench.settle_next()
        assert bench.depth() == (2, 1, 0, 0)  # what waits, at once
        bench.clock.advance(19.9)
        bench.run.watchdog.step()
        assert not handling.is_over
        bench.clock.advance(0.2)
        bench.run.watchdog.step()
        bench.settle()
        assert handling.is_over
        assert handling.reason == "the zone is out"
        assert bench.depth() == (3, 0, 0, 0)
        assert bench.sink.endings == ["released"]
        stuck.go.set()
        stuck.ended.next()
        bench.wait_until_unstuck()
        bench.zones.are_out = {}
        bench.run.watchdog.step()
        bench.feed()
        assert stuck.began.next().delivery.attempt == 1  # a delivery that was handed back does not count
        bench.settle()

    def test_the_grace_begins_anew_with_every_outage(self) -> None:
        bench = Bench(zone=HERE, shutdown_timeout=20.0, lease=3600.0)
        stuck = Stuck(bench)
        bench.send(b"x")
        bench.feed()
        handling = stuck.began.next()
        for _ in range(3):
            bench.zones.are_out = {None: frozenset({HERE})}
            bench.run.watchdog.step()
            bench.clock.advance(15)
            bench.run.watchdog.step()
            bench.zones.are_out = {}
            bench.run.watchdog.step()
        assert not handling.is_over
        stuck.go.set()

    def test_what_arrives_in_the_moment_in_which_the_zone_goes_out_is_not_begun(self) -> None:
        bench = Bench(zone=HERE)
        Stuck(bench)
        bench.send(b"x")
        bench.backend.on["lease"] = lambda: bench.zones.are_out.update({None: frozenset({HERE})})
        bench.work()
        assert bench.depth() == (1, 0, 0, 0)
        assert bench.sink.endings == []


def test_a_watchdog_that_fails_is_logged_and_is_no_error_of_the_backend(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not use the backend."""
    bench = Bench()
    Stuck(bench)

    def fail() -> float:
        raise RuntimeError("a defect")

    monkeypatch.setattr(bench.run.watchdog.loop, "_step", fail)
    bench.run.watchdog.loop.run_step()
    assert "cannot stop handlers that take too long in queue work" in texts(caplog.records)[0]
    assert bench.sink.troubles == []
