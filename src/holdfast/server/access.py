"""Give every request a trace id and one line in the log."""

import logging
import secrets
import time
from contextlib import suppress
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Send

from holdfast.calls.scope import TRACEPARENT_PATTERN
from holdfast.server.credentials import mask_tokens

logger = logging.getLogger("holdfast.access")

_TRACE_KEY = "holdfast_trace"


class _ClientDisconnected(BaseException):
    """Ends a request whose client disconnected before its body was complete. Not an error, so no handler sees it."""


def is_polled(path: str) -> bool:
    """Return whether balancers, hosts and scrapers request this path all the time."""
    return path.startswith(("/health", "/ready", "/status/", "/metrics")) or path == "/v1/status"


def get_trace_id(scope: Any) -> str:
    """Return the trace id of a request: the caller's (W3C trace context), or a new one."""
    if _TRACE_KEY not in scope:
        header = dict(scope["headers"]).get(b"traceparent", b"")
        match = TRACEPARENT_PATTERN.fullmatch(header.decode("latin-1"))
        scope[_TRACE_KEY] = match[1] if match else secrets.token_hex(16)
    trace: str = scope[_TRACE_KEY]
    return trace


def log_access(app: ASGIApp) -> ASGIApp:
    """Return `app` with a middleware that logs requests by OpenTelemetry's names, and quiet paths only at debug."""

    async def logged(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        is_quiet = is_polled(scope["path"])
        if is_quiet and not logger.isEnabledFor(logging.DEBUG):
            await app(scope, receive, send)
            return
        start = time.monotonic()
        trace = get_trace_id(scope)
        status: int | None = 500
        needs_client = True  # until the body is complete, or an answer has begun

        async def watched_send(message: Message) -> None:
            nonlocal needs_client, status
            if message["type"] == "http.response.start":
                needs_client, status = False, message["status"]
            await send(message)

        async def watched_receive() -> Any:
            nonlocal needs_client, status
            message = await receive()
            if message["type"] == "http.disconnect" and needs_client:
                status = None
                raise _ClientDisconnected
            needs_client = needs_client and bool(message.get("more_body"))
            return message

        try:
            with suppress(_ClientDisconnected):
                await app(scope, watched_receive, watched_send)
        finally:
            path = mask_tokens(scope["path"])  # a caller may have sent a token in place of an id
            logger.log(
                logging.DEBUG if is_quiet else logging.INFO,
                "%s %s %s",
                scope["method"],
                path,
                "disconnected" if status is None else status,
                extra={
                    "trace_id": trace,
                    "http.request.method": scope["method"],
                    "url.path": path,
                    "http.response.status_code": status,
                    "http.server.request.duration": round(time.monotonic() - start, 6),
                    "client.address": scope["client"][0] if scope.get("client") else None,
                },
            )

    return logged
