"""Calls of a dependency: asynchronous functions, which are cut off when their time is over."""

import asyncio
import contextvars
import gc
import math
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast._errors import AttemptTimedOut, ConnectTimedOut, DeadlineExceeded
from holdfast.calls import (
    Backoff,
    Dependency,
    Failure,
    FailureKind,
    Limit,
    Retry,
    RetryAfter,
    RetryAfterScope,
    Timeouts,
    current_attempt,
    deadline,
)
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock

AT_ONCE = Retry(backoff=Backoff(base=0, cap=0))
SHORT = Timeouts(attempt=0.02, total=60.0)


async def forever() -> None:
    await asyncio.Event().wait()


def failing(*errors: Exception) -> Callable[[], Awaitable[int]]:
    left, calls = list(errors), 0

    async def function() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if left:
            raise left.pop(0)
        return calls

    return function


def test_it_retries_and_returns_as_a_synchronous_one_does() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=AT_ONCE)

        @dependency.call(idempotent=True)
        async def price(sku: str, *, factor: int = 1) -> str:
            """What it costs."""
            await asyncio.sleep(0)
            return sku * factor

        assert await price("a") == "a"
        assert await price("a", factor=3) == "aaa"
        assert asyncio.iscoroutinefunction(price)
        assert (price.__name__, price.__doc__) == ("price", "What it costs.")
        assert await dependency.run_async(failing(ConnectionResetError(), TimeoutError()), idempotent=True) == 3
        with pytest.raises(KeyError):
            await dependency.run_async(failing(KeyError()), idempotent=True)
        with pytest.raises(ConnectionResetError) as raised:
            await dependency.run_async(failing(ConnectionResetError()), idempotent=False)
        assert "not idempotent" in raised.value.__notes__[0]

    asyncio.run(main())


@pytest.mark.parametrize("limit", [None, Limit(1)])
def test_an_attempt_is_cut_off_when_its_time_is_over_and_made_again(limit: Limit | None) -> None:
    async def main() -> None:
        dependency, begun = Dependency("pricing", retry=AT_ONCE, timeouts=SHORT, limit=limit), []

        @dependency.call(idempotent=True)
        async def hangs_twice() -> int:
            begun.append(current_attempt().number)
            if len(begun) < 3:
                await forever()
            return len(begun)

        assert await hangs_twice() == 3
        assert begun == [1, 2, 3]
        dependency.latency(50)
        assert dependency._state.attempt_estimator.histogram.timed_out == 2
        assert dependency.in_flight == 0
        begun.clear()
        with pytest.raises(AttemptTimedOut, match=r"pricing: attempt 3 timed out after 0\.020 s") as raised:
            await dependency.run_async(forever, idempotent=True)
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        assert "3 attempts" in raised.value.__notes__[0]

    asyncio.run(main())


def test_a_coroutine_that_no_event_loop_runs_fails_without_holding_a_slot() -> None:
    dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=SHORT, limit=Limit(1))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no running event loop"):
            dependency.run_async(forever, idempotent=True).send(None)
        assert dependency.in_flight == 0


@pytest.mark.parametrize("limit", [None, Limit(1)])
def test_cancelling_it_passes_through_at_once_and_releases_what_it_holds(limit: Limit | None) -> None:
    async def main() -> None:
        dependency, cleaned = Dependency("pricing", limit=limit), []

        @dependency.call(idempotent=True)
        async def waits() -> None:
            try:
                await forever()
            finally:
                cleaned.append(1)

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [1]
        assert dependency.in_flight == 0
        assert dependency._state.last_expiries is not None
        assert not dependency._state.last_expiries.pending
        assert dependency.tokens == 500

    asyncio.run(main())


def test_cancelling_it_while_it_waits_for_the_next_attempt_ends_it() -> None:
    async def main() -> None:
        dependency = Dependency(
            "pricing", retry=Retry(backoff=Backoff(base=1000, cap=1000)), timeouts=Timeouts(total=None)
        )
        function = failing(*[ConnectionResetError() for _ in range(3)])
        task = asyncio.create_task(dependency.run_async(function, idempotent=True))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_cancellation_that_comes_together_with_the_timeout_is_not_swallowed() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=AT_ONCE, timeouts=SHORT)

        @dependency.call(idempotent=True)
        async def waits() -> None:
            try:
                await forever()
            except asyncio.CancelledError:
                task.cancel()  # from outside, in the very moment in which the timeout has struck
                raise

        task = asyncio.create_task(waits())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_timeout_inside_of_a_task_that_is_being_cancelled_is_a_timeout() -> None:
    async def main() -> list[str]:
        dependency, seen = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=SHORT), []

        async def work() -> None:
            try:
                await forever()
            except asyncio.CancelledError:
                try:
                    await dependency.run_async(forever, idempotent=True)
                except AttemptTimedOut:
                    seen.append("timed out")
                raise

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert asyncio.run(main()) == ["timed out"]


