"""`holdfast shards fleet`: the workers that are kept, where they are, and what they are there for."""

from collections import Counter
from collections.abc import Iterator

from holdfast.cli.output import DataDirectory, Json, SettingsFile, moment, print_json, print_table
from holdfast.cli.shards.kept import Name, open_assignments, text_of
from holdfast.shards import Layout
from holdfast.shards.names import shown


def fleet(
    *, name: Name = "default", settings: SettingsFile = None, data_directory: DataDirectory = None, json: Json = False
) -> None:
    """Show the workers that are kept: in which group, and whether in shards, spare, drained or a tenant's own.

    Example: holdfast shards fleet
    """
    with open_assignments(name, settings, data_directory) as assignments:
        current = assignments.current
    layout, uses = current.layout, list(_uses(current.layout))
    if json:
        print_json(
            {
                "version": current.number,
                "at": current.at,
                "size": layout.size,
                "overlap": layout.overlap,
                "workers": [
                    {
                        "slot": place,
                        "worker": slot.worker,
                        "group": slot.group,
                        "weight": slot.weight,
                        "host": slot.host,
                        "use": use,
                        "is_drained": slot.is_drained,
                        "relieves": slot.relieves,
                    }
                    for place, (slot, use) in enumerate(zip(layout.fleet.slots, uses, strict=True))
                ],
                "isolated": [
                    {
                        "tenant": text_of(tenant),
                        "workers": [layout.fleet.slots[place].worker for place in places],
                    }
                    for tenant, places in layout.isolated
                ],
            }
        )
        return
    print(f"version {current.number}, since {moment(current.at)}: shards of {layout.size}, overlap {layout.overlap}")
    print()
    rows = [
        (slot.worker, " / ".join(slot.group), slot.host, f"{use} (drained)" if slot.is_drained else use)
        for slot, use in zip(layout.fleet.slots, uses, strict=True)
    ]
    print_table(("worker", "group", "host", "use"), rows)
    print()
    counted = Counter(
        (" / ".join(slot.group), "drained" if slot.is_drained else use.split()[0])
        for slot, use in zip(layout.fleet.slots, uses, strict=True)
    )
    print_table(("group", "use", "workers"), [(*kind, count) for kind, count in counted.items()])


def _uses(layout: Layout) -> Iterator[str]:
    """What each worker is there for."""
    spare, owners = {*layout.spare}, {place: tenant for tenant, places in layout.isolated for place in places}
    for place, slot in enumerate(layout.fleet.slots):
        if slot.relieves is not None:
            yield f"relieves {slot.relieves}"
        elif place in owners:
            yield f"isolated for {shown(owners[place])}"
        else:
            yield "spare" if place in spare else "shards"
