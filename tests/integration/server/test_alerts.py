"""Alerts of a running server: people are told of a failing zone, acknowledge it, and are told of its end."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.server.process import HoldfastServer, holdfast
from tests.integration.server.test_detection import SETTINGS, ZONES, Load, until
from tests.support.alert_receivers import WebhookReceiver, receiving

ALERTS = """
[heartbeat]
url = "{beat}"
interval = 1
[[alert]]
name = "on-call"
channel = "webhook"
options = {{ url = "{hook}" }}
[[alert]]
name = "down"
channel = "webhook"
options = {{ url = "http://127.0.0.1:1/" }}
"""


@pytest.fixture(scope="module")
def hook() -> Iterator[WebhookReceiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def beat() -> Iterator[WebhookReceiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, hook: WebhookReceiver, beat: WebhookReceiver
) -> Iterator[HoldfastServer]:
    settings = SETTINGS + ALERTS.format(hook=hook.url, beat=beat.url)
    with HoldfastServer.start(tmp_path_factory.mktemp("alerts"), settings=settings) as started:
        yield started


def change(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/alerts/{path}", json=body)


def test_people_are_told_of_a_failing_zone_and_of_its_end(
    server: HoldfastServer, hook: WebhookReceiver, beat: WebhookReceiver
) -> None:
    """Waits for the bins of a real server, so it takes seconds."""
    with server.operator() as operator, Load(server) as load:
        load.failing = ZONES[1]
        hook.wait_for(1)
        opened = hook.requests[0].content
        assert (opened["event"], opened["kind"], opened["zone"]) == ("opened", "isolated", ZONES[1])
        assert str(opened["advice"]).startswith("The server evacuates the zone")
        assert str(opened["advice"]) in str(opened["text"])
        verdict = opened["verdict"]
        assert change(operator, "acknowledge", verdict=verdict, by="anna").status_code == 200
        hook.wait_for(2)
        load.failing = None
        until(lambda: [each["state"] for each in operator.get("/v1/evacuations").json()["runs"]] == ["evacuated"])
        (run,) = operator.get("/v1/evacuations").json()["runs"]
        assert operator.post(f"/v1/evacuations/{run['id']}/restore", json={}).status_code == 200
        hook.wait_for(3)
        beat.wait_for(2)
        until(lambda: operator.get(f"/v1/alerts/{verdict}").json()["deliveries"][-1]["state"] == "delivered")
        report = operator.get(f"/v1/alerts/{verdict}").json()
        listed = operator.get("/v1/alerts").json()
        assert change(operator, "snooze", verdict=verdict, **{"for": 60}).status_code == 409
    messages = [request.content for request in hook.requests if request.content["verdict"] == verdict]
    assert [message["event"] for message in messages] == ["opened", "acknowledged", "resolved"]
    assert {message["dedup_key"] for message in messages} == {f"on-call:{verdict}"}
    assert report["verdict"]["acknowledged_by"].startswith("anna (credential ")
    told = [(each["event"], each["state"]) for each in report["deliveries"] if each["alert"] == "on-call"]
    assert told == [("opened", "delivered"), ("acknowledged", "delivered"), ("resolved", "delivered")]
    assert [each["state"] for each in report["deliveries"] if each["alert"] == "down"] == ["dropped"]
    assert report in listed


def test_a_workload_is_snoozed_over_http_and_by_command(server: HoldfastServer) -> None:
    with server.operator() as operator:
        snoozed = change(operator, "snooze", workload="shop", **{"for": 1})
        assert (snoozed.status_code, snoozed.json()["workload"]) == (200, "shop")
        assert snoozed.json()["by"].startswith("credential ")
    words = ("alerts", "snooze", "--workload", "shop", "--for", "1s", "--server", server.address)
    ran = holdfast(*words, directory=server.directory, HOLDFAST_TOKEN=str(server.token))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("shop: nobody is told until ")


def test_mistakes_are_answered_with_problems(server: HoldfastServer) -> None:
    with server.operator() as operator:
        assert change(operator, "acknowledge", verdict="nothing").status_code == 404
        assert change(operator, "snooze", workload="bank", **{"for": 60}).status_code == 404
        assert change(operator, "snooze", **{"for": 60}).status_code == 400
        assert change(operator, "snooze", workload="shop", **{"for": 0}).status_code == 400
        assert change(operator, "acknowledge", verdict="x", by="a\nb").status_code == 400
        assert operator.get("/v1/alerts/nothing").status_code == 404
        token = operator.post("/v1/credentials", json={"role": "viewer"}).json()["token"]
    with server.client(token) as viewer:
        assert viewer.get("/v1/alerts").status_code == 200
        assert change(viewer, "acknowledge", verdict="x").status_code == 403
    with server.client() as stranger:
        assert stranger.get("/v1/alerts").status_code == 401
