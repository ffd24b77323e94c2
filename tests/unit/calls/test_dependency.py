"""Calls of a dependency: attempts, waits, what is raised, what is told. Synchronous functions."""

import asyncio
import contextlib
import functools
import gc
import math
import traceback
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from holdfast import InvalidValue, Operation, Zone
from holdfast._errors import AttemptTimedOut, DeadlineExceeded, LimitReached, RetryAfterTooLong
from holdfast.calls import (
    Backoff,
    Dependency,
    Endpoints,
    Failure,
    FailureKind,
    Jitter,
    Limit,
    Percentile,
    Retry,
    RetryAfter,
    RetryAfterScope,
    RetryBudget,
    RetryOwner,
    Timeouts,
    current_attempt,
    deadline,
    propagate_context,
    remaining,
)
from holdfast.calls.attempt_loop import AttemptLoop
from holdfast.calls.classify import PERMANENT
from holdfast.calls.events import AttemptEnded, BudgetExhausted, CallEvent, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.retry import GiveUpReason
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.testing import FakeClock, seeded

PLAIN = Retry(backoff=Backoff(base=1, jitter=Jitter.NONE), throttled_backoff=Backoff(base=3, jitter=Jitter.NONE))


class Events:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.all: list[CallEvent] = []

    def emit(self, event: CallEvent) -> None:
        self.all.append(event)


class Script:
    """A function that fails as it is told, then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.calls


@dataclass(frozen=True)
class Frozen(ConnectionResetError):
    """An error that allows no changes."""

    sku: str


class Unchangeable(ConnectionResetError):
    """An error that says so in its own way."""

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError(name)


class Odd(ConnectionRefusedError):
    """An error whose attributes cannot be read."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


def odd_error() -> Exception:
    return Odd()


def error_with_odd_notes() -> Exception:
    error = ConnectionResetError()
    error.__notes__ = None  # type: ignore[assignment]
    return error


def frozen_error() -> Exception:
    return Frozen("a")


def unchangeable_error() -> Exception:
    return Unchangeable()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runtime(clock: FakeClock) -> Runtime:
    return Runtime(clock, lambda: 0.5)


@pytest.fixture
def make(runtime: Runtime) -> Callable[..., Dependency]:
    return functools.partial(Dependency, "pricing", runtime=runtime, retry=PLAIN)


def test_arguments_and_results_pass_unchanged(make: Callable[..., Dependency]) -> None:
    @make().call(idempotent=True)
    def price(sku: str, *more: int, currency: str = "EUR", **rest: int) -> tuple[object, ...]:
        """What it costs."""
        return sku, more, currency, rest

    assert price("a") == ("a", (), "EUR", {})
    assert price("a", 1, 2, currency="USD", x=3) == ("a", (1, 2), "USD", {"x": 3})
    assert (price.__name__, price.__doc__) == ("price", "What it costs.")


def test_a_failure_that_passes_is_not_seen_by_the_caller(make: Callable[..., Dependency], clock: FakeClock) -> None:
    script = Script(ConnectionResetError(), TimeoutError())
    assert make().run(script, idempotent=True) == 3
    assert clock.sleeps == [1, 2]


def test_the_last_failure_is_raised_as_it_was_with_a_note_on_the_attempts(make: Callable[..., Dependency]) -> None:
    errors = [ConnectionResetError(str(number)) for number in range(3)]
    with pytest.raises(ConnectionResetError) as raised:
        make().run(Script(*errors), idempotent=True)
    assert raised.value is errors[2]
    assert raised.value.__notes__ == [
        "holdfast: pricing/Script: gave up after 3 attempts in 3.000 s: max_attempts is reached"
    ]
    assert raised.value.__context__ is raised.value.__cause__ is None
    assert "raise self.failures.pop(0)" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("make_frozen", [frozen_error, unchangeable_error, odd_error, error_with_odd_notes])
def test_an_error_that_cannot_be_changed_or_read_is_still_the_one_that_is_raised(
    make: Callable[..., Dependency], make_frozen: Callable[[], Exception]
) -> None:
    def connects() -> None:
        with current_attempt().connecting():
            raise error

    error = make_frozen()
    for function in (Script(error, error, error), connects):
        with pytest.raises(type(error)) as raised:
            make().run(function, idempotent=True)
        assert raised.value is error
    late = make(timeouts=Timeouts(total=0.5))
    with pytest.raises(type(error)) as raised:
        late.run(Script(error), idempotent=True)
    assert raised.value is error


def test_an_error_that_is_raised_again_and_again_has_one_note_of_each_operation(
    make: Callable[..., Dependency],
) -> None:
    error = ConnectionResetError()
    error.add_note("mine")
    outer, inner = make(), make()
    for _ in range(3):
        with pytest.raises(ConnectionResetError):
            inner.run(Script(error), idempotent=False, operation="inner")
        with pytest.raises(ConnectionResetError):
            outer.run(Script(error, error, error), idempotent=True, operation="again")
    assert [note.split(": ")[1:2] for note in error.__notes__] == [[], ["pricing/inner"], ["pricing/again"]]


def test_a_mistake_is_raised_at_once_and_without_a_note(make: Callable[..., Dependency]) -> None:
    error = KeyError("sku")
    script = Script(error)
    with pytest.raises(KeyError) as raised:
        make().run(script, idempotent=True)
    assert raised.value is error
    assert not hasattr(raised.value, "__notes__")
    assert script.calls == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_passes_at_once(make: Callable[..., Dependency], error: type[BaseException]) -> None:
    dependency, calls = make(limit=Limit(1)), []

    @dependency.call(idempotent=True)
    def interrupted() -> None:
        calls.append(1)
        raise error

    with pytest.raises(error):
        interrupted()
    assert len(calls) == 1
    assert dependency.in_flight == 0


