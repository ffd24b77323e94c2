"""`holdfast shards plan|grow`: what a change of the fleet moves, and then the change."""

import dataclasses
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast._errors import Conflict, InvalidValue, NotFound
from holdfast.cli.output import DataDirectory, Json, SettingsFile, new_file, print_json, print_note, print_table
from holdfast.cli.shards.inputs import read_fleet
from holdfast.cli.shards.kept import Name, open_assignments, text_of
from holdfast.shards import Assignments, Change, Designed, Fleet, Layout, Version
from holdfast.shards.adapt import adapted
from holdfast.shards.schemes import schemes

_KEY_BYTES = 32
_SHOWN = 10
"""Moves that are shown; all of them go to a file."""
_LARGEST = 6
"""Sizes of shards that are listed for who has not chosen yet: more workers each are rarely worth their load."""

_COMPARED = 4
"""The size for which shards of all kinds are compared, or the next smaller one."""

Apply: TypeAlias = Annotated[
    bool, Parameter(negative="", help="Make the change. Without it, only what would move is shown.")
]
Moves: TypeAlias = Annotated[
    Path | None, Parameter(help="A new file for all moves, as JSON lines: tenant, leaves, joins.")
]
SharedHosts: TypeAlias = Annotated[
    bool, Parameter(negative="", help="Warn of several workers on one host, instead of refusing them.")
]


