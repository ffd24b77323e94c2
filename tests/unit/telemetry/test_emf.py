"""Requests as lines that CloudWatch and Holdfast read."""

import json
import math
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Operation, Side, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from tests.support.emf import read_emf, read_outcome

AT = 1_700_000_000.25
CLASSES = ("2xx", "3xx", "4xx", "5xx")


def request(**changes: Any) -> RequestRecord:
    return RequestRecord(
        **{
            "namespace": "shop/frontend",
            "operation": Operation("Home", "Index"),
            "region": "us-east-1",
            "zone": Zone("use1-az2"),
            "instance": "i-1",
            "at": AT,
            "status": 200,
            "seconds": 0.02,
            **changes,
        }
    )


def test_a_line_has_every_field_of_the_example_for_multi_az_services() -> None:
    line = encode_emf(
        request(
            operation=Operation("Home", "Index"),
            instance="i-01ab0b7241214d494",
            path="/home",
            host="use1-az2-name.example.com",
            source_ip="34.230.82.196",
            trace="0af7651916cd43dd8448eb211c80319c",
            log_group="/loggroupname",
        )
    )
    assert json.loads(line) == {
        "_aws": {
            "Timestamp": 1_700_000_000_250,
            "CloudWatchMetrics": [
                {
                    "Namespace": "shop/frontend",
                    "Metrics": [
                        {"Name": "2xx", "Unit": "Count"},
                        {"Name": "3xx", "Unit": "Count"},
                        {"Name": "4xx", "Unit": "Count"},
                        {"Name": "5xx", "Unit": "Count"},
                        {"Name": "SuccessLatency", "Unit": "Milliseconds"},
                    ],
                    "Dimensions": [
                        ["Controller", "Action", "Region", "AZ-ID", "InstanceId"],
                        ["Controller", "Action", "Region", "AZ-ID"],
                        ["Controller", "Action", "Region"],
                    ],
                }
            ],
            "LogGroupName": "/loggroupname",
        },
        "CacheRefresh": False,
        "Host": "use1-az2-name.example.com",
        "SourceIp": "34.230.82.196",
        "TraceId": "0af7651916cd43dd8448eb211c80319c",
        "Path": "/home",
        "OneBox": False,
        "Controller": "Home",
        "Action": "Index",
        "Region": "us-east-1",
        "AZ-ID": "use1-az2",
        "InstanceId": "i-01ab0b7241214d494",
        "LogGroupName": "/loggroupname",
        "HttpStatusCode": 200,
        "2xx": 1,
        "3xx": 0,
        "4xx": 0,
        "5xx": 0,
        "SuccessLatency": 20,
        "Side": "server",
    }


def test_marks_and_a_missing_log_group_are_written_as_they_are() -> None:
    document = json.loads(encode_emf(request(is_one_box=True, is_cache_refresh=True)))
    assert (document["OneBox"], document["CacheRefresh"]) == (True, True)
    assert "LogGroupName" not in document | document["_aws"]


@pytest.mark.parametrize(
    ("status", "counted", "latency"),
    [
        (101, "2xx", "SuccessLatency"),
        (200, "2xx", "SuccessLatency"),
        (302, "3xx", "SuccessLatency"),
        (404, "4xx", "SuccessLatency"),
        (429, "4xx", "SuccessLatency"),
        (503, "5xx", "FaultLatency"),
        (HTTPStatus.GATEWAY_TIMEOUT, "5xx", "FaultLatency"),
    ],
)
def test_a_request_is_counted_once_and_its_latency_where_its_class_belongs(
    status: int, counted: str, latency: str
) -> None:
    line = encode_emf(request(status=status))
    document = json.loads(line)
    assert document["HttpStatusCode"] == status
    assert {name: document[name] for name in CLASSES} == {name: int(name == counted) for name in CLASSES}
    assert document[latency] == 20
    assert len({"SuccessLatency", "FaultLatency"} & document.keys()) == 1
    for dimensions in (5, 4, 3):
        values = [value for value in read_emf(line, AT) if len(value.dimensions) == dimensions]
        assert [value.name for value in values] == [*CLASSES, latency]


TEXT = st.text(max_size=2000)
"""Any text, lone surrogates included, and longer than CloudWatch accepts."""


@given(
    status=st.integers(100, 599),
    seconds=st.floats(),
    service=TEXT,
    name=TEXT,
    region=TEXT,
    instance=TEXT,
    path=TEXT,
    namespace=st.text(min_size=1, max_size=100).filter(lambda text: not text.startswith(":")),
)
def test_every_line_is_valid_for_cloudwatch_and_for_holdfast(
    status: int, seconds: float, service: str, name: str, region: str, instance: str, path: str, namespace: str
) -> None:
    line = encode_emf(
        request(
            status=status,
            seconds=seconds,
            operation=Operation(service, name),
            region=region,
            instance=instance,
            path=path,
            host=path,
            source_ip=path,
            trace=path,
            namespace=namespace,
        )
    )
    values = read_emf(line, AT)
    assert len(values) == 3 * 5
    outcome = read_outcome(line)
    assert outcome.count_2xx + outcome.count_3xx + outcome.count_4xx + outcome.count_5xx == 1
    [took] = [*outcome.success_seconds, *outcome.fault_seconds]
    assert 0 <= took <= 3600


@pytest.mark.parametrize(
    ("seconds", "written"), [(math.nan, 0), (-1.0, 0), (90_000.0, 3_600_000), (math.inf, 3_600_000)]
)
def test_a_latency_that_receivers_would_refuse_is_written_as_the_nearest(seconds: float, written: float) -> None:
    assert json.loads(encode_emf(request(seconds=seconds)))["SuccessLatency"] == written


def test_characters_that_receivers_refuse_are_replaced_or_escaped() -> None:
    document = json.loads(encode_emf(request(path="/caf\u00e9/\ud800", instance="i-\udcff\n")))
    assert (document["Path"], document["InstanceId"]) == ("/café/?", "i-\\udcff\\n")


def test_the_details_of_a_request_of_a_server_and_of_a_canary_are_told_apart() -> None:
    assert [json.loads(encode_emf(request(side=side)))["Side"] for side in Side] == ["server", "client", "canary"]


@given(
    status=st.integers(200, 599),
    side=st.sampled_from(Side),
    seconds=st.floats(0, 100),
    at=st.integers(100_000_000_000, 4_000_000_000_000),
    instance=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=64),
)
def test_what_was_written_is_read(status: int, side: Side, seconds: float, at: int, instance: str) -> None:
    outcome = read_outcome(
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
