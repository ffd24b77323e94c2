"""From a request to a measurement: real applications, real servers, real sockets and files."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import uvicorn
from fastapi import FastAPI, Response
from flask import Flask

from holdfast import MultiSink, Zone
from holdfast.middleware import AsgiMiddleware, MiddlewareOptions, WsgiMiddleware, mark_cache_refresh
from holdfast.telemetry.meter import Meter
from holdfast.telemetry.sinks.agent import AgentSink
from holdfast.telemetry.sinks.files import FileSink
from holdfast.telemetry.sinks.lines import EmfSink
from holdfast.telemetry.sinks.server import ServerSink
from tests.integration.server.process import STUCK, HoldfastServer
from tests.support.emf import read_emf, read_outcome

PATIENCE = 20.0
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SETTINGS = """
[telemetry]
bin_seconds = 0.5
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
fault_statuses = ["5xx", "429"]
"""


class QuietHandler(WSGIRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def serve_flask(app: Any) -> Iterator[int]:
    with make_server("127.0.0.1", 0, app, handler_class=QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serve_fastapi(app: Any) -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def build_flask(sink: Any, options: MiddlewareOptions) -> Any:
    app = Flask("shop")

    @app.get("/items/<name>")
    def show(name: str) -> tuple[str, int]:
        if name == "fresh":
            mark_cache_refresh()
        return name, int(name) if name.isdigit() else 200

    return WsgiMiddleware(app.wsgi_app, options, sink=sink)


def build_fastapi(sink: Any, options: MiddlewareOptions) -> Any:
    app = FastAPI()

    @app.get("/items/{name}")
    def show(name: str) -> Response:  # not `async`, so it runs in a thread
        if name == "fresh":
            mark_cache_refresh()
        return Response(name, int(name) if name.isdigit() else 200)

    return AsgiMiddleware(app, options, sink=sink)


def ask(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with closing(connection):
        connection.request("GET", path, headers={"traceparent": TRACE, "Host": "shop.example.com"})
        response = connection.getresponse()
        response.read()
        return response.status


KINDS = {"flask": (build_flask, serve_flask, "<name>"), "fastapi": (build_fastapi, serve_fastapi, "{name}")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_a_line_with_every_field_that_cloudwatch_and_holdfast_accept(kind: str, tmp_path: Path) -> None:
    build, serve, parameter = KINDS[kind]
    path = tmp_path / "telemetry.ndjson"
    options = MiddlewareOptions(workload="shop", zone=Zone("use1-az1"), instance="i-1", report_source_ip=True)
    with FileSink(path) as lines:
        sink = EmfSink(lines, component="frontend", region="us-east-1", log_group="/shop")
        with serve(build(sink, options)) as port:
            paths = ["/items/tea?token=secret", "/items/fresh", "/items/429", "/items/503", "/nowhere"]
            assert [ask(port, path) for path in paths] == [200, 200, 429, 503, 404]
            end = time.monotonic() + PATIENCE
            while lines.sent_lines + lines.held_lines < len(paths):  # FastAPI's last report may follow its last byte
                assert time.monotonic() < end
        assert lines.flush()
    written = path.read_bytes().splitlines()
    assert b"secret" not in path.read_bytes()
    documents = [json.loads(line) for line in written]
    assert [document["HttpStatusCode"] for document in documents] == [200, 200, 429, 503, 404]
    assert [document["CacheRefresh"] for document in documents] == [False, True, False, False, False]
    assert [document["Path"] for document in documents] == [path.partition("?")[0] for path in paths]
    assert [document["Action"] for document in documents] == [f"GET /items/{parameter}"] * 4 + ["GET unmatched"]
    for document in documents:
        assert (document["TraceId"], document["SourceIp"]) == (TRACE[3:35], "127.0.0.1")
        assert (document["Host"], document["InstanceId"]) == ("shop.example.com", "i-1")
        assert document["LogGroupName"] == document["_aws"]["LogGroupName"] == "/shop"
    for line in written:
        values = read_emf(line)
        assert sorted({len(value.dimensions) for value in values}) == [3, 4, 5]
        assert sum(value.value for value in values if value.unit == "Count") == 3, "one request in each of three sets"
    decoded = [read_outcome(line) for line in written]
    assert [(each.count_2xx, each.count_4xx, each.count_5xx) for each in decoded] == [
        (1, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (0, 1, 0),
    ]


def test_one_meter_feeds_a_file_an_agent_and_a_server_that_counts_what_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.ndjson"
    with (
        HoldfastServer.start(tmp_path, settings=SETTINGS) as server,
        socket.create_server(("127.0.0.1", 0)) as agent,
        FileSink(path) as file,
        AgentSink(f"tcp://127.0.0.1:{agent.getsockname()[1]}") as to_agent,
        ServerSink(server.address, token=server.token) as to_server,
    ):
        agent.settimeout(PATIENCE)
        lines: MultiSink[bytes] = MultiSink(file, to_agent, to_server)
        meter = Meter(
            "shop",
            zone=Zone("use1-az1"),
            instance="i-1",
            sink=EmfSink(lines, component="worker", region="us-east-1", log_group="/shop"),
        )

        @meter.measured("Import", client_errors=ValueError)
        def load(number: int) -> int:
            if number % 10 == 0:
                raise ValueError(number)
            return 1 // (number % 10 - 1)  # fails for 1, 11, ...

        for number in range(200):
            try:
                load(number)
            except (ValueError, ZeroDivisionError):
                continue
        assert all(sink.flush() for sink in (file, to_agent, to_server))
        connection, _ = agent.accept()
        with connection:
            connection.settimeout(PATIENCE)
            received = b""
            while received.count(b"\n") < 200:
                received += connection.recv(1 << 20)
        assert received == path.read_bytes()
        decoded = [read_outcome(line) for line in received.splitlines()]
        assert sum(outcome.count_2xx for outcome in decoded) == 160
        assert sum(outcome.count_4xx for outcome in decoded) == 20
        assert sum(outcome.count_5xx for outcome in decoded) == 20
        assert (to_server.sent_lines, to_server.refused_lines, to_server.dropped_lines) == (200, 0, 0)
        end = time.monotonic() + STUCK
        with server.operator() as operator:
            while True:
                samples = operator.get("/v1/overview").json()["traffic"]
                readings = [sample["workloads"]["shop"]["use1-az1"] for sample in samples]
                if sum(reading["requests"] for reading in readings) == 200:
                    break
                assert time.monotonic() < end, readings
                time.sleep(0.05)
