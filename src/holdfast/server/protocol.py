"""Limit what a client may send, and how long it may take, before its request is complete.

uvicorn itself has no such limits. All of them apply before a credential is checked.
"""

import asyncio
import http
import json
import logging
from asyncio import TimerHandle
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.server.access import is_polled
from holdfast.server.connections import TOO_MANY, Connection, Connections, Refusal
from holdfast.server.problems import CONTENT_TYPE

logger = logging.getLogger("holdfast.server")

MAX_HEAD_BYTES = 32_768
"""Maximum size of a request line with its headers: as nginx by default, and far above any valid request."""
MAX_LINE_BYTES = 8000
"""Maximum size of a path or a header: less than the 8192 bytes that the WebSocket library accepts."""
MAX_HEADERS = 100
"""Maximum number of headers of a request: as Apache by default."""
HEAD_SECONDS = 10.0
"""Time for a request line with its headers. Also closes connections that browsers open and do not use."""
BODY_SECONDS = 30.0
"""Time for a body: 1 MiB at 35 KB/s."""
MAX_PIPELINED_REQUESTS = 16
"""Maximum number of requests that one connection may send before the first is answered; few clients send two."""
_MALFORMED = Refusal("malformed", "the request is not valid HTTP/1.1", http.HTTPStatus.BAD_REQUEST)
_DUPLICATE_HOST = Refusal(
    "malformed", "the request has more than one Host header: send exactly one", http.HTTPStatus.BAD_REQUEST
)
_INVALID_UPGRADE = Refusal(
    "malformed", "not a valid request for a WebSocket: send a path in ASCII and no body", http.HTTPStatus.BAD_REQUEST
)
_TOO_LARGE = Refusal(
    "head_too_large",
    f"the request line and the headers are too large: send at most {MAX_HEADERS} headers, "
    f"{MAX_LINE_BYTES} bytes in each, and {MAX_HEAD_BYTES} bytes in all",
    http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
)
_PIPELINED = Refusal("pipelined", "too many requests on one connection: wait for the answers")
_SLOW_HEAD = Refusal(
    "head_timeout", "the request line and the headers did not arrive in time", http.HTTPStatus.REQUEST_TIMEOUT
)
_SLOW_BODY = Refusal("body_timeout", "the body did not arrive in time", http.HTTPStatus.REQUEST_TIMEOUT)


