"""Virtual time, and processes in it, which yield the seconds they wait.

`simulate_call` makes one of a real call. Pure.
"""

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
"""What happens over a time: it yields the seconds that it waits, and ends with a result."""
FailureProcess: TypeAlias = Process[Exception | None]
"""One that ends with its failure, or with None if it succeeded."""


class VirtualClock:
    """A Clock whose time is set by a `Timeline`, or by whoever sleeps. Begins at zero."""

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
    """Runs processes side by side in the order of their times; those of one moment in the order they came."""

    __slots__ = ("_count", "_waiting", "clock")

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._waiting: list[tuple[float, int, Process[object]]] = []
        self._count = 0

    def start(self, at: float, process: Process[object]) -> None:
        """Let a process begin at a time, which must not be past."""
        self._count += 1
        heappush(self._waiting, (at, self._count, process))

    def run(self, until: float = math.inf) -> None:
        """Let time pass until nothing happens any more, or until then."""
        waiting, clock = self._waiting, self.clock
        while waiting and waiting[0][0] < until:
            clock.now, _, process = heappop(waiting)
            for seconds in process:
                if seconds > 0:
                    self.start(clock.now + seconds, process)
                    break


def simulate_call(call: "Call", make_attempt: "Callable[[Attempt], FailureProcess]") -> FailureProcess:
    """Make the attempts of one call, as the real drivers do; ends with the failure that its caller gets, or None."""
    while True:
        try:
            attempt = call.begin()
            call.enter()
        except CallError as refused:
            return refused
        error = yield from make_attempt(attempt)
        call.leave()
        delay = call.end_attempt(attempt, None, error)
        if delay is None:
            return error
        yield delay


def seeded_random(*parts: str | int) -> Random:
    """Chance that repeats itself: the same for the same parts, and unrelated for others."""
    return Random("/".join(map(str, parts)))  # noqa: S311 - meant to be foreseeable
