"""The units that the highest load of the last days needs: four formulas, and how metrics are read."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.engines.aws import AwsSession
from holdfast.evacuate.actions.capacity.needs import LoadSource, Metric, Need, RequestTarget, find_needs, read_series
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import ZONE

NOW = 4_000_000_020.0
START = NOW - NOW % 60 - 7 * 86_400
GROUP = {"AutoScalingGroupName": "shop"}
CPU = Metric("AWS/EC2", "CPUUtilization", "Average", tuple(GROUP.items()))
RUNNING = Metric("AWS/AutoScaling", "GroupInServiceInstances", "Maximum", tuple(GROUP.items()))
DESIRED = Metric("AWS/AutoScaling", "GroupDesiredCapacity", "Maximum", tuple(GROUP.items()))
REQUESTS = Metric("AWS/ApplicationELB", "RequestCount", "Sum", (("TargetGroup", "targetgroup/shop/1"),))
OTHER_REQUESTS = REQUESTS._replace(dimensions=(("TargetGroup", "targetgroup/admin/2"),))
SOURCE = LoadSource(unit="instance", running=6, desired=7, cpu=CPU)


@pytest.fixture
def session(cloud: Cloud) -> AwsSession:
    return cloud.open({"the default account": ACCOUNT}).list_for(ZONE)[0].reader


def record(region: SimulatedRegion, metric: Metric, values: Mapping[int, float]) -> None:
    """Add values of a metric, by the number of the minute since the beginning of the seven days."""
    found = {START + 60 * minute: value for minute, value in values.items()}
    region.metrics.add(metric.namespace, metric.name, metric.statistic, dict(metric.dimensions), found)


def find(session: AwsSession, source: LoadSource) -> Need:
    found = find_needs(session, {"shop": source}, days=7, now=NOW)
    assert found.notes == []
    return found.by_id["shop"]


CASES: list[tuple[str, dict[str, Any], Mapping[Metric, Mapping[int, float]], float, bool, str]] = [
    (
        "requests: 5400 a minute at most, 1200 for each instance, so 4.5 instances",
        {"request_targets": [RequestTarget(REQUESTS, 1200.0)]},
        {REQUESTS: {0: 3000.0, 77: 5400.0, 10_079: 10.0}, CPU: {0: 100.0}},
        4.5,
        False,
        "5,400 requests in the busiest minute of 7 days, and 1,200 for each instance",
    ),
    (
        "requests to instances that count as two units each",
        {"request_targets": [RequestTarget(REQUESTS, 1200.0)], "weight": 2.0},
        {REQUESTS: {77: 5400.0}},
        9.0,
        False,
        "5,400 requests",
    ),
    (
        "two target groups: the one that needs more instances decides",
        {"request_targets": [RequestTarget(REQUESTS, 1000.0), RequestTarget(OTHER_REQUESTS, 10.0)]},
        {REQUESTS: {1: 3000.0}, OTHER_REQUESTS: {5: 80.0}},
        8.0,
        False,
        "80 requests",
    ),
    (
        "CPU: 80 % of 4 instances is less than 50 % of 10, so 500 / 40 instances",
        {"cpu_target": 40.0, "past_running": RUNNING},
        {CPU: {3: 80.0, 4: 50.0}, RUNNING: {3: 4.0, 4: 10.0}},
        12.5,
        False,
        "50 % CPU of 10 instances at the highest load of 7 days, of which 0.0 have data, and a target of 40 %",
    ),
    (
        "CPU of a group that has recorded its size for some of the time: 99 % of the 7 instances that it wants now",
        {"cpu_target": 40.0, "past_running": RUNNING},
        {CPU: {3: 80.0, 4: 50.0, 5: 99.0}, RUNNING: {3: 4.0, 4: 10.0}},
        17.325,
        True,
        "99 % CPU of 7 current instances",
    ),
    (
        "both policies: AWS keeps the larger size, which is that of the CPU",
        {"request_targets": [RequestTarget(REQUESTS, 1000.0)], "cpu_target": 50.0, "past_running": RUNNING},
        {REQUESTS: {1: 3000.0}, CPU: {1: 60.0}, RUNNING: {1: 5.0}},
        6.0,
        False,
        "60 % CPU",
    ),
    (
        "CPU of a group that does not record its size: 90 % of the 7 instances that it wants now, of which 6 run",
        {"cpu_target": 60.0},
        {CPU: {3: 90.0, 4: 20.0}},
        10.5,
        True,
        "90 % CPU of 7 current instances",
    ),
    (
        "no policy: a target of 60 % is assumed",
        {"past_running": RUNNING},
        {CPU: {3: 30.0}, RUNNING: {3: 8.0}},
        4.0,
        True,
        "a target of 60 %, which is assumed",
    ),
    (
        "a policy for requests, but nobody counted them: the CPU decides",
        {"request_targets": [RequestTarget(REQUESTS, 1000.0)]},
        {CPU: {3: 90.0}},
        10.5,
        True,
        "which is assumed",
    ),
    (
        "no load at all is known, only the sizes",
        {"cpu_target": 50.0, "past_running": RUNNING, "past_desired": DESIRED},
        {RUNNING: {1: 30.0}, DESIRED: {1: 4.0, 2: 11.0, 3: 5.0}},
        11.0,
        True,
        "the highest desired size of 7 days",
    ),
    (
        "the size is higher now than ever before",
        {"past_desired": DESIRED},
        {DESIRED: {1: 4.0}},
        7.0,
        True,
        "the highest desired size of 7 days",
    ),
    ("nothing is known but the size now", {"past_desired": DESIRED}, {}, 7.0, True, "its current desired size"),
    ("values before the seven days do not count", {"cpu_target": 50.0}, {CPU: {-1: 99.0, 0: 75.0}}, 10.5, True, "75 %"),
    (
        "a load of zero is a load, unlike no data",
        {"cpu_target": 50.0, "past_running": RUNNING},
        {CPU: {1: 0.0}, RUNNING: {1: 6.0}},
        0.0,
        False,
        "0 % CPU",
    ),
    (
        "by day there may have been more instances than now, so the need is not known to be smaller than the size now",
        {"cpu_target": 60.0},
        {CPU: {3: 30.0}},
        7.0,
        True,
        "its current desired size, because past sizes are unknown; 30 % CPU of 7 current instances",
    ),
]


@pytest.mark.parametrize(
    ("fields", "metrics", "units", "is_weak", "basis"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_need_follows_from_the_best_evidence(
    region: SimulatedRegion,
    session: AwsSession,
    fields: dict[str, Any],
    metrics: Mapping[Metric, Mapping[int, float]],
    units: float,
    is_weak: bool,
    basis: str,
) -> None:
    for metric, values in metrics.items():
        record(region, metric, values)
    need = find(session, replace(SOURCE, **fields))
    assert need.units == pytest.approx(units)
    assert need.is_weak is is_weak
    assert basis in need.basis


def deny() -> Exception:
    return ServiceError(Refusal.DENIED)


def reject() -> Exception:
    return ServiceError(Refusal.INVALID)


@pytest.mark.parametrize("error", [deny, reject])
def test_without_cloudwatch_the_current_size_is_used(
    region: SimulatedRegion, session: AwsSession, error: Callable[[], Exception]
) -> None:
    record(region, CPU, {3: 90.0})

    def fail(_: str) -> None:
        raise error()

    region.faults = fail
    found = find_needs(session, {"shop": replace(SOURCE, cpu_target=50.0)}, days=7, now=NOW)
    assert found.by_id["shop"].units == 7.0
    assert found.by_id["shop"].is_weak
    (note,) = found.notes
    assert note.startswith(
        "1 call of CloudWatch failed, so some loads are unknown, and weaker evidence is used instead"
    )


def test_a_call_that_fails_leaves_the_others(region: SimulatedRegion, session: AwsSession) -> None:
    """One of three calls is refused: only its ten services have weaker evidence."""
    metrics = [REQUESTS._replace(dimensions=(("TargetGroup", f"{number:02}"),)) for number in range(30)]
    for metric in metrics:
        record(region, metric, {1: 9000.0})
    left = iter(range(30))

    def refuse_the_second(_: str) -> None:
        if next(left) == 1:
            raise ServiceError(Refusal.DENIED)

    region.faults = refuse_the_second
    sources = {
        each.dimensions[0][1]: replace(SOURCE, request_targets=[RequestTarget(each, 1000.0)]) for each in metrics
    }
    found = find_needs(session, sources, days=7, now=NOW)
    assert Counter(each.units for each in found.by_id.values()) == {9.0: 20, 7.0: 10}
    assert len(found.notes) == 1


def test_a_metric_that_was_read_in_part_counts_as_unknown(region: SimulatedRegion, session: AwsSession) -> None:
    record(region, REQUESTS, {1: 10.0})
    region.metrics.failing.add("RequestCount")
    found = find_needs(
        session, {"shop": replace(SOURCE, request_targets=[RequestTarget(REQUESTS, 1000.0)])}, days=7, now=NOW
    )
    assert (found.by_id["shop"].units, found.by_id["shop"].is_weak) == (7.0, True)
    assert "RequestCount: InternalError" in found.notes[0]


def test_metrics_with_a_value_every_five_minutes_have_data_of_all_days(
    region: SimulatedRegion, session: AwsSession
) -> None:
    minutes = range(0, 7 * 1440, 5)
    record(region, CPU, dict.fromkeys(minutes, 50.0))
    record(region, RUNNING, dict.fromkeys(minutes, 6.0))
    need = find(session, replace(SOURCE, cpu_target=50.0, past_running=RUNNING))
    assert (need.units, need.is_weak, "have data" in need.basis) == (6.0, False, False)


def test_metrics_of_later_formulas_are_read_only_if_needed(region: SimulatedRegion, session: AwsSession) -> None:
    record(region, REQUESTS, {1: 3000.0})
    source = replace(SOURCE, request_targets=[RequestTarget(REQUESTS, 1000.0)], past_desired=DESIRED)
    assert find(session, source).units == 3.0
    assert list(region.calls) == ["GetMetricData"]


def test_metrics_are_read_in_batches_and_pages(region: SimulatedRegion, session: AwsSession) -> None:
    """A week has 10,080 minutes, so ten metrics fit into a call. Each page has two pieces of a metric."""
    region.page_size, region.metrics.chunk = 2, 3
    metrics = [CPU._replace(dimensions=(("AutoScalingGroupName", f"shop-{number:02}"),)) for number in range(23)]
    for number, metric in enumerate(metrics):
        record(region, metric, {minute: float(number + minute) for minute in range(7)})
    found = read_series(session, metrics, START, START + 7 * 86_400, [])
    assert {metric: max(values.values()) for metric, values in found.items()} == {
        metric: number + 6.0 for number, metric in enumerate(metrics)
    }
    assert {len(values) for values in found.values()} == {7}
    # Ten metrics have thirty pieces, and three have nine.
    assert len(region.calls) == 15 + 15 + 5
    assert read_series(session, [], START, NOW, []) == {}


def test_a_short_time_has_few_values_so_that_a_call_has_500_metrics(
    region: SimulatedRegion, session: AwsSession
) -> None:
    region.page_size = 1000
    metrics = [CPU._replace(name=f"m{number:04}") for number in range(501)]
    assert read_series(session, metrics, NOW - 3600, NOW, []) == {}
    assert list(region.calls) == ["GetMetricData"] * 2
