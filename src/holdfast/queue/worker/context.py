"""The state that all parts of a worker share: its leased messages, its handlers, its backend and its sink."""

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
from holdfast.queue.message import Ack, Bury, Delivery, Release, RetryLater

if TYPE_CHECKING:
    from holdfast.queue.worker.handlers import Handlers

MIN_PAUSE = 0.05
MAX_PAUSE = 5.0
"""Seconds before another try while the backend is unavailable: from the minimum, doubling, to the maximum."""
DEFAULT_OPTIONS = HandlerOptions()

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LeasedMessage:
    """One leased message of this worker."""

    delivery: Delivery
    leased_at: float
    """Monotonic time at which the lease was requested."""
    lease_ends_at: float
    """Monotonic time at which the lease expires, as far as this worker knows."""
    current_message: CurrentMessage = field(init=False)
    call: Callable[[], Any] | None = None
    """Runs the handler."""
    options: HandlerOptions = DEFAULT_OPTIONS
    job: str | None = None
    started_at: float | None = None
    """Monotonic time at which the handler began, or None if the message still waits."""
    is_decided: bool = False
    """Whether the disposition is decided. A later result of the handler is ignored."""
    can_wait: bool = False
    """Whether the message may wait here for its handler without a time limit."""
    interrupt: "Callable[[LeasedMessage], None] | None" = None
    """Cancels the handler, or lets another thread replace it. Set when the handler begins."""

    def __post_init__(self) -> None:
        self.current_message = CurrentMessage(self.delivery)


@dataclass(slots=True, eq=False)
class FinishedMessage:
    """A message with its disposition, ready to be settled."""

    message: LeasedMessage
    disposition: Ack | RetryLater | Bury | Release
    seconds: float = 0.0
    error: str | None = None
    reason: str | None = None
    detail: str | None = None
    is_uncertain: bool = False
    """Whether an earlier try, whose answer was lost, may already have settled it."""


class LeasedMessages:
    """The leased messages of one worker, and those of them that are finished. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._has_finished = threading.Condition(self._lock)
        self._messages: set[LeasedMessage] = set()
        self._finished: deque[FinishedMessage] = deque()
        self.handled = 0
        """Messages whose handlers have ended."""
        self.busy_seconds = 0.0
        """Seconds that these handlers took."""

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Sequence[LeasedMessage]) -> None:
        with self._lock:
            self._messages.update(messages)

    def list_undecided(self) -> list[LeasedMessage]:
        """Return the messages without a disposition, waiting or being handled."""
        with self._lock:
            return [message for message in self._messages if not message.is_decided]

    def begin(self, message: LeasedMessage, now: float, interrupt: Callable[[LeasedMessage], None]) -> bool:
        """Mark a handler as begun. Return False if it must not begin: it is released, or its lease has expired."""
        with self._lock:
            if message.is_decided or now >= message.lease_ends_at:
                return False
            message.started_at = now
            message.interrupt = interrupt
            return True

    def finish(self, finished: FinishedMessage) -> bool:
        """Set the disposition of a message once. Return False if it was already set."""
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
        """Drop a message whose lease is lost. Return False if its disposition was already set."""
        with self._lock:
            if message.is_decided:
                return False
            message.is_decided = True
            self._messages.discard(message)
            self._changed.notify_all()
        return True

    def take_finished(self, max_count: int, timeout: float) -> list[FinishedMessage]:
        """Return up to `max_count` messages to settle. Waits for the first. They count until `remove_settled`."""
        with self._lock:
            if not self._finished:
                self._has_finished.wait(timeout)
            return [self._finished.popleft() for _ in range(min(max_count, len(self._finished)))]

    def put_back(self, finished: Sequence[FinishedMessage]) -> None:
        """Put messages whose settlement failed back, except those that had been settled before the failure."""
        with self._lock:
            self._finished.extendleft(one for one in reversed(finished) if one.message in self._messages)

    def remove_settled(self, finished: Sequence[FinishedMessage]) -> None:
        with self._lock:
            self._messages.difference_update([one.message for one in finished])
            self._changed.notify_all()

    def wait_for_change(self, timeout: float) -> None:
        """Block until fewer messages are leased, at most `timeout` seconds."""
        with self._lock:
            self._changed.wait(timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Block until no message is leased, at most `timeout` seconds. Return whether none is."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._messages, timeout)


class EventEmitter:
    """Passes events to a sink, if there is one. Exceptions of the sink are logged and suppressed."""

    def __init__(self, queue: str, sink: Sink[QueueEvent] | None) -> None:
        self._queue = queue
        self._sink = sink
        self._failures = 0

    @property
    def is_enabled(self) -> bool:
        """Whether there is a sink. If not, events need not be made."""
        return self._sink is not None

    def emit(self, event: QueueEvent) -> None:
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except Exception:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:  # the first, second, fourth and so on: every one may fail
                log.exception("queue %s: the sink raised an error; events dropped: %d", self._queue, self._failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The values that the parts of one worker share."""

    queue: str
    find_backend: Callable[[], Backend]
    lease: float
    """Seconds of a lease."""
    concurrency: int
    leased: LeasedMessages
    handlers: "Handlers"
    events: EventEmitter
    clock: Clock

    @property
    def backend(self) -> Backend:
        """The backend. Looked up each time, because a queue that was closed is opened again."""
        return self.find_backend()

    def loop(
        self,
        doing: str,
        step: Callable[[], float],
        *,
        action: str | None = None,
        max_pause: float = MAX_PAUSE,
        uses_backend: bool = True,
    ) -> BackgroundLoop:
        """Return the background loop of one part of the worker.

        `doing` names the operation in events, `action` describes it in logs. Every failed step of a part that uses the
        backend is reported to the sink.
        """

        def report(error: Exception, _: float) -> None:
            event = BackendErrorEvent(
                queue=self.queue, at=self.clock.wall(), operation=doing, error=type(error).__name__
            )
            self.events.emit(event)

        return BackgroundLoop(
            f"holdfast-{self.queue}-{doing}",
            step,
            action=f"{action or doing} in queue {self.queue}",
            logger=log,
            backoff=Backoff(base=min(MIN_PAUSE, max_pause), cap=max_pause, jitter=Jitter.EQUAL),
            on_failure=report if uses_backend else None,
        )
