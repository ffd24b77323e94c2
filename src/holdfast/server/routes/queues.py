"""Queues over HTTP: depth, age and the busiest tenants for viewers, and the usage of one tenant for that tenant."""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast._errors import Conflict
from holdfast._names import check_queue_name
from holdfast.queue.backend import LaneDepth, QueueSnapshot, TenantDepth
from holdfast.queue.depth import compute_age, count_by_state
from holdfast.queue.rules.admission import compute_pressure, get_max_waiting
from holdfast.server.auth import create_role_guard
from holdfast.server.credentials import Role
from holdfast.server.problems import describe_errors
from holdfast.server.routes.limits import FullLimits, FullPolicy, full_limits, full_policy
from holdfast.server.routes.parameters import (
    CHANGE_OPTIONS,
    MAX_TIME,
    READ_OPTIONS,
    QueueName,
    TenantName,
    log_change,
    resolve_tenant,
)
from holdfast.server.state import ServerState


class QueueTenant(TenantDepth, frozen=True, kw_only=True):
    """The messages of one tenant in a queue, by state."""

    limits: FullLimits | None
    """The tenant's own limits, or null if those of the queue apply."""


class QueueLane(Struct, frozen=True, kw_only=True):
    """One lane of a queue that is not empty. A negative number is the overflow lane of one tenant."""

    lane: int
    ready: int
    """Messages that wait in the lane."""
    leased: int
    delayed: int
    dead: int
    oldest_age: float | None
    """Age of the oldest waiting message in seconds, or null if none waits."""


class QueueState(Struct, frozen=True, kw_only=True):
    """The depth of a queue, the age of its oldest message, and its policy."""

    queue: str
    at: float
    ready: int
    """Messages that wait, without spilled ones."""
    spilled: int
    """Messages that wait in the overflow lanes of their tenants."""
    leased: int
    delayed: int
    dead: int
    oldest_age: float | None
    """Age of the oldest waiting message in seconds, or null if none waits."""
    lanes_in_use: int
    lanes_left_out: int
    """Number of lanes that are not listed, because there are too many; their messages are counted."""
    tenants: Sequence[QueueTenant]
    """The tenants with the most waiting messages."""
    topics: Sequence[str]
    policy: FullPolicy
    lanes: Sequence[QueueLane] | UnsetType = UNSET


class TenantUsage(TenantDepth, frozen=True, kw_only=True):
    """The messages of a tenant in a queue, and its limits."""

    queue: str
    pressure: float
    max_waiting: int | None
    """Waiting messages, due or not, at which more are refused."""
    limits: FullLimits


class SweepRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages to drop: those older than their ttl, and those sent before a time."""

    before: Annotated[float, Meta(ge=0, le=MAX_TIME)] = 0.0


class SweepResult(Struct, frozen=True):
    """The number of dropped messages."""

    dropped: int


@get("/v1/queues", **{**READ_OPTIONS, "responses": describe_errors(401, 403, 503)}, summary="List queues")
async def list_queues(state: ServerState) -> Sequence[str]:
    """Return the names of all queues."""
    return await state.services.queues.list_names()


@get("/v1/queues/{queue:str}", summary="Show a queue", **READ_OPTIONS)
async def queue_state(
    state: ServerState,
    queue: QueueName,
    top: Annotated[int, QueryParameter(ge=0, le=100, description="Number of busiest tenants to list")] = 20,
    lanes: Annotated[bool, QueryParameter(description="Whether to list each lane")] = False,
) -> QueueState:
    """Return the depth of a queue, the age of its oldest message, its busiest tenants, and its policy."""
    name = check_queue_name(queue)
    return _state(await state.services.queues.ask(lambda backend: backend.inspect(name, top=top)), lanes=lanes)


@get(
    "/v1/queues/{queue:str}/usage",
    summary="Show the usage of a tenant",
    **{**READ_OPTIONS, "guards": [create_role_guard(Role.TENANT, Role.VIEWER)]},
)
async def tenant_usage(
    request: Request[Any, Any, Any], state: ServerState, queue: QueueName, tenant: TenantName = None
) -> TenantUsage:
    """Return a tenant's messages, pressure and limits. Operators and viewers name the tenant."""
    name, whose = check_queue_name(queue), resolve_tenant(request.state.credential, tenant)
    snapshot = await state.services.queues.ask(
        lambda backend: backend.inspect(name, tenants=[whose], top=0, lanes=False), request.state.credential.tenant
    )
    nothing = TenantDepth(tenant=whose, ready=0, spilled=0, leased=0, delayed=0, dead=0)
    found = next(iter(snapshot.tenants), nothing)
    limits = snapshot.policy.limits if found.limits is None else found.limits
    max_waiting = get_max_waiting(snapshot.policy, limits)
    return TenantUsage(
        queue=name,
        tenant=whose,
        **count_by_state(found),
        pressure=compute_pressure(found.waiting + found.delayed, max_waiting),
        max_waiting=max_waiting,
        limits=full_limits(limits),
    )


@post("/v1/queues/{queue:str}/sweep", summary="Drop old messages", **CHANGE_OPTIONS)
async def sweep(
    request: Request[Any, Any, Any], state: ServerState, queue: QueueName, data: JSONBody[SweepRequest]
) -> SweepResult:
    """Drop messages that are older than their ttl or were sent before a time, except leased ones."""
    name, now = check_queue_name(queue), state.services.queues.clock.wall()
    if data.before > now:
        raise Conflict(f"`before` is in the future ({data.before:.3f}; now {now:.3f})")
    dropped = await state.services.queues.ask(lambda backend: backend.sweep(name, data.before or None))
    log_change(request, name, f"{dropped} old messages dropped")
    return SweepResult(dropped)


def _state(snapshot: QueueSnapshot, *, lanes: bool) -> QueueState:
    totals = snapshot.totals
    return QueueState(
        queue=snapshot.queue,
        at=snapshot.at,
        **count_by_state(totals),
        oldest_age=compute_age(snapshot, totals.oldest_since),
        lanes_in_use=totals.lanes_in_use,
        lanes_left_out=snapshot.lanes_left_out,
        tenants=[
            QueueTenant(
                tenant=one.tenant, **count_by_state(one), limits=None if one.limits is None else full_limits(one.limits)
            )
            for one in snapshot.tenants
        ],
        topics=snapshot.topics,
        policy=full_policy(snapshot.policy),
        lanes=[_lane(snapshot, lane) for lane in snapshot.lanes] if lanes else UNSET,
    )


def _lane(snapshot: QueueSnapshot, lane: LaneDepth) -> QueueLane:
    fields = {name: getattr(lane, name) for name in QueueLane.__struct_fields__ if name != "oldest_age"}
    return QueueLane(**fields, oldest_age=compute_age(snapshot, lane.oldest_since))
