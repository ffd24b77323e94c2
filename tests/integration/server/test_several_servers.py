"""Two servers on one database: one evaluates, the other takes over when it is killed or paused."""

import os
import random
import signal
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Operation, Zone
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.telemetry.sinks.server import ServerSink
from tests.integration.server.process import STUCK, HoldfastServer
from tests.integration.server.test_detection import find_child, send

ZONES = ("use1-az1", "use1-az2", "use1-az3")
SETTINGS = """
[telemetry]
bin_seconds = 5
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
detector = {name = "threshold", min_requests = 1, consecutive_windows = 1}
"""
"""With bins of 5 s, the state of a detector is valid for 30 s: longer than a take-over on a very busy machine."""
LEASE_SECONDS = 2


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.proof)])
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


def until(is_true: Callable[[], bool]) -> None:
    """Wait for something that takes seconds: asking more often would cost the servers more than their work."""
    end = time.monotonic() + STUCK
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


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
            resume(pids)
            time.sleep(0.01)
        else:
            return pids


def resume(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_server_that_is_paused_or_killed_is_replaced_by_the_other_with_all_state(
    tmp_path: Path, settings: str
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(HoldfastServer.start(tmp_path, settings=settings))
        second = stack.enter_context(HoldfastServer.start(tmp_path, settings=settings))
        token = second.token = first.token
        assert token is not None
        one, two = stack.enter_context(first.operator()), stack.enter_context(second.operator())
        assert (get_role(one), get_role(two)) == ("active", "standby")
        assert two.get("/v1/overview").json()["evaluating_server"] == first.address
        batch = send(two, line(ZONES[0]), X_Holdfast_Batch="7").json()
        assert (batch["accepted"], batch["is_duplicate"]) == (1, False)
        assert send(one, line(ZONES[0]), X_Holdfast_Batch="7").json()["is_duplicate"], "it was forwarded with its id"

        with ExitStack() as sending:
            sending.enter_context(Load(second, token))
            until(lambda: is_evaluating(one))
            until(lambda: count_requests(two) > 20)  # as the evaluating server has saved them
            counted = count_requests(one)
            paused = pause(first)
            stack.callback(resume, paused)  # if the test fails before
            until(lambda: is_evaluating(two))
            assert count_requests(two) >= counted
            resume(paused)
            until(lambda: get_role(one) == "standby" and find_child(first) is None)
            until(lambda: one.get("/v1/overview").json()["evaluating_server"] == second.address)
            sink = stack.enter_context(Load(first, token))  # before the other ends, so that no bin is empty

        counted = count_requests(two)
        second.kill()
        until(lambda: is_evaluating(one))
        assert count_requests(one) >= counted
        until(lambda: sink.held_lines < 100)
        verdicts = one.get("/v1/verdicts").json()
        assert [each["closed_at"] for each in verdicts] == [None], f"it was opened once, and never closed: {verdicts}"
        assert "holdfast_server_takeovers_total{} 2" in one.get("/metrics").text
        log = first.log.read_text()
        assert f"it took over from {first.address} with the lease" in log
        assert "because its lease has expired or was released" in log
        assert "another server evaluates now: this one lost the lease" in log
        assert f"it took over from {second.address} with the lease" in log
        assert "because its process has ended" in log
