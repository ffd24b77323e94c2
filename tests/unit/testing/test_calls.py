"""Calls that do not wait, faults on demand, and events in a list."""

import asyncio
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation, Zone
from holdfast._clock import SystemClock
from holdfast._errors import AttemptTimedOut, DeadlineExceeded
from holdfast.calls import (
    Backoff,
    Dependency,
    Endpoints,
    Failure,
    FailureKind,
    Jitter,
    Retry,
    Timeouts,
    current_attempt,
    deadline,
    remaining,
)
from holdfast.calls.events import AttemptEnded, GaveUp, Retrying
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.testing import FakeClock
from holdfast.testing.calls import Faults, HttpStatusError, RecordedEvents, Script, instant_calls, recorded_events

PLAIN = Retry(backoff=Backoff(base=1, jitter=Jitter.NONE), throttled_backoff=Backoff(base=3, jitter=Jitter.NONE))
HERE, THERE = Zone("use1-az1"), Zone("use1-az2")

MADE_BEFORE = Dependency("made before", retry=PLAIN)
"""As a service has them: made when its module is imported."""


@MADE_BEFORE.call(idempotent=True)
def price() -> str:
    return "7 EUR"


@MADE_BEFORE.call(idempotent=True)
async def price_async() -> str:
    return "7 EUR"


def price_by_loop() -> str:
    for attempt in MADE_BEFORE.attempts(idempotent=True, operation="price_by_loop"):
        with attempt:
            return "7 EUR"
    raise AssertionError


async def price_by_async_loop() -> str:
    async for attempt in MADE_BEFORE.attempts(idempotent=True, operation="price_by_async_loop"):
        with attempt:
            return "7 EUR"
    raise AssertionError


