"""Events of a queue's producers and workers, as frozen values for a sink."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from holdfast.queue.alarms import QueueAlarm, QueueReading
from holdfast.queue.backend import LeaseResult, QueueSnapshot
from holdfast.queue.message import Delivery, OutgoingMessage, RefusedMessage, SentMessage


class SendEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that a producer sent to one queue together, and the result of each."""

    queue: str
    at: float
    messages: Sequence[OutgoingMessage]
    results: Sequence[SentMessage | RefusedMessage]


class PollEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of a worker for messages, with its result."""

    queue: str
    at: float
    requested: int
    result: LeaseResult

    @property
    def is_empty(self) -> bool:
        """Whether no message was ready. If this never happens, there are too few workers."""
        return not self.result.deliveries


class AttemptResult(StrEnum):
    """The result of an attempt to handle a message."""

    ACKED = "acked"
    RETRIED = "retried"
    """The attempt failed, and the message is delivered again later."""
    POSTPONED = "postponed"
    """The handler postponed the message; it did not fail."""
    BURIED = "buried"
    RELEASED = "released"
    """The worker released the message unhandled, because it stops or its zone is out."""
    LEASE_LOST = "lease_lost"
    """The lease expired before the handler ended: another worker process may have the message."""


class AttemptEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of an attempt to handle a message."""

    delivery: Delivery
    at: float
    seconds: float
    """Seconds that the handler took."""
    result: AttemptResult
    error: str | None = None
    """The class name of the handler's exception, or None."""
    reason: str | None = None
    """The class name and the text of the handler's exception, as with a dead letter."""
    detail: str | None = None
    """Its traceback."""
    job: str | None = None


class BackendErrorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A failed operation of a worker or a watcher, usually because the backend is unavailable. It is tried again."""

    queue: str
    at: float
    operation: str
    error: str


QueueEvent: TypeAlias = PollEvent | AttemptEvent | BackendErrorEvent
"""All events of a worker, for its sink."""
QueueObservation: TypeAlias = SendEvent | QueueEvent | QueueSnapshot | QueueReading | QueueAlarm
"""What sinks for metrics receive: events of producers and workers, observations and alarms of a `QueueWatcher`."""
