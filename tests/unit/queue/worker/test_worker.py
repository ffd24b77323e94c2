"""A worker from its start to its end, with all its threads."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast._backoff import Backoff, Jitter
from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import Zone
from holdfast.queue import (
    CurrentMessage,
    Delivery,
    Postpone,
    Queue,
    QueuePolicy,
    Worker,
    WorkerOptions,
    current_message,
)
from holdfast.queue import job as job_module
from holdfast.queue.backend import LeaseRequest, RetryLater
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.worker import worker as worker_module
from holdfast.queue.worker.context import LeasedMessage
from holdfast.queue.worker.executors import HandlerExecutors
from tests.unit.forked import in_child
from tests.unit.queue.toy import LimitedBackend
from tests.unit.queue.worker.bench import PATIENCE, QUICK, Arrivals, Bench, Zones, texts


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def _handler(bench: Bench, kind: str, work: Callable[[Delivery], None]) -> None:
    if kind == "sync":
        bench.queue.handle()(work)
    else:

        @bench.queue.handle()
        async def handle(delivery: Delivery) -> None:
            work(delivery)


def test_it_handles_what_is_there_and_what_comes(kind: str) -> None:
    bench = Bench(real_time=True)
    seen: Arrivals[bytes] = Arrivals()
    _handler(bench, kind, lambda delivery: seen.put(delivery.body))
    bench.send(*[b"%d" % number for number in range(100)])
    with bench.worker:
        got = {seen.next() for _ in range(100)}
        bench.send(b"later")
        assert seen.next() == b"later"
    assert got == {b"%d" % number for number in range(100)}
    assert bench.depth() == (0, 0, 0, 0)
    assert bench.sink.endings == ["acked"] * 101
    assert bench.worker.in_flight == 0


def test_on_sqlite_too(tmp_path: Path, kind: str) -> None:
    seen: Arrivals[int] = Arrivals()
    with Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}") as queue:

        @queue.job
        def sync(number: int) -> None:
            seen.put(number)

        @queue.job
        async def asynchronous(number: int) -> None:
            seen.put(number)

        job = sync if kind == "sync" else asynchronous
        queue.send_many([job.to(f"tenant-{number % 7}").message(number) for number in range(500)])
        with Worker(queue):
            assert {seen.next() for _ in range(500)} == set(range(500))
        assert not queue.backend.inspect("work").lanes


def test_stop_waits_for_handlers_and_hands_back_what_was_not_begun(kind: str) -> None:
    bench = Bench(real_time=True, concurrency=2)
    began: Arrivals[CurrentMessage] = Arrivals()
    go = threading.Event()
    if kind == "sync":

        @bench.queue.handle()
        def handle(_: Delivery) -> None:
            began.put(current_message())
            go.wait()

    else:

        @bench.queue.handle()
        async def handle_async(_: Delivery) -> None:
            began.put(current_message())
            await asyncio.to_thread(go.wait)

    bench.send(*[b"x"] * 20)
    bench.worker.start()
    first, second = began.next(), began.next()
    stopping = threading.Thread(target=bench.worker.stop)
    stopping.start()
    while bench.depth() != (18, 2, 0, 0):
        pass  # handed back at once, while the two are still at work
    assert not first.is_over
    assert not second.is_over
    go.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert bench.depth() == (18, 0, 0, 0)
    assert bench.sink.endings == ["acked", "acked"]


def test_what_was_fetched_ahead_is_handed_back_at_once_and_counts_as_no_attempt() -> None:
    bench = Bench(concurrency=1)
    go = threading.Event()
    began: Arrivals[int] = Arrivals()

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        began.put(delivery.attempt)
        go.wait()

    bench.run.fetcher._pace = QUICK
    bench.send(*[b"x"] * 5)
    bench.feed()
    began.next()
    assert bench.depth() == (0, 5, 0, 0)
    bench.run.settler.loop.start()
    stopping = threading.Thread(target=bench.run.stop)
    stopping.start()
    until = time.monotonic() + PATIENCE
    while bench.depth() != (4, 1, 0, 0):  # while the first is still at work
        assert time.monotonic() < until
    go.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert bench.depth() == (4, 0, 0, 0)
    assert bench.sink.endings == ["acked"]
    bench._current_run = None
    bench.feed()
    assert began.next() == 1
    bench.settle()


def test_after_the_grace_handlers_are_told_and_their_messages_handed_back(kind: str) -> None:
    bench = Bench(real_time=True, concurrency=1, shutdown_timeout=0.0)
    began: Arrivals[CurrentMessage] = Arrivals()
    ended: Arrivals[str] = Arrivals()
    if kind == "sync":

        @bench.queue.handle()
        def handle(_: Delivery) -> None:
            began.put(current_message())
            current_message().wait(PATIENCE)
            ended.put(current_message().reason)

    else:

        @bench.queue.handle()
        async def handle_async(_: Delivery) -> None:
            began.put(current_message())
            try:
                await asyncio.Event().wait()
            finally:
                ended.put(current_message().reason)

    bench.send(b"x")
    bench.worker.start()
    began.next()
    bench.worker.stop()
    assert ended.next() == "the worker stops, and its shutdown timeout is over"
    assert bench.depth() == (1, 0, 0, 0)
    assert bench.sink.endings == ["released"]
    assert bench.sink.handled[0].seconds > 0
    bench.worker.start()
    assert began.next().delivery.attempt == 1
    bench.worker.stop()


def test_start_and_stop_may_be_repeated(kind: str) -> None:
    bench = Bench(real_time=True)
    seen: Arrivals[bytes] = Arrivals()
    _handler(bench, kind, lambda delivery: seen.put(delivery.body))
    bench.worker.stop()
    for _ in range(3):
        bench.worker.start()
        bench.worker.start()
        bench.send(b"x")
        assert seen.next() == b"x"
        bench.worker.stop()
        bench.worker.stop()
    assert bench.sink.endings == ["acked"] * 3
    assert bench.depth() == (0, 0, 0, 0)


def test_no_thread_is_left_when_it_has_stopped() -> None:
    bench = Bench(real_time=True)
    seen: Arrivals[bytes] = Arrivals()

    @bench.queue.job
    def sync() -> None:
        seen.put(b"sync")

    @bench.queue.job
    async def asynchronous() -> None:
        seen.put(b"async")

    before = set(threading.enumerate())
    with bench.worker:
        sync.to("a").send()
        asynchronous.to("a").send()
        assert {seen.next(), seen.next()} == {b"sync", b"async"}
        assert len(set(threading.enumerate()) - before) >= 6
    assert set(threading.enumerate()) <= before


def test_it_stops_also_when_the_backend_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was done and not said is delivered again: at least once."""
    monkeypatch.setattr(worker_module, "SETTLE_SECONDS", 0.2)
    bench = Bench(real_time=True, shutdown_timeout=0.1)
    seen: Arrivals[bytes] = Arrivals()
    bench.queue.handle()(lambda delivery: seen.put(delivery.body))
    bench.send(b"x")
    bench.backend.fail("settle", *[EngineUnavailable("away")] * 1000)
    bench.worker.start()
    seen.next()
    bench.worker.stop()
    assert bench.depth() == (0, 1, 0, 0)
    assert any("1 message could not be settled, and will be delivered again" in it for it in texts(caplog.records))
    assert bench.worker.in_flight == 0


