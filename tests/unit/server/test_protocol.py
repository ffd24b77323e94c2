"""How much a client may send, how long it may take, and how many may connect, on real sockets of loopback.

The time of the event loop can be moved, so that a deadline of ten seconds takes none.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from holdfast.server.connections import WRITE_SECONDS, Connections
from holdfast.server.metrics import RefusedConnection
from holdfast.server.protocol import (
    BODY_SECONDS,
    HEAD_SECONDS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_LINE_BYTES,
    MAX_PIPELINED_REQUESTS,
    HttpProtocol,
    WebSocketProtocol,
)
from holdfast.testing import FakeClock
from tests.table import every_row

START = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
LARGE = b"x" * (32 << 20)
"""More than the buffers of loopback take while the client does not read."""
MAX_CONNECTIONS = 20
RESERVED = 1


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time can be moved."""

    skipped = 0.0

    def time(self) -> float:
        return time.monotonic() + self.skipped


class Recorded(HttpProtocol):
    """A connection that counts what it has received."""

    received = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.received += len(data)


class App:
    """An application that answers, reads bodies, and has a stream and a WebSocket that end when `end` is set."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.bodies: list[bytes | None] = []
        self.trailers: list[list[bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            if scope["path"] == "/large":
                await send({"type": "websocket.send", "bytes": LARGE})
            await self.end.wait()
            return
        if scope["path"] == "/body":
            self.bodies.append(await self.read(receive))
            self.trailers.append([name for name, _ in scope["headers"]])
        first, last = {"/large": (LARGE, b"re"), "/whole": (b"", LARGE)}.get(scope["path"], (b"he", b"re"))
        length = b"%d" % len(first + last)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        if scope["path"] == "/stream":
            ends = {asyncio.ensure_future(self.end.wait()), asyncio.ensure_future(self.read_all(receive))}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        await send({"type": "http.response.body", "body": last})

    async def read_all(self, receive: Any) -> None:
        """Return when the client has disconnected."""
        while (await receive())["type"] != "http.disconnect":
            pass

    async def read(self, receive: Any) -> bytes | None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += bytes(message["body"])
            if not message["more_body"]:
                return body


class Client:
    """A connection to the server."""

    def __init__(self, protocol: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.protocol = protocol
        self.reader = reader
        self.writer = writer
        self.sent = 0

    def send(self, data: bytes) -> None:
        self.writer.write(data)
        self.sent += len(data)

    async def deliver(self, data: bytes) -> None:
        """Return when the server has received `data`."""
        self.send(data)
        await until(lambda: self.protocol.received == self.sent)

    async def read(self, size: int = -1) -> bytes:
        """Return the next bytes, by default all until the end; the server may also reset the connection."""
        try:
            return await (self.reader.read() if size < 0 else self.reader.readexactly(size))
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""

    async def answer(self) -> tuple[int, bytes]:
        """Return the status and the body of an answer with a length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        return int(head.split()[1]), await self.reader.readexactly(int(length.split()[1]))

    async def refusal(self) -> int:
        """Return the status of a problem after which the connection is closed, or 0 if it is closed without one."""
        head, _, body = (await self.read()).partition(b"\r\n\r\n")
        if not head:
            return 0
        assert b"\r\ncontent-type: application/problem+json\r\n" in head
        assert b"\r\nconnection: close" in head
        problem = json.loads(body)
        assert problem.keys() == {"type", "title", "status", "detail"}
        assert head.startswith(f"HTTP/1.1 {problem['status']} {problem['title']}".encode())
        return int(problem["status"])


class Server:
    """A server on loopback, with all that it reports."""

    def __init__(self) -> None:
        self.app = App()
        self.clock = FakeClock()
        self.refused: list[RefusedConnection] = []
        self.connections = Connections(MAX_CONNECTIONS, self.refused.append, self.clock)
        self.config = uvicorn.Config(
            self.app, http=HttpProtocol, ws=WebSocketProtocol, lifespan="off", log_config=None, access_log=False
        )
        self.config.load()
        self.protocols: list[Recorded] = []
        self.clients: list[Client] = []
        self.port = 0

    def accept(self) -> Recorded:
        self.protocols.append(Recorded(self.config, self.connections, {}))
        return self.protocols[-1]

    async def connect(self, data: bytes = b"") -> Client:
        """Return a connection that the server has accepted, and from which it has received `data`."""
        count = len(self.protocols)
        streams = await asyncio.open_connection("127.0.0.1", self.port)
        await until(lambda: len(self.protocols) > count and self.protocols[-1].transport is not None)
        client = Client(self.protocols[-1], *streams)
        self.clients.append(client)
        await client.deliver(data)
        return client

    async def stream(self) -> Client:
        """Return a connection whose stream has begun."""
        client = await self.connect(STREAM)
        await client.reader.readuntil(b"\r\n\r\nhe")
        return client

    def skip(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.skipped += seconds

    @property
    def reasons(self) -> list[str]:
        return [refused.reason for refused in self.refused]


async def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0)


