"""Alarms over HTTP: their tree, their history, and reasons, as operators see them."""

from collections.abc import Iterator

import pytest

from tests.integration.server.process import HoldfastServer

SETTINGS = """
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
[workload.alarms]
operations = ["Home/Index"]
"""
NAME = "use1-az1/Home/Index-availability"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("alarms"), settings=SETTINGS) as started:
        yield started


def test_alarms_are_listed_with_the_alarms_in_their_rules(server: HoldfastServer) -> None:
    with server.operator() as operator:
        [few] = operator.get("/v1/alarms").json()
        [found] = operator.get("/v1/alarms", params={"workload": "shop", "all": "true"}).json()
        assert operator.get("/v1/alarms", params={"workload": "other"}).status_code == 404
    alarms = {alarm["name"]: alarm for alarm in found["alarms"]}
    assert len(few["alarms"]) < len(alarms)
    assert alarms["az1-availability"]["children"] == [NAME]
    assert alarms["use1-az1-isolated-impact"]["has_actions"]
    assert "use1-az1-isolated-impact" in found["roots"]


@pytest.mark.parametrize("path", [NAME, NAME.replace("/", "%2F"), "use1-az1-silent"])
def test_an_alarm_is_explained_although_its_name_has_slashes(server: HoldfastServer, path: str) -> None:
    with server.operator() as operator:
        answer = operator.get(f"/v1/alarms/{path}")
    assert answer.status_code == 200
    assert answer.json()["alarm"]["name"] == path.replace("%2F", "/")


def test_an_unknown_alarm_is_not_found(server: HoldfastServer) -> None:
    with server.operator() as operator:
        answer = operator.get("/v1/alarms/nothing")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:holdfast:problem:not-found")


def test_the_history_of_alarms_that_never_changed_is_empty(server: HoldfastServer) -> None:
    with server.operator() as operator:
        answer = operator.get("/v1/alarms/history", params={"name": NAME})
        assert operator.get("/v1/alarms/history", params={"limit": 0}).status_code == 400
    assert (answer.status_code, answer.json()) == (200, [])
