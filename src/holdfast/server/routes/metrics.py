"""Metrics for a scrape: queues and their alarms, zones, and the server itself, in the text format of Prometheus."""

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
"""Litestar says itself how text is encoded."""
CACHE_SECONDS = 5.0
"""Seconds for which an answer is given again: less than scrapes are apart, so that each sees something new."""


class ScrapeCache:
    """Everything as it was a few seconds ago at most, however many ask at the same time.

    `metrics` measures queues for the exporter `queue_exporter`; the exporter `other_exporter` has the rest.
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
        """Return everything in the text format; while the store of queues is away, all but queues, and that it is."""
        if self._queues.clock.monotonic() >= self._fresh_until:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.ensure_future(self._refresh())
                self._refreshing.add_done_callback(_retrieve_exception)
            await asyncio.shield(self._refreshing)  # it goes on for the others if this one goes away
        return self._text

    async def _refresh(self) -> None:
        names: Sequence[str] = ()

        def look(backend: Backend) -> list[QueueSnapshot]:
            return [snapshot for name in names if (snapshot := _look(backend, name)) is not None]

        try:
            names = await self._queues.list_known()
            for snapshot in await self._queues.ask(look) if names else []:
                self._metrics.emit(snapshot)
        except HoldfastError:  # the watch of the queues logs why
            self._text = self._render(is_readable=False)  # without old figures of queues, which would deceive
        else:
            self._text = self._queue_exporter.render() + self._render(is_readable=True)
            self._fresh_until = self._queues.clock.monotonic() + CACHE_SECONDS

    def _render(self, *, is_readable: bool) -> str:
        self._other_exporter.record((Measurement(Series(QUEUES_READABLE), int(is_readable)),))
        return self._other_exporter.render()


def _look(backend: Backend, queue: str) -> QueueSnapshot | None:
    try:
        return backend.inspect(queue)
    except NotFound:  # somebody has removed it since
        return None


def _retrieve_exception(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()  # also if nobody waits for it any more


@get("/metrics", media_type=MEDIA_TYPE, summary="Scrape metrics", **build_route_options("queues", Role.VIEWER))
async def metrics(state: ServerState) -> Response[str]:
    """How deep all queues are and which of their alarms are open, zones, and requests, as text for Prometheus.

    Depths are a few seconds old at most. Alarms are those that the server raises itself, every ten seconds. While the
    store of queues is away, `holdfast_server_queues_readable` is 0, and there is nothing about queues.
    """
    return Response(await state.scrape_cache.render(), media_type=MEDIA_TYPE)
