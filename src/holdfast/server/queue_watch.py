"""Looks at all queues behind the server every few seconds, so that somebody is told of alarms though no worker runs."""

import asyncio
import logging
from collections.abc import Sequence

from holdfast._errors import HoldfastError
from holdfast.queue.backend import Backend
from holdfast.queue.metrics import QueueMetrics
from holdfast.queue.watcher import EVERY, Watcher
from holdfast.server.queues import Queues

logger = logging.getLogger("holdfast.server")


SWEEP_EVERY = 30.0
"""Seconds between sweeps. Workers sweep, too; where none is left, somebody must see whose leases have ended."""


class QueueWatch:
    """Raises the alarms of every queue that there is, with a `Watcher` each: for the log and other exporters.

    Sweeps them, too, so that what died with its worker counts as waiting. Where there is no store yet, none is made.
    For the event loop alone.
    """

    def __init__(self, queues: Queues, metrics: QueueMetrics) -> None:
        self._queues = queues
        self._metrics = metrics
        self._watchers: dict[str, Watcher] = {}
        self._swept = -SWEEP_EVERY
        self._is_away = False

    async def run(self) -> None:
        """Look until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.look()

    async def look(self) -> None:
        """Look at all of them once. What goes wrong is logged, once for all the time that it does."""
        try:
            names = await self._queues.known()
            if names:
                await self._queues.ask(lambda backend: self._look(backend, names))
        except HoldfastError as error:
            level = logging.DEBUG if self._is_away else logging.WARNING
            logger.log(level, "queues cannot be watched, trying again every %g s: %s", EVERY, error)
            self._is_away = True
        except Exception:
            logger.exception("queues could not be watched; the next look follows")
        else:
            self._is_away = False

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
            watcher.look()