Call = Callable[[], str]
EVERY_WAY = pytest.mark.parametrize(
    "call",
    [
        price,
        lambda: asyncio.run(price_async()),
        price_by_loop,
        lambda: asyncio.run(price_by_async_loop()),
    ],
    ids=["function", "coroutine", "loop", "async loop"],
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Every test leaves the process as it was."""
    yield
    assert isinstance(PROCESS.clock, SystemClock)
    assert PROCESS.chance == random.random
    assert PROCESS.interceptor is None
    assert PROCESS.on_new_dependency is None
    assert MADE_BEFORE._state.has_fast_path
    assert MADE_BEFORE.tokens == MADE_BEFORE._state.bucket.budget.capacity


class TestInstantCalls:
    @EVERY_WAY
    def test_waits_are_recorded_and_not_waited_for(self, call: Call) -> None:
        with instant_calls() as instant, Faults() as faults:
            faults.on("made before").fail(ConnectionResetError, times=2)
            before = instant.clock.monotonic()
            assert call() == "7 EUR"
        assert instant.sleeps == [1, 2]
        assert instant.clock.monotonic() == before + 3

    @given(st.integers())
    def test_the_same_seed_gives_the_same_waits(self, seed: int) -> None:
        def waits() -> list[float]:
            with instant_calls(seed=seed) as instant, Faults() as faults:
                pricing = Dependency("pricing")
                faults.on().fail(ConnectionResetError, times=2)
                pricing.run(lambda: None, idempotent=True)
                return instant.sleeps

        assert waits() == waits()

    def test_other_seeds_give_other_waits(self) -> None:
        drawn = set()
        for seed in range(5):
            with instant_calls(seed=seed):
                drawn.add(PROCESS.chance())
        assert len(drawn) == 5

    def test_an_exception_ends_it_too(self) -> None:
        with pytest.raises(KeyError), instant_calls():
            raise KeyError

    def test_of_nested_ones_the_inner_counts_and_the_outer_goes_on_after_it(self) -> None:
        with instant_calls() as outer:
            with instant_calls() as inner:
                MADE_BEFORE._state.runtime.clock.sleep(2)
            MADE_BEFORE._state.runtime.clock.sleep(1)
        assert (outer.sleeps, inner.sleeps) == ([1], [2])

    def test_one_is_entered_once_at_a_time(self) -> None:
        instant = instant_calls()
        with instant, pytest.raises(InvalidValue, match="entered already"), instant:
            pass
        with instant:
            pass

    def test_it_holds_in_threads(self) -> None:
        with instant_calls() as instant, Faults() as faults:
            faults.on().fail(ConnectionResetError, up_to_attempt=1)
            threads = [threading.Thread(target=price) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert instant.sleeps == [1] * 4

    def test_it_holds_in_tasks(self) -> None:
        async def scene() -> None:
            await asyncio.gather(*(price_async() for _ in range(4)))

        with instant_calls() as instant, Faults() as faults:
            faults.on().fail(ConnectionResetError, up_to_attempt=1)
            asyncio.run(scene())
        assert instant.sleeps == [1] * 4

    def test_a_clock_of_the_test_can_be_used(self) -> None:
        clock = FakeClock(wall=5.0)
        with instant_calls(clock) as instant:
            assert instant.clock is PROCESS.clock is clock

    def test_another_world_can_be_made_instant(self) -> None:
        runtime = Runtime(SystemClock(), random.random)
        with instant_calls(runtime=runtime) as instant:
            assert runtime.clock is instant.clock
            assert isinstance(PROCESS.clock, SystemClock)
        assert isinstance(runtime.clock, SystemClock)

    def test_a_deadline_around_it_goes_on_with_what_it_had_left(self) -> None:
        with deadline(100.0):
            with instant_calls() as instant, Faults() as faults:
                assert remaining() == pytest.approx(100.0, abs=50)
                instant.clock.advance(99.0)
                assert remaining() == pytest.approx(0.5, abs=0.5)
                faults.on().fail(ConnectionResetError)
                instant.clock.advance(1.0)
                with pytest.raises(DeadlineExceeded):
                    price()
            assert remaining() == pytest.approx(100.0, abs=50)

    def test_a_deadline_without_a_bound_stays_without(self) -> None:
        with deadline(None), instant_calls():
            assert remaining() is None

    def test_who_retries_is_still_known_inside(self) -> None:
        outer = Dependency("outer", retry=Retry(backoff=Backoff(base=0)))
        faults = Faults()
        faults.on("made before").fail(ConnectionResetError, times=1)

        def nested() -> str:
            with instant_calls():
                return price()

        with recorded_events() as events, faults:
            assert outer.run(nested, idempotent=True) == "7 EUR"
        assert [event.retry_owner for event in events.of(GaveUp)] == ["outer"]

    def test_a_dependency_begins_and_ends_it_anew(self) -> None:
        with instant_calls() as instant, Faults() as faults:
            faults.on().status(429, headers={"Retry-After": "5"}).status(503)
            with pytest.raises(HttpStatusError):
                price()
            assert instant.sleeps[0] >= 5
            assert MADE_BEFORE.tokens < 500
            assert MADE_BEFORE._state.retry_after.until > instant.clock.monotonic()
            MADE_BEFORE._state.samples.append(3.0)
            MADE_BEFORE._state.learn_connect(math.inf)
            MADE_BEFORE._state.timeout = 0.5
        assert MADE_BEFORE.tokens == 500
        assert MADE_BEFORE._state.retry_after.until == -math.inf
        assert MADE_BEFORE.timeout == 5.0
        assert MADE_BEFORE.latency(50) is None
        assert MADE_BEFORE._state.learn_at <= PROCESS.monotonic() + 1

    def test_latencies_are_looked_at_by_the_clock_that_holds(self) -> None:
        """Whatever the machine's own clock shows."""
        with instant_calls(FakeClock(monotonic=-1e9)) as instant:
            for _ in range(3):
                instant.clock.advance(1.0)
                price()
            assert MADE_BEFORE._state.attempt_estimator.histogram.total == 3
        price()
        assert MADE_BEFORE._state.attempt_estimator.histogram.total == 0

    def test_a_coroutine_that_really_hangs_is_cut_off_when_the_test_moves_the_clock(self) -> None:
        async def scene(clock: FakeClock) -> None:
            started = asyncio.Event()

            async def hangs() -> None:
                started.set()
                await asyncio.Event().wait()

            slow = Dependency("slow", timeouts=Timeouts(attempt=3600.0, total=36_000.0), retry=Retry(max_attempts=1))
            task = asyncio.create_task(slow.run_async(hangs, idempotent=True))
            await started.wait()
            clock.advance(3599.0)
            assert not task.done()
            clock.advance(1.0)
            with pytest.raises(AttemptTimedOut):
                await task

        with instant_calls() as instant:
            asyncio.run(scene(instant.clock))

    def test_one_that_expires_before_others_is_cut_off_too(self) -> None:
        async def scene(clock: FakeClock) -> None:
            slow = Dependency("slow", timeouts=Timeouts(attempt=3600.0, total=36_000.0), retry=Retry(max_attempts=1))
            patient = asyncio.create_task(slow.run_async(asyncio.Event().wait, idempotent=True))
            await asyncio.sleep(0)
            with deadline(10.0):
                hurried = asyncio.create_task(slow.run_async(asyncio.Event().wait, idempotent=True))
            await asyncio.sleep(0)
            clock.advance(10.0)
            with pytest.raises(DeadlineExceeded):
                await hurried
            assert not patient.done()
            patient.cancel()

        with instant_calls() as instant:
            asyncio.run(scene(instant.clock))


class TestFaults:
    @EVERY_WAY
    def test_code_that_knows_nothing_of_it_meets_the_errors_in_turn(self, call: Call) -> None:
        with instant_calls(), recorded_events() as events, Faults() as faults:
            script = faults.on("made before").fail(ConnectionRefusedError, TimeoutError("slow"), times=2)
            assert call() == "7 EUR"
        assert [event.failure for event in events.of(AttemptEnded)] == [FailureKind.UNSENT, FailureKind.TIMEOUT, None]
        assert (script.matched, script.applied) == (3, 2)

    @EVERY_WAY
    def test_the_last_error_reaches_the_caller(self, call: Call) -> None:
        error = ConnectionResetError("by the test")
        with instant_calls(), Faults() as faults:
            faults.on("made before").fail(error)
            with pytest.raises(ConnectionResetError) as caught:
                call()
        assert caught.value is error
        assert "3 attempts" in error.__notes__[0]

    @EVERY_WAY
    def test_it_ends_with_its_block(self, call: Call) -> None:
        with instant_calls(), Faults() as faults:
            faults.on().fail(KeyError)
            with pytest.raises(KeyError):
                call()
        assert call() == "7 EUR"

    @EVERY_WAY
    def test_a_hanging_attempt_times_out_at_once(self, call: Call) -> None:
        with instant_calls() as instant, Faults() as faults:
            faults.on().hang(times=1)
            before = instant.clock.monotonic()
            assert call() == "7 EUR"
        assert instant.clock.monotonic() == before + 5.0 + 1.0
        assert instant.sleeps == [1]

    @EVERY_WAY
    def test_what_hangs_until_the_deadline_has_exceeded_it(self, call: Call) -> None:
        with instant_calls(), Faults() as faults, deadline(2.0) as bound:
            faults.on().hang()
            with pytest.raises(DeadlineExceeded, match="made before: attempt 1 hung"):
                call()
            assert bound.remaining() == 0

    def test_a_client_may_have_a_timeout_of_its_own(self) -> None:
        with instant_calls(), Faults() as faults, recorded_events() as events:
            faults.on().hang(lambda: TimeoutError("read timed out"), times=1)
            price()
        assert [event.error for event in events.of(AttemptEnded)] == ["TimeoutError", None]

    def test_what_could_never_end_does_not_hang(self) -> None:
        with instant_calls(), Faults() as faults:
            endless = Dependency("endless", timeouts=Timeouts(attempt=None, total=None))
            faults.on(endless).hang()
            with pytest.raises(InvalidValue, match="it would never end"):
                endless.run(lambda: None, idempotent=True)

    @EVERY_WAY
    def test_slow_attempts_take_their_time_and_then_go_on(self, call: Call) -> None:
        with instant_calls() as instant, recorded_events() as events, Faults() as faults:
            faults.on("made before").slow(0.5).slow(0.25, times=1)
            assert call() == "7 EUR"
            assert call() == "7 EUR"
        assert [event.seconds for event in events.of(AttemptEnded)] == [0.75, 0.5]
        assert instant.sleeps == []

    @EVERY_WAY
    def test_what_is_slower_than_its_timeout_times_out(self, call: Call) -> None:
        with instant_calls(), recorded_events() as events, Faults() as faults:
            faults.on().slow(3.0, times=2).slow(2.5, times=2)
            assert call() == "7 EUR"
        assert [(event.failure, event.seconds) for event in events.of(AttemptEnded)] == [
            (FailureKind.TIMEOUT, 5.0),
            (FailureKind.TIMEOUT, 5.0),
            (None, 0.0),
        ]

    def test_a_real_clock_is_waited_for(self) -> None:
        waited: list[tuple[str, float]] = []

        class Waited(SystemClock):
            def sleep(self, seconds: float) -> None:
                waited.append(("thread", seconds))

            async def sleep_async(self, seconds: float) -> None:
                waited.append(("task", seconds))

        runtime = Runtime(Waited(), random.random)
        pricing = Dependency("pricing", runtime=runtime)

        async def work() -> None:
            pass

        with Faults(runtime=runtime) as faults:
            faults.on().slow(0.5)
            pricing.run(lambda: None, idempotent=True)
            asyncio.run(pricing.run_async(work, idempotent=True))
        assert waited == [("thread", 0.5), ("task", 0.5)]

    @EVERY_WAY
    def test_a_status_is_understood_with_its_headers(self, call: Call) -> None:
        with instant_calls() as instant, recorded_events() as events, Faults() as faults:
            faults.on().status(429, headers={"Retry-After": "7"}, times=1).status(404)
            with pytest.raises(HttpStatusError, match="404"):
                call()
        assert [(event.failure, event.status) for event in events.of(AttemptEnded)] == [
            (FailureKind.THROTTLED, 429),
            (FailureKind.PERMANENT, 404),
        ]
        assert instant.sleeps[0] >= 7

    def test_an_answer_stands_for_the_result(self) -> None:
        def classify_result(response: Any) -> Failure | None:
            return Failure(FailureKind.TRANSIENT, response.status_code) if response.status_code >= 500 else None

        async def work_async() -> SimpleNamespace:
            return SimpleNamespace(status_code=200)

        with instant_calls(), Faults() as faults:
            pricing = Dependency("pricing", retry=Retry(classify_result=classify_result))
            script = faults.on("pricing").answer(SimpleNamespace(status_code=503), up_to_attempt=1)
            assert pricing.run(lambda: SimpleNamespace(status_code=200), idempotent=True).status_code == 200
            assert asyncio.run(pricing.run_async(work_async, idempotent=True)).status_code == 200
        assert (script.matched, script.applied) == (4, 2)

    @pytest.mark.parametrize("call", [price_by_loop, lambda: asyncio.run(price_by_async_loop())])
    def test_a_loop_has_no_result_to_stand_for(self, call: Call) -> None:
        with instant_calls(), Faults() as faults:
            faults.on().answer("8 EUR")
            with pytest.raises(InvalidValue, match="has no result"):
                call()

    def test_chance_decides_from_a_seed_and_does_not_change_the_waits(self) -> None:
        def failed(seed: int) -> tuple[list[bool], float]:
            with instant_calls(), recorded_events() as events, Faults(seed) as faults:
                pricing = Dependency("pricing", retry=Retry(max_attempts=1))
                faults.on("pricing").fail(KeyError, probability=0.3)
                for _ in range(200):
                    with suppress(KeyError):
                        pricing.run(lambda: None, idempotent=True)
                return [event.failure is not None for event in events.of(AttemptEnded)], PROCESS.chance()

        (first, drawn), (second, drawn_again), (other, _) = failed(1), failed(1), failed(2)
        assert first == second != other
        assert drawn == drawn_again
        assert 30 <= sum(first) <= 90

    def test_only_what_it_is_for_meets_it(self) -> None:
        stock = Dependency("stock")

        def count() -> int:
            return 3

        with instant_calls(), Faults() as faults:
            faults.on("stock", "count").fail(KeyError)
            assert price() == "7 EUR"
            assert stock.run(count, idempotent=True, operation="other") == 3
            with pytest.raises(KeyError):
                stock.run(count, idempotent=True)

    def test_a_zone_can_fail_and_retries_go_elsewhere(self) -> None:
        with instant_calls(), recorded_events() as events, Faults() as faults:
            pricing = Dependency("pricing", endpoints=Endpoints({HERE: ["a", "b"], THERE: ["c"]}))
            faults.on(zone=HERE).fail(ConnectionResetError)
            found = [pricing.run(lambda: current_attempt().endpoint.address, idempotent=True) for _ in range(4)]
            assert price() == "7 EUR"
        assert found == ["c"] * 4
        zones = [(event.zone, event.failure) for event in events.of(AttemptEnded) if event.zone is not None]
        assert set(zones) == {(HERE, FailureKind.TRANSIENT), (THERE, None)}

    def test_an_attempt_that_fails_has_an_endpoint(self) -> None:
        with instant_calls(), recorded_events() as events, Faults() as faults:
            pricing = Dependency("pricing", endpoints=Endpoints({HERE: ["a"], THERE: ["b"]}))
            faults.on(pricing).fail(ConnectionResetError, times=1)
            assert pricing.run(lambda: current_attempt().endpoint.address, idempotent=True) == "b"
        assert [event.address for event in events.of(AttemptEnded)] == ["a", "b"]

    @EVERY_WAY
    def test_of_nested_ones_the_inner_comes_first_and_the_outer_after_it(self, call: Call) -> None:
        with instant_calls(), recorded_events() as events, Faults() as outer, Faults() as inner:
            outer.on("made before").fail(TimeoutError, times=1)
            inner.on("made before").fail(ConnectionResetError, times=1)
            assert call() == "7 EUR"
        assert [event.error for event in events.of(AttemptEnded)] == ["ConnectionResetError", "TimeoutError", None]

    def test_of_several_scripts_that_fit_the_first_comes_first(self) -> None:
        with instant_calls(), recorded_events() as events, Faults() as faults:
            faults.on().slow(0.5)
            faults.on().fail(ConnectionResetError, times=1)
            last = faults.on().fail(TimeoutError, times=1)
            price()
        assert [event.error for event in events.of(AttemptEnded)] == ["ConnectionResetError", "TimeoutError", None]
        assert [event.seconds for event in events.of(AttemptEnded)] == [0.5, 0.5, 0.5]
        assert last.matched == 2

    def test_one_is_entered_once_at_a_time(self) -> None:
        faults = Faults()
        with faults, pytest.raises(InvalidValue, match="entered already"), faults:
            pass
        with faults:
            assert PROCESS.interceptor is faults

    def test_dependencies_made_inside_meet_it_too(self) -> None:
        with instant_calls(), Faults() as faults:
            faults.on().fail(KeyError)
            with pytest.raises(KeyError):
                Dependency("made inside").run(lambda: None, idempotent=True)

    def test_a_call_that_has_begun_before_meets_it_from_its_next_attempt_on(self) -> None:
        faults = Faults()
        faults.on().fail(KeyError)

        def begins() -> None:
            faults.__enter__()
            raise ConnectionResetError

        with instant_calls():
            try:
                with pytest.raises(KeyError):
                    Dependency("pricing").run(begins, idempotent=True)
            finally:
                faults.__exit__(None, None, None)

    @pytest.mark.parametrize(
        ("add", "message"),
        [
            (lambda script: script.fail(), "no error to fail with"),
            (lambda script: script.fail(int), "is not an error"),
            (lambda script: script.fail("boom"), "'boom' is not an error"),
            (lambda script: script.hang("boom"), "'boom' is not an error"),
            (lambda script: script.fail(KeyError, times=0), "times 0"),
            (lambda script: script.fail(KeyError, times=1.5), "times 1.5"),
            (lambda script: script.fail(KeyError, probability=0), "probability 0"),
            (lambda script: script.fail(KeyError, probability=1.1), "probability 1.1"),
            (lambda script: script.fail(KeyError, up_to_attempt=0), "up_to_attempt 0"),
            (lambda script: script.status(200), "HTTP status 200"),
            (lambda script: script.slow(0), "slower by 0 seconds"),
            (lambda script: script.slow(math.inf), "slower by inf seconds"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, add: Callable[[Script], object], message: str) -> None:
        with pytest.raises(InvalidValue, match=message):
            add(Script())


class TestRecordedEvents:
    def test_it_is_a_sink_and_a_list(self) -> None:
        events = recorded_events()
        with instant_calls():
            Dependency("pricing", sink=events).run(lambda: None, idempotent=True, operation="price")
        [event] = events
        assert isinstance(event, AttemptEnded)
        assert event.operation == Operation("pricing", "price")

    def test_as_a_context_it_hears_dependencies_made_before_and_inside(self) -> None:
        with recorded_events() as events:
            price()
            inside = Dependency("made inside")
            inside.run(lambda: None, idempotent=True)
        price()
        inside.run(lambda: None, idempotent=True)
        assert [event.operation.service for event in events.of(AttemptEnded)] == ["made before", "made inside"]
        assert inside.sink is None

    def test_sinks_that_were_there_hear_everything_too(self) -> None:
        own = RecordedEvents()
        pricing = Dependency("pricing", sink=own)
        with recorded_events() as events:
            pricing.run(lambda: None, idempotent=True)
        assert list(own) == list(events) != []
        assert pricing.sink is own

    def test_a_sink_that_is_set_inside_stays(self) -> None:
        own = RecordedEvents()
        pricing = Dependency("pricing")
        with recorded_events() as events:
            pricing.sink = own
            pricing.run(lambda: None, idempotent=True)
        assert pricing.sink is own
        assert (len(own), len(events)) == (1, 0)

    def test_nested_ones_both_hear(self) -> None:
        with recorded_events() as outer:
            with recorded_events() as inner:
                price()
                Dependency("made inside").run(lambda: None, idempotent=True)
            price()
        assert (len(outer), len(inner)) == (3, 2)

    def test_one_is_entered_once_at_a_time(self) -> None:
        events = recorded_events()
        with events, pytest.raises(InvalidValue, match="recorded already"), events:
            pass

    def test_events_are_found_by_class(self) -> None:
        with instant_calls(), recorded_events() as events, Faults() as faults:
            faults.on().fail(ConnectionResetError, times=2)
            price()
        assert [event.number for event in events.of(Retrying)] == [2, 3]
        assert len(events.of(AttemptEnded)) == 3
        assert events.of(GaveUp) == []
