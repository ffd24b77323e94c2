"""A fake clock and seeded random numbers for tests."""

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
"""Long past, and far from every monotonic time, so that a test which confuses the two clocks fails."""

START_MONOTONIC = 1_000.0
"""Not zero, because `if deadline` would take a deadline at zero for a missing one."""

ROUNDING_ERROR = 1e-9
"""Seconds by which a sleeper may miss an advance and still wake. Sums of tenths have errors of about 1e-13 s."""

SLEEPER_TIMEOUT = 10.0
"""Real seconds after which a test that waits for sleepers fails: enough for a busy machine, and bearable for people."""


@dataclass(frozen=True, slots=True, order=True)
class _Sleeper:
    due: float
    number: int  # of two that are due at the same time, the first to sleep is woken first
    wake: Callable[[], None] = field(compare=False)


class FakeClock:
    """A Clock for synchronous and asynchronous tests. Safe with several threads and event loops.

    By default a sleep returns immediately and advances both times by its seconds. With `manual=True`, sleepers wait
    until `advance` reaches the time at which they are due. `sleeps` lists the seconds of every sleep in order,
    including those that were cancelled or did not have to wait.
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
        """Return the fake time in seconds since the epoch."""
        with self._changed:
            return self._wall

    def monotonic(self) -> float:
        """Return the fake monotonic time in seconds, which `jump_wall` does not change."""
        with self._changed:
            return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Advance the time or, on a manual clock, block the calling thread. Zero or less returns immediately."""
        woken = threading.Event()
        sleeper = self._sleep(seconds, woken.set)
        if sleeper is None:
            return
        try:
            woken.wait()
        finally:
            self._forget(sleeper)

    async def sleep_async(self, seconds: float) -> None:
        """Advance the time or, on a manual clock, suspend the calling task. Let other tasks run in any case."""
        import asyncio

        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def settle() -> None:
            if not woken.done():  # it may be cancelled between the advance and this callback
                woken.set_result(None)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed, with its sleepers
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
        """Advance both times, and wake the sleepers that are due, in the order of their due times.

        All of them see the new time. Tasks of one event loop run in that order. The order between threads, and between
        event loops, is undefined. A sleeper that sleeps again waits for the next advance.
        """
        if not 0 <= seconds < math.inf:
            raise InvalidValue(f"cannot advance by {seconds} seconds: expected 0 or more; jump_wall moves a clock back")
        with self._changed:
            now = self._monotonic + seconds
            due = [sleeper for sleeper in self._sleepers if sleeper.due <= now + ROUNDING_ERROR]
            del self._sleepers[: len(due)]
            self._wall += seconds
            self._monotonic = max(now, due[-1].due) if due else now
            for sleeper in due:
                sleeper.wake()

    def jump_wall(self, seconds: float) -> None:
        """Move only the wall clock, forwards or back, as an operator would. Wake no sleeper."""
        if not math.isfinite(seconds):
            raise InvalidValue(f"cannot move the wall clock by {seconds} seconds: expected a finite number")
        with self._changed:
            self._wall += seconds

    @property
    def sleepers(self) -> int:
        with self._changed:
            return len(self._sleepers)

    def wait_for_sleepers(self, count: int, timeout: float = SLEEPER_TIMEOUT) -> None:
        """Block until `count` threads and tasks sleep, or raise AssertionError after `timeout` real seconds.

        Do not call it inside an event loop.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._sleepers) >= count, timeout):
                raise AssertionError(
                    f"{len(self._sleepers)} of {count} sleepers are waiting after {timeout} real seconds"
                    + ("" if self._manual else ": only FakeClock(manual=True) makes them wait")
                )

    async def wait_for_sleepers_async(self, count: int) -> None:
        """Wait until at least `count` threads and tasks sleep, as `wait_for_sleepers` does, while other tasks run."""
        import asyncio

        await asyncio.to_thread(self.wait_for_sleepers, count)

    def _sleep(self, seconds: float, wake: Callable[[], None]) -> _Sleeper | None:
        """Record a sleep. Return the sleeper if it has to wait for `wake`, or None."""
        with self._changed:
            self.sleeps.append(seconds)
            if not seconds > 0:  # or NaN
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
        """Remove a sleeper that was cancelled or interrupted."""
        with self._changed, suppress(ValueError):
            self._sleepers.remove(sleeper)


def seeded(*parts: str | int | float | None) -> random.Random:
    """Return a random generator that gives the same numbers for the same parts, such as a test's name and a round.

    They are the same in every process, on every machine and in every version of Python. Parts that differ in value,
    type, number or order give unrelated streams: `seeded("a", 1)` is neither `seeded("a1")` nor `seeded("a", "1")`.
    Python guarantees this only for `random()`: derive numbers that you store permanently from that method. Not for
    secrets. Give each thread its own generator; otherwise it is undefined which thread draws which number.
    """
    # JSON preserves parts and their types, and is ASCII; repr() of text changes with the tables of Unicode.
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - must be reproducible