def test_handlers_that_do_not_return_do_not_keep_it_from_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "RETURN_SECONDS", 0.1)
    bench = Bench(real_time=True, shutdown_timeout=0.0)
    go = threading.Event()
    began: Arrivals[bytes] = Arrivals()

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        began.put(delivery.body)
        go.wait()

    bench.send(b"x")
    bench.worker.start()
    began.next()
    bench.worker.stop()
    assert bench.depth() == (1, 0, 0, 0)
    assert any("some handlers have not returned" in text for text in texts(caplog.records))
    go.set()


def test_one_worker_whose_handlers_hang_takes_nothing_from_another() -> None:
    go = threading.Event()
    began: Arrivals[bytes] = Arrivals()
    seen: Arrivals[bytes] = Arrivals()
    with MemoryBackend() as backend:
        stuck, fine = Queue("stuck", backend), Queue("fine", backend)

        @stuck.handle()
        def hang(delivery: Delivery) -> None:
            began.put(delivery.body)
            go.wait()

        fine.handle()(lambda delivery: seen.put(delivery.body))
        with Worker(stuck, WorkerOptions(concurrency=2)), Worker(fine, WorkerOptions(concurrency=2)):
            for _ in range(10):
                stuck.send(b"x", tenant="a")
            began.next()
            began.next()
            for _ in range(50):
                fine.send(b"y", tenant="a")
                assert seen.next() == b"y"
            go.set()


