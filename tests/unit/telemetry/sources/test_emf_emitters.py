"""Documents of emitters that others wrote, read back number for number."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from aws_embedded_metrics.config import get_config
from aws_embedded_metrics.logger.metrics_logger import MetricsLogger
from aws_embedded_metrics.metric_scope import metric_scope
from aws_embedded_metrics.storage_resolution import StorageResolution
from aws_lambda_powertools.metrics import Metrics, MetricUnit, single_metric

from holdfast import Operation, Side, Zone
from holdfast.telemetry import Bin, BinKey
from holdfast.telemetry.source import SourceBatch, SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder
from holdfast.telemetry.sources.emf_mapping import EmfMapping
from tests.support.emf import all_deltas

SHOP = SourceWorkload("shop", frozenset({Zone("use1-az1")}))
AHEAD = 4e9
"""Later than the clock of the emitters, which no test sets."""
LATENCIES = [random.Random(5).lognormvariate(3, 1) for _ in range(250)]


def decode(output: str, mapping: EmfMapping) -> SourceBatch:
    return EmfDecoder([SHOP], [mapping]).decode(output.encode(), AHEAD)


def total(batch: SourceBatch, key: BinKey) -> Bin:
    """All that a batch has of one series, which may be spread over two bins."""
    assert batch.problem is None
    found = Bin()
    for delta in all_deltas(batch):
        assert delta.key == key
        found.merge(delta.measured)
    return found


def key(service: str, name: str, instance: str = "") -> BinKey:
    return BinKey("shop", Operation(service, name), Zone("use1-az1"), instance, Side.SERVER)


@pytest.fixture
def embedded_metrics() -> Iterator[None]:
    """aws-embedded-metrics as in a Lambda function, where it writes to standard output."""
    config = get_config()
    before = dict(vars(config))
    config.environment, config.service_name, config.log_group_name = "Local", "frontend", "shop-log"
    yield
    vars(config).update(before)


@pytest.mark.usefixtures("embedded_metrics")
def test_aws_embedded_metrics_with_its_default_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    @metric_scope
    def handle(metrics: MetricsLogger) -> None:
        metrics.set_namespace("Shop")
        metrics.put_dimensions({"Operation": "Index", "AZ-ID": "use1-az1", "InstanceId": "i-1"})
        metrics.put_dimensions({"Operation": "Index"})
        metrics.put_metric("Requests", len(LATENCIES), "Count")
        metrics.put_metric("Errors", 7, "Count")
        for latency in LATENCIES:
            metrics.put_metric("Latency", latency, "Milliseconds", StorageResolution.HIGH)
        metrics.put_metric("Heap", 5, "Megabytes")
        metrics.set_property("RequestPath", "/home")

    handle()  # type: ignore[call-arg]  # the scope passes the logger
    output = capsys.readouterr().out
    documents = [json.loads(line) for line in output.splitlines()]
    assert len(documents) == 3, "an array has at most 100 values"
    assert {"LogGroup", "ServiceName", "ServiceType"} <= documents[0].keys()
    mapping = EmfMapping(
        namespace="Shop",
        workload="shop",
        service="ServiceName",
        operation="Operation",
        instance="InstanceId",
        counts={"total": "Requests", "faults": "Errors"},
        latency={"all": "Latency"},
    )
    batch = decode(output, mapping)
    assert batch.accepted == 3
    measured = total(batch, key("frontend", "Index", "i-1"))
    assert (measured.count_2xx, measured.count_5xx, measured.faults) == (len(LATENCIES) - 7, 7, 7)
    assert measured.success_seconds.count == len(LATENCIES)
    assert measured.success_seconds.sum == pytest.approx(sum(LATENCIES) / 1000)
    extremes = min(LATENCIES) / 1000, max(LATENCIES) / 1000
    assert (measured.success_seconds.min, measured.success_seconds.max) == pytest.approx(extremes)


def test_powertools_with_its_service_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(namespace="Shop", service="frontend")
    for latency in LATENCIES:
        metrics.add_dimension("Operation", "Index")
        metrics.add_dimension("AZ-ID", "use1-az1")
        metrics.add_metric("Success", MetricUnit.Count, 1)
        metrics.add_metric("Took", MetricUnit.Seconds, latency / 1000)
    metrics.add_metric("Failure", MetricUnit.Count, 2)
    metrics.flush_metrics()
    with single_metric("ColdStart", MetricUnit.Count, 1, namespace="Shop") as cold_start:
        cold_start.add_dimension("service", "frontend")
    output = capsys.readouterr().out
    documents = [json.loads(line) for line in output.splitlines()]
    assert isinstance(documents[0]["Success"], list)
    assert any("ColdStart" in document for document in documents)
    mapping = EmfMapping(
        namespace="Shop",
        workload="shop",
        service="service",
        operation="Operation",
        counts={"2xx": "Success", "5xx": "Failure"},
        latency={"success": "Took"},
    )
    batch = decode(output, mapping)
    assert batch.refused == {"no_requests": 1}, "that of the cold start"
    batch.problem = None
    measured = total(batch, key("frontend", "Index"))
    assert (measured.count_2xx, measured.count_5xx) == (len(LATENCIES), 2)
    assert measured.success_seconds.count == len(LATENCIES)
    assert measured.success_seconds.sum == pytest.approx(sum(LATENCIES) / 1000)


def collector_document(metrics: dict[str, Any], units: dict[str, str], **labels: str) -> dict[str, Any]:
    """A document as OpenTelemetry's exporter writes it: with the rollup of 2023, in random order, with `OTelLib`."""
    labels = {"OTelLib": "io.opentelemetry.http", **labels}
    names = sorted(labels)
    sets = [names, [], *([name] for name in names), ["OTelLib", names[0]]]
    declared = [{"Name": name, **({"Unit": units[name]} if name in units else {})} for name in metrics]
    random.Random(1).shuffle(sets)
    found = {
        "_aws": {
            "CloudWatchMetrics": [{"Namespace": "Collector", "Dimensions": sets, "Metrics": declared}],
            "Timestamp": 1_767_323_045_500,
        },
        **labels,
        **metrics,
    }
    order = list(found.items())
    random.Random(2).shuffle(order)
    return dict(order)


