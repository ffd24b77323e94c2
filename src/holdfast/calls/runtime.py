"""The clock and the random source of calls: the machine's, unless a test or a simulation replaces them."""

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from holdfast._backoff import Chance
from holdfast._clock import Clock, SystemClock
from holdfast._types import Operation

if TYPE_CHECKING:
    from holdfast.calls.attempt import Attempt
    from holdfast.calls.state import DependencyState

POLL_INTERVAL = 0.001
"""Real seconds between a timer's checks of a fake clock, whose time no event loop knows."""


class Interceptor(Protocol):
    """A fault-injection hook around attempts, such as `holdfast.testing.calls.Faults`."""

    def wrap(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to call instead of `function` in each attempt of one call."""

    def wrap_async(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the coroutine function to await instead of `function` in each attempt of one call."""

    def before_attempt(self, operation: Operation, attempt: "Attempt") -> None:
        """Raise the error with which an attempt of an AttemptLoop must fail, if any."""

    async def before_attempt_async(self, operation: Operation, attempt: "Attempt") -> None:
        """Raise the error with which an attempt of an asynchronous AttemptLoop must fail, if any."""


class Runtime:
    """The clock and random source of calls. Dependencies share the clock, because a deadline spans several of them."""

    __slots__ = ("_interceptor", "chance", "clock", "dependencies", "monotonic", "on_new_dependency", "poll_interval")

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self.dependencies: WeakSet[DependencyState] = WeakSet()
        """All dependencies that use this runtime."""
        self.on_new_dependency: Callable[[DependencyState], object] | None = None
        """Called with every new dependency, if set."""
        self._interceptor: Interceptor | None = None
        self.use(clock, chance)

    @property
    def interceptor(self) -> Interceptor | None:
        """The fault-injection hook around attempts, or None, which costs nothing."""
        return self._interceptor

    @interceptor.setter
    def interceptor(self, interceptor: Interceptor | None) -> None:
        self._interceptor = interceptor
        for dependency in list(self.dependencies):
            dependency.update_fast_path()

    def add_dependency(self, dependency: "DependencyState") -> None:
        """Register a new dependency."""
        self.dependencies.add(dependency)
        if self.on_new_dependency is not None:
            self.on_new_dependency(dependency)

    def use(self, clock: Clock, chance: Chance) -> None:
        """Switch to another clock and random source. Reset all dependencies: times of two clocks cannot be compared."""
        self.clock = clock
        self.poll_interval = math.inf if isinstance(clock, SystemClock) else POLL_INTERVAL
        self.chance = chance
        # SystemClock.monotonic would be one more call, and two clock readings are most of the cost of a call.
        if isinstance(clock, SystemClock):
            import time

            self.monotonic: Callable[[], float] = time.monotonic
        else:
            self.monotonic = clock.monotonic
        for dependency in list(self.dependencies):
            dependency.forget()


PROCESS = Runtime(SystemClock(), random.random)
"""The default. `holdfast.testing.calls` can replace its contents. Python reseeds `random.random` in a forked child."""
