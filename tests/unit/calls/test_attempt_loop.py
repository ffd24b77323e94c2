"""The attempts of one call as a loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import InvalidValue
from holdfast._errors import AttemptTimedOut, LimitReached
from holdfast.calls import Backoff, Dependency, Jitter, Limit, Retry, Timeouts, current_attempt
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock

PLAIN = Retry(backoff=Backoff(base=1, jitter=Jitter.NONE))
AT_ONCE = Retry(backoff=Backoff(base=0, cap=0))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dependency(clock: FakeClock) -> Dependency:
    return Dependency("pricing", runtime=Runtime(clock, lambda: 0.5), retry=PLAIN, limit=Limit(1))


def test_the_loop_ends_with_the_attempt_that_succeeds(dependency: Dependency, clock: FakeClock) -> None:
    numbers, keys = [], set()
    for attempt in dependency.attempts(idempotent=True):
        with attempt:
            assert current_attempt() is attempt
            numbers.append(attempt.number)
            keys.add(attempt.idempotency_key)
            if attempt.number < 3:
                raise ConnectionResetError
    assert numbers == [1, 2, 3]
    assert len(keys) == 1
    assert clock.sleeps == [1, 2]
    assert dependency.in_flight == 0
    assert dependency.tokens == 500 - 14


def test_the_last_failure_leaves_it_with_a_note(dependency: Dependency) -> None:
    def fail() -> None:
        for attempt in dependency.attempts(idempotent=True, operation="get"):
            with attempt:
                raise ConnectionResetError

    with pytest.raises(ConnectionResetError) as raised:
        fail()
    assert "pricing/get: gave up after 3 attempts" in raised.value.__notes__[0]


def test_a_value_may_be_returned_from_it(dependency: Dependency) -> None:
    def price() -> str:
        for attempt in dependency.attempts(idempotent=True):
            with attempt:
                if attempt.number == 1:
                    raise ConnectionResetError
                return "value"
        raise AssertionError

    assert price() == "value"
    assert dependency.in_flight == 0


def test_what_ends_a_program_leaves_it_at_once(dependency: Dependency) -> None:
    attempts = dependency.attempts(idempotent=True)

    def interrupt() -> None:
        for attempt in attempts:
            with attempt:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert list(attempts) == []
    assert dependency.in_flight == 0


def test_an_attempt_that_was_not_made_is_a_mistake(dependency: Dependency) -> None:
    attempts = dependency.attempts(idempotent=True)
    next(attempts)
    with pytest.raises(InvalidValue, match="put its work in `with attempt:`"):
        next(attempts)


def test_an_attempt_is_made_once(dependency: Dependency) -> None:
    for attempt in dependency.attempts(idempotent=True):
        with attempt:
            pass
        with pytest.raises(InvalidValue, match="an attempt is made once"), attempt:
            pass


def test_a_loop_that_is_left_early_frees_its_slot(dependency: Dependency) -> None:
    for _ in dependency.attempts(idempotent=True):
        break
    for attempt in dependency.attempts(idempotent=True):
        with attempt:
            assert dependency.in_flight == 1
            break
    assert dependency.in_flight == 0


def test_an_attempt_without_room_is_refused(dependency: Dependency) -> None:
    dependency._state.in_flight.enter()
    attempt = next(dependency.attempts(idempotent=True))
    with pytest.raises(LimitReached), attempt:
        raise AssertionError


def test_an_asynchronous_loop_cuts_its_attempts_off() -> None:
    async def main() -> list[int]:
        numbers = []
        dependency = Dependency("pricing", retry=AT_ONCE, timeouts=Timeouts(attempt=0.02, total=60.0))
        async for attempt in dependency.attempts(idempotent=True):
            with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    await asyncio.Event().wait()

        async def hang() -> None:
            async for attempt in dependency.attempts(idempotent=True):
                with attempt:
                    await asyncio.Event().wait()

        with pytest.raises(AttemptTimedOut):
            await hang()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return numbers

    assert asyncio.run(main()) == [1, 2, 3]


def test_an_asynchronous_loop_waits_between_attempts_and_can_be_cancelled() -> None:
    async def main() -> None:
        slow = Retry(backoff=Backoff(base=1000, cap=1000))
        dependency = Dependency("pricing", retry=slow, timeouts=Timeouts(total=None, attempt=None), limit=Limit(1))
        made: list[int] = []

        async def work() -> None:
            async for attempt in dependency.attempts(idempotent=True):
                with attempt:
                    made.append(attempt.number)
                    raise ConnectionResetError

        task = asyncio.create_task(work())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made == [1]
        assert dependency.in_flight == 0

    asyncio.run(main())


def test_cancelling_an_asynchronous_attempt_passes_through() -> None:
    async def main() -> None:
        dependency = Dependency("pricing")

        async def work() -> None:
            async for attempt in dependency.attempts(idempotent=True):
                with attempt:
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_loop_has_no_result_to_judge() -> None:
    dependency = Dependency("pricing", retry=Retry(classify_result=lambda result: result.failure))
    for attempt in dependency.attempts(idempotent=True):
        with attempt:
            pass
    assert attempt.number == 1


def test_a_loop_that_is_closed_in_another_context_gives_back_what_it_held() -> None:
    dependency = Dependency("pricing", limit=Limit(1))

    async def pages() -> AsyncIterator[int]:
        async for attempt in dependency.attempts(idempotent=True):
            with attempt:
                yield attempt.number

    async def main() -> None:
        generator = pages()
        await anext(generator)
        await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
        assert dependency.in_flight == 0
        assert dependency._state.last_expiries is not None
        assert not dependency._state.last_expiries.pending

    asyncio.run(main())
