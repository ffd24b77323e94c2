"""A worker of one queue. Start reading at `Worker`, then at `WorkerRun`, which joins the parts of one run."""

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
from holdfast._names import format_count
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
"""Seconds between checks for a stop request. Polled, because a signal handler may neither set an event nor lock."""
SETTLE_SECONDS = 5.0
"""Seconds that a stopping worker tries to settle its last messages."""
RETURN_SECONDS = 1.0
"""Seconds that a stopping worker waits for handlers that were asked to stop."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker."""

    concurrency: int = 8
    """Messages handled at the same time: threads for synchronous handlers, tasks for asynchronous ones."""
    shutdown_timeout: float = 20.0
    """Maximum seconds for running handlers to finish after the worker is told to stop, or its zone goes out. Below 30,
    after which orchestrators kill a process."""
    zone: Zone | None = None
    """The zone of the worker. While it is out, the worker leases nothing and releases its messages."""
    workload: str | None = None
    """Workload whose zone status applies to this worker. None means only statuses for all workloads."""

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 10_000:
            raise InvalidValue(f"a worker's concurrency of {self.concurrency}: expected 1 to 10000")
        if not 0 <= self.shutdown_timeout <= threading.TIMEOUT_MAX:
            raise InvalidValue(f"a worker's shutdown timeout of {self.shutdown_timeout} s: expected 0 or more")


class Worker:
    """Handles the messages of one queue in this process until it is stopped.

    Use `start` and `stop` in a program that does other work as well, `run` in one that does not, and `run_async` to run
    asynchronous handlers in the caller's event loop. Every queue needs its own worker, with its own threads, so that
    hanging handlers do not affect other queues. Thread-safe. In a forked child the worker is not started: the parent
    keeps its leases.
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
        """Number of messages leased to this worker, running or waiting for a handler."""
        run = self._current_run
        return 0 if run is None else len(run.context.leased)

    @property
    def is_idle(self) -> bool:
        """Whether the worker has no leased message, and is not leasing any."""
        run = self._current_run
        return run is None or not (run.fetcher.is_leasing or len(run.context.leased))

    @property
    def is_zone_out(self) -> bool:
        """Whether the zone of this worker is out, so that it leases no messages."""
        zone = self.options.zone
        return self._zones is not None and zone is not None and zone in self._zones.zones_out(self.options.workload)

    @property
    def is_stuck(self) -> bool:
        """Whether no more messages are leased, because too many handlers did not return when they were told to stop.

        If this lasts, restart the process: a hanging thread cannot be ended otherwise.
        """
        run = self._current_run
        return run is not None and run.executors.is_stuck

    def start(self, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        """Start leasing messages, and return. May be repeated, also after `stop`. Raise InvalidValue without a handler.

        With `loop`, asynchronous handlers run in that event loop instead of in a separate thread.
        """
        with self._changing:
            if self._current_run is None:
                # Assigned before it is started, so that a caller who is interrupted meanwhile can stop it.
                self._current_run = self.create_run(loop)
                try:
                    self._current_run.start()
                except Exception:  # such as too many threads
                    run, self._current_run = self._current_run, None
                    run.stop()
                    raise

    def stop(self) -> None:
        """Stop leasing, let running handlers finish, release all other messages. In a handler, call `request_stop`."""
        with self._changing:
            if self._current_run is not None:
                try:
                    self._current_run.stop()
                finally:
                    self._current_run = None

    def request_stop(self) -> None:
        """Make `run` return soon, even if it has not begun yet. Does not block, so signal handlers may call it."""
        self._is_stop_requested = True

    def run(self) -> None:
        """Handle messages until `request_stop` is called or the program is interrupted or terminated.

        In the main thread, SIGTERM requests the stop, unless the program has its own handler for SIGTERM.
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
        """Handle messages like `run`, with asynchronous handlers in this event loop. Cancelling it stops the worker."""
        import asyncio

        try:
            await asyncio.to_thread(self.start, asyncio.get_running_loop())
            while self._goes_on():  # noqa: ASYNC110 - a signal handler may request the stop
                await asyncio.sleep(STOP_CHECK_SECONDS)
        finally:
            await asyncio.shield(asyncio.to_thread(self.stop))
            self._is_stop_requested = False

    def create_run(self, loop: "asyncio.AbstractEventLoop | None" = None) -> "WorkerRun":
        """Build the parts of the worker without starting them."""
        policy, able = self.queue.policy, self.queue.backend.capabilities
        context = WorkerContext(
            queue=self.queue.name,
            find_backend=lambda: self.queue.backend,
            # A shorter lease does no harm: leases are extended while handlers run.
            lease=policy.lease if able.max_lease is None else min(policy.lease, able.max_lease),
            concurrency=self.options.concurrency,
            leased=LeasedMessages(),
            handlers=Handlers(self.queue, policy.max_attempts, self._clock, able.max_delay),
            events=EventEmitter(self.queue.name, self._sink),
            clock=self._clock,
        )
        return WorkerRun(
            context, shutdown_timeout=self.options.shutdown_timeout, is_zone_out=lambda: self.is_zone_out, loop=loop
        )

    def reset_after_fork(self) -> None:
        """Start with an unlocked lock and no run, in the child of a fork: the threads exist only in the parent."""
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
    """One run of a worker, from start to stop. Before `start`, a test can call the parts directly."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        shutdown_timeout: float,
        is_zone_out: Callable[[], bool] = lambda: False,
        loop: "asyncio.AbstractEventLoop | None" = None,
    ) -> None:
        self.context = context
        self._shutdown_timeout = shutdown_timeout
        self.executors = HandlerExecutors(context, loop)
        self.settler = Settler(context)
        self.watchdog = Watchdog(context, self.executors, is_zone_out, shutdown_timeout)
        self.heartbeat = Heartbeat(context, self.watchdog)
        self.fetcher = Fetcher(context, self.executors, is_zone_out)
        self.sweeper = Sweeper(context)
        parts = (self.settler, self.watchdog, self.heartbeat, self.fetcher, self.sweeper)
        self._loops = [part.loop for part in parts]

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Stop leasing, let running handlers finish, release the others: the fetcher stops first, the settler last."""
        try:
            self._finish()
        finally:
            for loop in self._loops:
                loop.stop()
            for loop in self._loops:
                loop.stop(RETURN_SECONDS)

    def _finish(self) -> None:
        leased, clock = self.context.leased, self.context.clock
        until = clock.monotonic() + self._shutdown_timeout
        self.fetcher.is_stopping = True
        # Release messages whose handlers have not begun; the second time, those that the fetcher leased meanwhile.
        self.watchdog.release("the worker stops", include_started=False)
        self.fetcher.loop.stop(SETTLE_SECONDS)
        self.watchdog.release("the worker stops", include_started=False)
        if not leased.wait_until_empty(max(0.0, until - clock.monotonic())):
            self.watchdog.release("the worker stops, and its shutdown timeout is over", include_started=True)
        self.executors.stop()
        if not self.executors.join(RETURN_SECONDS):
            log.warning("queue %s: some handlers have not returned; they end with the process", self.context.queue)
        if not leased.wait_until_empty(SETTLE_SECONDS):
            log.warning(
                "queue %s: %s could not be settled, and will be delivered again",
                self.context.queue,
                format_count(len(leased), "message"),
            )