def test_after_a_timeout_the_task_is_not_taken_to_be_cancelled() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=SHORT)

        async def stubborn() -> str:
            try:
                await forever()
            except asyncio.CancelledError:
                return "all the same"
            return "never"

        assert await dependency.run_async(stubborn, idempotent=True) == "all the same"
        with pytest.raises(AttemptTimedOut):
            await dependency.run_async(forever, idempotent=True)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0.001)

    asyncio.run(main())


def test_the_deadline_cuts_it_off_and_is_named() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=AT_ONCE)
        with deadline(0.02), pytest.raises(DeadlineExceeded, match="the deadline passed during attempt 1"):
            await dependency.run_async(forever, idempotent=True)
        with deadline(0.0), pytest.raises(DeadlineExceeded, match="refused"):
            await dependency.run_async(forever, idempotent=True)
        unbounded = Dependency("pricing", retry=AT_ONCE, timeouts=Timeouts(attempt=None, total=None))
        assert await unbounded.run_async(failing(), idempotent=True) == 1
        with deadline(0.02), pytest.raises(DeadlineExceeded):
            await unbounded.run_async(forever, idempotent=True)

    asyncio.run(main())


def test_attempts_that_expire_before_earlier_ones_are_cut_off_in_time() -> None:
    async def main() -> list[str]:
        dependency, order = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=Timeouts(attempt=30.0)), []

        async def bounded(seconds: float | None) -> None:
            with deadline(seconds):
                try:
                    await dependency.run_async(forever, idempotent=True)
                except DeadlineExceeded:
                    order.append(f"{seconds}")

        long = asyncio.create_task(bounded(None))
        await asyncio.gather(*[bounded(seconds) for seconds in (0.06, 0.04, 0.02)])
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return order

    assert asyncio.run(main()) == ["0.02", "0.04", "0.06"]


def test_many_at_once_are_each_cut_off() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=SHORT)
        results = await asyncio.gather(
            *[dependency.run_async(forever, idempotent=True) for _ in range(500)], return_exceptions=True
        )
        assert {type(result) for result in results} == {AttemptTimedOut}
        assert dependency._state.last_expiries is not None
        assert not dependency._state.last_expiries.pending
        assert dependency._state.last_expiries.armed_for == math.inf

    asyncio.run(main())


def test_a_deadline_is_kept_when_a_timer_is_still_set_for_calls_that_are_over() -> None:
    async def main() -> list[float]:
        dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=Timeouts(attempt=30.0))
        await dependency.run_async(failing(), idempotent=True)
        left = []
        for seconds in (0.02, 0.04, 0.01):
            with deadline(seconds), deadline(20.0) as bound:
                with pytest.raises(DeadlineExceeded):
                    await dependency.run_async(forever, idempotent=True)
                left.append(bound.remaining())
        return left

    assert asyncio.run(asyncio.wait_for(main(), 20)) == [0.0, 0.0, 0.0]


def test_a_timeout_that_has_shrunk_is_kept() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=Timeouts(attempt=30.0, total=60.0))
        await dependency.run_async(failing(), idempotent=True)
        dependency._state.timeout = 0.02
        with pytest.raises(AttemptTimedOut):
            await dependency.run_async(forever, idempotent=True)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_only_one_timer_serves_them_all() -> None:
    async def main() -> int:
        loop, armed = asyncio.get_running_loop(), []
        call_later = loop.call_later

        def counted(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            armed.append(1)
            return call_later(*args, **kwargs)

        loop.call_later = counted  # type: ignore[assignment,method-assign]
        dependency = Dependency("pricing")
        for _ in range(100):
            await dependency.run_async(failing(), idempotent=True)
        return len(armed)

    assert asyncio.run(main()) == 1


def test_time_that_a_connection_takes_is_given_to_the_attempt() -> None:
    async def main() -> None:
        dependency = Dependency(
            "pricing", retry=Retry(max_attempts=1), timeouts=Timeouts(attempt=0.02, connect=30.0, total=60.0)
        )

        @dependency.call(idempotent=True)
        async def with_new_connection() -> str:
            with current_attempt().connecting():
                await asyncio.sleep(0.06)
            return "done"

        assert await with_new_connection() == "done"
        assert dependency._state.connect_estimator.histogram.total == 1

    asyncio.run(main())


def test_a_connection_that_takes_too_long_proves_that_nothing_was_sent() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=AT_ONCE, timeouts=Timeouts(attempt=30.0, connect=0.02, total=60.0))
        begun: list[int] = []

        @dependency.call(idempotent=False)
        async def cannot_connect() -> None:
            begun.append(1)
            with current_attempt().connecting():
                await forever()

        with pytest.raises(ConnectTimedOut, match=r"pricing: no connection in 0\.020 s"):
            await cannot_connect()
        assert len(begun) == 3
        assert dependency._state.connect_estimator.histogram.timed_out == 3

    asyncio.run(main())


