"""The detection process: what senders and operators see of it, also while it is killed."""

import gzip
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from holdfast import Operation, Zone
from holdfast.calls.periodic import host_name
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import RequestRecord, encode_emf
from holdfast.watch import WatchStore
from tests.integration.server.process import STUCK, HoldfastServer

ZONES = ("use1-az1", "use1-az2", "use1-az3")
SETTINGS = """
[evacuation]
mode = "automatic"
detectors = ["threshold"]
[telemetry]
bin_seconds = 0.5
max_operations = 5
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
detector = {name = "threshold", min_requests = 3}
"""
RATE = 60
"""Requests per second of the load, over all zones: ten in each zone and bin."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("detection"), settings=SETTINGS) as started:
        yield started


def line(zone: str = ZONES[0], *, status: int = 200, name: str = "Index", at: float | None = None) -> bytes:
    return encode_emf(
        RequestRecord(
            namespace="shop/frontend",
            operation=Operation("Home", name),
            region="us-east-1",
            zone=Zone(zone),
            instance=f"i-{zone}-{random.randrange(3)}",
            at=time.time() if at is None else at,
            status=status,
            seconds=0.02,
        )
    )


def send(client: httpx.Client, body: bytes, **headers: str) -> httpx.Response:
    return client.post(
        "/v1/telemetry", content=body, headers={name.replace("_", "-"): headers[name] for name in headers}
    )


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + STUCK
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def find_child(server: HoldfastServer) -> int | None:
    """The pid of the detection process, or None while there is none."""
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"holdfast.server.detection.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None


def read_verdict(client: httpx.Client) -> dict[str, Any]:
    verdict: dict[str, Any] = client.get("/v1/overview").json()["current_verdicts"]["shop"]
    return verdict


class Load:
    """Sends the requests of a service with three zones, of which one may fail, until the context ends."""

    def __init__(self, server: HoldfastServer) -> None:
        self.failing: str | None = None
        self.statuses: dict[int, int] = {}
        self._server = server
        self._stopped = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more requests. May be repeated."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with self._server.operator() as client:
            while not self._stopped.wait(0.1):
                lines = [
                    line(zone, status=500 if zone == self.failing and random.random() < 0.7 else 200)
                    for zone in ZONES
                    for _ in range(RATE // 30)
                ]
                status = send(client, b"\n".join(lines)).status_code
                self.statuses[status] = self.statuses.get(status, 0) + 1


class TestSending:
    def test_a_compressed_batch_counts_as_the_same_batch_uncompressed(self, server: HoldfastServer) -> None:
        body = b"\n".join([line(), line(ZONES[1])])
        with server.operator() as operator:
            answer = send(operator, gzip.compress(body), Content_Encoding="gzip").json()
        assert (answer["accepted"], answer["refused"]) == (2, 0)

    @pytest.mark.parametrize(
        ("body", "encoding", "status", "problem"),
        [
            (b"no gzip", "gzip", 400, "the body is not gzip data"),
            (gzip.compress(line())[:-9], "gzip", 400, "it ends too early"),
            (gzip.compress(bytes(9 << 20)), "gzip", 400, "has more than 8 MiB"),
            (line(), "br", 415, "Content-Encoding is 'br': expected gzip, or none"),
        ],
    )
    def test_a_body_that_cannot_be_decompressed_is_refused(
        self, server: HoldfastServer, body: bytes, encoding: str, status: int, problem: str
    ) -> None:
        with server.operator() as operator:
            answer = send(operator, body, Content_Encoding=encoding)
        assert answer.status_code == status
        assert problem in answer.json()["detail"]

    def test_a_batch_that_is_sent_again_counts_once(self, server: HoldfastServer) -> None:
        body = b"\n".join([line(), b"{}"])
        with server.operator() as operator:
            first = send(operator, body, X_Holdfast_Batch="one").json()
            again = send(operator, body, X_Holdfast_Batch="one").json()
            other = send(operator, body, X_Holdfast_Batch="other").json()
        assert (first["accepted"], first["refused"], first["is_duplicate"]) == (1, 1, False)
        assert again == {**first, "is_duplicate": True}
        assert not other["is_duplicate"]

    def test_late_measurements_are_stored_and_measurements_that_are_too_late_are_dropped(
        self, server: HoldfastServer
    ) -> None:
        now = time.time()
        with server.operator() as operator:
            answer = send(operator, b"\n".join([line(at=now - 10), line(at=now - 3700), line()])).json()
        assert (answer["accepted"], answer["late"], answer["too_late"]) == (3, 1, 1)

    def test_operations_beyond_the_limit_are_counted_as_other(self, server: HoldfastServer) -> None:
        with server.operator() as operator:
            names = [f"item-{number}" for number in range(10)]
            answer = send(operator, b"\n".join(line(name=name) for name in names)).json()
            assert answer["overflowed"] >= 5
            metrics = operator.get("/metrics").text
            assert "holdfast_server_telemetry_overflowed_requests_total" in metrics

            def labels() -> list[str]:
                series = operator.get("/v1/series", params={"workload": "shop", "by": "operation"}).json()["series"]
                return [each["label"] for each in series]

            until(lambda: "other/other" in labels())


class TestSeries:
    def test_measurements_can_be_read_by_zone(self, server: HoldfastServer) -> None:
        with server.operator() as operator, Load(server):

            def read() -> list[dict[str, Any]]:
                answer = operator.get("/v1/series", params={"workload": "shop", "by": "zone", "step": 0.5})
                assert answer.status_code == 200
                found: list[dict[str, Any]] = answer.json()["series"]
                return found

            until(lambda: [each["label"] for each in read() if each["total"]["requests"] > 20] == list(ZONES))
            total = read()[0]["total"]
        assert total["p50"] == pytest.approx(0.02, rel=0.05)

    @pytest.mark.parametrize(
        ("parameters", "status", "problem"),
        [
            ({"workload": "other"}, 404, "workload other is not watched"),
            ({"workload": "shop", "step": 0.1}, 400, "step is 0.1 s: expected at least 0.5 s"),
            ({"workload": "shop", "operation": "Home"}, 400, "expected service/name"),
            ({"workload": "shop", "zone": "us-east-1a"}, 400, "us-east-1a is the name of a zone"),
            ({"workload": "shop", "start": 10, "end": 5}, 400, "an end after the start"),
        ],
    )
    def test_a_wrong_question_is_refused_with_the_reason(
        self, server: HoldfastServer, parameters: dict[str, str | float], status: int, problem: str
    ) -> None:
        with server.operator() as operator:
            answer = operator.get("/v1/series", params=parameters)
        assert (answer.status_code, problem in answer.json()["detail"]) == (status, True), answer.text


class TestSources:
    def test_a_file_is_followed_from_where_the_server_read_it_last(self, tmp_path: Path) -> None:
        log = tmp_path / "shop.log"
        log.write_bytes(b"")
        settings = SETTINGS.replace(
            "max_operations = 5\n",
            f"max_operations = 5\n[[telemetry.source]]\nkind = 'emf_file'\noptions = {{paths = ['{log}']}}\n",
        )

        def count_requests(server: HoldfastServer) -> int:
            with server.operator() as operator:
                series = operator.get("/v1/series", params={"workload": "shop", "step": 0.5}).json()["series"]
            return sum(each["total"]["requests"] for each in series)

        def add_lines(count: int) -> None:
            with log.open("ab") as file:
                file.write(b"\n".join(line() for _ in range(count)) + b"\n")

        with HoldfastServer.start(tmp_path / "first", settings=settings) as server:
            with SqliteDatabase(tmp_path / "first" / "data" / "watch.sqlite") as database:
                store = WatchStore(database)
                until(lambda: store.load_position(f"{host_name()}/0/emf_file") != "")  # it has seen the empty file
            add_lines(7)
            until(lambda: count_requests(server) == 7)
            with server.operator() as operator:
                metrics = operator.get("/metrics").text
            assert 'holdfast_server_telemetry_records_total{result="accepted"} 7' in metrics
            token = server.token
        add_lines(2)  # while no server runs
        with HoldfastServer.start(tmp_path / "first", settings=settings) as server:
            server.token = token  # it is shown at the first start only
            add_lines(1)
            until(lambda: count_requests(server) == 10)


def kill_child(server: HoldfastServer) -> None:
    child = find_child(server)
    assert child is not None
    os.kill(child, signal.SIGKILL)
    until(lambda: find_child(server) != child)


def survive_kills(directory: Path, kills: int) -> None:
    """Kill the detection process under load, several times: the API answers, and the verdict is right again."""
    with HoldfastServer.start(directory, settings=SETTINGS) as server, server.operator() as operator:
        with Load(server) as load:
            until(lambda: read_verdict(operator)["kind"] == "healthy")
            before = operator.get("/v1/series", params={"workload": "shop"}).json()["series"][0]["points"]
            for _ in range(kills):
                kill_child(server)
                assert operator.get("/health").status_code == 200
                assert operator.get("/v1/status").status_code == 200
                until(lambda: read_verdict(operator)["kind"] == "unknown")  # as soon as the server notices
                until(lambda: read_verdict(operator)["kind"] == "healthy")
                assert operator.get("/ready").json()["status"] == "ready"
            after = operator.get("/v1/series", params={"workload": "shop"}).json()["series"][0]["points"]
            assert [point for point in before[:-1] if point not in after] == [], "complete bins survive"
            load.failing = ZONES[1]
            kill_child(server)
            until(lambda: read_verdict(operator)["kind"] == "isolated")
            assert read_verdict(operator)["zone"] == ZONES[1]
            until(lambda: any(status["zone"] == ZONES[1] for status in operator.get("/v1/status").json()["statuses"]))
        assert set(load.statuses) <= {202, 503}
        child = find_child(server)
        assert child is not None
        server.kill()
        until(lambda: not Path(f"/proc/{child}").exists())


class TestKills:
    def test_a_killed_detection_process_is_restarted_and_its_verdict_is_unknown_meanwhile(self, tmp_path: Path) -> None:
        survive_kills(tmp_path, 1)

    @pytest.mark.proof
    def test_no_number_of_kills_stops_the_server(self, tmp_path: Path) -> None:
        survive_kills(tmp_path, 15)

    def test_a_server_without_workloads_has_no_detection_process(self, tmp_path: Path) -> None:
        with HoldfastServer.start(tmp_path) as server, server.operator() as operator:
            assert find_child(server) is None
            answer = send(operator, line()).json()
            assert (answer["accepted"], answer["refused"]) == (0, 1)
            assert "no workload is configured" in answer["reason"]
