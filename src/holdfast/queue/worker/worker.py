"""A worker on one queue. Start reading at `Worker`, then at `WorkerRun`, which joins the parts of one run."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast._types import Sink, Zone, ZoneView
from holdfast.queue.events import QueueEvent
from holdfast.queue.queue import Queue
from holdfast.queue.worker.context import EventEmitter, LeasedMessages, WorkerContext
from holdfast.queue.worker.executors import HandlerExecutors
from holdfast.queue.worker.fetcher import Fetcher
from holdfast.queue.worker.handlers import Handlers
from holdfast.queue.worker.leases import Heartbeat, Settler, Sweeper, Watchdog

if TYPE_CHECKING:
    import asyncio

STOP_CHECK_SECONDS = 0.1
"""Seconds between looks whether to stop. A look, because a signal handler may set no event and take no lock."""
SETTLE_SECONDS = 5.0
"""How long a worker that stops tries to say what became of its last messages."""
RETURN_SECONDS = 1.0
"""How long it waits for handlers that were told to stop."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How much a worker does at a time, and when it stops."""

    concurrency: int = 8
    """Messages that are handled at a time: threads for synchronous handlers, as many tasks for the others."""
    grace: float = 20.0
    """Seconds that handlers have to end when the worker stops; orchestrators kill after 30."""
    zone: Zone | None = None
    """Where the worker runs. While this zone is out, it takes no work and hands back what it holds."""
    workload: str | None = None
    """As what it is evacuated; None: only with the whole zone."""

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 10_000:
            raise InvalidValue(f"a worker's concurrency of {self.concurrency}: expected 1 to 10000")
        if not 0 <= self.grace <= threading.TIMEOUT_MAX:
            raise InvalidValue(f"a worker's grace of {self.grace} s: expected 0 or more")