def test_a_judged_result_is_repeated() -> None:
    async def main() -> int:
        retry = Retry(
            backoff=Backoff(base=0, cap=0),
            classify_result=lambda result: Failure(FailureKind.TRANSIENT) if result < 2 else None,
        )
        return await Dependency("pricing", retry=retry).run_async(failing(), idempotent=True)

    assert asyncio.run(main()) == 2


def test_event_loops_in_several_threads_share_a_dependency() -> None:
    dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=SHORT)
    outcomes: list[type] = []

    async def main() -> None:
        for _ in range(3):
            results = await asyncio.gather(
                *[dependency.run_async(forever, idempotent=True) for _ in range(20)],
                *[dependency.run_async(failing(), idempotent=True) for _ in range(20)],
                return_exceptions=True,
            )
            outcomes.extend(type(result) for result in results)

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(AttemptTimedOut) == outcomes.count(int) == 4 * 3 * 20


def test_loops_that_are_closed_are_forgotten() -> None:
    dependency = Dependency("pricing")
    for _ in range(5):
        asyncio.run(dependency.run_async(failing(), idempotent=True))
    assert len(dependency._state._by_loop) == 1


def test_its_latency_is_learned_and_its_successes_fill_the_bucket() -> None:
    async def main() -> None:
        clock = FakeClock()
        runtime = Runtime(clock, lambda: 0.5)
        dependency = Dependency("pricing", retry=AT_ONCE, runtime=runtime, timeouts=Timeouts(attempt=None, total=None))
        await dependency.run_async(failing(ConnectionResetError(), ConnectionResetError()), idempotent=True)
        assert dependency.tokens == 500 - 14

        async def answer() -> None:
            clock.advance(0.25)

        for _ in range(4):
            await dependency.run_async(answer, idempotent=True)
        assert dependency.tokens == 500 - 14 + 4
        assert dependency._state.attempt_estimator.histogram.total >= 4
        assert dependency.latency(50) == pytest.approx(0.25, rel=1 / 16)

    asyncio.run(main())


def test_a_layer_that_finds_an_owner_leaves_it_to_that_one() -> None:
    async def main() -> list[int]:
        outer, inner, calls = Dependency("outer", retry=AT_ONCE), Dependency("inner", retry=AT_ONCE), []

        @inner.call(idempotent=True)
        async def leaf() -> None:
            calls.append(1)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await outer.run_async(leaf, idempotent=True)
        return calls

    assert len(asyncio.run(main())) == 3


def test_a_hint_may_hold_first_attempts_too() -> None:
    async def main() -> None:
        clock = FakeClock()
        dependency = Dependency(
            "pricing", retry_after=RetryAfter(scope=RetryAfterScope.ALL, spread=0), runtime=Runtime(clock, lambda: 0.5)
        )
        dependency._state.retry_after.record(8.0, clock.monotonic())
        assert await dependency.run_async(failing(), idempotent=True) == 1
        assert clock.sleeps == [8.0]

    asyncio.run(main())


def test_a_timer_that_is_early_is_set_again() -> None:
    """The runtime's clock stands still for a while: each timer of the loop finds that it is not yet time."""

    async def main() -> None:
        class Slow(FakeClock):
            def monotonic(self) -> float:
                with suppress(IndexError):
                    return 1000.0 + times.pop(0)
                return 2000.0

        times = [0.0] * 12
        runtime = Runtime(Slow(), lambda: 0.5)
        dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=SHORT, runtime=runtime)
        with pytest.raises(AttemptTimedOut):
            await dependency.run_async(forever, idempotent=True)
        assert times == []

        times = [0.0] * 12

        @dependency.call(idempotent=True)
        async def connects() -> None:
            with current_attempt().connecting():
                current_attempt().begin_connect()  # again, which changes nothing
                await forever()

        dependency._state.connect_estimator.value = 0.02
        with pytest.raises(ConnectTimedOut):
            await connects()

    asyncio.run(main())


