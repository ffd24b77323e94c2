"""Who runs the handlers: threads for some, an event loop for others."""

import asyncio
import threading
import time

import pytest

from holdfast._errors import LeaseLost
from holdfast.queue import CurrentMessage, Delivery, current_message
from holdfast.queue.worker import async_executor as loop_crew_module
from holdfast.queue.worker.async_executor import AsyncExecutor
from holdfast.queue.worker.context import FinishedMessage
from tests.unit.queue.worker.bench import PATIENCE, QUICK, Arrivals, Bench, texts


def test_synchronous_handlers_run_in_as_many_threads_as_are_needed() -> None:
    bench = Bench(concurrency=4)
    together = threading.Barrier(4, timeout=PATIENCE)

    @bench.queue.handle()
    def handle(_: Delivery) -> None:
        together.wait()

    bench.send(*[b"x"] * 4)
    bench.work()
    assert bench.sink.endings == ["acked"] * 4
    executor = bench.run.executors._threads
    assert executor is not None
    assert len(executor._threads) == 4


def test_one_message_needs_one_thread() -> None:
    bench = Bench(concurrency=1000)
    bench.queue.handle()(lambda _: None)
    for _ in range(20):
        bench.send(b"x")
        bench.work()
    executor = bench.run.executors._threads
    assert executor is not None
    assert 1 <= len(executor._threads) <= 20  # a thread that is about to be free may be too late for the next
    assert bench.run.executors._loop is None


def test_asynchronous_handlers_run_together_up_to_the_concurrency() -> None:
    bench = Bench(concurrency=5)
    running = most = 0
    full = asyncio.Event()

    @bench.queue.handle()
    async def handle(_: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 5:
            full.set()
        await full.wait()
        running -= 1

    bench.run.fetcher._pace = QUICK
    bench.send(*[b"x"] * 20)
    bench.work()
    assert most == 5
    assert bench.sink.endings == ["acked"] * 20
    assert bench.run.executors._threads is None


def test_an_object_that_is_called_like_a_function_may_be_asynchronous() -> None:
    bench = Bench()
    seen: Arrivals[bytes] = Arrivals()

    class Handler:
        async def __call__(self, delivery: Delivery) -> None:
            seen.put(delivery.body)

    bench.queue.handle()(Handler())
    bench.send(b"x")
    bench.work()
    assert seen.next() == b"x"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), ValueError("no")])
def test_whatever_an_asynchronous_handler_raises_the_loop_goes_on(error: BaseException) -> None:
    bench = Bench(concurrency=1)

    @bench.queue.handle()
    async def handle(_: Delivery) -> None:
        raise error

    for _ in range(2):
        bench.send(b"x")
        bench.work()
    assert bench.sink.endings == ["retried"] * 2
    assert bench.sink.handled[0].error == type(error).__name__


def test_a_handler_that_cancels_itself_has_failed() -> None:
    bench = Bench(concurrency=1)

    @bench.queue.handle()
    async def handle(_: Delivery) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    bench.send(b"x")
    bench.work()
    assert bench.sink.endings == ["retried"]


def test_a_handler_that_goes_on_when_it_is_cancelled_leaves_its_place_to_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(concurrency=2, max_attempts=10)
    began: Arrivals[bytes] = Arrivals()
    go: Arrivals[asyncio.Event] = Arrivals()
    ended: Arrivals[int] = Arrivals()

    @bench.queue.handle(timeout=5.0)
    async def handle(delivery: Delivery) -> None:
        began.put(delivery.body)
        if delivery.body == b"stubborn":
            event = asyncio.Event()
            go.put(event)
            while not event.is_set():
                try:
                    await event.wait()
                except asyncio.CancelledError:
                    ended.put(-1)
        ended.put(delivery.id)

    bench.send(b"stubborn")
    bench.feed()
    began.next()
    bench.clock.advance(5)
    bench.run.watchdog.step()
    assert ended.next() == -1
    bench.settle()
    bench.send(b"quick", b"quick")
    bench.feed()
    ended.next()
    ended.next()
    bench.settle()
    assert sorted(bench.sink.endings) == ["acked", "acked", "retried"]
    executor = bench.run.executors._loop
    assert executor is not None
    assert len(executor._abandoned) == 1
    assert not bench.run.executors.is_stuck
    executor._loop.call_soon_threadsafe(go.next().set)
    ended.next()
    bench.end()
    assert executor.join(PATIENCE)
    assert len(executor._abandoned) == 0
    assert any("its result is ignored: the handler took longer than 5 s" in it for it in texts(caplog.records))


