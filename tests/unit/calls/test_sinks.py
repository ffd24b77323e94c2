"""What holds for every sink of a dependency, however the call is made."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from holdfast.calls import Dependency
from holdfast.calls.events import AttemptEnded, CallEvent, Retrying
from holdfast.testing.calls import RecordedEvents, instant_calls

Call = Callable[[Dependency, list[Exception]], None]


def by_function(dependency: Dependency, failures: list[Exception]) -> None:
    def work() -> None:
        if failures:
            raise failures.pop()

    dependency.run(work, idempotent=True)


def by_coroutine(dependency: Dependency, failures: list[Exception]) -> None:
    async def work() -> None:
        if failures:
            raise failures.pop()

    asyncio.run(dependency.run_async(work, idempotent=True))


def by_loop(dependency: Dependency, failures: list[Exception]) -> None:
    for attempt in dependency.attempts(idempotent=True):
        with attempt:
            if failures:
                raise failures.pop()


def by_async_loop(dependency: Dependency, failures: list[Exception]) -> None:
    async def work() -> None:
        async for attempt in dependency.attempts(idempotent=True):
            with attempt:
                if failures:
                    raise failures.pop()

    asyncio.run(work())


EVERY_WAY = pytest.mark.parametrize("call", [by_function, by_coroutine, by_loop, by_async_loop])


class Broken:
    def __init__(self) -> None:
        self.asked = 0

    def emit(self, event: CallEvent) -> None:
        self.asked += 1
        raise RuntimeError("the sink is broken")


@EVERY_WAY
def test_a_sink_that_raises_changes_nothing_for_the_caller(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    with instant_calls() as instant, caplog.at_level(logging.ERROR):
        call(Dependency("pricing", sink=broken), [ConnectionResetError()])
    assert broken.asked == 3
    assert len(instant.sleeps) == 1
    assert "the sink of dependency pricing raised" in caplog.text


@EVERY_WAY
def test_what_was_raised_is_raised_also_if_the_sink_fails(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    error = KeyError("a mistake")
    with instant_calls(), caplog.at_level(logging.ERROR), pytest.raises(KeyError) as caught:
        call(Dependency("pricing", sink=Broken()), [error])
    assert caught.value is error


@EVERY_WAY
def test_without_a_sink_no_event_is_even_made(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock is read for nothing but events and dates in headers."""
    with instant_calls() as instant:
        dependency = Dependency("pricing")
        monkeypatch.setattr(instant.clock, "wall", lambda: pytest.fail("an event was made"))
        monkeypatch.setattr(dependency._state, "emit", lambda _: pytest.fail("an event was made"))
        call(dependency, [ConnectionResetError(), TimeoutError()])
    assert len(instant.sleeps) == 2


@EVERY_WAY
def test_a_sink_can_be_set_and_taken_away_at_any_time(call: Call) -> None:
    events = RecordedEvents()
    with instant_calls():
        dependency = Dependency("pricing")
        call(dependency, [])
        dependency.sink = events
        call(dependency, [ConnectionResetError()])
        dependency.sink = None
        call(dependency, [])
    assert [type(event) for event in events] == [AttemptEnded, Retrying, AttemptEnded]
