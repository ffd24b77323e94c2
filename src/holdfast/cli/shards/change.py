"""`holdfast shards plan|change`: plan a change of the fleet, show which tenants move, and apply it."""

import dataclasses
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from holdfast._errors import Conflict, InvalidValue, NotFound
from holdfast._names import format_count
from holdfast.cli.output import Json, create_file, print_note
from holdfast.cli.shards.inputs import read_fleet
from holdfast.cli.shards.outcome import MAX_MOVES_SHOWN, show_change, show_choices, show_layout
from holdfast.cli.shards.store import DEFAULT_STORE, ShardStoreOptions, decode_name
from holdfast.shards import Assignments, Fleet, Layout, LayoutVersion
from holdfast.shards.layout import adapt_layout
from holdfast.shards.names import format_name

_KEY_BYTES = 32
_MOVES_HINT = "name another file for --moves"
_MAX_WORKERS = 1_000_000
"""Most workers of a preview with --workers: more would take too much memory."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """The options that decide whether and how a planned change is made."""

    allow_shared_hosts: Annotated[bool, Parameter(help="Only warn if several workers are on one host.")] = False
    apply: Annotated[bool, Parameter(help="Make the change. Without it, only show what would move.")] = False
    force: Annotated[bool, Parameter(help="Make the change even if it leaves tenants without a worker.")] = False
    moves: Annotated[
        Path | None, Parameter(help="Write all moves to this new file, as JSON lines: tenant, leaves, joins.")
    ] = None

    def read(self, file: str) -> Fleet:
        return read_fleet(file, shared_host_policy="allow" if self.allow_shared_hosts else "refuse")


DRY_RUN = ChangeOptions()


def plan(
    fleet: Annotated[
        str | None,
        Parameter(name="FLEET", allow_leading_hyphen=True, help="A file of workers: CSV or JSON lines, or -."),
    ] = None,
    /,
    *,
    workers: Annotated[int | None, Parameter(help="Number of workers, instead of a file, for a preview only.")] = None,
    zones: Annotated[int, Parameter(help="Number of zones of these workers, with --workers.")] = 1,
    size: Annotated[int | None, Parameter(help="Workers per shard. Default: unchanged.")] = None,
    overlap: Annotated[int | None, Parameter(help="Most workers that two tenants share. Default: unchanged.")] = None,
    redesign: Annotated[bool, Parameter(help="Make new shards, also of spares. Nearly all tenants move.")] = False,
    change: ChangeOptions = DRY_RUN,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Plan the shards of a fleet and show which tenants move. With --apply, put the plan into effect.

    Workers that are still in the file keep their slots. A first plan without --size and --overlap lists all choices.
    Example: holdfast shards plan fleet.csv --size 4 --overlap 2 --apply
    """
    if workers is not None and (change.apply or change.moves is not None):
        raise InvalidValue("--workers is for a preview only: name a file of workers for --apply and --moves")
    given = _read_given_fleet(fleet, workers, zones, change)
    with ExitStack() as stack:
        assignments, current = (None, None) if workers is not None else _open_existing(stack, store)
        if given is not None and change.allow_shared_hosts:
            _note_shared_hosts(given, as_json=json)
        if current is None and given is not None and size is None and overlap is None and not change.apply:
            show_choices(given, as_json=json)
            return
        layout = (
            _first_layout(given, size, overlap)
            if current is None
            else _change_layout(current.layout, given, size, overlap, redesign=redesign)
        )
        if assignments is None and change.apply:  # only now, so that an error above leaves no store behind
            assignments = stack.enter_context(store.open(is_new=True))
        if assignments is not None:
            _carry_out(assignments, layout, change, as_json=json)
            return
        if change.moves is not None:
            with create_file(change.moves, alternative=_MOVES_HINT):
                pass  # no tenant could move yet
        show_layout(layout, as_json=json)


