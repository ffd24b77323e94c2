"""The alarms of workloads: their tree and states, their history, and why one is in its state."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import PathParameter, QueryParameter

from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.state import ServerState
from holdfast.watch.alarm_views import ExplainedAlarm, WorkloadAlarms

_WORKLOAD = "Only this workload. Needed if there are several."


@get("/v1/alarms", summary="List alarms", **build_route_options("alarms", Role.VIEWER, errors=(400, 404)))
async def list_alarms(
    state: ServerState,
    workload: Annotated[str | None, QueryParameter(description="Only this workload. Default: all.")] = None,
    *,
    include_all: Annotated[
        bool, QueryParameter(name="all", description="Also alarms about single operations that are not in ALARM.")
    ] = False,
) -> Sequence[WorkloadAlarms]:
    """Return the alarms of each workload with their states, and for each the names of the alarms in its rule."""
    return await asyncio.to_thread(state.services.alarms.list_alarms, workload, include_all=include_all)


@get(
    "/v1/alarms/history",
    summary="List changes of alarms",
    **build_route_options("alarms", Role.VIEWER, errors=(400, 404)),
)
async def alarm_history(
    state: ServerState,
    workload: Annotated[str | None, QueryParameter(description=_WORKLOAD)] = None,
    name: Annotated[str | None, QueryParameter(description="Only this alarm.")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    *,
    include_all: Annotated[
        bool,
        QueryParameter(
            name="all", description="Also alarms about single operations, first OKs, and the alarms of a first start."
        ),
    ] = False,
) -> list[dict[str, Any]]:
    """Return the latest changes, newest first, with the members of CloudWatch's AlarmHistoryItem."""
    found: list[dict[str, Any]] = msgspec.to_builtins(
        await asyncio.to_thread(state.services.alarms.list_history, workload, name, limit, include_all=include_all)
    )
    return found


@get(
    "/v1/alarms/{name:path}",
    summary="Explain an alarm",
    **build_route_options("alarms", Role.VIEWER, errors=(400, 404)),
)
async def explain_alarm(
    state: ServerState,
    name: Annotated[str, PathParameter(description="The name of an alarm. It may contain slashes.")],
    workload: Annotated[str | None, QueryParameter(description=_WORKLOAD)] = None,
) -> ExplainedAlarm:
    """Return the state of an alarm, its datapoints or its rule, and which part of it decided."""
    wanted = str(name).removeprefix("/")
    return await asyncio.to_thread(state.services.alarms.explain, workload, wanted)
