"""How the others are set up to do the same job: up to three attempts on ConnectionError, with no wait between them.

Each decorates a function, synchronous or not. What they would write to logs or metrics is turned off: Holdfast has no
sink either. `without_sleeping` takes the sleep of nothing away from all of them, which each performs in another way.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from unittest import mock

import backoff
import hyx.retry
import pybreaker
import redress
import stamina
import tenacity

ATTEMPTS = 3
Function = TypeVar("Function", bound=Callable[..., Any])

stamina.instrumentation.set_on_retry_hooks([])  # by default it logs, and counts for Prometheus where that is installed


def by_tenacity(function: Function) -> Function:
    """Waits for nothing unless told to; without `reraise` the failure would be wrapped in another one."""
    decorate = tenacity.retry(
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        retry=tenacity.retry_if_exception_type(ConnectionError),
        wait=tenacity.wait_none(),
        reraise=True,
    )
    return cast("Function", decorate(function))


def by_stamina(function: Function) -> Function:
    """Its time for all attempts is off, as nobody else but redress and Holdfast looks at the clock."""
    decorate = stamina.retry(
        on=ConnectionError, attempts=ATTEMPTS, timeout=None, wait_initial=0, wait_max=0, wait_jitter=0
    )
    return cast("Function", decorate(function))


def by_backoff(function: Function) -> Function:
    decorate = backoff.on_exception(
        backoff.constant, ConnectionError, max_tries=ATTEMPTS, jitter=None, logger=None, interval=0
    )
    return decorate(function)


def by_redress(function: Function) -> Function:
    """Its classifier knows ConnectionError. It has 60 seconds for all attempts, which cannot be turned off."""
    decorate = redress.retry(strategy=lambda _: 0.0, max_attempts=ATTEMPTS, max_unknown_attempts=0)
    return cast("Function", decorate(function))


def by_hyx(function: Function) -> Function:
    """Asynchronous only. Its `attempts` are those after the first."""
    return cast("Function", hyx.retry.retry(on=ConnectionError, attempts=ATTEMPTS - 1, backoff=0)(function))


def by_pybreaker(function: Function) -> Function:
    """Another job: it never retries, but it stands in the same place, and keeps state for a dependency as well."""
    return cast("Function", pybreaker.CircuitBreaker()(function))


def by_hand(function: Callable[[], object]) -> Callable[[], object]:
    """The loop that one would write."""

    @functools.wraps(function)
    def call() -> object:
        for left in reversed(range(ATTEMPTS)):
            try:
                return function()
            except ConnectionError:
                if not left:
                    raise
                time.sleep(0)
        return None

    return call


def by_hand_async(function: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    """The same loop for a function that is awaited."""

    @functools.wraps(function)
    async def call() -> object:
        for left in reversed(range(ATTEMPTS)):
            try:
                return await function()
            except ConnectionError:
                if not left:
                    raise
                await asyncio.sleep(0)
        return None

    return call


@contextmanager
def without_sleeping() -> Iterator[None]:
    """Nobody sleeps, not even for no time: that would be a system call or a turn of the event loop, not their work.

    All of them find the two functions by their modules' names when they sleep, so they all find these.
    """

    def no_sleep(_: float) -> None:
        return None

    async def no_sleep_async(_: float) -> None:
        return None

    with mock.patch.object(time, "sleep", no_sleep), mock.patch.object(asyncio, "sleep", no_sleep_async):
        yield


def check(decorate: Callable[[Callable[[], object]], Callable[[], object]]) -> None:
    """Raise unless it does the job: three attempts on ConnectionError, one on another error and on success."""
    for error, expected in ((ConnectionError, ATTEMPTS), (LookupError, 1), (None, 1)):
        made = _attempts(decorate, error)
        if made != expected:
            raise AssertionError(f"{decorate}: {made} attempts on {error}: expected {expected}")


def check_async(
    decorate: Callable[[Callable[[], Awaitable[object]]], Callable[[], Awaitable[object]]],
) -> None:
    """The same for functions that are awaited."""

    def awaiting(function: Callable[[], object]) -> Callable[[], object]:
        async def awaited() -> object:
            return function()

        async def waiting() -> object:
            return await decorate(awaited)()

        return lambda: asyncio.run(waiting())

    check(awaiting)


def _attempts(decorate: Callable[[Callable[[], object]], Callable[[], object]], error: type[Exception] | None) -> int:
    made = 0

    def counted() -> object:
        nonlocal made
        made += 1
        if error is not None:
            raise error
        return "done"

    try:
        if decorate(counted)() != "done":
            raise AssertionError(f"{decorate}: the result is lost")
    except (ConnectionError, LookupError, hyx.retry.exceptions.MaxAttemptsExceeded):
        pass
    return made
