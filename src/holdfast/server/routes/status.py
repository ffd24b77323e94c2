"""Which zones are out: for balancers and hosts that ask, for whoever wants to be told, for operators who decide."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from litestar import Request, Response, Router, WebSocket, get, head, put, websocket
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Operation, Parameter, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.types import Receive, Scope, Send
from msgspec import Meta, Struct

from holdfast._errors import Conflict, EngineUnavailable
from holdfast._names import WORKLOAD_PATTERN, ZONE_PATTERN, workload_of, zone_of
from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.config.settings import require_known
from holdfast.server.auth import guarded, restricted
from holdfast.server.credentials import Role
from holdfast.server.problems import described
from holdfast.server.push import Event, Hub
from holdfast.server.state import ServerState, Services
from holdfast.server.status_log import Logged
from holdfast.server.statuses import Statuses
from holdfast.server.streams import EventStream, serve_socket
from holdfast.status.change import REASON_CHARACTERS, REASON_PATTERN
from holdfast.status.wire import KNOWN_HEADER, TIME_HEADER, Snapshot

_JSON = "application/json"
_IN = '"in"'
"""The ETag of every zone that is in."""
_TRY_AGAIN_LATER = 1013
"""https://www.iana.org/assignments/websocket/websocket.xhtml#close-code-number"""


class Answer(Struct, frozen=True):
    """What `/status/...` answers, for people who look; its status code says the same."""

    zone: str
    workload: str | None
    state: ZoneState
    since: float | None = None
    reason: str | None = None