def test_nothing_is_kept_of_an_attempt_that_is_over() -> None:
    async def main() -> list[weakref.ref[Any]]:
        dependency, seen = Dependency("pricing", retry=AT_ONCE), list[weakref.ref[Any]]()

        @dependency.call(idempotent=True)
        async def flaky(argument: Kept) -> None:
            if len(seen) < 2:
                seen.append(weakref.ref(argument))
                raise ConnectionResetError

        await flaky(Kept())
        return seen

    gc.collect()
    gc.disable()
    try:
        assert [reference() for reference in asyncio.run(main())] == [None, None]
    finally:
        gc.enable()


class Kept:
    """Something that calls are given."""


def test_a_coroutine_that_is_closed_elsewhere_leaves_no_timer_behind() -> None:
    """As when a task's loop is closed over it: the coroutine is closed in another context than the one it began in."""

    async def main() -> None:
        dependency = Dependency("pricing")
        coroutine = dependency.run_async(forever, idempotent=True)
        contextvars.copy_context().run(coroutine.send, None)
        assert dependency._state.last_expiries is not None
        assert len(dependency._state.last_expiries.pending) == 1
        with suppress(ValueError):
            coroutine.close()
        assert not dependency._state.last_expiries.pending

    asyncio.run(main())


@pytest.mark.parametrize("limit", [None, Limit(1)])
def test_a_coroutine_that_is_closed_in_another_context_ends_without_an_error(limit: Limit | None) -> None:
    async def main() -> None:
        dependency = Dependency("pricing", limit=limit)
        call = dependency.run_async(forever, idempotent=True)
        call.send(None)
        contextvars.Context().run(call.close)
        assert dependency.in_flight == 0

    asyncio.run(main())


@pytest.mark.parametrize("limit", [None, Limit(1)])
def test_a_success_after_the_deadline_is_raised_with_its_result(limit: Limit | None) -> None:
    clock = FakeClock()

    async def stubborn() -> str:
        clock.advance(3.0)
        return "fine"

    async def main() -> None:
        dependency = Dependency(
            "pricing", timeouts=Timeouts(total=2.0), limit=limit, runtime=Runtime(clock, lambda: 0.5)
        )
        with pytest.raises(DeadlineExceeded, match="succeeded, but after the deadline") as raised:
            await dependency.run_async(stubborn, idempotent=True)
        assert raised.value.result == "fine"

    asyncio.run(main())


def test_options_may_be_others_for_a_single_call() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", retry=AT_ONCE)
        with dependency.override(attempt_timeout=0.02, max_attempts=2):
            with pytest.raises(AttemptTimedOut, match=r"attempt 2 timed out after 0\.020 s"):
                await dependency.run_async(forever, idempotent=True)
            async for attempt in dependency.attempts(idempotent=True):
                with attempt:
                    assert 0 < attempt.timeout <= 0.02

    asyncio.run(main())


def test_a_task_that_outlives_a_block_with_other_options_keeps_them() -> None:
    async def main() -> None:
        dependency = Dependency("pricing", timeouts=Timeouts(attempt=5.0, total=30.0))

        async def look() -> float:
            return current_attempt().call_timeout

        with dependency.override(total_timeout=1.0):
            task = asyncio.create_task(dependency.run_async(look, idempotent=True))
        assert await task <= 1.0
        assert await dependency.run_async(look, idempotent=True) > 1.0

    asyncio.run(main())


def test_a_connection_is_bounded_also_where_nothing_else_is() -> None:
    async def main() -> None:
        timeouts = Timeouts(connect=0.02, attempt=None, total=None)
        dependency = Dependency("pricing", retry=Retry(max_attempts=1), timeouts=timeouts)

        @dependency.call(idempotent=True)
        async def connects() -> None:
            with current_attempt().connecting():
                await forever()

        with pytest.raises(ConnectTimedOut):
            await connects()
        assert dependency._state.last_expiries is not None
        assert not dependency._state.last_expiries.pending

    asyncio.run(asyncio.wait_for(main(), 20))
