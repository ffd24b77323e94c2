"""Metrics of queues, their alarms, zones and the server itself, in the text format of Prometheus."""

import asyncio
import math
from collections.abc import Sequence

from litestar import Response, get

from holdfast._errors import HoldfastError, NotFound
from holdfast.metrics import PrometheusExporter
from holdfast.metrics.exporters.prometheus import CONTENT_TYPE
from holdfast.metrics.instruments import Measurement, Series
from holdfast.queue.backend import Backend, QueueSnapshot
from holdfast.queue.metrics import QueueMetrics
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.metrics import QUEUES_READABLE
from holdfast.server.queues import Queues
from holdfast.server.state import ServerState

MEDIA_TYPE = CONTENT_TYPE.removesuffix("; charset=utf-8")
"""Litestar adds the charset itself."""
CACHE_SECONDS = 5.0
"""Seconds for which an answer is cached: shorter than the usual interval of scrapes, so that each gets new values."""


class ScrapeCache:
    """A cache of all metrics, at most a few seconds old. Concurrent scrapes share one refresh.

    `metrics` measures queues for `queue_exporter`; all other metrics are in `other_exporter`.
    """

    def __init__(
        self,
        queues: Queues,
        metrics: QueueMetrics,
        queue_exporter: PrometheusExporter,
        other_exporter: PrometheusExporter,
    ) -> None:
        self._queues = queues
        self._metrics = metrics
        self._queue_exporter = queue_exporter
        self._other_exporter = other_exporter
        other_exporter.declare((QUEUES_READABLE,))
        self._text = ""
        self._fresh_until = -math.inf
        self._refreshing: asyncio.Future[None] | None = None

    async def render(self) -> str:
        """Return all metrics as text. If the queue store is unavailable, omit queues and set `queues_readable` to 0."""
        if self._queues.clock.monotonic() >= self._fresh_until:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.ensure_future(self._refresh())
                self._refreshing.add_done_callback(_retrieve_exception)
            await asyncio.shield(self._refreshing)  # it continues for other scrapes if this one is cancelled
        return self._text

    async def _refresh(self) -> None:
        names: Sequence[str] = ()

        def inspect_all(backend: Backend) -> list[QueueSnapshot]:
            return [snapshot for name in names if (snapshot := _inspect(backend, name)) is not None]

        try:
            names = await self._queues.list_known()
            for snapshot in await self._queues.ask(inspect_all) if names else []:
                self._metrics.start_producer(snapshot.queue)  # the server is one
                self._metrics.emit(snapshot)
        except HoldfastError:  # QueueMonitor logs the reason
            self._text = self._render(is_readable=False)  # without old figures of queues, which would mislead
        else:
            self._text = self._queue_exporter.render() + self._render(is_readable=True)
            self._fresh_until = self._queues.clock.monotonic() + CACHE_SECONDS

    def _render(self, *, is_readable: bool) -> str:
        self._other_exporter.record((Measurement(Series(QUEUES_READABLE), int(is_readable)),))
        return self._other_exporter.render()


def _inspect(backend: Backend, queue: str) -> QueueSnapshot | None:
    try:
        return backend.inspect(queue)
    except NotFound:  # it was removed after the names were listed
        return None


def _retrieve_exception(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()  # marks it as retrieved, in case no scrape waits for it any more


@get("/metrics", media_type=MEDIA_TYPE, summary="Scrape metrics", **build_route_options("queues", Role.VIEWER))
async def metrics(state: ServerState) -> Response[str]:
    """Return the depth of all queues, sent and refused messages, open alarms, zones and requests, for Prometheus.

    Depths are at most a few seconds old. Alarms are those of the server itself, which checks every ten seconds. While
    the store of queues is unavailable, `holdfast_server_queues_readable` is 0, and metrics of queues are missing.
    """
    return Response(await state.scrape_cache.render(), media_type=MEDIA_TYPE)