def test_a_worker_that_cannot_be_started_is_not() -> None:
    bench = Bench()
    bench.queue.handle()(lambda _: None)
    bench.backend.fail("change", EngineUnavailable("away"))
    with pytest.raises(EngineUnavailable):
        bench.worker.start()
    bench.worker.stop()
    bench.worker.start()
    bench.worker.stop()


def test_it_works_again_when_the_backend_was_away_for_a_while() -> None:
    bench = Bench(real_time=True)
    seen: list[int] = []
    done: Arrivals[int] = Arrivals()

    @bench.queue.job
    def count(number: int) -> None:
        seen.append(number)
        done.put(number)

    away = EngineUnavailable("away")
    for method in ("lease", "settle", "wait"):
        bench.backend.fail(method, away, away, away)
    bench.queue.send_many([count.to("a").message(number) for number in range(50)])
    with bench.worker:
        for _ in range(50):
            done.next()
    assert sorted(seen) == list(range(50))
    assert bench.depth() == (0, 0, 0, 0)
    assert ("lease", "EngineUnavailable") in bench.sink.troubles
    assert ("settle", "EngineUnavailable") in bench.sink.troubles


def test_what_fails_while_it_stops_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(real_time=True)
    bench.queue.handle()(lambda _: None)
    before = set(threading.enumerate())
    bench.worker.start()

    def fail(_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(HandlerExecutors, "stop", fail)
    with pytest.raises(RuntimeError):
        bench.worker.stop()
    assert set(threading.enumerate()) <= before


def test_a_queue_that_is_closed_under_it_is_opened_again(tmp_path: Path) -> None:
    seen: Arrivals[bytes] = Arrivals()
    with Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}") as queue:
        queue.handle()(lambda delivery: seen.put(delivery.body))
        with Worker(queue):
            for body in (b"1", b"2"):
                queue.send(body, tenant="a")
                assert seen.next() == body
                queue.close()


