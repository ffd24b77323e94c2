"""The output of commands on shards: a layout, a change of layout, and the choices of a fleet."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

from holdfast._errors import InvalidValue
from holdfast.cli.output import pick_attributes, print_json, print_rows, print_table
from holdfast.cli.shards.store import decode_name
from holdfast.shards import DesignedSharding, Fleet, Layout, LayoutChange
from holdfast.shards.design_choice import double_design
from holdfast.shards.schemes import compare_schemes

MAX_MOVES_SHOWN = 10
"""Moves that are printed; --moves writes all of them to a file."""
_MAX_LISTED_SIZE = 6
"""Largest size in the list of choices: larger shards are rarely worth their load."""
_COMPARED_SIZE = 4
"""The size for which sharding schemes are compared; the largest smaller one if no design has it."""


def _build_facts(layout: Layout) -> dict[str, object]:
    sharding, live = layout.sharding, [slot for slot in layout.fleet.slots if not slot.is_drained]
    return {
        "workers": len(live),
        "spare": len(layout.live_spare_slots),
        **pick_attributes(layout, "size", "overlap"),
        "design": type(sharding.design).__name__.lower(),
        "shards": layout.capacity,
        "attackers_survived": layout.attackers_survived,
        "capacity_lost": min(1.0, layout.size / max(1, len(live))),
        "empty_slots": len(layout.empty_slots),
    }


def show_layout(layout: Layout, *, as_json: bool) -> None:
    """Print the facts about a layout."""
    print_rows(_build_facts(layout), ("shards", ""), _describe_layout(layout), as_json=as_json)


def _describe_layout(layout: Layout) -> Iterator[tuple[str, str]]:
    facts = _build_facts(layout)
    yield "workers", f"{facts['workers']}, {facts['spare']} of them spare"
    yield (
        "shards",
        f"{facts['shards']:,} of {layout.size}, any two share at most {layout.overlap}; design: {facts['design']}",
    )
    yield "attackers survived", f"{facts['attackers_survived']}, if each takes down all its workers"
    yield "capacity lost to an attacker", f"{facts['capacity_lost']:.2%} of the fleet"
    if layout.empty_slots:
        yield "slots without a worker", f"{len(layout.empty_slots)}: a tenant with such a slot has one worker fewer"


def show_change(change: LayoutChange, version: int, *, is_applied: bool, as_json: bool) -> None:
    """Print the new layout, which tenants move, and whether the change was applied."""
    plan = change.plan
    first = [(decode_name(move.tenant.name), move.leaves, move.joins) for move in islice(plan.moves(), MAX_MOVES_SHOWN)]
    if as_json:
        print_json(
            _build_facts(change.layout)
            | {
                "tenants": plan.tenants,
                "moving": len(plan.moving_tenants),
                "moving_share": plan.moving_share,
                **pick_attributes(plan, "tenants_by_workers_changed", "degraded"),
                "down": len(plan.down),
                "first_moves": [dict(zip(("tenant", "leaves", "joins"), move, strict=True)) for move in first],
                "version": version,
                "is_applied": is_applied,
            }
        )
        return
    rows = list(_describe_layout(change.layout))
    rows.append(("tenants", f"{plan.tenants:,}, of which {len(plan.moving_tenants):,} move ({plan.moving_share:.3%})"))
    rows += [
        (f"  {count} of their workers", f"{tenants:,}")
        for count, tenants in enumerate(plan.tenants_by_workers_changed)
        if count and tenants
    ]
    if plan.degraded:
        rows.append(("  degraded", f"{plan.degraded:,}: a worker is drained or gone, and no other took its slot"))
    if plan.down:
        rows.append(("  down", f"{len(plan.down):,}: no worker serves them"))
    print_table(("shards", ""), rows)
    if first:
        print()
        print_table(("tenant", "leaves", "joins"), [(name, *map(" ".join, rest)) for name, *rest in first])
    print(f"applied, version {version}" if is_applied else "nothing changed: repeat the command with --apply")


def show_choices(fleet: Fleet, *, as_json: bool) -> None:
    """Print all sizes and overlaps that a fleet allows, and a comparison of sharding schemes."""
    choices = []
    reason = InvalidValue("a fleet of one worker has no shards: expected at least two workers")
    for size in range(2, min(_MAX_LISTED_SIZE, len(fleet)) + 1):
        for overlap in range(size):
            try:
                choices.append(DesignedSharding(fleet, size, overlap, key=b""))
            except InvalidValue as error:
                reason = error  # no design fits
    if not choices:
        raise reason
    count = len(fleet)
    if as_json:
        print_json(
            [
                pick_attributes(choice, "size", "overlap")
                | {"shards": choice.capacity, **pick_attributes(choice, "attackers_survived")}
                | {"spare": len(choice.spare_slots), "capacity_lost": choice.size / count}
                | {"can_double": _can_double(choice)}
                for choice in choices
            ]
        )
        return
    rows = [
        (
            choice.size,
            choice.overlap,
            f"{choice.capacity:,}",
            choice.attackers_survived,
            len(choice.spare_slots),
            f"{choice.size / count:.1%}",
            "yes" if _can_double(choice) else "",
        )
        for choice in choices
    ]
    print_table(("size", "overlap", "shards", "attackers survived", "spare", "capacity lost", "can be doubled"), rows)
    print()
    size = max(choice.size for choice in choices if choice.size <= _COMPARED_SIZE)  # if any fit, shards of two do
    compared = compare_schemes(count, size)
    print_table(
        (f"shards of {size}", "how many", "an attacker takes down", "extra load if a worker fails"),
        [
            (
                scheme.name,
                f"{scheme.shards:,}",
                f"{float(scheme.down_share):.3%} of tenants",
                _format_headroom(scheme.required_headroom),
            )
            for scheme in (compared.unsharded, compared.plain, compared.shuffle)
        ],
    )


def _can_double(sharding: DesignedSharding) -> bool:
    try:
        double_design(sharding.design)
    except InvalidValue:
        return False
    return True


def _format_headroom(required_headroom: Fraction | None) -> str:
    return "no worker takes over" if required_headroom is None else f"{float(required_headroom):.1%}"
