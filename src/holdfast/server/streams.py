"""Send a hub's events over HTTP: as server-sent events, or over a WebSocket."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from litestar import Response, WebSocket
from litestar.types import Receive, Scope, Send

from holdfast.server.auth import get_credential_id
from holdfast.server.credentials import CredentialStore
from holdfast.server.push import KEEPALIVE, KEEPALIVE_BYTES, EventHub, StreamEvent

REVOCATION_SECONDS = 0.5
"""Between two checks of the credentials of open streams, so that a stream ends within a second of the revocation."""
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # nginx would buffer events
    ],
}
_END = {"type": "http.response.body", "body": b"", "more_body": False}
_RETRY = (1000, 5000)
"""Milliseconds after which a browser reconnects: a range, so that not all reconnect at the same time."""
# https://www.iana.org/assignments/websocket/websocket.xhtml#close-code-number
_RECONNECT = (1012, "the server stops, or the client is too slow: reconnect")
_REVOKED = (1008, "the credential has been revoked: ask an operator for a new one")
_END_SECONDS = 1.0
"""Timeout for sending the end of a stream: a listener that was too slow reads it late, or never."""


class EventStream(Response[bytes]):
    """A response that does not end: the events of `get_first_events`, then every event, until either side closes it."""

    def __init__(self, hub: EventHub, get_first_events: Callable[[], Sequence[StreamEvent]]) -> None:
        super().__init__(b"", media_type="text/event-stream")
        self._hub = hub
        self._get_first_events = get_first_events

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """Return an ASGI app. Litestar's own stream needs two more tasks and some 20 KB per listener."""
        return self._serve

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(event: StreamEvent) -> None:
            body = KEEPALIVE_BYTES if event is KEEPALIVE else event.sse_bytes
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def wait_until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await send(_START)  # type: ignore[arg-type]
        pause = random.randint(*_RETRY)  # noqa: S311 - spreads load, hides nothing
        await send({"type": "http.response.body", "body": b"retry: %d\n\n" % pause, "more_body": True})
        await self._hub.serve_listener(write, wait_until_gone, self._get_first_events, get_credential_id(scope))
        await _send_end(send(_END))  # type: ignore[arg-type]


async def serve_socket(
    socket: WebSocket[Any, Any, Any], hub: EventHub, get_first_events: Callable[[], Sequence[StreamEvent]]
) -> None:
    """Send events over a WebSocket; messages from the client are ignored."""

    async def write(event: StreamEvent) -> None:
        if event is not KEEPALIVE:  # WebSockets have their own keep-alive
            await socket.send({"type": "websocket.send", "text": event.websocket_text, "bytes": None})

    async def wait_until_gone() -> None:
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass

    await socket.accept()
    is_revoked = await hub.serve_listener(write, wait_until_gone, get_first_events, get_credential_id(socket.scope))
    if socket.connection_state != "disconnect":
        await _send_end(socket.close(*(_REVOKED if is_revoked else _RECONNECT)))


def end_revoked_streams(credentials: CredentialStore, hubs: Sequence[EventHub]) -> float:
    """End the streams of revoked credentials, whichever process revoked them. Return the seconds to the next check."""
    used = frozenset[str]().union(*(hub.list_credential_ids_threadsafe() for hub in hubs))
    if used and (revoked := used - credentials.list_valid_ids()):
        for hub in hubs:
            hub.disconnect_revoked_threadsafe(revoked)
    return REVOCATION_SECONDS


async def _send_end(sending: Coroutine[Any, Any, None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await sending
