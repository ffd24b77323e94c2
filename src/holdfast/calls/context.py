"""Which bounds hold here: `with deadline(2.0)` bounds all calls inside it. A scope follows the context into tasks."""

import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec

from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import Scope

if TYPE_CHECKING:
    from holdfast.calls.attempt import Attempt

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class ThreadScopes(msgspec.Struct, eq=False):
    """Where synchronous calls of one thread keep their scopes, one within the other.

    Setting and resetting a ContextVar takes a third of the time of a call that succeeds. Synchronous calls leave their
    attempt in a place of the context instead, and put back what was there: nothing else runs in their thread until they
    return. A copied context takes the place along: a task of the same thread runs before, after or within such a call.
    Another thread sees that the place is not its own, and finds the deadline around the call and not the attempt;
    `propagate_context` takes both along. Greenlets must be known to `threading.get_ident`, as those of a patched
    gevent are.
    """

    thread: int
    outer: Scope | None
    """The scope around the place, for other threads."""
    innermost: Scope | None
    """The innermost scope in its own thread."""


NO_SCOPES = ThreadScopes(-1, None, None)
"""The place of every context in which nothing was called yet."""
SCOPE: ContextVar[Scope | ThreadScopes] = ContextVar("holdfast.calls.scope", default=NO_SCOPES)
"""Asked by `current_scope`; set and reset for what may be suspended: deadlines, tasks, requests."""


def current_scope() -> Scope | None:
    """The innermost scope here; None: no bounds at all."""
    found = SCOPE.get()
    if isinstance(found, Scope):
        return found
    return found.innermost if found.thread == get_ident() else found.outer


def new_thread_scopes() -> ThreadScopes:
    """A new place for the synchronous calls of this context and thread; it stays."""
    scope = current_scope()
    scopes = ThreadScopes(get_ident(), scope, scope)
    SCOPE.set(scopes)
    return scopes


def reset_scope(token: Token[Scope | ThreadScopes]) -> None:
    """Set back what was found before. Nothing to do in another context than the one that it was set in."""
    with suppress(ValueError):
        SCOPE.reset(token)


def current_task_scope() -> Scope | None:
    """Return the current scope for a call that may be suspended, without a ThreadScopes of its own."""
    scope = current_scope()
    if scope is None:
        SCOPE.set(NO_SCOPES)  # the quickest to find, to set and to set back
    return scope


def propagate_context(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return `function` with the current deadline and retry owner: `executor.submit(propagate_context(f))`."""
    scope = current_scope()

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        token = SCOPE.set(NO_SCOPES if scope is None else scope)
        try:
            return function(*args, **kwargs)
        finally:
            SCOPE.reset(token)

    return call


def current_attempt() -> "Attempt":
    """Return the attempt under way, for functions that a dependency calls. Raise InvalidValue outside of one."""
    from holdfast.calls.attempt import Attempt

    scope = current_scope()
    while scope is not None:
        if isinstance(scope, Attempt):
            return scope
        scope = scope.enclosing
    raise InvalidValue("no attempt is under way here: call this from a function that a Dependency calls")


class deadline:  # noqa: N801 - reads as a word: with deadline(2.0)
    """Bounds the calls inside it to `seconds` from now; of nested ones the earliest counts. None bounds nothing.

    It interrupts no code by itself: calls through a Dependency end in time, and are refused when it has passed. A wall
    clock that is set changes nothing. Not reusable. It holds for the context that it is entered in, which is another
    one in a generator around other code, such as a fixture or a `yield` dependency of a web framework.
    """

    __slots__ = ("_expires", "_runtime", "_seconds", "_token")

    def __init__(self, seconds: float | None, *, runtime: Runtime = PROCESS) -> None:
        given: object = seconds
        if given is not None and not (isinstance(given, int | float) and given >= 0):
            raise InvalidValue(f"deadline of {given!r} seconds: expected 0 or more, or None for no bound")
        self._seconds = math.inf if seconds is None else seconds
        self._runtime = runtime
        self._expires = math.inf
        self._token: Token[Scope | ThreadScopes] | None = None

    def __enter__(self) -> "deadline":
        if self._token is not None:
            raise InvalidValue("this deadline is entered already: make a new one for each `with`")
        outer = current_scope()
        expires = self._runtime.monotonic() + self._seconds
        owner = None
        if outer is not None:
            expires, owner = min(expires, outer.expires), outer.retry_owner
        self._expires = expires
        self._token = SCOPE.set(Scope(expires, owner, outer))
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._token is not None
        reset_scope(self._token)
        self._token = None

    def remaining(self) -> float:
        """Seconds that are left, 0 when it has passed, infinity without a bound."""
        return max(0.0, self._expires - self._runtime.monotonic())

    def check(self) -> None:
        """Raise DeadlineExceeded if it has passed: for loops and computations that no call interrupts."""
        if self._expires <= self._runtime.monotonic():
            raise DeadlineExceeded("the deadline has passed: what is left of this work would be for nobody")


class detached:  # noqa: N801 - reads as a word: with detached()
    """Runs work without the deadline and the retry owner around it, because it must outlive the request it began in."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = SCOPE.set(NO_SCOPES)

    def __exit__(self, *exception: object) -> None:
        reset_scope(self._token)


def remaining(*, runtime: Runtime = PROCESS) -> float | None:
    """Seconds until the deadline around this code, 0 when it has passed; None if there is none."""
    scope = current_scope()
    if scope is None or scope.expires == math.inf:
        return None
    return max(0.0, scope.expires - runtime.monotonic())
