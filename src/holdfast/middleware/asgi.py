"""The middleware for ASGI applications: Litestar, Starlette, FastAPI, Django and others."""

import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from holdfast._types import Operation
from holdfast.calls.context import SCOPE
from holdfast.middleware.gate import Middleware, ServedRequest
from holdfast.middleware.rules import REQUEST_HEADERS, Bounds, MiddlewareResponse, name_operation, respond_overrun

if TYPE_CHECKING:
    from asyncio import Timeout

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application of any framework: each has its own types for the three parameters."""

_HEADERS = {name.encode(): name for name in REQUEST_HEADERS}
_BODY = frozenset({"http.response.body", "http.response.zerocopysend", "http.response.pathsend"})


class AsgiMiddleware(Middleware[Application]):
    """ASGI middleware that applies deadlines, reports outcomes, and refuses requests while the zone is out.

    Make it the outermost middleware, so that it measures the latency that callers see. It ignores other scopes than
    HTTP. It re-raises errors of the application, except DeadlineExceeded after the request's own deadline, which gets a
    response. `operation` names a request by its ASGI scope; by default, the route of Litestar or FastAPI does.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {_HEADERS[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        path: str = scope["path"]
        admitted = self._gate.admit(path, headers)
        if admitted is None:
            return await self._app(scope, receive, send)
        if isinstance(admitted, MiddlewareResponse):
            self._gate.report_refusal(scope, path, admitted)
            return await _answer(admitted, scope, send)
        client = scope.get("client")
        address = client[0] if client else ""
        served = ServedRequest(self._gate, scope, admitted, headers=headers, path=path, client=address)
        token = SCOPE.set(admitted)
        try:
            return await self._serve(scope, _WatchedChannels(served, receive, send), admitted)
        finally:
            SCOPE.reset(token)

    async def _serve(self, scope: Scope, channels: "_WatchedChannels", bounds: Bounds) -> None:
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
            channels.served.end_client_gone()  # cancelled, because the client disconnected or the process stops
            raise
        channels.served.end(failed=True)  # no effect, unless it returned before its response was complete

    async def _serve_within(self, scope: Scope, channels: "_WatchedChannels", seconds: float) -> None:
        import asyncio  # only needed for `cancel_overruns`

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
    """The channels `receive` and `send` of one request, watched for its progress."""

    __slots__ = ("_receive", "_send", "has_begun", "served", "timer")

    def __init__(self, served: ServedRequest, receive: Receive, send: Send) -> None:
        self.served = served
        self.has_begun = False
        """Whether the application's response has begun. From then on it is not cancelled."""
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
        except OSError:  # the client has disconnected: ASGI 2.4 and later
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
