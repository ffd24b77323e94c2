"""Queues over HTTP, for whoever looks: depth, age and who causes them; for a tenant what it has there itself."""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast._errors import Conflict
from holdfast._names import queue_of
from holdfast.queue.backend import LaneDepth, Snapshot, TenantDepth
from holdfast.queue.depth import age_at, states_of
from holdfast.queue.rules.admission import max_backlog, pressure
from holdfast.server.auth import requires
from holdfast.server.credentials import Role
from holdfast.server.problems import described
from holdfast.server.routes.limits import FullLimits, FullPolicy, full_limits, full_policy
from holdfast.server.routes.parameters import CHANGE, LATEST, LOOK, QueueName, TenantName, log_change, tenant_of
from holdfast.server.state import ServerState


class QueueTenant(TenantDepth, frozen=True, kw_only=True):
    """One tenant of a queue."""

    limits: FullLimits | None
    """Its own limits; none: it has those of the queue."""


class QueueLane(Struct, frozen=True, kw_only=True):
    """One lane of a queue that is not empty."""

    lane: int
    ready: int
    """Messages that wait in it; in a lane below 0 they are spilled."""
    leased: int
    delayed: int
    dead: int
    age: float | None
    """Seconds for which the message has been waiting that waits the longest."""


class QueueState(Struct, frozen=True, kw_only=True):
    """How deep a queue is, how old its oldest message, and how it is set."""

    queue: str
    at: float
    ready: int
    """Messages that wait, without those that are spilled."""
    spilled: int
    """Messages that wait apart, because their tenants sent so much."""
    leased: int
    delayed: int
    dead: int
    age: float | None
    """Seconds for which the message has been waiting that waits the longest; none waits: none."""
    lanes_in_use: int
    lanes_left_out: int
    """Lanes that are not listed, because there are so many; what is in them is counted."""
    tenants: Sequence[QueueTenant]
    """Those with the most messages waiting."""
    topics: Sequence[str]
    policy: FullPolicy
    lanes: Sequence[QueueLane] | UnsetType = UNSET


class Own(TenantDepth, frozen=True, kw_only=True):
    """What a tenant has in a queue, and what it may."""

    queue: str
    pressure: float
    max_backlog: int | None
    """Messages that may wait, due or not, before more are refused."""
    limits: FullLimits


class Sweep(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages are dropped: those that have expired, and those that were sent before a time."""

    before: Annotated[float, Meta(ge=0, le=LATEST)] = 0.0


class Swept(Struct, frozen=True):
    """How many messages were dropped."""

    dropped: int


@get("/v1/queues", **{**LOOK, "responses": described(401, 403, 503)}, summary="List queues")
async def list_queues(state: ServerState) -> Sequence[str]:
    """The names of all queues."""
    return await state.services.queues.names()


@get("/v1/queues/{queue:str}", summary="How deep is a queue?", **LOOK)
async def queue_state(
    state: ServerState,
    queue: QueueName,
    top: Annotated[int, QueryParameter(ge=0, le=100, description="How many of the busiest tenants")] = 20,
    lanes: Annotated[bool, QueryParameter(description="Whether each lane is listed")] = False,
) -> QueueState:
    """Depth, age of what waits the longest, the tenants with most of it, and the policy."""
    name = queue_of(queue)
    return _state(await state.services.queues.ask(lambda backend: backend.look(name, top=top)), lanes=lanes)


@get(
    "/v1/queues/{queue:str}/own",
    summary="What does a tenant have there?",
    **{**LOOK, "guards": [requires(Role.TENANT, Role.VIEWER)]},
)
async def own(request: Request[Any, Any, Any], state: ServerState, queue: QueueName, tenant: TenantName = None) -> Own:
    """A tenant's depth, pressure and limits; the tenant's own, or for operators and viewers that of a tenant."""
    name, whose = queue_of(queue), tenant_of(request.state.credential, tenant)
    snapshot = await state.services.queues.ask(
        lambda backend: backend.look(name, tenants=[whose], top=0, lanes=False), request.state.credential.tenant
    )
    nothing = TenantDepth(tenant=whose, ready=0, spilled=0, leased=0, delayed=0, dead=0)
    found = next(iter(snapshot.tenants), nothing)
    limits = snapshot.policy.limits if found.limits is None else found.limits
    most = max_backlog(snapshot.policy, limits)
    return Own(
        queue=name,
        tenant=whose,
        **states_of(found),
        pressure=pressure(found.waiting + found.delayed, most),
        max_backlog=most,
        limits=full_limits(limits),
    )


@post("/v1/queues/{queue:str}/sweep", summary="Drop old messages", **CHANGE)
async def sweep(request: Request[Any, Any, Any], state: ServerState, queue: QueueName, data: JSONBody[Sweep]) -> Swept:
    """Drop messages that are too old to be worth anything, except those that are being handled."""
    name, now = queue_of(queue), state.services.queues.clock.wall()
    if data.before > now:
        raise Conflict(f"before {data.before:.3f}, which is yet to come: it is {now:.3f}")
    dropped = await state.services.queues.ask(lambda backend: backend.sweep(name, data.before or None))
    log_change(request, name, f"{dropped} old messages dropped")
    return Swept(dropped)


def _state(snapshot: Snapshot, *, lanes: bool) -> QueueState:
    totals = snapshot.totals
    return QueueState(
        queue=snapshot.queue,
        at=snapshot.at,
        **states_of(totals),
        age=age_at(snapshot, totals.oldest),
        lanes_in_use=totals.lanes,
        lanes_left_out=snapshot.lanes_left_out,
        tenants=[
            QueueTenant(
                tenant=one.tenant, **states_of(one), limits=None if one.limits is None else full_limits(one.limits)
            )
            for one in snapshot.tenants
        ],
        topics=snapshot.topics,
        policy=full_policy(snapshot.policy),
        lanes=[_lane(snapshot, lane) for lane in snapshot.lanes] if lanes else UNSET,
    )


def _lane(snapshot: Snapshot, lane: LaneDepth) -> QueueLane:
    fields = {name: getattr(lane, name) for name in QueueLane.__struct_fields__ if name != "age"}
    return QueueLane(**fields, age=age_at(snapshot, lane.oldest))
