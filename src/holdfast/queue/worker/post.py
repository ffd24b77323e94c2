"""What all parts of a worker share."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast._clock import Clock
from holdfast._types import Sink
from holdfast.queue.backend import Backend
from holdfast.queue.events import QueueEvent
from holdfast.queue.worker.handlers import Handlers
from holdfast.queue.worker.running import Held

log = logging.getLogger(__name__)


class Emitter:
    """Hands events to a sink, if there is one; one that raises harms nobody."""

    def __init__(self, queue: str, sink: Sink[QueueEvent] | None) -> None:
        self._queue = queue
        self._sink = sink
        self._failures = 0

    @property
    def is_on(self) -> bool:
        """Whether anybody listens: else events need not be made."""
        return self._sink is not None

    def emit(self, event: QueueEvent) -> None:
        """Hand over one event."""
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except Exception:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:  # the first, the second, the fourth: it may be every one
                log.exception("queue %s: its sink failed, and %d events are lost", self._queue, self._failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Where a worker works, and with what."""

    queue: str
    find_backend: Callable[[], Backend]
    lease: float
    """Seconds for which messages are taken at a time."""
    concurrency: int
    held: Held
    handlers: Handlers
    events: Emitter
    clock: Clock

    @property
    def backend(self) -> Backend:
        """What keeps the messages. Asked for each time: the queue may have been closed, and is then opened again."""
        return self.find_backend()
