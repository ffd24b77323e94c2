"""Calls that do not wait: a clock that is moved by sleeps, and chance that repeats itself."""

import math
from contextvars import Token
from types import TracebackType
from typing import Self

from holdfast._backoff import Chance
from holdfast._clock import Clock
from holdfast._errors import InvalidValue
from holdfast.calls.context import SCOPE, Place, around
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import Scope
from holdfast.testing.clock import FakeClock
from holdfast.testing.randomness import seeded


class instant_calls:  # noqa: N801 - reads as a word: with instant_calls()
    """Puts a FakeClock and seeded chance in the place of the real ones, for all dependencies of the process.

        with instant_calls() as instant:
            buy("a lamp")  # retries twice
        assert len(instant.sleeps) == 2

    It holds for dependencies made before and inside, in every thread and task, until the block ends, however it ends.
    Blocks may be nested: the inner one counts. When the clock changes, at both ends of a block, every dependency begins
    anew: with a full budget, without hints that hold, with the timeouts of its start. So no test sees what another one
    has used up.

    A deadline around the block, in the thread or task that opens it, goes on inside with the seconds that it had left;
    `remaining()` tells them, and not the `deadline` itself. Attempts that are under way in other threads and tasks when
    the clock changes are bounded by nothing any more until it changes back, or are over at once: do not switch then.

    Time moves when somebody sleeps and when the test says `instant.clock.advance(5)`, and is the same for all: of many
    tasks that wait at once, each moves it on for the others. For these, hand over a `FakeClock(manual=True)`. A
    function that really hangs is cut off, if it is asynchronous, when the test has moved the clock past its timeout.
    """

    def __init__(self, clock: FakeClock | None = None, seed: int = 0, *, runtime: Runtime = PROCESS) -> None:
        self.clock = FakeClock() if clock is None else clock
        self._chance = seeded("holdfast.testing.calls", seed).random
        self._world = runtime
        self._before: tuple[Clock, Chance] | None = None
        self._token: Token[Scope | Place] | None = None

    @property
    def sleeps(self) -> list[float]:
        """The seconds of every wait so far, in order."""
        return list(self.clock.sleeps)

    def __enter__(self) -> Self:
        runtime = self._world
        if self._before is not None:
            raise InvalidValue("these instant_calls are entered already: make new ones for each `with`")
        now = runtime.monotonic()
        self._before = runtime.clock, runtime.chance
        runtime.use(self.clock, self._chance)
        outer = around()
        if outer is not None and outer.expires < math.inf:
            left = outer.expires - now
            self._token = SCOPE.set(Scope(self.clock.monotonic() + left, outer.owner, outer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._before is not None
        self._world.use(*self._before)
        self._before = None
        if self._token is not None:
            SCOPE.reset(self._token)
            self._token = None
