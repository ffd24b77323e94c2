"""`holdfast queue limits|resize`: what tenants may do, and over how many lanes they are spread."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast._errors import InvalidValue
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
        str | None, Parameter(name="TENANT", help="Whose limits; without it, those of tenants that have none.")
    ] = None,
    /,
    *,
    rate: Annotated[
        MaybeNumber,
        Parameter(help="Messages per second beside everybody else's; more wait apart, until there is room. Or none."),
    ] = None,
    burst: Annotated[MaybeNumber, Parameter(help="Messages at once within --rate; none: those of ten seconds.")] = None,
    max_rate: Annotated[MaybeNumber, Parameter(help="Messages per second that are accepted at all. Or none.")] = None,
    max_burst: Annotated[
        MaybeNumber, Parameter(help="Messages at once within --max-rate; none: those of ten seconds.")
    ] = None,
    over_max_rate: Annotated[OverMaxRate | None, Parameter(help="What becomes of what exceeds --max-rate.")] = None,
    run_rate: Annotated[MaybeNumber, Parameter(help="Messages per second that are handed to workers. Or none.")] = None,
    run_burst: Annotated[
        MaybeNumber, Parameter(help="Messages at once within --run-rate; none: those of a tenth of a second.")
    ] = None,
    concurrency: Annotated[
        MaybeCount, Parameter(help="Messages that workers may hold at the same time. Or none.")
    ] = None,
    max_backlog: Annotated[
        MaybeCount, Parameter(help="Messages that may wait before more are refused; none: as the queue has it.")
    ] = None,
    clear: Annotated[
        bool, Parameter(help="Let the tenant have those of the queue again, or the queue have none.")
    ] = False,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Show what a tenant may do, or what every tenant may, or change it, from the next message on.

    What is not named stays as it is. A tenant that had no limits of its own keeps those of the queue beside the new
    ones, as they are now. Settings only say what a queue begins with.
    Example: holdfast queue limits mail tenant-a --rate 50 --concurrency 10
    """
    given = {
        "rate": rate,
        "burst": burst,
        "max_rate": max_rate,
        "max_burst": max_burst,
        "over_max_rate": over_max_rate,
        "run_rate": run_rate,
        "run_burst": run_burst,
        "concurrency": concurrency,
        "max_backlog": max_backlog,
    }
    wanted: dict[str, object] = {
        name: None if value == "none" else value for name, value in given.items() if value is not None
    }
    if clear and wanted:
        raise InvalidValue("--clear is to be alone: clear the limits first, then set others")
    if tenant is not None:
        Tenant(tenant)  # says what is wrong with the name
    with options.open() as store:
        name = store.require(queue)
        if not store.backend.capabilities.fleet_limits:
            print_note(f"{store.address}: limits hold for each process alone, not for all together", as_json=json)
        if clear or wanted:
            _change(store, name, tenant, None if clear else wanted)
        own, policy = _limits(store, name, tenant)
    held = msgspec.structs.asdict(own or policy.limits)
    if json:
        print_json({"queue": name, "tenant": tenant, "limits": held, "is_own": own is not None})
        return
    if tenant is not None:
        print(f"{tenant} has {'limits of its own' if own else f'the limits of {name}'}")
    print_table(("limit", "value"), [(each, format_value(value)) for each, value in held.items()])


def _limits(store: QueueStore, queue: str, tenant: str | None) -> tuple[Limits | None, QueuePolicy]:
    """Return the tenant's own limits, if it has any, and the policy, which has those of everybody."""
    look = store.backend.inspect(queue, tenants=[] if tenant is None else [tenant], top=0)
    own = next((one.limits for one in look.tenants if one.tenant == tenant), None)
    return own, look.policy


def _change(store: QueueStore, queue: str, tenant: str | None, wanted: dict[str, object] | None) -> None:
    own, policy = _limits(store, queue, tenant)
    new = None if wanted is None else msgspec.structs.replace(own or policy.limits, **wanted)
    if tenant is not None:
        store.backend.change(queue, QueueChange(limits={tenant: new}))
    else:
        store.backend.change(queue, QueueChange(policy=msgspec.structs.replace(policy, limits=new or Limits())))


def resize(
    queue: QueueArgument,
    lanes: Annotated[int, Parameter(name="LANES", help="Lanes that tenants are to share, 1 to 4096.")],
    /,
    *,
    hand: Annotated[
        int | None,
        Parameter(help="Lanes of each tenant; 0: a lane of its own for each. Without it, as many as it has."),
    ] = None,
    options: QueueOptions = QUEUES,
    json: Json = False,
) -> None:
    """Change over how many lanes tenants are spread, while producers and workers go on.

    What waits is handled where it is; what is sent from now on goes to the lanes there are then. Nothing is lost.
    Example: holdfast queue resize mail 256
    """
    with options.open() as store:
        name = store.require(queue)
        before = store.backend.inspect(name, top=0).policy
        after = msgspec.structs.replace(before, lanes=lanes, hand=before.hand if hand is None else hand)
        store.backend.change(name, QueueChange(policy=after))
    print_result(
        {"queue": name, **pick_attributes(after, "lanes", "hand"), "before": pick_attributes(before, "lanes", "hand")},
        f"{name}: {before.lanes} lanes, {before.hand} of each tenant, are now {after.lanes}, {after.hand} of each",
        as_json=json,
    )


def format_limits(limits: Limits | None) -> str:
    """Those that are set, in one line."""
    if limits is None:
        return ""
    # What has its default is left out, as where it is kept.
    return " ".join(f"{name}={format_value(value)}" for name, value in msgspec.to_builtins(limits).items()) or "none"
