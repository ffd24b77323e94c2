"""`holdfast canary` as a process, between real zonal endpoints and a real server."""

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Side
from tests.integration.agent.process import until
from tests.integration.server import process as server_process
from tests.integration.server.process import COMMAND, STUCK, HoldfastServer, environment
from tests.services.start import free_port
from tests.support.emf import read_outcome
from tests.support.preloaded import Preloaded

ZONES = {"use1-az1": "127.0.0.11", "use1-az2": "127.0.0.12", "use1-az3": "127.0.0.13"}


@dataclass
class Endpoint:
    """The service in one zone, on a loopback address of its own."""

    address: str
    status: int = 200
    paths: list[str] = field(default_factory=list)


@contextmanager
def zonal_endpoint(host: str) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            endpoint.paths.append(self.path)
            self.send_response(endpoint.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((host, 0), Handler) as server:
        endpoint = Endpoint(f"http://{host}:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def endpoints() -> Iterator[dict[str, Endpoint]]:
    with ExitStack() as stack:
        yield {zone: stack.enter_context(zonal_endpoint(host)) for zone, host in ZONES.items()}


def settings(endpoints: dict[str, Endpoint], **more: str) -> str:
    table = ", ".join(f'{zone} = "{endpoint.address}"' for zone, endpoint in endpoints.items())
    return f"""
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
[[workload.canary]]
operation = "Home/Index"
path = "/health"
interval = 1
timeout = 0.5
endpoint = {{ {table} }}
{"".join(f"{name} = {value}" for name, value in more.items())}
"""


@contextmanager
def running(directory: Path, *words: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    log = directory / "canary.log"
    with log.open("a") as errors:
        process = Preloaded(
            [*COMMAND, "canary", "--json", *words],
            cwd=directory,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        server_process.announcement(process, log)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def count_lines(server: HoldfastServer, result: str) -> float:
    with server.operator() as client:
        text = client.get("/metrics").text
    name = f'holdfast_server_telemetry_records_total{{result="{result}"}} '
    return next((float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name)), 0.0)


def test_results_reach_a_server_that_knows_the_sender_and_only_the_own_zone_is_probed(
    tmp_path: Path, endpoints: dict[str, Endpoint]
) -> None:
    """Takes two seconds: the shortest interval is one."""
    with HoldfastServer.start(tmp_path / "server", settings=settings(endpoints)) as server:
        token = server_process.holdfast(
            "credential", "create", "--role", "sender", "--workload", "shop", directory=server.directory
        ).stdout.strip()
        words = ["--zone", "use1-az2", "--server", server.address]
        with running(server.directory, *words, HOLDFAST_TOKEN=token) as process:
            until(lambda: server.log.read_text().count("POST /v1/telemetry 202") >= 2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STUCK) == 0
        assert count_lines(server, "accepted") >= 2
        assert count_lines(server, "refused") == 0
    assert set(endpoints["use1-az2"].paths) == {"/health"}
    assert endpoints["use1-az1"].paths == endpoints["use1-az3"].paths == []


class Receiver(ThreadingHTTPServer):
    """A server that keeps the telemetry it gets; while `is_hanging`, it does not answer."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_hanging = False
        self.was_reached = threading.Event()
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), ReceivingHandler)


class ReceivingHandler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.was_reached.set()
        if self.server.is_hanging:
            self.server.released.wait(STUCK)
        self.server.lines += content.splitlines()
        body = b'{"accepted":1,"refused":0,"reason":null}'
        self.send_response(202)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def test_a_failing_zone_is_told_from_the_others_and_the_canary_exports_its_metrics(
    tmp_path: Path, endpoints: dict[str, Endpoint], receiver: Receiver
) -> None:
    """Takes two seconds: the shortest interval is one."""
    endpoints["use1-az3"].status = 500
    (tmp_path / "holdfast.toml").write_text(settings(endpoints))
    port = free_port()
    address = f"http://127.0.0.1:{receiver.server_port}"
    with running(tmp_path, "--all-zones", "--server", address, "--export", f"prometheus:{port}") as process:
        until(lambda: len({read_outcome(line).zone for line in receiver.lines}) == 3)
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=STUCK, trust_env=False).text
        process.send_signal(signal.SIGINT)
        assert process.wait(STUCK) == 0
    found = [read_outcome(line) for line in receiver.lines]
    assert {(each.zone, each.count_2xx, each.count_5xx) for each in found} == {
        ("use1-az1", 1, 0),
        ("use1-az2", 1, 0),
        ("use1-az3", 0, 1),
    }
    assert {each.side for each in found} == {Side.CANARY}
    assert {(each.zone, each.instance) for each in found} == {
        (zone, endpoint.address) for zone, endpoint in endpoints.items()
    }
    assert (
        'holdfast_canary_probes_total{workload="shop",operation="Home/Index",zone="use1-az3",result="failed"}'
        in metrics
    )
    assert "shop Home/Index in use1-az3 failed: answered 500, expected 200" in (tmp_path / "canary.log").read_text()


def test_it_stops_in_two_seconds_while_a_function_hangs_and_the_server_does_not_answer(
    tmp_path: Path, endpoints: dict[str, Endpoint], receiver: Receiver
) -> None:
    """Takes three seconds: until the first results are sent, and then nearly the time it has to stop."""
    receiver.is_hanging = True
    (tmp_path / "hanging.py").write_text("import time\n\ndef check(address):\n    time.sleep(3600)\n")
    extra = """
[[workload.canary]]
operation = "Shop/Checkout"
kind = "python"
function = "hanging:check"
interval = 1
timeout = 0.5
endpoint = "{zone}"
"""
    (tmp_path / "holdfast.toml").write_text(settings(endpoints) + extra)
    address = f"http://127.0.0.1:{receiver.server_port}"
    with running(tmp_path, "--zone", "use1-az1", "--server", address) as process:
        assert receiver.was_reached.wait(STUCK)
        until(lambda: "Shop/Checkout in use1-az1 failed" in (tmp_path / "canary.log").read_text())
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STUCK) == 0
        assert time.monotonic() - begun < 10, "SIGTERM must not wait for the hanging function or the server"
    log = (tmp_path / "canary.log").read_text()
    assert "timed out after 0.5 s, in the function" in log
    assert "the server did not accept the last results in 1.5 s; they are lost" in log
