"""What a host is told over HTTP."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Zone
from holdfast.agent.responses import AgentSnapshot, Response, build_response
from holdfast.agent.state import AgentState
from holdfast.status import SourceHealth
from tests.table import rows


def known(*out: str, workload: str | None = "shop", age: float | None = 1.5) -> AgentSnapshot:
    state = AgentState(
        zone=Zone("use1-az1"), workload=workload, zones_out=frozenset(Zone(zone) for zone in out), changed_at=1_000.0
    )
    return AgentSnapshot(
        state=state,
        age=age,
        sources=[SourceHealth("http://a:1", 0.12345), SourceHealth("http://b:2", None)],
        poll_interval=4.2,
    )


def test_a_host_is_healthy_while_its_own_zone_is_in() -> None:
    assert build_response("GET", "/health", known("use1-az2")).status == 200
    assert build_response("GET", "/health", known("use1-az1", "use1-az2")).status == 503


def test_whoever_is_sent_away_is_told_when_to_ask_again() -> None:
    found = build_response("GET", "/health", known("use1-az1"))
    assert dict(found.headers)["Retry-After"] == "5"
    assert found.document == {"zone": "use1-az1", "workload": "shop", "out": True}


def test_any_zone_can_be_asked_about() -> None:
    assert build_response("GET", "/status/use1-az2", known("use1-az2")) == Response(
        500, {"zone": "use1-az2", "workload": "shop", "out": True}, (("Age", "1"),)
    )
    assert build_response("GET", "/status/use1-az3", known("use1-az2")).status == 200, "one that nobody took out is in"


def test_all_that_is_known_is_told_with_its_age() -> None:
    assert build_response("GET", "/", known("use1-az2", "use1-az1")).document == {
        "zone": "use1-az1",
        "workload": "shop",
        "zones_out": ["use1-az1", "use1-az2"],
        "out": True,
        "age": 1.5,
        "sources": [{"name": "http://a:1", "age": 0.123}, {"name": "http://b:2", "age": None}],
    }


def test_before_anything_is_known_the_zone_is_in_and_nothing_has_an_age() -> None:
    found = build_response("GET", "/health", known(age=None))
    assert (found.status, found.headers) == (200, ())
    document: Any = build_response("GET", "/", known(age=None)).document
    assert (document["zones_out"], document["out"], document["age"]) == ([], False, None)


@pytest.mark.parametrize("target", ["/health?now=1", "/%68ealth", "http://host/health", "/health#part"])
def test_a_path_may_be_written_in_more_than_one_way(target: str) -> None:
    assert build_response("HEAD", target, known("use1-az1")).status == 503


@rows(
    ("method", "target"),
    [
        ("GET", "/healthy"),
        ("GET", "/health/"),
        ("GET", "/status"),
        ("GET", "/status/"),
        ("GET", "/status/use1-az1/shop"),
        ("GET", "/sns"),
        ("GET", ""),
        ("GET", "*"),
        ("GET", "http://[x/health"),
        ("POST", "/health"),
        ("PUT", "/status/use1-az1"),
        ("POST", "/sns"),
    ],
)
def test_everything_else_is_not_there(method: str, target: str) -> None:
    assert build_response(method, target, known("use1-az1")).status == 404


@given(st.text(max_size=40))
def test_any_target_gets_an_answer_that_can_be_sent(target: str) -> None:
    found = build_response("GET", target, known("use1-az1"))
    assert found.status in (200, 404, 500, 503)
    assert found.body().startswith(b"{")
