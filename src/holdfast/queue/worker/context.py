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
from holdfast.queue.events import QueueEvent, Trouble
from holdfast.queue.job import HandlerOptions, Handling
from holdfast.queue.message import Delivery, Outcome

if TYPE_CHECKING:
    from holdfast.queue.worker.handlers import Handlers

SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
"""Seconds before another attempt while the backend cannot be reached: from the one, doubling, to the other."""
PLAIN = HandlerOptions()

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Running:
    """One message in this worker's hands."""

    delivery: Delivery
    since: float
    """Monotonic time at which it was asked for."""
    ends: float
    """Monotonic time at which its lease ends, as far as this worker knows."""
    handling: Handling = field(init=False)
    call: Callable[[], Any] | None = None
    """Handles it."""
    options: HandlerOptions = PLAIN
    job: str | None = None
    started: float | None = None
    """Monotonic time at which its handler began; None: it waits."""
    is_over: bool = False
    """Whether it was decided what becomes of it: what the handler says after that does not count."""
    is_patient: bool = False
    """Whether it may wait here for as long as it takes."""
    interrupt: "Callable[[Running], None] | None" = None
    """Ends its handler, or lets another have its place. From the moment at which it was started."""

    def __post_init__(self) -> None:
        self.handling = Handling(self.delivery)


@dataclass(slots=True, eq=False)
class Finished:
    """A message and what is to become of it."""

    running: Running
    outcome: Outcome
    seconds: float = 0.0
    error: str | None = None
    is_uncertain: bool = False
    """Whether it may have been settled before, by a try whose answer was lost."""


class Held:
    """All that one worker holds, and those of them that are finished. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._has_finished = threading.Condition(self._lock)
        self._running: set[Running] = set()
        self._finished: deque[Finished] = deque()
        self.handled = 0
        """Messages whose handlers have ended."""
        self.busy = 0.0
        """Seconds that these took."""

    def __len__(self) -> int:
        return len(self._running)

    def add(self, running: Sequence[Running]) -> None:
        with self._lock:
            self._running.update(running)

    def all(self) -> list[Running]:
        """All of which it is not decided yet what becomes of them, waiting or being handled."""
        with self._lock:
            return [running for running in self._running if not running.is_over]

    def begin(self, running: Running, now: float, interrupt: Callable[[Running], None]) -> bool:
        """Begin its handler; false: it must not, because it was handed back, or its lease has ended meanwhile."""
        with self._lock:
            if running.is_over or now >= running.ends:
                return False
            running.started = now
            running.interrupt = interrupt
            return True

    def finish(self, finished: Finished) -> bool:
        """Decide what becomes of a message; false: that was decided before."""
        running = finished.running
        with self._lock:
            if running.is_over:
                return False
            running.is_over = True
            if running.started is not None:
                self.handled += 1
                self.busy += finished.seconds
            self._finished.append(finished)
            if len(self._finished) == 1:
                self._has_finished.notify()
        return True

    def lose(self, running: Running) -> bool:
        """It is not held any more, and there is nothing to say of it; false: what becomes of it was decided before."""
        with self._lock:
            if running.is_over:
                return False
            running.is_over = True
            self._running.discard(running)
            self._changed.notify_all()
        return True

    def take_finished(self, most: int, seconds: float) -> list[Finished]:
        """Those that are to be settled, some at a time. Waits for one. They are held until `settled` is called."""
        with self._lock:
            if not self._finished:
                self._has_finished.wait(seconds)
            return [self._finished.popleft() for _ in range(min(most, len(self._finished)))]

    def put_back(self, finished: Sequence[Finished]) -> None:
        """They could not be settled now; those that are held no more were, before it failed."""
        with self._lock:
            self._finished.extendleft(one for one in reversed(finished) if one.running in self._running)

    def settled(self, finished: Sequence[Finished]) -> None:
        with self._lock:
            self._running.difference_update([one.running for one in finished])
            self._changed.notify_all()

    def wait_changed(self, seconds: float) -> None:
        """Block until fewer are held, or for so long."""
        with self._lock:
            self._changed.wait(seconds)

    def wait_empty(self, seconds: float) -> bool:
        """Block until none is held; false: there are some after so long."""
        with self._lock:
            return self._changed.wait_for(lambda: not self._running, seconds)


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
    held: Held
    handlers: "Handlers"
    events: Emitter
    clock: Clock

    @property
    def backend(self) -> Backend:
        """What keeps the messages. Asked for each time: the queue may have been closed, and is then opened again."""
        return self.find_backend()

    def loop(self, doing: str, step: Callable[[], float], *, longest_pause: float = LONGEST_PAUSE) -> BackgroundLoop:
        """Return the background loop of one part of the worker. It tells the sink of every step that failed."""
        return BackgroundLoop(
            f"holdfast-{self.queue}-{doing}",
            step,
            doing=f"{doing} in queue {self.queue}",
            logger=log,
            backoff=Backoff(base=min(SHORTEST_PAUSE, longest_pause), cap=longest_pause, jitter=Jitter.EQUAL),
            on_failure=lambda error, _: self.events.emit(
                Trouble(queue=self.queue, at=self.clock.wall(), doing=doing, error=type(error).__name__)
            ),
        )
