"""What the server counts of itself: requests, lines of telemetry, and who listens to it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.metrics.cardinality import OTHER
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import Instrument, InstrumentType, Label, Measurement, Series
from holdfast.metrics.sink import MetricsSink

REQUESTS = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.requests",
    unit="{request}",
    description="Requests that were answered.",
    labels=(Label("method", "http.request.method"), Label("route", "http.route")),
    detail=Label("status", "http.response.status_code"),
)
TELEMETRY_LINES = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.telemetry.lines",
    unit="{line}",
    description="Lines of telemetry that arrived.",
    detail=Label("result"),
    cloudwatch_names={"accepted": ("TelemetryAccepted",), "refused": ("TelemetryRefused",)},
)
LISTENERS = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.listeners",
    unit="{listener}",
    description="Clients that events are pushed to.",
    detail=Label("stream"),
    cloudwatch_names={"": ("Listeners",)},
)
QUEUES_READABLE = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.queues_readable",
    unit="",
    description="Whether the store of queues could be read for this scrape.",
    in_opentelemetry=False,
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class AnsweredRequest(msgspec.Struct, frozen=True, gc=False):
    """A request was answered."""

    method: str
    route: str | None
    """Its template, `/v1/queues/{queue}`; None: there is no such route."""
    status: int


class ReceivedLines(msgspec.Struct, frozen=True, gc=False):
    """Lines of telemetry arrived."""

    accepted: int
    refused: int


class Stream(Protocol):
    """Pushes events to clients."""

    @property
    def listener_count(self) -> int:
        """How many clients there are."""


class ServerMetrics(MetricsSink[AnsweredRequest | ReceivedLines]):
    """Measures what the server does."""

    instruments = (REQUESTS, TELEMETRY_LINES)

    def __init__(self, *exporters: Exporter, streams: Mapping[str, Stream]) -> None:
        super().__init__(*exporters)
        for exporter in exporters:
            exporter.observe(
                (LISTENERS,),
                lambda: [
                    Measurement(Series(LISTENERS, (), name), stream.listener_count) for name, stream in streams.items()
                ],
            )

    def measure(self, event: AnsweredRequest | ReceivedLines) -> Sequence[Measurement]:
        if isinstance(event, AnsweredRequest):
            method = event.method if event.method in METHODS else OTHER
            return (Measurement(Series(REQUESTS, (method, event.route or OTHER), str(event.status)), 1),)
        found = {"accepted": event.accepted, "refused": event.refused}
        return [Measurement(Series(TELEMETRY_LINES, (), result), count) for result, count in found.items() if count]
