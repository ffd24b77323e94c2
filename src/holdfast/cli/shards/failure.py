"""`holdfast shards report|blast-radius`: overlaps, load and the effects of failures. Needs the extra `shards`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast._errors import InvalidValue, NotFound
from holdfast._names import format_count
from holdfast.cli.output import NO_PICTURE, Json, PictureOptions, describe_input, print_json, print_rows, print_table
from holdfast.cli.shards.inputs import parse_name, read_assignments, read_fleet
from holdfast.cli.shards.store import DEFAULT_STORE, ShardStoreOptions, decode_name, show_progress
from holdfast.shards import Fleet, Layout
from holdfast.shards.names import format_name

if TYPE_CHECKING:
    from holdfast.shards.report import AssignmentTable, BlastRadius, Report, WorstCase

File: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="FILE",
        allow_leading_hyphen=True,
        help="Tenants and their workers, as CSV or JSON lines, or -. Default: those in the store.",
    ),
]
FleetFile: TypeAlias = Annotated[
    str | None,
    Parameter(allow_leading_hyphen=True, help="A file of workers with their zones. Default: the workers in FILE."),
]


@dataclass(frozen=True, slots=True)
class _LoadedTable:
    fleet: Fleet
    table: "AssignmentTable"
    names: Sequence[bytes]
    layout: Layout | None


def report(
    file: File = None,
    /,
    *,
    fleet: FleetFile = None,
    overlap: Annotated[int | None, Parameter(help="Most workers that two tenants of FILE should share.")] = None,
    picture: PictureOptions = NO_PICTURE,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the overlaps of all pairs of tenants, the load of workers, and the worst that one failure can do.

    The picture shows how many pairs share how many workers.
    Example: holdfast shards report --svg overlaps.svg
    """
    from holdfast.shards import report as reports

    picture.check()
    loaded = _load_table(file, fleet, store)
    layout = loaded.layout
    if layout is not None and overlap is not None:
        raise InvalidValue("--overlap is for FILE: shards in the store have an overlap of their own")
    found = reports.build_report(
        loaded.fleet,
        loaded.table,
        shards_possible=None if layout is None else layout.capacity,
        overlap=overlap if layout is None else layout.overlap,
    )
    picture.draw(lambda: reports.draw_histogram(found.overlaps))
    if json:
        print_json(_build_json(found, loaded))
        return
    print_table(("report", ""), _describe_report(found, loaded.names, is_stored=layout is not None))
    print()
    shared = enumerate(zip(found.overlaps.pairs_by_shared_workers, found.overlaps.tenants_by_max_shared, strict=True))
    print_table(
        ("shared workers", "pairs of tenants", "tenants with this maximum overlap"),
        [(number, f"{pairs:,}", f"{tenants:,}") for number, (pairs, tenants) in shared],
    )
    if found.neighbours:
        print()
        slots, names = loaded.fleet.slots, loaded.names
        print_table(
            ("tenant", "worst neighbour", "shared workers"),
            [
                (
                    format_name(names[pair.row]),
                    format_name(names[pair.other_row]),
                    " ".join(slots[index].worker for index in pair.slot_indexes),
                )
                for pair in found.neighbours
            ],
        )