HTTP = EmfMapping(
    namespace="Collector",
    workload="shop",
    service="service.name",
    operation="http.route",
    zone="cloud.zone.id",
    instance="host.id",
    status="http.response.status_code",
    latency={"all": "http.server.request.duration"},
)
LABELS = {
    "service.name": "frontend",
    "http.route": "/cart/{id}",
    "cloud.zone.id": "use1-az1",
    "host.id": "i-1",
}


def split(values: list[float], counts: list[int], total_sum: float) -> Iterator[dict[str, Any]]:
    """Split values with counts as the exporter does: 100 pairs in each document, the sum in the first one only."""
    for start in range(0, len(values), 100):
        part, number = values[start : start + 100], [float(count) for count in counts[start : start + 100]]
        yield {
            "Values": part,
            "Counts": number,
            "Max": part[0],
            "Min": part[-1],
            "Count": int(sum(number)),
            "Sum": 0 if start else total_sum,
        }


def test_exponential_histograms_of_opentelemetry_split_over_a_hundred_pairs() -> None:
    draw = random.Random(3)
    values = [0.001 * 1.02 ** (249 - index) for index in range(250)]
    counts = [draw.randint(1, 40) for _ in values]
    exact_sum = sum(value * count for value, count in zip(values, counts, strict=True)) * 1.003
    units = {"http.server.request.duration": "Seconds"}
    documents = [
        collector_document(
            {"http.server.request.duration": part}, units, **LABELS, **{"http.response.status_code": "200"}
        )
        for part in split(values, counts, exact_sum)
    ]
    faults = {"Max": 2.0, "Min": 0.5, "Count": 3, "Sum": 3.5}
    documents.append(
        collector_document(
            {"http.server.request.duration": faults}, units, **LABELS, **{"http.response.status_code": "503"}
        )
    )
    batch = decode("\n".join(map(json.dumps, documents)), HTTP)
    assert batch.accepted == 4
    measured = total(batch, key("frontend", "/cart/{id}", "i-1"))
    assert (measured.count_2xx, measured.count_5xx, measured.faults) == (sum(counts), 3, 3)
    success, fault = measured.success_seconds, measured.fault_seconds
    assert (success.count, success.sum) == pytest.approx((sum(counts), exact_sum))
    assert (success.min, success.max) == pytest.approx((values[-1], values[0]))
    assert (fault.count, fault.sum, fault.min, fault.max) == pytest.approx((3, 3.5, 0.5, 2.0))
    ranked = sorted(value for value, count in zip(values, counts, strict=True) for _ in range(count))
    assert success.quantile(0.9) == pytest.approx(ranked[int(len(ranked) * 0.9)], rel=0.05)


def test_sums_and_explicit_histograms_of_opentelemetry() -> None:
    mapping = EmfMapping(
        namespace="Collector",
        workload="shop",
        service="service.name",
        operation="http.route",
        zone="cloud.zone.id",
        counts={"total": "requests", "faults": "errors"},
        latency={"all": "http.server.duration"},
    )
    metrics = {
        "requests": 40,
        "errors": 4.0,
        "http.server.duration": {"Max": 900.5, "Min": 3, "Count": 40, "Sum": 2001.5},
        "process.memory": 1e9,
    }
    units = {"requests": "1", "errors": "{request}", "http.server.duration": "Milliseconds", "process.memory": "Bytes"}
    documents = [collector_document(metrics, units, **LABELS), collector_document({"process.memory": 1}, {}, **LABELS)]
    batch = decode("\n".join(map(json.dumps, documents)), mapping)
    assert (batch.accepted, batch.refused) == (1, {"no_requests": 1})
    [delta] = all_deltas(batch)
    assert delta.key == key("frontend", "/cart/{id}")
    measured = delta.measured
    assert (measured.count_2xx, measured.count_5xx) == (36, 4)
    seconds = measured.success_seconds
    assert (seconds.count, seconds.sum, seconds.min, seconds.max) == pytest.approx((40, 2.0015, 0.003, 0.9005))
    assert measured.is_coarse
    assert measured.by_second == {}
