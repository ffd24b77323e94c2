"""Metrics of the server itself: requests, lines of telemetry, and clients of its streams."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.metrics.cardinality import OTHER
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import Instrument, InstrumentType, Label, Measurement, Series, powers_of_two
from holdfast.metrics.sink import MetricsSink
from holdfast.server.detection.messages import IngestResult

REQUESTS = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.requests",
    unit="{request}",
    description="Answered requests.",
    labels=(Label("method", "http.request.method"), Label("route", "http.route")),
    detail=Label("status", "http.response.status_code"),
)
TELEMETRY_RECORDS = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.telemetry.records",
    unit="{record}",
    description="Received records of telemetry.",
    detail=Label("result"),
    cloudwatch_names={"accepted": ("TelemetryAccepted",), "refused": ("TelemetryRefused",)},
)
TELEMETRY_REFUSED = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.telemetry.refused",
    unit="{record}",
    description="Refused records of telemetry, by reason.",
    detail=Label("reason"),
)
TELEMETRY_UNTIMELY = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.telemetry.untimely_requests",
    unit="{request}",
    description="Measured requests that arrived late and were stored, or too late or too early and were dropped.",
    detail=Label("outcome"),
    cloudwatch_names={"": ("TelemetryUntimely",)},
)
TELEMETRY_LAG = Instrument(
    type=InstrumentType.HISTOGRAM,
    name="holdfast.server.telemetry.lag",
    unit="s",
    description="Age of the oldest record of a batch when it arrived.",
    buckets=powers_of_two(-4, 10),
)
TELEMETRY_OVERFLOWED = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.telemetry.overflowed_requests",
    unit="{request}",
    description="Measured requests counted as `other`, because a workload has too many operations or instances.",
    cloudwatch_names={"": ("TelemetryOverflowed",)},
)
DETECTION_RUNNING = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.detection_running",
    unit="",
    description="1 if the detection process answers, on standby that of another server; 0 while it is restarted.",
    cloudwatch_names={"": ("DetectionRunning",)},
)
DETECTION_ACTIVE = Instrument(
    type=InstrumentType.GAUGE,
    name="holdfast.server.detection_active",
    unit="",
    description="1 if this server evaluates and acts, 0 while it stands by.",
    cloudwatch_names={"": ("DetectionActive",)},
)
TAKEOVERS = Instrument(
    type=InstrumentType.COUNTER,
    name="holdfast.server.takeovers",
    unit="{takeover}",
    description="Times that this server began to evaluate, also at its start.",
    cloudwatch_names={"": ("Takeovers",)},
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


class ReceivedTelemetry(msgspec.Struct, frozen=True, gc=False):
    """The telemetry of one request."""

    result: IngestResult


class RefusedConnection(msgspec.Struct, frozen=True, gc=False):
    """A connection that the server closed because of a limit or a malformed request."""

    reason: str


class TakeOver(msgspec.Struct, frozen=True, gc=False):
    """The moment when this server began to evaluate."""


class OpenConnections(Protocol):
    """The open connections of a server."""

    @property
    def open_count(self) -> int:
        """The number of open connections."""

    @property
    def busy_count(self) -> int:
        """The number of connections with a request in progress."""


class Detection(Protocol):
    """The detection of a server."""

    @property
    def is_running(self) -> bool:
        """Whether it answers questions, here or at another server."""

    @property
    def is_standby(self) -> bool:
        """Whether another server evaluates."""


class Stream(Protocol):
    """A stream that pushes events to clients."""

    @property
    def listener_count(self) -> int:
        """The number of connected clients."""


class ServerMetrics(MetricsSink[AnsweredRequest | ReceivedTelemetry | RefusedConnection | TakeOver]):
    """A sink that measures requests, telemetry, streams and connections of the server."""

    instruments = (
        REQUESTS,
        TELEMETRY_RECORDS,
        TELEMETRY_REFUSED,
        TELEMETRY_UNTIMELY,
        TELEMETRY_OVERFLOWED,
        TELEMETRY_LAG,
        REFUSED_CONNECTIONS,
        TAKEOVERS,
    )

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

    def observe_detection(self, detection: Detection) -> None:
        """Measure whether detection runs, and where, whenever metrics are exported."""

        def read() -> Sequence[Measurement]:
            return [
                Measurement(Series(DETECTION_RUNNING), int(detection.is_running)),
                Measurement(Series(DETECTION_ACTIVE), int(not detection.is_standby)),
            ]

        for exporter in self.exporters:
            exporter.observe((DETECTION_RUNNING, DETECTION_ACTIVE), read)

    def measure(
        self, event: AnsweredRequest | ReceivedTelemetry | RefusedConnection | TakeOver
    ) -> Sequence[Measurement]:
        if isinstance(event, AnsweredRequest):
            method = event.method if event.method in METHODS else OTHER
            return (Measurement(Series(REQUESTS, (method, event.route or OTHER), str(event.status)), 1),)
        if isinstance(event, RefusedConnection):
            return (Measurement(Series(REFUSED_CONNECTIONS, (), event.reason), 1),)
        if isinstance(event, TakeOver):
            return (Measurement(Series(TAKEOVERS), 1),)
        return _measure_telemetry(event.result)


def _measure_telemetry(result: IngestResult) -> Sequence[Measurement]:
    records = {"accepted": result.accepted, "refused": result.refused}
    found = [(TELEMETRY_RECORDS, name, number) for name, number in records.items()]
    found += [(TELEMETRY_REFUSED, reason, number) for reason, number in result.refused_by_reason.items()]
    untimely = {"late": result.late, "too_late": result.too_late, "too_early": result.too_early}
    found += [(TELEMETRY_UNTIMELY, outcome, number) for outcome, number in untimely.items()]
    found.append((TELEMETRY_OVERFLOWED, "", result.overflowed))
    measured = [Measurement(Series(instrument, (), name), number) for instrument, name, number in found if number]
    if result.lag is not None:
        measured.append(Measurement(Series(TELEMETRY_LAG, ()), result.lag))
    return measured
