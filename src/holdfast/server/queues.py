"""The queues behind the API, and the monitor that watches them.

The store is opened on first use. The event loop never waits for it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineError, HoldfastError
from holdfast._types import Sink
from holdfast.queue import OutgoingMessage, RefusedMessage, SentMessage
from holdfast.queue.backend import Backend, require_support
from holdfast.queue.events import SendEvent
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.watcher import WATCH_INTERVAL_SECONDS, QueueWatcher
from holdfast.server.executor import BoundedExecutor

Result = TypeVar("Result")

logger = logging.getLogger("holdfast.server")

THREADS = 16
"""Sending threads. Concurrent sends share one commit: on a slow disk, batches have about this many messages."""
MAX_SENDING = 256
"""Maximum send requests in progress: a second of work for a slow disk."""
MAX_SENDING_PER_TENANT = MAX_SENDING // 4
"""Maximum send requests in progress of one tenant: it slows down only itself."""
QUERY_THREADS = 4
"""Queries are few, and some keep the store busy: more at the same time would only slow down sends."""
MAX_QUERIES = 32
"""Maximum queries in progress: the last one admitted waits for 32 / 4 = 8 others."""
MAX_QUERIES_PER_TENANT = MAX_QUERIES // 4
"""Maximum queries in progress of one tenant."""

SWEEP_EVERY = 30.0
"""Seconds between sweeps. Workers sweep, too; if no worker runs, the server must return expired leases."""


class Queues:
    """Sends messages and runs queries, from the event loop. A server that does neither opens no store.

    `open_backend` opens the store. `exists` returns whether it can be opened without creating it. Both may block.
    """

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        *,
        exists: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.problem: str | None = None
        """The kind of error of the last attempt to open or inspect the store, or None."""
        self._open_backend = open_backend
        self._exists = exists
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._sending = BoundedExecutor(
            "holdfast-sending", threads=THREADS, max_running=MAX_SENDING, max_per_tenant=MAX_SENDING_PER_TENANT
        )
        self._querying = BoundedExecutor(
            "holdfast-queues", threads=QUERY_THREADS, max_running=MAX_QUERIES, max_per_tenant=MAX_QUERIES_PER_TENANT
        )

    async def send(
        self, queue: str, tenant: str, messages: Sequence[OutgoingMessage], sink: Sink[SendEvent] | None = None
    ) -> Sequence[SentMessage | RefusedMessage]:
        """Send messages of one tenant, and report it to `sink`, which must not raise. Return a result for each.

        Raise EngineUnavailable if too many sends are in progress. A send that has begun completes even if the caller is
        cancelled.
        """
        return await self._sending.run(lambda: self._send(queue, messages, sink), tenant)

    async def ask(self, work: Callable[[Backend], Result], tenant: str | None = None) -> Result:
        """Run `work` with the backend in separate threads, so that slow queries do not delay sends.

        Raise EngineUnavailable if too many queries, of the given tenant or in total, are in progress.
        """
        return await self._querying.run(lambda: work(self.open()), tenant)

    async def list_names(self) -> Sequence[str]:
        """Return the names of all queues, sorted."""
        return await self.ask(lambda backend: backend.list_queues())

    async def list_known(self) -> Sequence[str]:
        """Return the names of all queues, or nothing if the store does not exist. Does not create it."""
        return await self._querying.run(self._known, None)

    def _known(self) -> Sequence[str]:
        with self._lock:  # checking the file while another thread opens it would release that thread's locks
            is_absent = self._backend is None and not self._exists()
        return [] if is_absent else self.open().list_queues()

    def _send(
        self, queue: str, messages: Sequence[OutgoingMessage], sink: Sink[SendEvent] | None
    ) -> Sequence[SentMessage | RefusedMessage]:
        backend = self.open()
        require_support(backend, messages)
        results = backend.send(queue, messages)
        if sink is not None:
            sink.emit(SendEvent(queue=queue, at=self.clock.wall(), messages=messages, results=results))
        return results

    def open(self) -> Backend:
        """Return the backend. Blocks while it is opened; after a failure, the next call tries again."""
        backend = self._backend
        if backend is None:
            with self._lock:
                try:
                    backend = self._backend = self._backend or self._open_backend()
                except HoldfastError as error:
                    self.problem = type(error).__name__
                    raise
        return backend

    def try_to_open(self) -> None:
        """Open the backend. If its store fails, only log that: all other parts of the server work without it."""
        try:
            self.open()
        except EngineError as error:
            logger.error("queues are unavailable, other parts of the server are not affected: %s", error)  # noqa: TRY400

    def close(self) -> None:
        """Close the backend if it was opened. May be repeated."""
        with self._lock:
            backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()


class QueueMonitor:
    """Watches every queue with a `QueueWatcher`, which reports depths and alarms to the log and other exporters.

    Also sweeps the queues, so that messages of crashed workers count as waiting. Does not create a store. Use it only
    in the event loop.
    """

    def __init__(self, queues: Queues, metrics: QueueMetrics) -> None:
        self._queues = queues
        self._metrics = metrics
        self._watchers: dict[str, QueueWatcher] = {}
        self._swept = -SWEEP_EVERY
        self._is_unavailable = False

    async def run(self) -> None:
        """Inspect the queues regularly, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            await self.inspect()

    async def inspect(self) -> None:
        """Inspect all queues once. An error is logged once per outage."""
        try:
            names = await self._queues.list_known()
            if names:
                await self._queues.ask(lambda backend: self._inspect_all(backend, names))
        except HoldfastError as error:
            level = logging.DEBUG if self._is_unavailable else logging.WARNING
            logger.log(level, "queues cannot be inspected, trying again every %g s: %s", WATCH_INTERVAL_SECONDS, error)
            self._is_unavailable = True
            self._queues.problem = type(error).__name__
        except Exception:
            logger.exception("queues could not be inspected; trying again in %g s", WATCH_INTERVAL_SECONDS)
        else:
            self._is_unavailable = False
            self._queues.problem = None

    def _inspect_all(self, backend: Backend, names: Sequence[str]) -> None:
        self._watchers = {
            name: self._watchers.get(name) or QueueWatcher(name, backend, self._metrics, clock=self._queues.clock)
            for name in names
        }
        now = self._queues.clock.monotonic()
        if now - self._swept >= SWEEP_EVERY:
            self._swept = now
            for name in names:
                backend.sweep(name)
        for watcher in self._watchers.values():
            watcher.inspect()