def test_stubborn_handlers_are_bounded() -> None:
    bench = Bench(concurrency=1, max_attempts=10)
    began: Arrivals[bytes] = Arrivals()
    cancelled: Arrivals[bytes] = Arrivals()
    stop = threading.Event()

    @bench.queue.handle(timeout=5.0)
    async def handle(delivery: Delivery) -> None:
        began.put(delivery.body)
        while not stop.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.put(delivery.body)

    for _ in range(2):
        bench.send(b"stubborn")
        bench.feed_blindly()
        began.next()
        bench.clock.advance(5)
        bench.run.watchdog.step()
        cancelled.next()
        bench.settle()
    bench.send(b"stubborn")
    bench.feed_blindly()
    bench.run.watchdog.step()  # nobody is there to handle it
    bench.settle()
    executor = bench.run.executors._loop
    assert executor is not None
    assert len(executor._abandoned) == 2
    assert not executor._tasks
    assert bench.run.executors.is_stuck
    assert began.empty()
    stop.set()


def test_a_handler_that_obeys_is_not_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    began: Arrivals[CurrentMessage] = Arrivals()
    ended: Arrivals[str] = Arrivals()

    @bench.queue.handle(timeout=5.0)
    def handle(_: Delivery) -> None:
        began.put(current_message())
        try:
            while not current_message().wait(PATIENCE):
                pass
            current_message().check()
        except LeaseLost as error:
            ended.put(str(error))
            raise

    bench.send(b"x")
    bench.feed()
    began.next()
    bench.clock.advance(5)
    bench.run.watchdog.step()
    assert ended.next() == "message 1 of work: the handler took longer than 5 s"
    bench.settle()
    bench.end()
    assert bench.run.executors.join(PATIENCE)
    assert not any("its result is ignored" in text for text in texts(caplog.records))


def test_nothing_is_begun_that_was_handed_back_before() -> None:
    bench = Bench(concurrency=1)
    go = threading.Event()
    began: Arrivals[bytes] = Arrivals()

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        began.put(delivery.body)
        go.wait()

    bench.run.fetcher._pace = QUICK
    bench.send(b"1", b"2", b"3")
    bench.feed()
    assert began.next() == b"1"
    bench.run.watchdog.release("the worker stops", include_started=False)
    go.set()
    bench.settle()
    bench.end()
    assert bench.run.executors.join(PATIENCE)
    assert began.empty()
    assert bench.depth() == (2, 0, 0, 0)


def test_a_crew_whose_loop_was_closed_harms_nobody() -> None:
    bench = Bench()
    loop = asyncio.new_event_loop()
    loop.close()

    @bench.queue.handle()
    async def handle(_: Delivery) -> None:
        raise AssertionError("not called")

    run = bench._current_run = bench.worker.create_run(loop)
    bench.send(b"x")
    bench.feed()
    bench.clock.advance(1)
    run.watchdog.step()  # it has waited too long: somebody else shall have it
    bench.settle()
    assert bench.depth() == (1, 0, 0, 0)
    run.executors.stop()
    assert not run.executors.join(0)


