"""Who is hit when workers fail: those of some tenants, some by name, or whole zones; and the worst there can be. Pure.

A worker that is drained serves nobody, so that it counts as none: a tenant is fully hit once it has lost all others.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue, NotFound
from holdfast.shards.fleet import Fleet
from holdfast.shards.report.load import count_tenants_per_worker
from holdfast.shards.report.overlap_counts import OverlapCounts, count_shared_workers
from holdfast.shards.report.table import AssignmentTable, IntArray

_ROWS = 1 << 18
"""Tenants that are looked at together, where several numbers are held for each worker of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlastRadius:
    """What a failure does. Attackers are the tenants whose workers fail because of them: they are counted apart."""

    workers_out: tuple[str, ...]
    capacity_lost: float
    """Share of the fleet, by weight."""
    attackers: int
    tenants_by_workers_lost: tuple[int, ...]
    """All tenants, attackers among them, by the number of their workers that are out."""
    fully_hit: int
    """Other tenants that have no worker left."""
    partly_hit: int
    """Other tenants that have lost some."""
    unaffected: int
    """Other tenants that have lost none."""
    already_down: int
    """Other tenants that had none to lose, for all of theirs are drained."""
    fully_hit_share: float
    """Of all tenants but the attackers; the next two as well."""
    partly_hit_share: float
    unaffected_share: float
    down_share: float
    """Of all tenants, those without a worker, attackers among them."""
    max_load_increase: float
    """How much more the most burdened worker that is left has to do, once tenants moved to the rest of their shards."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The most tenants that one thing of a kind can hit, and which; the first of several, None if it hits nobody."""

    count: int
    share: float
    """Of the tenants there are; where a tenant is what fails, of the others."""
    cause: int | str | None
    """The row of a tenant, or the name of a worker or a zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCases:
    """The worst that any one tenant, any one worker and any one zone can do: who loses all, and who loses some."""

    fully_hit_by_tenant: WorstCase
    partly_hit_by_tenant: WorstCase
    fully_hit_by_worker: WorstCase
    partly_hit_by_worker: WorstCase
    fully_hit_by_zone: WorstCase
    partly_hit_by_zone: WorstCase


def compute_blast_radius(
    fleet: Fleet,
    table: npt.ArrayLike | AssignmentTable,
    *,
    tenants: Collection[int] = (),
    workers: Collection[str] = (),
    zones: Collection[str] = (),
) -> BlastRadius:
    """What happens if these workers, and those of these tenants and zones, fail. Raises InvalidValue or NotFound."""
    checked = AssignmentTable.check(table, len(fleet))
    live = checked.without_drained(fleet)
    out = find_failing_slots(fleet, checked, tenants, workers, zones)
    hits = np.append(out, False)[live.slot_indexes].sum(axis=1, dtype=np.int64)
    others = np.ones(len(checked), dtype=bool)
    others[list(tenants)] = False
    having = others & (live.sizes > 0)
    fully = int((having & (hits == live.sizes)).sum())
    untouched = int((having & (hits == 0)).sum())
    partly = int(having.sum()) - fully - untouched
    all_others = max(1, int(others.sum()))
    down = int((hits == live.sizes).sum())
    weights = np.array([0.0 if slot.is_drained else slot.weight for slot in fleet.slots])
    return BlastRadius(
        workers_out=tuple(slot.worker for slot, is_out in zip(fleet.slots, out, strict=True) if is_out),
        capacity_lost=float(weights[out].sum() / (weights.sum() or 1.0)),
        attackers=len({*tenants}),
        tenants_by_workers_lost=tuple(np.bincount(hits, minlength=int(live.sizes.max(initial=0)) + 1).tolist()),
        fully_hit=fully,
        partly_hit=partly,
        unaffected=untouched,
        already_down=int(others.sum()) - int(having.sum()),
        fully_hit_share=fully / all_others,
        partly_hit_share=partly / all_others,
        unaffected_share=untouched / all_others,
        down_share=down / max(1, len(checked)),
        max_load_increase=_compute_load_increase(live, out, hits),
    )


def find_failing_slots(
    fleet: Fleet, table: AssignmentTable, tenants: Collection[int], workers: Collection[str], zones: Collection[str]
) -> npt.NDArray[np.bool_]:
    """Return for each slot of the fleet whether it fails."""
    out = np.zeros(len(fleet), dtype=bool)
    for row in tenants:
        if not 0 <= row < len(table):
            raise InvalidValue(f"tenant {row}: expected a row of the table, 0 to {len(table) - 1}")
        out[list(table.shard(row))] = True
    out[[fleet.find_index(worker) for worker in workers]] = True
    for zone in zones:
        indexes = [index for index, slot in enumerate(fleet.slots) if zone in slot.group]
        if not indexes:
            raise NotFound(f"there is no worker in zone {zone} in this fleet")
        out[indexes] = True
    return out


def find_worst_cases(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> WorstCases:
    """The worst that one tenant, one worker or one zone can do to others."""
    live = AssignmentTable.check(table, len(fleet)).without_drained(fleet)
    return derive_worst_cases(fleet, live, count_shared_workers(live.distinct))


def derive_worst_cases(fleet: Fleet, live: AssignmentTable, found: OverlapCounts) -> WorstCases:
    """The same, where what shards share was counted already; of a table without drained workers."""
    firsts = live.distinct.first_rows.tolist()
    others = max(1, len(live) - 1)
    names = [slot.worker for slot in fleet.slots]
    single = np.bincount(live.slot_indexes[live.sizes == 1, 0], minlength=len(fleet))
    zones, fully, touched = _count_by_zone(fleet, live)
    every = max(1, len(live))
    return WorstCases(
        fully_hit_by_tenant=_find_worst_case(found.covered, others, firsts),
        partly_hit_by_tenant=_find_worst_case(found.touched - found.covered, others, firsts),
        fully_hit_by_worker=_find_worst_case(single, every, names),
        partly_hit_by_worker=_find_worst_case(count_tenants_per_worker(live) - single, every, names),
        fully_hit_by_zone=_find_worst_case(fully, every, zones),
        partly_hit_by_zone=_find_worst_case(touched - fully, every, zones),
    )


def _find_worst_case(counts: IntArray, of: int, names: "list[int] | list[str]") -> WorstCase:
    highest = int(counts.max(initial=0))
    return WorstCase(highest, highest / of, names[int(counts.argmax())] if highest else None)


def _count_by_zone(fleet: Fleet, live: AssignmentTable) -> tuple[list[str], IntArray, IntArray]:
    """Return all zones; for each how many tenants have no worker outside it, and how many have one inside."""
    zones = list(dict.fromkeys(zone for slot in fleet.slots for zone in slot.group))
    numbers = {zone: number for number, zone in enumerate(zones)}
    width = max((len({*slot.group}) for slot in fleet.slots), default=0)
    # The zones of every slot, each once, and none for what is no worker.
    within = np.full((len(fleet) + 1, width), -1, dtype=np.int32)
    for index, slot in enumerate(fleet.slots):
        some = sorted({numbers[zone] for zone in slot.group})
        within[index, : len(some)] = some
    fully, touched = np.zeros(len(zones), dtype=np.int64), np.zeros(len(zones), dtype=np.int64)
    for first in range(0, len(live) if width else 0, _ROWS):
        sizes = live.sizes[first : first + _ROWS]
        inside = within[live.slot_indexes[first : first + _ROWS]].reshape(len(sizes), -1)
        inside.sort(axis=1)
        # Equal ones are now next to each other: how many there are is how many workers a tenant has in that zone.
        begins = np.ones(inside.shape, dtype=bool)
        begins[:, 1:] = inside[:, 1:] != inside[:, :-1]
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=inside.size)
        zone, row = inside.ravel()[starts], starts // inside.shape[1]
        real = zone >= 0
        touched += np.bincount(zone[real], minlength=len(zones))
        fully += np.bincount(zone[real & (lengths == sizes[row])], minlength=len(zones))
    return zones, fully, touched


def _compute_load_increase(live: AssignmentTable, out: npt.NDArray[np.bool_], hits: IntArray) -> float:
    """How much the load of the most burdened worker rises, of those that are left and had some."""
    left = live.sizes - hits
    before, after = np.zeros(live.workers + 1), np.zeros(live.workers + 1)
    usual, moved = 1 / np.maximum(live.sizes, 1), np.where(left > 0, 1 / np.maximum(left, 1), 0.0)
    for column in range(live.slot_indexes.shape[1]):
        before += np.bincount(live.slot_indexes[:, column], weights=usual, minlength=len(before))
        after += np.bincount(live.slot_indexes[:, column], weights=moved, minlength=len(after))
    serving = np.append(~out, False) & (before > 0)
    return max(0.0, float((after[serving] / before[serving] - 1).max(initial=0.0)))