class Worker:
    """Handles the messages of one queue, in this process, until it is stopped.

    `start` and `stop` for a program that does something else as well, `run` for one that does not, `run_async` to have
    asynchronous handlers run in the event loop of the caller. Every queue has a worker, and so threads, of its own: one
    whose handlers hang takes nothing from the others. Thread-safe. In a forked child it is not started: what the parent
    holds stays with the parent.
    """

    def __init__(
        self,
        queue: Queue,
        options: WorkerOptions = WorkerOptions(),  # noqa: B008 - frozen
        *,
        zones: ZoneView | None = None,
        sink: Sink[QueueEvent] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.queue = queue
        self.options = options
        self._zones = zones
        self._sink = sink
        self._clock = clock or SystemClock()
        self._changing = threading.Lock()
        self._current_run: WorkerRun | None = None
        self._inherited: list[WorkerRun] = []
        self._is_stop_requested = False
        register_after_fork(self)

    @property
    def in_flight(self) -> int:
        run = self._current_run
        return 0 if run is None else len(run.context.leased)

    @property
    def is_idle(self) -> bool:
        """Whether it holds no message, and none is on its way to it."""
        run = self._current_run
        return run is None or not (run.fetcher.is_leasing or len(run.context.leased))

    @property
    def is_out(self) -> bool:
        zone = self.options.zone
        return self._zones is not None and zone is not None and zone in self._zones.out(self.options.workload)

    @property
    def is_stuck(self) -> bool:
        """Whether as many handlers as it may run were given up and have not returned: it takes nothing until some do.

        A process in which that lasts should end, and be started anew: a thread that hangs cannot be ended otherwise.
        """
        run = self._current_run
        return run is not None and run.executors.is_stuck

    def start(self, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        """Begin to take messages, and return. May be repeated, also after `stop`. InvalidValue: there is no handler.

        With `loop`, asynchronous handlers run in that one, instead of in a thread.
        """
        with self._changing:
            if self._current_run is None:
                self._current_run = self.create_run(
                    loop
                )  # known before: whoever is interrupted in the middle of it can stop it
                try:
                    self._current_run.start()
                except Exception:  # such as one thread too many
                    run, self._current_run = self._current_run, None
                    run.stop()
                    raise

    def stop(self) -> None:
        """Take no more, let handlers end, hand back what is left. May be repeated. In a handler, use `request_stop`."""
        with self._changing:
            if self._current_run is not None:
                try:
                    self._current_run.stop()
                finally:
                    self._current_run = None

    def request_stop(self) -> None:
        """Let `run` return soon, also one that has not begun. Does not block: signal handlers may call it."""
        self._is_stop_requested = True

    def run(self) -> None:
        """Handle messages until `request_stop` is called, or the program is interrupted or asked to end.

        In the main thread, SIGTERM asks it to end, unless the program has a handler of its own for that.
        """
        with self._ended_by_signal():
            try:
                self.start()
                while self._goes_on():
                    time.sleep(STOP_CHECK_SECONDS)
            finally:
                self.stop()
                self._is_stop_requested = False

    async def run_async(self) -> None:
        """The same, with asynchronous handlers in this event loop. Cancelling it stops the worker, gracefully."""
        import asyncio

        try:
            await asyncio.to_thread(self.start, asyncio.get_running_loop())
            while self._goes_on():  # noqa: ASYNC110 - who asks may be a signal handler
                await asyncio.sleep(STOP_CHECK_SECONDS)
        finally:
            await asyncio.shield(asyncio.to_thread(self.stop))
            self._is_stop_requested = False

    def create_run(self, loop: "asyncio.AbstractEventLoop | None" = None) -> "WorkerRun":
        """The parts of the worker, at rest."""
        policy, able = self.queue.policy, self.queue.backend.capabilities
        context = WorkerContext(
            queue=self.queue.name,
            find_backend=lambda: self.queue.backend,
            # A shorter one is no harm: leases are extended while handlers are at work.
            lease=policy.lease if able.max_lease is None else min(policy.lease, able.max_lease),
            concurrency=self.options.concurrency,
            leased=LeasedMessages(),
            handlers=Handlers(self.queue, policy.max_attempts, self._clock, able.max_delay),
            events=EventEmitter(self.queue.name, self._sink),
            clock=self._clock,
        )
        return WorkerRun(context, grace=self.options.grace, is_out=lambda: self.is_out, loop=loop)

    def reset_after_fork(self) -> None:
        """In a forked child: whoever held the lock is not there, nor is any thread that was at work."""
        self._changing = threading.Lock()
        if self._current_run is not None:
            self._inherited.append(self._current_run)  # the parent's: its event loop must not be closed here
            self._current_run = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _goes_on(self) -> bool:
        return self._current_run is not None and not self._is_stop_requested

    @contextmanager
    def _ended_by_signal(self) -> Iterator[None]:
        is_ours = (
            threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if is_ours:
            signal.signal(signal.SIGTERM, lambda *_: self.request_stop())
        try:
            yield
        finally:
            if is_ours:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


class WorkerRun:
    """One run of a worker, from its start to its end. A test can drive its parts by hand, before `start`."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        grace: float,
        is_out: Callable[[], bool] = lambda: False,
        loop: "asyncio.AbstractEventLoop | None" = None,
    ) -> None:
        self.context = context
        self._grace = grace
        self.executors = HandlerExecutors(context, loop)
        self.settler = Settler(context)
        self.watchdog = Watchdog(context, self.executors, is_out, grace)
        self.heartbeat = Heartbeat(context, self.watchdog)
        self.fetcher = Fetcher(context, self.executors, is_out)
        self.sweeper = Sweeper(context)
        parts = (self.settler, self.watchdog, self.heartbeat, self.fetcher, self.sweeper)
        self._loops = [part.loop for part in parts]

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Take no more, let handlers end, hand back what is left: what takes messages ends first, what settles last."""
        try:
            self._finish()
        finally:
            for loop in self._loops:
                loop.stop()
            for loop in self._loops:
                loop.stop(RETURN_SECONDS)

    def _finish(self) -> None:
        held, clock = self.context.leased, self.context.clock
        until = clock.monotonic() + self._grace
        self.fetcher.is_stopping = True
        # Those that have not begun, at once; those that it is just being given, when it has them.
        self.watchdog.release("the worker stops", include_started=False)
        self.fetcher.loop.stop(SETTLE_SECONDS)
        self.watchdog.release("the worker stops", include_started=False)
        if not held.wait_until_empty(max(0.0, until - clock.monotonic())):
            self.watchdog.release("the worker stops, and there was no more time", include_started=True)
        self.executors.stop()
        if not self.executors.join(RETURN_SECONDS):
            log.warning("queue %s: some handlers have not returned; they end with the process", self.context.queue)
        if not held.wait_until_empty(SETTLE_SECONDS):
            log.warning(
                "queue %s: %d messages could not be settled, and will be delivered again", self.context.queue, len(held)
            )
