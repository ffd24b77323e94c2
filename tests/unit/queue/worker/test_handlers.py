"""From a message to its handler, and from how that ends to what becomes of the message."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from typing import Any

import msgspec
import pytest

from holdfast._errors import InvalidValue
from holdfast.calls import Backoff, Dependency, Jitter, deadline, detached, remaining
from holdfast.calls.context import current_scope
from holdfast.calls.scope import IncomingScope, find_trace
from holdfast.queue import Delivery, OutgoingMessage, Postpone, Queue, Reject, current_message
from holdfast.queue.backend import LeaseRequest, RetryLater
from holdfast.queue.job import Postpone as PostponeSignal
from holdfast.queue.message import MAX_DURATION
from holdfast.queue.worker.context import LeasedMessage
from tests.unit.queue.worker.bench import Arrivals, Bench

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def _nothing() -> None:
    raise AssertionError("not awaited")


async def _endless() -> AsyncIterator[int]:
    yield 1


class Waits:
    def __await__(self) -> Iterator[None]:
        yield


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


def _call(name: str, **arguments: Any) -> bytes:
    return msgspec.msgpack.encode((name, arguments))


class TestFinding:
    def test_a_queue_with_neither_jobs_nor_a_handler_has_no_worker(self) -> None:
        bench = Bench()
        with pytest.raises(InvalidValue, match="queue work has no jobs and no handler"):
            bench.worker.start()
        assert bench.worker.in_flight == 0

    def test_a_job_is_called_with_its_arguments(self) -> None:
        bench = Bench()
        calls: list[tuple[int, str]] = []

        @bench.queue.job
        def add(number: int, text: str = "default") -> None:
            calls.append((number, text))

        add.to("a").send(1)
        add.to("a").send(2, text="other")
        bench.work()
        assert sorted(calls) == [(1, "default"), (2, "other")]
        assert [event.job for event in bench.sink.handled] == ["add", "add"]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ({"number": "seven"}, "Expected `int`, got `str` - at `$.number`"),
            ({}, "missing required field `number`"),
            ({"number": 1, "color": "red"}, "unknown field `color`"),
        ],
    )
    def test_bad_arguments_are_buried_at_once_with_the_reason(self, arguments: dict[str, Any], reason: str) -> None:
        bench = Bench(max_attempts=5)

        @bench.queue.job
        def add(number: int) -> None:
            raise AssertionError("not called")

        bench.send(_call("add", **arguments))
        bench.work()
        [letter] = bench.dead()
        assert letter.reason.startswith("InvalidValue: add does not accept these arguments: ")
        assert reason in letter.reason
        assert letter.attempts == 1
        assert bench.sink.endings == ["buried"]
        assert bench.sink.handled[0].error == "InvalidValue"

    def test_a_job_that_is_not_known_is_tried_later_and_buried_in_the_end(self) -> None:
        bench = Bench(max_attempts=2)
        bench.queue.job(name="known")(lambda: None)
        bench.send(_call("unknown"))
        bench.work()
        assert bench.depth() == (0, 0, 1, 0)
        bench.clock.advance(1)
        bench.work()
        [letter] = bench.dead()
        assert letter.reason == "UnknownJob: this worker has no job unknown"
        assert bench.sink.endings == ["retried", "buried"]

    def test_a_body_that_calls_nothing_is_buried_where_there_are_only_jobs(self) -> None:
        bench = Bench()
        bench.queue.job(name="known")(lambda: None)
        bench.send(b"\xff plain", b"")
        bench.work()
        assert {letter.reason for letter in bench.dead()} == {
            "InvalidValue: the body calls no job, and the queue has no handler for other messages"
        }

    def test_a_queue_with_both_gives_jobs_their_calls_and_the_handler_the_rest(self) -> None:
        bench = Bench()
        calls: list[object] = []
        bench.queue.job(name="known")(lambda number: calls.append(number + 1))
        bench.queue.handle()(lambda delivery: calls.append(delivery.body))
        bench.send(_call("known", number=7), b"plain", _call("unknown"))
        bench.work()
        assert set(calls) == {8, b"plain", _call("unknown")}

    @pytest.mark.parametrize("body", [b"\x92\xa1\xff\xc0", b"\x92\xa1a" + b"\x91" * 100_000])
    def test_what_cannot_even_be_read_as_a_call_is_for_the_handler(self, body: bytes) -> None:
        bench = Bench()
        seen: list[bytes] = []
        bench.queue.job(name="known")(lambda: None)
        bench.queue.handle()(lambda delivery: seen.append(delivery.body))
        bench.send(body)
        bench.work()
        assert seen == [body]

    def test_a_text_that_is_none_is_no_argument(self) -> None:
        bench = Bench()
        bench.queue.job(name="known")(lambda text: None)
        bench.send(_call("known", text="???").replace(b"???", b"\xff\xff\xff"))
        bench.work()
        assert bench.dead()[0].reason.startswith("InvalidValue: known does not accept these arguments: ")

    @pytest.mark.parametrize("is_job", [False, True])
    def test_what_was_delivered_as_often_as_its_handler_wants_is_not_tried_again(self, is_job: bool) -> None:
        """A worker died with it, and the queue would have it tried more often."""
        bench = Bench(max_attempts=5)
        attempts: list[int] = []

        def work() -> None:
            attempts.append(current_message().delivery.attempt)

        if is_job:
            bench.queue.job(name="work", max_attempts=2)(work)
        else:
            bench.queue.handle(max_attempts=2)(lambda _: work())
        bench.send(_call("work"))
        bench.queue.job(name="other")(lambda: None)
        for _ in range(2):
            [_] = bench.backend.lease(LeaseRequest(queue="work", count=1, lease=1.0)).deliveries
            bench.clock.advance(60.0)
            bench.backend.sweep("work")  # finds that the worker is gone; it may rest for a while
            bench.clock.advance(60.0)
        bench.work()
        assert attempts == []
        [letter] = bench.dead()
        assert letter.reason == "gave up after 2 deliveries: its handler has max_attempts 2"
        assert bench.sink.endings == ["buried"]
        assert bench.sink.handled[0].error == "NoAttemptLeft"

    def test_the_last_attempt_that_a_handler_wants_is_made(self) -> None:
        bench = Bench(max_attempts=5)
        bench.queue.handle(max_attempts=2)(lambda _: None)
        bench.send(b"x")
        bench.backend.lease(LeaseRequest(queue="work", count=1, lease=1.0))
        bench.clock.advance(60.0)
        bench.work()
        assert bench.sink.endings == ["acked"]

    def test_a_job_is_found_that_was_added_later(self) -> None:
        bench = Bench()
        bench.queue.job(name="first")(lambda: None)
        seen: list[str] = []
        run = bench.run

        @bench.queue.job
        async def later() -> None:
            seen.append("later")

        later.to("a").send()
        bench.work()
        assert seen == ["later"]
        assert bench.run is run


class TestEndings:
    def _one(self, bench: Bench, error: BaseException, **options: Any) -> None:
        @bench.queue.handle(**options)
        def handle(_: Delivery) -> None:
            raise error

        bench.send(b"x")
        bench.work()

    @pytest.mark.parametrize(
        "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
    )
    def test_whatever_a_handler_raises_is_a_failure_and_the_thread_goes_on(self, error: BaseException) -> None:
        bench = Bench(concurrency=1)
        self._one(bench, error)
        assert bench.sink.endings == ["retried"]
        bench.clock.advance(1)
        bench.work()
        assert bench.sink.endings == ["retried", "retried"]

    def test_the_dead_letter_says_what_happened(self) -> None:
        bench = Bench(max_attempts=1)
        self._one(bench, ValueError("no such customer"))
        [letter] = bench.dead()
        assert letter.reason == "ValueError: no such customer"
        assert "raise error" in letter.detail
        assert letter.detail.endswith("ValueError: no such customer\n")

    def test_an_error_without_a_text_has_its_name(self) -> None:
        bench = Bench(max_attempts=1)
        self._one(bench, LookupError())
        assert bench.dead()[0].reason == "LookupError"

    def test_an_error_that_cannot_be_written_down_is_one_all_the_same(self) -> None:
        bench = Bench(max_attempts=1)
        self._one(bench, Unprintable())
        assert bench.dead()[0].reason == "Unprintable: (exception text not available)"

    def test_what_a_database_does_not_take_is_replaced(self) -> None:
        bench = Bench(max_attempts=1)
        self._one(bench, ValueError("a\0b\ud800c"))
        assert bench.dead()[0].reason == "ValueError: a\N{REPLACEMENT CHARACTER}b?c"
        assert "\0" not in bench.dead()[0].detail
        bench.dead()[0].detail.encode()

    def test_what_is_kept_is_bounded(self) -> None:
        bench = Bench(max_attempts=1)
        self._one(bench, ValueError("x" * 1_000_000))
        assert len(bench.dead()[0].reason) == 500
        assert len(bench.dead()[0].detail) == 16_384

    def test_a_handler_may_reject_its_message(self) -> None:
        bench = Bench(max_attempts=5)
        self._one(bench, Reject("the customer is gone"))
        [letter] = bench.dead()
        assert letter.reason == "the customer is gone"
        assert letter.attempts == 1

    def test_a_rejection_without_a_text_has_a_reason_as_well(self) -> None:
        bench = Bench()
        self._one(bench, Reject())
        assert bench.dead()[0].reason == "Reject"

    def test_a_message_can_be_postponed_any_number_of_times(self) -> None:
        bench = Bench(max_attempts=2)
        attempts: list[int] = []

        @bench.queue.handle()
        def handle(delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            if len(attempts) < 10:
                raise Postpone(60)

        bench.send(b"x")
        for number in range(10):
            bench.work()
            assert bench.depth() == ((0, 0, 1, 0) if number < 9 else (0, 0, 0, 0))
            bench.clock.advance(60)
        assert attempts == [1] * 10
        assert bench.sink.endings == ["postponed"] * 9 + ["acked"]

    @pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, MAX_DURATION + 1])
    def test_it_cannot_be_postponed_by_nonsense(self, seconds: float) -> None:
        with pytest.raises(InvalidValue, match=r"postponed by .* s: expected 0 to"):
            PostponeSignal(seconds)

    def test_a_job_has_its_own_attempts_and_backoff(self) -> None:
        bench = Bench(max_attempts=5)
        self._one(bench, ValueError("no"), max_attempts=2, backoff=Backoff(base=100.0, cap=100.0, jitter=Jitter.NONE))
        bench.clock.advance(99)
        assert bench.depth() == (0, 0, 1, 0)
        bench.clock.advance(2)
        bench.work()
        assert bench.sink.endings == ["retried", "buried"]

    def test_no_backoff_is_longer_than_a_message_can_be_delayed(self) -> None:
        bench = Bench()
        self._one(bench, ValueError("no"), backoff=Backoff(base=1e12, cap=1e12, jitter=Jitter.NONE))
        assert bench.sink.endings == ["retried"]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_postponement_that_does_not_say_for_how_long_is_a_second(self, is_async: bool) -> None:
        class Busy(Postpone):
            def __init__(self, response: object) -> None:
                self.response = response

        bench = Bench(concurrency=1)

        async def handle(_: Delivery) -> None:
            raise Busy(object())

        def handle_at_once(_: Delivery) -> None:
            raise Busy(object())

        bench.queue.handle()(handle if is_async else handle_at_once)
        bench.send(b"x")
        bench.work()
        assert bench.depth() == (0, 0, 1, 0)
        bench.clock.advance(1)
        bench.work()
        assert bench.sink.endings == ["postponed", "postponed"]

    @pytest.mark.parametrize(
        ("seconds", "expected"), [(-3.0, 0.0), (math.nan, 0.0), (math.inf, MAX_DURATION), (7.0, 7.0)]
    )
    def test_a_postponement_by_nonsense_is_one_by_what_is_possible(self, seconds: float, expected: float) -> None:
        class Odd(Postpone):
            def __init__(self) -> None:
                self.seconds = seconds

        bench = Bench()
        bench.queue.handle()(lambda _: None)
        bench.send(b"x")
        [delivery] = bench.backend.lease(LeaseRequest(queue="work", count=1, lease=30.0)).deliveries
        running = LeasedMessage(delivery, 0.0, 30.0)
        assert bench.run.context.handlers.finish_failed(running, Odd(), 0.0).disposition == RetryLater(
            expected, is_attempt=False
        )

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("raised", [ValueError("nothing to be had"), SystemExit(1)])
    def test_an_error_of_which_nothing_can_be_made_is_a_failure_too(
        self, is_async: bool, raised: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whatever happens, the message must not be held for ever, and the thread must not end."""

        class Hopeless(Postpone):
            def __init__(self) -> None:
                pass

            def __getattribute__(self, name: str) -> Any:
                if name == "seconds":
                    raise raised
                return super().__getattribute__(name)

        bench = Bench(concurrency=1, max_attempts=2)

        async def handle(_: Delivery) -> None:
            raise Hopeless

        def handle_at_once(_: Delivery) -> None:
            raise Hopeless

        bench.queue.handle()(handle if is_async else handle_at_once)
        bench.send(b"x")
        for _ in range(2):
            bench.work()
            bench.clock.advance(1)
        assert bench.sink.endings == ["retried", "buried"]
        assert bench.dead()[0].reason == "Hopeless"
        assert "its handler raised Hopeless, and deciding on a retry failed" in caplog.text

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: (number for number in range(3)), "a generator that was not consumed"),
            (_endless, "a generator that was not consumed"),
            (_nothing, "a coroutine that was not awaited"),
            (ThreadFuture, "a Future that was not awaited"),
            (Waits, "a Waits that was not awaited"),
        ],
    )
    def test_what_somebody_would_have_to_await_or_go_through_is_a_failure(
        self, is_async: bool, make: Callable[[], object], words: str
    ) -> None:
        """The message would be taken for handled, and nothing would have happened."""
        bench = Bench(max_attempts=1)

        async def handle(_: Delivery) -> Any:
            return make()

        def handle_at_once(_: Delivery) -> Any:
            return make()

        bench.queue.handle()(handle if is_async else handle_at_once)
        bench.send(b"x")
        bench.work()
        assert f"TypeError: the handler returned {words}" in bench.dead()[0].reason

    def test_what_a_handler_returns_otherwise_does_not_matter(self) -> None:
        bench = Bench()
        bench.queue.job(name="count")(lambda: [1, 2, 3])
        bench.send(_call("count"))
        bench.work()
        assert bench.sink.endings == ["acked"]

    def test_a_coroutine_that_nobody_awaits_is_a_failure(self) -> None:
        bench = Bench(max_attempts=1)

        async def work() -> None:
            raise AssertionError("not awaited")

        bench.queue.handle()(lambda _: work())
        bench.send(b"x")
        bench.work()
        assert "make it `async def`" in bench.dead()[0].reason


