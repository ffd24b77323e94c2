"""Zone statuses over HTTP: for load balancers and hosts that poll, clients that listen, and operators who decide."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from litestar import Request, Response, Router, WebSocket, get, head, put, websocket
from litestar.exceptions import ServiceUnavailableException
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Operation, Parameter, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.types import Receive, Scope, Send
from msgspec import Meta, Struct

from holdfast._errors import Conflict, EngineUnavailable
from holdfast._names import (
    MAX_WORKLOAD_CHARACTERS,
    MAX_ZONE_CHARACTERS,
    WORKLOAD_PATTERN,
    ZONE_PATTERN,
    check_workload_name,
    parse_zone,
)
from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.config.settings import require_known
from holdfast.server.auth import build_guard_options, build_route_options, get_credential_id
from holdfast.server.credentials import Role
from holdfast.server.problems import describe_errors
from holdfast.server.push import EventHub, StreamEvent
from holdfast.server.state import ServerState, Services
from holdfast.server.status_cache import StatusCache
from holdfast.server.status_log import StatusLogEntry
from holdfast.server.streams import EventStream, serve_socket
from holdfast.status.wire import KNOWN_HEADER, TIME_HEADER, WORKLOAD_HEADER, StatusSnapshot
from holdfast.status.writer import MAX_REASON_CHARACTERS, REASON_PATTERN

_JSON = "application/json"
_IN_ETAG = '"in"'
"""The ETag of every zone that is in."""
_TOO_MANY_STREAMS = "too many streams without a credential: poll GET /v1/status"
_TRY_AGAIN_LATER = 1013
"""https://www.iana.org/assignments/websocket/websocket.xhtml#close-code-number"""


class ZoneStateResponse(Struct, frozen=True):
    """The body of `/status/...`, for people; the status code has the same information."""

    zone: str
    workload: str | None
    state: ZoneState
    since: float | None = None
    reason: str | None = None


