"""The middleware in front of a real application, on a real server."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from litestar import Litestar, Request, WebSocket, get, post
from litestar.handlers import websocket
from litestar.params import FromPath
from litestar.response import Stream
from websockets.sync.client import connect as open_socket

from holdfast import DeadlineExceeded
from holdfast._types import Operation
from holdfast.calls import Dependency, Retry, Timeouts, current_attempt, remaining
from holdfast.calls.runtime import Runtime
from holdfast.middleware import AsgiMiddleware, MiddlewareOptions
from holdfast.testing import FakeClock
from tests.integration.middleware.support import FAULT, HERE, LEFT, OK, Status, WaitingSink, ask, classes, connect

SHOP = MiddlewareOptions(workload="shop", zone=HERE, instance="i-1")


@pytest.fixture
def told() -> WaitingSink:
    return WaitingSink()


@pytest.fixture
def status() -> Status:
    return Status()


@pytest.fixture(params=["h11", "httptools"])
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextmanager
def serving(app: Any, protocol: str = "h11") -> Iterator[int]:
    """A server in a thread, until the end of the block; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=protocol, lifespan="off", log_config=None, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@get("/users/{name:str}")
async def user(name: FromPath[str]) -> dict[str, Any]:
    return {"name": name, "remaining": remaining()}


@get("/broken")
async def broken() -> None:
    raise ZeroDivisionError


@get("/health")
async def health() -> str:
    return "fine"


@post("/upload")
async def upload(request: Request[Any, Any, Any]) -> int:
    return len(await request.body())


@websocket("/socket")
async def echo(socket: WebSocket[Any, Any, Any]) -> None:
    await socket.accept()
    await socket.send_text(await socket.receive_text())
    await socket.close()


def shop(told: WaitingSink | None, *handlers: Any, service: MiddlewareOptions = SHOP, **around: Any) -> AsgiMiddleware:
    app = Litestar([user, broken, health, upload, echo, *handlers], openapi_config=None)
    return AsgiMiddleware(app, service, sink=told, **around)


def test_an_answer_is_reported_under_its_route(told: WaitingSink, protocol: str) -> None:
    with serving(shop(told), protocol) as port:
        assert ask(port, "/users/eva")[0] == 200
        outcome = told.next()
        assert ask(port, "/nothing/here")[0] == 404
        unmatched = told.next()
    assert (outcome.operation, classes(outcome)) == (Operation("shop", "GET /users/{name}"), OK)
    assert (unmatched.operation, classes(unmatched)) == (Operation("shop", "GET unmatched"), LEFT)
    assert told.is_empty()


def test_an_exception_is_an_answer_of_500_and_a_fault(told: WaitingSink, protocol: str) -> None:
    with serving(shop(told), protocol) as port:
        assert ask(port, "/broken")[0] == 500
        assert classes(told.next()) == FAULT


