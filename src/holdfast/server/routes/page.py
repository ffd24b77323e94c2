"""The page and its data: zones and their status, verdicts, the last two minutes of telemetry, and all changes.

The files of the page need no credential, because they contain no data.
"""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any

from litestar import Request, Response, get, head
from litestar.params import QueryParameter
from msgspec import Struct

from holdfast._clock import SystemClock
from holdfast._types import Verdict, ZoneStatus
from holdfast.config import WorkloadSettings
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.push import StreamEvent
from holdfast.server.state import ServerState
from holdfast.server.streams import EventStream
from holdfast.server.verdicts import explain_workload
from holdfast.watch import AnnouncedDeploy, RecordedVerdict, TrafficSample
from holdfast.watch.explanation import VerdictExplanation

_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_HEADERS = {
    # No content from other hosts, and no framing: the page may contain an operator's credential.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Overview(Struct, frozen=True):
    """The data that the page starts with. Events update it."""

    workloads: Sequence[WorkloadSettings]
    statuses: Sequence[ZoneStatus]
    verdicts: Sequence[RecordedVerdict]
    traffic: Sequence[TrafficSample]
    bin_seconds: float
    """Seconds of telemetry that a detector judges together."""
    current_verdicts: Mapping[str, Verdict]
    """The verdict of the latest window of each workload: `unknown` while there is not enough data."""
    deploys: Sequence[AnnouncedDeploy]
    """The announced deploys that are running."""
    evaluating_server: str | None
    """The URL of the server that evaluates, if this one stands by for it; otherwise None."""


@get(list(_FILES), include_in_schema=False, sync_to_thread=False)
def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return one of the three files of the page."""
    return _respond_file(request)


@head(list(_FILES), include_in_schema=False, sync_to_thread=False)
def page_without_body(request: Request[Any, Any, Any]) -> Response[None]:
    """Answer like `page`, without a body."""
    return _respond_file(request)


def _respond_file(request: Request[Any, Any, Any]) -> Response[Any]:
    name, kind = _FILES[request.scope["path"]]
    content = files("holdfast.server.dashboard").joinpath(name).read_bytes()
    return Response(content, media_type=kind, headers=_HEADERS)


@get("/v1/overview", summary="Show the current state", **build_route_options("zones", Role.VIEWER))
async def overview(state: ServerState) -> Overview:
    """Return workloads, zone statuses, the latest verdicts, running deploys, and the recent traffic by second."""
    services = state.services
    verdicts = await asyncio.to_thread(services.watch_store.verdicts)
    deploys = await asyncio.to_thread(services.deploys.list)
    now = SystemClock().wall()
    return Overview(
        services.workloads,
        services.status_cache.snapshot().statuses,
        verdicts,
        services.detection.recent_traffic(),
        services.detection.bin_seconds,
        services.detection.current_verdicts(),
        [deploy for deploy in deploys if deploy.is_running(now)],
        services.detection.other_address,
    )


@get("/v1/verdicts", summary="List verdicts", **build_route_options("zones", Role.VIEWER))
async def verdicts(state: ServerState) -> Sequence[RecordedVerdict]:
    """Return the latest verdicts, newest first."""
    return await asyncio.to_thread(state.services.watch_store.verdicts)


@get(
    "/v1/verdicts/explanation",
    summary="Explain the current verdict",
    **build_route_options("zones", Role.VIEWER, errors=(400, 404)),
)
async def explain_verdict(
    state: ServerState,
    workload: Annotated[str | None, QueryParameter(description="The workload. Needed if there are several.")] = None,
) -> VerdictExplanation:
    """Return the evidence against each zone in the latest window, how much is missing, and what holds it back."""
    services = state.services
    return await asyncio.to_thread(
        explain_workload,
        workload,
        workloads=services.workloads,
        evacuation=services.evacuation,
        store=services.watch_store,
        statuses=services.status_cache,
        runs=await asyncio.to_thread(services.evacuations.evacuator.read_runs),
        now=SystemClock().wall(),
    )


@get(
    "/v1/events",
    media_type="text/event-stream",
    summary="Stream changes",
    **build_route_options("events", Role.VIEWER),
)
async def events(state: ServerState) -> EventStream:
    """Stream events until the server stops. The first event, `hello`, says that the stream is live."""
    hub = state.services.hub
    return EventStream(hub, lambda: [StreamEvent(hub.last_id, "hello", b"{}")])
