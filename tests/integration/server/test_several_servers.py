"""Two servers on one database: one evaluates, the other takes over when it is killed or paused."""

import os
import random
import signal
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.sinks.server import ServerSink
from tests.integration.server.process import HoldfastServer
from tests.integration.server.test_detection import find_child, send, until

ZONES = ("use1-az1", "use1-az2", "use1-az3")
SETTINGS = """
[telemetry]
bin_seconds = 1.5
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
detector = {min_requests = 1, consecutive_windows = 1}
"""
LEASE_SECONDS = 2


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as opened:
        url = "sqlite:"
        if request.param == "postgres":
            base, schema = request.getfixturevalue("postgres_url"), f"servers_{uuid.uuid4().hex}"
            connection = opened.enter_context(psycopg.connect(base, autocommit=True))
            connection.execute(f"create schema {schema}".encode())
            opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
            url = f"{base}?options=-csearch_path%3D{schema}"
        yield f"[server]\nlease_seconds = {LEASE_SECONDS}\n[database]\nurl = '{url}'\n{SETTINGS}"


def line(zone: str) -> bytes:
    return encode_emf(
        RequestRecord(
            namespace="shop/frontend",
            operation=Operation("Home", "Index"),
            region="us-east-1",
            zone=Zone(zone),
            instance=f"i-{zone}-{random.randrange(3)}",
            at=time.time(),
            status=200 if zone == ZONES[0] else 500,
            seconds=0.02,
        )
    )


class Load:
    """Sends the requests of a service of which two zones fail, to one server, until the context ends."""

    def __init__(self, server: HoldfastServer, token: str) -> None:
        self._sink = ServerSink(server.address, token=token)
        self._stopped = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> ServerSink:
        self._sink.start()
        self._thread.start()
        return self._sink

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._sink.close()

    def _run(self) -> None:
        while not self._stopped.wait(0.05):
            for zone in ZONES:
                self._sink.emit(line(zone))


def count_requests(client: httpx.Client) -> int:
    answer = client.get("/v1/series", params={"workload": "shop", "step": 60}).raise_for_status()
    return sum(each["total"]["requests"] for each in answer.json()["series"])


def get_role(client: httpx.Client) -> Any:
    return client.get("/ready").json().get("detection")


def is_evaluating(client: httpx.Client) -> bool:
    return bool(client.get("/v1/overview").json()["current_verdicts"]["shop"]["kind"] == "regional")


def pause(server: HoldfastServer) -> list[int]:
    """Stop a server and its child, but not while one of them has locked a SQLite file: it would stay locked."""
    while True:
        child = find_child(server)
        pids = [server.process.pid, *([child] if child is not None else [])]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            for file in (server.directory / "data").glob("*.sqlite"):
                with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
                    connection.execute("begin immediate")
        except sqlite3.OperationalError:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
        else:
            return pids


def test_another_server_takes_over_with_all_state_from_one_that_is_killed_and_one_that_is_paused(
    tmp_path: Path, settings: str
) -> None:
    with ExitStack() as stack:

        def start() -> HoldfastServer:
            server = stack.enter_context(HoldfastServer.start(tmp_path, settings=settings))
            server.token = server.token or first.token
            return server

        def connect(server: HoldfastServer) -> httpx.Client:
            return stack.enter_context(server.operator())

        first = stack.enter_context(HoldfastServer.start(tmp_path, settings=settings))
        second = start()
        one, two = connect(first), connect(second)
        assert first.token is not None
        assert (get_role(one), get_role(two)) == ("active", "standby")
        assert two.get("/v1/overview").json()["evaluating_server"] == first.address
        batch = send(two, line(ZONES[0]), X_Holdfast_Batch="7").json()
        assert (batch["accepted"], batch["is_duplicate"]) == (1, False)
        assert send(one, line(ZONES[0]), X_Holdfast_Batch="7").json()["is_duplicate"], "it was forwarded with its id"

        with Load(second, first.token):
            until(lambda: is_evaluating(one))
            until(lambda: count_requests(two) > 20)  # as the evaluating server has saved them
            assert find_child(second) is None
            first.kill()
            until(lambda: is_evaluating(two))
            [verdict] = two.get("/v1/verdicts").json()
            assert verdict["closed_at"] is None
            third = start()
            three = connect(third)
            assert (get_role(two), get_role(three)) == ("active", "standby")

        with Load(third, first.token) as sink:
            counted = count_requests(two)
            paused = pause(second)
            until(lambda: is_evaluating(three))
            assert count_requests(three) >= counted
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
            until(lambda: get_role(two) == "standby" and find_child(second) is None)
            until(lambda: two.get("/v1/overview").json()["evaluating_server"] == third.address)
            until(lambda: sink.held_lines < 100)
        assert [each["id"] for each in three.get("/v1/verdicts").json()] == [verdict["id"]], (
            "it goes on, in one verdict"
        )
        assert "holdfast_server_takeovers_total{} 1" in three.get("/metrics").text
        log = first.log.read_text()
        assert f"it took over from {first.address} with the lease" in log
        assert "because its process has ended" in log
        assert "because its lease has expired or was released" in log
        assert "another server evaluates now: this one lost the lease" in log
