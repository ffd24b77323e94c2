"""Metrics of the server itself: requests, lines of telemetry, and clients of its streams."""

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
    description="Answered requests.",
    labels=(Label("method", "http.request.method"), Label("route", "http.route")),
    detail=Label("status", "http.response.status_code"),
)
TELEMETRY_LINES = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.telemetry.lines",
    unit="{line}",
    description="Received lines of telemetry.",
    detail=Label("result"),
    cloudwatch_names={"accepted": ("TelemetryAccepted",), "refused": ("TelemetryRefused",)},
)
LISTENERS = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.listeners",
    unit="{listener}",
    description="Clients that receive pushed events.",
    detail=Label("stream"),
    cloudwatch_names={"": ("Listeners",)},
)
CONNECTIONS = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.connections",
    unit="{connection}",
    description="Open connections.",
    detail=Label("state"),
    cloudwatch_names={"": ("Connections",)},
)
REFUSED_CONNECTIONS = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.refused_connections",
    unit="{connection}",
    description="Connections that the server closed because of a limit or a malformed request.",
    detail=Label("reason"),
    cloudwatch_names={"": ("RefusedConnections",)},
)
QUEUES_READABLE = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.queues_readable",
    unit="",
    description="1 if the store of queues could be read for this scrape, otherwise 0.",
    in_opentelemetry=False,
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class AnsweredRequest(msgspec.Struct, frozen=True, gc=False):
    """An answered request."""

    method: str
    route: str | None
    """The template of the route, such as `/v1/queues/{queue}`, or None if there is no such route."""
    status: int


class ReceivedLines(msgspec.Struct, frozen=True, gc=False):
    """The number of lines of telemetry in one request."""

    accepted: int
    refused: int


class RefusedConnection(msgspec.Struct, frozen=True, gc=False):
    """A connection that the server closed because of a limit or a malformed request."""

    reason: str


class OpenConnections(Protocol):
    """The open connections of a server."""

    @property
    def open_count(self) -> int:
        """The number of open connections."""

    @property
    def busy_count(self) -> int:
        """The number of connections with a request in progress."""


class Stream(Protocol):
    """A stream that pushes events to clients."""

    @property
    def listener_count(self) -> int:
        """The number of connected clients."""


class ServerMetrics(MetricsSink[AnsweredRequest | ReceivedLines | RefusedConnection]):
    """A sink that measures requests, telemetry, streams and connections of the server."""

    instruments = (REQUESTS, TELEMETRY_LINES, REFUSED_CONNECTIONS)

    def __init__(self, *exporters: Exporter, streams: Mapping[str, Stream]) -> None:
        super().__init__(*exporters)
        for exporter in exporters:
            exporter.observe(
                (LISTENERS,),
                lambda: [
                    Measurement(Series(LISTENERS, (), name), stream.listener_count) for name, stream in streams.items()
                ],
            )

    def observe_connections(self, connections: OpenConnections) -> None:
        """Measure the connections of the server whenever its metrics are exported."""

        def read() -> Sequence[Measurement]:
            found = {"busy": connections.busy_count, "waiting": connections.open_count - connections.busy_count}
            return [Measurement(Series(CONNECTIONS, (), state), count) for state, count in found.items()]

        for exporter in self.exporters:
            exporter.observe((CONNECTIONS,), read)

    def measure(self, event: AnsweredRequest | ReceivedLines | RefusedConnection) -> Sequence[Measurement]:
        if isinstance(event, AnsweredRequest):
            method = event.method if event.method in METHODS else OTHER
            return (Measurement(Series(REQUESTS, (method, event.route or OTHER), str(event.status)), 1),)
        if isinstance(event, RefusedConnection):
            return (Measurement(Series(REFUSED_CONNECTIONS, (), event.reason), 1),)
        found = {"accepted": event.accepted, "refused": event.refused}
        return [Measurement(Series(TELEMETRY_LINES, (), result), count) for result, count in found.items() if count]
