"""What calls count and log: instruments, and a sink that measures events for exporters."""

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast._forks import renew_after_fork
from holdfast._types import Operation
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.retry import IN_WORDS, Reason
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import AttributeValue, Instrument, Label, LogLine, Measurement, Series, Type
from holdfast.metrics.names import MOST_NAMES, OTHER, FirstNames
from holdfast.metrics.sink import MetricsSink

if TYPE_CHECKING:
    from holdfast.calls.dependency import Dependency

__all__ = ["CallMetrics"]

DEPENDENCY, OPERATION = Label("dependency"), Label("operation")
SUCCESS = "success"
_COUNTS = ("Attempts", "Failures", "Timeouts", "Throttles", "Retries", "GaveUp")


def _metric(kind: Type, name: str, unit: str, description: str, *labels: Label, **more: Any) -> Instrument:
    return Instrument(type=kind, name=name, unit=unit, description=description, labels=(DEPENDENCY, *labels), **more)


ATTEMPTS = _metric(
    *(Type.COUNTER, "holdfast.call.attempts", "", "Attempts that have ended.", OPERATION),
    detail=Label("outcome"),
    in_opentelemetry=False,  # the duration counts them, too
    cloudwatch={
        SUCCESS: ("Attempts",),
        "timeout": ("Attempts", "Failures", "Timeouts"),
        "throttled": ("Attempts", "Failures", "Throttles"),
        "": ("Attempts", "Failures"),
    },
    cloudwatch_zeros=_COUNTS,
)
DURATION = _metric(
    *(Type.HISTOGRAM, "holdfast.call.attempt.duration", "s", "How long attempts took.", OPERATION),
    # Those that the conventions of OpenTelemetry recommend for requests.
    boundaries=(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    prometheus="holdfast_call_attempt_seconds",
    cloudwatch={"": ("AttemptLatency",)},
    cloudwatch_unit="Milliseconds",
)
RETRIES = _metric(
    *(Type.COUNTER, "holdfast.call.retries", "{retry}", "Attempts after the first.", OPERATION),
    detail=Label("failure"),
    cloudwatch={"": ("Retries",)},
    cloudwatch_zeros=_COUNTS,
)
GAVE_UP = _metric(
    *(Type.COUNTER, "holdfast.call.gave_up", "{call}", "Calls that failed in the end.", OPERATION),
    detail=Label("reason"),
    cloudwatch={"": ("GaveUp",)},
    cloudwatch_zeros=_COUNTS,
)
EXHAUSTED = _metric(
    *(Type.COUNTER, "holdfast.call.budget.exhausted", "{time}", "Times that a retry budget ran dry."),
    cloudwatch={"": ("BudgetExhausted",)},
)
TIMEOUT = _metric(
    Type.GAUGE, "holdfast.call.timeout", "s", "How long it may take now.", detail=Label("what", "holdfast.timeout")
)
TOKENS = _metric(Type.GAUGE, "holdfast.call.budget.tokens", "{token}", "What is left of the retry budget.")
IN_FLIGHT = _metric(Type.GAUGE, "holdfast.call.in_flight", "{attempt}", "Attempts under way, where they are limited.")
EVENT_INSTRUMENTS = (ATTEMPTS, DURATION, RETRIES, GAVE_UP, EXHAUSTED, TIMEOUT)
EXHAUSTED_EVERY = 60.0
"""Seconds between log lines: a bucket on the edge is exhausted again and again, which is one incident."""
EXPECTED = frozenset({Reason.PERMANENT, Reason.OWNED})
"""Giving up for these is no incident: the answer was no, or another layer goes on."""


class CallMetrics(MetricsSink[CallEvent]):
    """Measures and logs calls, with one exporter or several: `Dependency(sink=CallMetrics(exporter))`.

    Budgets, timeouts and limits of the given `dependencies` are read when they are exported. After the first
    `most_operations` operations, others are counted as `other`. Thread-safe.
    """

    instruments = EVENT_INSTRUMENTS

    def __init__(
        self, *exporters: Exporter, dependencies: "Iterable[Dependency]" = (), most_operations: int = MOST_NAMES
    ) -> None:
        self._dependencies = FirstNames(most_operations)
        self._operations = FirstNames(most_operations)
        self._attempts: dict[Operation, tuple[Measurement, Series]] = {}
        """An attempt that succeeds, as most do, and the series of durations, for operations that have names."""
        self.renew()
        renew_after_fork(self)
        super().__init__(*exporters)
        watched = tuple(dependencies)
        if watched:
            # Prometheus sees no increase in a series that begins at 1: an alert on it would miss the first time.
            begun = [Series(EXHAUSTED, self._dependency(dependency.name)) for dependency in watched]
            for exporter in exporters:
                exporter.begin(begun)
                exporter.observe((TOKENS, IN_FLIGHT), lambda: gauges_of(watched))

    def renew(self) -> None:
        """Have a lock that nobody holds, in the child of a fork."""
        self._lock = threading.Lock()

    def measure(self, event: CallEvent) -> Sequence[Measurement]:
        match event:
            case Attempted():
                attempt, duration = self._attempts.get(event.operation) or self._attempts_of(event.operation)
                if event.failure is not None:
                    attempt = Measurement(Series(ATTEMPTS, duration.labels, event.failure.value), 1)
                attributes = attributes_of(event) if self._uses_attributes else None
                return attempt, Measurement(duration, event.seconds, attributes)
            case Retrying():
                series = Series(RETRIES, self._operation(event.operation), event.failure.value)
            case GaveUp():
                series = Series(GAVE_UP, self._operation(event.operation), event.reason.value)
            case Exhausted():
                series = Series(EXHAUSTED, self._dependency(event.dependency))
            case _:
                series = Series(TIMEOUT, self._dependency(event.dependency), event.what)
                return (Measurement(series, event.after),)
        return (Measurement(series, 1),)

    def describe(self, event: CallEvent) -> LogLine | None:
        if type(event) is Attempted and event.failure is None:
            return None
        return LogLine(
            logger="holdfast.calls",
            level=level_of(event),
            subject=dependency_of(event),
            event=type(event).__name__,
            words=lambda: in_words(event),
            fields=lambda: fields_of(event),
            every=EXHAUSTED_EVERY if isinstance(event, Exhausted) else 1.0,
            span_event=_SPAN_EVENTS.get(type(event)),
        )

    def _dependency(self, name: str) -> tuple[str]:
        with self._lock:
            return (name if self._dependencies.admits(name) else OTHER,)

    def _operation(self, operation: Operation) -> tuple[str, str]:
        with self._lock:
            if not self._dependencies.admits(operation.service):
                return OTHER, OTHER
            return operation.service, operation.name if self._operations.admits(operation) else OTHER

    def _attempts_of(self, operation: Operation) -> tuple[Measurement, Series]:
        labels = self._operation(operation)
        found = Measurement(Series(ATTEMPTS, labels, SUCCESS), 1), Series(DURATION, labels)
        if labels == (operation.service, operation.name):  # of others, there is no end
            self._attempts[operation] = found
        return found


_SPAN_EVENTS: dict[type, str] = {Retrying: "holdfast.retrying", GaveUp: "holdfast.gave_up"}


def gauges_of(dependencies: "Iterable[Dependency]") -> Iterable[Measurement]:
    """Yield what dependencies have left now."""
    for dependency in dependencies:
        labels = (dependency.name,)
        yield Measurement(Series(TIMEOUT, labels, "attempt"), dependency.timeout)
        yield Measurement(Series(TIMEOUT, labels, "connect"), dependency.connect_timeout)
        yield Measurement(Series(TOKENS, labels), dependency.tokens)
        if dependency.limit is not None:
            yield Measurement(Series(IN_FLIGHT, labels), dependency.in_flight)


def attributes_of(event: Attempted) -> dict[str, AttributeValue]:
    """Return what OpenTelemetry is told of an attempt, beside its operation."""
    attributes: dict[str, AttributeValue] = {}
    if event.status:
        attributes["http.response.status_code"] = event.status
    if event.failure is not None:
        attributes["holdfast.failure"] = str(event.failure)
        attributes["error.type"] = str(event.status or event.code or event.error or event.failure)
    if event.zone is not None:
        attributes["holdfast.zone"] = event.zone
    if event.address is not None:
        attributes |= server_of(event.address)
    return attributes


def server_of(address: str) -> dict[str, AttributeValue]:
    """Return `server.address` and, if it is known, `server.port`, of a URL, or of a host with a port or without."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # the port is no number: whatever this is, it is an address to somebody
        return {"server.address": address}
    attributes: dict[str, AttributeValue] = {"server.address": host or address}
    port = port or {"http": 80, "https": 443}.get(parts.scheme)
    if port is not None:
        attributes["server.port"] = port
    return attributes


def level_of(event: CallEvent) -> int:
    """Return the level of an event in a log."""
    if isinstance(event, Attempted):
        return logging.DEBUG
    is_incident = isinstance(event, Exhausted) or (isinstance(event, GaveUp) and event.reason not in EXPECTED)
    return logging.WARNING if is_incident else logging.INFO


def dependency_of(event: CallEvent) -> str:
    """Return the name of the dependency that an event is about."""
    return event.dependency if isinstance(event, Exhausted | TimeoutChanged) else event.operation.service


def in_words(event: CallEvent) -> str:
    """Return the event as a sentence."""
    match event:
        case Attempted():
            what = event.status or event.code or event.error or "the result"
            return f"{event.operation}: attempt {event.number} failed after {event.seconds:.3f} s: {what}"
        case Retrying():
            return f"{event.operation}: attempt {event.number} in {event.delay:.3f} s, after a failure: {event.failure}"
        case GaveUp():
            attempts = "1 attempt" if event.number == 1 else f"{event.number} attempts"
            return f"{event.operation}: gave up after {attempts} in {event.seconds:.3f} s: {IN_WORDS[event.reason]}"
        case Exhausted():
            return f"{event.dependency}: the retry budget is exhausted; retries trickle until calls succeed again"
        case TimeoutChanged():
            now, before = f"{event.after:.3f} s now", f"{event.before:.3f} s"
            return f"{event.dependency}: the {event.what} timeout is {now}, after {before}"


def fields_of(event: CallEvent) -> dict[str, Any]:
    """Return the event's values by names that no attribute of a log record has; those that are None are left out."""
    fields: dict[str, Any] = {"event": type(event).__name__, "dependency": dependency_of(event)}
    for name in event.__slots__:
        value = getattr(event, name)
        if name == "operation":
            value = value.name
        if value is not None:
            fields[name] = value
    return fields
