"""What a message takes along from where it is sent: the trace, and until when somebody waits for it."""

from collections.abc import Sequence

import msgspec

from holdfast._clock import Clock
from holdfast.calls.context import around
from holdfast.calls.runtime import PROCESS
from holdfast.calls.scope import Scope, trace_of
from holdfast.queue.message import LONGEST, Outgoing


class HandlerTime(Scope, eq=False):
    """The bounds of a handler: they hold for the calls that it makes, and not for the messages that it sends."""


def stamped(messages: Sequence[Outgoing], clock: Clock) -> Sequence[Outgoing]:
    """The messages with the trace and the deadline that hold here, where they have none of their own."""
    scope = around()
    if scope is None:
        return messages
    trace, seconds = trace_of(scope), _seconds_left(scope)
    if trace is None and seconds is None:
        return messages
    deadline = None if seconds is None else clock.wall() + seconds
    return [
        msgspec.structs.replace(
            message,
            trace=message.trace or trace,
            deadline=deadline if message.deadline is None else message.deadline,
        )
        for message in messages
    ]


def _seconds_left(scope: Scope) -> float | None:
    while isinstance(scope, HandlerTime):
        scope = scope.enclosing
    seconds = scope.expires - PROCESS.monotonic()
    return None if seconds > LONGEST else max(0.0, seconds)