def blast_radius(
    file: File = None,
    /,
    *,
    tenant: Annotated[
        list[str] | None, Parameter(help="A tenant that takes down its workers. May be repeated.")
    ] = None,
    worker: Annotated[list[str] | None, Parameter(help="A worker that fails. May be repeated.")] = None,
    zone: Annotated[list[str] | None, Parameter(help="A zone that fails, or any other group. May be repeated.")] = None,
    fleet: FleetFile = None,
    picture: PictureOptions = NO_PICTURE,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show how many tenants are hit, fully or partly, when tenants take down their workers, or workers or zones fail.

    The picture shows tenants and their workers, before and after.
    Example: holdfast shards blast-radius --tenant tenant-17 --svg blast.svg
    """
    from holdfast.shards import report as reports

    picture.check()
    if not (tenant or worker or zone):
        raise InvalidValue("nothing fails: use --tenant, --worker or --zone")
    loaded = _load_table(file, fleet, store)
    rows = [_find_row(loaded.names, one) for one in tenant or ()]
    found = reports.compute_blast_radius(
        loaded.fleet, loaded.table, tenants=rows, workers=worker or (), zones=zone or ()
    )
    picture.draw(
        lambda: reports.draw_matrix(
            loaded.fleet, loaded.table, loaded.names, tenants=rows, workers=worker or (), zones=zone or ()
        )
    )
    print_rows(found, ("blast radius", ""), _describe_blast_radius(found), as_json=json)


def _load_table(file: str | None, fleet: str | None, store: ShardStoreOptions) -> _LoadedTable:
    from holdfast.shards.batch import build_slot_table
    from holdfast.shards.report import AssignmentTable, build_table

    if file is None:
        if fleet is not None:
            raise InvalidValue("--fleet is for FILE: shards in the store have a fleet of their own")
        with store.open() as assignments:
            layout = assignments.layout
            tenants = list(assignments.iter_tenants())
        return _LoadedTable(
            layout.fleet,
            AssignmentTable(build_slot_table(layout, tenants), len(layout.fleet)),
            [tenant.name for tenant in tenants],
            layout,
        )
    listed = dict(show_progress(_read_unique(file), "tenants read"))
    workers = (
        Fleet.from_workers(dict.fromkeys(worker for shard in listed.values() for worker in shard))
        if fleet is None
        else read_fleet(fleet, shared_host_policy="allow")
    )
    indexes = (tuple(map(workers.find_index, shard)) for shard in listed.values())
    return _LoadedTable(workers, AssignmentTable(build_table(indexes), len(workers)), list(listed), None)


def _read_unique(file: str) -> Iterator[tuple[bytes, Sequence[str]]]:
    seen = set[bytes]()
    for tenant, workers in read_assignments(file):
        if tenant in seen:
            raise InvalidValue(f"{describe_input(file)}: tenant {format_name(tenant)} occurs twice; expected each once")
        if len({*workers}) < len(workers):
            raise InvalidValue(
                f"{describe_input(file)}: tenant {format_name(tenant)} has a worker twice; expected each once"
            )
        seen.add(tenant)
        yield tenant, workers


def _find_row(names: Sequence[bytes], tenant: str) -> int:
    try:
        return names.index(parse_name(tenant))
    except ValueError as error:
        raise NotFound(f"there is no tenant {tenant} among {format_count(len(names), 'tenant')}") from error


def _build_json(found: "Report", loaded: _LoadedTable) -> dict[str, Any]:
    """Return the report as JSON values, with names instead of rows and slot indexes."""
    slots, names = loaded.fleet.slots, loaded.names
    written: dict[str, Any] = msgspec.to_builtins(found)
    written["neighbours"] = [
        {
            "tenant": decode_name(names[pair.row]),
            "other": decode_name(names[pair.other_row]),
            "workers": [slots[index].worker for index in pair.slot_indexes],
        }
        for pair in found.neighbours
    ]
    for kind in ("fully_hit_by_tenant", "partly_hit_by_tenant"):
        peak = written["worst_cases"][kind]
        peak["cause"] = None if peak["cause"] is None else decode_name(names[peak["cause"]])
    return written


def _describe_report(found: "Report", names: Sequence[bytes], *, is_stored: bool) -> Iterator[tuple[str, str]]:
    load, worst = found.load, found.worst_cases
    yield "tenants", f"{found.tenants:,}"
    yield "workers", f"{found.workers:,}, {len(load.spare_workers):,} without tenants"
    if is_stored:
        yield "shards", f"{found.shards_used:,} used, {found.shards_left:,} left of {found.shards_possible:,}"
    else:
        yield "shards", f"{found.shards_used:,} different"
    if found.already_down:
        yield "tenants already down", f"{found.already_down:,}: all of their workers are drained"
    yield "most workers two tenants share", str(found.overlaps.max_shared)
    if found.promised_overlap is not None:
        yield f"pairs that share more than {found.promised_overlap}", f"{found.pairs_above_promise:,}"
    yield "tenants per worker", f"{load.tenants_per_worker.lowest:,.0f} to {load.tenants_per_worker.highest:,.0f}"
    yield "attackers survived", f"{found.attackers_survived}, if each takes down all its workers"
    yield "capacity lost to an attacker", f"{found.capacity_lost:.2%} of the fleet"
    yield (
        "extra load if a worker fails",
        "no worker takes over" if found.required_headroom is None else f"up to {found.required_headroom:.1%}",
    )
    yield "worst tenant", _format_worst_cases(worst.fully_hit_by_tenant, worst.partly_hit_by_tenant, "other", names)
    yield "worst worker", _format_worst_cases(worst.fully_hit_by_worker, worst.partly_hit_by_worker, "tenant", names)
    if worst.partly_hit_by_zone.cause is not None or worst.fully_hit_by_zone.cause is not None:
        yield "worst zone", _format_worst_cases(worst.fully_hit_by_zone, worst.partly_hit_by_zone, "tenant", names)
    if found.overlaps_by_host is not None:
        yield (
            "hosts with several workers",
            f"{len(found.shared_hosts)}: tenants share up to {format_count(found.overlaps_by_host.max_shared, 'host')}",
        )


def _format_worst_cases(fully: "WorstCase", partly: "WorstCase", noun: str, names: Sequence[bytes]) -> str:
    return f"fully hits {_format_worst_case(fully, noun, names)}, partly hits {_format_worst_case(partly, noun, names)}"


def _format_worst_case(peak: "WorstCase", noun: str, names: Sequence[bytes]) -> str:
    if peak.cause is None:
        return f"no {noun}s"
    cause = format_name(names[peak.cause]) if isinstance(peak.cause, int) else peak.cause
    return f"{format_count(peak.count, noun)} ({peak.share:.2%}, {cause})"


def _describe_blast_radius(found: "BlastRadius") -> Iterator[tuple[str, str]]:
    noun = "other" if found.attackers else "tenant"
    yield "workers out", f"{len(found.workers_out)} ({found.capacity_lost:.2%} of the fleet)"
    yield "tenants fully hit", f"{format_count(found.fully_hit, noun)} ({found.fully_hit_share:.3%})"
    yield "tenants partly hit", f"{format_count(found.partly_hit, noun)} ({found.partly_hit_share:.3%})"
    if found.already_down:
        yield "tenants already down", f"{format_count(found.already_down, noun)}: all of their workers are drained"
    yield "tenants unaffected", f"{format_count(found.unaffected, noun)} ({found.unaffected_share:.3%})"
    for lost, count in enumerate(found.tenants_by_workers_lost):
        if lost and count:
            yield f"  lost {lost}", f"{count:,}"
    yield "max load increase", f"{found.max_load_increase:.1%} on a remaining worker"
