"""Who runs the handlers: threads for some, an event loop for others."""

import asyncio
import threading

import pytest

from holdfast._errors import LeaseLost
from holdfast.queue import Delivery, Handling, current_message
from tests.unit.queue.worker.bench import PATIENCE, QUICK, Arrivals, Bench, texts


def test_synchronous_handlers_run_in_as_many_threads_as_are_needed() -> None:
    bench = Bench(concurrency=4)
    together = threading.Barrier(4, timeout=PATIENCE)

    @bench.queue.handle()
    def handle(_: Delivery) -> None:
        together.wait()

    bench.send(*[b"x"] * 4)
    bench.work()
    assert bench.sink.endings == ["done"] * 4
    crew = bench.shift.crews._threads
    assert crew is not None
    assert len(crew._threads) == 4


def test_one_message_needs_one_thread() -> None:
    bench = Bench(concurrency=1000)
    bench.queue.handle()(lambda _: None)
    for _ in range(20):
        bench.send(b"x")
        bench.work()
    crew = bench.shift.crews._threads
    assert crew is not None
    assert 1 <= len(crew._threads) <= 20  # a thread that is about to be free may be too late for the next
    assert bench.shift.crews._loop is None


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

    bench.shift.feeder._pace = QUICK
    bench.send(*[b"x"] * 20)
    bench.work()
    assert most == 5
    assert bench.sink.endings == ["done"] * 20
    assert bench.shift.crews._threads is None


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
    bench = Bench(concurrency=2, attempts=10)
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
    bench.shift.watch.step()
    assert ended.next() == -1
    bench.settle()
    bench.send(b"quick", b"quick")
    bench.feed()
    ended.next()
    ended.next()
    bench.settle()
    assert sorted(bench.sink.endings) == ["done", "done", "retried"]
    crew = bench.shift.crews._loop
    assert crew is not None
    assert len(crew._hung) == 1
    assert not bench.shift.crews.is_stuck
    crew._loop.call_soon_threadsafe(go.next().set)
    ended.next()
    bench.end()
    assert crew.join(PATIENCE)
    assert len(crew._hung) == 0
    assert any("which does not count any more: the handler took longer than 5 s" in it for it in texts(caplog.records))


def test_stubborn_handlers_are_bounded() -> None:
    bench = Bench(concurrency=1, attempts=10)
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
        bench.shift.watch.step()
        cancelled.next()
        bench.settle()
    bench.send(b"stubborn")
    bench.feed_blindly()
    bench.shift.watch.step()  # nobody is there to handle it
    bench.settle()
    crew = bench.shift.crews._loop
    assert crew is not None
    assert len(crew._hung) == 2
    assert not crew._tasks
    assert bench.shift.crews.is_stuck
    assert began.empty()
    stop.set()


def test_a_handler_that_obeys_is_not_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    began: Arrivals[Handling] = Arrivals()
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
    bench.shift.watch.step()
    assert ended.next() == "message 1 of work: the handler took longer than 5 s"
    bench.settle()
    bench.end()
    assert bench.shift.crews.join(PATIENCE)
    assert not any("does not count any more" in text for text in texts(caplog.records))


def test_nothing_is_begun_that_was_handed_back_before() -> None:
    bench = Bench(concurrency=1)
    go = threading.Event()
    began: Arrivals[bytes] = Arrivals()

    @bench.queue.handle()
    def handle(delivery: Delivery) -> None:
        began.put(delivery.body)
        go.wait()

    bench.shift.feeder._pace = QUICK
    bench.send(b"1", b"2", b"3")
    bench.feed()
    assert began.next() == b"1"
    bench.shift.watch.hand_back("the worker stops", started=False)
    go.set()
    bench.settle()
    bench.end()
    assert bench.shift.crews.join(PATIENCE)
    assert began.empty()
    assert bench.depth() == (2, 0, 0, 0)


def test_a_crew_whose_loop_was_closed_harms_nobody() -> None:
    bench = Bench()
    loop = asyncio.new_event_loop()
    loop.close()

    @bench.queue.handle()
    async def handle(_: Delivery) -> None:
        raise AssertionError("not called")

    shift = bench._shift = bench.worker.shift(loop)
    bench.send(b"x")
    bench.feed()
    bench.clock.advance(1)
    shift.watch.step()  # it has waited too long: somebody else shall have it
    bench.settle()
    assert bench.depth() == (1, 0, 0, 0)
    shift.crews.stop()
    assert not shift.crews.join(0)
