"""A hub's events over HTTP: as a stream of server-sent events, or over a WebSocket."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from litestar import Response, WebSocket
from litestar.types import Receive, Scope, Send

from holdfast.server.push import KEEPALIVE, EventHub, StreamEvent

_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # nginx would keep events back until there are enough of them
    ],
}
_END = {"type": "http.response.body", "body": b"", "more_body": False}
_RETRY = (1000, 5000)
"""Milliseconds after which a browser that lost the stream comes back: spread, so that not all come at once."""
_END_SECONDS = 1.0
"""How long the end of a stream may take to be sent: one that was cut off for being slow takes it late, or never."""


class EventStream(Response[bytes]):
    """The answer that does not end: what `get_first_events` says, then every event, until one side goes away."""

    def __init__(self, hub: EventHub, get_first_events: Callable[[], Sequence[StreamEvent]]) -> None:
        super().__init__(b"", media_type="text/event-stream")
        self._hub = hub
        self._get_first_events = get_first_events

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """Litestar's own stream holds two more tasks and some 20 KB for each listener."""
        return self._serve

    async def _serve(self, _: Scope, receive: Receive, send: Send) -> None:
        async def write(event: StreamEvent | None) -> None:
            body = KEEPALIVE if event is None else event.sse_bytes
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def wait_until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await send(_START)  # type: ignore[arg-type]
        pause = random.randint(*_RETRY)  # noqa: S311 - spreads load, hides nothing
        await send({"type": "http.response.body", "body": b"retry: %d\n\n" % pause, "more_body": True})
        await self._hub.serve_listener(write, wait_until_gone, self._get_first_events)
        await _send_end(send(_END))  # type: ignore[arg-type]


async def serve_socket(
    socket: WebSocket[Any, Any, Any], hub: EventHub, get_first_events: Callable[[], Sequence[StreamEvent]]
) -> None:
    """The same over a WebSocket; what the other side says is not listened to."""

    async def write(event: StreamEvent | None) -> None:
        if event is not None:  # the protocol has its own signs of life
            await socket.send({"type": "websocket.send", "text": event.websocket_text, "bytes": None})

    async def wait_until_gone() -> None:
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass

    await socket.accept()
    await hub.serve_listener(write, wait_until_gone, get_first_events)
    if socket.connection_state != "disconnect":
        await _send_end(socket.close(code=1012, reason="the server stops, or this listener was too slow: come back"))


async def _send_end(sending: Coroutine[Any, Any, None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await sending
