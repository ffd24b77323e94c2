"""Every name that a metric is exported by is in the tables of the how-to, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.metrics import OpenTelemetryExporter
from holdfast.queue.alarms import AlarmKind, QueueReading
from holdfast.queue.events import AttemptResult, QueueObservation
from holdfast.queue.instruments import OPERATIONS
from holdfast.queue.message import RefusalReason
from holdfast.queue.metrics import QueueMetrics
from tests.unit.metrics.exporters.test_opentelemetry import Metrics
from tests.unit.queue.made import NOW, Scraped, delivery, handled, lane, polled, sent, snapshot, tenant, trouble
from tests.unit.queue.test_metrics_emf import metrics_of, told

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "queue-operate.md"
OFFERED = 203
"""Queues: more than have names."""


def everything() -> Iterator[QueueObservation]:
    """All that there is a metric for."""
    yield sent("acme", spilled=1)
    yield from (sent("acme", refused=reason) for reason in RefusalReason)
    yield polled(delivery(age=2, first_subscriber=True), redelivered=1, dropped=1, spilled=1, buried=1)
    yield polled()
    yield from (handled(ending) for ending in AttemptResult)
    yield trouble()
    yield snapshot(
        lane(1, ready=1, leased=1, delayed=1, dead=1),
        lane(-1, ready=1),
        tenants=[tenant("acme", ready=1, spilled=1, leased=1, dead=1)],
    )
    yield QueueReading(
        queue="mail", at=NOW, values={AlarmKind.FIRST_ATTEMPT_AGE: 1.0}, alarms={AlarmKind.DEAD_LETTERS: True}
    )
    yield from (snapshot(queue=f"q{number}") for number in range(OFFERED))


def documented(table: str) -> dict[str, str]:
    """The names in the first column of a table, and all else that its row says."""
    after = PAGE.read_text().split(f"\n| {table} |", 1)[1]
    rows = re.findall(r"^\| `([^`]+)`( \*)? \|(.*)$", after.split("\n\n", 1)[0], re.MULTILINE)
    return {name: mark + rest for name, mark, rest in rows}


def test_those_of_prometheus() -> None:
    metrics = Scraped()
    for event in everything():
        metrics.emit(event)
    families = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(metrics.render())
    }
    rows = documented("Prometheus")
    assert rows.keys() == families.keys()
    for name, family in families.items():
        kind, labels = (cell.strip() for cell in rows[name].split("|")[:2])
        used = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert kind.partition(",")[0] == family.type
        assert set(re.findall("`([^`]+)`", re.sub(r"\(.*?\)", "", labels))) == used


def test_all_operations_that_can_fail_are_named() -> None:
    labels = documented("Prometheus")["holdfast_queue_backend_errors_total"].split("|")[1]
    assert tuple(re.findall("`([^`]+)`", labels)) == ("queue", "operation", *OPERATIONS)


def test_those_of_cloudwatch() -> None:
    lines = told(*everything())
    rows = documented("CloudWatch")
    units = {name: unit for line in lines for name, unit in metrics_of(line).items()}
    of_tenants = {name for line in lines if "Tenant" in line for name in metrics_of(line)}
    assert {name: row.split("|")[0].strip(" *") for name, row in rows.items()} == units
    assert {name for name, row in rows.items() if "*" in row} == of_tenants


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics()
    yield metrics
    metrics.provider.shutdown()


def test_those_of_opentelemetry(metrics: Metrics) -> None:
    sink = QueueMetrics(OpenTelemetryExporter(metrics.meter))
    for event in everything():
        sink.emit(event)
    rows, read = documented("OpenTelemetry"), metrics.read()
    assert rows.keys() == read.keys()
    for name, points in read.items():
        used = {attribute for attributes, _ in points for attribute in attributes}
        assert ("holdfast.tenant" in used) == ("*" in rows[name])
        further = rows[name].split("|")[1]
        assert set(re.findall("`([^`]+)`", further)) == used - {"holdfast.tenant", "messaging.destination.name"}
