"""Bodies that nobody meant to send: no error escapes, every record is counted once, and no value is absurd."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.bins import MAX_REQUESTS
from holdfast.telemetry.collector import MAX_AHEAD_SECONDS, Collector
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.source import SourceWorkload
from holdfast.telemetry.sources.emf import REASONS, EmfDecoder
from holdfast.telemetry.sources.emf_mapping import EmfMapping
from tests.support.emf import all_deltas

NOW = 1_767_323_050.0
WORKLOADS = [SourceWorkload(name, frozenset({Zone("use1-az1"), Zone("use1-az2")})) for name in ("shop", "bank")]
MAPPING = EmfMapping(
    namespace="Other", workload="bank", operation="op", counts={"total": "n", "faults": "e"}, latency={"all": "t"}
)
OWN = encode_emf(
    RequestRecord(
        namespace="shop/frontend",
        operation=Operation("Home", "Index"),
        region="us-east-1",
        zone=Zone("use1-az1"),
        instance="i-1",
        at=NOW,
        status=200,
        seconds=0.02,
    )
)
OTHER = json.dumps(
    {
        "_aws": {
            "Timestamp": int(NOW * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": "Other",
                    "Metrics": [{"Name": "n"}, {"Name": "e"}, {"Name": "t", "Unit": "Seconds"}],
                    "Dimensions": [["op", "AZ-ID"], []],
                }
            ],
        },
        "op": "Pay",
        "AZ-ID": "use1-az2",
        "n": [3, 4],
        "e": 1,
        "t": {"Values": [1, 2], "Counts": [3, 4], "Max": 2, "Min": 1, "Count": 7, "Sum": 11},
    }
).encode()

numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**400, -(10**400), 2**63, 2**64, 1e308, 5e-324, int(NOW * 1000)])
)
texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["shop/x", "Other", "use1-az1", "AZ-ID", "Count", "Seconds", "server", "\\ud800", "us-east-1a"]),
)
names = st.one_of(
    texts, st.sampled_from([*json.loads(OWN), *json.loads(OTHER), "Timestamp", "CloudWatchMetrics", "Values", "Counts"])
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(names, inner, max_size=6)),
    max_leaves=20,
)


@st.composite
def mutated_bytes(draw: st.DrawFn) -> bytes:
    """A valid line in which some bytes were replaced, removed, repeated or inserted."""
    line = bytearray(draw(st.sampled_from([OWN, OTHER])))
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, len(line)))
        end = draw(st.integers(start, min(len(line), start + 30)))
        line[start:end] = draw(st.one_of(st.binary(max_size=12), st.just(bytes(line[start:end]) * 3)))
    return bytes(line)


@st.composite
def mutated_documents(draw: st.DrawFn) -> bytes:
    """A valid document in which some values were replaced by others."""
    document = json.loads(draw(st.sampled_from([OWN, OTHER])))
    for _ in range(draw(st.integers(1, 4))):
        parent: Any = document
        while True:
            steps = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not steps:
                break
            step = draw(st.sampled_from(steps))
            if isinstance(parent[step], dict | list) and draw(st.booleans()):
                parent = parent[step]
                continue
            parent[step] = draw(values)
            break
    return json.dumps(document).encode()


lines = st.one_of(
    mutated_documents(),
    mutated_bytes(),
    values.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
    st.sampled_from([OWN, OTHER, b"", b"[" * 3000, b'{"a":' * 3000]),
).filter(lambda line: b"\n" not in line)


def check(bodies: list[list[bytes]]) -> None:
    decoder = EmfDecoder(WORKLOADS, [MAPPING])
    collector = Collector(SeriesTable())
    for body in bodies:
        batch = decoder.decode(b"\n".join(body), NOW)
        records = sum(bool(line.strip()) for line in body)
        assert batch.accepted + sum(batch.refused.values()) == records
        assert set(batch.refused) <= REASONS
        assert (batch.problem is None) == (not batch.refused)
        for delta in all_deltas(batch):
            measured = delta.measured
            assert 0 <= measured.faults <= measured.requests <= MAX_REQUESTS * records
            assert delta.start <= NOW + MAX_AHEAD_SECONDS
            assert delta.key.workload in ("shop", "bank")
            assert delta.key.zone in ("use1-az1", "use1-az2")
            for label in (delta.key.operation.service, delta.key.operation.name, delta.key.instance):
                assert label.isprintable() or not any(ord(character) < 32 for character in label)
            for latencies in (measured.success_seconds, measured.fault_seconds):
                assert latencies.count == latencies.zeros + sum(latencies.buckets.values())
                assert 0 <= latencies.min <= latencies.max <= 3600.0001
                assert math.isfinite(latencies.sum)
        collector.add(all_deltas(batch), NOW)
    assert decoder.decode(OWN, NOW).accepted == 1, "a decoder still works after all of it"


@given(st.lists(st.lists(lines, max_size=6), max_size=3))
@example([[OWN, b"\xff" * 50, OTHER], [OTHER[:100], OWN]])
def test_no_body_breaks_a_decoder(bodies: list[list[bytes]]) -> None:
    check(bodies)


@pytest.mark.proof
@pytest.mark.parametrize("part", range(4))
@given(st.lists(st.lists(lines, max_size=12), max_size=4))
@settings(max_examples=500)
def test_eight_thousand_times_four_bodies_break_no_decoder(part: int, bodies: list[list[bytes]]) -> None:
    """Takes a minute for each part. In parts, because Hypothesis remembers every example of a test in memory."""
    check(bodies)


@pytest.mark.no_cover
def test_bodies_that_are_all_line_ends_or_brackets_take_no_more_than_their_length() -> None:
    decoder = EmfDecoder(WORKLOADS)
    assert decoder.decode(b"\n" * 200_000, NOW).refused == {}
    assert decoder.decode(b"{\n" * 20_000, NOW).refused == {"not_json": 20_000}
    assert decoder.decode(b"[" * 500_000, NOW).refused == {"not_json": 1}
    assert decoder.decode(b'{"_aws":' * 100_000, NOW).refused == {"not_json": 1}
