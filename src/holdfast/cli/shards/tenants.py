"""`holdfast shards assign|remove|suspects|isolate|release|forget|fleet`: tenants, and the stored fleet."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from holdfast._errors import InvalidValue
from holdfast.cli.duration import parse_duration
from holdfast.cli.output import (
    Json,
    format_time,
    pick_attributes,
    print_json,
    print_result,
    print_rows,
    print_table,
    split_into_batches,
)
from holdfast.cli.shards.inputs import parse_name, read_tenants
from holdfast.cli.shards.store import (
    DEFAULT_STORE,
    ShardStoreOptions,
    build_json_object,
    decode_name,
    format_row,
    show_progress,
)
from holdfast.shards import Assignments, Layout, Shard
from holdfast.shards.names import format_name

_BATCH_SIZE = 5000
"""Tenants per transaction: enough to make its fixed cost negligible, and few enough that others hardly wait."""

_SLOT_FIELDS = ("worker", "group", "weight", "host", "is_drained", "shares_slot_of")

TenantArgument: TypeAlias = Annotated[str, Parameter(name="TENANT", help="The name of the tenant.")]
Tenants: TypeAlias = Annotated[str, Parameter(name="TENANT", help="The names of tenants.")]
File: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--file",
        allow_leading_hyphen=True,
        help="A file of tenants, or - for standard input: CSV, JSON lines, or one name per line.",
    ),
]


def assign(
    *tenants: Tenants,
    file: File = None,
    existing: Annotated[
        bool, Parameter(help="Only show existing shards: a tenant without one is an error, and gets none.")
    ] = False,
    lookback: Annotated[str | None, Parameter(help="Also show the former shards within this time, such as 2h.")] = None,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the shards of tenants. A tenant without one gets a shard, and keeps it.

    Example: holdfast shards assign tenant-1 tenant-2
    """
    seconds = None if lookback is None else parse_duration(lookback)
    found: list[tuple[bytes, Shard, list[Shard]]] = []
    with store.open() as assignments:
        for names in split_into_batches(show_progress(_read_names(tenants, file), "tenants"), _BATCH_SIZE):
            shards = [assignments.find(name) for name in names] if existing else assignments.assign_many(names)
            found += [
                (name, shard, [] if seconds is None else assignments.find_previous(name, seconds))
                for name, shard in zip(names, shards, strict=True)
            ]
    if json:
        print_json(
            [
                build_json_object(tenant, shard)
                | ({} if seconds is None else {"previous": [list(former.workers) for former in previous]})
                for tenant, shard, previous in found
            ]
        )
        return
    columns: dict[str, list[str]] = {"tenant": [], "workers": [], "drained": [], "previous": []}
    for tenant, shard, previous in found:
        cells = (
            *format_row(tenant, shard),
            " ".join(shard.drained_workers),
            "; ".join(" ".join(former.workers) for former in previous),
        )
        for cell, column in zip(cells, columns.values(), strict=True):
            column.append(cell)
    if not any(columns["drained"]):
        del columns["drained"]
    if seconds is None:
        del columns["previous"]
    print_table(list(columns), list(zip(*columns.values(), strict=True)))


def remove(*tenants: Tenants, file: File = None, store: ShardStoreOptions = DEFAULT_STORE, json: Json = False) -> None:
    """Free the shards of tenants that are gone. New tenants may get them.

    Example: holdfast shards remove tenant-1
    """
    with store.open() as assignments:
        removed = sum(
            map(
                assignments.remove,
                split_into_batches(show_progress(_read_names(tenants, file), "tenants"), _BATCH_SIZE),
            )
        )
    print_result({"removed": removed}, f"{removed} removed", as_json=json)


