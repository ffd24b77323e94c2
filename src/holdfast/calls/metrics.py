"""Metrics and log lines of calls: the instruments, and a sink that turns events into measurements."""

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast._forks import register_after_fork
from holdfast._types import Operation
from holdfast.calls.events import AttemptEnded, BudgetExhausted, CallEvent, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.retry import REASON_TEXT, GiveUpReason
from holdfast.metrics.cardinality import MAX_NAMES, OTHER, CardinalityLimit
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import AttributeValue, Instrument, InstrumentType, Label, LogLine, Measurement, Series
from holdfast.metrics.sink import MetricsSink

if TYPE_CHECKING:
    from holdfast.calls.dependency import Dependency

__all__ = ["CallMetrics"]

DEPENDENCY, OPERATION = Label("dependency"), Label("operation")
SUCCESS = "success"
_COUNTS = ("Attempts", "Failures", "Timeouts", "Throttles", "Retries", "GaveUp")


def _metric(kind: InstrumentType, name: str, unit: str, description: str, *labels: Label, **more: Any) -> Instrument:
    return Instrument(type=kind, name=name, unit=unit, description=description, labels=(DEPENDENCY, *labels), **more)


ATTEMPTS = _metric(
    *(InstrumentType.COUNTER, "holdfast.call.attempts", "", "Attempts that have ended.", OPERATION),
    detail=Label("outcome"),
    in_opentelemetry=False,  # the count of `holdfast.call.attempt.duration` has them
    cloudwatch_names={
        SUCCESS: ("Attempts",),
        "timeout": ("Attempts", "Failures", "Timeouts"),
        "throttled": ("Attempts", "Failures", "Throttles"),
        "": ("Attempts", "Failures"),
    },
    cloudwatch_zeros=_COUNTS,
)
DURATION = _metric(
    *(InstrumentType.HISTOGRAM, "holdfast.call.attempt.duration", "s", "Duration of attempts.", OPERATION),
    # The boundaries that OpenTelemetry's conventions recommend for requests.
    boundaries=(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    prometheus_name="holdfast_call_attempt_seconds",
    cloudwatch_names={"": ("AttemptLatency",)},
    cloudwatch_unit="Milliseconds",
)
RETRIES = _metric(
    *(InstrumentType.COUNTER, "holdfast.call.retries", "{retry}", "Attempts after the first.", OPERATION),
    detail=Label("failure"),
    cloudwatch_names={"": ("Retries",)},
    cloudwatch_zeros=_COUNTS,
)
GAVE_UP = _metric(
    *(InstrumentType.COUNTER, "holdfast.call.gave_up", "{call}", "Calls that failed, after retries.", OPERATION),
    detail=Label("reason"),
    cloudwatch_names={"": ("GaveUp",)},
    cloudwatch_zeros=_COUNTS,
)
EXHAUSTED = _metric(
    *(InstrumentType.COUNTER, "holdfast.call.budget.exhausted", "{time}", "Times a retry budget was exhausted."),
    cloudwatch_names={"": ("BudgetExhausted",)},
)
TIMEOUT = _metric(
    InstrumentType.GAUGE,
    "holdfast.call.timeout",
    "s",
    "Current timeout of an attempt or a connection set-up.",
    detail=Label("timeout", "holdfast.timeout"),
)
TOKENS = _metric(InstrumentType.GAUGE, "holdfast.call.budget.tokens", "{token}", "Tokens left in the retry budget.")
IN_FLIGHT = _metric(
    InstrumentType.GAUGE, "holdfast.call.in_flight", "{attempt}", "Attempts in flight, if there is a limit."
)
EVENT_INSTRUMENTS = (ATTEMPTS, DURATION, RETRIES, GAVE_UP, EXHAUSTED, TIMEOUT)
EXHAUSTED_LOG_INTERVAL = 60.0
"""Seconds between log lines: a nearly empty bucket is exhausted again and again in one incident."""
EXPECTED = frozenset({GiveUpReason.PERMANENT, GiveUpReason.NOT_OWNER})
"""Reasons that are no incident: the server refused the request, or another layer retries."""


class CallMetrics(MetricsSink[CallEvent]):
    """A sink that measures and logs calls, for one or more exporters: `Dependency(sink=CallMetrics(exporter))`.

    At each export it reads the budgets, timeouts and limits of the given `dependencies`. Operations after the first
    `max_operations` are counted as `other`. Thread-safe.
    """

    instruments = EVENT_INSTRUMENTS

    def __init__(
        self, *exporters: Exporter, dependencies: "Iterable[Dependency]" = (), max_operations: int = MAX_NAMES
    ) -> None:
        self._dependencies = CardinalityLimit(max_operations)
        self._operations = CardinalityLimit(max_operations)
        self._attempts: dict[Operation, tuple[Measurement, Series]] = {}
        """Cache per operation: the count of a successful attempt, and the series of durations. Not for `other`."""
        self.reset_after_fork()
        register_after_fork(self)
        super().__init__(*exporters)
        watched = tuple(dependencies)
        if watched:
            # Start at 0: Prometheus sees no increase in a series that begins at 1, so an alert would miss the first.
            begun = [Series(EXHAUSTED, self._dependency_labels(dependency.name)) for dependency in watched]
            for exporter in exporters:
                exporter.start_series(begun)
                exporter.observe((TOKENS, IN_FLIGHT), lambda: read_gauges(watched))

    def reset_after_fork(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def measure(self, event: CallEvent) -> Sequence[Measurement]:
        match event:
            case AttemptEnded():
                attempt, duration = self._attempts.get(event.operation) or self._find_attempt_series(event.operation)
                if event.failure is not None:
                    attempt = Measurement(Series(ATTEMPTS, duration.labels, event.failure.value), 1)
                attributes = build_attributes(event) if self._uses_attributes else None
                return attempt, Measurement(duration, event.seconds, attributes)
            case Retrying():
                series = Series(RETRIES, self._operation_labels(event.operation), event.failure.value)
            case GaveUp():
                series = Series(GAVE_UP, self._operation_labels(event.operation), event.reason.value)
            case BudgetExhausted():
                series = Series(EXHAUSTED, self._dependency_labels(event.dependency))
            case _:
                series = Series(TIMEOUT, self._dependency_labels(event.dependency), event.timeout)
                return (Measurement(series, event.after),)
        return (Measurement(series, 1),)

    def describe(self, event: CallEvent) -> LogLine | None:
        if type(event) is AttemptEnded and event.failure is None:
            return None
        return LogLine(
            logger="holdfast.calls",
            level=choose_level(event),
            subject=find_dependency_name(event),
            event=type(event).__name__,
            message=lambda: format_event(event),
            fields=lambda: build_fields(event),
            interval=EXHAUSTED_LOG_INTERVAL if isinstance(event, BudgetExhausted) else 1.0,
            span_event=_SPAN_EVENTS.get(type(event)),
        )

    def _dependency_labels(self, name: str) -> tuple[str]:
        with self._lock:
            return (name if self._dependencies.admits(name) else OTHER,)

    def _operation_labels(self, operation: Operation) -> tuple[str, str]:
        with self._lock:
            if not self._dependencies.admits(operation.service):
                return OTHER, OTHER
            return operation.service, operation.name if self._operations.admits(operation) else OTHER

    def _find_attempt_series(self, operation: Operation) -> tuple[Measurement, Series]:
        labels = self._operation_labels(operation)
        found = Measurement(Series(ATTEMPTS, labels, SUCCESS), 1), Series(DURATION, labels)
        if labels == (operation.service, operation.name):  # not `other`: the cache would grow without bound
            self._attempts[operation] = found
        return found


_SPAN_EVENTS: dict[type, str] = {Retrying: "holdfast.retrying", GaveUp: "holdfast.gave_up"}


def read_gauges(dependencies: "Iterable[Dependency]") -> Iterable[Measurement]:
    """Yield the current timeouts, tokens and attempts in flight."""
    for dependency in dependencies:
        labels = (dependency.name,)
        yield Measurement(Series(TIMEOUT, labels, "attempt"), dependency.timeout)
        yield Measurement(Series(TIMEOUT, labels, "connect"), dependency.connect_timeout)
        yield Measurement(Series(TOKENS, labels), dependency.tokens)
        if dependency.limit is not None:
            yield Measurement(Series(IN_FLIGHT, labels), dependency.in_flight)


def build_attributes(event: AttemptEnded) -> dict[str, AttributeValue]:
    """Return the OpenTelemetry attributes of an attempt, in addition to its operation."""
    attributes: dict[str, AttributeValue] = {}
    if event.status:
        attributes["http.response.status_code"] = event.status
    if event.failure is not None:
        attributes["holdfast.failure"] = str(event.failure)
        attributes["error.type"] = str(event.status or event.code or event.error or event.failure)
    if event.zone is not None:
        attributes["holdfast.zone"] = event.zone
    if event.address is not None:
        attributes |= parse_server(event.address)
    return attributes


def parse_server(address: str) -> dict[str, AttributeValue]:
    """Return `server.address` and, if known, `server.port` of a URL, `host` or `host:port`."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # the port is not a number: another kind of address
        return {"server.address": address}
    attributes: dict[str, AttributeValue] = {"server.address": host or address}
    port = port or {"http": 80, "https": 443}.get(parts.scheme)
    if port is not None:
        attributes["server.port"] = port
    return attributes


def choose_level(event: CallEvent) -> int:
    """Return the log level of an event."""
    if isinstance(event, AttemptEnded):
        return logging.DEBUG
    is_incident = isinstance(event, BudgetExhausted) or (isinstance(event, GaveUp) and event.reason not in EXPECTED)
    return logging.WARNING if is_incident else logging.INFO


def find_dependency_name(event: CallEvent) -> str:
    """Return the name of the dependency that an event is about."""
    return event.dependency if isinstance(event, BudgetExhausted | TimeoutChanged) else event.operation.service


def format_event(event: CallEvent) -> str:
    """Return the event as a sentence."""
    match event:
        case AttemptEnded():
            cause = event.status or event.code or event.error or "the result"
            return f"{event.operation}: attempt {event.number} failed after {event.seconds:.3f} s: {cause}"
        case Retrying():
            return f"{event.operation}: retrying in {event.delay:.3f} s (attempt {event.number}): {event.failure}"
        case GaveUp():
            attempts = "1 attempt" if event.attempts == 1 else f"{event.attempts} attempts"
            return f"{event.operation}: gave up after {attempts} in {event.seconds:.3f} s: {REASON_TEXT[event.reason]}"
        case BudgetExhausted():
            return f"{event.dependency}: the retry budget is exhausted; few retries are sent until calls succeed again"
        case TimeoutChanged():
            return f"{event.dependency}: {event.timeout} timeout changed from {event.before:.3f} to {event.after:.3f} s"


def build_fields(event: CallEvent) -> dict[str, Any]:
    """Return the event's values that are not None, by names that no attribute of a log record has."""
    fields: dict[str, Any] = {"event": type(event).__name__, "dependency": find_dependency_name(event)}
    for name in event.__slots__:
        value = getattr(event, name)
        if name == "operation":
            value = value.name
        if value is not None:
            fields[name] = value
    return fields
