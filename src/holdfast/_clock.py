"""Time, injected: no rule, engine or store reads the system's clock or sleeps except through a Clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how to wait. `holdfast.testing.FakeClock` is the one for tests."""

    def wall(self) -> float:
        """Seconds since the epoch, for what is stored. May jump when the system's clock is set."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back, for deadlines and durations."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    async def sleep_async(self, seconds: float) -> None:
        """Suspend the calling task."""


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        # A real sleep of zero seconds still costs a system call and the GIL, about 75 microseconds.
        if seconds > 0:
            time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio  # 30 ms that a synchronous program should not pay

        await asyncio.sleep(seconds)
