"""Time and chance as calls see them: the machine's own, unless a test or a simulation replaces them."""

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
"""Real seconds after which a timer looks again at a clock that is not the machine's: no event loop knows its time."""


class Interceptor(Protocol):
    """What stands in front of attempts, to make some of them fail; `holdfast.testing.calls.Faults` is one."""

    def wrap(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        """What to call in place of a function, for each attempt of one call."""

    def wrap_async(self, operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same, to be awaited."""

    def before_attempt(self, operation: Operation, attempt: "Attempt") -> None:
        """An attempt of a loop begins; raises in place of its work."""

    async def before_attempt_async(self, operation: Operation, attempt: "Attempt") -> None:
        """The same in an event loop."""


class Runtime:
    """What calls share: a clock, because deadlines pass from one dependency to the next, and a source of chance."""

    __slots__ = ("_interceptor", "chance", "clock", "dependencies", "monotonic", "on_new_dependency", "poll_interval")

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self.dependencies: WeakSet[DependencyState] = WeakSet()
        """All that live in it."""
        self.on_new_dependency: Callable[[DependencyState], object] | None = None
        """Is told of every dependency that is made, if set."""
        self._interceptor: Interceptor | None = None
        self.use(clock, chance)

    @property
    def interceptor(self) -> Interceptor | None:
        """What stands in front of attempts. None: nothing is paid for it."""
        return self._interceptor

    @interceptor.setter
    def interceptor(self, interceptor: Interceptor | None) -> None:
        self._interceptor = interceptor
        for dependency in list(self.dependencies):
            dependency.update_fast_path()

    def add_dependency(self, dependency: "DependencyState") -> None:
        """A dependency was made."""
        self.dependencies.add(dependency)
        if self.on_new_dependency is not None:
            self.on_new_dependency(dependency)

    def use(self, clock: Clock, chance: Chance) -> None:
        """Switch dependencies to another clock and chance. They forget all: times of two clocks cannot be compared."""
        self.clock = clock
        self.poll_interval = math.inf if isinstance(clock, SystemClock) else POLL_INTERVAL
        self.chance = chance
        # A real clock's method is one more call; the benchmark of a call is mostly the price of two readings.
        if isinstance(clock, SystemClock):
            import time

            self.monotonic: Callable[[], float] = time.monotonic
        else:
            self.monotonic = clock.monotonic
        for dependency in list(self.dependencies):
            dependency.forget()


PROCESS = Runtime(SystemClock(), random.random)
"""The default; `holdfast.testing.calls` can swap what is in it. Python seeds `random.random` anew in a forked child."""
