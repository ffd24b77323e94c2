"""The current scope: `with deadline(2.0)` bounds all calls inside it. Tasks inherit the scope with their context."""

import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from holdfast._errors import DeadlineExceeded, InvalidValue
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import NO_THREAD, OverrideScope, Scope

if TYPE_CHECKING:
    from holdfast.calls.attempt import Attempt
    from holdfast.calls.state import DependencyState

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class ThreadScopes(msgspec.Struct, eq=False):
    """The nested scopes of one thread's synchronous calls.

    Setting and resetting a ContextVar takes a third of the time of a successful call. Synchronous calls therefore
    store their attempt in `innermost` and restore the previous value: nothing else runs in their thread until they
    return. A copied context shares this object, which is safe: a task of the same thread runs before, after or within
    such a call. Another thread finds `outer`, so it sees the deadline around the call but not the attempt;
    `propagate_context` passes both on. Greenlets need a `threading.get_ident` that tells them apart, as gevent's
    monkey patching provides.
    """

    thread: int
    outer: Scope | None
    """The scope that other threads see."""
    innermost: Scope | None
    """The scope that `thread` sees."""


NO_SCOPES = ThreadScopes(NO_THREAD, None, None)
"""The value in every context that has made no call yet."""
SCOPE: ContextVar[Scope | ThreadScopes] = ContextVar("holdfast.calls.scope", default=NO_SCOPES)
"""Read by `current_scope`. Set and reset around code that may be suspended: deadlines, tasks, requests."""


def current_scope() -> Scope | None:
    """Return the innermost scope of the current context, or None without any bounds."""
    found = SCOPE.get()
    if isinstance(found, Scope):
        return found
    return found.innermost if found.thread == get_ident() else found.outer


def new_thread_scopes() -> ThreadScopes:
    """Set a new ThreadScopes for the synchronous calls of this context and thread, and return it. It is not reset."""
    scope = current_scope()
    scopes = ThreadScopes(get_ident(), scope, scope)
    SCOPE.set(scopes)
    return scopes


def reset_scope(token: Token[Scope | ThreadScopes]) -> None:
    """Reset SCOPE to the value before `token`. Ignore a token of another context."""
    with suppress(ValueError):
        SCOPE.reset(token)


def current_task_scope() -> Scope | None:
    """Return the current scope for a call that may be suspended; drop a ThreadScopes that holds no scope."""
    scope = current_scope()
    if scope is None:
        SCOPE.set(NO_SCOPES)  # the fastest value to recognise, set and reset
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
    """Return the attempt in progress, for functions that a dependency calls. Raise InvalidValue outside of one."""
    from holdfast.calls.attempt import Attempt

    scope = current_scope()
    while scope is not None:
        if isinstance(scope, Attempt):
            return scope
        scope = scope.enclosing
    raise InvalidValue("no attempt is in progress: call this from a function that a Dependency calls")


class deadline:  # noqa: N801 - reads as a word: with deadline(2.0)
    """A deadline `seconds` from now for the calls inside the block. None sets no bound; nested, the earliest counts.

    It interrupts no code itself. Calls through a Dependency are bounded by it, and refused after it. Setting the wall
    clock has no effect. Make a new one for each `with`. It applies to the context in which it is entered: a generator
    around other code, such as a fixture or a `yield` dependency of a web framework, may have another one.
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
        """Return the seconds left: 0 after the deadline, infinity without one."""
        return max(0.0, self._expires - self._runtime.monotonic())

    def check(self) -> None:
        """Raise DeadlineExceeded after the deadline. For loops and computations that make no calls."""
        if self._expires <= self._runtime.monotonic():
            raise DeadlineExceeded("the deadline has passed: the caller no longer waits for the result")


class override:  # noqa: N801 - as the others, and not public: `Dependency.override` makes it
    """A block in which the calls of a dependency have other options. May be entered again after it was left."""

    __slots__ = ("_options", "_state", "_token")

    def __init__(self, state: "DependencyState", **options: Any) -> None:
        self._state, self._options = state, options
        state.override(None, **options)  # raises for an invalid option here, not in `__enter__`
        self._token: Token[Scope | ThreadScopes] | None = None

    def __enter__(self) -> None:
        if self._token is not None:
            raise InvalidValue("this override is entered already: make a new one for a block inside it")
        outer = current_scope()
        options = self._state.override(outer, **self._options)
        expires, owner = (math.inf, None) if outer is None else (outer.expires, outer.retry_owner)
        self._token = SCOPE.set(OverrideScope(expires, owner, outer, self._state, options))

    def __exit__(self, *exception: object) -> None:
        assert self._token is not None
        reset_scope(self._token)
        self._token = None


class detached:  # noqa: N801 - reads as a word: with detached()
    """A block without the deadline and retry owner around it, for work that must outlive the current request."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = SCOPE.set(NO_SCOPES)

    def __exit__(self, *exception: object) -> None:
        reset_scope(self._token)


def remaining(*, runtime: Runtime = PROCESS) -> float | None:
    """Return the seconds until the current deadline: 0 after it, None without one."""
    scope = current_scope()
    if scope is None or scope.expires == math.inf:
        return None
    return max(0.0, scope.expires - runtime.monotonic())
