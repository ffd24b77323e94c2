"""What happens in a queue's workers, as frozen events for a sink."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from holdfast.queue.alarms import QueueAlarm, QueueReading
from holdfast.queue.backend import LeaseResult, QueueSnapshot
from holdfast.queue.message import Delivery


class PollEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker has asked for messages."""

    queue: str
    at: float
    requested: int
    result: LeaseResult

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing: if that never happens, there are too few workers."""
        return not self.result.deliveries


class AttemptResult(StrEnum):
    """How an attempt to handle a message ended."""

    ACKED = "acked"
    RETRIED = "retried"
    """It failed, and is delivered again later."""
    POSTPONED = "postponed"
    """The handler asked for it to be delivered again later; it did not fail."""
    BURIED = "buried"
    RELEASED = "released"
    """It was handed back: the worker stops, or its zone is out."""
    LOST = "lost"
    """The lease had ended before the handler did: somebody else has it."""


class AttemptEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attempt to handle a message has ended."""

    delivery: Delivery
    at: float
    seconds: float
    """How long the handler took."""
    result: AttemptResult
    error: str | None = None
    """The name of the exception's class, if the handler raised one."""
    job: str | None = None


class BackendErrorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cannot reach what keeps the messages; it tries again."""

    queue: str
    at: float
    operation: str
    error: str


QueueEvent: TypeAlias = PollEvent | AttemptEvent | BackendErrorEvent
QueueObservation: TypeAlias = QueueEvent | QueueSnapshot | QueueReading | QueueAlarm
"""What sinks for metrics take: events of workers, and what a `Watcher` sees and concludes."""
