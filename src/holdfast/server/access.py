"""Give every request a trace id and one line in the log."""

import logging
import secrets
import time
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Send

from holdfast.calls.scope import TRACEPARENT_PATTERN
from holdfast.server.credentials import mask_tokens

logger = logging.getLogger("holdfast.access")

_TRACE_KEY = "holdfast_trace"
_QUIET_PATHS = ("/health", "/ready", "/status/", "/metrics")
"""Paths that balancers, hosts and scrapers request all the time."""


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
        is_quiet = scope["path"].startswith(_QUIET_PATHS) or scope["path"] == "/v1/status"
        if is_quiet and not logger.isEnabledFor(logging.DEBUG):
            await app(scope, receive, send)
            return
        start = time.monotonic()
        trace = get_trace_id(scope)
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, watched)
        finally:
            path = mask_tokens(scope["path"])  # a caller may have sent a token in place of an id
            logger.log(
                logging.DEBUG if is_quiet else logging.INFO,
                "%s %s %d",
                scope["method"],
                path,
                status,
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
