"""The middleware in front of a real application, on a real server."""

import json
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from flask import Flask, Response, request

from holdfast._types import Operation
from holdfast.calls import remaining
from holdfast.middleware import MiddlewareOptions, WsgiMiddleware
from tests.integration.middleware.support import FAULT, HERE, OK, Status, WaitingSink, ask, classes

SHOP = MiddlewareOptions(workload="shop", zone=HERE, instance="i-1")


@pytest.fixture
def told() -> WaitingSink:
    return WaitingSink()


class Server(WSGIServer):
    def handle_error(self, *_: Any) -> None:
        """A client that leaves is no news."""


@contextmanager
def serving(app: Any) -> Iterator[int]:
    """A server in a thread, until the end of the block; its port."""
    with make_server("127.0.0.1", 0, app, Server, WSGIRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WSGIRequestHandler, "log_message", lambda *_: None)


def shop(told: WaitingSink | None, *, service: MiddlewareOptions = SHOP, **around: Any) -> WsgiMiddleware:
    app = Flask("shop")

    @app.get("/users/<name>")
    def user(name: str) -> dict[str, Any]:
        return {"name": name, "remaining": remaining()}

    @app.get("/broken")
    def broken() -> str:
        raise ZeroDivisionError

    @app.get("/health")
    def health() -> str:
        return "fine"

    @app.post("/upload")
    def upload() -> str:
        return str(len(request.get_data()))

    @app.get("/lines")
    def lines() -> Response:
        return Response((f"{remaining()}\n" for _ in range(2)), content_type="text/plain")

    @app.get("/endless")
    def endless() -> Response:
        def pieces() -> Iterator[bytes]:
            while True:
                yield b"x" * 65_536

        return Response(pieces())

    return WsgiMiddleware(app, service, sink=told, **around)


def test_an_answer_is_reported_under_its_route(told: WaitingSink) -> None:
    with serving(shop(told)) as port:
        code, headers, body = ask(port, "/users/eva", Holdfast_Remaining="9")
        assert (code, headers["content-length"]) == (200, str(len(body)))
        assert 0 < json.loads(body)["remaining"] <= 9
        outcome = told.next()
    assert (outcome.operation, classes(outcome)) == (Operation("shop", "GET /users/<name>"), OK)
    assert told.is_empty()


def test_a_body_that_is_made_piece_by_piece_is_made_within_the_deadline(told: WaitingSink) -> None:
    with serving(shop(told)) as port:
        _, _, body = ask(port, "/lines", Holdfast_Remaining="9")
        assert all(0 < float(line) <= 9 for line in body.split())
        assert classes(told.next()) == OK


def test_an_exception_is_a_fault_whether_the_framework_answers_or_the_server(told: WaitingSink) -> None:
    def raising(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise ZeroDivisionError

    for app in (shop(told), WsgiMiddleware(raising, SHOP, sink=told)):
        with serving(app) as port:
            assert ask(port, "/broken")[0] == 500
            assert classes(told.next()) == FAULT


def test_a_request_that_is_late_is_refused(told: WaitingSink) -> None:
    with serving(shop(told)) as port:
        assert ask(port, "/users/eva", Holdfast_Remaining="0")[0] == 504
        code, headers, body = ask(port, "/users/eva", "HEAD", Holdfast_Remaining="0")
        assert (code, body) == (504, b"")
        assert int(headers["content-length"]) > 0
        assert [told.next().is_ignored, told.next().is_ignored] == [True, True]


def test_heads_and_uploads_pass(told: WaitingSink) -> None:
    with serving(shop(told)) as port:
        assert ask(port, "/users/eva", "HEAD")[0] == 200
        assert classes(told.next()) == OK
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde")
            answer = b""
            while data := client.recv(65_536):
                answer += data
        assert answer.endswith(b"5")
        assert classes(told.next()) == OK


def test_a_client_that_leaves_a_stream_is_no_fault(told: WaitingSink) -> None:
    with serving(shop(told)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(10)
        assert classes(told.next()) == OK
    assert told.is_empty()


def test_a_zone_that_is_out_drains_by_its_health_check_and_refuses_if_it_is_told_to(told: WaitingSink) -> None:
    status = Status()
    refusing = MiddlewareOptions(workload="shop", zone=HERE, refuse_while_out=True)
    with (
        serving(shop(told, zones=status.tracker)) as port,
        serving(shop(told, service=refusing, zones=status.tracker)) as strict,
    ):
        assert ask(port, "/health")[2] == b"fine"
        status.say(out=True)
        assert ask(port, "/health")[0] == 503
        assert ask(port, "/users/eva")[0] == 200
        code, headers, _ = ask(strict, "/users/eva")
        assert (code, 5 <= int(headers["retry-after"]) <= 10) == (503, True)
        status.say(out=False)
        assert ask(strict, "/users/eva")[0] == 200
