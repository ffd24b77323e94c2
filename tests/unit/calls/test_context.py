"""Until when."""

import asyncio
import contextvars
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast._errors import DeadlineExceeded
from holdfast.calls import Dependency, Timeouts, current_attempt, deadline, detached, propagate_context, remaining
from holdfast.calls.context import NO_SCOPES, SCOPE, ThreadScopes, current_scope
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import IncomingScope, Scope, find_trace
from holdfast.testing import FakeClock


class Ignored:
    """A sink, so that calls do not take the short way."""

    def emit(self, event: object) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runtime(clock: FakeClock) -> Runtime:
    return Runtime(clock, lambda: 0.5)


def test_outside_of_any_there_is_none() -> None:
    assert remaining() is None


def test_it_counts_down_and_ends_with_its_block(runtime: Runtime, clock: FakeClock) -> None:
    with deadline(2.0, runtime=runtime) as bound:
        clock.advance(0.5)
        assert bound.remaining() == remaining(runtime=runtime) == 1.5
        bound.check()
        clock.advance(2.0)
        assert bound.remaining() == remaining(runtime=runtime) == 0.0
        with pytest.raises(DeadlineExceeded, match="the deadline has passed"):
            bound.check()
    assert remaining(runtime=runtime) is None


def test_of_nested_ones_the_earliest_counts(runtime: Runtime) -> None:
    with deadline(2.0, runtime=runtime):
        with deadline(5.0, runtime=runtime) as inner:
            assert inner.remaining() == 2.0
        with deadline(1.0, runtime=runtime) as inner:
            assert inner.remaining() == 1.0
        with deadline(None, runtime=runtime) as inner:
            assert inner.remaining() == 2.0
        assert remaining(runtime=runtime) == 2.0


def test_none_bounds_nothing(runtime: Runtime) -> None:
    with deadline(None, runtime=runtime) as bound:
        assert bound.remaining() == math.inf
        assert remaining(runtime=runtime) is None


def test_a_wall_clock_that_jumps_changes_nothing(runtime: Runtime, clock: FakeClock) -> None:
    with deadline(2.0, runtime=runtime) as bound:
        clock.jump_wall(86_400)
        assert bound.remaining() == 2.0
        clock.jump_wall(-200_000)
        assert bound.remaining() == 2.0


def test_detached_work_has_none_of_it(runtime: Runtime) -> None:
    with deadline(2.0, runtime=runtime):
        with detached():
            assert remaining(runtime=runtime) is None
        assert remaining(runtime=runtime) == 2.0


def test_it_is_left_also_by_an_error(runtime: Runtime) -> None:
    with pytest.raises(ZeroDivisionError), deadline(2.0, runtime=runtime):
        raise ZeroDivisionError
    assert remaining(runtime=runtime) is None


def test_a_thread_does_not_see_it_and_a_task_does(runtime: Runtime) -> None:
    seen: list[float | None] = []

    async def look() -> None:
        seen.append(remaining(runtime=runtime))

    async def spawn() -> None:
        await asyncio.gather(look(), asyncio.create_task(look()))

    with deadline(2.0, runtime=runtime):
        thread = threading.Thread(target=lambda: seen.append(remaining(runtime=runtime)))
        thread.start()
        thread.join()
        asyncio.run(spawn())
    assert seen == [None, 2.0, 2.0]


@pytest.mark.parametrize("seconds", [-1, math.nan, "2"])
def test_a_time_that_makes_no_sense_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidValue, match=f"deadline of {seconds!r} seconds"):
        deadline(seconds)


def test_one_that_is_left_in_another_context_does_no_harm(runtime: Runtime) -> None:
    bound = deadline(2.0, runtime=runtime)
    contextvars.copy_context().run(bound.__enter__)
    bound.__exit__(None, None, None)
    assert remaining(runtime=runtime) is None


def test_one_is_entered_once_at_a_time(runtime: Runtime) -> None:
    bound = deadline(1.0, runtime=runtime)
    with bound, pytest.raises(InvalidValue, match="entered already"), bound:
        pass
    with bound:
        pass


def test_outside_of_a_call_there_is_no_attempt(runtime: Runtime) -> None:
    with pytest.raises(InvalidValue, match="no attempt is in progress"):
        current_attempt()
    with deadline(1.0, runtime=runtime), pytest.raises(InvalidValue, match="no attempt is in progress"):
        current_attempt()


def test_the_trace_that_came_in_is_found_through_what_was_opened_since(runtime: Runtime) -> None:
    token = SCOPE.set(IncomingScope(math.inf, trace="00-trace"))
    try:
        with deadline(1.0, runtime=runtime), deadline(0.5, runtime=runtime):
            assert find_trace(current_scope()) == "00-trace"
    finally:
        SCOPE.reset(token)
    assert find_trace(Scope(1.0)) is None


