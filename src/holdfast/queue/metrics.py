"""The metrics and log lines of queues: instruments, and a sink that measures producers, workers and watchers."""

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
    InstrumentType,
    Label,
    LogLine,
    Measurement,
    Series,
    powers_of_two,
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
from holdfast.queue.message import RefusalReason, RefusedMessage

__all__ = ["QueueMetrics"]

MAX_LEFT_OUT = 10_000
"""Queues without series of their own are counted up to this number, because their names take memory."""

QUEUE, TENANT = Label("queue", "messaging.destination.name"), Label("tenant")
EMPTY, FILLED = "empty", "filled"
OPERATIONS = ("lease", "settle", "extend", "sweep", "inspect")
"""The operations that workers and watchers repeat if the backend is unavailable."""
_AGE_BUCKETS = powers_of_two(-6, 18, 2)  # they include a second, about a minute, an hour, and three days
_ENDED = {
    ending.value: ("LeasesLost" if ending is AttemptResult.LEASE_LOST else f"Messages{ending.value.capitalize()}",)
    for ending in AttemptResult
}
_WORKER_COUNTS = (
    *("Polls", "NumberOfEmptyReceives", "NumberOfMessagesReceived"),
    *(name for names in _ENDED.values() for name in names),
    *("MessagesRedelivered", "MessagesDropped", "MessagesSpilled", "MessagesBuriedAfterCrash"),
)
_REFUSED = {
    RefusalReason.MAX_RATE: ("MessagesRefusedForMaxRate",),
    RefusalReason.MAX_WAITING: ("MessagesRefusedForMaxWaiting",),
}
_PRODUCER_COUNTS = ("NumberOfMessagesSent", "MessagesSpilled", *(name for names in _REFUSED.values() for name in names))


def _counter(name: str, description: str, unit: str, **more: Any) -> Instrument:
    labels = (QUEUE,)
    return Instrument(type=InstrumentType.COUNTER, name=name, description=description, unit=unit, labels=labels, **more)


def _histogram(name: str, description: str, **more: Any) -> Instrument:
    return Instrument(
        type=InstrumentType.HISTOGRAM,
        name=name,
        description=description,
        unit="s",
        labels=(QUEUE,),
        breakdown=TENANT,
        **more,
    )


def _gauge(name: str, description: str, unit: str, **more: Any) -> Instrument:
    options = {"labels": (QUEUE,), **more}
    return Instrument(type=InstrumentType.GAUGE, name=name, description=description, unit=unit, **options)


