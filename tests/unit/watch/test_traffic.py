"""The traffic of the last second, for people who watch."""

import pytest

from holdfast import Operation, Side, Zone
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinDelta, BinKey
from holdfast.telemetry.bins import RequestRow
from holdfast.watch import traffic
from holdfast.watch.traffic import TrafficMeter

ZONES = {"shop": (Zone("az1"), Zone("az2"))}


def key(zone: str = "az1", instance: str = "i-1", side: Side = Side.SERVER) -> BinKey:
    return BinKey("shop", Operation("Home", "Index"), Zone(zone), instance, side)


def row(
    status_class: int = 2, *, is_fault: bool = False, seconds: float | None = 0.1, instance: str = "i-1"
) -> RequestRow:
    return key(instance=instance), 1_700_000_000, status_class, is_fault, seconds


def test_a_sample_has_the_requests_faults_and_latency_of_every_zone() -> None:
    meter = TrafficMeter()
    measured = Bin(count_2xx=3, count_5xx=1, faults=1, success_seconds=Histogram.of([0.1, 0.1, 0.1]))
    deltas = [BinDelta(key(), 0.0, 10.0, measured), BinDelta(key(side=Side.CANARY), 0.0, 10.0, measured)]
    requests = [
        row(),
        row(),
        row(5, is_fault=True, seconds=9.0),
        row(seconds=None),
        (key(side=Side.CLIENT), 1_700_000_000, 2, False, 5.0),
    ]
    meter.add(deltas, requests)
    sample = meter.pop(7.0, ZONES)
    assert sample.at == 7.0
    assert sample.workloads["shop"]["az1"] == {"requests": 8, "faults": 2, "latency": pytest.approx(0.1, rel=0.05)}
    assert sample.workloads["shop"]["az2"] == {"requests": 0, "faults": 0, "latency": None}


def test_every_sample_begins_anew() -> None:
    meter = TrafficMeter()
    meter.add([], [row()])
    meter.pop(1.0, ZONES)
    assert meter.pop(2.0, ZONES).workloads["shop"]["az1"]["requests"] == 0


def test_more_series_than_are_remembered_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_KEYS", 2)
    meter = TrafficMeter()
    meter.add([], [row(instance=f"i-{number}") for number in range(5)])
    assert meter.pop(1.0, ZONES).workloads["shop"]["az1"]["requests"] == 5