def run(body: Callable[[Server], Coroutine[Any, Any, None]]) -> Server:
    """Run `body` with a server. At the end, no connection may be left in its books."""

    async def serve() -> Server:
        server = Server()
        listener = await asyncio.get_running_loop().create_server(server.accept, "127.0.0.1", 0)
        async with listener:
            server.port = listener.sockets[0].getsockname()[1]
            try:
                await body(server)
            finally:
                server.app.end.set()
                for client in server.clients:
                    client.writer.transport.abort()
            await until(lambda: not server.connections.connections and not server.connections.tasks)
        assert not server.connections.waiting
        return server

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(serve())


def header(size: int) -> bytes:
    """Return a header of `size` bytes, not counting what separates its name from its value, and the end of its line."""
    return b"a: " + b"b" * (size - 1) + b"\r\n"


TOO_LARGE = {
    "too many headers": START + b"a: b\r\n" * MAX_HEADERS + b"\r\n",
    "too many headers that never end": START + b"a: b\r\n" * 1_000_000,
    "a header that is too long": START + header(MAX_LINE_BYTES + 1) + b"\r\n",
    "a header that never ends": START + b"a: " + b"b" * 1_000_000,
    "a name that never ends": START + b"b" * 1_000_000,
    "headers that are too large together": START + header(MAX_LINE_BYTES - 1) * 5 + b"\r\n",
    "a path that is too long": b"GET /" + b"a" * MAX_LINE_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path that never ends": b"GET /" + b"a" * 1_000_000,
    "a trailer that never ends": CHUNKED + b"0\r\na: " + b"b" * 1_000_000,
    "too many trailers": CHUNKED + b"0\r\n" + b"a: b\r\n" * MAX_HEADERS + b"\r\n",
    "an extension of a chunk that never ends": CHUNKED + b"1;a=" + b"b" * 1_000_000,
    "empty lines before a request": b"\r\n" * 1_000_000,
    "a WebSocket with a header that is too long": START + UPGRADE + header(MAX_LINE_BYTES + 1) + b"\r\n",
}


def test_a_head_that_is_too_large_is_answered_431_however_it_arrives() -> None:
    def check(row: tuple[str, bytes]) -> None:
        async def attack(server: Server) -> None:
            at_once, in_pieces = await server.connect(), await server.connect()
            for start in range(0, 2 * MAX_HEAD_BYTES, 1024):
                if not server.refused:
                    await in_pieces.deliver(row[1][start : start + 1024])
            assert await in_pieces.refusal() == 431
            at_once.send(row[1])
            assert await at_once.refusal() in (431, 0)  # what it has still to send may cost it the answer

        assert run(attack).reasons == ["head_too_large"] * 2

    every_row(TOO_LARGE.items(), check, lambda row: row[0])


def test_the_largest_head_is_accepted_and_the_next_one_too() -> None:
    async def ask(server: Server) -> None:
        client = await server.connect()
        for _ in range(2):
            client.send(START + header(MAX_LINE_BYTES) + b"a: b\r\n" * (MAX_HEADERS - 2) + b"\r\n")
            assert await client.answer() == (200, b"here")

    assert run(ask).reasons == []


def test_no_more_headers_are_kept_than_are_allowed() -> None:
    async def attack(server: Server) -> None:
        client = await server.connect(START + b"a: b\r\n" * 10_000)
        assert await client.refusal() in (431, 0)
        assert len(client.protocol.headers) == MAX_HEADERS + 1

    assert run(attack).reasons == ["head_too_large"]


def test_trailers_do_not_count_for_the_next_request() -> None:
    async def ask(server: Server) -> None:
        client = await server.connect()
        for _ in range(2):
            client.send(CHUNKED[:-2] + b"a: b\r\n" * 50 + b"\r\n0\r\n" + b"a: b\r\n" * 40 + b"\r\n")
            assert await client.answer() == (200, b"here")

    assert run(ask).reasons == []


