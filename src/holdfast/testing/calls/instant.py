"""Calls that do not wait, and whose events are recorded for assertions."""

import math
from collections.abc import Callable
from contextvars import Token
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from holdfast._backoff import Chance
from holdfast._clock import Clock
from holdfast._errors import InvalidValue
from holdfast._multi_sink import MultiSink
from holdfast._types import Sink
from holdfast.calls.context import SCOPE, ThreadScopes, current_scope
from holdfast.calls.events import CallEvent
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import Scope
from holdfast.calls.state import DependencyState
from holdfast.testing.clock import FakeClock, seeded


class instant_calls:  # noqa: N801 - reads as a word: with instant_calls()
    """A FakeClock and seeded random numbers for all dependencies of the process, inside the `with` block.

        with instant_calls() as instant:
            buy("a lamp")  # retries twice
        assert len(instant.sleeps) == 2

    It applies in every thread and task until the block ends. Blocks may be nested: the inner one counts. At both ends
    of a block, every dependency is reset to a full budget, no Retry-After in effect, and its initial timeouts, so that
    tests do not affect each other.

    A deadline around the block, in the thread or task that enters it, continues inside with the seconds it had left,
    as `remaining()` shows. Do not enter or leave a block while attempts are in progress in other threads or tasks: they
    would time out immediately, or never.

    Time advances with every sleep, and with `instant.clock.advance(5)`. It is the same for all: of several concurrent
    tasks that sleep, each advances it for the others. For such tests, pass a `FakeClock(manual=True)`. An asynchronous
    function that really hangs is cancelled when the test has advanced the clock past its timeout.
    """

    def __init__(self, clock: FakeClock | None = None, seed: int = 0, *, runtime: Runtime = PROCESS) -> None:
        self.clock = FakeClock() if clock is None else clock
        self._chance = seeded("holdfast.testing.calls", seed).random
        self._runtime = runtime
        self._before: tuple[Clock, Chance] | None = None
        self._token: Token[Scope | ThreadScopes] | None = None

    @property
    def sleeps(self) -> list[float]:
        """The seconds of every sleep so far, in order."""
        return list(self.clock.sleeps)

    def __enter__(self) -> Self:
        runtime = self._runtime
        if self._before is not None:
            raise InvalidValue("this instant_calls() is entered already: make a new one for each `with`")
        now = runtime.monotonic()
        self._before = runtime.clock, runtime.chance
        runtime.use(self.clock, self._chance)
        outer = current_scope()
        if outer is not None and outer.expires < math.inf:
            left = outer.expires - now
            self._token = SCOPE.set(Scope(self.clock.monotonic() + left, outer.retry_owner, outer))
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._before is not None
        self._runtime.use(*self._before)
        self._before = None
        if self._token is not None:
            SCOPE.reset(self._token)
            self._token = None


EventType = TypeVar("EventType")


class RecordedEvents(list[CallEvent]):
    """A list that is a sink: `Dependency(sink=events)`. In a `with` block it records all dependencies of the process.

    It records in addition to their own sinks. A sink that is set inside the block replaces it.
    """

    def __init__(self, runtime: Runtime = PROCESS) -> None:
        super().__init__()
        self._runtime = runtime
        self._watched: WeakKeyDictionary[DependencyState, tuple[Sink[CallEvent] | None, Sink[CallEvent]]] | None = None
        self._outer_callback: Callable[[DependencyState], object] | None = None

    def emit(self, event: CallEvent) -> None:
        self.append(event)

    def of(self, kind: type[EventType]) -> list[EventType]:
        """Return the events of one class, in order: `events.of(Retrying)`."""
        return [event for event in self if isinstance(event, kind)]

    def __enter__(self) -> Self:
        if self._watched is not None:
            raise InvalidValue("these events are recorded already: make new ones for each `with`")
        self._watched = WeakKeyDictionary()
        self._outer_callback = self._runtime.on_new_dependency
        self._runtime.on_new_dependency = self._record_new
        for dependency in list(self._runtime.dependencies):
            self._watch(dependency)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._watched is not None
        self._runtime.on_new_dependency = self._outer_callback
        for dependency, (before, installed) in self._watched.items():
            if dependency.sink is installed:
                dependency.sink = before
        self._watched = None

    def _record_new(self, dependency: DependencyState) -> None:
        if self._outer_callback is not None:
            self._outer_callback(dependency)
        self._watch(dependency)

    def _watch(self, dependency: DependencyState) -> None:
        assert self._watched is not None
        before = dependency.sink
        installed: Sink[CallEvent] = self if before is None else MultiSink(before, self)
        self._watched[dependency] = before, installed
        dependency.sink = installed


def recorded_events(runtime: Runtime = PROCESS) -> RecordedEvents:
    """Return a RecordedEvents. It records the events of dependencies that have it as sink.

    In a `with` block, it records the events of all dependencies.
    """
    return RecordedEvents(runtime)