class TestSurroundings:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_deadline_and_trace_of_the_sender_are_around_the_handler(self, is_async: bool) -> None:
        bench = Bench()
        found: Arrivals[tuple[float | None, str | None, bytes]] = Arrivals()

        def look() -> None:
            found.put((remaining(), find_trace(current_scope()), current_message().delivery.body))

        if is_async:

            @bench.queue.handle()
            async def handle(_: Delivery) -> None:
                look()

        else:
            bench.queue.handle()(lambda _: look())
        bench.queue.send_one(OutgoingMessage(tenant="a", body=b"1", trace=TRACE, deadline=bench.clock.wall() + 60))
        bench.work()
        seconds, trace, body = found.next()
        assert seconds == pytest.approx(60, abs=5)
        assert (trace, body) == (TRACE, b"1")

    def test_without_a_deadline_there_is_none_and_the_message_has_a_trace_of_its_own(self) -> None:
        bench = Bench()
        found: Arrivals[tuple[float | None, str | None]] = Arrivals()
        bench.queue.handle()(lambda _: found.put((remaining(), find_trace(current_scope()))))
        sent = bench.queue.send(b"x", tenant="a")
        with deadline(5):  # of whoever happens to drive the worker
            bench.work()
        assert found.next() == (None, sent.trace)

    def test_the_time_of_a_handler_is_not_the_deadline_of_the_messages_that_it_sends(self) -> None:
        bench, dependency = Bench(), Dependency("mailer")
        out = Queue("out", bench.backend)

        @bench.queue.handle(timeout=5.0)
        def handle(_: Delivery) -> None:
            out.send(b"plain", tenant="a")
            with dependency.override(max_attempts=1):
                out.send(b"with other options", tenant="a")
            with detached(), dependency.override(max_attempts=1):
                out.send(b"on its own", tenant="a")

        bench.send(b"x")
        bench.work()
        sent = bench.backend.lease(LeaseRequest(queue="out", count=10, lease=30)).deliveries
        assert {one.body: one.deadline for one in sent} == dict.fromkeys(
            [b"plain", b"with other options", b"on its own"]
        )

    def test_a_deadline_that_has_passed_leaves_no_time(self) -> None:
        bench = Bench()
        found: Arrivals[float | None] = Arrivals()
        bench.queue.handle()(lambda _: found.put(remaining()))
        bench.queue.send_one(OutgoingMessage(tenant="a", body=b"", deadline=bench.clock.wall() - 60))
        bench.work()
        assert found.next() == 0

    def test_the_timeout_of_a_handler_bounds_its_calls_but_not_the_messages_it_sends(self) -> None:
        bench = Bench()
        found: Arrivals[float | None] = Arrivals()

        @bench.queue.handle(timeout=7.0)
        def handle(delivery: Delivery) -> None:
            found.put(remaining())
            if delivery.body == b"first":
                bench.queue.send(b"second", tenant="a")

        bench.queue.send_one(OutgoingMessage(tenant="a", body=b"first", trace=TRACE))
        bench.work()
        assert found.next() == pytest.approx(7, abs=5)
        bench.work()
        first, second = [event.delivery for event in bench.sink.handled]
        assert first.deadline is None
        assert second.deadline is None
        assert second.trace == TRACE

    def test_one_handler_leaves_nothing_for_the_next(self) -> None:
        from contextvars import ContextVar

        left: ContextVar[str] = ContextVar("left", default="nothing")
        bench = Bench(concurrency=1)
        found: Arrivals[str] = Arrivals()

        @bench.queue.job
        def sync() -> None:
            found.put(left.get())
            left.set("something")

        @bench.queue.job
        async def asynchronous() -> None:
            found.put(left.get())
            left.set("something")

        for job in (sync, asynchronous):
            for _ in range(3):
                job.to("a").send()
            for _ in range(3):
                bench.work()
            assert [found.next() for _ in range(3)] == ["nothing"] * 3

    def test_handlers_find_the_context_in_which_the_worker_was_started(self) -> None:
        from contextvars import ContextVar

        tag: ContextVar[str] = ContextVar("tag", default="none")
        bench = Bench()
        found: Arrivals[str] = Arrivals()

        @bench.queue.job
        async def asynchronous() -> None:
            found.put(tag.get())

        bench.queue.handle()(lambda _: found.put(tag.get()))
        tag.set("mine")
        asynchronous.to("a").send()
        bench.send(b"x")
        bench.work()
        assert [found.next(), found.next()] == ["mine", "mine"]

    def test_outside_of_a_handler_there_is_no_message(self) -> None:
        with pytest.raises(InvalidValue, match="no message is being handled here"):
            current_message()
        assert not isinstance(current_scope(), IncomingScope)
