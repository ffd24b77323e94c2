"""`holdfast canary --once` prints a result per endpoint; what is missing or wrong is told before it probes."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.services.start import free_port
from tests.unit.cli.conftest import Run

WORKLOAD = """[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"fine")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def healthy() -> Iterator[str]:
    """An endpoint that answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def configure(here: Path, *addresses: str, kind: str = "http") -> None:
    table = ", ".join(f'use1-az{number} = "{address}"' for number, address in enumerate(addresses, 1))
    canary = f'[[workload.canary]]\noperation = "Home/Index"\nkind = "{kind}"\nendpoint = {{ {table} }}\n'
    (here / "holdfast.toml").write_text(WORKLOAD + canary)


def test_the_endpoint_of_the_own_zone_is_probed_once(run: Run, here: Path, healthy: str) -> None:
    configure(here, healthy, f"http://127.0.0.1:{free_port()}")
    [found] = run("canary", "--zone", "use1-az1", "--once", "--json").result
    assert found.pop("seconds") > 0
    assert found == {
        "workload": "shop",
        "operation": "Home/Index",
        "zone": "use1-az1",
        "address": healthy,
        "result": "passed",
        "status": 200,
        "error": None,
    }


def test_a_probe_that_fails_is_shown_and_makes_the_exit_code_1(run: Run, here: Path, healthy: str) -> None:
    configure(here, healthy, f"http://127.0.0.1:{free_port()}")
    ran = run("canary", "--all-zones", "--once")
    assert ran.code == 1
    header, first, second = (line.split() for line in ran.out.splitlines())
    assert header == ["zone", "workload", "operation", "result", "status", "latency", "error"]
    assert first[:5] == ["use1-az1", "shop", "Home/Index", "passed", "200"]
    assert second[:5] == ["use1-az2", "shop", "Home/Index", "failed", "503"]
    assert "ConnectionRefusedError:" in second
    assert ran.err == "holdfast: 1 of 2 probes failed\n"


def test_what_is_missing_or_wrong_is_told(run: Run, here: Path) -> None:
    ran = run("canary", "--once")
    assert ran.code == 1
    assert "the AZ-ID of this process cannot be found" in ran.err
    configure(here, "http://127.0.0.1:1")
    rows = [
        (("--zone", "us-east-1a"), 2, "us-east-1a is the name of a zone"),
        (("--zone", "use1-az9"), 1, "no zone use1-az9 is configured"),
        (("--zone", "use1-az2"), 1, "no canary has an endpoint in zone use1-az2: add a [[workload.canary]]"),
        (("--all-zones", "--zone", "use1-az1"), 2, "--zone and --all-zones: expected one of them"),
        (("--all-zones", "--workload", "x"), 1, "no workload x is configured: expected one of shop"),
        (("--all-zones", "--server", "x"), 2, "address 'x': expected one such as http://127.0.0.1:8470"),
        (("--all-zones", "--export", "x"), 2, "no metrics exporter is called 'x'"),
    ]
    for words, code, told in rows:
        ran = run("canary", *words)
        assert (ran.code, ran.out) == (code, ""), words
        assert told in ran.err, words


def test_a_port_that_accepts_connections_passes(run: Run, here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        configure(here, f"127.0.0.1:{listener.getsockname()[1]}", kind="tcp")
        assert run("canary", "--all-zones", "--once", "--json").result[0]["result"] == "passed"
