"""Plan evacuations, start, continue and undo them, and show how far they are."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from litestar import Request, get, post
from litestar.params import JSONBody, PathParameter
from msgspec import Meta, Struct, field

from holdfast._errors import Conflict, NotFound
from holdfast._names import WORKLOAD_PATTERN, ZONE_PATTERN, parse_zone
from holdfast.config.settings import require_known
from holdfast.evacuate import EvacuationMode, GuardName, Proposal
from holdfast.evacuate.journal import Run, find_run
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.service import EvacuationDetails, EvacuationList, build_command
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Role
from holdfast.server.state import ServerState, Services
from holdfast.status.writer import MAX_REASON_CHARACTERS, REASON_PATTERN

Result = TypeVar("Result")

_Zone = Annotated[str, Meta(pattern=ZONE_PATTERN)]
_Workload = Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
_Reason = Annotated[str, Meta(pattern=REASON_PATTERN, min_length=1, max_length=MAX_REASON_CHARACTERS)]
RunId = Annotated[str, PathParameter(description="The id of an evacuation")]


class PlanRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The zone to look at."""

    zone: _Zone
    workload: _Workload | None = None
    """By default, all workloads."""
    selection: Selection = field(default_factory=Selection)
    """By default, all resources of the workload."""


class EvacuationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The zone to evacuate."""

    zone: _Zone
    reason: _Reason
    workload: _Workload | None = None
    """By default, all workloads."""
    overrides: list[GuardName] = []
    """Guards to override, for the reason that is given."""
    selection: Selection = field(default_factory=Selection)
    """By default, all resources of the workload."""


class RestoreRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What to restore."""

    types: list[str] = []
    """Types of resources; by default, all."""


_READ = build_route_options("evacuations", Role.VIEWER, errors=(400, 404, 500))
_CHANGE = build_route_options("evacuations", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507))


@get("/v1/evacuations", summary="List evacuations", **_READ)
async def list_evacuations(state: ServerState) -> EvacuationList:
    """Return the mode, the open evacuations and the last restored ones."""
    service = state.services.evacuations
    recorded = await _run(state, service.evacuator.read_runs)
    return EvacuationList(service.mode, recorded.runs)


@get("/v1/evacuations/{run:str}", summary="Show an evacuation", **_READ)
async def show_evacuation(state: ServerState, run: RunId) -> EvacuationDetails:
    """Return one evacuation with the state of each resource."""

    def read() -> EvacuationDetails:
        found = _find(state.services, run)
        return EvacuationDetails(found, state.services.evacuations.evacuator.list_entries(found))

    return await _run(state, read)


@post("/v1/evacuations/plan", status_code=200, summary="Plan an evacuation", **_CHANGE)
async def plan_evacuation(state: ServerState, data: JSONBody[PlanRequest]) -> Proposal:
    """Return every resource in the zone, what would change, what cannot be moved, and what the guards say."""

    def plan() -> Proposal:
        zone = parse_zone(data.zone)
        require_known(state.services.workloads, zone, data.workload)
        return state.services.evacuations.evacuator.prepare(zone, data.workload, selection=data.selection)

    return await _run(state, plan)


@post("/v1/evacuations", status_code=200, summary="Evacuate a zone", **_CHANGE)
async def evacuate(request: Request[Any, Any, Any], state: ServerState, data: JSONBody[EvacuationRequest]) -> Run:
    """Start an evacuation, and return it. Refused by a guard that is not overridden, and in the mode `advise`."""
    by = f"credential {request.state.credential.id}"

    def begin() -> Run:
        service, zone = state.services.evacuations, parse_zone(data.zone)
        require_known(state.services.workloads, zone, data.workload)
        if service.mode is EvacuationMode.ADVISE:
            raise Conflict(
                "this server only advises (evacuation.mode): run "
                f"`{build_command(zone, data.workload)}` without --server, or set the mode to confirm"
            )
        overrides = {str(each): data.reason for each in data.overrides}
        proposal = service.evacuator.prepare(
            zone, data.workload, reason=data.reason, overrides=overrides, selection=data.selection
        )
        return service.begin(proposal, by=by)

    return await _run(state, begin)


@post("/v1/evacuations/{run:str}/resume", status_code=200, summary="Continue an evacuation", **_CHANGE)
async def resume_evacuation(state: ServerState, run: RunId) -> Run:
    """Start to make all changes of an evacuation that are missing. Return the run at once; the work goes on."""
    return await _run(state, lambda: state.services.evacuations.begin_resume(_find(state.services, run)))


@post("/v1/evacuations/{run:str}/restore", status_code=200, summary="Undo an evacuation", **_CHANGE)
async def restore_evacuation(state: ServerState, run: RunId, data: JSONBody[RestoreRequest]) -> Run:
    """Start to undo an evacuation. Return the run at once; the work goes on. Changes of others are kept."""
    return await _run(
        state, lambda: state.services.evacuations.begin_restore(_find(state.services, run), types=data.types)
    )


def _find(services: Services, run: str) -> Run:
    found = find_run(services.evacuations.evacuator.read_runs(), run)
    if found is None:
        raise NotFound(f"the journal has no evacuation {run[:80]!r}: GET /v1/evacuations lists them")
    return found


async def _run(state: ServerState, work: Callable[[], Result]) -> Result:
    return await state.evacuation_executor.run(work)
