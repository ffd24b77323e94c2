"""Outcomes as lines of embedded metric format."""

import json
from typing import Any

import pytest

from holdfast import InvalidValue, Operation, Outcome, RequestDetail, Side, Zone
from holdfast.telemetry.sinks.lines import EmfSink
from tests.support.emf import read_outcome


class Lines:
    def __init__(self) -> None:
        self.all: list[bytes] = []

    def emit(self, event: bytes) -> None:
        self.all.append(event)


def outcome(**changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "workload": "shop",
        "operation": Operation("Home", "Index"),
        "zone": Zone("use1-az1"),
        "instance": "i-1",
        "at": 1_767_323_045.5,
        "side": Side.SERVER,
    }
    return Outcome(**(given | changes))


def written(given: Outcome) -> list[Outcome]:
    lines = Lines()
    EmfSink(lines, component="frontend", region="us-east-1").emit(given)
    return [read_outcome(line) for line in lines.all]


def test_a_request_becomes_a_line_that_says_the_same() -> None:
    request = outcome(count_2xx=1, success_seconds=(0.25,))
    assert written(request) == [request]


@pytest.mark.parametrize("side", Side)
def test_a_line_says_who_saw_it(side: Side) -> None:
    request = outcome(count_5xx=1, fault_seconds=(0.25,), side=side)
    assert written(request) == [request]


def test_a_request_of_more_than_an_hour_is_one_all_the_same() -> None:
    assert written(outcome(count_2xx=1, success_seconds=(90_000.0,))) == [
        outcome(count_2xx=1, success_seconds=(3600.0,))
    ]


def test_many_become_as_many_each_with_its_status_and_its_time() -> None:
    many = outcome(
        count_2xx=2, count_3xx=1, count_4xx=1, count_5xx=2, success_seconds=[0.1, 0.2, 0.3], fault_seconds=[1.0, 2.0]
    )
    assert written(many) == [
        outcome(count_2xx=1, success_seconds=(0.1,)),
        outcome(count_2xx=1, success_seconds=(0.2,)),
        outcome(count_3xx=1, success_seconds=(0.3,)),
        outcome(count_4xx=1, success_seconds=(0.0,)),
        outcome(count_5xx=1, fault_seconds=(1.0,)),
        outcome(count_5xx=1, fault_seconds=(2.0,)),
    ]


def test_what_holdfast_did_itself_is_left_out() -> None:
    assert written(outcome(count_5xx=1, is_ignored=True)) == []


def test_a_line_has_the_details_of_its_request_and_what_is_the_same_for_all() -> None:
    lines = Lines()
    sink = EmfSink(lines, component="frontend", region="us-east-1", log_group="/shop", is_one_box=True)
    detail = RequestDetail(
        status=429, trace="abc", path="/home", host="shop.example.com", source_ip="203.0.113.7", is_cache_refresh=True
    )
    sink.emit(outcome(count_4xx=1, success_seconds=(0.25,), detail=detail))
    [document] = map(json.loads, lines.all)
    assert document["HttpStatusCode"] == 429
    assert (document["TraceId"], document["Path"], document["Host"]) == ("abc", "/home", "shop.example.com")
    assert (document["SourceIp"], document["CacheRefresh"], document["OneBox"]) == ("203.0.113.7", True, True)
    assert document["LogGroupName"] == document["_aws"]["LogGroupName"] == "/shop"
    assert (document["4xx"], document["SuccessLatency"]) == (1, 250)


def test_without_details_the_status_is_the_first_of_its_class() -> None:
    lines = Lines()
    counts = {"count_2xx": 1, "count_3xx": 1, "count_4xx": 1, "count_5xx": 1}
    EmfSink(lines, component="frontend", region="us-east-1").emit(outcome(**counts))
    assert [json.loads(line)["HttpStatusCode"] for line in lines.all] == [200, 300, 400, 500]


@pytest.mark.parametrize(("component", "region"), [("", "us-east-1"), ("frontend", ""), ("front\nend", "us-east-1")])
def test_a_component_or_region_that_no_line_can_have_is_refused(component: str, region: str) -> None:
    with pytest.raises(InvalidValue, match="expected printable text"):
        EmfSink(Lines(), component=component, region=region)
