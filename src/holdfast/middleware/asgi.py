"""The middleware for ASGI applications: Litestar, Starlette, FastAPI, Django and others."""

import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from holdfast._types import Operation
from holdfast.calls.context import SCOPE
from holdfast.middleware.gate import Middleware, ServedRequest
from holdfast.middleware.rules import CARRIER_HEADERS, Bounds, MiddlewareResponse, name_operation, respond_overrun

if TYPE_CHECKING:
    from asyncio import Timeout

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
"""Of any framework: each has types of its own for the three."""

_HEADERS = {name.encode(): name for name in CARRIER_HEADERS}
_BODY = frozenset({"http.response.body", "http.response.zerocopysend", "http.response.pathsend"})


class AsgiMiddleware(Middleware[Application]):
    """Serves each request within its deadline, reports how it ended, and obeys the status of the zone.

    Put it outside of everything else, so that its latency is the caller's. Whatever is not HTTP passes untouched. What
    the application raises is raised on, but DeadlineExceeded after the request's own deadline, which is answered.
    `operation` names a request by its ASGI scope, once it is answered; else the route of Litestar or FastAPI does.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {_HEADERS[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        admitted = self._gate.admit(scope["path"], headers)
        if admitted is None:
            return await self._app(scope, receive, send)
        if isinstance(admitted, MiddlewareResponse):
            self._gate.report_refusal(scope, scope["path"], admitted)
            return await _answer(admitted, scope, send)
        token = SCOPE.set(admitted)
        try:
            return await self._serve(scope, receive, send, admitted)
        finally:
            SCOPE.reset(token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, bounds: Bounds) -> None:
        channels = _WatchedChannels(ServedRequest(self._gate, scope, bounds), receive, send)
        try:
            if self._gate.service.cancel_overruns:
                await self._serve_within(scope, channels, bounds.expires - self._gate.runtime.monotonic())
            else:
                await self._app(scope, channels.receive, channels.send)
        except Exception as error:
            answer = None if channels.has_begun else channels.served.respond_to(error)
            if answer is None:
                channels.served.end(failed=True)
                raise
            await _answer(answer, scope, channels.send)
        except BaseException:
            channels.served.end_client_gone()  # cancelled, because the client or the whole process goes away
            raise
        channels.served.end(failed=True)  # it returned before its response was whole, or this changes nothing

    async def _serve_within(self, scope: Scope, channels: "_WatchedChannels", seconds: float) -> None:
        import asyncio  # for those who want this, and on asyncio only

        channels.timer = timer = asyncio.timeout(None if seconds == math.inf else seconds)
        try:
            async with timer:
                await self._app(scope, channels.receive, channels.send)
        except TimeoutError:
            if not timer.expired():
                raise
        if timer.expired() and not channels.has_begun:
            await _answer(respond_overrun(self._gate.service), scope, channels.send)

    def _route(self, request: Mapping[str, Any]) -> Operation:
        template = request.get("path_template") or getattr(request.get("route"), "path", None)
        return name_operation(self._gate.service.workload, request["method"], template)


class _WatchedChannels:
    """The two channels of one request, with somebody who looks at what passes."""

    __slots__ = ("_receive", "_send", "has_begun", "served", "timer")

    def __init__(self, served: ServedRequest, receive: Receive, send: Send) -> None:
        self.served = served
        self.has_begun = False
        """Whether the application has begun to answer: from then on it is not cut off."""
        self.timer: Timeout | None = None
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.served.mark_client_gone()
        return message

    async def send(self, message: Message) -> None:
        begins = message["type"] == "http.response.start"
        if begins:
            self.has_begun = True
            if self.timer is not None and not self.timer.expired():
                self.timer.reschedule(None)
        try:
            await self._send(message)
        except OSError:  # how servers say that the client is gone, since version 2.4 of the specification
            self.served.mark_client_gone()
            raise
        if begins:
            self.served.begin(message["status"])
        elif message["type"] in _BODY and not message.get("more_body", False):
            self.served.end()


async def _answer(answer: MiddlewareResponse, scope: Scope, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
