"""Time and chance under the test's control: a Clock that moves only when told to, and random numbers that repeat."""

import hashlib
import json
import math
import random
import threading
from bisect import insort
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast._errors import InvalidValue

START_WALL = 1_750_000_000.0
"""Long past, and far from every monotonic time: a test that mixes the two clocks up fails."""

START_MONOTONIC = 1_000.0
"""Not zero: a deadline that is tested by `if deadline` must not look absent or present by accident."""

ROUNDING_ERROR = 1e-9
"""Sums of tenths miss their mark by some 1e-13 s; whoever is due within this much of an advance is due."""

SLEEPER_TIMEOUT = 10.0
"""Real seconds until a test that waits for sleepers is taken to be stuck: long for a busy machine, short for people."""


@dataclass(frozen=True, slots=True, order=True)
class _Sleeper:
    due: float
    number: int  # whoever came first is woken first when two are due at the same time
    wake: Callable[[], None] = field(compare=False)


class FakeClock:
    """A Clock for tests, synchronous or asynchronous; safe in several threads and event loops at once.

    By default a sleep returns at once and moves both times on by its seconds. With `manual=True` sleepers are parked
    until `advance` has reached the time at which they are due. Either way `sleeps` lists the seconds of every sleep
    that was asked for, in order, also of those that were cancelled or did not have to wait.
    """

    def __init__(self, *, wall: float = START_WALL, monotonic: float = START_MONOTONIC, manual: bool = False) -> None:
        self.sleeps: list[float] = []
        self._wall = wall
        self._monotonic = monotonic
        self._manual = manual
        self._sleepers: list[_Sleeper] = []  # sorted, the next one due first
        self._count = 0
        self._changed = threading.Condition()

    def wall(self) -> float:
        """Seconds since the epoch, as far as the test has moved them."""
        with self._changed:
            return self._wall

    def monotonic(self) -> float:
        """Seconds that never go back, not even by `jump_wall`."""
        with self._changed:
            return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Move the time on or, on a manual clock, park the calling thread. Zero or less returns at once."""
        woken = threading.Event()
        sleeper = self._sleep(seconds, woken.set)
        if sleeper is None:
            return
        try:
            woken.wait()
        finally:
            self._forget(sleeper)

    async def sleep_async(self, seconds: float) -> None:
        """Move the time on or, on a manual clock, park the calling task; other tasks get their turn either way."""
        import asyncio

        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def settle() -> None:
            if not woken.done():  # cancelled between the advance and this turn of the loop
                woken.set_result(None)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed over its sleepers: nobody is left to wake
                loop.call_soon_threadsafe(settle)

        sleeper = self._sleep(seconds, wake)
        if sleeper is None:
            await asyncio.sleep(0)
            return
        try:
            await woken
        finally:
            self._forget(sleeper)

    def advance(self, seconds: float) -> None:
        """Move both times on, and wake who is due by then, in the order of their due times.

        All of them see the new time. Tasks of one event loop run in that order; between threads, and between loops,
        the machine decides who runs first. A sleeper that goes back to sleep waits for the next advance.
        """
        if not 0 <= seconds < math.inf:
            raise InvalidValue(f"cannot advance by {seconds} seconds: expected 0 or more; jump_wall sets a clock back")
        with self._changed:
            now = self._monotonic + seconds
            due = [sleeper for sleeper in self._sleepers if sleeper.due <= now + ROUNDING_ERROR]
            del self._sleepers[: len(due)]
            self._wall += seconds
            self._monotonic = max(now, due[-1].due) if due else now
            for sleeper in due:
                sleeper.wake()

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, forwards or back, as when an operator sets it. Wakes nobody."""
        if not math.isfinite(seconds):
            raise InvalidValue(f"cannot move the wall clock by {seconds} seconds: expected a finite number")
        with self._changed:
            self._wall += seconds

    @property
    def sleepers(self) -> int:
        with self._changed:
            return len(self._sleepers)

    def wait_for_sleepers(self, count: int, timeout: float = SLEEPER_TIMEOUT) -> None:
        """Block until at least `count` threads and tasks are parked; not for use inside an event loop.

        Raises AssertionError when that has not happened after `timeout` real seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._sleepers) >= count, timeout):
                raise AssertionError(
                    f"{len(self._sleepers)} of {count} sleepers are parked after {timeout} real seconds"
                    + ("" if self._manual else ": only FakeClock(manual=True) parks them")
                )

    async def wait_for_sleepers_async(self, count: int) -> None:
        """Let the other tasks run until at least `count` threads and tasks are parked, as `wait_for_sleepers` does."""
        import asyncio

        await asyncio.to_thread(self.wait_for_sleepers, count)

    def _sleep(self, seconds: float, wake: Callable[[], None]) -> _Sleeper | None:
        """Take note of a sleep; returns who has to wait for `wake`, if anybody."""
        with self._changed:
            self.sleeps.append(seconds)
            if not seconds > 0:  # also not a number
                return None
            if not self._manual:
                self._wall += seconds
                self._monotonic += seconds
                return None
            sleeper = _Sleeper(self._monotonic + seconds, self._count, wake)
            self._count += 1
            insort(self._sleepers, sleeper)
            self._changed.notify_all()
            return sleeper

    def _forget(self, sleeper: _Sleeper) -> None:
        """Leave nothing of a sleeper behind that was cancelled or interrupted."""
        with self._changed, suppress(ValueError):
            self._sleepers.remove(sleeper)


def seeded(*parts: str | int | float | None) -> random.Random:
    """Return a generator that gives the same numbers for the same parts, such as the test's name and a round.

    They are the same in every process, on every machine and in every version of Python. Parts that differ in value,
    type, number or order give unrelated streams: `seeded("a", 1)` is neither `seeded("a1")` nor `seeded("a", "1")`.
    Python promises only `random()` itself to stay as it is: derive a number that is written down for good from that
    one. Not for secrets. Give each thread a generator of its own, or chance decides who draws which number.
    """
    # JSON keeps parts and their types apart, and is pure ASCII: repr() of text changes with the tables of Unicode.
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - meant to be foreseeable