def test_a_thread_with_a_copy_of_the_context_does_not_see_calls_of_the_thread_it_came_from(runtime: Runtime) -> None:
    """Both have the same place for synchronous calls, and only one of them owns it."""
    dependency = Dependency("pricing", runtime=runtime, timeouts=Timeouts(attempt=5.0))
    inside, looked, seen = threading.Event(), threading.Event(), list[float | None]()

    def look() -> None:
        inside.wait()
        seen.append(remaining(runtime=runtime))
        seen.append(dependency.run(lambda: remaining(runtime=runtime), idempotent=True))
        seen.append(remaining(runtime=runtime))
        looked.set()

    def hold() -> None:
        inside.set()
        looked.wait()
        seen.append(remaining(runtime=runtime))

    with deadline(10.0, runtime=runtime):
        dependency.run(lambda: None, idempotent=True)  # so that there is a place
        thread = threading.Thread(target=contextvars.copy_context().run, args=(look,))
        thread.start()
        dependency.run(hold, idempotent=True)
        thread.join()
    assert seen == [10.0, 5.0, 10.0, 5.0]
    assert remaining(runtime=runtime) is None


@pytest.mark.parametrize("sink", [None, Ignored()])
def test_an_attempt_is_carried_into_another_thread_if_that_is_asked_for(runtime: Runtime, sink: Ignored | None) -> None:
    dependency = Dependency("pricing", runtime=runtime, timeouts=Timeouts(attempt=5.0), sink=sink)
    calls: list[int] = []

    def leaf() -> None:
        calls.append(1)
        raise ConnectionResetError

    def fan_out() -> list[float | None]:
        with ThreadPoolExecutor(1) as pool:
            look = pool.submit(propagate_context(lambda: remaining(runtime=runtime))).result()
            copied = pool.submit(contextvars.copy_context().run, lambda: remaining(runtime=runtime)).result()
            bare = pool.submit(lambda: remaining(runtime=runtime)).result()
            with pytest.raises(ConnectionResetError):
                pool.submit(propagate_context(dependency.call(idempotent=True)(leaf))).result()
            return [look, copied, bare]

    with deadline(10.0, runtime=runtime):
        assert dependency.run(fan_out, idempotent=True) == [5.0, 10.0, None]
    assert len(calls) == 1  # the retries are those of the attempt that was carried
    assert propagate_context(lambda: remaining(runtime=runtime))() is None


def test_tasks_that_were_made_during_a_call_outlive_it(runtime: Runtime) -> None:
    """A task that is begun inside of a synchronous call runs after it, with the deadline around the call."""
    dependency, seen = Dependency("pricing", runtime=runtime), list[float | None]()

    async def later() -> None:
        seen.append(remaining(runtime=runtime))
        seen.append(dependency.run(lambda: remaining(runtime=runtime), idempotent=True))

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        with deadline(10.0, runtime=runtime):
            dependency.run(lambda: tasks.append(asyncio.ensure_future(later())), idempotent=True)
        with deadline(3.0, runtime=runtime):
            await tasks[0]

    asyncio.run(main())
    assert seen == [10.0, 5.0]


def test_calls_of_both_kinds_find_each_others_scopes(runtime: Runtime) -> None:
    dependency, seen = Dependency("pricing", runtime=runtime), list[int]()

    @dependency.call(idempotent=True)
    def inner() -> None:
        seen.append(id(current_attempt()))

    @dependency.call(idempotent=True)
    async def middle() -> None:
        before = current_attempt()
        inner()
        assert current_attempt() is before
        seen.append(id(before))

    @dependency.call(idempotent=True)
    def outer() -> None:
        before = current_attempt()
        inner()
        asyncio.run(middle())
        assert current_attempt() is before
        seen.append(id(before))

    outer()
    assert len(seen) == 4
    with pytest.raises(InvalidValue):
        current_attempt()


def test_a_place_that_is_empty_is_given_up_by_a_task_and_made_again_when_needed(runtime: Runtime) -> None:
    dependency = Dependency("pricing", runtime=runtime)

    async def work() -> None:
        before = current_attempt()
        assert dependency.run(current_attempt, idempotent=True) is not before
        assert current_attempt() is before

    async def main() -> None:
        for _ in range(2):
            dependency.run(lambda: None, idempotent=True)
            assert isinstance(SCOPE.get(), ThreadScopes)
            await dependency.run_async(work, idempotent=True)
            assert SCOPE.get() is NO_SCOPES

    asyncio.run(main())