def test_trailers_are_no_headers() -> None:
    async def ask(server: Server) -> None:
        client = await server.connect()
        client.send(CHUNKED + b"2\r\nab\r\n0\r\nauthorization: Bearer x\r\n\r\n")
        assert await client.answer() == (200, b"here")

    assert run(ask).app.trailers == [[b"host", b"transfer-encoding"]]


@pytest.mark.parametrize("more", [b"", UPGRADE])
def test_a_request_with_two_hosts_is_answered_400(more: bytes) -> None:
    async def ask(server: Server) -> None:
        client = await server.connect()
        client.send(START + more + b"host: evil.test\r\n\r\n")
        assert await client.refusal() == 400

    assert run(ask).reasons == ["malformed"]


INVALID_UPGRADES = {
    "a body with a length": START + UPGRADE + b"Content-Length: 5\r\n\r\n",
    "a body in chunks": START + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n",
    "a path that is not ASCII": START.replace(b"/health", b"/\xc3\xa4") + UPGRADE + b"\r\n",
}


def test_a_websocket_that_cannot_be_opened_is_answered_400() -> None:
    def check(row: tuple[str, bytes]) -> None:
        async def ask(server: Server) -> None:
            client = await server.connect(row[1])
            assert await client.refusal() == 400
            await until(lambda: not server.connections.connections)

        assert run(ask).reasons == ["malformed"]

    every_row(INVALID_UPGRADES.items(), check, lambda row: row[0])


@asynccontextmanager
async def bare_socket(server: Server) -> AsyncIterator[tuple[WebSocketProtocol, Client]]:
    """Connect to a server that expects a request for a WebSocket; the server must close the connection."""
    protocols: list[WebSocketProtocol] = []

    def accept() -> WebSocketProtocol:
        protocols.append(WebSocketProtocol(server.config, server.connections, {}))
        return protocols[-1]

    async with await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0) as listener:
        streams = await asyncio.open_connection(*listener.sockets[0].getsockname())
        client = Client(server.accept(), *streams)
        server.clients.append(client)
        await until(lambda: bool(server.connections.connections))
        yield protocols[0], client
        assert await client.read() == b""


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n", INVALID_UPGRADES["a path that is not ASCII"], START])
def test_a_websocket_whose_first_data_is_no_complete_request_is_closed(data: bytes) -> None:
    async def ask(server: Server) -> None:
        async with bare_socket(server) as (_, client):
            client.send(data)

    assert run(ask).reasons == ["malformed"]


def test_a_websocket_that_cannot_be_shut_down_does_not_keep_the_server_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stop(server: Server) -> None:
        async with bare_socket(server) as (protocol, _):
            protocol.conn.receive_data(b"nonsense\r\n\r\n")  # after which the library can answer nothing
            protocol.shutdown()

    run(stop)
    assert [record.message for record in caplog.records if record.name == "holdfast.server"] == [
        "a WebSocket could not be shut down, and was cut off"
    ]


def test_what_is_no_http_is_answered_400() -> None:
    async def ask(server: Server) -> None:
        client = await server.connect()
        client.send(b"nonsense\r\n\r\n")
        assert await client.refusal() == 400

    assert run(ask).reasons == ["malformed"]


def test_a_connection_that_pipelines_too_many_requests_is_closed() -> None:
    async def ask(server: Server) -> None:
        client = await server.connect()
        client.send((START + b"\r\n") * MAX_PIPELINED_REQUESTS)
        for _ in range(MAX_PIPELINED_REQUESTS):
            assert await client.answer() == (200, b"here")
        client.send(STREAM + (START + b"\r\n") * 10_000)
        await client.read()
        await until(lambda: not server.connections.tasks)

    assert run(ask).reasons == ["pipelined"]


@pytest.mark.parametrize("is_at_once", [False, True])
def test_a_stream_with_requests_behind_it_ends_with_its_connection(is_at_once: bool) -> None:
    async def ask(server: Server) -> None:
        if is_at_once:
            client = await server.connect(STREAM + (START + b"\r\n") * 2)
            await client.reader.readuntil(b"\r\n\r\nhe")
        else:
            client = await server.stream()
            await client.deliver((START + b"\r\n") * 2)
        client.writer.transport.abort()
        await until(lambda: not server.connections.tasks and not server.connections.connections)

    assert run(ask).reasons == []


