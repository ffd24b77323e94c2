"""Limits of tenants and policies of queues over HTTP: read by viewers, changed by operators."""

from typing import Annotated, Any, TypeAlias

from litestar import Request, delete, get, put
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta, Struct
from msgspec.structs import asdict

from holdfast._errors import Conflict, InvalidValue
from holdfast._names import check_queue_name
from holdfast._types import MAX_TENANT_BYTES
from holdfast.queue import Limits, QueuePolicy
from holdfast.queue.backend import Backend, QueueChange
from holdfast.queue.message import MAX_DURATION
from holdfast.server.routes.parameters import (
    CHANGE_OPTIONS,
    QUERY_TEXT_SCHEMA,
    READ_OPTIONS,
    QueueName,
    log_change,
    parse_tenant,
    with_strict_query,
)
from holdfast.server.state import ServerState

TenantParameter: TypeAlias = Annotated[
    str, QueryParameter(name="tenant", min_length=1, max_length=MAX_TENANT_BYTES, schema_extra=QUERY_TEXT_SCHEMA)
]
# The ranges of `holdfast.queue.policy`, repeated for the description, and so that a validation error names the field.
_Rate: TypeAlias = Annotated[float, Meta(ge=1e-6, le=1e6)]
_Burst: TypeAlias = Annotated[float, Meta(ge=1e-6, le=1 << 40)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 40)]
_CountOrZero: TypeAlias = Annotated[int, Meta(gt=-1, le=1 << 40)]  # Litestar omits a minimum of 0 in the description
_Share: TypeAlias = Annotated[float, Meta(ge=0, le=0.5)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DURATION)]

_DEFAULT = QueuePolicy()


class FullLimits(Limits, frozen=True, kw_only=True, omit_defaults=False):
    """The limits of one tenant. Null means unlimited."""

    spill_rate: _Rate | None = None
    spill_burst: _Burst | None = None
    max_rate: _Rate | None = None
    max_burst: _Burst | None = None
    run_rate: _Rate | None = None
    run_burst: _Burst | None = None
    concurrency: _Count | None = None
    max_waiting: _Count | None = None


class FullPolicy(QueuePolicy, frozen=True, kw_only=True, omit_defaults=False):
    """The policy of a queue, with all values."""

    lanes: Annotated[int, Meta(ge=1, le=4096)] = _DEFAULT.lanes
    lanes_per_tenant: Annotated[int, Meta(ge=0, le=64)] = _DEFAULT.lanes_per_tenant
    limits: FullLimits = FullLimits()
    spill_above: _CountOrZero | None = _DEFAULT.spill_above
    max_waiting: _Count | None = _DEFAULT.max_waiting
    rate_under_backpressure: Annotated[float, Meta(ge=1e-6, le=1e12)] = _DEFAULT.rate_under_backpressure
    fresh_for: _Seconds = _DEFAULT.fresh_for
    backlog_share: _Share = _DEFAULT.backlog_share
    low_priority_share: _Share = _DEFAULT.low_priority_share
    spill_share: _Share = _DEFAULT.spill_share
    ttl: Annotated[float, Meta(ge=1e-3, le=MAX_DURATION)] | None = _DEFAULT.ttl
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = _DEFAULT.max_attempts
    lease: Annotated[float, Meta(ge=0.1, le=43200)] = _DEFAULT.lease
    dedupe_for: _Seconds = _DEFAULT.dedupe_for

    def __post_init__(self) -> None:
        """Skip validation here: `plain_policy` checks that the fields are consistent."""


class TenantLimits(Struct, frozen=True, kw_only=True):
    """The limits that apply to a tenant."""

    queue: str
    tenant: str
    is_own: bool
    """Whether the limits are the tenant's own, not those of the queue."""
    limits: FullLimits


