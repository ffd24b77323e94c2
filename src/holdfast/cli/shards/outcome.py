"""What commands on shards show of a layout and of a change to it."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

from holdfast._errors import InvalidValue
from holdfast.cli.output import picked, print_json, print_rows, print_table
from holdfast.cli.shards.kept import text_of
from holdfast.shards import Change, Designed, Fleet, Layout
from holdfast.shards.choice import doubled
from holdfast.shards.schemes import schemes

SHOWN = 10
"""Moves that are shown; all of them go to a file."""
_LARGEST = 6
"""Sizes of shards that are listed for who has not chosen yet: more workers each are rarely worth their load."""
_COMPARED = 4
"""The size for which shards of all kinds are compared, or the next smaller one."""


def _facts(layout: Layout) -> dict[str, object]:
    designed, live = layout.designed, [slot for slot in layout.fleet.slots if not slot.is_drained]
    return {
        "workers": len(live),
        "spare": len(layout.ready),
        **picked(layout, "size", "overlap"),
        "design": type(designed.design).__name__.lower(),
        "shards": layout.capacity,
        "survives": layout.survives,
        "capacity_lost": min(1.0, layout.size / max(1, len(live))),
        "empty_slots": len(layout.empty),
    }


def show_layout(layout: Layout, *, as_json: bool) -> None:
    """Show what shards a layout gives."""
    print_rows(_facts(layout), ("shards", ""), _told(layout), as_json=as_json)


def _told(layout: Layout) -> Iterator[tuple[str, str]]:
    facts = _facts(layout)
    yield "workers", f"{facts['workers']}, {facts['spare']} of them spare"
    yield "shards", f"{facts['shards']:,} of {layout.size}, any two share at most {layout.overlap} ({facts['design']})"
    yield "bad tenants survived", f"{facts['survives']}, which take all of their workers down"
    yield "one tenant takes", f"{facts['capacity_lost']:.2%} of the fleet"
    if layout.empty:
        yield "slots without a worker", f"{len(layout.empty)}: whoever has one, now or later, has a worker less"


def show_change(change: Change, version: int, *, is_applied: bool, as_json: bool) -> None:
    """Show who moves, and whether it was done."""
    plan = change.plan
    first = [(text_of(move.tenant.name), move.leaves, move.joins) for move in islice(plan.moves(), SHOWN)]
    if as_json:
        print_json(
            _facts(change.layout)
            | {
                "tenants": plan.tenants,
                "moving": len(plan.movers),
                "moving_share": plan.share,
                **picked(plan, "changed", "short"),
                "down": len(plan.down),
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
    if plan.down:
        rows.append(("  without a worker", f"{len(plan.down):,}: nobody serves them"))
    print_table(("shards", ""), rows)
    if first:
        print()
        print_table(("tenant", "leaves", "joins"), [(name, *map(" ".join, rest)) for name, *rest in first])
    print(f"applied, version {version}" if is_applied else "nothing changed: repeat it with --apply")


def show_choices(fleet: Fleet, *, as_json: bool) -> None:
    """Show all shards that a fleet allows, beside none and plain ones."""
    choices = []
    reason = InvalidValue("a fleet of one worker has no shards: expected two at least")
    for size in range(2, min(_LARGEST, len(fleet)) + 1):
        for overlap in range(size):
            try:
                choices.append(Designed(fleet, size, overlap, key=b""))
            except InvalidValue as error:
                reason = error  # no design fits: not a choice
    if not choices:
        raise reason
    count = len(fleet)
    if as_json:
        print_json(
            [
                picked(one, "size", "overlap")
                | {"shards": one.capacity, "survives": one.survives, "spare": len(one.spare)}
                | {"capacity_lost": one.size / count, "can_double": _can_double(one)}
                for one in choices
            ]
        )
        return
    rows = [
        (
            one.size,
            one.overlap,
            f"{one.capacity:,}",
            one.survives,
            len(one.spare),
            f"{one.size / count:.1%}",
            "yes" if _can_double(one) else "",
        )
        for one in choices
    ]
    print_table(("size", "overlap", "shards", "survives", "spare", "one tenant takes", "can be doubled"), rows)
    print()
    size = max(one.size for one in choices if one.size <= _COMPARED)  # some: if any fit, shards of two do
    compared = schemes(count, size)
    print_table(
        (f"shards of {size}", "how many", "a bad tenant takes down", "a worker fails: others carry"),
        [
            (scheme.name, f"{scheme.shards:,}", f"{float(scheme.hit):.3%} of all", _more(scheme.slack))
            for scheme in (compared.none, compared.plain, compared.shuffle)
        ],
    )


def _can_double(designed: Designed) -> bool:
    try:
        doubled(designed.design)
    except InvalidValue:
        return False
    return True


def _more(slack: Fraction | None) -> str:
    return "nobody takes over" if slack is None else f"{float(slack):.1%} more"
