"""`holdfast shards report|blast`: what an assignment means, and what a failure would hit. Needs the extra `shards`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast._errors import InvalidValue, NotFound
from holdfast.cli.output import NO_PICTURE, Json, PictureOptions, print_json, print_rows, print_table, source_of
from holdfast.cli.shards.inputs import as_name, read_assignments, read_fleet
from holdfast.cli.shards.kept import KEPT, KeptShards, text_of, told
from holdfast.shards import Fleet, Layout
from holdfast.shards.names import shown

if TYPE_CHECKING:
    from holdfast.shards.report import Blast, Peak, Report, Table

File: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="FILE",
        allow_leading_hyphen=True,
        help="Tenants and their workers, CSV or JSON lines, or -; without it, those that are kept in the store.",
    ),
]
FleetFile: TypeAlias = Annotated[
    str | None,
    Parameter(
        allow_leading_hyphen=True, help="The workers of FILE, with their zones; without it, those that occur in it."
    ),
]


@dataclass(frozen=True, slots=True)
class _Loaded:
    fleet: Fleet
    table: "Table"
    names: Sequence[bytes]
    layout: Layout | None


def report(
    file: File = None,
    /,
    *,
    fleet: FleetFile = None,
    overlap: Annotated[int | None, Parameter(help="The most that two tenants of FILE are to share.")] = None,
    picture: PictureOptions = NO_PICTURE,
    kept: KeptShards = KEPT,
    json: Json = False,
) -> None:
    """Show who shares what with whom: overlaps of all pairs, load, and the worst that one failure can do.

    The picture is how many pairs share how many workers.
    Example: holdfast shards report --svg overlaps.svg
    """
    from holdfast.shards import report as reports

    picture.check()
    loaded = _load(file, fleet, kept)
    layout = loaded.layout
    if layout is not None and overlap is not None:
        raise InvalidValue("--overlap is for FILE: what is kept says itself what it promised")
    found = reports.report(
        loaded.fleet,
        loaded.table,
        possible=None if layout is None else layout.capacity,
        overlap=overlap if layout is None else layout.overlap,
    )
    picture.draw(lambda: reports.histogram(found.overlaps))
    if json:
        print_json(_named(found, loaded))
        return
    print_table(("report", ""), _facts(found, loaded.names, is_kept=layout is not None))
    print()
    shared = enumerate(zip(found.overlaps.pairs, found.overlaps.worst, strict=True))
    print_table(
        ("shared workers", "pairs of tenants", "tenants whose worst neighbour shares so many"),
        [(number, f"{pairs:,}", f"{tenants:,}") for number, (pairs, tenants) in shared],
    )
    if found.neighbours:
        print()
        slots, names = loaded.fleet.slots, loaded.names
        print_table(
            ("tenant", "worst neighbour", "share"),
            [
                (shown(names[one.row]), shown(names[one.other]), " ".join(slots[place].worker for place in one.places))
                for one in found.neighbours
            ],
        )


def blast(
    file: File = None,
    /,
    *,
    tenant: Annotated[
        list[str] | None, Parameter(help="A tenant that takes all its workers down. May be repeated.")
    ] = None,
    worker: Annotated[list[str] | None, Parameter(help="A worker that fails. May be repeated.")] = None,
    zone: Annotated[list[str] | None, Parameter(help="A zone that fails, or any other group. May be repeated.")] = None,
    fleet: FleetFile = None,
    picture: PictureOptions = NO_PICTURE,
    kept: KeptShards = KEPT,
    json: Json = False,
) -> None:
    """Show how many tenants are hit, fully or partly, when tenants turn bad, or workers or zones fail.

    The picture is tenants by workers, before and after.
    Example: holdfast shards blast --tenant tenant-17 --svg blast.svg
    """
    from holdfast.shards import report as reports

    picture.check()
    if not (tenant or worker or zone):
        raise InvalidValue("nothing fails: say --tenant, --worker or --zone")
    loaded = _load(file, fleet, kept)
    rows = [_row(loaded.names, one) for one in tenant or ()]
    found = reports.blast(loaded.fleet, loaded.table, tenants=rows, workers=worker or (), zones=zone or ())
    picture.draw(
        lambda: reports.matrix(
            loaded.fleet, loaded.table, loaded.names, tenants=rows, workers=worker or (), zones=zone or ()
        )
    )
    print_rows(found, ("blast", ""), _hit(found), as_json=json)


def _load(file: str | None, fleet: str | None, kept: KeptShards) -> _Loaded:
    from holdfast.shards.batch import table
    from holdfast.shards.report import Table, table_of

    if file is None:
        if fleet is not None:
            raise InvalidValue("--fleet is for FILE: the fleet of what is kept is kept with it")
        with kept.open() as assignments:
            layout = assignments.layout
            tenants = list(assignments.tenants())
        return _Loaded(
            layout.fleet, Table(table(layout, tenants), len(layout.fleet)), [tenant.name for tenant in tenants], layout
        )
    listed = dict(told(_once(file), "tenants read"))
    workers = (
        Fleet.of(dict.fromkeys(worker for shard in listed.values() for worker in shard))
        if fleet is None
        else read_fleet(fleet, shared_hosts="allow")
    )
    places = (tuple(map(workers.place_of, shard)) for shard in listed.values())
    return _Loaded(workers, Table(table_of(places), len(workers)), list(listed), None)


def _once(file: str) -> Iterator[tuple[bytes, Sequence[str]]]:
    seen = set[bytes]()
    for tenant, workers in read_assignments(file):
        if tenant in seen:
            raise InvalidValue(f"{source_of(file)}: tenant {shown(tenant)} occurs twice; expected each once")
        if len({*workers}) < len(workers):
            raise InvalidValue(f"{source_of(file)}: tenant {shown(tenant)} has a worker twice; expected each once")
        seen.add(tenant)
        yield tenant, workers


def _row(names: Sequence[bytes], tenant: str) -> int:
    try:
        return names.index(as_name(tenant))
    except ValueError as error:
        raise NotFound(f"there is no tenant {tenant} among these {len(names)}") from error


def _named(found: "Report", loaded: _Loaded) -> dict[str, Any]:
    """The report for machines, with names where it has rows and places."""
    slots, names = loaded.fleet.slots, loaded.names
    written: dict[str, Any] = msgspec.to_builtins(found)
    written["neighbours"] = [
        {
            "tenant": text_of(names[pair.row]),
            "other": text_of(names[pair.other]),
            "workers": [slots[place].worker for place in pair.places],
        }
        for pair in found.neighbours
    ]
    for kind in ("tenant_fully", "tenant_partly"):
        peak = written["worst"][kind]
        peak["by"] = None if peak["by"] is None else text_of(names[peak["by"]])
    return written


def _facts(found: "Report", names: Sequence[bytes], *, is_kept: bool) -> Iterator[tuple[str, str]]:
    load, worst = found.load, found.worst
    yield "tenants", f"{found.tenants:,}"
    yield "workers", f"{found.workers:,}, {len(load.spare):,} without tenants"
    if is_kept:
        yield "shards", f"{found.shards_used:,} used, {found.shards_left:,} left of {found.shards_possible:,}"
    else:
        yield "shards", f"{found.shards_used:,} different ones"
    if found.down_before:
        yield "tenants without a worker", f"{found.down_before:,}: all of theirs are drained"
    yield "most that two tenants share", str(found.overlaps.most)
    if found.promised is not None:
        yield f"pairs that share more than {found.promised}", f"{found.pairs_beyond:,}"
    yield "tenants on a worker", f"{load.tenants.lowest:,.0f} to {load.tenants.highest:,.0f}"
    yield "bad tenants survived", f"{found.survives}, which take all of their workers down"
    yield "one tenant takes", f"{found.capacity_lost:.2%} of the fleet"
    yield (
        "a worker fails: others carry",
        "nobody takes over" if found.slack is None else f"up to {found.slack:.1%} more",
    )
    yield "worst tenant", _peaks(worst.tenant_fully, worst.tenant_partly, names)
    yield "worst worker", _peaks(worst.worker_fully, worst.worker_partly, names)
    if worst.zone_partly.by is not None or worst.zone_fully.by is not None:
        yield "worst zone", _peaks(worst.zone_fully, worst.zone_partly, names)
    if found.overlaps_by_host is not None:
        yield (
            "hosts with several workers",
            f"{len(found.shared_hosts)}: tenants share up to {found.overlaps_by_host.most} hosts",
        )


def _peaks(fully: "Peak", partly: "Peak", names: Sequence[bytes]) -> str:
    return f"takes {_peak(fully, names)} down, and something from {_peak(partly, names)}"


def _peak(peak: "Peak", names: Sequence[bytes]) -> str:
    if peak.by is None:
        return "nobody"
    by = shown(names[peak.by]) if isinstance(peak.by, int) else peak.by
    return f"{_others(peak.count)} ({peak.share:.2%}, {by})"


def _others(count: int) -> str:
    return f"{count:,} other{'' if count == 1 else 's'}"


def _hit(found: "Blast") -> Iterator[tuple[str, str]]:
    yield "workers out", f"{len(found.workers_out)} ({found.capacity_lost:.2%} of the fleet)"
    yield "tenants down", f"{_others(found.fully)} ({found.fully_share:.3%})"
    yield "tenants partly hit", f"{_others(found.partly)} ({found.partly_share:.3%})"
    if found.down_before:
        yield "tenants down before", f"{_others(found.down_before)}: all of their workers are drained"
    yield "tenants not hit", f"{_others(found.untouched)} ({found.untouched_share:.3%})"
    for lost, count in enumerate(found.hit):
        if lost and count:
            yield f"  lost {lost}", f"{count:,}"
    yield "the worst of the other workers", f"{found.rise:.1%} more load"
