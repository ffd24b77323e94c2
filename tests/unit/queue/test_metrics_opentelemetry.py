from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.metrics import OpenTelemetryExporter
from holdfast.queue.alarms import AlarmKind, QueueAlarm
from holdfast.queue.events import AttemptResult
from holdfast.queue.metrics import QueueMetrics
from tests.unit.metrics.exporters.test_opentelemetry import Metrics
from tests.unit.queue.made import NOW, delivery, handled, lane, polled, snapshot, tenant, trouble

RECEIVE = {
    "messaging.system": "holdfast",
    "messaging.destination.name": "mail",
    "messaging.operation.name": "receive",
}
PROCESS = RECEIVE | {"messaging.operation.name": "process", "holdfast.tenant": "acme"}
QUEUE = {"messaging.destination.name": "mail"}
ACME = QUEUE | {"holdfast.tenant": "acme"}


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics()
    yield metrics
    metrics.provider.shutdown()


def test_a_poll_is_counted_by_the_conventions_for_messaging(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    sink.emit(polled(delivery(age=2), delivery(age=40, attempt=2), delivery(age=3, first_subscriber=True)))
    sink.emit(polled(redelivered=1, dropped=2, spilled=3, buried=4))
    assert metrics.read() == {
        "messaging.client.consumed.messages": [(RECEIVE | {"holdfast.tenant": "acme"}, 3)],
        "holdfast.queue.polls": [(QUEUE | {"holdfast.empty": False}, 1), (QUEUE | {"holdfast.empty": True}, 1)],
        "holdfast.queue.age": [(ACME, 45)],
        "holdfast.queue.first_attempt.age": [(ACME, 5)],
        "holdfast.queue.first_subscriber.age": [(ACME, 3)],
        "holdfast.queue.redelivered": [(QUEUE, 1)],
        "holdfast.queue.dropped": [(QUEUE, 2)],
        "holdfast.queue.spilled": [(QUEUE, 3)],
        "holdfast.queue.buried_after_crash": [(QUEUE, 4)],
    }


@pytest.mark.parametrize(
    ("ending", "error", "more"),
    [
        (AttemptResult.ACKED, None, {}),
        (AttemptResult.POSTPONED, "Postpone", {}),
        (AttemptResult.RETRIED, "ValueError", {"error.type": "ValueError"}),
        (AttemptResult.BURIED, None, {"error.type": "buried"}),
    ],
)
def test_a_handler_is_a_duration(
    metrics: Metrics, ending: AttemptResult, error: str | None, more: dict[str, Any]
) -> None:
    QueueMetrics(OpenTelemetryExporter(metrics.meter)).emit(handled(ending, error=error))
    assert metrics.read() == {"messaging.process.duration": [(PROCESS | {"holdfast.result": str(ending)} | more, 0.25)]}


def test_what_was_handed_back_has_no_duration_and_alarms_are_left_to_others(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    sink.emit(handled(AttemptResult.RELEASED))
    sink.emit(QueueAlarm(queue="mail", kind=AlarmKind.OLDEST_AGE, is_open=True, at=1, value=4, threshold=1, since=1))
    sink.emit(trouble())
    assert metrics.read() == {
        "holdfast.queue.backend_errors": [
            (QUEUE | {"holdfast.operation": "lease", "error.type": "EngineUnavailable"}, 1)
        ]
    }


def test_the_depth_is_that_of_the_last_look(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    sink.emit(
        snapshot(lane(1, ready=5, leased=2, age=30), lane(-1, ready=9), tenants=[tenant("acme", ready=3, spilled=1)])
    )
    read = metrics.read()
    assert {found["holdfast.state"]: value for found, value in read["holdfast.queue.messages"]} == {
        "ready": 5,
        "spilled": 9,
        "leased": 2,
        "delayed": 0,
        "dead": 0,
    }
    assert read["holdfast.queue.oldest_age"] == [(QUEUE, 30)]
    assert read["holdfast.queue.lanes_in_use"] == [(QUEUE, 2)]
    tenants = {
        (found["holdfast.tenant"], found["holdfast.state"]): value
        for found, value in read["holdfast.queue.tenant.messages"]
    }
    assert (tenants["acme", "ready"], tenants["acme", "spilled"], tenants["other", "ready"]) == (3, 1, 2)


def test_a_tenant_that_has_nothing_left_is_told_as_nothing(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    sink.emit(snapshot(lane(1, ready=5), tenants=[tenant("acme", ready=5)]))
    sink.emit(snapshot())
    read = metrics.read()["holdfast.queue.tenant.messages"]
    assert {found["holdfast.tenant"] for found, _ in read} == {"acme", "other"}
    assert [value for _, value in read] == [0] * 10


def test_tenants_need_not_be_told_apart(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter), max_tenants=0)
    sink.emit(polled(delivery()))
    sink.emit(handled())
    sink.emit(snapshot(lane(1, ready=5), tenants=[tenant("acme", ready=5)]))
    read = metrics.read()
    assert "holdfast.queue.tenant.messages" not in read
    assert not any("holdfast.tenant" in found for points in read.values() for found, _ in points)


def test_ten_thousand_tenants_have_twenty_names(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    for number in range(0, 10_000, 100):
        sink.emit(polled(*(delivery(f"tenant {number + each}") for each in range(100)), at=NOW + number / 10))
    found = metrics.read()["messaging.client.consumed.messages"]
    assert len(found) == 21
    assert sum(value for _, value in found) == 10_000


def test_tenants_that_take_turns_have_a_bounded_number_of_names(metrics: Metrics) -> None:
    """What was named once is kept by OpenTelemetry for as long as the process runs."""
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter, max_breakdown_values=15), max_tenants=3)
    for minute in range(60):
        names = [f"tenant {3 * minute + each}" for each in range(3)]
        for _ in range(3):
            sink.emit(polled(*(delivery(name) for name in names for _ in range(20)), at=NOW + 61 * minute))
        tenants = [tenant(name, ready=1000) for name in names]
        sink.emit(snapshot(lane(1, ready=3000), tenants=tenants, at=NOW + 61 * minute))
    read = metrics.read()
    for metric in ("messaging.client.consumed.messages", "holdfast.queue.age", "holdfast.queue.tenant.messages"):
        names_seen = {found["holdfast.tenant"] for found, _ in read[metric]}
        assert 3 < len(names_seen) <= 15 + 1
    assert sum(value for _, value in read["messaging.client.consumed.messages"]) == 60 * 3 * 60


def test_no_depth_stands_for_several_queues(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    for number in range(203):
        sink.emit(snapshot(lane(1, ready=number), queue=f"q{number}"))
    read = metrics.read()
    assert {found["messaging.destination.name"] for found, _ in read["holdfast.queue.lanes_in_use"]} == {
        f"q{number}" for number in range(200)
    }
    assert read["holdfast.queue.unmonitored"] == [({}, 3)]
