"""Outcomes as metrics of the service itself."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import InvalidValue, Operation, Outcome, Side, Zone
from holdfast.metrics import PrometheusExporter
from holdfast.telemetry.sinks.metrics import MAX_ZONES, OutcomeMetrics
from tests.unit.forked import in_child


def outcome(
    status: int = 200,
    *,
    seconds: float = 0.01,
    zone: str = "use1-az1",
    name: str = "Index",
    side: Side = Side.SERVER,
    workload: str = "shop",
    is_ignored: bool = False,
) -> Outcome:
    group = status // 100
    return Outcome(
        workload=workload,
        operation=Operation("Home", name),
        zone=Zone(zone),
        instance="i-1",
        at=1.0,
        side=side,
        count_2xx=int(group == 2),
        count_3xx=int(group == 3),
        count_4xx=int(group == 4),
        count_5xx=int(group == 5),
        success_seconds=(seconds,) if group < 5 else (),
        fault_seconds=(seconds,) if group == 5 else (),
        is_ignored=is_ignored,
    )


def samples(exporter: PrometheusExporter, name: str) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(exporter.render())
        for sample in family.samples
        if sample.name == name
    ]


LABELS = {"workload": "shop", "service": "Home", "operation": "Index", "zone": "use1-az1", "side": "server"}


def test_requests_are_counted_by_operation_zone_side_and_class_of_status() -> None:
    exporter = PrometheusExporter()
    sink = OutcomeMetrics(exporter)
    for each in (outcome(), outcome(204), outcome(404), outcome(503, seconds=2.0), outcome(zone="use1-az2")):
        sink.emit(each)
    sink.emit(outcome(side=Side.CLIENT))
    assert samples(exporter, "holdfast_requests_total") == [
        (LABELS | {"side": "client", "status": "2xx"}, 1),
        (LABELS | {"status": "2xx"}, 2),
        (LABELS | {"status": "4xx"}, 1),
        (LABELS | {"status": "5xx"}, 1),
        (LABELS | {"zone": "use1-az2", "status": "2xx"}, 1),
    ]
    own = [(labels["result"], value) for labels, value in samples(exporter, "holdfast_request_seconds_count")
           if labels["zone"] == "use1-az1" and labels["side"] == "server"]  # fmt: skip
    assert own == [("fault", 1), ("success", 3)]
    assert (LABELS | {"result": "fault"}, 2.0) in samples(exporter, "holdfast_request_seconds_sum")


def test_an_outcome_of_many_requests_counts_all_of_them() -> None:
    exporter = PrometheusExporter()
    many = Outcome(
        workload="shop", operation=Operation("Home", "Index"), zone=Zone("use1-az1"), instance="i", at=1.0,
        side=Side.SERVER, count_2xx=3, count_5xx=2, success_seconds=[0.1, 0.2], fault_seconds=[1.0, 2.0],
    )  # fmt: skip
    OutcomeMetrics(exporter).emit(many)
    assert [value for _, value in samples(exporter, "holdfast_requests_total")] == [3, 2]
    assert [value for _, value in samples(exporter, "holdfast_request_seconds_count")] == [2, 2]


def test_what_detection_ignores_is_not_counted() -> None:
    exporter = PrometheusExporter()
    OutcomeMetrics(exporter).emit(outcome(503, is_ignored=True))
    assert exporter.render() == ""


def test_operations_past_the_limit_are_counted_together_in_their_zone() -> None:
    exporter = PrometheusExporter()
    sink = OutcomeMetrics(exporter, max_operations=2)
    for number in range(100):
        sink.emit(outcome(name=f"user-{number}"))
    assert {labels["operation"]: value for labels, value in samples(exporter, "holdfast_requests_total")} == {
        "user-0": 1,
        "user-1": 1,
        "other": 98,
    }


def test_zones_and_workloads_past_the_limit_are_counted_together() -> None:
    exporter = PrometheusExporter()
    sink = OutcomeMetrics(exporter)
    for number in range(10_000):
        sink.emit(outcome(zone=f"zone-{number}", workload=f"workload-{number % 100}"))
    found = samples(exporter, "holdfast_requests_total")
    assert len(found) == MAX_ZONES + 1
    assert sum(value for _, value in found) == 10_000
    assert [labels["workload"] for labels, value in found if value > 1] == ["other"]


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidValue, match="expected 1 or more"):
        OutcomeMetrics(max_operations=0)


def test_threads_lose_no_count_and_a_forked_child_starts_at_zero() -> None:
    exporter = PrometheusExporter()
    sink = OutcomeMetrics(exporter)

    def work() -> None:
        for number in range(500):
            sink.emit(outcome(name=f"action-{number % 7}"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(value for _, value in samples(exporter, "holdfast_requests_total")) == 2000

    def child() -> bool:
        sink.emit(outcome(name="new"))
        return [value for _, value in samples(exporter, "holdfast_requests_total")] == [1]

    with sink._lock:
        in_child(child)