SENT = _counter(
    "messaging.client.sent.messages",
    "Messages that producers sent and that were stored.",
    "{message}",
    breakdown=TENANT,
    constants={"messaging.system": "holdfast", "messaging.operation.name": "send"},
    prometheus_name="holdfast_queue_sent_total",
    cloudwatch_names={"": ("NumberOfMessagesSent",)},
    cloudwatch_zeros=_PRODUCER_COUNTS,
)
REFUSED = _counter(
    "holdfast.queue.refused",
    "Messages that producers sent and that were refused.",
    "{message}",
    detail=Label("reason"),
    breakdown=TENANT,
    cloudwatch_names=_REFUSED,
    cloudwatch_zeros=_PRODUCER_COUNTS,
)
SPILLED = _counter(
    "holdfast.queue.spilled",
    "Messages moved to their tenants' overflow lanes, while sending or leasing.",
    "{message}",
    breakdown=TENANT,
    cloudwatch_names={"": ("MessagesSpilled",)},
)
POLLS = _counter(
    "holdfast.queue.polls",
    "Requests of workers for messages.",
    "{poll}",
    detail=Label("result"),
    cloudwatch_names={EMPTY: ("Polls", "NumberOfEmptyReceives"), FILLED: ("Polls",)},
    cloudwatch_zeros=(*_WORKER_COUNTS, "BackendErrors"),
    cloudwatch_shares={EMPTY: "EmptyPollRatio"},
)
RECEIVED = _counter(
    "messaging.client.consumed.messages",
    "Messages leased to workers.",
    "{message}",
    breakdown=TENANT,
    constants={"messaging.system": "holdfast", "messaging.operation.name": "receive"},
    prometheus_name="holdfast_queue_received_total",
    cloudwatch_names={"": ("NumberOfMessagesReceived",)},
)
HANDLED = _counter(
    "holdfast.queue.handled",
    "Attempts to handle a message that have ended.",
    "{message}",
    detail=Label("result"),
    breakdown=TENANT,
    in_opentelemetry=False,  # the duration counts them, too
    cloudwatch_names=_ENDED,
    cloudwatch_zeros=_WORKER_COUNTS,
)
LEASE_COUNTERS = {
    "redelivered": _counter(
        "holdfast.queue.redelivered",
        "Messages made ready again because their leases had expired.",
        "{message}",
        cloudwatch_names={"": ("MessagesRedelivered",)},
    ),
    "dropped": _counter(
        "holdfast.queue.dropped",
        "Messages dropped because they were older than their ttl.",
        "{message}",
        cloudwatch_names={"": ("MessagesDropped",)},
    ),
    "spilled": SPILLED,
    "buried": _counter(
        "holdfast.queue.buried_after_crash",
        "Messages buried because their leases expired too often.",
        "{message}",
        cloudwatch_names={"": ("MessagesBuriedAfterCrash",)},
    ),
}
"""Instruments by the field of `LeaseResult` that they count."""
BACKEND_ERRORS = _counter(
    "holdfast.queue.backend_errors",
    "Times the backend could not be reached.",
    "{time}",
    detail=Label("operation"),
    cloudwatch_names={"": ("BackendErrors",)},
)
HANDLER = _histogram(
    "messaging.process.duration",
    "Seconds that handlers took.",
    constants={"messaging.system": "holdfast", "messaging.operation.name": "process"},
    # The boundaries that the conventions of OpenTelemetry recommend.
    boundaries=(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    buckets=powers_of_two(-8, 10),  # 4 ms to 17 minutes, which only background work may take
    prometheus_name="holdfast_queue_handler_seconds",
    cloudwatch_names={"": ("HandlerLatency",)},
    cloudwatch_unit="Milliseconds",
)
AGE, FIRST_ATTEMPT_AGE, FIRST_SUBSCRIBER_AGE = (
    _histogram(f"holdfast.queue.{name}", description, buckets=_AGE_BUCKETS, cloudwatch_names={"": (cloudwatch,)})
    for name, description, cloudwatch in (
        ("age", "Age of messages when they were received.", "AgeOnReceipt"),
        ("first_attempt.age", "Age at the first attempt.", "AgeOfFirstAttempt"),
        (
            "first_subscriber.age",
            "Age at the first attempt of the first subscriber.",
            "AgeOfFirstSubscriberFirstAttempt",
        ),
    )
)
MESSAGES = _gauge(
    "holdfast.queue.messages",
    "Messages in the queue, each in one state.",
    "{message}",
    detail=Label("state"),
    breakdown=TENANT,
    cloudwatch_names={
        "ready": ("ApproximateNumberOfMessagesVisible",),
        "spilled": ("ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesSpilled"),
        "leased": ("ApproximateNumberOfMessagesNotVisible",),
        "delayed": ("ApproximateNumberOfMessagesDelayed",),
        "dead": ("DeadLetters",),
    },
)
OLDEST_AGE = _gauge(
    "holdfast.queue.oldest_age",
    "Age of the oldest waiting message; 0 if none waits.",
    "s",
    cloudwatch_names={"": ("ApproximateAgeOfOldestMessage",)},
)
LANES_IN_USE = _gauge(
    "holdfast.queue.lanes_in_use",
    "Lanes that are not empty.",
    "{lane}",
    prometheus_name="holdfast_queue_lanes_in_use",
    cloudwatch_names={"": ("LanesInUse",)},
)
SNAPSHOT_TIMESTAMP = _gauge(
    "holdfast.queue.snapshot.timestamp", "When the queue was last inspected.", "s", in_opentelemetry=False
)
# Alarms are not exported to CloudWatch and OpenTelemetry, which have alarms of their own.
FIRST_ATTEMPT_WAIT = _gauge(
    "holdfast.queue.first_attempt.wait",
    "Seconds new work waits for its first attempt, as the alarm computes it.",
    "s",
    in_opentelemetry=False,
)
ALARM_OPEN = _gauge(
    "holdfast.queue.alarm_open",
    "Whether an alarm on the queue is open.",
    "",
    detail=Label("alarm"),
    in_opentelemetry=False,
)
LEFT_OUT = _gauge(
    "holdfast.queue.unmonitored",
    "Queues without depths and alarms, because there are too many queues.",
    "{queue}",
    labels=(),
    cloudwatch_names={"": ("QueuesNotMonitored",)},
)
_WORKER = (
    POLLS,
    RECEIVED,
    HANDLED,
    *LEASE_COUNTERS.values(),
    BACKEND_ERRORS,
    HANDLER,
    AGE,
    FIRST_ATTEMPT_AGE,
    FIRST_SUBSCRIBER_AGE,
)
_PRODUCER = (SENT, REFUSED, SPILLED)
_BY_TENANT = tuple(instrument for instrument in (SENT, REFUSED, *_WORKER) if instrument.breakdown is not None)
_DETAILS: dict[Instrument, tuple[str, ...]] = {
    POLLS: (EMPTY, FILLED),
    HANDLED: tuple(_ENDED),
    BACKEND_ERRORS: OPERATIONS,
    REFUSED: tuple(reason.value for reason in RefusalReason),
}
"""The details with which series start."""
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
        *_WORKER,
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
            self._begin_series(queue, _WORKER)

    def start_producer(self, queue: str) -> None:
        """Start the series of a producer of `queue` at 0, so that its first refusal is seen as an increase."""
        self._begin_series(queue, _PRODUCER)

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
                labels = self._begin_series(event.queue, _WORKER).labels
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
        names = self._begin_series(event.queue, _PRODUCER)
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
        names, ending = self._begin_series(event.delivery.queue, _WORKER), event.result
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
        names = self._begin_series(event.queue, _WORKER)
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
                for detail in _DETAILS.get(instrument, ("",))
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
                self._keep(_BY_TENANT, names.labels, kept)

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
