"""Everything that changes, as it changes: a stream of server-sent events."""

from collections.abc import AsyncIterator

from litestar import get
from litestar.datastructures import State
from litestar.response import ServerSentEvent, ServerSentEventMessage

from holdfast.server.auth import SECURITY, requires
from holdfast.server.credentials import Role
from holdfast.server.problems import described
from holdfast.server.push import Hub

_PING_SECONDS = 15.0
"""Proxies commonly cut a connection that is silent for 30 to 60 s."""


@get(
    "/v1/events",
    guards=[requires(Role.VIEWER)],
    security=SECURITY,
    responses=described(401, 403, 503),
    summary="Listen to changes",
    tags=["events"],
)
async def events(state: State) -> ServerSentEvent:
    """Events as they happen, until the server stops. The first, `hello`, says that the stream is live."""
    hub: Hub = state.hub
    return ServerSentEvent(_messages(hub))


async def _messages(hub: Hub) -> AsyncIterator[ServerSentEventMessage]:
    live = False
    async for event in hub.listen(_PING_SECONDS):
        if event is not None:
            yield ServerSentEventMessage(event=event.name, id=event.number, data=event.data)
        elif live:
            yield ServerSentEventMessage(comment="still here", data=None)  # data, even none, would be an event
        else:
            live = True
            yield ServerSentEventMessage(event="hello", data="{}")
