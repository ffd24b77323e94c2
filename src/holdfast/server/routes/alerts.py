"""Alerts over HTTP: who was told when, for viewers; acknowledging and snoozing, for operators."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct

from holdfast._clock import SystemClock
from holdfast._errors import InvalidValue, NotFound
from holdfast.alerts import AlertReport, AlertStore, Snooze
from holdfast.config.settings import require_known
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.state import ServerState

_Person = Annotated[str, Meta(min_length=1, max_length=100)]
_Verdict = Annotated[str, Meta(min_length=1, max_length=1000)]
_READ: dict[str, Any] = build_route_options("alerts", Role.VIEWER, errors=(400, 404))
_CHANGE: dict[str, Any] = {
    **build_route_options("alerts", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507)),
    "status_code": 200,
}


class AcknowledgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The verdict that somebody takes care of."""

    verdict: _Verdict
    by: _Person | None = None
    """A person. The credential is recorded in any case."""


class SnoozeRequest(Struct, frozen=True, forbid_unknown_fields=True, rename={"seconds": "for"}):
    """The verdict or workload of which nobody is to be told for some seconds."""

    seconds: Annotated[float, Meta(ge=1, le=31_536_000)]
    verdict: _Verdict | None = None
    workload: _Verdict | None = None
    by: _Person | None = None


@get("/v1/alerts", summary="List alerts", **_READ)
async def list_alerts(
    state: ServerState, limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100
) -> Sequence[AlertReport]:
    """Return the latest verdicts, newest first, and for each who was told of it when."""
    return await asyncio.to_thread(_require_store(state).list_latest, limit)


@get("/v1/alerts/{verdict:path}", summary="Show the alerts about a verdict", **_READ)
async def show_alert(
    state: ServerState, verdict: Annotated[str, PathParameter(description="The id of a verdict, with its slashes.")]
) -> AlertReport:
    """Return a verdict, and who was told of it when. Changes nothing."""
    return await asyncio.to_thread(_require_store(state).get, str(verdict).removeprefix("/"))


@post("/v1/alerts/acknowledge", summary="Acknowledge a verdict", **_CHANGE)
async def acknowledge_alert(
    request: Request[Any, Any, Any], state: ServerState, data: JSONBody[AcknowledgeRequest]
) -> AlertReport:
    """Record who takes care of a verdict, and tell those who were told of it."""
    store, by, now = _require_store(state), _describe_person(request, data.by), SystemClock().wall()
    return await state.change_executor.run(lambda: store.acknowledge(data.verdict, by, now))


@post("/v1/alerts/snooze", summary="Snooze a verdict or a workload", **_CHANGE)
async def snooze_alert(request: Request[Any, Any, Any], state: ServerState, data: JSONBody[SnoozeRequest]) -> Snooze:
    """Tell nobody of a verdict, or of those of a workload, for some time; then of those that are still open."""
    store, by, until = _require_store(state), _describe_person(request, data.by), SystemClock().wall() + data.seconds
    if data.workload is not None:
        require_known(state.services.workloads, None, data.workload)
    return await state.change_executor.run(
        lambda: store.snooze(verdict=data.verdict, workload=data.workload, by=by, until=until)
    )


def _require_store(state: ServerState) -> AlertStore:
    if state.services.alerts is None:
        raise NotFound("there are no alerts: add an [[alert]] to the settings of the server")
    return state.services.alerts


def _describe_person(request: Request[Any, Any, Any], name: str | None) -> str:
    credential = f"credential {request.state.credential.id}"
    if name is not None and not name.isprintable():
        raise InvalidValue(f"by {name[:40]!r}: expected printable characters")
    return credential if name is None else f"{name} ({credential})"
