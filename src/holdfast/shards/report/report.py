"""The report on an assignment of tenants to workers, as one value. Pure."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet
from holdfast.shards.report.blast_radius import WorstCases, derive_worst_cases
from holdfast.shards.report.load import (
    Load,
    SharedHost,
    compute_headroom,
    compute_load,
    find_shared_hosts,
    map_table_to_hosts,
)
from holdfast.shards.report.overlap import (
    NeighbourPair,
    Overlaps,
    count_overlaps,
    select_worst_neighbours,
    summarize_overlaps,
)
from holdfast.shards.report.overlap_counts import count_shared_workers
from holdfast.shards.report.table import AssignmentTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Facts about an assignment. Made of plain numbers, text and tuples, so that it can be encoded as JSON."""

    tenants: int
    workers: int
    min_shard_size: int
    max_shard_size: int
    shards_possible: int
    shards_used: int
    """Different shards that tenants have."""
    shards_left: int
    overlaps: Overlaps
    promised_overlap: int | None
    """Most workers that two tenants may share; None if nothing was promised."""
    pairs_above_promise: int | None
    """Pairs of tenants that share more than `promised_overlap`: 0 if the promise is kept."""
    neighbours: tuple[NeighbourPair, ...]
    """The pairs that share most."""
    load: Load
    attackers_survived: int
    """Tenants that can certainly take down all their workers together while every other tenant keeps one."""
    capacity_lost: float
    """Largest fraction of the fleet, by weight, that one tenant can take down."""
    required_headroom: float | None
    worst_cases: WorstCases
    already_down: int
    """Tenants without a worker, because all of theirs are drained."""
    shared_hosts: tuple[SharedHost, ...]
    overlaps_by_host: Overlaps | None
    """Overlaps counted in machines; None if no workers share a machine."""


def build_report(
    fleet: Fleet,
    table: npt.ArrayLike | AssignmentTable,
    *,
    shards_possible: int | None = None,
    overlap: int | None = None,
    size: int | None = None,
) -> Report:
    """Compute the report on an assignment.

    `shards_possible` is the number of possible shards, such as the capacity of a design. By default it is the number of
    combinations of `size` workers, or of as many as the largest shard has. `overlap` is the promised maximum.
    """
    if overlap is not None and overlap < 0:
        raise InvalidValue(f"overlap {overlap}: expected 0 or more")
    if size is not None and size < 0:
        raise InvalidValue(f"shards of {size}: expected 0 or more workers")
    checked = AssignmentTable.check(table, len(fleet))
    live = checked.without_drained(fleet)
    found = count_shared_workers(checked.distinct_shards)
    shared = summarize_overlaps(checked.distinct_shards, found)
    left = found if live is checked else count_shared_workers(live.distinct_shards)
    largest = int(checked.sizes.max(initial=0))
    if shards_possible is None:
        # A worker that shares_slot_of another is in the shards of that one, and adds no shards.
        slots = sum(slot.shares_slot_of is None for slot in fleet.slots)
        shards_possible = math.comb(slots, largest if size is None else size)
    crowded = find_shared_hosts(fleet)
    attackers_survived = _count_attackers_survived(live, shared.max_shared)
    by_machine = None
    if crowded:
        by_machine = count_overlaps(map_table_to_hosts(fleet, checked))
        attackers_survived = min(
            attackers_survived, _count_attackers_survived(map_table_to_hosts(fleet, live), by_machine.max_shared)
        )
    return Report(
        tenants=len(checked),
        workers=len(fleet),
        min_shard_size=int(checked.sizes.min()) if len(checked) else 0,
        max_shard_size=largest,
        shards_possible=shards_possible,
        shards_used=len(checked.distinct_shards),
        shards_left=max(0, shards_possible - len(checked.distinct_shards)),
        overlaps=shared,
        promised_overlap=overlap,
        pairs_above_promise=None if overlap is None else sum(shared.pairs_by_shared_workers[overlap + 1 :]),
        neighbours=tuple(select_worst_neighbours(checked, found, 10)),
        load=compute_load(fleet, checked),
        attackers_survived=attackers_survived,
        capacity_lost=_capacity_lost(fleet, live),
        required_headroom=compute_headroom(live, len(fleet)),
        worst_cases=derive_worst_cases(fleet, live, left),
        already_down=int((live.sizes == 0).sum()),
        shared_hosts=crowded,
        overlaps_by_host=by_machine,
    )


def _count_attackers_survived(table: AssignmentTable, max_shared: int) -> int:
    """Return how many attackers leave a worker of the smallest shard, if each takes down `max_shared` of it."""
    others = max(0, len(table) - 1)
    smallest = int(table.sizes.min(initial=table.workers))
    return others if max_shared == 0 and smallest else max(0, min(others, (smallest - 1) // max(1, max_shared)))


def _capacity_lost(fleet: Fleet, live: AssignmentTable) -> float:
    weights = np.array([*(0.0 if slot.is_drained else slot.weight for slot in fleet.slots), 0.0])
    taken = weights[live.distinct_shards.slot_indexes].sum(axis=1)
    return float(taken.max(initial=0.0) / (weights.sum() or 1.0))