@get("/v1/queues/{queue:str}/limits", summary="Show a tenant's limits", **with_strict_query(READ_OPTIONS))
async def tenant_limits(state: ServerState, queue: QueueName, tenant: TenantParameter) -> TenantLimits:
    """Return a tenant's limits: its own, or those of the queue."""
    name, whose = check_queue_name(queue), parse_tenant(tenant)
    return await state.services.queues.ask(lambda backend: _read_limits(backend, name, whose))


@put("/v1/queues/{queue:str}/limits", summary="Set a tenant's limits", **with_strict_query(CHANGE_OPTIONS))
async def set_limits(
    request: Request[Any, Any, Any],
    state: ServerState,
    queue: QueueName,
    tenant: TenantParameter,
    data: JSONBody[FullLimits],
) -> TenantLimits:
    """Set all limits of a tenant, from now on. Limits that are left out are unlimited."""
    return await _change_limits(request, state, queue, tenant, Limits(**asdict(data)))


@delete(
    "/v1/queues/{queue:str}/limits",
    summary="Remove a tenant's own limits",
    **with_strict_query(CHANGE_OPTIONS),
)
async def clear_limits(
    request: Request[Any, Any, Any], state: ServerState, queue: QueueName, tenant: TenantParameter
) -> TenantLimits:
    """Remove the tenant's own limits: those of the queue apply from now on."""
    return await _change_limits(request, state, queue, tenant, None)


@get("/v1/queues/{queue:str}/policy", summary="Show the policy of a queue", **with_strict_query(READ_OPTIONS))
async def queue_policy(state: ServerState, queue: QueueName) -> FullPolicy:
    """Return the policy that producers and workers of the queue share."""
    name = check_queue_name(queue)
    snapshot = await state.services.queues.ask(lambda backend: backend.inspect(name, top=0, lanes=False))
    return full_policy(snapshot.policy)


@put(
    "/v1/queues/{queue:str}/policy",
    summary="Set the policy of a queue",
    **with_strict_query(CHANGE_OPTIONS),
)
async def set_policy(
    request: Request[Any, Any, Any], state: ServerState, queue: QueueName, data: JSONBody[FullPolicy]
) -> FullPolicy:
    """Set the whole policy of a queue, from now on for all tenants. Values that are left out get their defaults."""
    name, wanted = check_queue_name(queue), plain_policy(data)
    policy = await state.services.queues.ask(lambda backend: backend.change(name, QueueChange(policy=wanted)))
    log_change(request, name, "policy changed")
    return full_policy(policy)


async def _change_limits(
    request: Request[Any, Any, Any], state: ServerState, queue: str, tenant: str, limits: Limits | None
) -> TenantLimits:
    name, whose = check_queue_name(queue), parse_tenant(tenant)

    def work(backend: Backend) -> TenantLimits:
        backend.change(name, QueueChange(limits={whose: limits}))
        return _read_limits(backend, name, whose)

    changed = await state.services.queues.ask(work)
    log_change(request, name, f"limits of tenant {whose!r} {'cleared' if limits is None else 'set'}")
    return changed


def _read_limits(backend: Backend, queue: str, tenant: str) -> TenantLimits:
    snapshot = backend.inspect(queue, tenants=[tenant], top=0, lanes=False)
    own = next((found.limits for found in snapshot.tenants), None)
    limits = snapshot.policy.limits if own is None else own
    return TenantLimits(queue=queue, tenant=tenant, is_own=own is not None, limits=full_limits(limits))


def full_limits(limits: Limits) -> FullLimits:
    """Return the limits with unset values filled in."""
    return FullLimits(**asdict(limits))


def full_policy(policy: QueuePolicy) -> FullPolicy:
    """Return the policy with defaults filled in."""
    return FullPolicy(**asdict(policy) | {"limits": full_limits(policy.limits)})


def plain_policy(policy: FullPolicy) -> QueuePolicy:
    """Return the policy in the form that is stored. Raise Conflict for inconsistent fields."""
    try:
        return QueuePolicy(**asdict(policy) | {"limits": Limits(**asdict(policy.limits))})
    except InvalidValue as error:
        raise Conflict(str(error)) from error
