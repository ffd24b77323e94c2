"""What all parts of a worker share: the messages that it holds, its handlers, its backend, and its sink."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast._background import BackgroundLoop
from holdfast._backoff import Backoff, Jitter
from holdfast._clock import Clock
from holdfast._types import Sink
from holdfast.queue.backend import Backend
from holdfast.queue.events import BackendErrorEvent, QueueEvent
from holdfast.queue.job import CurrentMessage, HandlerOptions
from holdfast.queue.message import Delivery, Disposition

if TYPE_CHECKING:
    from holdfast.queue.worker.handlers import Handlers

MIN_PAUSE = 0.05
MAX_PAUSE = 5.0
"""Seconds before another attempt while the backend cannot be reached: from the one, doubling, to the other."""
DEFAULT_OPTIONS = HandlerOptions()

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LeasedMessage:
    """One message in this worker's hands."""

    delivery: Delivery
    leased_at: float
    """Monotonic time at which it was asked for."""
    lease_ends_at: float
    """Monotonic time at which its lease ends, as far as this worker knows."""
    current_message: CurrentMessage = field(init=False)
    call: Callable[[], Any] | None = None
    """Handles it."""
    options: HandlerOptions = DEFAULT_OPTIONS
    job: str | None = None
    started_at: float | None = None
    """Monotonic time at which its handler began; None: it waits."""
    is_decided: bool = False
    """Whether it was decided what becomes of it: what the handler says after that does not count."""
    can_wait: bool = False
    """Whether it may wait here for as long as it takes."""
    interrupt: "Callable[[LeasedMessage], None] | None" = None
    """Ends its handler, or lets another have its place. From the moment at which it was started."""

    def __post_init__(self) -> None:
        self.current_message = CurrentMessage(self.delivery)


@dataclass(slots=True, eq=False)
class FinishedMessage:
    """A message and what is to become of it."""

    message: LeasedMessage
    disposition: Disposition
    seconds: float = 0.0
    error: str | None = None
    is_uncertain: bool = False
    """Whether it may have been settled before, by a try whose answer was lost."""


class LeasedMessages:
    """All that one worker holds, and those of them that are finished. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._has_finished = threading.Condition(self._lock)
        self._messages: set[LeasedMessage] = set()
        self._finished: deque[FinishedMessage] = deque()
        self.handled = 0
        """Messages whose handlers have ended."""
        self.busy_seconds = 0.0
        """Seconds that these took."""

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Sequence[LeasedMessage]) -> None:
        with self._lock:
            self._messages.update(messages)

    def list_undecided(self) -> list[LeasedMessage]:
        """All of which it is not decided yet what becomes of them, waiting or being handled."""
        with self._lock:
            return [message for message in self._messages if not message.is_decided]

    def begin(self, message: LeasedMessage, now: float, interrupt: Callable[[LeasedMessage], None]) -> bool:
        """Begin its handler; false: it must not, because it was handed back, or its lease has ended meanwhile."""
        with self._lock:
            if message.is_decided or now >= message.lease_ends_at:
                return False
            message.started_at = now
            message.interrupt = interrupt
            return True

    def finish(self, finished: FinishedMessage) -> bool:
        """Decide what becomes of a message; false: that was decided before."""
        message = finished.message
        with self._lock:
            if message.is_decided:
                return False
            message.is_decided = True
            if message.started_at is not None:
                self.handled += 1
                self.busy_seconds += finished.seconds
            self._finished.append(finished)
            if len(self._finished) == 1:
                self._has_finished.notify()
        return True

    def forget(self, message: LeasedMessage) -> bool:
        """It is not held any more, and there is nothing to say of it; false: what becomes of it was decided before."""
        with self._lock:
            if message.is_decided:
                return False
            message.is_decided = True
            self._messages.discard(message)
            self._changed.notify_all()
        return True

    def take_finished(self, max_count: int, timeout: float) -> list[FinishedMessage]:
        """Those that are to be settled, some at a time. Waits for one. They are held until `remove_settled`."""
        with self._lock:
            if not self._finished:
                self._has_finished.wait(timeout)
            return [self._finished.popleft() for _ in range(min(max_count, len(self._finished)))]

    def put_back(self, finished: Sequence[FinishedMessage]) -> None:
        """They could not be settled now; those that are held no more were, before it failed."""
        with self._lock:
            self._finished.extendleft(one for one in reversed(finished) if one.message in self._messages)

    def remove_settled(self, finished: Sequence[FinishedMessage]) -> None:
        with self._lock:
            self._messages.difference_update([one.message for one in finished])
            self._changed.notify_all()

    def wait_for_change(self, timeout: float) -> None:
        """Block until fewer are held, or for so long."""
        with self._lock:
            self._changed.wait(timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Block until none is held; false: there are some after so long."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._messages, timeout)


class EventEmitter:
    """Hands events to a sink, if there is one; one that raises harms nobody."""

    def __init__(self, queue: str, sink: Sink[QueueEvent] | None) -> None:
        self._queue = queue
        self._sink = sink
        self._failures = 0

    @property
    def is_enabled(self) -> bool:
        """Whether anybody listens: else events need not be made."""
        return self._sink is not None

    def emit(self, event: QueueEvent) -> None:
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except Exception:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:  # the first, the second, the fourth: it may be every one
                log.exception("queue %s: its sink failed, and %d events are lost", self._queue, self._failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What the parts of one worker share."""

    queue: str
    find_backend: Callable[[], Backend]
    lease: float
    """Seconds for which messages are taken at a time."""
    concurrency: int
    leased: LeasedMessages
    handlers: "Handlers"
    events: EventEmitter
    clock: Clock

    @property
    def backend(self) -> Backend:
        """What keeps the messages. Asked for each time: the queue may have been closed, and is then opened again."""
        return self.find_backend()

    def loop(self, doing: str, step: Callable[[], float], *, max_pause: float = MAX_PAUSE) -> BackgroundLoop:
        """Return the background loop of one part of the worker. It tells the sink of every step that failed."""
        return BackgroundLoop(
            f"holdfast-{self.queue}-{doing}",
            step,
            action=f"{doing} in queue {self.queue}",
            logger=log,
            backoff=Backoff(base=min(MIN_PAUSE, max_pause), cap=max_pause, jitter=Jitter.EQUAL),
            on_failure=lambda error, _: self.events.emit(
                BackendErrorEvent(queue=self.queue, at=self.clock.wall(), operation=doing, error=type(error).__name__)
            ),
        )