class HttpProtocol(Connection, HttpToolsProtocol):
    """The connection of one client."""

    server_state: Connections

    def __init__(
        self,
        config: Config,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._running: RequestResponseCycle | None = None
        """The request in progress, or the last one; `self.cycle` is the last one received, which may wait for it."""
        self._deadline: TimerHandle | None = None
        self._refusal: Refusal | None = None
        self._is_in_head = True  # until all headers are received, and again after the body
        self._unparsed_bytes = 0  # received since the last head, part of a body, or end of a request
        self._trailer_count = 0

    @property
    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.server_state.waiting[self] = None
        self._set_deadline(HEAD_SECONDS, _SLOW_HEAD)
        self.server_state.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self.server_state.remove(self)
        self._disconnect_route()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._unparsed_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():  # any other upgrade is ignored, and the request answered
                self.handle_websocket_upgrade()
            return
        except httptools.HttpParserError:
            self._refuse(self._refusal or _MALFORMED)
            return
        if self._unparsed_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        elif self._deadline is None and not self._is_in_head:
            self._set_deadline(BODY_SECONDS, _SLOW_BODY)
        elif self._deadline is None and not self._is_busy and self._unparsed_bytes:
            self._set_deadline(HEAD_SECONDS, _SLOW_HEAD)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            super().on_header(name, value)
        else:
            self._trailer_count += 1  # no route expects headers after the body
        if len(self.headers) + self._trailer_count > MAX_HEADERS:
            self._stop_parsing(_TOO_LARGE)  # not later: one read can contain 40,000 headers

    def on_headers_complete(self) -> None:
        state = self.server_state
        state.waiting.pop(self, None)
        self._check_head()
        if self.parser.should_upgrade() and self._should_upgrade():
            self._check_upgrade()
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self._stop_parsing(_PIPELINED)
        if state.busy_count > state.max_busy and not self._is_polled():
            self._stop_parsing(TOO_MANY)
        super().on_headers_complete()  # raises if it cannot parse the URL
        if self.pipeline:
            self.flow.resume_reading()  # uvicorn has paused it, and would not notice that the client disconnects
        self._is_in_head = False
        self._unparsed_bytes = 0
        self._clear_deadline()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._unparsed_bytes = self._trailer_count = 0
        self._clear_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_busy and self in self.connections:
            self.server_state.waiting[self] = None

    def _is_polled(self) -> bool:
        path = self.url.partition(b"?")[0].decode("latin-1")
        return is_polled(path) and self.parser.get_method() in (b"GET", b"HEAD")

    def _check_head(self) -> None:
        """Refuse a complete head that is too large. `data_received` refuses one that is too large to be complete."""
        head_bytes, hosts = len(self.url), 0
        is_too_large = head_bytes > MAX_LINE_BYTES
        for name, value in self.headers:
            line_bytes = len(name) + len(value)
            head_bytes += line_bytes
            if line_bytes > MAX_LINE_BYTES:
                is_too_large = True
            if name == b"host":
                hosts += 1
        if is_too_large or head_bytes > MAX_HEAD_BYTES:
            self._stop_parsing(_TOO_LARGE)
        if hosts > 1:
            self._stop_parsing(_DUPLICATE_HOST)

    def _check_upgrade(self) -> None:
        """Refuse a request for a WebSocket behind another request, or that the library would not answer."""
        if self._is_busy or self.flow.write_paused:
            self._stop_parsing(_PIPELINED)
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if has_body or not self.url.isascii():
            self._stop_parsing(_INVALID_UPGRADE)

    def _stop_parsing(self, refusal: Refusal) -> None:
        """End a callback of the parser, which then raises HttpParserError."""
        self._refusal = refusal
        raise ValueError(refusal.detail)

    def _refuse(self, refusal: Refusal) -> None:
        """Close the connection, with an answer to the incomplete request if no other answer is in progress."""
        self.server_state.report(refusal, self.client)
        if self._is_in_head:
            can_answer = self._unparsed_bytes > 0 and not self._is_busy
        else:
            can_answer = self.cycle is self._running and not self.cycle.response_started
        if can_answer and refusal.status is not None:
            self.transport.write(_encode_response(refusal.status, refusal.detail, self.server_state.default_headers))
        if can_answer or not self._is_busy:
            self.transport.close()
        else:
            self.transport.abort()  # it would not be closed before the client has read all of an earlier answer
        self._disconnect_route()  # which must not answer, too
        if self in self.connections:
            self.server_state.waiting[self] = None

    def _disconnect_route(self) -> None:
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _set_deadline(self, seconds: float, refusal: Refusal) -> None:
        self._deadline = self.loop.call_later(seconds, self._refuse, refusal)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class WebSocketProtocol(Connection, WebSocketsSansIOProtocol):
    """The connection of one client that has asked for a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.server_state = server_state

    def data_received(self, data: bytes) -> None:
        """Pass data on. Close the connection if it fails, or if the first data is not a complete, valid request."""
        try:
            super().data_received(data)
        except Exception:
            logger.debug("WebSocket failed", exc_info=True)
            is_valid = False
        else:
            is_valid = self.handshake_initiated
        if not is_valid:
            self.abort(_INVALID_UPGRADE)

    def shutdown(self) -> None:
        """Close the connection in any state: an error would keep the server from stopping."""
        try:
            super().shutdown()
        except Exception:
            logger.exception("a WebSocket could not be shut down, and was cut off")
            self.transport.abort()


def _encode_response(status: http.HTTPStatus, detail: str, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    body = json.dumps(problem, separators=(",", ":")).encode()
    headers = [
        *default_headers,
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if status is http.HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    return b"".join([STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n", body])
