"""How evenly tenants are spread over workers, and what the loss of one worker asks of the others. Pure.

`by_host` puts machines in place of workers, where several workers are on one machine.
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
    """From the lowest to the highest, over the workers that are in use; all 0 if none is."""

    lowest: float
    mean: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many tenants workers have."""

    workers_used: int
    """Workers with a tenant, those that are drained left out."""
    spare_workers: tuple[str, ...]
    """Workers without one that could take some."""
    tenants_per_worker: LoadRange
    """Tenants of a worker."""
    tenants_per_weight: LoadRange
    """Tenants of a worker divided by its weight: what is even if weights are heeded."""


def compute_load(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> Load:
    """How many tenants the workers have that take any work."""
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
    """For each worker, how many tenants have it."""
    return np.bincount(table.slot_indexes.ravel(), minlength=table.workers + 1)[: table.workers].astype(np.int64)


def compute_headroom(table: npt.ArrayLike | AssignmentTable, workers: int) -> float | None:
    """Return how much more than usual a worker must be able to take, so that the loss of any one other is borne.

    Every tenant spreads its work evenly over its shard, and when one worker fails over the rest. It is the largest
    relative rise at any worker: 1.0 is twice the load. None where a tenant has one worker only: nobody takes over.
    """
    if workers < 0:
        raise InvalidValue(f"a fleet of {workers} workers: expected 0 or more")
    checked = AssignmentTable.check(table, workers)
    distinct, sizes = checked.distinct, checked.distinct.sizes
    if (sizes == 1).any():
        return None
    # What a tenant puts on each of its workers, and what it puts there in addition once one of them has failed.
    several = np.maximum(sizes, 2)
    usual = distinct.counts / several
    moved = distinct.counts * (1 / (several - 1) - 1 / several)
    total = np.zeros(workers + 1)
    for column in range(distinct.slot_indexes.shape[1]):
        total += np.bincount(distinct.slot_indexes[:, column], weights=usual, minlength=workers + 1)
    total[workers] = np.inf  # stands for no worker
    # For pairs of workers that only one shard has, and then for all that several have: whichever of the two fails.
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
    """A machine with several workers on it."""

    host: str
    workers: tuple[str, ...]


def find_shared_hosts(fleet: Fleet) -> tuple[SharedHost, ...]:
    """The machines with several workers, and which."""
    return tuple(SharedHost(host, workers) for host, workers in fleet.shared_hosts().items())


def map_to_hosts(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> tuple[Fleet, SlotArray]:
    """Return a fleet of machines, and the table with machines in place of workers.

    A worker without a known machine is one itself. A machine weighs what its workers weigh together, is where the first
    of them is, and is drained once all are. Raises InvalidValue if a worker without a machine has the name of one.
    """
    slots = []
    for name, indexes in _list_machines(fleet):
        some = [fleet.slots[index] for index in indexes]
        slots.append(
            Slot(
                worker=name,
                group=some[0].group,
                weight=sum(slot.weight for slot in some),
                is_drained=all(slot.is_drained for slot in some),
            )
        )
    return Fleet(slots=tuple(slots)), map_table_to_hosts(fleet, table).array()


def map_table_to_hosts(fleet: Fleet, table: npt.ArrayLike | AssignmentTable) -> AssignmentTable:
    """Which machines tenants have; one that a tenant has two workers on counts once."""
    machines = _list_machines(fleet)
    onto = np.zeros(len(fleet), dtype=np.int32)
    for number, (_, indexes) in enumerate(machines):
        onto[indexes] = number
    return AssignmentTable.check(table, len(fleet)).map_slots(onto, len(machines))


def _list_machines(fleet: Fleet) -> Sequence[tuple[str, list[int]]]:
    """Every machine and the slots on it, in the order of their first slots."""
    indexes: dict[tuple[str, bool], list[int]] = {}
    for index, slot in enumerate(fleet.slots):
        name = slot.worker if slot.host is None else slot.host
        indexes.setdefault((name, slot.host is None), []).append(index)
    return [(name, some) for (name, _), some in indexes.items()]
