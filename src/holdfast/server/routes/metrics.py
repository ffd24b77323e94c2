"""Metrics for a scrape: queues and their alarms, zones, and the server itself, in the text format of Prometheus."""

import asyncio
import math

from litestar import Response, get
from litestar.datastructures import State

from holdfast._errors import NotFound
from holdfast.metrics import PrometheusExporter
from holdfast.metrics.exporters.prometheus import CONTENT_TYPE
from holdfast.queue.backend import Backend, Snapshot
from holdfast.queue.metrics import QueueMetrics
from holdfast.server.auth import SECURITY, requires
from holdfast.server.credentials import Role
from holdfast.server.problems import described
from holdfast.server.queues import Queues

TEXT = CONTENT_TYPE.removesuffix("; charset=utf-8")
"""Litestar says itself how text is encoded."""
FRESH = 5.0
"""Seconds for which an answer is given again: less than scrapes are apart, so that each sees something new."""


class Scrape:
    """Everything as it was a few seconds ago at most, however many ask at the same time."""

    def __init__(self, queues: Queues, metrics: QueueMetrics, exporter: PrometheusExporter) -> None:
        self._queues = queues
        self._metrics = metrics
        self._exporter = exporter
        self._text = ""
        self._fresh_until = -math.inf
        self._looking: asyncio.Future[None] | None = None

    async def text(self) -> str:
        """Everything in the text format. Raises EngineUnavailable when the store is away: old figures would deceive."""
        if self._queues.clock.monotonic() >= self._fresh_until:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.ensure_future(self._look())
                self._looking.add_done_callback(_looked_at)
            await asyncio.shield(self._looking)  # it goes on for the others if this one goes away
        return self._text

    async def _look(self) -> None:
        names = await self._queues.known()

        def look(backend: Backend) -> list[Snapshot]:
            return [snapshot for name in names if (snapshot := _look(backend, name)) is not None]

        for snapshot in await self._queues.ask(look) if names else []:
            self._metrics.emit(snapshot)
        self._text = self._exporter.render()
        self._fresh_until = self._queues.clock.monotonic() + FRESH


def _look(backend: Backend, queue: str) -> Snapshot | None:
    try:
        return backend.look(queue)
    except NotFound:  # somebody has removed it since
        return None


def _looked_at(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()  # also if nobody waits for it any more


@get(
    "/metrics",
    guards=[requires(Role.VIEWER)],
    security=SECURITY,
    responses=described(401, 403, 503),
    media_type=TEXT,
    summary="Scrape metrics",
    tags=["queues"],
)
async def metrics(state: State) -> Response[str]:
    """How deep all queues are and which of their alarms are open, zones, and requests, as text for Prometheus.

    Depths are a few seconds old at most. Alarms are those that the server raises itself, every ten seconds.
    """
    scrape: Scrape = state.scrape
    return Response(await scrape.text(), media_type=TEXT)