@pytest.mark.parametrize("first", [STREAM, START + b"\r\n", START.replace(b"/health", b"/large") + b"\r\n"])
def test_a_websocket_behind_an_unfinished_request_is_refused(first: bytes) -> None:
    async def ask(server: Server) -> None:
        client = await server.connect(first + START + UPGRADE + b"\r\n")
        assert b"101 Switching" not in await client.read()
        await until(lambda: not server.connections.tasks and not server.connections.connections)

    assert run(ask).reasons == ["pipelined"]


def test_a_websocket_behind_an_answer_that_is_not_read_is_refused() -> None:
    async def ask(server: Server) -> None:
        client = await server.connect(START.replace(b"/health", b"/whole") + b"\r\n")
        await until(lambda: client.protocol.flow.write_paused)
        await client.deliver(START + UPGRADE + b"\r\n")
        assert b"101 Switching" not in await client.read()

    assert run(ask).reasons == ["pipelined"]


@pytest.mark.parametrize("target", [b"http://x", b"http://x?y"])
def test_an_address_without_a_path_is_answered_400(target: bytes) -> None:
    async def ask(server: Server) -> None:
        client = await server.connect(START.replace(b"/health", target) + b"\r\n")
        assert await client.refusal() == 400

    assert run(ask).reasons == ["malformed"]


def test_a_connection_that_was_refused_makes_room() -> None:
    async def attack(server: Server) -> None:
        server.connections.max_connections = 1
        refused = await server.connect(START.replace(b"/health", b"/whole") + b"\r\n")
        await until(lambda: refused.protocol.flow.write_paused)
        await refused.deliver(START + b"host: evil.test\r\n\r\n")
        another = await server.connect()
        assert len(await refused.read()) < len(LARGE), "not kept open until the client has read"
        another.send(START + b"\r\n")
        assert await another.answer() == (200, b"here")

    assert run(attack).reasons == ["malformed", "connection_limit"]


class TestDeadlines:
    def test_a_head_must_be_complete_in_time(self) -> None:
        async def attack(server: Server) -> None:
            idle, slow, stream = await server.connect(), await server.connect(b"G"), await server.stream()
            used = await server.connect(START + b"\r\n")
            assert await used.answer() == (200, b"here")
            await used.deliver(b"G")
            server.skip(HEAD_SECONDS)
            assert [await client.refusal() for client in (idle, slow, used)] == [0, 408, 408]
            server.app.end.set()
            assert await stream.read(2) == b"re"

        assert run(attack).reasons == ["head_timeout"] * 3

    def test_the_deadline_of_a_head_is_not_extended_by_what_arrives(self) -> None:
        async def attack(server: Server) -> None:
            slow = await server.connect(b"G")
            server.skip(HEAD_SECONDS / 2)
            await slow.deliver(b"E")
            server.skip(HEAD_SECONDS / 2)
            assert await slow.refusal() == 408

        run(attack)

    def test_a_body_must_be_complete_in_time_and_the_route_learns_that_the_client_has_gone(self) -> None:
        async def attack(server: Server) -> None:
            slow = await server.connect(POST + b"Content-Length: 4\r\n\r\nab")
            server.skip(HEAD_SECONDS)
            await asyncio.sleep(0)
            assert not server.refused
            server.skip(BODY_SECONDS - HEAD_SECONDS)
            assert await slow.refusal() == 408
            await until(lambda: server.app.bodies == [None])

        assert run(attack).reasons == ["body_timeout"]

    def test_a_body_that_nobody_reads_must_be_complete_in_time(self) -> None:
        async def attack(server: Server) -> None:
            slow = await server.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            assert await slow.answer() == (200, b"here")
            await slow.deliver(b"a")
            server.skip(BODY_SECONDS)
            assert await slow.read() == b""

        assert run(attack).reasons == ["body_timeout"]

    def test_a_body_in_time_is_read_and_the_connection_stays(self) -> None:
        async def ask(server: Server) -> None:
            client = await server.connect(POST + b"Content-Length: 4\r\n\r\nab")
            client.send(b"cd" + START)
            assert await client.answer() == (200, b"here")
            client.send(b"\r\n")
            assert await client.answer() == (200, b"here")

        assert run(ask).app.bodies == [b"abcd"]

    def test_a_connection_without_a_next_request_is_closed_without_an_answer_and_not_counted(self) -> None:
        async def ask(server: Server) -> None:
            client = await server.connect(START + b"\r\n")
            assert await client.answer() == (200, b"here")
            server.skip(5)
            assert await client.read() == b""

        assert run(ask).reasons == []

    @pytest.mark.parametrize("more", [b"", UPGRADE])
    def test_a_client_must_read_in_time(self, more: bytes) -> None:
        async def attack(server: Server) -> None:
            request = START.replace(b"/health", b"/large") + more + b"\r\n"
            late, in_time = await server.connect(request), await server.connect(request)
            for client in (late, in_time):
                await client.reader.readuntil(b"\r\n\r\n")
            await in_time.reader.readexactly(len(LARGE))
            server.skip(WRITE_SECONDS - 1)
            await asyncio.sleep(0)
            assert not server.refused
            server.skip(1)
            assert len(await late.read()) < len(LARGE)

        assert run(attack).reasons == ["write_timeout"]

    def test_streams_and_sockets_have_no_deadline(self) -> None:
        async def listen(server: Server) -> None:
            stream = await server.stream()
            stream.send(b"\r\n")  # as some old clients do
            socket = await server.connect()
            socket.send(START.replace(b"/health", b"/socket") + UPGRADE + b"\r\n")
            await socket.reader.readuntil(b"\r\n\r\n")
            server.skip(3600)
            idle = await server.connect()
            server.skip(HEAD_SECONDS)
            assert await idle.read() == b""
            assert server.connections.busy_count == 2
            server.app.end.set()
            assert await stream.read(2) == b"re"

        assert run(listen).reasons == ["head_timeout"]