class ZoneChangeRequest(Struct, frozen=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """The wanted status of a zone."""

    state: Literal["in", "out"]
    reason: Annotated[str, Meta(pattern=REASON_PATTERN, min_length=1, max_length=MAX_REASON_CHARACTERS)]
    seconds: Annotated[float, Meta(ge=1, le=31_536_000)] | None = None
    """Seconds after which the zone is in again; by default, it is out until it is brought in."""
    force: bool = False
    """Take the zone out even while another zone is out; bring it in even if an evacuation took it out."""


class _PreparedResponse(Response[Any]):
    """A response that is sent directly: Litestar's processing would take longer than building it."""

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


def _respond_state(request: Request[Any, Any, Any]) -> Response[Any]:
    """Answer from memory with a minimal response: every host polls this."""
    services: Services = request.app.state.services
    cache, asked = services.status_cache, request.scope["path_params"]
    zone, workload = asked["zone"], asked.get("workload")
    if len(zone) > MAX_ZONE_CHARACTERS:
        parse_zone(zone)  # raises; any shorter name is answered
    if workload is not None and len(workload) > MAX_WORKLOAD_CHARACTERS:
        check_workload_name(workload)
    status = cache.find_out_status(zone, workload)
    headers = {"cache-control": "no-cache"}
    if (age := cache.age) is not None:
        headers["age"] = str(int(age))
    else:
        headers[KNOWN_HEADER] = "no"
    if status is not None:
        answer = ZoneStateResponse(zone, workload, status.state, status.since, status.reason)
        return _PreparedResponse(500, headers, msgspec.json.encode(answer))
    headers["etag"] = _IN_ETAG
    if request.headers.get("if-none-match") in {_IN_ETAG, "*"}:
        return _PreparedResponse(304, headers)
    return _PreparedResponse(200, headers, msgspec.json.encode(ZoneStateResponse(zone, workload, ZoneState.IN)))


def _described_by_path(*names: str) -> type[Operation]:
    """Return an OpenAPI description of the path parameters, which Litestar does not see in the scope."""
    parameters: list[Any] = [
        Parameter(name=name, param_in="path", required=True, schema=Schema(type=OpenAPIType.STRING)) for name in names
    ]

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.parameters = parameters

    return Described


_READ: dict[str, Any] = {"tags": ["zones"], "sync_to_thread": False}
_OUT = ResponseSpec(ZoneStateResponse, generate_examples=False, description="The zone is out", media_type=_JSON)


@get(
    "/status/{zone:str}",
    responses={**describe_errors(400, 401, 403, 503), 500: _OUT},
    summary="Is the zone in?",
    operation_class=_described_by_path("zone"),
    **_READ,
)
def zone_status(request: Request[Any, Any, Any]) -> Response[ZoneStateResponse]:
    """Return 200 if the zone is in and 500 if it is out, for all workloads. A zone that was never taken out is in."""
    return _respond_state(request)


@get(
    "/status/{zone:str}/{workload:str}",
    responses={**describe_errors(400, 401, 403, 503), 500: _OUT},
    summary="Is the zone in for a workload?",
    operation_class=_described_by_path("zone", "workload"),
    **_READ,
)
def workload_status(request: Request[Any, Any, Any]) -> Response[ZoneStateResponse]:
    """Return 200 if the zone is in and 500 if it is out, for this workload or for all."""
    return _respond_state(request)


@head(["/status/{zone:str}", "/status/{zone:str}/{workload:str}"], include_in_schema=False, **_READ)
def status_without_body(request: Request[Any, Any, Any]) -> Response[None]:
    """Return the same status code without a body, for probes that send HEAD."""
    return _respond_state(request)


@get("/v1/status", responses=describe_errors(400, 401, 403, 503), summary="Which zones are out?", **_READ)
def snapshot(
    request: Request[Any, Any, Any], workload: Annotated[str | None, QueryParameter()] = None
) -> Response[StatusSnapshot]:
    """Return all known statuses, from memory. Needs no credential by default: every host must be able to read it.

    A reader can name its own `workload`: a header then says if the server does not know it.
    """
    return _respond_snapshot(request, workload)


@head("/v1/status", include_in_schema=False, **_READ)
def snapshot_without_body(
    request: Request[Any, Any, Any], workload: Annotated[str | None, QueryParameter()] = None
) -> Response[None]:
    """Answer like `snapshot`, without a body."""
    return _respond_snapshot(request, workload)


def _respond_snapshot(request: Request[Any, Any, Any], workload: str | None) -> Response[Any]:
    services: Services = request.app.state.services
    known = services.status_cache.snapshot()
    # Weak: two responses with the same revision differ in their time.
    headers = {"ETag": f'W/"{known.run}-{known.revision}"', "Cache-Control": "no-cache", TIME_HEADER: repr(known.at)}
    if known.age is not None:
        headers["Age"] = str(int(known.age))
    if workload is not None and services.workloads and workload not in {each.name for each in services.workloads}:
        headers[WORKLOAD_HEADER] = "unknown"
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(None, status_code=304, headers=headers)
    return Response(known, headers=headers)


def _build_first_events(status_cache: StatusCache, hub: EventHub, last_event_id: str | None) -> Sequence[StreamEvent]:
    missed = hub.find_missed(last_event_id) if last_event_id else None
    if missed is not None:
        return missed
    return [StreamEvent(hub.last_id, "snapshot", msgspec.json.encode(status_cache.snapshot()))]


def _is_too_many(scope: Scope, hub: EventHub) -> bool:
    """Return whether one more stream without a credential could keep requests with credentials out."""
    return hub.is_full and get_credential_id(scope) is None


@get(
    "/v1/status/events",
    responses=describe_errors(400, 401, 403, 503),
    media_type="text/event-stream",
    summary="Stream changes of zone statuses",
    **_READ,
)
def status_events(
    request: Request[Any, Any, Any], last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID")] = None
) -> EventStream:
    """Send `snapshot` with all statuses, then `status` for every change; after Last-Event-ID, the missed events."""
    services: Services = request.app.state.services
    if _is_too_many(request.scope, services.status_hub):
        raise ServiceUnavailableException(_TOO_MANY_STREAMS)
    services.status_cache.snapshot()  # raises while nothing is known: an error is better than an empty stream
    return EventStream(
        services.status_hub, lambda: _build_first_events(services.status_cache, services.status_hub, last_event_id)
    )


@websocket("/v1/status/socket")
async def status_socket(
    socket: WebSocket[Any, Any, Any], last_event_id: Annotated[str | None, QueryParameter()] = None
) -> None:
    """Send events as JSON `{id, event, data}`; `?last_event_id=<id>` continues after the event with that id."""
    services: Services = socket.app.state.services
    refusal = _TOO_MANY_STREAMS if _is_too_many(socket.scope, services.status_hub) else None
    try:
        services.status_cache.snapshot()
    except EngineUnavailable:
        refusal = "zone statuses are not known yet: try again later"
    if refusal is not None:
        await socket.accept()
        await socket.close(code=_TRY_AGAIN_LATER, reason=refusal)
        return
    await serve_socket(
        socket,
        services.status_hub,
        lambda: _build_first_events(services.status_cache, services.status_hub, last_event_id),
    )


def build_status_router(*, is_open: bool) -> Router:
    """Return the routes that hosts read; the guard admits viewers and trackers, unless everybody may read them."""
    handlers = [
        *(zone_status, workload_status, status_without_body),
        *(snapshot, snapshot_without_body, status_events, status_socket),
    ]
    return Router("/", route_handlers=handlers, **({} if is_open else build_guard_options(Role.VIEWER, Role.TRACKER)))


# For the documentation only: `parse_zone` and `check_workload_name` validate, with better error messages.
ZoneName: TypeAlias = Annotated[
    str, PathParameter(description="An AZ-ID, such as use1-az1", schema_extra={"pattern": ZONE_PATTERN})
]
WorkloadName: TypeAlias = Annotated[
    str, PathParameter(description="The name of a workload", schema_extra={"pattern": WORKLOAD_PATTERN})
]

_WRITE = build_route_options("zones", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507))


