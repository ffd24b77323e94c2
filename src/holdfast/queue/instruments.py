"""The instruments of queues: what is counted, under which names, with which labels."""

from typing import Any

from holdfast.metrics.instruments import Instrument, InstrumentType, Label, powers_of_two
from holdfast.queue.events import AttemptResult
from holdfast.queue.message import RefusalReason

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
WORKER_INSTRUMENTS = (
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
PRODUCER_INSTRUMENTS = (SENT, REFUSED, SPILLED)
BY_TENANT_INSTRUMENTS = tuple(
    instrument for instrument in (SENT, REFUSED, *WORKER_INSTRUMENTS) if instrument.breakdown is not None
)
DETAILS: dict[Instrument, tuple[str, ...]] = {
    POLLS: (EMPTY, FILLED),
    HANDLED: tuple(_ENDED),
    BACKEND_ERRORS: OPERATIONS,
    REFUSED: tuple(reason.value for reason in RefusalReason),
}
"""The details with which series start."""
