"""Requests as CloudWatch's embedded metric format, and back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation, Side, Zone
from holdfast.telemetry import RequestRecord, decode_emf, encode_emf


def request(**changes: Any) -> RequestRecord:
    return RequestRecord(
        **{
            "namespace": "shop/frontend",
            "operation": Operation("Home", "Index"),
            "region": "us-east-1",
            "zone": Zone("use1-az2"),
            "instance": "i-1",
            "at": 1_700_000_000.25,
            "status": 200,
            "seconds": 0.02,
            **changes,
        }
    )


def test_a_line_is_what_cloudwatch_takes() -> None:
    document = json.loads(encode_emf(request(path="/home", host="host", source_ip="127.0.0.1", trace="abc")))
    directive = document["_aws"]["CloudWatchMetrics"][0]
    assert document["_aws"]["Timestamp"] == 1_700_000_000_250
    assert directive["Namespace"] == "shop/frontend"
    assert directive["Dimensions"] == [
        ["Controller", "Action", "Region", "AZ-ID", "InstanceId"],
        ["Controller", "Action", "Region", "AZ-ID"],
        ["Controller", "Action", "Region"],
    ]
    assert {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]} == {
        "2xx": "Count",
        "3xx": "Count",
        "4xx": "Count",
        "5xx": "Count",
        "SuccessLatency": "Milliseconds",
    }
    for metric in directive["Metrics"]:
        assert metric["Name"] in document, "CloudWatch drops a metric that has no value"
    for dimension in directive["Dimensions"][0]:
        assert isinstance(document[dimension], str)
    assert document["HttpStatusCode"] == 200
    assert document["Path"] == "/home"


def test_a_line_holds_no_newline() -> None:
    assert b"\n" not in encode_emf(request(path="/a\nb"))


@pytest.mark.parametrize(
    ("status", "counted", "latency"),
    [
        (200, "2xx", "SuccessLatency"),
        (302, "3xx", "SuccessLatency"),
        (404, "4xx", "SuccessLatency"),
        (503, "5xx", "FaultLatency"),
    ],
)
def test_a_request_is_counted_once_and_its_latency_where_it_belongs(status: int, counted: str, latency: str) -> None:
    document = json.loads(encode_emf(request(status=status)))
    assert {name: document[name] for name in ("2xx", "3xx", "4xx", "5xx")} == {
        name: int(name == counted) for name in ("2xx", "3xx", "4xx", "5xx")
    }
    assert document[latency] == 20
    assert len({"SuccessLatency", "FaultLatency"} & document.keys()) == 1


@given(
    status=st.integers(200, 599),
    side=st.sampled_from(Side),
    seconds=st.floats(0, 100),
    at=st.integers(1, 4_000_000_000_000),
    instance=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64),
)
def test_what_was_written_is_read(status: int, side: Side, seconds: float, at: int, instance: str) -> None:
    outcome = decode_emf(
        encode_emf(request(status=status, side=side, seconds=seconds, at=at / 1000, instance=instance))
    )
    assert (outcome.workload, outcome.operation, outcome.zone) == ("shop", Operation("Home", "Index"), "use1-az2")
    assert outcome.instance == instance
    assert outcome.at == pytest.approx(at / 1000, abs=0.0005)
    assert outcome.side is side
    counts = (outcome.count_2xx, outcome.count_3xx, outcome.count_4xx, outcome.count_5xx)
    assert counts == tuple(int(status // 100 == hundred) for hundred in (2, 3, 4, 5))
    assert outcome.success_seconds == pytest.approx(() if status >= 500 else (seconds,))
    assert outcome.fault_seconds == pytest.approx((seconds,) if status >= 500 else ())


def test_several_values_of_a_metric_are_all_taken() -> None:
    document = json.loads(encode_emf(request()))
    document |= {"2xx": 3, "SuccessLatency": [10, 20, 30], "Side": "canary"}
    outcome = decode_emf(json.dumps(document).encode())
    assert outcome.count_2xx == 3
    assert outcome.success_seconds == pytest.approx((0.01, 0.02, 0.03))
    assert outcome.side is Side.CANARY


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"AZ-ID": None}, "AZ-ID"),
        ({"Controller": ""}, "Controller"),
        ({"2xx": -1}, "2xx"),
        ({"SuccessLatency": "fast"}, "SuccessLatency"),
        ({"SuccessLatency": -1}, "SuccessLatency"),
        ({"_aws": {"Timestamp": 1, "CloudWatchMetrics": []}}, "CloudWatchMetrics"),
        ({"_aws": {"CloudWatchMetrics": [{"Namespace": "shop"}]}}, "Timestamp"),
        ({"Side": "moon"}, "Side"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_what_is_wrong(change: dict[str, Any], named: str) -> None:
    document = json.loads(encode_emf(request())) | change
    with pytest.raises(InvalidValue, match=named):
        decode_emf(json.dumps(document).encode())


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b"\xff", b"{}"])
def test_something_else_than_a_document_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidValue, match="embedded metric format"):
        decode_emf(line)