def suspects(
    *workers: Annotated[str, Parameter(name="WORKER", help="The failing workers.")],
    limit: Annotated[int, Parameter(help="Maximum number of tenants to show.")] = 10,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the tenants whose shards best match the failing workers.

    Example: holdfast shards suspects az1-worker-3 az2-worker-7
    """
    if not workers:
        raise InvalidValue("no worker: name the failing workers")
    with store.open() as assignments:
        found = assignments.find_suspects(workers, limit=limit)
    print_rows(
        [
            {
                "tenant": decode_name(suspect.tenant),
                **pick_attributes(suspect, "failing", "healthy", "score", "is_likely"),
            }
            for suspect in found
        ],
        ("tenant", "score", "likely", "failing", "healthy"),
        [
            (
                format_name(suspect.tenant),
                f"{suspect.score:.2f}",
                "yes" if suspect.is_likely else "",
                " ".join(suspect.failing),
                " ".join(suspect.healthy),
            )
            for suspect in found
        ],
        as_json=json,
    )


def isolate(
    tenant: TenantArgument,
    /,
    *,
    workers: Annotated[int | None, Parameter(help="Number of workers. Default: the size of a shard.")] = None,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Move a tenant to spare workers that no other tenant has. No other tenant moves.

    Example: holdfast shards isolate tenant-17
    """
    with store.open() as assignments:
        _print_shard(tenant, assignments.isolate(parse_name(tenant), workers), assignments, json=json)


def release(tenant: TenantArgument, /, *, store: ShardStoreOptions = DEFAULT_STORE, json: Json = False) -> None:
    """Move an isolated tenant back to its shard, which was reserved for it. No other tenant moves.

    Example: holdfast shards release tenant-17
    """
    with store.open() as assignments:
        shard = assignments.release(parse_name(tenant))
        _print_shard(tenant, Shard((), ()) if shard is None else shard, assignments, json=json)


def forget(
    *,
    lookback: Annotated[str, Parameter(help="Keep layouts that were in effect within this time, such as 7d.")],
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Delete layouts that were replaced before --lookback: `assign --lookback` then no longer shows their shards.

    Example: holdfast shards forget --lookback 7d
    """
    seconds = parse_duration(lookback)
    with store.open() as assignments:
        gone = assignments.delete_old_layouts(seconds)
    print_result({"forgotten": gone}, f"{gone} forgotten", as_json=json)


def _print_shard(tenant: str, shard: Shard, assignments: Assignments, *, json: bool) -> None:
    name, left = parse_name(tenant), len(assignments.layout.live_spare_slots)
    found = build_json_object(name, shard) | {"spare_left": left}
    print_rows(found, ("tenant", "workers", "spare left"), [(*format_row(name, shard), left)], as_json=json)


def _read_names(tenants: Sequence[str], file: str | None) -> Iterator[bytes]:
    if bool(tenants) == (file is not None):
        raise InvalidValue("expected the names of tenants, or --file with a file of them, not both")
    if "" in tenants:
        raise InvalidValue("an empty name: expected the name of a tenant; is a variable of the shell not set?")
    yield from map(parse_name, tenants) if file is None else read_tenants(file)


def fleet(*, store: ShardStoreOptions = DEFAULT_STORE, json: Json = False) -> None:
    """Show the stored fleet: the group of each worker, and whether it is in shards, spare, drained or isolated.

    Example: holdfast shards fleet
    """
    with store.open() as assignments:
        current = assignments.current
    layout = current.layout
    slots = list(zip(layout.fleet.slots, _describe_uses(layout), strict=True))
    if json:
        print_json(
            {
                "version": current.number,
                "at": current.at,
                "size": layout.size,
                "overlap": layout.overlap,
                "workers": [
                    {"slot": number, **pick_attributes(slot, *_SLOT_FIELDS), "use": use}
                    for number, (slot, use) in enumerate(slots)
                ],
                "isolated": [
                    {"tenant": decode_name(tenant), "workers": [layout.fleet.slots[index].worker for index in indexes]}
                    for tenant, indexes in layout.isolated
                ],
            }
        )
        return
    print(
        f"version {current.number}, since {format_time(current.at)}: shards of {layout.size}, overlap {layout.overlap}"
    )
    print()
    rows = [
        (slot.worker, " / ".join(slot.group), slot.host, f"{use} (drained)" if slot.is_drained else use)
        for slot, use in slots
    ]
    print_table(("worker", "group", "host", "use"), rows)
    print()
    counted = Counter((" / ".join(slot.group), "drained" if slot.is_drained else use.split()[0]) for slot, use in slots)
    print_table(("group", "use", "workers"), [(*kind, count) for kind, count in counted.items()])


def _describe_uses(layout: Layout) -> Iterator[str]:
    """Yield the use of each worker, in the order of slots."""
    spare, owners = {*layout.spare_slots}, {index: tenant for tenant, indexes in layout.isolated for index in indexes}
    for index, slot in enumerate(layout.fleet.slots):
        if slot.shares_slot_of is not None:
            yield f"shared with {slot.shares_slot_of}"
        elif index in owners:
            yield f"isolated for {format_name(owners[index])}"
        else:
            yield "spare" if index in spare else "shards"
