"""Virtual time, and processes in it, which yield the seconds they wait. `simulate_call` is one for a Call. Pure."""

import math
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from holdfast._errors import CallError

if TYPE_CHECKING:
    from holdfast.calls.attempt import Attempt
    from holdfast.calls.engine import Call

Result = TypeVar("Result")
Process: TypeAlias = Generator[float, None, Result]
"""A generator that yields the seconds it waits, and returns a result."""
FailureProcess: TypeAlias = Process[Exception | None]
"""A process that returns its failure, or None if it succeeded."""


class VirtualClock:
    """A Clock that a `Timeline` sets, and that sleeping advances. Starts at zero."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class Timeline:
    """A scheduler that runs concurrent processes in the order of their times, then in the order of their starts."""

    __slots__ = ("_count", "_waiting", "clock")

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._waiting: list[tuple[float, int, Process[object]]] = []
        self._count = 0

    def start(self, at: float, process: Process[object]) -> None:
        """Start a process at a time that has not passed."""
        self._count += 1
        heappush(self._waiting, (at, self._count, process))

    def run(self, until: float = math.inf) -> None:
        """Run all processes until they have ended, or up to the time `until`."""
        waiting, clock = self._waiting, self.clock
        while waiting and waiting[0][0] < until:
            clock.now, _, process = heappop(waiting)
            for seconds in process:
                if seconds > 0:
                    self.start(clock.now + seconds, process)
                    break


def simulate_call(call: "Call", make_attempt: "Callable[[Attempt], FailureProcess]") -> FailureProcess:
    """Make the attempts of one call, as the real drivers do, and return the caller's failure, or None."""
    while True:
        try:
            attempt = call.begin()
            call.enter()
        except CallError as refused:
            return refused
        error = yield from make_attempt(attempt)
        call.leave()
        try:
            delay = call.end_attempt(attempt, None, error)
        except CallError as late:
            return late
        if delay is None:
            return error
        yield delay


def seeded_random(*parts: str | int) -> Random:
    """Return a random generator whose numbers depend only on the parts."""
    return Random("/".join(map(str, parts)))  # noqa: S311 - must be reproducible
