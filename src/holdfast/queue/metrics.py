"""The metrics and log lines of queues: a sink that measures producers, workers and watchers."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast._forks import register_after_fork
from holdfast._names import escape_unprintable, format_count
from holdfast.metrics.cardinality import (
    MAX_BUSIEST_NAMES,
    OTHER,
    BusiestNames,
    CardinalityLimit,
    TopNames,
    check_max_busiest,
)
from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import (
    AttributeValue,
    Instrument,
    LogLine,
    Measurement,
    Series,
)
from holdfast.metrics.sink import MetricsSink
from holdfast.queue.alarms import AlarmKind, QueueAlarm, QueueReading
from holdfast.queue.backend import QueueSnapshot
from holdfast.queue.depth import STATES, compute_age, compute_delivery_age, count_tenants_by_state, is_first_attempt
from holdfast.queue.events import (
    AttemptEvent,
    AttemptResult,
    BackendErrorEvent,
    PollEvent,
    QueueObservation,
    SendEvent,
)
from holdfast.queue.instruments import (
    AGE,
    ALARM_OPEN,
    BACKEND_ERRORS,
    BY_TENANT_INSTRUMENTS,
    DETAILS,
    EMPTY,
    FILLED,
    FIRST_ATTEMPT_AGE,
    FIRST_ATTEMPT_WAIT,
    FIRST_SUBSCRIBER_AGE,
    HANDLED,
    HANDLER,
    LANES_IN_USE,
    LEASE_COUNTERS,
    LEFT_OUT,
    MESSAGES,
    OLDEST_AGE,
    POLLS,
    PRODUCER_INSTRUMENTS,
    RECEIVED,
    REFUSED,
    SENT,
    SNAPSHOT_TIMESTAMP,
    SPILLED,
    WORKER_INSTRUMENTS,
)
from holdfast.queue.message import RefusalReason, RefusedMessage

__all__ = ["QueueMetrics"]

MAX_LEFT_OUT = 10_000
"""Queues without series of their own are counted up to this number, because their names take memory."""

_RELEASED = AttemptResult.RELEASED  # a member of an enum is slow to look up
_FAILED = frozenset({AttemptResult.RETRIED, AttemptResult.BURIED})
_ENDING_LEVELS = {
    AttemptResult.RETRIED: logging.INFO,
    AttemptResult.POSTPONED: logging.DEBUG,
    AttemptResult.BURIED: logging.WARNING,
}


class _QueueSeries:
    """The labels of one queue, its tenants with series of their own, and series that are used often."""

    __slots__ = ("begun", "busiest", "deepest", "labels", "listed", "named", "polls", "series")

    def __init__(self, name: str, max_tenants: int) -> None:
        self.labels = (name,)
        self.busiest = BusiestNames(max_tenants)
        self.named = self.busiest.names
        self.deepest = TopNames(max_tenants)
        self.listed: set[str] = set()
        """The tenants of the last snapshot."""
        self.begun: set[tuple[Instrument, ...]] = set()
        """The instruments whose series were started: those of workers, of producers, or both."""
        self.polls = {
            is_empty: Measurement(Series(POLLS, self.labels, result), 1, {"holdfast.empty": is_empty})
            for is_empty, result in ((True, EMPTY), (False, FILLED))
        }
        self.series: dict[str | None, _TenantSeries] = {}
        """Series by tenant, for tenants with series of their own, and `other`. None is the key if no tenant has one."""

    def get_series(self, tenant: str | None) -> "_TenantSeries":
        series = self.series.get(tenant)
        if series is None:
            series = self.series[tenant] = _TenantSeries(self.labels, tenant)
        return series


class _TenantSeries:
    """The series of one tenant of a queue."""

    __slots__ = (
        *("age", "first_attempt_age", "first_subscriber_age", "handled", "handler", "received"),
        *("refused", "sent", "spilled"),
    )

    def __init__(self, labels: tuple[str, ...], tenant: str | None) -> None:
        self.sent = Series(SENT, labels, "", tenant)
        self.spilled = Series(SPILLED, labels, "", tenant)
        self.refused = {reason: Series(REFUSED, labels, reason.value, tenant) for reason in RefusalReason}
        self.received = Series(RECEIVED, labels, "", tenant)
        self.handled = {
            ending: Measurement(Series(HANDLED, labels, ending.value, tenant), 1) for ending in AttemptResult
        }
        self.handler = Series(HANDLER, labels, "", tenant)
        self.age = Series(AGE, labels, "", tenant)
        self.first_attempt_age = Series(FIRST_ATTEMPT_AGE, labels, "", tenant)
        self.first_subscriber_age = Series(FIRST_SUBSCRIBER_AGE, labels, "", tenant)


class QueueMetrics(MetricsSink[QueueObservation]):
    """A sink that measures and logs queues, with one or more exporters: `Worker(work, sink=QueueMetrics(exporter))`.

    Also pass it to a `Queue` or `Topic`, for what is sent and refused, and to a `QueueWatcher`, for depths and alarms.
    In each queue, the `max_tenants` busiest tenants, and as many with the most waiting messages, have series of their
    own; the others are counted as `other`. With 0, tenants are not distinguished. The first 200 queues have series of
    their own; producers and workers of other queues are counted as `other`, and `holdfast.queue.unmonitored` is the
    number of queues without depths and alarms. The series of workers of `queues` begin at 0, so that the first event is
    seen as an increase; `start_producer` does the same for a producer. Depths are the same in every process that
    inspects a queue: use their maximum, not their sum. Thread-safe.
    """

    instruments = (
        *(SENT, REFUSED),
        *WORKER_INSTRUMENTS,
        *(MESSAGES, OLDEST_AGE, LANES_IN_USE, SNAPSHOT_TIMESTAMP, FIRST_ATTEMPT_WAIT, ALARM_OPEN, LEFT_OUT),
    )

    def __init__(self, *exporters: Exporter, queues: Iterable[str] = (), max_tenants: int = MAX_BUSIEST_NAMES) -> None:
        self._max_tenants = check_max_busiest(max_tenants)
        self._first = CardinalityLimit()
        self._queues: dict[str, _QueueSeries] = {}
        self._other = _QueueSeries(OTHER, max_tenants)
        self._left_out: set[str] = set()
        self.reset_after_fork()
        register_after_fork(self)
        super().__init__(*exporters)
        for queue in queues:
            self._begin_series(queue, WORKER_INSTRUMENTS)

    def start_producer(self, queue: str) -> None:
        """Start the series of a producer of `queue` at 0, so that its first refusal is seen as an increase."""
        self._begin_series(queue, PRODUCER_INSTRUMENTS)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def measure(self, event: QueueObservation) -> Sequence[Measurement]:
        match event:
            case SendEvent():
                return self._measure_send(event)
            case AttemptEvent():
                return self._measure_attempt(event)
            case PollEvent():
                return self._measure_poll(event)
            case BackendErrorEvent():
                attributes = {"holdfast.operation": event.operation, "error.type": event.error}
                labels = self._begin_series(event.queue, WORKER_INSTRUMENTS).labels
                return (Measurement(Series(BACKEND_ERRORS, labels, event.operation), 1, attributes),)
            case _:
                names = self._find_series(event.queue)
                if names is self._other:  # a gauge cannot represent several queues
                    return (Measurement(Series(LEFT_OUT), len(self._left_out)),)
                return list(
                    self._measure_depths(event, names)
                    if isinstance(event, QueueSnapshot)
                    else _measure_alarms(event, names.labels)
                )

    def describe(self, event: QueueObservation) -> LogLine | None:
        match event:
            case AttemptEvent() if event.result in _ENDING_LEVELS:
                level, queue, kind = _ENDING_LEVELS[event.result], event.delivery.queue, f"AttemptEvent {event.result}"
            case PollEvent() if event.result.buried:
                level, queue, kind = logging.WARNING, event.queue, "PollEvent"
            case QueueAlarm():
                level, queue, kind = logging.WARNING if event.is_open else logging.INFO, event.queue, "QueueAlarm"
            case _:  # success, or already logged by a worker
                return None
        return LogLine(
            logger="holdfast.queue",
            level=level,
            subject=queue,
            event=kind,
            message=lambda: escape_unprintable(_describe(event)),
            fields=lambda: _fields(event),
            interval=0.0 if isinstance(event, QueueAlarm) else 1.0,
        )

    def _measure_send(self, event: SendEvent) -> Sequence[Measurement]:
        names = self._begin_series(event.queue, PRODUCER_INSTRUMENTS)
        tenants: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        spilled: Counter[str] = Counter()
        refused: Counter[tuple[str, RefusalReason]] = Counter()
        for message, result in zip(event.messages, event.results, strict=True):
            tenants[message.tenant] += 1
            if isinstance(result, RefusedMessage):
                refused[message.tenant, result.reason] += 1
            elif not result.is_duplicate:
                sent[message.tenant] += 1
                if result.is_spilled:
                    spilled[message.tenant] += 1
        self._count_tenants(names, tenants, event.at)
        series = {tenant: self._series(names, tenant) for tenant in tenants}
        return [
            *(Measurement(series[tenant].sent, count) for tenant, count in sent.items()),
            *(Measurement(series[tenant].spilled, count) for tenant, count in spilled.items()),
            *(Measurement(series[tenant].refused[reason], count) for (tenant, reason), count in refused.items()),
        ]

    def _measure_attempt(self, event: AttemptEvent) -> Sequence[Measurement]:
        names, ending = self._begin_series(event.delivery.queue, WORKER_INSTRUMENTS), event.result
        series = self._series(names, event.delivery.tenant)
        handled = series.handled[ending]
        if ending is _RELEASED:  # not finished, so its duration is unknown
            return (handled,)
        attributes: dict[str, AttributeValue] | None = None
        if self._uses_attributes:
            attributes = {"holdfast.result": ending.value}
            if ending in _FAILED:
                attributes["error.type"] = event.error or ending.value
        return handled, Measurement(series.handler, event.seconds, attributes)

    def _measure_poll(self, event: PollEvent) -> Sequence[Measurement]:
        leased, now = event.result, event.at
        names = self._begin_series(event.queue, WORKER_INSTRUMENTS)
        is_empty = event.is_empty
        found = [names.polls[is_empty]]
        if not is_empty:
            counts = Counter([delivery.tenant for delivery in leased.deliveries])
            self._count_tenants(names, counts, now)
            tenants = {tenant: self._series(names, tenant) for tenant in counts}
            found += [Measurement(tenants[tenant].received, count) for tenant, count in counts.items()]
            for delivery in leased.deliveries:
                series, age = tenants[delivery.tenant], compute_delivery_age(delivery, now)
                found.append(Measurement(series.age, age))
                if is_first_attempt(delivery):
                    found.append(Measurement(series.first_attempt_age, age))
                if delivery.is_first_subscriber:
                    found.append(Measurement(series.first_subscriber_age, age))
        if leased.redelivered or leased.dropped or leased.spilled or leased.buried:
            for field, instrument in LEASE_COUNTERS.items():
                count = getattr(leased, field)
                if count:
                    found.append(Measurement(Series(instrument, names.labels), count))
        return found

    def _measure_depths(self, event: QueueSnapshot, names: _QueueSeries) -> Iterator[Measurement]:
        totals, labels = event.totals, names.labels
        for state in STATES:
            yield Measurement(Series(MESSAGES, labels, state), getattr(totals, state))
        yield Measurement(Series(OLDEST_AGE, labels), compute_age(event, totals.oldest_since) or 0.0)
        yield Measurement(Series(LANES_IN_USE, labels), totals.lanes_in_use)
        yield Measurement(Series(SNAPSHOT_TIMESTAMP, labels), event.at)
        if not self._max_tenants:
            return
        with self._lock:
            tenants = count_tenants_by_state(event, names.deepest)
            are_gone = bool(names.listed - tenants.keys())
            names.listed = set(tenants)
        if are_gone:
            self._keep((MESSAGES,), labels, set(tenants))
        for tenant, states in tenants.items():
            for state, count in states.items():
                yield Measurement(Series(MESSAGES, labels, state, tenant), count)

    def _find_series(self, queue: str) -> _QueueSeries:
        names = self._queues.get(queue)
        if names is not None:
            return names
        with self._lock:
            if self._first.admits(queue):
                return self._queues.setdefault(queue, _QueueSeries(queue, self._max_tenants))
            if len(self._left_out) < MAX_LEFT_OUT:
                self._left_out.add(queue)
            return self._other

    def _begin_series(self, queue: str, instruments: tuple[Instrument, ...]) -> _QueueSeries:
        """Return the series of a queue, and start those of the instruments, of workers or producers, at 0."""
        names = self._find_series(queue)
        if instruments not in names.begun:
            names.begun.add(instruments)
            begun = [
                Series(instrument, names.labels, detail)
                for instrument in instruments
                for detail in DETAILS.get(instrument, ("",))
            ]
            for exporter in self.exporters:
                exporter.start_series(begun)
        return names

    def _series(self, names: _QueueSeries, tenant: str) -> _TenantSeries:
        if tenant in names.named:  # the most frequent case, without the lock
            return names.get_series(tenant)
        if not self._max_tenants:
            return names.get_series(None)
        with self._lock:
            return names.get_series(names.busiest.name(tenant))

    def _count_tenants(self, names: _QueueSeries, counts: Counter[str], at: float) -> None:
        if self._max_tenants:
            with self._lock:
                replaced = names.busiest.count(counts, at)
                kept = {*names.named, OTHER}
                for tenant in replaced:
                    names.series.pop(tenant, None)
            if replaced:
                self._keep(BY_TENANT_INSTRUMENTS, names.labels, kept)

    def _keep(self, instruments: Sequence[Instrument], labels: tuple[str, ...], tenants: set[str]) -> None:
        for exporter in self.exporters:
            exporter.keep_only(instruments, labels, tenants)


def _measure_alarms(event: QueueReading | QueueAlarm, labels: tuple[str, ...]) -> Iterator[Measurement]:
    if isinstance(event, QueueAlarm):
        yield Measurement(Series(ALARM_OPEN, labels, event.kind.value), int(event.is_open))
        return
    wait = event.values.get(AlarmKind.FIRST_ATTEMPT_AGE)
    if wait is not None:
        yield Measurement(Series(FIRST_ATTEMPT_WAIT, labels), wait)
    for kind, is_open in event.alarms.items():
        yield Measurement(Series(ALARM_OPEN, labels, kind.value), int(is_open))


def _describe(event: AttemptEvent | PollEvent | QueueAlarm) -> str:
    if isinstance(event, QueueAlarm):
        return event.summary
    if isinstance(event, PollEvent):
        return (
            f"queue {event.queue}: buried {format_count(event.result.buried, 'message')} after repeated deliveries to "
            "workers that probably crashed: look at the dead letters"
        )
    delivery = event.delivery
    reason = event.reason or event.error
    why = f": {reason}" if reason else ""
    return (
        f"queue {delivery.queue}: message {delivery.id} of tenant {delivery.tenant} was {event.result} "
        f"after attempt {delivery.attempt}, in {event.seconds:.3f} s{why}"
    )


def _fields(event: AttemptEvent | PollEvent | QueueAlarm) -> dict[str, Any]:
    """Return the event's values by name, without None. No name is an attribute of a log record."""
    fields: dict[str, Any] = {"event": type(event).__name__, "at": event.at}
    if isinstance(event, QueueAlarm):
        fields |= {name: getattr(event, name) for name in event.__slots__} | {"kind": str(event.kind)}
    elif isinstance(event, PollEvent):
        fields |= {"queue": event.queue, "buried_after_crash": event.result.buried}
    else:
        delivery = event.delivery
        fields |= {"queue": delivery.queue, "tenant": delivery.tenant, "message_id": delivery.id}
        fields |= {"attempt": delivery.attempt, "result": str(event.result), "seconds": event.seconds}
        fields |= {"error": event.error, "exception": event.detail, "job": event.job, "trace": delivery.trace}
    return {name: value for name, value in fields.items() if value is not None}