def test_an_exception_that_reaches_the_server_is_still_the_servers_to_answer(told: WaitingSink, protocol: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    with serving(AsgiMiddleware(app, SHOP, sink=told), protocol) as port:
        assert ask(port)[0] == 500
        assert classes(told.next()) == FAULT


def test_a_request_that_is_late_is_refused_and_the_connection_stays(told: WaitingSink, protocol: str) -> None:
    with serving(shop(told), protocol) as port:
        connection = connect(port)
        connection.request("GET", "/users/eva", headers={"Holdfast-Remaining": "0"})
        reply = connection.getresponse()
        assert (reply.status, json.loads(reply.read())["status"]) == (504, 504)
        connection.request("GET", "/users/eva")
        assert connection.getresponse().read()
        connection.close()
        assert [told.next().is_ignored, told.next().is_ignored] == [True, False]


def test_a_refused_upload_is_not_asked_to_continue(told: WaitingSink, protocol: str) -> None:
    with serving(shop(told), protocol) as port, socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(
            b"POST /upload HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"
            b"Holdfast-Remaining: 0\r\n\r\n"
        )
        assert client.recv(65_536).startswith(b"HTTP/1.1 504")


def test_uploads_in_chunks_pass_with_or_without_an_expectation(told: WaitingSink, protocol: str) -> None:
    with serving(shop(told), protocol) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(
                b"POST /upload HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            assert client.recv(65_536).startswith(b"HTTP/1.1 100")
            client.sendall(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            answer = b""
            while not answer.endswith(b"5"):
                answer += client.recv(65_536)
        assert classes(told.next()) == OK


def test_a_refusal_of_a_head_request_is_whole(told: WaitingSink, protocol: str) -> None:
    with serving(shop(told), protocol) as port:
        code, headers, body = ask(port, "/users/eva", "HEAD", Holdfast_Remaining="0")
        assert (code, body) == (504, b"")
        assert int(headers["content-length"]) > 0


def test_a_client_that_leaves_a_stream_is_no_fault(told: WaitingSink, protocol: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0)

    @get("/stream")
    async def stream() -> Stream:
        return Stream(endless())

    with serving(shop(told, stream), protocol) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(10).startswith(b"HTTP/1.1 2")
        assert classes(told.next()) == OK
        assert ask(port, "/users/eva")[0] == 200
        assert classes(told.next()) == OK
    assert told.is_empty()


def test_a_client_that_leaves_before_the_answer_is_no_fault(told: WaitingSink, protocol: str) -> None:
    async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise RuntimeError("the client is gone")

    with serving(AsgiMiddleware(app, SHOP, sink=told), protocol) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert classes(told.next()) == LEFT


def test_websockets_pass(told: WaitingSink) -> None:
    with serving(shop(told)) as port:
        with open_socket(f"ws://127.0.0.1:{port}/socket", proxy=None) as client:
            client.send("hello")
            assert client.recv() == "hello"
        assert told.is_empty()


def test_a_zone_that_is_out_drains_by_its_health_check(told: WaitingSink, status: Status) -> None:
    with serving(shop(told, zones=status.tracker)) as port:
        assert ask(port, "/health")[2] == b"fine"
        status.say(out=True)
        assert ask(port, "/health")[0] == 503
        assert ask(port, "/users/eva")[0] == 200
        status.say(out=False)
        assert ask(port, "/health")[2] == b"fine"
        assert classes(told.next()) == OK
    assert told.is_empty()


def test_a_zone_that_is_out_refuses_if_it_is_told_to(told: WaitingSink, status: Status) -> None:
    refusing = MiddlewareOptions(workload="shop", zone=HERE, refuse_while_out=True)
    status.say(out=True)
    with serving(shop(told, service=refusing, zones=status.tracker)) as port:
        code, headers, body = ask(port, "/users/eva")
        assert (code, json.loads(body)["type"]) == (503, "urn:holdfast:problem:zone-out")
        assert 5 <= int(headers["retry-after"]) <= 10
        assert told.next().is_ignored


def test_a_handler_that_hangs_is_cut_off_if_that_is_wanted(told: WaitingSink, protocol: str) -> None:
    @get("/hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    service = MiddlewareOptions(workload="shop", zone=HERE, cancel_overruns=True, default_deadline=0.1)
    with serving(shop(told, hang, service=service), protocol) as port:
        assert ask(port, "/hang")[0] == 504
        assert classes(told.next()) == FAULT
        assert ask(port, "/hang", Holdfast_Remaining="0.05")[0] == 504
        assert classes(told.next()) == LEFT, "a caller in such a hurry is no fault of the zone"


def test_a_client_that_waits_until_its_deadline_for_a_handler_that_hangs_is_a_fault(
    told: WaitingSink, protocol: str
) -> None:
    @get("/hang")
    async def hang(request: Request[Any, Any, Any]) -> None:
        asking.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise DeadlineExceeded("nobody waits")

    for seconds, expected in (("1", FAULT), ("0.000001", LEFT)):
        asking = threading.Event()
        clock = FakeClock()
        with serving(shop(told, hang, runtime=Runtime(clock, lambda: 0.5)), protocol) as port:
            client = connect(port)
            client.request("GET", "/hang", headers={"Holdfast-Remaining": seconds})
            assert asking.wait(10)
            clock.advance(1.0)
            client.close()
            assert classes(told.next()) == expected


def test_an_application_that_gives_up_past_its_deadline_answers_so_if_it_lets_the_error_out(
    told: WaitingSink, protocol: str
) -> None:
    clock = FakeClock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clock.advance(2.0)
        raise DeadlineExceeded("pricing: refused")

    with serving(AsgiMiddleware(app, SHOP, sink=told, runtime=Runtime(clock, lambda: 0.5)), protocol) as port:
        code, headers, _ = ask(port, "/", Holdfast_Remaining="1")
        assert (code, headers["content-type"]) == (504, "application/problem+json")
        assert classes(told.next()) == FAULT


def test_three_services_in_a_row_share_one_deadline_and_one_retries() -> None:
    """Front, middle and back: the back fails; only the front repeats, so the back is asked three times and not nine."""
    asked: list[float | None] = []

    @get("/price")
    async def price() -> None:
        asked.append(remaining())
        raise ZeroDivisionError

    def calls(port: int, dependency: Dependency) -> None:
        def request() -> None:
            code, _, _ = ask(port, "/price", **current_attempt().headers())
            if code >= 500:
                raise ConnectionError(f"answered {code}")

        dependency.run(request, idempotent=True, operation="price")

    retry = Retry(max_attempts=3)
    with serving(shop(None, price)) as back:
        middle_to_back = Dependency("back", retry=retry)

        @get("/price", sync_to_thread=True)
        def middle() -> None:
            calls(back, middle_to_back)

        app = AsgiMiddleware(Litestar([middle], openapi_config=None), SHOP)
        with serving(app) as front, pytest.raises(ConnectionError):
            calls(front, Dependency("middle", retry=retry, timeouts=Timeouts(total=4.0)))
    assert len(asked) == 3
    left = [one for one in asked if one is not None]
    assert len(left) == 3
    assert left == sorted(left, reverse=True)
    assert left[0] < 4.0