def plan(
    fleet: Annotated[
        str | None,
        Parameter(name="FLEET", allow_leading_hyphen=True, help="A file of workers: CSV or JSON lines, or -."),
    ] = None,
    /,
    *,
    workers: Annotated[int | None, Parameter(help="Instead of a file: so many workers, to see what they give.")] = None,
    zones: Annotated[int, Parameter(help="In so many zones, with --workers.")] = 1,
    size: Annotated[int | None, Parameter(help="Workers in a shard. Without it, as it is.")] = None,
    overlap: Annotated[int | None, Parameter(help="The most workers that two tenants share. As it is.")] = None,
    redesign: Annotated[
        bool, Parameter(negative="", help="Make new shards of all workers, spare ones too: nearly everybody moves.")
    ] = False,
    shared_hosts: SharedHosts = False,
    apply: Apply = False,
    moves: Moves = None,
    name: Name = "default",
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Show what shards a fleet gives and who moves if it takes the place of the one that is kept; with --apply, do so.

    Workers that are still there keep their slots. Without any size, all that the fleet allows are listed.
    Example: holdfast shards plan fleet.csv --size 4 --overlap 2 --apply
    """
    if workers is not None and (apply or moves is not None):
        raise InvalidValue("--workers is only to look: name a file of workers for --apply and --moves")
    given = _given(fleet, workers, zones, shared_hosts=shared_hosts)
    with ExitStack() as stack:
        assignments = None if workers is not None else _existing(stack, name, settings, data_directory)
        current = _current(assignments)
        if given is not None and shared_hosts:
            _note_shared(given, as_json=json)
        if current is None and given is not None and size is None and overlap is None and not apply:
            _show_choices(given, as_json=json)
            return
        layout = (
            _first_layout(given, size, overlap)
            if current is None
            else _changed(current.layout, given, size, overlap, redesign=redesign)
        )
        if assignments is None and apply:  # only now: what was refused above leaves no store behind
            assignments = stack.enter_context(open_assignments(name, settings, data_directory, is_new=True))
        if assignments is not None:
            _carry_out(assignments, layout, apply=apply, moves=moves, as_json=json)
            return
        if moves is not None:
            with _new_moves(moves):
                pass  # nobody is there who could move
        _show_layout(layout, as_json=json)


def grow(
    *,
    add: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="A file of workers that are spare from now on. Nobody moves."),
    ] = None,
    relieve: Annotated[
        list[str] | None, Parameter(negative="", help="OLD=NEW: a new worker takes over half the tenants of one.")
    ] = None,
    replace: Annotated[
        list[str] | None, Parameter(negative="", help="OLD=NEW: a new worker takes over all tenants of one.")
    ] = None,
    substitute: Annotated[
        list[str] | None, Parameter(negative="", help="OLD=SPARE: the same, with a spare worker.")
    ] = None,
    drain: Annotated[
        list[str] | None, Parameter(negative="", help="A worker that gets no more work. Its tenants have the others.")
    ] = None,
    double: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True, help="A file of as many workers in every group as there are. Nobody moves."
        ),
    ] = None,
    shared_hosts: SharedHosts = False,
    apply: Apply = False,
    moves: Moves = None,
    name: Name = "default",
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Change the fleet that is kept by a worker or two, or by twice as many, and show who moves; with --apply, do so.

    Example: holdfast shards grow --replace worker-3=worker-101 --apply
    """
    if not any((add, relieve, replace, substitute, drain, double)):
        raise InvalidValue("nothing to change: say --add, --relieve, --replace, --substitute, --drain or --double")
    with open_assignments(name, settings, data_directory) as assignments:
        layout = assignments.layout
        fleet = dataclasses.replace(layout.fleet, shared_hosts="allow") if shared_hosts else layout.fleet
        if add is not None:
            fleet = fleet.add(*_read(add, shared_hosts=shared_hosts).slots)
        for old, new in _pairs("--relieve", relieve):
            fleet = fleet.relieve(old, new)
        for old, new in _pairs("--replace", replace):
            fleet = fleet.replace(fleet.place_of(old), new)
        for old, new in _pairs("--substitute", substitute):
            if fleet.place_of(new) not in layout.with_fleet(fleet).spare:
                raise InvalidValue(f"--substitute {old}={new}: {new} has tenants; expected a spare worker")
            fleet = fleet.substitute(old, new)
        for worker in drain or ():
            fleet = fleet.drain(worker)
        layout = layout.with_fleet(fleet)
        if double is not None:
            layout = _doubled(layout, _read(double, shared_hosts=shared_hosts))
        if shared_hosts:
            _note_shared(layout.fleet, as_json=json)
        _carry_out(assignments, layout, apply=apply, moves=moves, as_json=json)


def _given(file: str | None, workers: int | None, zones: int, *, shared_hosts: bool) -> Fleet | None:
    if file is not None and workers is not None:
        raise InvalidValue("expected a file of workers or --workers, and not both")
    if workers is None:
        if zones != 1:
            raise InvalidValue("--zones is for --workers: a file says itself where its workers are")
        return None if file is None else _read(file, shared_hosts=shared_hosts)
    if not 1 <= zones <= workers:
        raise InvalidValue(f"{workers} workers in {zones} zones: expected one in each at least")
    if zones == 1:
        return Fleet.of(f"worker-{number}" for number in range(1, workers + 1))
    numbers = range(workers)
    return Fleet.grouped(
        {f"zone-{zone + 1}": [f"worker-{number + 1}" for number in numbers[zone::zones]] for zone in range(zones)}
    )


def _read(file: str, *, shared_hosts: bool) -> Fleet:
    return read_fleet(file, shared_hosts="allow" if shared_hosts else "refuse")


def _note_shared(fleet: Fleet, *, as_json: bool) -> None:
    hosts: dict[str, list[str]] = {}
    for slot in fleet.slots:
        if slot.host is not None:
            hosts.setdefault(slot.host, []).append(slot.worker)
    for host, sharing in hosts.items():
        if len(sharing) > 1:
            print_note(
                f"{', '.join(sharing)} are on {host}: they fail together, whatever shards share", as_json=as_json
            )


def _existing(stack: ExitStack, name: str, settings: Path | None, data_directory: Path | None) -> Assignments | None:
    """The assignments of the store; None if there is no store."""
    with suppress(NotFound):
        return stack.enter_context(open_assignments(name, settings, data_directory))
    return None


def _current(assignments: Assignments | None) -> Version | None:
    try:
        return None if assignments is None else assignments.current
    except NotFound:
        return None


def _first_layout(fleet: Fleet | None, size: int | None, overlap: int | None) -> Layout:
    if fleet is None:
        raise InvalidValue("no fleet: name a file of workers, or --workers to see what so many give")
    if size is None and overlap is None:
        raise InvalidValue("--apply needs --size and --overlap: choose from what is listed without it")
    if size is None or overlap is None:
        raise InvalidValue("expected both --size and --overlap")
    return Layout.of(fleet, size, overlap, key=secrets.token_bytes(_KEY_BYTES))


def _changed(old: Layout, given: Fleet | None, size: int | None, overlap: int | None, *, redesign: bool) -> Layout:
    size, overlap = old.size if size is None else size, old.overlap if overlap is None else overlap
    kept = old if given is None else adapted(old, given)
    if not redesign and (size, overlap) == (old.size, old.overlap):
        return kept
    return kept.redesigned(size, overlap)


def _doubled(layout: Layout, workers: Fleet) -> Layout:
    """With twins on the machines that they are on."""
    doubled = layout.doubled(_twins(layout.fleet, workers))
    hosts = {slot.worker: slot.host for slot in workers.slots}
    slots = (
        dataclasses.replace(slot, host=hosts[slot.worker]) if slot.worker in hosts else slot
        for slot in doubled.fleet.slots
    )
    return doubled.with_fleet(dataclasses.replace(doubled.fleet, slots=tuple(slots)))


def _twins(fleet: Fleet, workers: Fleet) -> Sequence[str]:
    """A worker of the same group for each there is, in the order of the slots."""
    left: dict[tuple[str, ...], list[str]] = {}
    for slot in workers.slots:
        left.setdefault(slot.group, []).append(slot.worker)
    found = []
    for slot in fleet.slots:
        if not left.get(slot.group):
            raise InvalidValue(f"--double: no worker in {' / '.join(slot.group) or 'it'} for {slot.worker}")
        found.append(left[slot.group].pop(0))
    if any(left.values()):
        raise InvalidValue(f"--double: {sum(map(len, left.values()))} workers too many: expected one for each there is")
    return found


def _pairs(option: str, given: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    for text in given or ():
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise InvalidValue(f"{option} {text}: expected a worker, an equals sign and another")
        yield old, new


def _carry_out(assignments: Assignments, layout: Layout, *, apply: bool, moves: Path | None, as_json: bool) -> None:
    change = assignments.plan(layout)
    if moves is not None:
        with _new_moves(moves) as file:
            for move in change.plan.moves():
                written = {"tenant": text_of(move.tenant.name), "leaves": move.leaves, "joins": move.joins}
                file.write(msgspec.json.encode(written) + b"\n")
    version = assignments.apply(change).number if apply else change.expected
    _show_change(change, version, is_applied=apply, as_json=as_json)


@contextmanager
def _new_moves(path: Path) -> Iterator[BinaryIO]:
    try:
        with new_file(path) as file:
            yield file
    except Conflict as error:
        raise Conflict(f"{path} exists already: remove it, or name another file for --moves") from error


def _facts(layout: Layout) -> dict[str, object]:
    designed, live = layout.designed, [slot for slot in layout.fleet.slots if not slot.is_drained]
    return {
        "workers": len(live),
        "spare": len([place for place in layout.spare if not layout.fleet.slots[place].is_drained]),
        "size": layout.size,
        "overlap": layout.overlap,
        "design": type(designed.design).__name__.lower(),
        "shards": layout.capacity,
        "survives": designed.survives,
        "capacity_lost": layout.size / max(1, len(live)),
        "empty_slots": len(layout.empty),
    }


def _show_layout(layout: Layout, *, as_json: bool) -> None:
    if as_json:
        print_json(_facts(layout))
    else:
        print_table(("shards", ""), list(_told(layout)))


def _told(layout: Layout) -> Iterator[tuple[str, str]]:
    facts = _facts(layout)
    yield "workers", f"{facts['workers']}, {facts['spare']} of them spare"
    yield "shards", f"{facts['shards']:,} of {layout.size}, any two share at most {layout.overlap} ({facts['design']})"
    yield "bad tenants survived", f"{facts['survives']}, which take all of their workers down"
    yield "one tenant takes", f"{facts['capacity_lost']:.2%} of the fleet"
    if layout.empty:
        yield (
            "slots without a worker",
            f"{len(layout.empty)}: who has one has a worker less, and new tenants may get several",
        )


def _show_change(change: Change, version: int, *, is_applied: bool, as_json: bool) -> None:
    plan = change.plan
    first = [(text_of(move.tenant.name), move.leaves, move.joins) for move in islice(plan.moves(), _SHOWN)]
    if as_json:
        print_json(
            _facts(change.layout)
            | {
                "tenants": plan.tenants,
                "moving": len(plan.movers),
                "moving_share": plan.share,
                "changed": plan.changed,
                "short": plan.short,
                "first_moves": [dict(zip(("tenant", "leaves", "joins"), move, strict=True)) for move in first],
                "version": version,
                "is_applied": is_applied,
            }
        )
        return
    rows = list(_told(change.layout))
    rows.append(("tenants", f"{plan.tenants:,}, of which {len(plan.movers):,} move ({plan.share:.3%})"))
    rows += [
        (f"  {count} of their workers", f"{tenants:,}")
        for count, tenants in enumerate(plan.changed)
        if count and tenants
    ]
    if plan.short:
        rows.append(("  short of a worker", f"{plan.short:,}, because it is drained or gone, and none took its slot"))
    print_table(("shards", ""), rows)
    if first:
        print()
        print_table(("tenant", "leaves", "joins"), [(name, *map(" ".join, rest)) for name, *rest in first])
    print(f"applied, version {version}" if is_applied else "nothing changed: repeat it with --apply")


def _show_choices(fleet: Fleet, *, as_json: bool) -> None:
    choices = []
    for size in range(2, min(_LARGEST, len(fleet)) + 1):
        for overlap in range(size):
            try:
                choices.append(Designed(fleet, size, overlap, key=b""))
            except InvalidValue:
                continue  # no design fits: not a choice
    count = len(fleet)
    if as_json:
        print_json(
            [
                {
                    "size": one.size,
                    "overlap": one.overlap,
                    "shards": one.capacity,
                    "survives": one.survives,
                    "spare": len(one.spare),
                    "capacity_lost": one.size / count,
                }
                for one in choices
            ]
        )
        return
    rows = [
        (one.size, one.overlap, f"{one.capacity:,}", one.survives, len(one.spare), f"{one.size / count:.1%}")
        for one in choices
    ]
    print_table(("size", "overlap", "shards", "survives", "spare", "one tenant takes"), rows)
    print()
    size = max((one.size for one in choices if one.size <= _COMPARED), default=1)
    compared = schemes(count, size)
    print_table(
        (f"shards of {size}", "how many", "a bad tenant takes down", "a worker fails: others carry"),
        [
            (scheme.name, f"{scheme.shards:,}", f"{float(scheme.hit):.3%} of all", _more(scheme.slack))
            for scheme in (compared.none, compared.plain, compared.shuffle)
        ],
    )


def _more(slack: Fraction | None) -> str:
    return "nobody takes over" if slack is None else f"{float(slack):.1%} more"
