"""CloudWatch's reading of embedded metric format: strict about every limit that its specification names."""

import json
import time
from typing import Any, NamedTuple

from holdfast import Outcome, Zone
from holdfast.telemetry.bins import BIN_SECONDS, BinDelta, BinKey, sum_requests
from holdfast.telemetry.source import SourceBatch, SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder

UNITS = {
    "Seconds", "Microseconds", "Milliseconds", "Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes", "Bits",
    "Kilobits", "Megabits", "Gigabits", "Terabits", "Percent", "Count", "Bytes/Second", "Kilobytes/Second",
    "Megabytes/Second", "Gigabytes/Second", "Terabytes/Second", "Bits/Second", "Kilobits/Second", "Megabits/Second",
    "Gigabits/Second", "Terabits/Second", "Count/Second", "None",
}  # fmt: skip
DAY = 86_400_000


class Value(NamedTuple):
    """One value of one metric, as CloudWatch would store it."""

    namespace: str
    dimensions: tuple[tuple[str, str], ...]
    name: str
    unit: str
    value: float


def read_emf(line: bytes, now: float | None = None) -> list[Value]:
    """Return the values in a line; fail on anything that makes CloudWatch ignore it."""
    assert b"\n" not in line
    assert len(line) <= 1024 * 1024
    document = json.loads(line, parse_constant=_refuse, object_pairs_hook=_once)
    assert isinstance(document, dict)
    metadata = document["_aws"]
    at = metadata["Timestamp"]
    assert type(at) is int
    milliseconds = round((time.time() if now is None else now) * 1000)
    assert milliseconds - 14 * DAY <= at <= milliseconds + DAY // 12
    for name in ("LogGroupName", "LogStreamName"):
        assert isinstance(metadata.get(name, "-"), str)
        assert metadata.get(name) != ""
    found: list[Value] = []
    assert isinstance(metadata["CloudWatchMetrics"], list)
    for directive in metadata["CloudWatchMetrics"]:
        found += _read_directive(directive, document)
    return found


def _read_directive(directive: dict[str, Any], document: dict[str, Any]) -> list[Value]:
    namespace = directive["Namespace"]
    assert 1 <= len(namespace) <= 255
    assert not namespace.startswith(":")
    assert len(directive["Dimensions"]) >= 1
    assert len(directive["Metrics"]) <= 100
    found = []
    for dimensions in directive["Dimensions"]:
        assert len(dimensions) <= 30
        assert len(set(dimensions)) == len(dimensions)
        for name in dimensions:
            assert 1 <= len(name) <= 250
            assert isinstance(document[name], str)
            assert 1 <= len(document[name]) <= 1024
        for metric in directive["Metrics"]:
            assert 1 <= len(metric["Name"]) <= 255
            assert metric.get("Unit", "None") in UNITS
            assert metric.get("StorageResolution", 60) in (1, 60)
            value = document[metric["Name"]]
            values = value if isinstance(value, list) else [value]
            assert 1 <= len(values) <= 100
            for each in values:
                assert type(each) in (int, float)
                assert abs(each) <= 2**360
                labels = tuple((name, document[name]) for name in dimensions)
                found.append(Value(namespace, labels, metric["Name"], metric.get("Unit", "None"), each))
    return found


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), "a member is there twice"
    return dict(pairs)


def all_deltas(batch: SourceBatch, seconds: float = BIN_SECONDS) -> list[BinDelta]:
    """Return all measurements of a batch: one delta for each series and bin."""
    found: dict[tuple[BinKey, float], BinDelta] = {}
    for delta in (*batch.deltas, *sum_requests(batch.requests, seconds)):
        if (delta.key, delta.start) in found:
            found[delta.key, delta.start].measured.merge(delta.measured)
        else:
            found[delta.key, delta.start] = delta
    return list(found.values())


def read_outcome(line: bytes) -> Outcome:
    """Return the one request in a line of Holdfast's own shape as the server decodes it, without its detail."""
    document = json.loads(line)
    namespace: str = document["_aws"]["CloudWatchMetrics"][0]["Namespace"]
    workload = SourceWorkload(namespace.partition("/")[0], frozenset({Zone(document["AZ-ID"])}))
    batch = EmfDecoder([workload]).decode(line, now=1e10)
    assert batch.problem is None
    [delta] = all_deltas(batch)
    measured = delta.measured
    assert measured.requests == 1
    assert batch.oldest is not None
    success, fault = ((each.sum,) if each.count else () for each in (measured.success_seconds, measured.fault_seconds))
    return Outcome(
        workload=delta.key.workload,
        operation=delta.key.operation,
        zone=delta.key.zone,
        instance=delta.key.instance,
        at=batch.oldest,
        side=delta.key.side,
        count_2xx=measured.count_2xx,
        count_3xx=measured.count_3xx,
        count_4xx=measured.count_4xx,
        count_5xx=measured.count_5xx,
        success_seconds=success,
        fault_seconds=fault,
    )