def test_a_call_that_is_not_idempotent_is_made_once_unless_nothing_was_sent(make: Callable[..., Dependency]) -> None:
    script = Script(ConnectionResetError())
    with pytest.raises(ConnectionResetError) as raised:
        make().run(script, idempotent=False)
    assert script.calls == 1
    assert "the server may have carried it out, and it is not idempotent" in raised.value.__notes__[0]
    assert make().run(Script(ConnectionRefusedError()), idempotent=False) == 2


def test_a_generator_is_refused(make: Callable[..., Dependency]) -> None:
    def pages() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidValue, match="pages is a generator: loop over attempts"):
        make().call(idempotent=True)(pages)


def test_a_decorator_without_parentheses_is_refused_with_what_to_write(make: Callable[..., Dependency]) -> None:
    bare: Any = make().call
    with pytest.raises(InvalidValue, match=r"write @dependency\.call\(idempotent=True\) .* with parentheses"):
        bare(lambda: 1)


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("total", [60.0, 1.5])
@pytest.mark.no_cover
def test_nothing_is_kept_of_an_error(make: Callable[..., Dependency], failures: int, total: float) -> None:
    """Whether the call succeeds in the end, fails, or runs out of time: what failed does not wait for the collector."""

    class Local(ConnectionResetError):
        pass

    class Oversleeper(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 0.6)

    seen: list[weakref.ref[Local]] = []

    def fail() -> None:
        if len(seen) < failures:
            error = Local()
            seen.append(weakref.ref(error))
            try:
                raise error
            finally:
                del error

    dependency = make(timeouts=Timeouts(total=total), runtime=Runtime(Oversleeper(), lambda: 0.5))
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Local):
            dependency.run(fail, idempotent=True)
        assert seen
        assert [reference() for reference in seen] == [None] * len(seen)
    finally:
        gc.enable()


