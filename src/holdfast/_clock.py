"""The clock that is passed in. Rules, engines and stores read the time and sleep only through a Clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time, and a way to sleep. Tests use `holdfast.testing.FakeClock`."""

    def wall(self) -> float:
        """Return the seconds since the epoch, for stored times. They jump when the system's clock is set."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start, for deadlines and durations. They never go backwards."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    async def sleep_async(self, seconds: float) -> None:
        """Suspend the calling task."""


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        # Even a sleep of zero seconds costs a system call and releases the GIL: about 75 microseconds.
        if seconds > 0:
            time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio  # takes 30 ms, which synchronous programs should not pay

        await asyncio.sleep(seconds)
