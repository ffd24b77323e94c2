"""Metrics of calls by OpenTelemetry and, if wanted, events on the span that makes the call. Needs an extra.

Attributes have the names of https://opentelemetry.io/docs/specs/semconv/ where it has some. Its metric
`http.client.request.duration` is not written: it must have the request's method, which a call of any kind does not know
(https://opentelemetry.io/docs/specs/semconv/http/http-metrics/). Instrument the HTTP client for that one.
"""

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast._errors import MissingExtra
from holdfast._forks import renew_after_fork
from holdfast._types import Operation
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.sinks.names import Names

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise MissingExtra("the OpenTelemetry sink", "opentelemetry") from error

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["OpenTelemetrySink"]

Attributes = dict[str, str | int | float]

DEPENDENCY = "holdfast.dependency"
OPERATION = "holdfast.operation"
BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; those that the conventions recommend for requests."""
MOST_OPERATIONS = 200
"""Operations with series of their own: with the failures, statuses and zones of each they are some thousands."""


class OpenTelemetrySink:
    """Records `holdfast.call.*` metrics with a meter, by default one of the global provider. Thread-safe.

    With `span_events`, retries and giving up are added to the span that is current where the call is made. With
    `addresses` off, `server.address` and `server.port` are left out: in a large fleet they make many series. After the
    first `most_operations` operations, others are counted as `other`.
    """

    def __init__(
        self,
        meter: "Meter | None" = None,
        *,
        span_events: bool = False,
        addresses: bool = True,
        most_operations: int = MOST_OPERATIONS,
    ) -> None:
        self._names = Names(most_operations)
        meter = metrics.get_meter("holdfast.calls") if meter is None else meter
        self._span_events = span_events
        self._addresses = addresses
        self._attempts = meter.create_histogram(
            "holdfast.call.attempt.duration",
            unit="s",
            description="How long attempts took.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._retries = meter.create_counter(
            "holdfast.call.retries", unit="{retry}", description="Attempts after the first."
        )
        self._gave_up = meter.create_counter(
            "holdfast.call.gave_up", unit="{call}", description="Calls that failed in the end."
        )
        self._exhausted = meter.create_counter(
            "holdfast.call.budget.exhausted", unit="{time}", description="Times that a retry budget ran dry."
        )
        self._timeouts = meter.create_gauge("holdfast.call.timeout", unit="s", description="How long it may take now.")
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Have a lock that nobody holds, in the child of a fork."""
        self._lock = threading.Lock()

    def emit(self, event: CallEvent) -> None:
        match event:
            case Attempted():
                self._attempts.record(event.seconds, self._attributes(event))
            case Retrying():
                attributes = {**self._named(event.operation), "holdfast.failure": str(event.failure)}
                self._retries.add(1, attributes)
                self._tell("holdfast.retrying", attributes, {"attempt": event.number, "delay": event.delay})
            case GaveUp():
                attributes = {**self._named(event.operation), "holdfast.reason": str(event.reason)}
                self._gave_up.add(1, attributes)
                self._tell("holdfast.gave_up", attributes, {"attempts": event.number, "seconds": event.seconds})
            case Exhausted():
                self._exhausted.add(1, {DEPENDENCY: self._dependency(event.dependency)})
            case TimeoutChanged():
                self._timeouts.set(
                    event.after, {DEPENDENCY: self._dependency(event.dependency), "holdfast.timeout": event.what}
                )

    def _tell(self, name: str, attributes: Attributes, details: dict[str, int | float]) -> None:
        if self._span_events:
            more: Attributes = {f"holdfast.{key}": value for key, value in details.items()}
            trace.get_current_span().add_event(name, attributes | more)

    def _attributes(self, event: Attempted) -> Attributes:
        attributes = self._named(event.operation)
        if event.status:
            attributes["http.response.status_code"] = event.status
        if event.failure is not None:
            attributes["holdfast.failure"] = str(event.failure)
            attributes["error.type"] = str(event.status or event.code or event.error or event.failure)
        if event.zone is not None:
            attributes["holdfast.zone"] = event.zone
        if self._addresses and event.address is not None:
            attributes |= server_of(event.address)
        return attributes

    def _named(self, operation: Operation) -> Attributes:
        with self._lock:
            dependency, name = self._names.operation(operation)
        return {DEPENDENCY: dependency, OPERATION: name}

    def _dependency(self, name: str) -> str:
        with self._lock:
            return self._names.dependency(name)


def server_of(address: str) -> Attributes:
    """`server.address` and, if it is known, `server.port`, of a URL, or of a host with a port or without."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # the port is no number: whatever this is, it is an address to somebody
        return {"server.address": address}
    attributes: Attributes = {"server.address": host or address}
    port = port or {"http": 80, "https": 443}.get(parts.scheme)
    if port is not None:
        attributes["server.port"] = port
    return attributes
