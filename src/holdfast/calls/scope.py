"""What a call finds around it: until when, and who retries. Pure. `ambient.py` is where it is found."""

from typing import Any, ClassVar

import msgspec


class Scope(msgspec.Struct, eq=False):
    """The innermost bounds that hold here. A structure of msgspec: one is made for every attempt, in 60 ns."""

    thread: ClassVar[int] = -1
    """No thread's; so that it can be told from a place by the same look as a place of another thread."""
    expires: float
    """Monotonic time at which the work must be over; infinity: never."""
    owner: str | None = None
    """The layer above that retries already."""
    enclosing: Any = None
    """The scope that this one was opened in."""


class Incoming(Scope, eq=False):
    """The bounds that came in from another process with its request."""

    trace: str | None = None
    """The W3C `traceparent`."""


def trace_of(scope: Scope | None) -> str | None:
    """The W3C `traceparent` that came in, for what goes out."""
    while scope is not None:
        if isinstance(scope, Incoming):
            return scope.trace
        scope = scope.enclosing
    return None