class TestTooMany:
    def test_the_connection_that_has_waited_longest_makes_room(self) -> None:
        async def attack(server: Server) -> None:
            clients = [await server.connect() for _ in range(MAX_CONNECTIONS)]
            clients[0].send(START + b"\r\n")
            assert await clients[0].answer() == (200, b"here")
            clients.append(await server.connect())
            assert await clients[1].read() == b""
            for client in (clients[0], *clients[2:]):
                client.send(START + b"\r\n")
                assert await client.answer() == (200, b"here")

        assert run(attack).reasons == ["connection_limit"]

    def test_streams_leave_a_reserve_for_health_and_status_reads(self) -> None:
        async def attack(server: Server) -> None:
            streams = [await server.stream() for _ in range(MAX_CONNECTIONS - RESERVED)]
            another = await server.connect()
            another.send(STREAM)
            assert await another.refusal() == 503
            reader = await server.connect()
            for path in (b"/health", b"/ready", b"/metrics", b"/v1/status", b"/status/use1-az1"):
                for method in (b"GET", b"HEAD"):
                    reader.send(START.replace(b"/health", path).replace(b"GET", method) + b"\r\n")
                    if method == b"HEAD":
                        assert b" 200 OK" in await reader.reader.readuntil(b"\r\n\r\n")
                    else:
                        assert await reader.answer() == (200, b"here")
            reader.send(START.replace(b"GET", b"POST") + b"\r\n")
            assert await reader.refusal() == 503
            server.app.end.set()
            assert await streams[0].read(2) == b"re"
            await until(lambda: server.connections.busy_count == 0)
            again = await server.connect()
            again.send(STREAM)
            assert await again.answer() == (200, b"here")

        assert run(attack).reasons == ["connection_limit"] * 2

    def test_if_no_connection_waits_the_new_one_is_closed(self) -> None:
        async def attack(server: Server) -> None:
            streams = [await server.stream() for _ in range(MAX_CONNECTIONS - RESERVED)]
            server.connections.max_connections = len(streams)
            another = await server.connect()
            assert await another.read() == b""
            server.app.end.set()
            for stream in streams:
                assert await stream.read(2) == b"re"

        assert run(attack).reasons == ["connection_limit"]


def test_one_refusal_of_each_kind_is_logged_per_period_with_the_number_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "holdfast.server")

    async def attack(server: Server) -> None:
        for _ in range(3):
            client = await server.connect()
            client.send(b"nonsense\r\n\r\n")
            assert await client.refusal() == 400
        server.clock.advance(10)
        for request in (b"nonsense\r\n\r\n", START + header(MAX_LINE_BYTES + 1) + b"\r\n"):
            client = await server.connect()
            client.send(request)
            await client.refusal()

    run(attack)
    logged = [vars(record) for record in caplog.records if record.name == "holdfast.server"]
    assert [(entry["reason"], entry["suppressed"]) for entry in logged] == [
        ("malformed", 0),
        ("malformed", 2),
        ("head_too_large", 0),
    ]
    assert logged[0]["client.address"] == "127.0.0.1"
    assert logged[0]["message"] == "connection closed: the request is not valid HTTP/1.1"
