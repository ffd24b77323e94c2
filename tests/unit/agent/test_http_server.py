"""The agent's HTTP server, over real sockets: no client holds it up."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast._listen import listen
from holdfast.agent import http_server
from holdfast.agent.http_server import HttpServer, Request
from holdfast.agent.responses import Response, build_detail

SOON = 10.0


async def echo(request: Request) -> Response:
    return Response(200, {"method": request.method, "target": request.target, "body": request.body.decode()})


def takes(method: str, target: str) -> int:
    return 100 if (method, target) == ("POST", "/sns") else 0


@asynccontextmanager
async def serving(
    respond: Callable[[Request], Awaitable[Response]] = echo, patience: float = SOON
) -> AsyncIterator[tuple[str, int]]:
    server = HttpServer(respond, takes, timeout=patience)
    with listen("127.0.0.1", 0, section="agent", backlog=16) as listener:
        await server.start(listener)
        yield listener.getsockname()
        await server.close()


async def exchange(place: tuple[str, int], content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*place)
    try:
        writer.write(content)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), SOON)
    finally:
        writer.close()
        await writer.wait_closed()


def ask(content: bytes, respond: Callable[[Request], Awaitable[Response]] = echo) -> tuple[int, bytes]:
    async def once() -> bytes:
        async with serving(respond) as place:
            return await exchange(place, content)

    head, _, body = asyncio.run(once()).partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    return int(head.split(b" ")[1]), body


def test_a_question_is_answered_and_the_connection_closed() -> None:
    code, body = ask(b"GET /health?x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (code, body) == (200, b'{"method":"GET","target":"/health?x","body":""}')
    assert ask(b"GET / HTTP/1.0\r\n\r\n")[0] == 200


def test_a_question_without_body_is_answered_without_one() -> None:
    assert ask(b"HEAD / HTTP/1.1\r\n\r\n") == (200, b"")


def test_a_body_is_taken_where_it_is_expected() -> None:
    code, body = ask(b"POST /sns HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
    assert (code, body) == (200, b'{"method":"POST","target":"/sns","body":"hello"}')


def test_a_body_that_nobody_expects_is_not_read_and_the_answer_arrives_all_the_same() -> None:
    content = b"POST /health HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500_000
    assert ask(content) == (200, b'{"method":"POST","target":"/health","body":""}')


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: x\r\n" * 200 + b"\r\n", 431),
        (b"POST /sns HTTP/1.1\r\nContent-Length: 101\r\n\r\n" + b"x" * 101, 413),
        (b"POST /sns HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", 411),
        (b"POST /sns HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST /sns HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_understood_is_refused(content: bytes, code: int) -> None:
    found, body = ask(content)
    assert found == code
    assert body.startswith(b'{"detail":"expected ')


def test_an_answer_that_fails_is_a_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: Request) -> Response:
        raise RuntimeError("broken")

    assert ask(b"GET / HTTP/1.1\r\n\r\n", broken)[0] == 500
    assert "RuntimeError: broken" in caplog.text


@pytest.mark.parametrize(
    "half",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\n", b"POST /sns HTTP/1.1\r\nContent-Length: 5\r\n\r\nhal"],
    ids=["nothing", "half a line", "half the headers", "half a body"],
)
def test_a_client_that_does_not_go_on_is_sent_away(half: bytes) -> None:
    async def wait() -> bytes:
        async with serving(patience=0.05) as place:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(half)
            try:
                return await asyncio.wait_for(reader.read(), SOON)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

    assert asyncio.run(wait()) == b""


def test_clients_that_do_not_go_on_hold_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS", 10)

    async def crowd() -> tuple[list[bytes], int]:
        async with serving() as place:
            idle = [await asyncio.open_connection(*place) for _ in range(50)]
            for _, writer in idle:
                writer.write(b"GET / HT")
            answers = [await exchange(place, b"GET / HTTP/1.1\r\n\r\n") for _ in range(20)]
            gone = 0
            for reader, writer in idle:
                try:
                    async with asyncio.timeout(0.02):
                        gone += await reader.read() == b""
                except ConnectionResetError:
                    gone += 1
                except TimeoutError:
                    pass
                writer.close()
            return answers, gone

    answers, gone = asyncio.run(crowd())
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers)
    assert 40 <= gone < 50, "the oldest went, and no more than had to"


def test_whoever_waits_for_an_answer_is_not_sent_away_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS", 2)

    async def crowd() -> bytes:
        asked, go = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> Response:
            if request.target == "/slow":
                asked.set()
                await go.wait()
            return build_detail(200, "done")

        async with serving(slow) as place:
            first = asyncio.create_task(exchange(place, b"GET /slow HTTP/1.1\r\n\r\n"))
            await asked.wait()
            idle = [await asyncio.open_connection(*place) for _ in range(10)]
            await exchange(place, b"GET / HTTP/1.1\r\n\r\n")
            go.set()
            answer = await first
            for _, writer in idle:
                writer.close()
            return answer

    assert asyncio.run(crowd()).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_leaves_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> bytes:
        async with serving() as place:
            for content in (b"", b"GET / HTTP/1.1\r\n\r\n", b"POST /sns HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"):
                _, writer = await asyncio.open_connection(*place)
                writer.write(content)
                writer.transport.abort()
            return await exchange(place, b"GET / HTTP/1.1\r\n\r\n")

    assert asyncio.run(leave()).startswith(b"HTTP/1.1 200 OK")
    assert caplog.text == ""


def test_a_server_that_closes_leaves_no_connection_open_however_far_its_client_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def connect_and_close(iterations: int) -> bytes:
        server = HttpServer(echo, takes)
        with listen("127.0.0.1", 0, section="agent", backlog=16) as listener:
            await server.start(listener)
            with socket.create_connection(listener.getsockname(), timeout=SOON) as client:
                for _ in range(iterations):
                    await asyncio.sleep(0)
                await server.close()
                await asyncio.sleep(0)
                await server.close()
                return await asyncio.to_thread(received, client)

    for iterations in range(8):
        assert asyncio.run(connect_and_close(iterations)) == b""
        gc.collect()  # a transport that was left open warns when it is collected, which fails the test
    assert caplog.records == []


def received(client: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection or breaks it."""
    try:
        return client.recv(1)
    except ConnectionResetError:
        return b""
