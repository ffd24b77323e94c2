"""The spread of tenants over workers, and the extra load on others when a worker fails. Pure.

`map_to_hosts` replaces workers by machines, if several workers are on one machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.report.shared_sets import find_shared_sets
from holdfast.shards.report.table import AssignmentTable, IntArray, SlotArray


@dataclass(frozen=True, slots=True)
class LoadRange:
    """The lowest, mean and highest value of the workers in use; all 0 if none is."""

    lowest: float
    mean: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The numbers of tenants that workers have."""

    workers_used: int
    """Workers with a tenant, without drained ones."""
    spare_workers: tuple[str, ...]
    """Workers without a tenant that are not drained."""
    tenants_per_worker: LoadRange
    tenants_per_weight: LoadRange
    """Tenants of a worker divided by its weight, which is even if shards honour weights."""


def compute_load(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> Load:
    """Compute the numbers of tenants of the workers that are not drained."""
    live = AssignmentTable.check(table, len(fleet)).without_drained(fleet)
    tenants = count_tenants_per_worker(live)
    used = tenants > 0
    weights = np.array([slot.weight for slot in fleet.slots], dtype=np.float64)
    return Load(
        workers_used=int(used.sum()),
        spare_workers=tuple(
            slot.worker for slot, count in zip(fleet.slots, tenants, strict=True) if not count and not slot.is_drained
        ),
        tenants_per_worker=_summarize(tenants[used].astype(np.float64)),
        tenants_per_weight=_summarize(tenants[used] / weights[used]),
    )


def count_tenants_per_worker(table: AssignmentTable) -> IntArray:
    """Return the number of tenants of each worker."""
    return np.bincount(table.slot_indexes.ravel(), minlength=table.workers + 1)[: table.workers].astype(np.int64)


def compute_headroom(table: npt.ArrayLike | AssignmentTable, workers: int) -> float | None:
    """Return the headroom that every worker needs so that the others can take over when any one worker fails.

    Every tenant spreads its work evenly over its shard, and over the rest of it when one worker fails. The headroom is
    the largest increase of load of any worker, as a fraction: 1.0 is twice the load. Return None if a tenant has a
    single worker, because no worker could take over.
    """
    if workers < 0:
        raise InvalidValue(f"a fleet of {workers} workers: expected 0 or more")
    checked = AssignmentTable.check(table, workers)
    distinct, sizes = checked.distinct_shards, checked.distinct_shards.sizes
    if (sizes == 1).any():
        return None
    # The load of a tenant on each of its workers, and its extra load there once one of them has failed.
    several = np.maximum(sizes, 2)
    usual = distinct.counts / several
    moved = distinct.counts * (1 / (several - 1) - 1 / several)
    total = np.zeros(workers + 1)
    for column in range(distinct.slot_indexes.shape[1]):
        total += np.bincount(distinct.slot_indexes[:, column], weights=usual, minlength=workers + 1)
    total[workers] = np.inf  # the index that stands for no worker
    # First pairs of workers that one shard has, then pairs that several shards have: either of the two may fail.
    alone = moved / total[distinct.slot_indexes].min(axis=1, initial=np.inf)
    highest = float(alone.max(initial=0.0))
    for shared in find_shared_sets(distinct, 2):
        if shared.size == 2:
            both = np.add.reduceat(moved[shared.shards], shared.starts)
            highest = max(highest, float((both / total[shared.workers].min(axis=1)).max()))
    return highest


def _summarize(values: npt.NDArray[np.float64]) -> LoadRange:
    if not len(values):
        return LoadRange(0.0, 0.0, 0.0)
    return LoadRange(float(values.min()), float(values.mean()), float(values.max()))


@dataclass(frozen=True, slots=True)
class SharedHost:
    """A machine with several workers."""

    host: str
    workers: tuple[str, ...]


def find_shared_hosts(fleet: Fleet) -> tuple[SharedHost, ...]:
    """Return the machines with several workers."""
    return tuple(SharedHost(host, workers) for host, workers in fleet.shared_hosts().items())


def map_to_hosts(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> tuple[Fleet, SlotArray]:
    """Return a fleet of machines, and the table with machines instead of workers.

    A worker without a known machine counts as a machine. A machine has the total weight of its workers and the group of
    the first one, and is drained if all are. Raise InvalidValue if a worker without a machine has the name of one.
    """
    slots = []
    for name, indexes in _list_machines(fleet):
        members = [fleet.slots[index] for index in indexes]
        slots.append(
            Slot(
                worker=name,
                group=members[0].group,
                weight=sum(slot.weight for slot in members),
                is_drained=all(slot.is_drained for slot in members),
            )
        )
    return Fleet(slots=tuple(slots)), map_table_to_hosts(fleet, table).array()


def map_table_to_hosts(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> AssignmentTable:
    """Return the table with machines instead of workers; a machine with two workers of a tenant counts once."""
    machines = _list_machines(fleet)
    onto = np.zeros(len(fleet), dtype=np.int32)
    for number, (_, indexes) in enumerate(machines):
        onto[indexes] = number
    return AssignmentTable.check(table, len(fleet)).map_slots(onto, len(machines))


def _list_machines(fleet: Fleet) -> Sequence[tuple[str, list[int]]]:
    """Return every machine and its slot indexes, in the order of their first slots."""
    indexes: dict[tuple[str, bool], list[int]] = {}
    for index, slot in enumerate(fleet.slots):
        name = slot.worker if slot.host is None else slot.host
        indexes.setdefault((name, slot.host is None), []).append(index)
    return [(name, some) for (name, _), some in indexes.items()]