@put("/v1/zones/{zone:str}", summary="Take a zone out, or bring it in", **_WRITE)
async def change_zone(
    request: Request[Any, Any, Any], state: ServerState, zone: ZoneName, data: JSONBody[ZoneChangeRequest]
) -> ZoneStatus:
    """Change it for all workloads, recorded with credential and reason. Only one zone may be out, unless forced."""
    return await _run_change(request, state, parse_zone(zone), None, data)


@put("/v1/zones/{zone:str}/{workload:str}", summary="Take a zone out for one workload, or bring it in", **_WRITE)
async def change_workload(
    request: Request[Any, Any, Any],
    state: ServerState,
    zone: ZoneName,
    workload: WorkloadName,
    data: JSONBody[ZoneChangeRequest],
) -> ZoneStatus:
    """Change it for one workload."""
    return await _run_change(request, state, parse_zone(zone), check_workload_name(workload), data)


async def _run_change(
    request: Request[Any, Any, Any], state: ServerState, zone: Zone, workload: str | None, wanted: ZoneChangeRequest
) -> ZoneStatus:
    by = f"credential {request.state.credential.id}"
    return await state.change_executor.run(lambda: _change(state.services, by, zone, workload, wanted))


def _change(services: Services, by: str, zone: Zone, workload: str | None, wanted: ZoneChangeRequest) -> ZoneStatus:
    require_known(services.workloads, zone, workload)
    writer = services.status_writer
    if wanted.state == "out":
        return writer.take_out(zone, workload, by=by, reason=wanted.reason, seconds=wanted.seconds, force=wanted.force)
    if wanted.seconds is not None:
        raise Conflict("`for` limits how long a zone is out: omit it when you bring a zone in")
    return writer.bring_in(zone, workload, by=by, reason=wanted.reason, force=wanted.force)


@get(
    "/v1/status/history",
    summary="List changes of zone statuses",
    **build_route_options("zones", Role.VIEWER, errors=(400,)),
)
async def history(
    state: ServerState, limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100
) -> Sequence[StatusLogEntry]:
    """Return the latest changes of zone statuses, newest first."""
    return await asyncio.to_thread(state.services.status_log.list, limit)
