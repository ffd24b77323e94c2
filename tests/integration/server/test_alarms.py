"""Alarms over HTTP: their tree, their history, and reasons, as operators see them."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.watch.pauses import MIN_PAUSE
from tests.integration.server.process import STUCK, HoldfastServer, holdfast
from tests.integration.server.test_detection import find_child

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


SHORT = (
    SETTINGS.replace("[workload.alarms]", "[workload.alarms]\nperiod = 10\nmin_availability = 90")
    + "[telemetry]\nbin_seconds = 2\n"
)
"""Bins of two seconds: a server evaluates alarms for the first time when its first bin is complete."""
ZONES = ("use1-az1", "use1-az2", "use1-az3")
ISOLATED = "use1-az2-isolated-impact"


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + STUCK
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def send(operator: httpx.Client, requests: int, failing: str | None = None) -> None:
    """Send requests of each of the last 50 seconds, which the allowance for late telemetry covers.

    Three instances of each zone send that many requests in a second.
    """
    now = time.time()
    lines = [
        encode_emf(
            RequestRecord(
                namespace="shop/frontend",
                operation=Operation("Home", "Index"),
                region="us-east-1",
                zone=Zone(zone),
                instance=f"i-{instance}",
                at=now - age,
                status=500 if zone == failing else 200,
                seconds=0.02,
            )
        )
        for age in range(50)
        for zone in ZONES
        for instance in range(3)
        for _ in range(requests)
    ]
    for part in (lines[start : start + 500] for start in range(0, len(lines), 500)):  # within the limit of a request
        answer = operator.post("/v1/telemetry", content=b"\n".join(part))
        assert answer.status_code == 202, answer.text
        assert answer.json()["accepted"] == len(part)


def ask(operator: httpx.Client) -> dict[str, Any]:
    return dict(operator.get(f"/v1/alarms/{ISOLATED}").json()["alarm"])


def read_alarm(directory: Path, *words: str, **variables: str) -> dict[str, Any]:
    """Return the last alarm of the zone, as `holdfast alarms state` prints it from the stores or for a server."""
    ran = holdfast("alarms", "state", "--json", *words, directory=directory, **variables)
    assert ran.returncode == 0, ran.stderr
    [found] = json.loads(ran.stdout)
    [alarm] = [each for each in found["alarms"] if each["name"] == ISOLATED]
    return dict(alarm)


def read_history(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        holdfast("alarms", "history", ISOLATED, "--json", directory=directory).stdout
    )
    return found


def kill_all(server: HoldfastServer) -> None:
    """Kill the server and its detection process, so that neither saves anything more."""
    child = find_child(server)
    assert child is not None
    server.kill()
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{child}").exists())


def follow_a_failing_zone(directory: Path, *, until_it_recovers: bool) -> None:
    """Let a zone fail, look at its last alarm over HTTP and by commands, kill the server, and look again."""
    with HoldfastServer.start(directory, settings=SHORT) as server, server.operator() as operator:
        assert server.token is not None
        token = server.token
        send(operator, 1, failing="use1-az2")
        until(lambda: ask(operator)["state"] == "ALARM")
        known = ask(operator)
        assert read_alarm(directory, "--server", server.address, HOLDFAST_TOKEN=token) == known
        name = "use1-az2/Home/Index-availability-server-3-in-a-row"
        metric = json.loads(holdfast("alarms", "explain", name, "--json", directory=directory).stdout)
        assert metric["alarm"]["state"] == "ALARM"
        assert [each["value"] for each in metric["datapoints"] if each["is_used"]] == [0.0, 0.0, 0.0]
        history = operator.get("/v1/alarms/history", params={"name": ISOLATED}).json()
        assert "Alarm updated from INSUFFICIENT_DATA to ALARM" in [each["HistorySummary"] for each in history]
        kill_all(server)
    assert (read_alarm(directory), read_history(directory)) == (known, history), "while no server runs"
    with HoldfastServer.start(directory, settings=SHORT) as server, server.client(token) as operator:
        assert ask(operator) == known
        assert operator.get("/v1/alarms/history", params={"name": ISOLATED}).json() == history
        if until_it_recovers:
            send(operator, 12)  # so that less than ten per cent of the requests in each period failed
            until(lambda: ask(operator)["state"] == "OK")
            summaries = [each["HistorySummary"] for each in read_history(directory)]
            assert "Alarm updated from ALARM to OK" in summaries[: -len(history)]


def test_a_failing_zone_reaches_its_last_alarm_which_survives_a_kill(tmp_path: Path) -> None:
    """Takes about five seconds: the first bin needs up to 3.5 seconds, and the server starts twice."""
    follow_a_failing_zone(tmp_path, until_it_recovers=False)


@pytest.mark.proof
def test_a_detection_process_that_was_stopped_for_a_while_says_so(tmp_path: Path) -> None:
    """Takes seven seconds: shorter pauses do not count."""
    with HoldfastServer.start(tmp_path, settings=SHORT) as server:
        until(lambda: find_child(server) is not None)
        child = find_child(server)
        assert child is not None
        with server.operator() as operator:
            send(operator, 1)  # so that the process runs
        os.kill(child, signal.SIGSTOP)
        time.sleep(MIN_PAUSE + 2)
        os.kill(child, signal.SIGCONT)
        until(lambda: "this process did not run for" in server.log.read_text())


@pytest.mark.proof
def test_the_last_alarm_of_a_failing_zone_ends_when_the_zone_recovers(tmp_path: Path) -> None:
    follow_a_failing_zone(tmp_path, until_it_recovers=True)
