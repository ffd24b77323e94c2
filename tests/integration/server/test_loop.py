"""Telemetry in, and a tracker that follows: over the real server."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from holdfast import Operation, Zone, ZoneState, ZoneStatus
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore, ZoneTracker
from holdfast.telemetry import RequestRecord, encode_emf
from tests.integration.server.process import STUCK, HoldfastServer
from tests.support.proxy import LossyProxy

SETTINGS = """
[[workload]]
name = "cart"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("loop"), settings=SETTINGS) as server:
        yield server


def line(zone: str = "use1-az1", namespace: str = "shop/frontend") -> bytes:
    return encode_emf(
        RequestRecord(
            namespace=namespace,
            operation=Operation("Home", "Index"),
            region="us-east-1",
            zone=Zone(zone),
            instance="i-1",
            at=time.time(),
            status=200,
            seconds=0.02,
        )
    )


def send(server: HoldfastServer, *lines: bytes, token: str | None = None) -> httpx.Response:
    with server.client(token or server.token) as client:
        return client.post("/v1/telemetry", content=b"\n".join(lines))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + STUCK
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_lines_are_taken_and_told_with_the_next_pulse(loop: HoldfastServer) -> None:
    response = send(loop, line(), b"", line("use1-az2"), line())
    assert response.status_code == 202
    answer = response.json()
    assert (answer["accepted"], answer["refused"], answer["reason"]) == (3, 0, None)

    def requests() -> int:
        with loop.operator() as operator:
            samples = operator.get("/v1/overview").json()["traffic"]
        return sum(reading["requests"] for sample in samples for reading in sample["workloads"]["shop"].values())

    until(lambda: requests() == 3)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{}", "embedded metric format"),
        (b"\xff", "is no JSON object"),
        (line("use1-az9"), "workload shop has no zone 'use1-az9'"),
        (line(namespace="other/x"), "no workload 'other'"),
    ],
)
def test_a_line_that_is_refused_does_not_hold_up_the_others(loop: HoldfastServer, bad: bytes, reason: str) -> None:
    answer = send(loop, line(), bad, bad, line()).json()
    assert (answer["accepted"], answer["refused"]) == (2, 2)
    assert reason in answer["reason"]


def test_a_sender_sends_for_its_own_workloads_only(loop: HoldfastServer) -> None:
    with loop.operator() as operator:
        created = operator.post("/v1/credentials", json={"role": "sender", "workloads": ["shop"]}).json()
    mixed = line(), line(namespace="cart/x"), line(namespace="other/x"), line()
    answer = send(loop, *mixed, token=created["token"])
    assert answer.status_code == 202
    assert (answer.json()["accepted"], answer.json()["refused"]) == (2, 2)
    assert answer.json()["reason"] == "the sender may not report workload 'cart': expected shop"
    assert send(loop, *mixed).json()["accepted"] == 3, "an operator sends for every workload that is configured"


def test_a_body_that_is_too_large_is_refused(loop: HoldfastServer) -> None:
    answer = send(loop, *[line()] * 3000)
    assert answer.status_code == 413
    assert answer.json()["detail"].endswith("send less in one request")


def test_a_board_knows_what_was_written_before_and_keeps_it_while_the_server_is_away(tmp_path: Path) -> None:
    with (
        HoldfastServer.start(tmp_path, settings=SETTINGS) as server,
        SqliteDatabase(tmp_path / "data" / "status.sqlite") as database,
        LossyProxy("127.0.0.1", int(server.address.rpartition(":")[2])) as proxy,
    ):
        store = SqlStatusStore(database)
        status = ZoneStatus(zone=Zone("use1-az1"), state=ZoneState.OUT, since=1.0, by="operator", reason="test")
        written = store.write(status, 0)
        with ZoneTracker(f"http://127.0.0.1:{proxy.port}") as tracker:
            until(lambda: tracker.zones_out("shop") == {"use1-az1"})
            assert tracker.age is not None
            proxy.refuse()
            proxy.cut()
            back = ZoneStatus(zone=Zone("use1-az1"), state=ZoneState.IN, since=2.0, by="operator", reason="mended")
            store.write(back, written.version)
            assert tracker.zones_out("shop") == {"use1-az1"}, "last known good"
            proxy.admit()
            until(lambda: tracker.zones_out("shop") == frozenset())


def test_a_board_without_a_server_sends_nobody_away() -> None:
    with ZoneTracker("http://127.0.0.1:1") as tracker:
        assert tracker.zones_out() == frozenset()
        assert tracker.age is None
