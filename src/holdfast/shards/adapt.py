"""From the workers that there are to the slots that there were, so that as few tenants as possible move. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.layout import Layout


def adapted(layout: Layout, workers: Fleet) -> Layout:
    """The same design with these workers: whoever is still there keeps its slot.

    Slots whose workers are gone get new ones of the same group, or else spare ones; where there are neither, they stay
    empty, and their tenants have one worker less. New workers that no slot needs are spare. Raises InvalidValue for a
    worker that is in another group than before: its shards would no longer spread.
    """
    there = {slot.worker: slot for slot in workers.slots}
    fleet = layout.fleet
    for slot in fleet.slots:
        found = there.get(slot.worker)
        if found is not None and found.group != slot.group:
            raise InvalidValue(
                f"worker {slot.worker} was in {' / '.join(slot.group) or 'no group'} and is in "
                f"{' / '.join(found.group) or 'none'}: give it another name, as a new worker"
            )
    known = {slot.worker for slot in fleet.slots}
    new = [slot for slot in workers.slots if slot.worker not in known]
    fleet = replace(
        fleet, slots=tuple(_renewed(slot, there) for slot in fleet.slots), shared_hosts=workers.shared_hosts
    )
    spare = [place for place in layout.spare if not fleet.slots[place].is_drained]
    idle = {*layout.spare}
    # Slots with tenants first: what is left for the others matters less.
    empty = [place for place, slot in enumerate(fleet.slots) if slot.is_drained]
    for place in sorted(empty, key=lambda place: place in idle):
        group = fleet.slots[place].group
        if (newcomer := _first(new, group)) is not None:
            fleet = fleet.replace(place, newcomer.worker, host=newcomer.host, weight=newcomer.weight)
        elif place not in idle and fleet.slots[place].relieves is None:
            substitute = next((other for other in spare if fleet.slots[other].group == group), None)
            if substitute is not None:
                spare.remove(substitute)
                fleet = fleet.substitute(fleet.slots[place].worker, fleet.slots[substitute].worker)
    return layout.with_fleet(fleet.add(*new))


def _renewed(slot: Slot, there: dict[str, Slot]) -> Slot:
    found = there.get(slot.worker)
    if found is None:
        return replace(slot, is_drained=True, host=None)  # on none: a new worker may be where it was
    return replace(slot, weight=found.weight, host=found.host, is_drained=found.is_drained)


def _first(slots: list[Slot], group: Sequence[str]) -> Slot | None:
    """The first of a group, taken out of the list."""
    for number, slot in enumerate(slots):
        if slot.group == group:
            return slots.pop(number)
    return None