class TestThreadsThatCannotBeStarted:
    """A process may have as many threads as its limits allow, and others of it may have them all."""

    @pytest.fixture(autouse=True)
    def scarce(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        start = threading.Thread.start

        def start_if_any_is_left(thread: threading.Thread) -> None:
            if not self.left:
                raise RuntimeError("can't start new thread")
            self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_any_is_left)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_messages_go_back_until_there_are_some(self, is_async: bool) -> None:
        bench = Bench(concurrency=2)
        if is_async:

            @bench.queue.handle()
            async def handle(_: Delivery) -> None: ...

        else:
            bench.queue.handle()(lambda _: None)
        bench.send(*[b"x"] * 2)
        for _ in range(3):
            assert bench.run.fetcher.loop.run_step() > 0
            bench.settle()
            assert bench.depth() == (2, 0, 0, 0)
        assert bench.sink.troubles == [("lease", "RuntimeError")] * 3
        self.left = 2
        bench.work()
        assert bench.sink.endings == ["acked"] * 2
        assert [event.delivery.attempt for event in bench.sink.handled] == [1, 1]

    def test_what_is_for_the_loop_goes_there_all_the_same(self) -> None:
        bench = Bench()
        bench.queue.job(name="sync")(lambda: None)

        @bench.queue.job
        async def asynchronous() -> None: ...

        self.left = 1
        asynchronous.to("a").send()
        bench.work()
        sync = bench.queue.jobs["sync"]
        bench.queue.send_many([sync.to("a").message(), asynchronous.to("a").message()])
        assert bench.run.fetcher.loop.run_step() > 0
        bench.settle()
        assert [event.job for event in bench.sink.handled] == ["asynchronous"] * 2
        assert bench.depth() == (1, 0, 0, 0)

    def test_those_that_are_there_do_the_work_and_others_join_them_later(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = Bench(concurrency=4)
        bench.queue.handle()(lambda _: None)
        self.left = 1
        for _ in range(2):
            bench.send(*[b"x"] * 4)
            bench.work()
        assert bench.sink.endings == ["acked"] * 8
        executor = bench.run.executors._threads
        assert executor is not None
        assert len(executor._threads) == 1
        assert texts(caplog.records) == [
            "queue work: cannot start more than 1 thread for handlers: can't start new thread"
        ]
        self.left = 3
        bench.send(*[b"x"] * 4)
        bench.work()
        assert len(executor._threads) > 1

    def test_a_handler_that_hangs_has_no_successor_until_there_is_a_thread(self) -> None:
        bench = Bench(concurrency=1, max_attempts=10)
        began: Arrivals[bytes] = Arrivals()
        go = threading.Event()

        @bench.queue.handle(timeout=5.0)
        def handle(delivery: Delivery) -> None:
            began.put(delivery.body)
            if delivery.body == b"hangs":
                go.wait()

        self.left = 1
        bench.run.fetcher._pace = QUICK
        bench.send(b"hangs", b"waits")
        bench.feed()
        assert began.next() == b"hangs"
        bench.clock.advance(5)
        bench.run.watchdog.step()
        bench.settle()
        assert bench.depth() == (1, 0, 1, 0)
        self.left = 1
        bench.feed_blindly()
        assert began.next() == b"waits"
        go.set()
        bench.settle()

    def test_a_worker_that_cannot_start_its_own_is_not_started(self) -> None:
        bench = Bench(real_time=True)
        seen: Arrivals[bytes] = Arrivals()
        bench.queue.handle()(lambda delivery: seen.put(delivery.body))
        bench.send(b"x")
        before = set(threading.enumerate())
        self.left = 3
        with pytest.raises(RuntimeError):
            bench.worker.start()
        for thread in set(threading.enumerate()) - before:
            thread.join(PATIENCE)
        assert set(threading.enumerate()) <= before
        self.left = 100
        bench.worker.start()
        assert seen.next() == b"x"
        bench.worker.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_for_whatever_reason_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(concurrency=1)
    seen: Arrivals[bytes] = Arrivals()
    bench.queue.handle()(lambda delivery: seen.put(delivery.body))
    held = bench.run.context.leased
    finish = held.finish

    ended: list[threading.Thread] = []

    def finish_and_end(finished: FinishedMessage) -> bool:
        monkeypatch.undo()
        ended.append(threading.current_thread())
        finish(finished)
        raise SystemExit

    monkeypatch.setattr(held, "finish", finish_and_end)
    bench.send(b"1")
    bench.work()
    executor = bench.run.executors._threads
    assert executor is not None
    ended[0].join(PATIENCE)
    assert not executor._threads
    bench.send(b"2")
    bench.work()
    assert [seen.next(), seen.next()] == [b"1", b"2"]


class TestItsOwnLoop:
    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
    def test_it_goes_on_whatever_a_task_raises_that_a_handler_left_behind(
        self, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = Bench(concurrency=2)
        began: Arrivals[bytes] = Arrivals()
        tasks: list[asyncio.Task[None]] = []
        done = asyncio.Event()

        async def end_all() -> None:
            asyncio.get_running_loop().call_soon(done.set)
            raise error

        @bench.queue.handle()
        async def handle(delivery: Delivery) -> None:
            began.put(delivery.body)
            if delivery.body == b"bad":
                tasks.append(asyncio.get_running_loop().create_task(end_all()))
            await done.wait()

        bench.send(b"waits", b"bad")
        bench.work()
        bench.send(b"later")
        bench.work()
        assert bench.sink.endings == ["acked"] * 3
        assert tasks[0].exception() is error
        assert f"a task that a handler left behind raised {error!r}; the event loop continues" in caplog.text

    def test_it_goes_on_when_a_handler_stops_it(self) -> None:
        bench = Bench(concurrency=1)

        @bench.queue.handle()
        async def handle(_: Delivery) -> None:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)

        for _ in range(2):
            bench.send(b"x")
            bench.work()
        assert bench.sink.endings == ["acked"] * 2

    def test_one_that_breaks_hands_back_what_it_has_and_is_replaced(self, caplog: pytest.LogCaptureFixture) -> None:
        bench = Bench(concurrency=2)
        began: Arrivals[CurrentMessage] = Arrivals()
        loops: list[asyncio.AbstractEventLoop] = []

        def broken() -> None:
            raise OSError("bad file descriptor")

        @bench.queue.handle()
        async def handle(_: Delivery) -> None:
            loops.append(asyncio.get_running_loop())
            began.put(current_message())
            if len(loops) == 2:
                loops[0]._run_once = broken  # type: ignore[attr-defined]
            if len(loops) <= 2:
                await asyncio.sleep(0)
                await asyncio.Event().wait()

        bench.run.fetcher._pace = QUICK
        bench.send(b"1", b"2", b"3")
        bench.feed()
        first = bench.run.executors._loop
        assert first is not None
        assert first.join(PATIENCE)
        assert first.has_ended
        bench.settle()
        assert bench.depth() == (3, 0, 0, 0)
        assert bench.sink.endings == ["released"] * 2
        assert began.next().reason == "its event loop has ended"
        assert not bench.run.executors.is_stuck
        bench.work()
        assert bench.sink.endings == ["released"] * 2 + ["acked"] * 3
        assert loops[-1] is not loops[0]
        for task in asyncio.all_tasks(loops[0]):  # or asyncio complains about them in the log of some later test
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        assert "the event loop of the handlers failed, and ends" in caplog.text


class TestALoopThatIsBlocked:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every look is a question, and what is not answered at the next look is silence."""
        monkeypatch.setattr(loop_crew_module, "PROBE_INTERVAL_SECONDS", 0.0)
        monkeypatch.setattr(loop_crew_module, "BLOCKED_AFTER_SECONDS", 0.0)

    def _blocked(self, bench: Bench, **options: float) -> tuple[threading.Event, AsyncExecutor]:
        go = threading.Event()
        began: Arrivals[bytes] = Arrivals()

        @bench.queue.handle(timeout=options.get("timeout"))
        async def handle(delivery: Delivery) -> None:
            began.put(delivery.body)
            if delivery.body == b"blocks":
                go.wait(PATIENCE)

        bench.send(b"blocks")
        bench.feed()
        assert began.next() == b"blocks"
        executor = bench.run.executors._loop
        assert executor is not None
        return go, executor

    def _wait_until_it_answers(self, executor: AsyncExecutor) -> None:
        until = time.monotonic() + PATIENCE
        while executor._probed_at is not None:
            assert time.monotonic() < until, "the loop does not answer"
            time.sleep(0)

    def test_nothing_is_taken_until_it_goes_on(self, caplog: pytest.LogCaptureFixture) -> None:
        bench = Bench(concurrency=4)
        go, executor = self._blocked(bench)
        bench.send(*[b"quick"] * 10)
        polls = bench.backend.calls.count("lease")
        for _ in range(3):
            assert bench.run.fetcher.step() > 0
        assert bench.backend.calls.count("lease") == polls
        assert bench.depth()[0] == 10
        assert not bench.run.executors.is_stuck  # a handler that takes its time is nothing to end a process for
        told = [record for record in caplog.records if record.name == loop_crew_module.__name__]
        assert texts(told) == [
            "queue work: something blocks the event loop of the handlers: no messages are leased until it responds"
        ]
        go.set()
        self._wait_until_it_answers(executor)
        executor._answered_at = time.monotonic() + PATIENCE  # no further probe, so that this check finds none
        bench.feed()
        bench.settle()
        assert bench.sink.endings[0] == "acked"
        assert len(bench.sink.endings) > 1

    def test_it_is_stuck_if_what_blocks_it_was_given_up(self) -> None:
        bench = Bench(concurrency=4)
        go, executor = self._blocked(bench, timeout=5.0)
        assert bench.run.fetcher.step() > 0
        assert not bench.run.executors.is_stuck
        bench.clock.advance(5)
        bench.run.watchdog.step()
        assert bench.run.executors.is_stuck
        bench.settle()
        assert bench.sink.endings == ["retried"]
        go.set()
        bench.wait_until_unstuck()
        until = time.monotonic() + PATIENCE
        while executor._pending_cancellations:
            assert time.monotonic() < until, "the loop has not heard that the handler was given up"
            time.sleep(0)

    def test_one_that_goes_round_is_asked_now_and_then_and_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop_crew_module, "BLOCKED_AFTER_SECONDS", PATIENCE)
        bench = Bench()

        @bench.queue.handle()
        async def handle(_: Delivery) -> None: ...

        bench.send(b"x")
        bench.work()
        executor = bench.run.executors._loop
        assert executor is not None
        for _ in range(10):
            assert executor.is_responsive()
            self._wait_until_it_answers(executor)
        monkeypatch.setattr(loop_crew_module, "PROBE_INTERVAL_SECONDS", PATIENCE)
        assert executor.is_responsive()
        assert executor._probed_at is None
