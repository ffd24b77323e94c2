"""`holdfast queue limits|resize`: the limits of tenants, and the number of lanes."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast._errors import InvalidValue
from holdfast._names import format_count
from holdfast._types import Tenant
from holdfast.cli.output import Json, pick_attributes, print_json, print_note, print_result, print_table
from holdfast.cli.queue.store import QUEUES, QueueArgument, QueueOptions, QueueStore
from holdfast.queue import Limits, OverMaxRate, QueuePolicy
from holdfast.queue.backend import QueueChange
from holdfast.queue.policy import format_value

MaybeNumber: TypeAlias = float | Literal["none"] | None
MaybeCount: TypeAlias = int | Literal["none"] | None


def limits(
    queue: QueueArgument,
    tenant: Annotated[
        str | None, Parameter(name="TENANT", help="The tenant; without it, the default limits of the queue.")
    ] = None,
    /,
    *,
    spill_rate: Annotated[
        MaybeNumber,
        Parameter(help="Messages per second in shared lanes; more are spilled to the overflow lane. Or none."),
    ] = None,
    spill_burst: Annotated[
        MaybeNumber,
        Parameter(help="Maximum burst within --spill-rate, in messages; none: as many as it allows in ten seconds."),
    ] = None,
    max_rate: Annotated[MaybeNumber, Parameter(help="Messages per second that are accepted. Or none.")] = None,
    max_burst: Annotated[
        MaybeNumber,
        Parameter(help="Maximum burst within --max-rate, in messages; none: as many as it allows in ten seconds."),
    ] = None,
    over_max_rate: Annotated[
        OverMaxRate | None, Parameter(help="Whether to refuse or delay messages above --max-rate.")
    ] = None,
    run_rate: Annotated[MaybeNumber, Parameter(help="Messages per second leased to workers. Or none.")] = None,
    run_burst: Annotated[
        MaybeNumber,
        Parameter(help="Maximum burst within --run-rate, in messages; none: as many as it allows in 0.1 s."),
    ] = None,
    concurrency: Annotated[MaybeCount, Parameter(help="Messages leased at the same time. Or none.")] = None,
    max_waiting: Annotated[
        MaybeCount, Parameter(help="Waiting messages at which more are refused; none: the limit of the queue.")
    ] = None,
    clear: Annotated[
        bool, Parameter(help="Remove the tenant's own limits, or without TENANT all limits of the queue.")
    ] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Show the limits of a tenant or of a queue, or change them from the next message on.

    Limits that are not named stay unchanged. A tenant without limits of its own gets a copy of those of the queue,
    with the changes. Settings define only the limits that a new queue starts with.
    Example: holdfast queue limits mail tenant-a --spill-rate 50 --concurrency 10
    """
    given = {
        "spill_rate": spill_rate,
        "spill_burst": spill_burst,
        "max_rate": max_rate,
        "max_burst": max_burst,
        "over_max_rate": over_max_rate,
        "run_rate": run_rate,
        "run_burst": run_burst,
        "concurrency": concurrency,
        "max_waiting": max_waiting,
    }
    wanted: dict[str, object] = {
        name: None if value == "none" else value for name, value in given.items() if value is not None
    }
    if clear and wanted:
        raise InvalidValue("--clear cannot be combined with limits: clear them first, then set others")
    if tenant is not None:
        Tenant(tenant)  # raises InvalidValue for an invalid name
    with options.open() as store:
        name = store.require(queue)
        if not store.backend.capabilities.fleet_limits:
            print_note(f"{store.address}: limits apply to each process separately, not to all together", as_json=json)
        if clear or wanted:
            _change(store, name, tenant, None if clear else wanted)
        own, policy = _limits(store, name, tenant)
    effective = msgspec.structs.asdict(own or policy.limits)
    if json:
        print_json({"queue": name, "tenant": tenant, "limits": effective, "is_own": own is not None})
        return
    if tenant is not None:
        print(f"{tenant} has {'limits of its own' if own else f'the limits of {name}'}")
    print_table(("limit", "value"), [(each, format_value(value)) for each, value in effective.items()])


def _limits(store: QueueStore, queue: str, tenant: str | None) -> tuple[Limits | None, QueuePolicy]:
    """Return the tenant's own limits, or None, and the policy, which has the limits of all other tenants."""
    snapshot = store.backend.inspect(queue, tenants=[] if tenant is None else [tenant], top=0)
    own = next((one.limits for one in snapshot.tenants if one.tenant == tenant), None)
    return own, snapshot.policy


def _change(store: QueueStore, queue: str, tenant: str | None, wanted: dict[str, object] | None) -> None:
    own, policy = _limits(store, queue, tenant)
    new = None if wanted is None else msgspec.structs.replace(own or policy.limits, **wanted)
    if tenant is not None:
        store.backend.change(queue, QueueChange(limits={tenant: new}))
    else:
        store.backend.change(queue, QueueChange(policy=msgspec.structs.replace(policy, limits=new or Limits())))


def resize(
    queue: QueueArgument,
    lanes: Annotated[int, Parameter(name="LANES", help="Number of shared lanes, 1 to 4096.")],
    /,
    *,
    lanes_per_tenant: Annotated[
        int | None,
        Parameter(help="Shared lanes of each tenant; 0: one lane for each tenant. Default: unchanged."),
    ] = None,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Change the number of lanes, while producers and workers run.

    Waiting messages stay in their lanes; new messages use the new lanes. No message is lost.
    Example: holdfast queue resize mail 256
    """
    with options.open() as store:
        name = store.require(queue)
        before = store.backend.inspect(name, top=0).policy
        after = msgspec.structs.replace(
            before,
            lanes=lanes,
            lanes_per_tenant=before.lanes_per_tenant if lanes_per_tenant is None else lanes_per_tenant,
        )
        store.backend.change(name, QueueChange(policy=after))
    print_result(
        {
            "queue": name,
            **pick_attributes(after, "lanes", "lanes_per_tenant"),
            "before": pick_attributes(before, "lanes", "lanes_per_tenant"),
        },
        f"{name}: changed from {format_count(before.lanes, 'lane')}, {before.lanes_per_tenant} per tenant, "
        f"to {format_count(after.lanes, 'lane')}, {after.lanes_per_tenant} per tenant",
        as_json=json,
    )


def format_limits(limits: Limits | None) -> str:
    """Return the limits that are set, in one line."""
    if limits is None:
        return ""
    # `to_builtins` omits defaults, as in the store.
    return " ".join(f"{name}={format_value(value)}" for name, value in msgspec.to_builtins(limits).items()) or "none"
