import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Operation, Zone
from holdfast.calls import Dependency, FailureKind, Limit
from holdfast.calls.events import AttemptEnded, BudgetExhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.metrics import CallMetrics, parse_server
from holdfast.calls.retry import GiveUpReason
from holdfast.metrics import OpenTelemetryExporter
from holdfast.testing.calls import Faults, instant_calls
from tests.table import rows
from tests.unit.forked import in_child

PRICE = Operation("pricing", "price")
NAMED = {"holdfast.dependency": "pricing", "holdfast.operation": "price"}


def measured(point: Any) -> float:
    value: float = point.sum if hasattr(point, "sum") else point.value
    return value


class Metrics:
    """A real meter, and what it has measured."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.meter = self.provider.get_meter("test")

    def read(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: [(dict(point.attributes or {}), measured(point)) for point in metric.data.data_points]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics()
    yield metrics
    metrics.provider.shutdown()


def test_an_attempt_is_a_duration_with_the_attributes_of_the_conventions(metrics: Metrics) -> None:
    CallMetrics(OpenTelemetryExporter(metrics.meter)).emit(
        AttemptEnded(
            operation=PRICE,
            at=1.0,
            number=1,
            seconds=0.25,
            failure=FailureKind.TRANSIENT,
            status=503,
            error="HTTPStatusError",
            zone=Zone("use1-az1"),
            address="https://10.0.1.7:8443/v1",
        )
    )
    assert metrics.read() == {
        "holdfast.call.attempt.duration": [
            (
                NAMED
                | {
                    "http.response.status_code": 503,
                    "error.type": "503",
                    "holdfast.failure": "transient",
                    "holdfast.zone": "use1-az1",
                    "server.address": "10.0.1.7",
                    "server.port": 8443,
                },
                0.25,
            )
        ]
    }


def test_success_has_no_error_type(metrics: Metrics) -> None:
    CallMetrics(OpenTelemetryExporter(metrics.meter)).emit(
        AttemptEnded(operation=PRICE, at=1.0, number=1, seconds=0.25)
    )
    assert metrics.read() == {"holdfast.call.attempt.duration": [(NAMED, 0.25)]}


@pytest.mark.parametrize(
    ("status", "code", "error", "expected"),
    [
        (None, "ThrottlingException", "ClientError", "ThrottlingException"),
        (0, None, "ReadTimeout", "ReadTimeout"),
        (None, None, None, "timeout"),
    ],
)
def test_the_error_type_is_the_most_telling_that_is_known(
    metrics: Metrics, status: int | None, code: str | None, error: str | None, expected: str
) -> None:
    CallMetrics(OpenTelemetryExporter(metrics.meter)).emit(
        AttemptEnded(
            operation=PRICE,
            at=1.0,
            number=1,
            seconds=1.0,
            failure=FailureKind.TIMEOUT,
            status=status,
            code=code,
            error=error,
        )
    )
    [(attributes, _)] = metrics.read()["holdfast.call.attempt.duration"]
    assert attributes["error.type"] == expected
    assert "http.response.status_code" not in attributes


def test_retries_giving_up_budgets_and_timeouts_are_there_too(metrics: Metrics) -> None:
    sink = CallMetrics(OpenTelemetryExporter(metrics.meter))
    sink.emit(Retrying(operation=PRICE, at=1.0, number=2, delay=0.1, failure=FailureKind.UNSENT))
    sink.emit(GaveUp(operation=PRICE, at=1.0, attempts=3, reason=GiveUpReason.BUDGET, seconds=1.0))
    sink.emit(BudgetExhausted(dependency="pricing", at=1.0, tokens=0.0))
    sink.emit(TimeoutChanged(dependency="pricing", at=1.0, timeout="connect", before=5.0, after=0.5, samples=5000))
    assert metrics.read() == {
        "holdfast.call.retries": [(NAMED | {"holdfast.failure": "unsent"}, 1)],
        "holdfast.call.gave_up": [(NAMED | {"holdfast.reason": "budget"}, 1)],
        "holdfast.call.budget.exhausted": [({"holdfast.dependency": "pricing"}, 1)],
        "holdfast.call.timeout": [({"holdfast.dependency": "pricing", "holdfast.timeout": "connect"}, 0.5)],
    }


def test_what_dependencies_have_left_is_read_when_it_is_exported(metrics: Metrics) -> None:
    exporter = OpenTelemetryExporter(metrics.meter)
    with instant_calls():
        CallMetrics(exporter, dependencies=[Dependency("pricing", limit=Limit(3))])
        CallMetrics(exporter, dependencies=[Dependency("stock")])  # the same instruments, once more
        assert metrics.read() == {
            "holdfast.call.budget.tokens": [
                ({"holdfast.dependency": "pricing"}, 500),
                ({"holdfast.dependency": "stock"}, 500),
            ],
            "holdfast.call.in_flight": [({"holdfast.dependency": "pricing"}, 0)],
        }


@rows(
    ("address", "expected"),
    [
        ("10.0.1.7", {"server.address": "10.0.1.7"}),
        ("10.0.1.7:8080", {"server.address": "10.0.1.7", "server.port": 8080}),
        ("[::1]:8080", {"server.address": "::1", "server.port": 8080}),
        ("https://shop.example", {"server.address": "shop.example", "server.port": 443}),
        ("http://shop.example/v1", {"server.address": "shop.example", "server.port": 80}),
        ("worker:seven", {"server.address": "worker:seven"}),
        ("unix:///run/x.sock", {"server.address": "unix:///run/x.sock"}),
        ("", {"server.address": ""}),
    ],
)
def test_an_address_is_a_host_and_if_it_is_known_a_port(address: str, expected: dict[str, str | int]) -> None:
    assert parse_server(address) == expected


@pytest.mark.parametrize("wanted", [True, False])
def test_retries_and_giving_up_are_events_of_the_span_that_calls_if_wanted(metrics: Metrics, wanted: bool) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with instant_calls(), Faults() as faults, provider.get_tracer("test").start_as_current_span("buy"):
        pricing = Dependency("pricing", sink=CallMetrics(OpenTelemetryExporter(metrics.meter, span_events=wanted)))
        faults.on("pricing").fail(ConnectionResetError)
        with pytest.raises(ConnectionResetError):
            pricing.run(lambda: None, idempotent=True, operation="price")
    [span] = spans.get_finished_spans()
    told = [(event.name, dict(event.attributes or {})) for event in span.events if event.name.startswith("holdfast")]
    assert [name for name, _ in told] == (["holdfast.retrying"] * 2 + ["holdfast.gave_up"]) * wanted
    for name, attributes in told:
        assert attributes.items() >= NAMED.items()
        assert ("holdfast.delay" in attributes) == (name == "holdfast.retrying")
    provider.shutdown()


def test_without_a_span_there_is_nothing_to_add_events_to(metrics: Metrics) -> None:
    assert not trace.get_current_span().is_recording()
    sink = CallMetrics(OpenTelemetryExporter(metrics.meter, span_events=True))
    sink.emit(Retrying(operation=PRICE, at=1.0, number=2, delay=0.1, failure=FailureKind.UNSENT))
    assert "holdfast.call.retries" in metrics.read()


def test_operations_with_endless_names_share_one_series(metrics: Metrics) -> None:
    sink = CallMetrics(OpenTelemetryExporter(metrics.meter), max_operations=2)
    for number in range(50):
        operation = Operation("pricing", f"price of {number}")
        sink.emit(AttemptEnded(operation=operation, at=1.0, number=1, seconds=1.0))
        sink.emit(Retrying(operation=operation, at=1.0, number=2, delay=0.1, failure=FailureKind.UNSENT))
        sink.emit(GaveUp(operation=operation, at=1.0, attempts=3, reason=GiveUpReason.BUDGET, seconds=1.0))
        sink.emit(BudgetExhausted(dependency=f"d{number}", at=1.0, tokens=0.0))
    read = metrics.read()
    for name in ("attempt.duration", "retries", "gave_up"):
        assert [(found["holdfast.operation"], value) for found, value in read[f"holdfast.call.{name}"]] == [
            ("price of 0", 1),
            ("price of 1", 1),
            ("other", 48),
        ]
    dependencies = {found["holdfast.dependency"]: value for found, value in read["holdfast.call.budget.exhausted"]}
    assert dependencies == {"d0": 1, "other": 49}


def test_the_lock_of_the_parent_does_not_stop_a_forked_child(metrics: Metrics) -> None:
    exporter = OpenTelemetryExporter(metrics.meter)
    sink = CallMetrics(exporter)
    with exporter._lock, sink._lock:
        in_child(lambda: not exporter._lock.locked() and sink._operation_labels(PRICE) == ("pricing", "price"))


def test_without_a_meter_it_is_the_global_one() -> None:
    CallMetrics(OpenTelemetryExporter()).emit(AttemptEnded(operation=PRICE, at=1.0, number=1, seconds=0.25))


def test_without_the_extra_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import holdfast, holdfast.metrics\n"
        "try: holdfast.metrics.OpenTelemetryExporter()\n"
        "except holdfast.MissingExtra as error: print(error)"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert "the OpenTelemetry exporter needs the extra 'opentelemetry'" in told