class Told(Zones):
    """Notes that somebody was told of a zone that is out."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
        found = super().zones_out(workload)
        if found:
            self.told.set()
        return found


class TestFork:
    def test_a_child_may_start_its_own(self, tmp_path: Path) -> None:
        here, zones = Zone("use1-az1"), Told()
        seen: Arrivals[bytes] = Arrivals()
        with Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}") as queue:

            @queue.handle()
            async def handle(delivery: Delivery) -> None:
                seen.put(delivery.body)

            worker = Worker(queue, WorkerOptions(zone=here), zones=zones)

            def work() -> bool:
                if worker.in_flight or worker.is_stuck:
                    return False
                worker.stop()  # there is nothing to stop, and nothing to wait for
                zones.are_out = {}
                worker.start()
                try:
                    return seen.next() == b"for the child"
                finally:
                    worker.stop()

            with worker:
                queue.send(b"for the parent", tenant="a")
                assert seen.next() == b"for the parent"
                # Nobody may be in the middle of SQLite when it is forked: a lock that is held then is held for ever.
                assert worker._current_run is not None
                assert worker._current_run.context.leased.wait_until_empty(PATIENCE)
                zones.are_out = {None: frozenset({here})}  # so that it leaves the next message to the child
                assert zones.told.wait(PATIENCE), "from then on it asks the store for nothing"
                queue.send(b"for the child", tenant="a")
                in_child(work)
                zones.are_out = {}
                queue.send(b"for the parent again", tenant="a")
                assert seen.next() == b"for the parent again"

    def test_a_lock_that_another_thread_held_does_not_stop_the_child(self) -> None:
        bench = Bench(real_time=True)
        bench.queue.handle()(lambda _: None)

        def work() -> bool:
            bench.worker.start()
            bench.worker.stop()
            return True

        bench.queue.open()
        with bench.worker._changing:
            in_child(work)

    def test_a_handler_in_a_child_may_wait(self) -> None:
        with job_module._EVENT_LOCK.lock:
            in_child(lambda: not CurrentMessage(cast("Any", None)).wait(0))


def test_a_worker_leases_for_no_longer_and_retries_no_later_than_its_backend_can() -> None:
    queue = Queue("work", LimitedBackend(), policy=QueuePolicy(lease=30.0))

    @queue.job(backoff=Backoff(base=1000.0, cap=1000.0, jitter=Jitter.NONE))
    def fail() -> None:
        raise OSError("away")

    @queue.job
    def wait() -> None:
        raise Postpone(3600.0)

    fail.to("a").send()
    wait.to("a").send()
    context = Worker(queue).create_run().context
    assert context.lease == 10.0
    leased = queue.backend.lease(LeaseRequest(queue="work", count=2, lease=context.lease)).deliveries
    for delivery, error in zip(leased, (OSError("away"), Postpone(3600.0)), strict=True):
        running = LeasedMessage(delivery, 0.0, 10.0)
        context.handlers.find(running)
        disposition = context.handlers.finish_failed(running, error, 0.0).disposition
        assert isinstance(disposition, RetryLater)
        assert disposition.delay == 60.0


class TestRun:
    def test_it_runs_until_it_is_asked_to_stop(self) -> None:
        bench = Bench(real_time=True)
        _handler(bench, "sync", lambda _: bench.worker.request_stop())
        bench.send(b"x")
        bench.worker.run()
        assert bench.sink.endings == ["acked"]
        bench.send(b"y")
        bench.worker.run()
        assert bench.sink.endings == ["acked", "acked"]

    def test_a_request_before_it_runs_is_not_forgotten(self) -> None:
        bench = Bench(real_time=True)
        bench.queue.handle()(lambda _: None)
        bench.worker.request_stop()
        bench.worker.run()

    def test_it_returns_when_another_thread_stops_the_worker(self) -> None:
        bench = Bench(real_time=True)
        began: Arrivals[bytes] = Arrivals()
        bench.queue.handle()(lambda delivery: began.put(delivery.body))
        bench.send(b"x")
        running = threading.Thread(target=bench.worker.run)
        running.start()
        began.next()
        bench.worker.stop()
        running.join(PATIENCE)
        assert not running.is_alive()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_gracefully(self, number: signal.Signals) -> None:
        bench = Bench(real_time=True)
        _handler(bench, "sync", lambda _: os.kill(os.getpid(), number))
        bench.send(b"x")
        if number is signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                bench.worker.run()
        else:
            bench.worker.run()
        assert bench.sink.endings == ["acked"]
        assert bench.depth() == (0, 0, 0, 0)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_an_interruption_in_the_middle_of_its_start_leaves_nothing_running(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = Bench(real_time=True)
        bench.queue.handle()(lambda _: None)
        start = worker_module.WorkerRun.start

        def interrupted(run: worker_module.WorkerRun) -> None:
            start(run)
            raise KeyboardInterrupt

        monkeypatch.setattr(worker_module.WorkerRun, "start", interrupted)
        before = set(threading.enumerate())
        with pytest.raises(KeyboardInterrupt):
            bench.worker.run()
        assert set(threading.enumerate()) <= before

    def test_a_handler_for_the_signal_that_the_program_has_is_left_alone(self) -> None:
        bench = Bench(real_time=True)
        heard: list[int] = []

        def hear(*_: Any) -> None:
            heard.append(1)
            bench.worker.request_stop()

        _handler(bench, "sync", lambda _: os.kill(os.getpid(), signal.SIGTERM))
        bench.send(b"x")
        before = signal.signal(signal.SIGTERM, hear)
        try:
            bench.worker.run()
            assert signal.getsignal(signal.SIGTERM) is hear
        finally:
            signal.signal(signal.SIGTERM, before)
        assert heard == [1]


class TestRunAsync:
    def test_asynchronous_handlers_run_in_the_loop_of_the_caller(self) -> None:
        bench = Bench(real_time=True)
        loops: list[asyncio.AbstractEventLoop] = []

        @bench.queue.job
        async def asynchronous() -> None:
            loops.append(asyncio.get_running_loop())
            bench.worker.request_stop()

        async def main() -> asyncio.AbstractEventLoop:
            await asynchronous.to("a").send_async()
            await bench.worker.run_async()
            return asyncio.get_running_loop()

        loop = asyncio.run(main())
        assert loops == [loop]
        assert bench.sink.endings == ["acked"]

    def test_cancelling_it_stops_the_worker_and_loses_nothing(self) -> None:
        bench = Bench(real_time=True, concurrency=1)
        ended: list[str] = []

        async def main() -> None:
            began = asyncio.Event()
            go = asyncio.Event()

            @bench.queue.handle()
            async def handle(_: Delivery) -> None:
                began.set()
                await go.wait()
                ended.append("gracefully")

            bench.send(b"x", b"y")
            running = asyncio.create_task(bench.worker.run_async())
            await asyncio.wait_for(began.wait(), PATIENCE)
            running.cancel()
            await asyncio.sleep(0)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await running

        asyncio.run(main())
        assert 1 <= len(ended) <= 2  # the second may have been begun just before
        assert bench.sink.endings == ["acked"] * len(ended)
        assert bench.depth() == (2 - len(ended), 0, 0, 0)
        assert bench.worker.in_flight == 0

    def test_cancelling_it_while_it_starts_leaves_nothing_running(self) -> None:
        bench = Bench(real_time=True)
        bench.queue.handle()(lambda _: None)
        starting, go = threading.Event(), threading.Event()

        def hold() -> None:
            starting.set()
            go.wait(PATIENCE)

        bench.queue.open()
        bench.backend.on["change"] = hold

        async def main() -> None:
            running = asyncio.create_task(bench.worker.run_async())
            await asyncio.to_thread(starting.wait, PATIENCE)
            running.cancel()
            await asyncio.sleep(0)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await running

        before = set(threading.enumerate())
        asyncio.run(main())
        assert set(threading.enumerate()) <= before

    def test_nothing_is_lost_when_the_loop_is_closed_over_its_handlers(self) -> None:
        bench = Bench(real_time=True, concurrency=1, shutdown_timeout=0.0)

        async def main() -> None:
            began = asyncio.Event()

            @bench.queue.handle()
            async def handle(_: Delivery) -> None:
                began.set()
                await asyncio.Event().wait()

            bench.send(b"x")
            await asyncio.to_thread(bench.worker.start, asyncio.get_running_loop())
            await asyncio.wait_for(began.wait(), PATIENCE)

        asyncio.run(main())  # cancels all tasks that are left in its loop
        bench.worker.stop()
        ready, leased, delayed, dead = bench.depth()
        assert (ready + delayed, leased, dead) == (1, 0, 0)


class TestOptions:
    @pytest.mark.parametrize("concurrency", [0, -1, 10_001])
    def test_concurrency_is_bounded(self, concurrency: int) -> None:
        with pytest.raises(InvalidValue, match=f"a worker's concurrency of {concurrency}: expected 1 to 10000"):
            WorkerOptions(concurrency=concurrency)

    @pytest.mark.parametrize("shutdown_timeout", [-1.0, float("nan"), float("inf")])
    def test_grace_is_a_number_of_seconds(self, shutdown_timeout: float) -> None:
        with pytest.raises(InvalidValue, match="a worker's shutdown timeout of"):
            WorkerOptions(shutdown_timeout=shutdown_timeout)

    def test_without_a_view_no_zone_is_out(self) -> None:
        queue = Queue("work", "memory:", policy=QueuePolicy())
        assert not Worker(queue, WorkerOptions(zone=Zone("use1-az1"))).is_zone_out


def test_a_worker_leaves_its_zone_and_comes_back() -> None:
    here = Zone("use1-az1")
    bench = Bench(real_time=True, zone=here)
    seen: Arrivals[bytes] = Arrivals()
    bench.queue.handle()(lambda delivery: seen.put(delivery.body))
    bench.zones.are_out = {None: frozenset({here})}
    with bench.worker:
        bench.send(b"x")
        assert "lease" not in bench.backend.calls
        bench.zones.are_out = {}
        assert seen.next() == b"x"
