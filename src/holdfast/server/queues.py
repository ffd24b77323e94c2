"""The queues behind the API, and the watch over them.

Their store is opened when it is first needed, and never waited for in the event loop.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError
from holdfast.queue import OutgoingMessage, RefusedMessage, SentMessage
from holdfast.queue.backend import Backend, require_support
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.watcher import WATCH_INTERVAL_SECONDS, Watcher
from holdfast.server.executor import BoundedExecutor

Result = TypeVar("Result")

logger = logging.getLogger("holdfast.server")

THREADS = 16
"""What is sent at the same time shares a commit: about so many messages get one where a disk is slow."""
MAX_SENDING = 256
"""Requests to send that may be under way: a second of work for a slow disk."""
MAX_SENDING_PER_TENANT = MAX_SENDING // 4
"""Those of one tenant among them: it may slow itself down, not keep everybody else out."""
ASKING_THREADS = 4
"""Questions are few, and some of them keep a store busy: more at a time would only slow down what is sent."""
MAX_ASKING = 32
"""Questions that may be under way: who asks the last of them waits for eight others."""
MAX_ASKING_PER_TENANT = MAX_ASKING // 4
"""Those of one tenant among them."""

SWEEP_EVERY = 30.0
"""Seconds between sweeps. Workers sweep, too; where none is left, somebody must see whose leases have ended."""


class Queues:
    """Sends to queues and asks about them, from the event loop; a server that does neither opens nothing.

    `open_backend` opens the store, and `exists` says whether there is a store that could be opened without making
    one; both may block.
    """

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        *,
        exists: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self._open_backend = open_backend
        self._exists = exists
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._sending = BoundedExecutor(
            "holdfast-sending", threads=THREADS, max_running=MAX_SENDING, max_per_tenant=MAX_SENDING_PER_TENANT
        )
        self._asking = BoundedExecutor(
            "holdfast-queues", threads=ASKING_THREADS, max_running=MAX_ASKING, max_per_tenant=MAX_ASKING_PER_TENANT
        )

    async def send(
        self, queue: str, tenant: str, messages: Sequence[OutgoingMessage]
    ) -> Sequence[SentMessage | RefusedMessage]:
        """What became of each message of one tenant. Raises EngineUnavailable where the tenant has too many under way.

        What was begun is ended also if the caller goes away.
        """
        return await self._sending.run(lambda: self._send(queue, messages), tenant)

    async def ask(self, work: Callable[[Backend], Result], tenant: str | None = None) -> Result:
        """What `work` makes of the store; in threads of their own, so that what takes long holds up no message.

        Raises EngineUnavailable where the tenant that asks, if it is one, has too many questions under way.
        """
        return await self._asking.run(lambda: work(self.open()), tenant)

    async def list_names(self) -> Sequence[str]:
        """The names of all queues, in order."""
        return await self.ask(lambda backend: backend.list_queues())

    async def list_known(self) -> Sequence[str]:
        """The same for who only watches: where there is no store yet, there are none, and it is not made."""
        return await self._asking.run(self._known, None)

    def _known(self) -> Sequence[str]:
        with self._lock:  # to look at a file while another thread opens it would undo that thread's locks on it
            is_absent = self._backend is None and not self._exists()
        return [] if is_absent else self.open().list_queues()

    def _send(self, queue: str, messages: Sequence[OutgoingMessage]) -> Sequence[SentMessage | RefusedMessage]:
        backend = self.open()
        require_support(backend, messages)
        return backend.send(queue, messages)

    def open(self) -> Backend:
        """The store. Blocks when it is opened; what failed is tried again the next time."""
        backend = self._backend
        if backend is None:
            with self._lock:
                backend = self._backend = self._backend or self._open_backend()
        return backend

    def close(self) -> None:
        """Let go of the store, if it was opened. May be repeated."""
        with self._lock:
            backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()


class QueueMonitor:
    """Raises the alarms of every queue that there is, with a `Watcher` each: for the log and other exporters.

    Sweeps them, too, so that what died with its worker counts as waiting. Where there is no store yet, none is made.
    For the event loop alone.
    """

    def __init__(self, queues: Queues, metrics: QueueMetrics) -> None:
        self._queues = queues
        self._metrics = metrics
        self._watchers: dict[str, Watcher] = {}
        self._swept = -SWEEP_EVERY
        self._is_unavailable = False

    async def run(self) -> None:
        """Look until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            await self.inspect()

    async def inspect(self) -> None:
        """Look at all of them once. What goes wrong is logged, once for all the time that it does."""
        try:
            names = await self._queues.list_known()
            if names:
                await self._queues.ask(lambda backend: self._look(backend, names))
        except HoldfastError as error:
            level = logging.DEBUG if self._is_unavailable else logging.WARNING
            logger.log(level, "queues cannot be watched, trying again every %g s: %s", WATCH_INTERVAL_SECONDS, error)
            self._is_unavailable = True
        except Exception:
            logger.exception("queues could not be watched; the next look follows")
        else:
            self._is_unavailable = False

    def _look(self, backend: Backend, names: Sequence[str]) -> None:
        self._watchers = {
            name: self._watchers.get(name) or Watcher(name, backend, self._metrics, clock=self._queues.clock)
            for name in names
        }
        now = self._queues.clock.monotonic()
        if now - self._swept >= SWEEP_EVERY:
            self._swept = now
            for name in names:
                backend.sweep(name)
        for watcher in self._watchers.values():
            watcher.inspect()
