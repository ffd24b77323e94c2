"""All there is to say about an assignment of tenants to workers, as one value. Pure."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet
from holdfast.shards.report.blast import Worst, worst_of
from holdfast.shards.report.load import Load, SharedHost, load, on_hosts, shared_hosts, slack
from holdfast.shards.report.overlap import Neighbours, Overlaps, closest, overlaps, summed
from holdfast.shards.report.scan import scan
from holdfast.shards.report.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an assignment means. Made of plain numbers, text and tuples, so that it goes into JSON as it is."""

    tenants: int
    workers: int
    smallest: int
    """Workers of the smallest shard."""
    largest: int
    """Workers of the largest shard."""
    shards_possible: int
    shards_used: int
    """Different shards that tenants have."""
    shards_left: int
    overlaps: Overlaps
    promised: int | None
    """The most workers that two tenants were to share."""
    pairs_beyond: int | None
    """Pairs of tenants that share more than that: 0 if the promise is kept."""
    neighbours: tuple[Neighbours, ...]
    """The pairs that share most."""
    load: Load
    survives: int
    """How many tenants may take down all of their workers at once, and all others have one left; often it is more."""
    capacity_lost: float
    """The largest share of the fleet, by weight, that one tenant can take down."""
    slack: float | None
    worst: Worst
    down_before: int
    """Tenants that have no worker already, for all of theirs are drained."""
    shared_hosts: tuple[SharedHost, ...]
    overlaps_by_host: Overlaps | None
    """How many machines tenants have in common, where workers share machines."""


def report(
    fleet: Fleet,
    table: npt.ArrayLike | Table,
    *,
    possible: int | None = None,
    overlap: int | None = None,
    size: int | None = None,
) -> Report:
    """Find out what an assignment means.

    `possible` is how many shards there are, such as the capacity of a design; else all combinations of `size` workers,
    or of as many as the largest shard has. `overlap` is the most that two tenants were promised to share.
    """
    if overlap is not None and overlap < 0:
        raise InvalidValue(f"overlap {overlap}: expected 0 or more")
    if size is not None and size < 0:
        raise InvalidValue(f"shards of {size}: expected 0 or more workers")
    checked = Table.of(table, len(fleet))
    live = checked.live(fleet)
    found = scan(checked.distinct)
    shared = summed(checked.distinct, found)
    left = found if live is checked else scan(live.distinct)
    largest = int(checked.sizes.max(initial=0))
    if possible is None:
        # Whoever relieves another is in the shards of that one, and makes no new ones.
        slots = sum(slot.relieves is None for slot in fleet.slots)
        possible = math.comb(slots, largest if size is None else size)
    crowded = shared_hosts(fleet)
    survives = _survives(live, shared.most)
    by_machine = None
    if crowded:
        by_machine = overlaps(on_hosts(fleet, checked))
        survives = min(survives, _survives(on_hosts(fleet, live), by_machine.most))
    return Report(
        tenants=len(checked),
        workers=len(fleet),
        smallest=int(checked.sizes.min()) if len(checked) else 0,
        largest=largest,
        shards_possible=possible,
        shards_used=len(checked.distinct),
        shards_left=max(0, possible - len(checked.distinct)),
        overlaps=shared,
        promised=overlap,
        pairs_beyond=None if overlap is None else sum(shared.pairs[overlap + 1 :]),
        neighbours=tuple(closest(checked, found, 10)),
        load=load(fleet, checked),
        survives=survives,
        capacity_lost=_capacity_lost(fleet, live),
        slack=slack(live, len(fleet)),
        worst=worst_of(fleet, live, left),
        down_before=int((live.sizes == 0).sum()),
        shared_hosts=crowded,
        overlaps_by_host=by_machine,
    )


def _survives(table: Table, most: int) -> int:
    """Each attacker takes no more than the largest overlap: so many of them leave one of the smallest shard."""
    others = max(0, len(table) - 1)
    smallest = int(table.sizes.min(initial=table.workers))
    return others if most == 0 and smallest else max(0, min(others, (smallest - 1) // max(1, most)))


def _capacity_lost(fleet: Fleet, live: Table) -> float:
    weights = np.array([*(0.0 if slot.is_drained else slot.weight for slot in fleet.slots), 0.0])
    taken = weights[live.distinct.places].sum(axis=1)
    return float(taken.max(initial=0.0) / (weights.sum() or 1.0))
