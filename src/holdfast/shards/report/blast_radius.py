"""The tenants hit when the workers of tenants, single workers or zones fail; and the worst cases. Pure.

A drained worker serves no tenant and does not count: a tenant is fully hit once it has lost all its other workers.
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
"""Tenants per step: several numbers are in memory for each of their workers."""
_NO_ZONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BlastRadius:
    """The effects of a failure. Attackers are the tenants that take down their workers; they are counted separately."""

    workers_out: tuple[str, ...]
    capacity_lost: float
    """Fraction of the fleet, by weight."""
    attackers: int
    tenants_by_workers_lost: tuple[int, ...]
    """Number of tenants, including attackers, that lost 0, 1, 2, ... workers."""
    fully_hit: int
    """Other tenants that have no worker left."""
    partly_hit: int
    """Other tenants that lost some of their workers."""
    unaffected: int
    """Other tenants that lost no worker."""
    already_down: int
    """Other tenants that had no worker before, because all of theirs are drained."""
    fully_hit_share: float
    """Fraction of all tenants but the attackers; the next two as well."""
    partly_hit_share: float
    unaffected_share: float
    down_share: float
    """Fraction of all tenants, including attackers, that have no worker."""
    max_load_increase: float
    """Largest increase of a remaining worker's load, as a fraction, once tenants use the rest of their shards."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The most tenants that one tenant, worker or zone can hit."""

    count: int
    share: float
    """Fraction of all tenants; of the other tenants if a tenant is the cause."""
    cause: int | str | None
    """Row of the tenant, or name of the worker or zone; the first of several. None if no tenant can be hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCases:
    """The most tenants that the failure of any one tenant, worker or zone can hit, fully and partly.

    Zones are the values of the group `zone`, or of the group that the caller chose, such as `version`.
    """

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
    """Compute the effects if these workers and those of these tenants and zones fail. Raise NotFound, InvalidValue."""
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
    """Find the worst that one tenant, one worker or one zone can do to other tenants."""
    live = AssignmentTable.check(table, len(fleet)).without_drained(fleet)
    return derive_worst_cases(fleet, live, count_shared_workers(live.distinct_shards))


def derive_worst_cases(fleet: Fleet, live: AssignmentTable, found: OverlapCounts) -> WorstCases:
    """Find the worst cases of a table without drained workers, whose overlaps were counted before."""
    firsts = live.distinct_shards.first_rows.tolist()
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
    """Return all zones, and for each the number of tenants with no worker outside it, and with one inside."""
    zones = list(dict.fromkeys(zone for slot in fleet.slots for zone in slot.group))
    numbers = {zone: number for number, zone in enumerate(zones)}
    width = max((len({*slot.group}) for slot in fleet.slots), default=0)
    # The zones of every slot, each once. The last row is for no worker, and has no zone.
    within = np.full((len(fleet) + 1, width), _NO_ZONE, dtype=np.int32)
    for index, slot in enumerate(fleet.slots):
        some = sorted({numbers[zone] for zone in slot.group})
        within[index, : len(some)] = some
    fully, touched = np.zeros(len(zones), dtype=np.int64), np.zeros(len(zones), dtype=np.int64)
    for first in range(0, len(live) if width else 0, _ROWS):
        sizes = live.sizes[first : first + _ROWS]
        inside = within[live.slot_indexes[first : first + _ROWS]].reshape(len(sizes), -1)
        inside.sort(axis=1)
        # Equal zones are now adjacent: the length of a run is the number of workers of a tenant in that zone.
        begins = np.ones(inside.shape, dtype=bool)
        begins[:, 1:] = inside[:, 1:] != inside[:, :-1]
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=inside.size)
        zone, row = inside.ravel()[starts], starts // inside.shape[1]
        real = zone != _NO_ZONE
        touched += np.bincount(zone[real], minlength=len(zones))
        fully += np.bincount(zone[real & (lengths == sizes[row])], minlength=len(zones))
    return zones, fully, touched


def _compute_load_increase(live: AssignmentTable, out: npt.NDArray[np.bool_], hits: IntArray) -> float:
    """Return the largest increase of load of a remaining worker, as a fraction of its load before."""
    left = live.sizes - hits
    before, after = np.zeros(live.workers + 1), np.zeros(live.workers + 1)
    usual, moved = 1 / np.maximum(live.sizes, 1), np.where(left > 0, 1 / np.maximum(left, 1), 0.0)
    for column in range(live.slot_indexes.shape[1]):
        before += np.bincount(live.slot_indexes[:, column], weights=usual, minlength=len(before))
        after += np.bincount(live.slot_indexes[:, column], weights=moved, minlength=len(after))
    serving = np.append(~out, False) & (before > 0)
    return max(0.0, float((after[serving] / before[serving] - 1).max(initial=0.0)))
