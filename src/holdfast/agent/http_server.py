"""A small HTTP server that slow clients cannot block: one event loop, no thread per client, and timeouts everywhere.

One request per connection, so that no connection stays open; a new client never waits for old ones to leave.
"""

import asyncio
import http
import http.client
import io
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate

from holdfast.agent.responses import Response, build_detail

logger = logging.getLogger("holdfast.agent")

REQUEST_SECONDS = 5.0
"""Seconds for a whole request to arrive, and for its response to be sent: both are small."""
LINGER_SECONDS = 1.0
"""Seconds for reading the rest of a refused request: otherwise the client may not get the refusal."""
CONNECTIONS = 128
"""Concurrent connections. Above that, the oldest one is closed."""
HEAD_BYTES = 16 * 1024
BACKLOG = 1024
_LINGER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """Method, target and body of a request."""

    method: str
    target: str
    body: bytes = b""


class RequestRefused(Exception):
    """Raised for a request that is malformed or too large; carries the response."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


class HttpServer:
    """A server on one socket. `respond` returns responses, `max_body_bytes(method, target)` limits request bodies."""

    def __init__(
        self,
        respond: Callable[[Request], Awaitable[Response]],
        max_body_bytes: Callable[[str, str], int] = lambda *_: 0,
        *,
        timeout: float = REQUEST_SECONDS,
    ) -> None:
        self._respond = respond
        self._max_body_bytes = max_body_bytes
        self._timeout = timeout
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        self._exchanges: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._is_closed = False

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=HEAD_BYTES, backlog=BACKLOG)

    async def close(self) -> None:
        """Stop accepting requests, and drop those in progress. May be repeated."""
        self._is_closed = True
        if self._server is not None:
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener)
            # Python 3.11 loses a connection that it accepted just before its server is closed: let it arrive first.
            await asyncio.sleep(0)
            self._server.close()
        exchanges = dict(self._exchanges)
        for task, writer in exchanges.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)
        await asyncio.sleep(0)  # one iteration of the loop, in which the sockets are closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._exchanges[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Close the connection of a task. A task that was cancelled before it began cannot close it itself."""
        self._exchanges.pop(task).close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._waiting) >= CONNECTIONS:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()
        self._waiting[writer] = None
        try:
            await self._exchange(reader, writer)
        except (OSError, EOFError, TimeoutError):
            writer.transport.abort()  # the client is gone or too slow
        finally:
            self._waiting.pop(writer, None)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = ""
        try:
            async with asyncio.timeout(self._timeout):
                request = await self._read(reader)
            method = request.method
            self._waiting.pop(writer, None)  # a complete request is not dropped for a newer connection
            answer, is_refused = await self._answer(request), False
            self._waiting[writer] = None
        except RequestRefused as refused:
            answer, is_refused = refused.answer, True
        async with asyncio.timeout(self._timeout):
            writer.write(_encode(answer, with_body=method != "HEAD"))
            await writer.drain()
            writer.write_eof()
            if is_refused:
                async with asyncio.timeout(LINGER_SECONDS):
                    rest = _LINGER_BYTES
                    while rest > 0 and (content := await reader.read(HEAD_BYTES)):
                        rest -= len(content)

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise RequestRefused(build_detail(431, f"expected at most {HEAD_BYTES} bytes of headers")) from error
        line, _, rest = head.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise RequestRefused(build_detail(400, "expected an HTTP/1.1 request"))
        try:
            headers = http.client.parse_headers(io.BytesIO(rest))
        except http.client.HTTPException as error:
            raise RequestRefused(build_detail(431, "expected fewer or shorter headers")) from error
        method, target, _ = words
        max_bytes = self._max_body_bytes(method, target)
        length = headers.get("Content-Length", "0")
        if "Transfer-Encoding" in headers or not (length.isascii() and length.isdecimal() and len(length) < 10):
            raise RequestRefused(build_detail(411, "expected a body with Content-Length, or none"))
        if max_bytes and int(length) > max_bytes:
            raise RequestRefused(build_detail(413, f"expected a body of at most {max_bytes} bytes"))
        if int(length) and not max_bytes:
            raise RequestRefused(await self._answer(Request(method, target)))
        return Request(method, target, await reader.readexactly(int(length)))

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except Exception:
            logger.exception("%s %s failed", request.method, request.target)
            return build_detail(500, "internal error of the agent: see its log")


def _encode(answer: Response, *, with_body: bool) -> bytes:
    body = answer.body()
    headers = (
        ("Date", formatdate(usegmt=True)),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-cache"),
        ("Connection", "close"),
        *answer.headers,
    )
    lines = [f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body if with_body else b"")
