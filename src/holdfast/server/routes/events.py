"""Everything that changes, as it changes: a stream of server-sent events for people who look at it."""

from litestar import get
from litestar.datastructures import State

from holdfast.server.auth import SECURITY, requires
from holdfast.server.credentials import Role
from holdfast.server.problems import described
from holdfast.server.push import Event, Hub
from holdfast.server.streams import EventStream


@get(
    "/v1/events",
    guards=[requires(Role.VIEWER)],
    security=SECURITY,
    responses=described(401, 403, 503),
    media_type="text/event-stream",
    summary="Listen to changes",
    tags=["events"],
)
async def events(state: State) -> EventStream:
    """Events as they happen, until the server stops. The first, `hello`, says that the stream is live."""
    hub: Hub = state.hub
    return EventStream(hub, lambda: [Event(hub.last, "hello", b"{}")])