class Wanted(Struct, frozen=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """How a zone's status is to be."""

    state: Literal["in", "out"]
    reason: Annotated[str, Meta(pattern=REASON_PATTERN, min_length=1, max_length=REASON_CHARACTERS)]
    seconds: Annotated[float, Meta(ge=1, le=31_536_000)] | None = None
    """Until it is in again by itself; without it, until somebody brings it in."""
    force: bool = False
    """Also while another zone is out."""


class _Said(Response[Any]):
    """An answer that is ready to be sent: what Litestar does for others takes longer than to find it."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        super().__init__(body, status_code=status, headers=headers, media_type=_JSON)
        self._head = [(name.encode(), value.encode()) for name, value in headers.items()]
        if body:
            self._head += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self._send

    async def _send(self, _: Scope, __: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self._head}
        await send(start)  # type: ignore[arg-type]
        await send({"type": "http.response.body", "body": self.content, "more_body": False})


def _answer(request: Request[Any, Any, Any]) -> Response[Any]:
    """From memory, and without a word more than needed: every host asks this, again and again."""
    services: Services = request.app.state.services
    statuses, asked = services.statuses, request.scope["path_params"]
    zone, workload = asked["zone"], asked.get("workload")
    status = statuses.find_out(zone, workload)
    headers = {"cache-control": "no-cache"}
    if (age := statuses.age) is not None:
        headers["age"] = str(int(age))
    else:
        headers[KNOWN_HEADER] = "no"
    if status is not None:
        answer = Answer(zone, workload, status.state, status.since, status.reason)
        return _Said(500, headers, msgspec.json.encode(answer))
    headers["etag"] = _IN
    if request.headers.get("if-none-match") in {_IN, "*"}:
        return _Said(304, headers)
    return _Said(200, headers, msgspec.json.encode(Answer(zone, workload, ZoneState.IN)))


def _described_by_path(*names: str) -> type[Operation]:
    """The description of an operation that reads its path from the scope, where Litestar does not see it."""
    parameters: list[Any] = [
        Parameter(name=name, param_in="path", required=True, schema=Schema(type=OpenAPIType.STRING)) for name in names
    ]

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.parameters = parameters

    return Described


_READ: dict[str, Any] = {"tags": ["zones"], "sync_to_thread": False}
_OUT = ResponseSpec(Answer, generate_examples=False, description="The zone is out", media_type=_JSON)


@get(
    "/status/{zone:str}",
    responses={**described(400, 401, 403, 503), 500: _OUT},
    summary="Is the zone in?",
    operation_class=_described_by_path("zone"),
    **_READ,
)
def zone_status(request: Request[Any, Any, Any]) -> Response[Answer]:
    """200 if the zone is in, 500 if it is out, for all workloads. A zone that nobody ever took out is in."""
    return _answer(request)


@get(
    "/status/{zone:str}/{workload:str}",
    responses={**described(400, 401, 403, 503), 500: _OUT},
    summary="Is the zone in for a workload?",
    operation_class=_described_by_path("zone", "workload"),
    **_READ,
)
def workload_status(request: Request[Any, Any, Any]) -> Response[Answer]:
    """200 if the zone is in, 500 if it is out, for this workload or for all."""
    return _answer(request)


@head(["/status/{zone:str}", "/status/{zone:str}/{workload:str}"], include_in_schema=False, **_READ)
def status_without_body(request: Request[Any, Any, Any]) -> Response[None]:
    """The same for probes that ask for no body."""
    return _answer(request)


@get("/v1/status", responses=described(401, 403, 503), summary="Which zones are out?", **_READ)
def snapshot(request: Request[Any, Any, Any]) -> Response[Snapshot]:
    """Every zone status that is known, from memory; open to everybody unless set otherwise: every host has to know."""
    services: Services = request.app.state.services
    known = services.statuses.snapshot()
    # Weak: two answers with the same revision differ in their time.
    headers = {"ETag": f'W/"{known.run}-{known.revision}"', "Cache-Control": "no-cache", TIME_HEADER: repr(known.at)}
    if known.age is not None:
        headers["Age"] = str(int(known.age))
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(None, status_code=304, headers=headers)  # type: ignore[arg-type]
    return Response(known, headers=headers)


def _greeting(statuses: Statuses, hub: Hub, last: str | None) -> Sequence[Event]:
    missed = hub.missed(last) if last else None
    if missed is not None:
        return missed
    return [Event(hub.last, "snapshot", msgspec.json.encode(statuses.snapshot()))]


@get(
    "/v1/status/events",
    responses=described(400, 401, 403, 503),
    media_type="text/event-stream",
    summary="Be told which zones are out",
    **_READ,
)
def status_events(
    request: Request[Any, Any, Any], last: Annotated[str | None, HeaderParameter(name="Last-Event-ID")] = None
) -> EventStream:
    """First `snapshot`, all that is known, then `status` for every change; with Last-Event-ID, what was missed."""
    services: Services = request.app.state.services
    services.statuses.snapshot()  # raises while nothing is known: rather no stream than one that says nothing
    return EventStream(services.status_hub, lambda: _greeting(services.statuses, services.status_hub, last))


@websocket("/v1/status/socket")
async def status_socket(socket: WebSocket[Any, Any, Any], last: Annotated[str | None, QueryParameter()] = None) -> None:
    """The same events, each a JSON object `{id, event, data}`; `?last=<id>` continues after the event with that id."""
    services: Services = socket.app.state.services
    try:
        services.statuses.snapshot()
    except EngineUnavailable:
        await socket.accept()
        await socket.close(code=_TRY_AGAIN_LATER, reason="nothing is known of zones yet: come back")
        return
    await serve_socket(socket, services.status_hub, lambda: _greeting(services.statuses, services.status_hub, last))


def reading(*, is_open: bool) -> Router:
    """What every host reads: open to everybody, unless the settings say otherwise."""
    handlers = [zone_status, workload_status, status_without_body, snapshot, status_events, status_socket]
    return Router("/", route_handlers=handlers, **({} if is_open else guarded(Role.VIEWER)))


# Only described here: whoever slips is told more by `zone_of` and `workload_of`.
ZoneName: TypeAlias = Annotated[
    str, PathParameter(description="An AZ-ID, such as use1-az1", schema_extra={"pattern": ZONE_PATTERN})
]
WorkloadName: TypeAlias = Annotated[
    str, PathParameter(description="The name of a workload", schema_extra={"pattern": WORKLOAD_PATTERN})
]

_WRITE = restricted("zones", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507))


@put("/v1/zones/{zone:str}", summary="Take a zone out, or bring it in", **_WRITE)
async def change_zone(
    request: Request[Any, Any, Any], state: ServerState, zone: ZoneName, data: JSONBody[Wanted]
) -> ZoneStatus:
    """For all workloads. Recorded with the credential and the reason. One zone is out at a time, unless by force."""
    return await _changed(request, state, zone_of(zone), None, data)


@put("/v1/zones/{zone:str}/{workload:str}", summary="Take a zone out for one workload, or bring it in", **_WRITE)
async def change_workload(
    request: Request[Any, Any, Any], state: ServerState, zone: ZoneName, workload: WorkloadName, data: JSONBody[Wanted]
) -> ZoneStatus:
    """For one workload."""
    return await _changed(request, state, zone_of(zone), workload_of(workload), data)


async def _changed(
    request: Request[Any, Any, Any], state: ServerState, zone: Zone, workload: str | None, wanted: Wanted
) -> ZoneStatus:
    by = f"credential {request.state.credential.id}"
    return await state.changing.run(lambda: _change(state.services, by, zone, workload, wanted))


def _change(services: Services, by: str, zone: Zone, workload: str | None, wanted: Wanted) -> ZoneStatus:
    require_known(services.workloads, zone, workload)
    changes = services.changes
    if wanted.state == "out":
        return changes.take_out(zone, workload, by=by, reason=wanted.reason, seconds=wanted.seconds, force=wanted.force)
    if wanted.seconds is not None:
        raise Conflict("`for` says how long a zone is out: a zone that is brought in stays in")
    return changes.bring_in(zone, workload, by=by, reason=wanted.reason)


@get(
    "/v1/status/history",
    summary="Who took which zone out, and when?",
    **restricted("zones", Role.VIEWER, errors=(400,)),
)
async def history(state: ServerState, limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100) -> Sequence[Logged]:
    """The latest changes of zone statuses, newest first."""
    return await asyncio.to_thread(state.services.status_log.list, limit)
