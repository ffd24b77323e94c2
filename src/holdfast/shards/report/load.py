"""How evenly tenants are spread over workers, and what the loss of one worker asks of the others. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet
from holdfast.shards.report.table import Ints, Table
from holdfast.shards.report.walk import walk


@dataclass(frozen=True, slots=True)
class Range:
    """From the lowest to the highest, over the workers that are in use; all 0 if none is."""

    lowest: float
    mean: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many tenants workers have."""

    used: int
    """Workers with a tenant, those that are drained left out."""
    spare: tuple[str, ...]
    """Workers without one that could take some."""
    tenants: Range
    """Tenants of a worker."""
    weighted: Range
    """Tenants of a worker divided by its weight: what is even if weights are heeded."""


def load(fleet: Fleet, table: npt.ArrayLike | Table) -> Load:
    """How many tenants the workers have that take any work."""
    live = Table.of(table, len(fleet)).live(fleet)
    tenants = tenants_of(live)
    used = tenants > 0
    weights = np.array([slot.weight for slot in fleet.slots], dtype=np.float64)
    return Load(
        used=int(used.sum()),
        spare=tuple(
            slot.worker for slot, count in zip(fleet.slots, tenants, strict=True) if not count and not slot.is_drained
        ),
        tenants=_range(tenants[used].astype(np.float64)),
        weighted=_range(tenants[used] / weights[used]),
    )


def tenants_of(table: Table) -> Ints:
    """For each worker, how many tenants have it."""
    return np.bincount(table.places.ravel(), minlength=table.workers + 1)[: table.workers].astype(np.int64)


def slack(table: npt.ArrayLike | Table, workers: int) -> float | None:
    """How much more than usual a worker must be able to take, so that the loss of any one other is borne.

    Every tenant spreads its work evenly over its shard; when one worker fails, over what is left. It is the largest
    relative rise at any worker, whichever one fails: 1.0 is twice the load. None where a tenant has one worker only:
    nobody takes over from it, whatever there is to spare.
    """
    if workers < 0:
        raise InvalidValue(f"a fleet of {workers} workers: expected 0 or more")
    checked = Table.of(table, workers)
    distinct, sizes = checked.distinct, checked.distinct.sizes
    if (sizes == 1).any():
        return None
    # What a tenant puts on each of its workers, and what it puts there in addition once one of them has failed.
    several = np.maximum(sizes, 2)
    usual = distinct.counts / several
    moved = distinct.counts * (1 / (several - 1) - 1 / several)
    total = np.zeros(workers + 1)
    for column in range(distinct.places.shape[1]):
        total += np.bincount(distinct.places[:, column], weights=usual, minlength=workers + 1)
    total[workers] = np.inf  # stands for no worker
    # For pairs of workers that only one shard has, and then for all that several have: whichever of the two fails.
    alone = moved / total[distinct.places].min(axis=1, initial=np.inf)
    highest = float(alone.max(initial=0.0))
    for shared in walk(distinct, 2):
        if shared.size == 2:
            both = np.add.reduceat(moved[shared.shards], shared.starts)
            highest = max(highest, float((both / total[shared.workers].min(axis=1)).max()))
    return highest


def _range(values: npt.NDArray[np.float64]) -> Range:
    if not len(values):
        return Range(0.0, 0.0, 0.0)
    return Range(float(values.min()), float(values.mean()), float(values.max()))
