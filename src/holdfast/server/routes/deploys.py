"""Announce the deploys of workloads, end them, and list them."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta, Struct

from holdfast._names import WORKLOAD_PATTERN, ZONE_PATTERN, parse_zone
from holdfast.config.settings import require_watched
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.state import ServerState, Services
from holdfast.watch.deploy import (
    ID_PATTERN,
    MAX_BY_CHARACTERS,
    MAX_NOTE_CHARACTERS,
    MAX_SECONDS,
    TEXT_PATTERN,
    AnnouncedDeploy,
)

_Id = Annotated[str, Meta(pattern=ID_PATTERN)]
_Zone = Annotated[str, Meta(pattern=ZONE_PATTERN)]
_Workload = Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]


class DeployBegin(Struct, frozen=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """A deploy that begins."""

    workload: _Workload
    zone: _Zone | None = None
    """By default, all zones of the workload."""
    by: Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=MAX_BY_CHARACTERS)] | None = None
    """By default, the credential."""
    note: Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=MAX_NOTE_CHARACTERS)] = ""
    seconds: Annotated[float, Meta(ge=1, le=MAX_SECONDS)] | None = None
    """Seconds after which the announcement expires; by default 15 minutes."""
    at: float | None = None
    """When it began, in seconds since the epoch; by default now."""
    id: _Id | None = None
    """An id of your own, so that you can repeat the request. By default, the server chooses one."""


class DeployEnd(Struct, frozen=True, forbid_unknown_fields=True):
    """A deploy that ends: the one with this id, or else the running one of the zone, or of all zones."""

    id: _Id | None = None
    workload: _Workload | None = None
    zone: _Zone | None = None
    at: float | None = None
    """When it ended, in seconds since the epoch; by default now."""


_CHANGE = build_route_options("deploys", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507))


@post("/v1/deploys", status_code=200, summary="Announce a deploy", **_CHANGE)
async def begin_deploy(
    request: Request[Any, Any, Any], state: ServerState, data: JSONBody[DeployBegin]
) -> AnnouncedDeploy:
    """Announce that a deploy begins, so that detection takes it into account. It expires after 15 minutes, or `for`."""
    by = data.by or f"credential {request.state.credential.id}"

    def begin(services: Services) -> AnnouncedDeploy:
        require_watched(services.workloads, data.workload, None if data.zone is None else parse_zone(data.zone))
        return services.deploys.begin(
            data.workload, data.zone, by=by, note=data.note, seconds=data.seconds, at=data.at, deploy_id=data.id
        )

    return await _change(state, lambda: begin(state.services))


@post("/v1/deploys/end", status_code=200, summary="End an announced deploy", **_CHANGE)
async def end_deploy(state: ServerState, data: JSONBody[DeployEnd]) -> AnnouncedDeploy:
    """End a deploy by its id, or the only running one of a workload's zone. One that has ended stays as it is."""

    def end(services: Services) -> AnnouncedDeploy:
        zone = None if data.zone is None else parse_zone(data.zone)
        if data.id is None:
            require_watched(services.workloads, data.workload, zone)
        return services.deploys.end(data.id, workload=data.workload, zone=zone, at=data.at)

    return await _change(state, lambda: end(state.services))


async def _change(state: ServerState, change: Any) -> AnnouncedDeploy:
    changed: AnnouncedDeploy = await state.change_executor.run(change)
    state.services.hub.publish_threadsafe("deploy", msgspec.json.encode(changed))
    return changed


@get("/v1/deploys", summary="List announced deploys", **build_route_options("deploys", Role.VIEWER, errors=(400, 404)))
async def list_deploys(
    state: ServerState,
    workload: Annotated[str | None, QueryParameter(description="Only this workload. Default: all.")] = None,
) -> Sequence[AnnouncedDeploy]:
    """Return the running deploys and those that ended in the last day, newest first."""
    if workload is not None:
        require_watched(state.services.workloads, workload)
    return await asyncio.to_thread(state.services.deploys.list, workload)
