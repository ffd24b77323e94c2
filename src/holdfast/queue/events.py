"""What happens in a queue's workers, as frozen events for a sink."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from holdfast.queue.alarms import QueueAlarm, Reading
from holdfast.queue.backend import Leased, Snapshot
from holdfast.queue.message import Delivery


class Polled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker has asked for messages."""

    queue: str
    at: float
    wanted: int
    leased: Leased

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing: if that never happens, there are too few workers."""
        return not self.leased.deliveries


class Ending(StrEnum):
    """How an attempt to handle a message ended."""

    DONE = "done"
    RETRIED = "retried"
    """It failed, and is delivered again later."""
    POSTPONED = "postponed"
    """The handler asked for it to be delivered again later; it did not fail."""
    BURIED = "buried"
    RETURNED = "returned"
    """It was handed back: the worker stops, or its zone is out."""
    LOST = "lost"
    """The lease had ended before the handler did: somebody else has it."""


class Handled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attempt to handle a message has ended."""

    delivery: Delivery
    at: float
    seconds: float
    """How long the handler took."""
    ending: Ending
    error: str | None = None
    """The name of the exception's class, if the handler raised one."""
    job: str | None = None


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cannot reach what keeps the messages; it tries again."""

    queue: str
    at: float
    doing: str
    error: str


QueueEvent: TypeAlias = Polled | Handled | Trouble
Observed: TypeAlias = QueueEvent | Snapshot | Reading | QueueAlarm
"""What sinks for metrics take: events of workers, and what a `Watcher` sees and concludes."""
