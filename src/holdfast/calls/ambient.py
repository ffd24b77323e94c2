"""Where the scope around a call is found. It travels with the context, also into tasks."""

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec

from holdfast._errors import InvalidValue
from holdfast.calls.scope import Scope

if TYPE_CHECKING:
    from holdfast.calls.attempt import Attempt

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Place(msgspec.Struct, eq=False):
    """Where synchronous calls of one thread keep their scopes, one within the other.

    Setting a ContextVar and setting it back takes a third of the time of a call that succeeds. Synchronous calls need
    not: nothing else runs in their thread until they return, so they can leave their attempt in a place of the
    context, and put back what was there. A context that is copied takes the place along: a task of the same thread
    runs before or after such a call, or within it. Another thread sees that the place is not its own, and finds the
    deadline around the call and not the attempt; `carried` takes the attempt along as well. Greenlets that switch in
    the middle of a synchronous call must be known to `threading.get_ident`, as those of a patched gevent are.
    """

    thread: int
    base: Scope | None
    """The scope around the place, for other threads."""
    inner: Scope | None
    """The innermost scope in its own thread."""


NOWHERE = Place(-1, None, None)
"""The place of every context in which nothing was called yet."""
SCOPE: ContextVar[Scope | Place] = ContextVar("holdfast.calls.scope", default=NOWHERE)
"""Asked by `around`; set and reset for what may be suspended: deadlines, tasks, requests."""


def around() -> Scope | None:
    """The innermost scope here; None: no bounds at all."""
    found = SCOPE.get()
    if isinstance(found, Scope):
        return found
    return found.inner if found.thread == get_ident() else found.base


def place_here() -> Place:
    """A new place for the synchronous calls of this context and thread; it stays."""
    scope = around()
    place = Place(get_ident(), scope, scope)
    SCOPE.set(place)
    return place


def leave(token: Token[Scope | Place]) -> None:
    """Set back what was found before. Nothing to do in another context than the one that it was set in."""
    with suppress(ValueError):
        SCOPE.reset(token)


def around_task() -> Scope | None:
    """The same as `around`, for calls that may be suspended: they have no use for a place, and give up an empty one."""
    scope = around()
    if scope is None:
        SCOPE.set(NOWHERE)  # the quickest to find, to set and to set back
    return scope


def carried(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function with the deadline and the retry owner that hold here, for another thread to call.

    Pools of threads begin with nothing: `executor.submit(carried(work), argument)`.
    """
    scope = around()

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        token = SCOPE.set(NOWHERE if scope is None else scope)
        try:
            return function(*args, **kwargs)
        finally:
            SCOPE.reset(token)

    return call


def current_attempt() -> "Attempt":
    """The attempt that is under way: how long it may take, its number, its idempotency key, its endpoint.

    For functions that a dependency calls. Raises InvalidValue outside of one.
    """
    from holdfast.calls.attempt import Attempt

    scope = around()
    while scope is not None:
        if isinstance(scope, Attempt):
            return scope
        scope = scope.enclosing
    raise InvalidValue("no attempt is under way here: call this from a function that a Dependency calls")
