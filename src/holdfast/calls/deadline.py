"""Until when: `with deadline(2.0)` bounds everything inside it, every attempt and every wait between attempts."""

import math
from contextvars import Token
from types import TracebackType

from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast.calls.ambient import NOWHERE, SCOPE, Place, around, leave
from holdfast.calls.scope import Scope
from holdfast.calls.world import PROCESS, World


class deadline:  # noqa: N801 - reads as a word: with deadline(2.0)
    """Bounds the calls inside it to `seconds` from now; of nested ones the earliest counts. None bounds nothing.

    It interrupts no code by itself: calls through a Dependency end in time, and are refused when it has passed. It
    counts monotonic time, so a wall clock that is set changes nothing. Not reusable, but there may be any number of
    them, in any thread or task. It holds for the context that it is entered in: not in a generator around somebody
    else's code, such as a fixture or a `yield` dependency of a web framework, which may run in a context of its own.
    """

    __slots__ = ("_expires", "_seconds", "_token", "_world")

    def __init__(self, seconds: float | None, *, world: World = PROCESS) -> None:
        given: object = seconds
        if given is not None and not (isinstance(given, int | float) and given >= 0):
            raise InvalidValue(f"deadline of {given!r} seconds: expected 0 or more, or None for no bound")
        self._seconds = math.inf if seconds is None else seconds
        self._world = world
        self._expires = math.inf
        self._token: Token[Scope | Place] | None = None

    def __enter__(self) -> "deadline":
        if self._token is not None:
            raise InvalidValue("this deadline is entered already: make a new one for each `with`")
        outer = around()
        expires = self._world.monotonic() + self._seconds
        owner = None
        if outer is not None:
            expires, owner = min(expires, outer.expires), outer.owner
        self._expires = expires
        self._token = SCOPE.set(Scope(expires, owner, outer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        leave(self._token)
        self._token = None

    def remaining(self) -> float:
        """Seconds that are left, 0 when it has passed, infinity without a bound."""
        return max(0.0, self._expires - self._world.monotonic())

    def check(self) -> None:
        """Raise DeadlineExceeded if it has passed: for loops and computations that no call interrupts."""
        if self._expires <= self._world.monotonic():
            raise DeadlineExceeded("the deadline has passed: what is left of this work would be for nobody")


class detached:  # noqa: N801 - reads as a word: with detached()
    """Runs what is inside without the deadline and the retry owner around it.

    For work that must outlive the request it began in: a task in the background, cleaning up after a timeout.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = SCOPE.set(NOWHERE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._token)


def remaining(*, world: World = PROCESS) -> float | None:
    """Seconds until the deadline around this code, 0 when it has passed; None if there is none."""
    scope = around()
    if scope is None or scope.expires == math.inf:
        return None
    return max(0.0, scope.expires - world.monotonic())