@pytest.mark.no_cover
def test_nothing_is_kept_of_a_loop_over_attempts(make: Callable[..., Dependency]) -> None:
    gc.collect()
    gc.disable()
    try:
        attempts = make().attempts(idempotent=True)
        for attempt in attempts:
            with attempt:
                if attempt.number == 1:
                    raise ConnectionResetError
        gone = weakref.ref(attempts)
        del attempts, attempt
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["", "a\nb"])
def test_a_name_that_would_spoil_logs_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="dependency name"):
        Dependency(name)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"timeouts": 5}, "timeouts is 5: expected Timeouts"),
        ({"retry": 3}, "retry is 3: expected Retry"),
        ({"budget": None}, "budget is None: expected RetryBudget"),
        ({"retry_after": True}, "retry_after is True: expected RetryAfter"),
        ({"limit": 3}, "limit is 3: expected .*Limit"),
        ({"name": 1}, "dependency name is 1: expected str"),
    ],
)
def test_an_argument_of_another_kind_is_named_at_once(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        Dependency(**({"name": "pricing"} | wrong))


@pytest.mark.parametrize("idempotent", ["no", None, 1])
def test_idempotent_is_true_or_false(make: Callable[..., Dependency], idempotent: Any) -> None:
    with pytest.raises(InvalidValue, match=r"idempotent is .*: expected True or False"):
        make().call(idempotent=idempotent)
    with pytest.raises(InvalidValue, match=r"idempotent is .*: expected True or False"):
        make().attempts(idempotent=idempotent)


def test_what_cannot_be_called_is_refused(make: Callable[..., Dependency]) -> None:
    with pytest.raises(InvalidValue, match="5 to call pricing: expected a function"):
        make().call(idempotent=True)(5)  # type: ignore[type-var]


@pytest.mark.parametrize("sink", [None, Events()])
def test_a_function_that_only_promises_a_result_is_refused(
    make: Callable[..., Dependency], sink: Events | None
) -> None:
    async def answer() -> int:
        return 1

    async def pending() -> Awaitable[int]:
        future: Awaitable[int] = asyncio.get_running_loop().create_future()
        with pytest.raises(InvalidValue, match=r"pricing/<lambda> returned a Future, which is not finished"):
            _ = dependency.run(lambda: future, idempotent=True)
        return future

    dependency = make(sink=sink)
    with pytest.raises(InvalidValue, match=r"pricing/<lambda> returned a coroutine, .*: make it `async def`"):
        _ = dependency.run(lambda: answer(), idempotent=True)  # noqa: PLW0108 - the mistake
    promised: Future[int] = Future()
    with pytest.raises(InvalidValue, match="returned a Future"):
        dependency.run(lambda: promised, idempotent=True)
    assert not promised.cancelled(), "its owner may need it"
    assert not asyncio.run(_cancelled(pending()))
    with pytest.raises(InvalidValue, match=r"answer is asynchronous: await run_async\(\) instead"):
        _ = dependency.run(answer, idempotent=True)
    assert dependency.latency(50) is None


@pytest.mark.parametrize("sink", [None, Events()])
def test_an_object_that_is_only_like_a_future_is_a_result(make: Callable[..., Dependency], sink: Events | None) -> None:
    class Job:
        """As the long-running operations of Google's clients, and the calls of gRPC in asyncio."""

        is_cancelled = False

        def __await__(self) -> Generator[None, None, int]:
            yield
            return 1

        def add_done_callback(self, callback: object) -> None: ...

        def cancel(self) -> None:
            self.is_cancelled = True

    job, mock, finished, dependency = Job(), Mock(), Future[int](), make(sink=sink)
    finished.set_result(1)
    results: list[object] = [job, mock, finished]
    for result in results:
        assert dependency.run(iter([result]).__next__, idempotent=True) is result
    assert not job.is_cancelled
    assert mock.mock_calls == []


def test_an_object_that_is_awaited_when_it_is_called_is_asynchronous(make: Callable[..., Dependency]) -> None:
    class Answer:
        async def __call__(self) -> int:
            return 1

    dependency = make(runtime=PROCESS)
    assert asyncio.run(dependency.call(idempotent=True)(Answer())()) == 1


async def _cancelled(made: Awaitable[Any]) -> bool:
    future: asyncio.Future[int] = await made
    return future.cancelled()


def test_a_method_of_the_class_may_be_decorated_on_either_side(make: Callable[..., Dependency]) -> None:
    dependency = make(runtime=PROCESS)

    class Prices:
        factor = 2

        @dependency.call(idempotent=True)
        @staticmethod
        def static(price: int) -> int:
            return price

        @staticmethod
        @dependency.call(idempotent=True)
        def inside(price: int) -> int:
            return price

        @dependency.call(idempotent=True)
        @classmethod
        def of_class(cls, price: int) -> int:
            return cls.factor * price

        @dependency.call(idempotent=True)
        @classmethod
        async def later(cls, price: int) -> int:
            return cls.factor * price

    for prices in (Prices, Prices()):
        assert (prices.static(3), prices.inside(3), prices.of_class(3)) == (3, 3, 6)
        assert asyncio.run(prices.later(3)) == 6


# Other options for a block


def test_options_may_be_others_for_a_single_call(make: Callable[..., Dependency], runtime: Runtime) -> None:
    dependency, other = make(timeouts=Timeouts(attempt=2.0, total=9.0)), make()

    @dependency.call(idempotent=True)
    def look() -> tuple[float, float]:
        attempt = current_attempt()
        return attempt.timeout, attempt.call_timeout

    for _ in range(2):
        assert look() == (2.0, 9.0)
        with dependency.override(attempt_timeout=0.5, total_timeout=4.0):
            assert look() == (0.5, 4.0)
            with dependency.override(total_timeout=3.0), deadline(2.5, runtime=runtime):
                assert look() == (0.5, 2.5), "what the block inside does not name stays"
            assert other.run(look.__wrapped__, idempotent=True)[1] == 30.0  # type: ignore[attr-defined]
            assert [attempt.timeout for attempt in one(dependency.attempts(idempotent=True))] == [0.5]
    assert dependency._state.has_fast_path


def one(loop: AttemptLoop) -> Iterator[Any]:
    for attempt in loop:
        with attempt:
            yield attempt


def test_a_single_call_may_have_more_attempts_or_only_one(make: Callable[..., Dependency]) -> None:
    dependency, inner = make(), make()
    with dependency.override(max_attempts=1), pytest.raises(ConnectionResetError):
        dependency.run(Script(ConnectionResetError()), idempotent=True)
    with dependency.override(max_attempts=5):
        assert dependency.run(Script(*[ConnectionResetError()] * 4), idempotent=True) == 5
    with dependency.override(max_attempts=1):  # then it does not own the retries
        assert dependency.run(lambda: inner.run(Script(TimeoutError()), idempotent=True), idempotent=True) == 2


def test_a_single_call_shares_the_budget_the_limit_and_the_sink(make: Callable[..., Dependency]) -> None:
    events = Events()
    dependency = make(sink=events, limit=Limit(1))
    with dependency.override(max_attempts=2, attempt_timeout=1.0):
        with pytest.raises(ConnectionResetError):
            dependency.run(Script(ConnectionResetError(), ConnectionResetError()), idempotent=True)
        with pytest.raises(LimitReached):
            dependency.run(lambda: dependency.run(int, idempotent=True), idempotent=True)
    assert dependency.tokens == 486
    assert sum(isinstance(event, AttemptEnded) for event in events.all) == 3


def test_a_timeout_of_a_single_call_is_not_learned_from(make: Callable[..., Dependency]) -> None:
    dependency = make()
    with dependency.override(attempt_timeout=0.1):
        dependency.run(int, idempotent=True)
    assert dependency.latency(50) is None
    with dependency.override(max_attempts=1):
        dependency.run(int, idempotent=True)
    assert dependency.latency(50) is not None


def test_a_dependency_learns_from_single_calls_with_other_options(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    dependency = make(timeouts=Timeouts(attempt=Percentile(percent=90, min_samples=20, start=5.0)))
    seen = []

    def look() -> None:
        seen.append(current_attempt().timeout)
        clock.advance(0.02)

    for _ in range(100):
        with dependency.override(max_attempts=1):
            dependency.run(look, idempotent=True)
        clock.advance(0.1)
    assert seen[0] == 5.0
    assert seen[-1] == pytest.approx(0.04, rel=1 / 16)
    assert dependency.timeout == pytest.approx(seen[-1])


def test_events_that_a_sink_refuses_are_counted_and_logged_once_also_for_single_calls(
    make: Callable[..., Dependency], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def emit(self, event: CallEvent) -> None:
            raise RuntimeError

    dependency = make(sink=Broken())
    for _ in range(3):
        with dependency.override(max_attempts=1):
            dependency.run(int, idempotent=True)
    assert dependency.dropped_events == 3
    assert len(caplog.records) == 1


@pytest.mark.parametrize("is_plain", [True, False])
def test_work_that_outlives_a_block_with_other_options_keeps_them(
    make: Callable[..., Dependency], is_plain: bool
) -> None:
    dependency = make(sink=None if is_plain else Events(), timeouts=Timeouts(attempt=2.0, total=9.0))

    @dependency.call(idempotent=True)
    def look() -> tuple[float, float]:
        attempt = current_attempt()
        return attempt.timeout, attempt.call_timeout

    with dependency.override(attempt_timeout=0.5, total_timeout=4.0):
        later = propagate_context(look)
    assert later() == (0.5, 4.0)
    assert look() == (2.0, 9.0)


def test_an_attempt_of_a_single_call_has_its_own_timeout_again_after_connecting(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    dependency = make(timeouts=Timeouts(connect=1.0, attempt=2.0))

    def work() -> float:
        attempt = current_attempt()
        with attempt.connecting():
            clock.advance(0.25)
        return attempt.timeout

    with dependency.override(attempt_timeout=0.5):
        assert dependency.run(work, idempotent=True) == 0.5


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_attempts": 0}, "max_attempts 0"),
        ({"attempt_timeout": 0}, "attempt timeout 0"),
        ({"total_timeout": math.inf}, "total timeout inf"),
    ],
)
def test_an_option_that_makes_no_sense_for_a_single_call_is_named(
    make: Callable[..., Dependency], wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidValue, match=named):
        make().override(**wrong)


def test_a_block_with_other_options_is_entered_once_at_a_time(make: Callable[..., Dependency]) -> None:
    block = make().override(max_attempts=1)
    with block, pytest.raises(InvalidValue, match="entered already"):
        block.__enter__()
    with block:
        pass


# Time


def test_the_total_bounds_attempts_and_waits(make: Callable[..., Dependency], clock: FakeClock) -> None:
    dependency, begun = make(timeouts=Timeouts(total=2.5)), []

    @dependency.call(idempotent=True)
    def slow() -> None:
        begun.append(remaining(runtime=dependency._state.runtime))
        clock.advance(0.5)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError) as raised:
        slow()
    assert begun == [2.5, 1.0]
    assert "gave up after 2 attempts in 2.000 s: no time is left before the deadline" in raised.value.__notes__[0]


def test_a_deadline_around_it_bounds_it_too(
    make: Callable[..., Dependency], clock: FakeClock, runtime: Runtime
) -> None:
    with deadline(0.5, runtime=runtime), pytest.raises(ConnectionResetError):
        make().run(Script(ConnectionResetError()), idempotent=True)
    assert clock.sleeps == []


@pytest.mark.parametrize("plain", [True, False])
def test_what_begins_after_its_deadline_is_refused_at_once(
    make: Callable[..., Dependency], runtime: Runtime, clock: FakeClock, plain: bool
) -> None:
    script = Script()
    with deadline(1.0, runtime=runtime):
        clock.advance(1.0)
        with pytest.raises(DeadlineExceeded, match="pricing/Script: refused, because the deadline had passed"):
            make(sink=None if plain else Events()).run(script, idempotent=True)
    assert script.calls == 0


@pytest.mark.parametrize("plain", [True, False])
def test_a_success_after_the_deadline_is_raised_with_its_result(
    make: Callable[..., Dependency], clock: FakeClock, runtime: Runtime, plain: bool
) -> None:
    dependency = make(sink=None if plain else Events(), timeouts=Timeouts(total=2.0))

    def slow(seconds: float) -> str:
        clock.advance(seconds)
        return "fine"

    assert dependency.run(slow, 1.9, idempotent=True) == "fine"
    for bound, seconds in ((9.0, 2.0), (1.0, 1.5)):
        with (
            deadline(bound, runtime=runtime),
            pytest.raises(DeadlineExceeded, match="pricing/slow: succeeded, but after the deadline") as raised,
        ):
            dependency.run(slow, seconds, idempotent=True)
        assert raised.value.result == "fine"
        assert "gave up after 1 attempt" in raised.value.__notes__[0]
    assert dependency.tokens == 500
    attempt = next(dependency.attempts(idempotent=True))
    with pytest.raises(DeadlineExceeded) as raised, attempt:
        clock.advance(2.0)
    assert str(raised.value) == "pricing/attempts: succeeded, but after the deadline"
    assert DeadlineExceeded("refused").result is None


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("retry", [PLAIN, Retry(max_attempts=1), Retry(classify=lambda _: PERMANENT)])
def test_a_success_after_the_deadline_is_given_up_because_of_it(
    make: Callable[..., Dependency], clock: FakeClock, plain: bool, idempotent: bool, retry: Retry
) -> None:
    events = Events()
    dependency = make(sink=None if plain else events, retry=retry, timeouts=Timeouts(total=2.0))
    with pytest.raises(DeadlineExceeded) as raised:
        dependency.run(clock.advance, 3.0, idempotent=idempotent)
    assert str(raised.value).endswith("after the deadline"), "it has no result"
    note = "holdfast: pricing/advance: gave up after 1 attempt in 3.000 s: no time is left before the deadline"
    assert raised.value.__notes__ == [note]
    ended = [] if plain else [(FailureKind.TIMEOUT, "DeadlineExceeded")]
    assert [(event.failure, event.error) for event in events.all if isinstance(event, AttemptEnded)] == ended
    reasons = [event.reason for event in events.all if isinstance(event, GaveUp)]
    assert reasons == ([] if plain else [GiveUpReason.DEADLINE])


def test_waking_up_too_late_raises_what_had_failed(make: Callable[..., Dependency], clock: FakeClock) -> None:
    error = ConnectionResetError()

    class Oversleeper(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 100)

    late = Runtime(Oversleeper(), lambda: 0.5)
    with pytest.raises(ConnectionResetError) as raised:
        Dependency("pricing", runtime=late, retry=PLAIN).run(Script(error), idempotent=True)
    assert raised.value is error
    assert "gave up after 1 attempt in 101.000 s: no time is left before the deadline" in raised.value.__notes__[0]


def test_a_call_inside_that_wakes_up_too_late_does_not_prove_that_nothing_was_sent(
    make: Callable[..., Dependency],
) -> None:
    class Oversleeper(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 100)

    inner = Dependency("stock", runtime=Runtime(Oversleeper(), lambda: 0.5), retry=PLAIN)
    calls = []

    def order() -> None:
        calls.append("sent")
        inner.run(Script(ConnectionRefusedError()), idempotent=True)

    with pytest.raises(ConnectionRefusedError):
        make().run(order, idempotent=False)
    assert calls == ["sent"]


def test_an_attempt_knows_its_time_and_inner_calls_are_bounded_by_it(
    make: Callable[..., Dependency], clock: FakeClock, runtime: Runtime
) -> None:
    outer = make(timeouts=Timeouts(attempt=2.0, total=3.0, connect=0.5))
    inner = make(timeouts=Timeouts(attempt=5.0, total=5.0))

    @inner.call(idempotent=True)
    def inside() -> float:
        return current_attempt().timeout

    @outer.call(idempotent=True)
    def outside() -> tuple[float, ...]:
        attempt = current_attempt()
        clock.advance(0.25)
        with deadline(None, runtime=runtime):
            assert current_attempt() is attempt
        return attempt.timeout, attempt.connect_timeout, inside()

    assert outside() == (1.75, 0.5, 1.75)


def test_an_inner_deadline_that_was_this_attempts_own_time_is_a_timeout(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    outer, inner, calls = make(timeouts=Timeouts(attempt=1.0, total=60.0)), make(), []

    @outer.call(idempotent=True)
    def outside() -> str:
        calls.append(1)
        if len(calls) == 1:
            clock.advance(1.5)
        return inner.run(lambda: "done", idempotent=True)

    assert outside() == "done"
    assert len(calls) == 2


def test_a_connection_is_measured_and_bounded_apart(make: Callable[..., Dependency], clock: FakeClock) -> None:
    dependency = make(timeouts=Timeouts(attempt=1.0, total=60.0, connect=5.0))

    @dependency.call(idempotent=True)
    def with_new_connection() -> tuple[float, float]:
        attempt = current_attempt()
        with attempt.connecting():
            during = attempt.timeout
            clock.advance(4.0)
        after = attempt.timeout
        clock.advance(0.5)
        return during, after

    assert with_new_connection() == (5.0, 1.0)
    assert dependency.latency(50) == pytest.approx(0.5, rel=1 / 16)
    assert dependency._state.connect_estimator.histogram.exceeded_by(0.5) == pytest.approx(4.0, rel=1 / 16)


def test_after_a_connection_failed_anything_may_have_been_sent(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    """A function that falls back on a connection that is open, sends, and gets no answer."""
    dependency, sent = make(timeouts=Timeouts(connect=2.0, attempt=1.0, total=60.0)), list[int]()

    @dependency.call(idempotent=False)
    def falls_back() -> None:
        attempt = current_attempt()
        with contextlib.suppress(ConnectionRefusedError), attempt.connecting():
            clock.advance(2.0)
            raise ConnectionRefusedError
        assert attempt.timeout == 1.0
        assert attempt.connecting_since is None
        sent.append(1)
        raise AttemptTimedOut

    with pytest.raises(AttemptTimedOut):
        falls_back()
    assert sent == [1]
    assert dependency._state.connect_estimator.histogram.timed_out == 1


def test_neither_a_connection_nor_an_attempt_has_more_time_than_the_call(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    @make(timeouts=Timeouts(connect=5.0, attempt=5.0, total=3.0)).call(idempotent=True)
    def look() -> list[float]:
        attempt = current_attempt()
        seen = [attempt.timeout, attempt.connect_timeout]
        with attempt.connecting():
            seen.append(attempt.timeout)
            clock.advance(1.0)
        return [*seen, attempt.timeout, attempt.setup_seconds]

    assert look() == [3.0, 3.0, 3.0, 2.0, 1.0]


def test_a_connection_that_never_began_has_not_ended(make: Callable[..., Dependency]) -> None:
    dependency = make()
    dependency.run(lambda: current_attempt().end_connect(), idempotent=True)
    assert dependency._state.connect_estimator.histogram.total == 0


def test_a_connection_that_does_not_come_about_in_time_is_unbounded_and_one_that_is_refused_says_nothing(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    dependency = make(timeouts=Timeouts(attempt=1.0, total=60.0, connect=5.0), retry=Retry(max_attempts=1))

    @dependency.call(idempotent=True)
    def cannot_connect(seconds: float) -> None:
        with current_attempt().connecting():
            clock.advance(seconds)
            raise ConnectionRefusedError

    for seconds in (0.5, 5.0):
        with pytest.raises(ConnectionRefusedError):
            cannot_connect(seconds)
    assert (
        dependency._state.connect_estimator.histogram.total,
        dependency._state.connect_estimator.histogram.timed_out,
    ) == (
        1,
        1,
    )
    assert dependency.latency(50) is None


def test_the_timeout_follows_the_latency(make: Callable[..., Dependency], clock: FakeClock) -> None:
    dependency = make(timeouts=Timeouts(attempt=Percentile(90, start=5.0, min_samples=100)))

    @dependency.call(idempotent=True)
    def answer() -> None:
        clock.advance(0.1)

    assert dependency.timeout == 5.0
    for _ in range(200):
        answer()
    assert dependency.timeout == pytest.approx(0.2, rel=1 / 16)
    assert dependency.latency(50) == pytest.approx(0.1, rel=1 / 16)


def test_timeouts_are_counted_as_unbounded_and_answers_that_say_no_as_answers(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    dependency = make(retry=Retry(max_attempts=1))
    missing = httpx.HTTPStatusError("", request=httpx.Request("GET", "http://x/"), response=httpx.Response(404))
    for error in (AttemptTimedOut(), missing, ConnectionResetError(), KeyError()):
        with pytest.raises(type(error)):
            dependency.run(Script(error), idempotent=True)
    dependency.latency(50)
    assert (
        dependency._state.attempt_estimator.histogram.total,
        dependency._state.attempt_estimator.histogram.timed_out,
    ) == (
        2,
        1,
    )


def test_callers_with_little_time_do_not_shorten_the_timeout_of_the_others(
    make: Callable[..., Dependency], runtime: Runtime, clock: FakeClock
) -> None:
    """Of what they did not wait for is only known that it took longer."""
    dependency = make(
        retry=Retry(max_attempts=1), timeouts=Timeouts(attempt=Percentile(99, median_margin=0, min_samples=100))
    )

    def answer(seconds: float) -> None:
        left = remaining(runtime=runtime)
        clock.advance(min(seconds, left or 0.0))
        if left is None or left < seconds:
            raise TimeoutError

    random = seeded("little time")
    for number in range(4000):
        seconds = random.lognormvariate(-3, 0.5)
        with deadline(0.05 if number % 10 else 10.0, runtime=runtime), contextlib.suppress(TimeoutError):
            dependency.run(answer, seconds, idempotent=True)
    assert dependency.timeout == pytest.approx(math.exp(-3 + 0.5 * 2.326), rel=0.15)


@pytest.mark.parametrize("percent", [0, 100, -1, math.nan])
def test_a_percentile_that_makes_no_sense_is_named(make: Callable[..., Dependency], percent: float) -> None:
    with pytest.raises(InvalidValue, match=f"percentile {percent}"):
        make().latency(percent)


# Budget and hints


def test_retries_cost_tokens_and_successes_bring_them_back(make: Callable[..., Dependency]) -> None:
    dependency = make()
    with pytest.raises(ConnectionResetError):
        dependency.run(Script(*[ConnectionResetError() for _ in range(3)]), idempotent=True)
    assert dependency.tokens == 500 - 28
    dependency.run(Script(), idempotent=True)
    assert dependency.tokens == 500 - 28 + 1
    dependency.run(Script(ConnectionResetError()), idempotent=True)
    assert dependency.tokens == 500 - 28 + 1


def test_functions_of_one_dependency_share_its_budget(make: Callable[..., Dependency]) -> None:
    dependency = make(budget=RetryBudget(capacity=14, min_retry_rate=0))
    with pytest.raises(ConnectionResetError):
        dependency.run(Script(*[ConnectionResetError() for _ in range(3)]), idempotent=True)
    other = Script(ConnectionResetError())
    with pytest.raises(ConnectionResetError) as raised:
        dependency.run(other, idempotent=True)
    assert other.calls == 1
    assert "the retry budget is exhausted" in raised.value.__notes__[0]


def hinted(seconds: int) -> Exception:
    response = httpx.Response(503, headers={"retry-after": str(seconds)})
    return httpx.HTTPStatusError("", request=httpx.Request("GET", "http://x/"), response=response)


def test_a_hint_of_the_server_holds_the_retries_of_all_callers(
    make: Callable[..., Dependency], clock: FakeClock
) -> None:
    dependency = make(retry_after=RetryAfter(spread=0), retry=Retry(max_attempts=2, backoff=Backoff(base=0)))
    with pytest.raises(httpx.HTTPStatusError):
        dependency.run(Script(hinted(1), hinted(8)), idempotent=True)
    assert clock.sleeps == [1.0]
    assert dependency.run(Script(ConnectionResetError()), idempotent=True) == 2
    assert clock.sleeps == [1.0, 8.0]


def test_first_attempts_are_held_only_if_asked_for(make: Callable[..., Dependency], clock: FakeClock) -> None:
    dependency = make(retry_after=RetryAfter(spread=0, scope=RetryAfterScope.ALL), retry=Retry(max_attempts=1))
    with pytest.raises(httpx.HTTPStatusError):
        dependency.run(Script(hinted(8)), idempotent=True)
    assert dependency.run(Script(), idempotent=True) == 1
    assert [seconds for seconds in clock.sleeps if seconds] == [8.0]


def test_a_call_without_time_for_the_hint_is_refused(make: Callable[..., Dependency], runtime: Runtime) -> None:
    events, script = Events(), Script()
    dependency = make(
        retry_after=RetryAfter(spread=0, scope=RetryAfterScope.ALL), retry=Retry(max_attempts=1), sink=events
    )
    with pytest.raises(httpx.HTTPStatusError):
        dependency.run(Script(hinted(8)), idempotent=True)
    with (
        deadline(5.0, runtime=runtime),
        pytest.raises(RetryAfterTooLong, match=r"Retry-After asks to wait 8\.0 s, past the deadline"),
    ):
        dependency.run(script, idempotent=True)
    assert script.calls == 0
    assert isinstance(events.all[-1], GaveUp)
    assert events.all[-1].reason is GiveUpReason.RETRY_AFTER


# Judgement


def test_a_result_may_be_judged_a_failure_and_is_returned_when_it_is_the_last(make: Callable[..., Dependency]) -> None:
    answers = iter(["busy", "busy", "fine", "busy", "busy", "busy"])
    dependency = make(
        retry=Retry(classify_result=lambda result: Failure(FailureKind.TRANSIENT) if result == "busy" else None)
    )
    assert dependency.run(lambda: next(answers), idempotent=True) == "fine"
    assert dependency.run(lambda: next(answers), idempotent=True) == "busy"
    assert next(answers, None) is None


def test_a_rule_that_fails_does_not_hide_the_error(
    make: Callable[..., Dependency], caplog: pytest.LogCaptureFixture
) -> None:
    def rule(error: Exception) -> Failure | None:
        raise ZeroDivisionError

    error = ConnectionResetError()
    with pytest.raises(ConnectionResetError) as raised:
        make(retry=Retry(classify=rule)).run(Script(error), idempotent=True)
    assert raised.value is error
    assert "could not classify" in caplog.text
    error.response = {"Error": "text"}  # type: ignore[attr-defined]
    assert make().run(Script(error), idempotent=True) == 2, "a response of another shape says nothing"


def test_ones_own_judgement_of_an_error_goes_first(make: Callable[..., Dependency]) -> None:
    own = Retry(classify=lambda error: Failure(FailureKind.TRANSIENT) if isinstance(error, KeyError) else None)
    assert make(retry=own).run(Script(KeyError(), ConnectionResetError()), idempotent=True) == 3


@pytest.mark.parametrize(
    ("eventually_consistent", "calls"), [(frozenset[int | str](), 1), (frozenset[int | str]({404}), 2)]
)
def test_a_404_after_a_create_is_repeated_by_opt_in(
    make: Callable[..., Dependency], eventually_consistent: frozenset[int | str], calls: int
) -> None:
    missing = httpx.HTTPStatusError("", request=httpx.Request("GET", "http://x/"), response=httpx.Response(404))
    script = Script(missing)
    dependency = make(retry=Retry(eventually_consistent=eventually_consistent))
    if calls == 1:
        with pytest.raises(httpx.HTTPStatusError):
            dependency.run(script, idempotent=True)
    else:
        dependency.run(script, idempotent=True)
    assert script.calls == calls


# One layer retries


def nested(*dependencies: Dependency, calls: list[int], idempotent: bool = True) -> Callable[[], Any]:
    def leaf() -> None:
        calls.append(1)
        raise ConnectionResetError

    function: Callable[[], Any] = leaf
    for dependency in reversed(dependencies):
        function = dependency.call(idempotent=idempotent)(function)
    return function


def test_of_five_layers_the_outermost_retries(make: Callable[..., Dependency]) -> None:
    calls: list[int] = []
    with pytest.raises(ConnectionResetError) as raised:
        nested(*[make() for _ in range(5)], calls=calls)()
    assert len(calls) == 3
    assert "another layer retries (pricing)" in raised.value.__notes__[0]


def test_a_layer_below_retries_if_those_above_leave_it_to_it(make: Callable[..., Dependency]) -> None:
    calls: list[int] = []
    above = [make(retry=Retry(owner=RetryOwner.BELOW)) for _ in range(4)]
    with pytest.raises(ConnectionResetError):
        nested(*above, make(), calls=calls)()
    assert len(calls) == 3


def test_nested_in_a_deadline_the_owner_is_still_found(make: Callable[..., Dependency], runtime: Runtime) -> None:
    calls: list[int] = []
    inner = nested(make(), calls=calls)

    def bounded() -> None:
        with deadline(20.0, runtime=runtime):
            inner()

    with pytest.raises(ConnectionResetError):
        make().run(bounded, idempotent=True)
    assert len(calls) == 3


def test_a_layer_that_insists_multiplies(make: Callable[..., Dependency]) -> None:
    calls: list[int] = []
    with pytest.raises(ConnectionResetError):
        nested(make(), make(retry=Retry(owner=RetryOwner.HERE, max_attempts=2)), make(), calls=calls)()
    assert len(calls) == 6


def test_a_call_that_will_not_repeat_what_was_sent_does_not_own_the_retries(make: Callable[..., Dependency]) -> None:
    create, read, calls = make(), make(), []

    def leaf() -> None:
        calls.append(1)
        raise ConnectionResetError

    inside = read.call(idempotent=True)(leaf)
    with pytest.raises(ConnectionResetError):
        create.run(inside, idempotent=False)
    assert len(calls) == 3


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_layer_that_insists_and_repeats_nothing_passes_the_owner_on(
    make: Callable[..., Dependency], idempotent: bool
) -> None:
    calls: list[int] = []
    inner = nested(make(), calls=calls)
    insists = make(retry=Retry(owner=RetryOwner.HERE, max_attempts=1 if idempotent else 3))
    with pytest.raises(ConnectionResetError):
        make().run(insists.call(idempotent=idempotent)(inner), idempotent=True)
    assert len(calls) == 3


def test_what_another_call_could_not_send_says_nothing_of_what_this_one_sent(make: Callable[..., Dependency]) -> None:
    """An order that is charged, and then cannot be mailed, is not charged again."""
    charged: list[int] = []
    mail = make(retry=Retry(max_attempts=1)).call(idempotent=True)(
        Script(*[ConnectionRefusedError() for _ in range(9)])
    )

    def order() -> None:
        charged.append(1)
        mail()

    with pytest.raises(ConnectionRefusedError) as raised:
        make().run(order, idempotent=False)
    assert len(charged) == 1
    assert "not idempotent" in raised.value.__notes__[-1]


def test_layers_that_are_not_idempotent_do_not_multiply_what_was_not_sent(make: Callable[..., Dependency]) -> None:
    calls: list[int] = []

    def leaf() -> None:
        calls.append(1)
        raise ConnectionRefusedError

    function = leaf
    for _ in range(5):
        function = make().call(idempotent=False)(function)
    with pytest.raises(ConnectionRefusedError):
        function()
    assert len(calls) == 3


# Limit


def test_what_exceeds_the_limit_is_refused_at_once(make: Callable[..., Dependency]) -> None:
    dependency = make(limit=Limit(1))

    @dependency.call(idempotent=True)
    def outer() -> None:
        assert dependency.in_flight == 1
        with pytest.raises(LimitReached, match="the limit of attempts in flight, 1, is reached"):
            dependency.run(Script(), idempotent=True)

    outer()
    assert dependency.in_flight == 0


def test_a_slot_is_free_while_a_call_waits_to_try_again(runtime: Runtime) -> None:
    seen: list[int] = []

    class Looking(FakeClock):
        def sleep(self, seconds: float) -> None:
            seen.append(dependency.in_flight)
            super().sleep(seconds)

    dependency = Dependency("pricing", runtime=Runtime(Looking(), lambda: 0.5), retry=PLAIN, limit=Limit(1))
    dependency.run(Script(ConnectionResetError()), idempotent=True)
    assert seen == [0]


def test_a_retry_that_finds_no_slot_raises_what_had_failed(runtime: Runtime) -> None:
    class Filling(FakeClock):
        def sleep(self, seconds: float) -> None:
            if seconds:
                dependency._state.in_flight.enter()

    dependency = Dependency("pricing", runtime=Runtime(Filling(), lambda: 0.5), retry=PLAIN, limit=Limit(1))
    error = ConnectionResetError()
    with pytest.raises(ConnectionResetError) as raised:
        dependency.run(Script(error), idempotent=True)
    assert raised.value is error
    assert "gave up after 1 attempt in 0.000 s: the limit of attempts in flight is reached" in raised.value.__notes__[0]


# What attempts carry


def test_all_attempts_of_a_call_have_one_key_and_calls_have_different_ones(make: Callable[..., Dependency]) -> None:
    keys: list[str] = []

    @make().call(idempotent=True)
    def keyed() -> None:
        keys.append(current_attempt().idempotency_key)
        assert current_attempt().idempotency_key == keys[-1]
        if len(keys) % 3:
            raise ConnectionResetError

    keyed()
    keyed()
    assert len(keys) == 6
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3]


def test_every_attempt_goes_to_another_endpoint(make: Callable[..., Dependency]) -> None:
    zones = {Zone("use1-az1"): ["a", "b"], Zone("use1-az2"): ["c"]}
    places: list[str] = []

    @make(endpoints=Endpoints(zones)).call(idempotent=True)
    def placed() -> None:
        places.append(current_attempt().endpoint.address)
        assert current_attempt().endpoint.address == places[-1]
        if len(places) < 3:
            raise ConnectionResetError

    placed()
    assert sorted(places) == ["a", "b", "c"]


def test_without_endpoints_there_is_none_to_name(make: Callable[..., Dependency]) -> None:
    with pytest.raises(InvalidValue, match="pricing has no endpoints"):
        make().run(lambda: current_attempt().endpoint, idempotent=True)


def test_headers_tell_the_time_that_is_left_and_who_retries(make: Callable[..., Dependency], clock: FakeClock) -> None:
    @make(timeouts=Timeouts(total=10.0)).call(idempotent=True)
    def sent() -> dict[str, str]:
        clock.advance(4.0)
        return current_attempt().headers(idempotency_key=True)

    headers = sent()
    assert len(headers.pop("idempotency-key")) == 32
    assert headers == {"holdfast-remaining": "1.000000", "holdfast-retry-owner": "pricing"}  # of this attempt's five
    unbounded = make(timeouts=Timeouts(total=None, attempt=None))
    assert unbounded.run(lambda: current_attempt().headers(), idempotent=False) == {}


# Events


def test_one_event_is_told_for_each_thing_that_happens(make: Callable[..., Dependency], clock: FakeClock) -> None:
    events = Events()
    dependency = make(sink=events, budget=RetryBudget(capacity=14, min_retry_rate=0))

    script = Script(hinted(0), ConnectionResetError(), ConnectionResetError())

    def answer() -> int:
        clock.advance(0.5)
        return script()

    call = dependency.call(idempotent=True, operation="get")(answer)
    with pytest.raises(ConnectionResetError):
        call()
    operation, start = Operation("pricing", "get"), 1_750_000_000.0
    assert events.all == [
        AttemptEnded(
            operation=operation,
            at=start + 0.5,
            number=1,
            seconds=0.5,
            failure=FailureKind.TRANSIENT,
            status=503,
            error="HTTPStatusError",
        ),
        Retrying(operation=operation, at=start + 0.5, number=2, delay=1.0, failure=FailureKind.TRANSIENT),
        AttemptEnded(
            operation=operation,
            at=start + 2.0,
            number=2,
            seconds=0.5,
            failure=FailureKind.TRANSIENT,
            error="ConnectionResetError",
        ),
        BudgetExhausted(dependency="pricing", at=start + 2.0, tokens=0.0),
        GaveUp(
            operation=operation,
            at=start + 2.0,
            attempts=2,
            reason=GiveUpReason.BUDGET,
            seconds=2.0,
            failure=FailureKind.TRANSIENT,
        ),
    ]
    events.all.clear()
    with pytest.raises(ConnectionResetError):
        call()
    assert [type(event) for event in events.all] == [AttemptEnded, GaveUp]  # exhaustion is told when it begins
    events.all.clear()
    assert call() == 4
    assert events.all == [AttemptEnded(operation=operation, at=start + 3.0, number=1, seconds=0.5)]


def test_a_layer_that_leaves_retries_to_another_says_so(make: Callable[..., Dependency]) -> None:
    events = Events()
    inner = make(sink=events).call(idempotent=True)(Script(*[ConnectionResetError() for _ in range(3)]))
    with pytest.raises(ConnectionResetError):
        make().run(inner, idempotent=True)
    gave_up = [event for event in events.all if isinstance(event, GaveUp)]
    assert [(event.reason, event.retry_owner) for event in gave_up] == [(GiveUpReason.NOT_OWNER, "pricing")] * 3


def test_a_timeout_that_moves_is_told(make: Callable[..., Dependency], clock: FakeClock) -> None:
    events = Events()
    percentile = Percentile(90, start=5.0, min_samples=100)
    dependency = make(sink=events, timeouts=Timeouts(attempt=percentile, connect=percentile))
    for _ in range(300):
        dependency.run(lambda: clock.advance(0.1), idempotent=True)
    for _ in range(100):
        dependency._state.learn_connect(0.01)
    changed = [event for event in events.all if isinstance(event, TimeoutChanged)]
    assert [(event.timeout, event.before) for event in changed] == [("attempt", 5.0), ("connect", 5.0)]
    assert changed[0].after == pytest.approx(0.2, rel=1 / 16)


def test_a_sink_that_fails_does_not_reach_the_caller(
    make: Callable[..., Dependency], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def emit(self, event: CallEvent) -> None:
            raise OSError("full")

    dependency = make(sink=Broken())
    assert dependency.run(Script(ConnectionResetError()), idempotent=True) == 2
    assert [record.message for record in caplog.records] == [
        "the sink of dependency pricing raised; further dropped events are only counted"
    ]
    assert dependency.dropped_events == 3


def test_a_sink_may_be_set_later(make: Callable[..., Dependency]) -> None:
    events, dependency = Events(), make()
    call = dependency.call(idempotent=True)(Script())
    call()
    dependency.sink = events
    call()
    dependency.sink = None
    call()
    assert len(events.all) == 1