def change(
    *,
    add: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="A file of workers to add as spare ones. No tenant moves."),
    ] = None,
    share_slot: Annotated[
        list[str] | None, Parameter(help="OLD=NEW: a new worker shares the slot of OLD and takes half of its tenants.")
    ] = None,
    replace: Annotated[list[str] | None, Parameter(help="OLD=NEW: a new worker takes all tenants of OLD.")] = None,
    replace_with_spare: Annotated[
        list[str] | None, Parameter(help="OLD=SPARE: a spare worker takes OLD's tenants.")
    ] = None,
    drain: Annotated[list[str] | None, Parameter(help="A worker that gets no more work. Tenants use others.")] = None,
    double: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="A file with a twin for each worker, by group. No tenant moves."),
    ] = None,
    change: ChangeOptions = DRY_RUN,
    store: ShardStoreOptions = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Plan a change of the stored fleet and show which tenants move. With --apply, make the change.

    Example: holdfast shards change --replace worker-3=worker-101 --apply
    """
    if not any((add, share_slot, replace, replace_with_spare, drain, double)):
        raise InvalidValue(
            "nothing to change: use --add, --share-slot, --replace, --replace-with-spare, --drain or --double"
        )
    with store.open() as assignments:
        layout = assignments.layout
        fleet = (
            dataclasses.replace(layout.fleet, shared_host_policy="allow") if change.allow_shared_hosts else layout.fleet
        )
        if add is not None:
            fleet = fleet.add(*change.read(add).slots)
        for old, new in _parse_pairs("--share-slot", share_slot):
            fleet = _share_slot(layout.with_fleet(fleet), old, new)
        for old, new in _parse_pairs("--replace", replace):
            fleet = fleet.replace(old, new)
        for old, new in _parse_pairs("--replace-with-spare", replace_with_spare):
            fleet = _replace_with_spare(layout.with_fleet(fleet), old, new)
        for worker in drain or ():
            fleet = fleet.drain(worker)
        before, layout = layout.fleet, layout.with_fleet(fleet)
        if double is not None:
            layout = _double_layout(layout, change.read(double))
        if change.allow_shared_hosts:
            _note_shared_hosts(layout.fleet, as_json=json)
        else:
            _refuse_shared_hosts(before, layout.fleet)
        _carry_out(assignments, layout, change, as_json=json)


def _share_slot(layout: Layout, old: str, new: str) -> Fleet:
    index = layout.fleet.find_index(old)
    if index in layout.spare_slots:
        raise InvalidValue(f"--share-slot {old}={new}: {old} is spare; expected a worker that has tenants")
    if index in layout.sharding.spare_slots:
        raise InvalidValue(f"--share-slot {old}={new}: {old} has one isolated tenant; expected a worker with several")
    return layout.fleet.share_slot(old, new)


def _replace_with_spare(layout: Layout, old: str, new: str) -> Fleet:
    if layout.fleet.find_index(new) not in layout.spare_slots:
        raise InvalidValue(f"--replace-with-spare {old}={new}: {new} has tenants; expected a spare worker")
    return layout.fleet.replace_with_spare(old, new)


def _read_given_fleet(file: str | None, workers: int | None, zones: int, change: ChangeOptions) -> Fleet | None:
    if file is not None and workers is not None:
        raise InvalidValue("expected a file of workers or --workers, not both")
    if workers is None:
        if zones != 1:
            raise InvalidValue("--zones is for --workers: in a file, a column says where workers are")
        return None if file is None else change.read(file)
    if workers > _MAX_WORKERS:
        raise InvalidValue(f"{workers} workers: expected at most {_MAX_WORKERS:,}")
    if not 1 <= zones <= workers:
        given = f"{format_count(workers, 'worker')} in {format_count(zones, 'zone')}"
        raise InvalidValue(f"{given}: expected at least one worker in each zone")
    if zones == 1:
        return Fleet.from_workers(f"worker-{number}" for number in range(1, workers + 1))
    numbers = range(workers)
    return Fleet.from_groups(
        {f"zone-{zone + 1}": [f"worker-{number + 1}" for number in numbers[zone::zones]] for zone in range(zones)}
    )


def _note_shared_hosts(fleet: Fleet, *, as_json: bool) -> None:
    for host, sharing in fleet.shared_hosts().items():
        print_note(f"{', '.join(sharing)} are on {host}: they fail together, even in disjoint shards", as_json=as_json)


def _refuse_shared_hosts(old: Fleet, new: Fleet) -> None:
    """Raise InvalidValue if workers newly share a host: allowing earlier shared hosts does not allow new ones."""
    before = old.shared_hosts()
    for host, sharing in new.shared_hosts().items():
        if not {*sharing} <= {*before.get(host, ())}:
            raise InvalidValue(
                f"workers {', '.join(sharing)} are on {host}: they would fail together; give each its own host, or "
                "use --allow-shared-hosts"
            )


def _open_existing(stack: ExitStack, store: ShardStoreOptions) -> tuple[Assignments | None, LayoutVersion | None]:
    """Return the assignments and their current version, each None if there is none yet."""
    assignments = current = None
    with suppress(NotFound):
        assignments = stack.enter_context(store.open())
        current = assignments.current
    return assignments, current


def _first_layout(fleet: Fleet | None, size: int | None, overlap: int | None) -> Layout:
    if fleet is None:
        raise InvalidValue("no fleet: name a file of workers, or use --workers for a preview")
    if size is None and overlap is None:
        raise InvalidValue("--apply needs --size and --overlap: without --apply, all choices are listed")
    if size is None or overlap is None:
        raise InvalidValue("expected both --size and --overlap")
    return Layout.create(fleet, size, overlap, key=secrets.token_bytes(_KEY_BYTES))


def _change_layout(
    old: Layout, given: Fleet | None, size: int | None, overlap: int | None, *, redesign: bool
) -> Layout:
    size, overlap = old.size if size is None else size, old.overlap if overlap is None else overlap
    kept = old if given is None else adapt_layout(old, given)
    if not redesign and (size, overlap) == (old.size, old.overlap):
        return kept
    return kept.redesign(size, overlap)


def _double_layout(layout: Layout, workers: Fleet) -> Layout:
    """Return the doubled layout, whose new workers have the hosts and weights of the file."""
    twice = layout.double(_match_twins(layout.fleet, workers))
    new = {slot.worker: slot for slot in workers.slots}
    slots = (
        dataclasses.replace(slot, host=new[slot.worker].host, weight=new[slot.worker].weight)
        if slot.worker in new
        else slot
        for slot in twice.fleet.slots
    )
    return twice.with_fleet(dataclasses.replace(twice.fleet, slots=tuple(slots)))


def _match_twins(fleet: Fleet, workers: Fleet) -> Sequence[str]:
    """Return a new worker of the same group for each slot, in the order of the slots."""
    left: dict[tuple[str, ...], list[str]] = {}
    for slot in workers.slots:
        left.setdefault(slot.group, []).append(slot.worker)
    found = []
    for slot in fleet.slots:
        if not left.get(slot.group):
            raise InvalidValue(f"--double: no new worker in {' / '.join(slot.group) or 'the file'} for {slot.worker}")
        found.append(left[slot.group].pop(0))
    if any(left.values()):
        extra = format_count(sum(map(len, left.values())), "worker")
        raise InvalidValue(f"--double: {extra} too many: expected one for each worker")
    return found


def _parse_pairs(option: str, given: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    for text in given or ():
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise InvalidValue(f"{option} {text}: expected OLD=NEW, the names of two workers")
        yield old, new


def _carry_out(assignments: Assignments, layout: Layout, options: ChangeOptions, *, as_json: bool) -> None:
    change = assignments.plan(layout)
    if change.plan.down and options.apply and not options.force:
        first = ", ".join(format_name(tenant.name) for tenant in change.plan.down[:MAX_MOVES_SHOWN])
        raise Conflict(
            f"{len(change.plan.down):,} of {change.plan.tenants:,} tenants would be left without a worker, such as "
            f"{first}: check that the list of workers is complete, or make the change anyway with --force"
        )
    if options.moves is not None:
        with create_file(options.moves, alternative=_MOVES_HINT) as file:
            for move in change.plan.moves():
                written = {"tenant": decode_name(move.tenant.name), "leaves": move.leaves, "joins": move.joins}
                file.write(msgspec.json.encode(written) + b"\n")
    version = assignments.apply(change).number if options.apply else change.expected_version
    show_change(change, version, is_applied=options.apply, as_json=as_json)
