"""Tables of the workers of every tenant, checked once. Pure.

A table has a row for each tenant: the slot indexes of its shard, each at most once. Rows of smaller shards are filled
with NO_WORKER at the end.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import NO_WORKER, Fleet

IntArray = npt.NDArray[np.int64]
SlotArray = npt.NDArray[np.int32]

MAX_WORKERS = 1 << 24
"""Most workers of a fleet: far more than fleets have, and few enough that counts stay within 63 bits."""


class ShardArray:
    """Different shards: a row of ascending slot indexes for each. Here `workers` stands for no worker, at the end."""

    __slots__ = ("sizes", "slot_indexes", "workers")

    def __init__(self, indexes: SlotArray, sizes: IntArray, workers: int) -> None:
        self.slot_indexes = indexes
        self.sizes = sizes
        self.workers = workers

    def __len__(self) -> int:
        return len(self.sizes)

    def select(self, numbers: IntArray) -> "ShardArray":
        """Return some of the shards, with as many columns as they need."""
        sizes = self.sizes[numbers]
        return ShardArray(self.slot_indexes[:, : sizes.max(initial=0)][numbers], sizes, self.workers)


class DistinctShards(ShardArray):
    """The different shards of a table, in the order of their first rows, and their tenants."""

    __slots__ = ("_rows_by_shard", "_starts", "counts", "first_rows", "numbers")

    def __init__(self, table: "AssignmentTable") -> None:
        self.numbers, self.first_rows = _number_distinct(table.slot_indexes, table.workers)
        super().__init__(table.slot_indexes[self.first_rows], table.sizes[self.first_rows], table.workers)
        self.counts: IntArray = np.bincount(self.numbers, minlength=len(self.first_rows)).astype(np.int64)
        """Number of tenants of each shard."""
        self._rows_by_shard = np.argsort(self.numbers, kind="stable")
        self._starts = np.cumsum(self.counts) - self.counts

    def find_rows(self, number: int, limit: int) -> Sequence[int]:
        """Return the lowest rows of tenants with a shard, in ascending order."""
        start = int(self._starts[number])
        found: list[int] = self._rows_by_shard[start : start + min(limit, int(self.counts[number]))].tolist()
        return found


class AssignmentTable:
    """A checked table, with the slot indexes of every tenant in ascending order. Immutable.

    Pass it instead of an array that would be checked each time. Raises InvalidValue that names an invalid row.
    """

    def __init__(self, table: npt.ArrayLike, workers: int | None = None) -> None:
        array = _check_array(table)
        lowest, highest = (int(array.min()), int(array.max())) if len(array) else (NO_WORKER, NO_WORKER)
        self.workers = highest + 1 if workers is None else workers
        limit = min(self.workers, MAX_WORKERS)
        if highest >= limit or lowest < NO_WORKER:
            wrong = (array < NO_WORKER) | (array >= limit)
            row, column = (int(found[0]) for found in np.nonzero(wrong))
            raise InvalidValue(f"slot {array[row, column]} of tenant {row}: expected 0 to {limit - 1}, or -1 for none")
        indexes = array.astype(np.int32)
        real = indexes != NO_WORKER
        _refuse_rows(indexes, ~real[:, 0], "no worker: expected at least one")
        _refuse_rows(
            indexes, np.any(real[:, 1:] & ~real[:, :-1], axis=1), "a slot after -1: expected -1 at the end only"
        )
        self._sort(indexes)
        equal = (self.slot_indexes[:, 1:] == self.slot_indexes[:, :-1]) & (self.slot_indexes[:, 1:] < self.workers)
        _refuse_rows(indexes, np.any(equal, axis=1), "a worker twice: expected each once")

    @classmethod
    def check(cls, table: "npt.ArrayLike | AssignmentTable", workers: int | None = None) -> "AssignmentTable":
        """Return a checked table for a fleet of `workers`; one that was checked before is returned unchanged."""
        if not isinstance(table, AssignmentTable):
            return cls(table, workers)
        if workers is not None and workers != table.workers:
            raise InvalidValue(f"a table of a fleet of {table.workers} workers: expected one of {workers}")
        return table

    def _sort(self, indexes: SlotArray) -> None:
        """Store rows that may have NO_WORKER anywhere. It becomes `workers`, so that sorting puts it at the end."""
        self.slot_indexes = np.where(indexes == NO_WORKER, np.int32(self.workers), indexes)
        self.slot_indexes.sort(axis=1)
        self.sizes: IntArray = (self.slot_indexes < self.workers).sum(axis=1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.slot_indexes)

    @cached_property
    def distinct_shards(self) -> DistinctShards:
        """The different shards of the table, each with its tenants."""
        return DistinctShards(self)

    def shard(self, row: int) -> tuple[int, ...]:
        return tuple(int(index) for index in self.slot_indexes[row, : self.sizes[row]])

    def without_drained(self, fleet: Fleet) -> "AssignmentTable":
        """Return the table without drained workers, which serve no tenant. A tenant may have no worker left."""
        drained = np.array([*(slot.is_drained for slot in fleet.slots), False])
        if not drained.any():
            return self
        return self._with(np.where(drained[self.slot_indexes], NO_WORKER, self.array()), self.workers)

    def map_slots(self, onto: npt.ArrayLike, count: int) -> "AssignmentTable":
        """Return the table with each slot index i replaced by `onto[i]`, a number below `count`, such as its host's.

        A tenant whose slots get the same number has it once.
        """
        indexes = np.append(np.asarray(onto, dtype=np.int32), np.int32(NO_WORKER))[self.slot_indexes]
        indexes.sort(axis=1)
        indexes[:, 1:][indexes[:, 1:] == indexes[:, :-1]] = NO_WORKER
        return self._with(indexes, count)

    def array(self) -> SlotArray:
        """Return the table as an array, with NO_WORKER at the end of the rows of smaller shards."""
        return np.where(self.slot_indexes < self.workers, self.slot_indexes, np.int32(NO_WORKER))

    def _with(self, indexes: SlotArray, workers: int) -> "AssignmentTable":
        made = AssignmentTable.__new__(AssignmentTable)
        made.workers = workers
        made._sort(indexes)  # noqa: SLF001 - of the same class
        return made


def build_table(shards: Iterable[Sequence[int]]) -> SlotArray:
    """Return a table of shards of any sizes, each given by its slot indexes."""
    rows = list(shards)
    width = max((len(row) for row in rows), default=1)
    filled = [[*row, *[NO_WORKER] * (width - len(row))] for row in rows]
    return np.array(filled, dtype=np.int32).reshape(len(rows), width)


def _check_array(table: npt.ArrayLike) -> npt.NDArray[np.integer]:
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise InvalidValue("a table with rows of different lengths: expected -1 at the end of shorter ones") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidValue(f"a table of shape {array.shape}: expected a row for each tenant, and at least one column")
    if array.dtype.kind not in "iu":
        raise InvalidValue(f"a table of {array.dtype}: expected whole numbers, such as int32")
    return array


def _refuse_rows(indexes: SlotArray, wrong: npt.NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidValue(f"tenant {row} has {what}, found {indexes[row].tolist()}")


def _number_distinct(indexes: SlotArray, workers: int) -> tuple[IntArray, IntArray]:
    """Number the different rows in order of occurrence; return the number of each row, and the first row of each."""
    numbers = np.zeros(len(indexes), dtype=np.int64)
    firsts = np.zeros(min(1, len(indexes)), dtype=np.int64)
    base, bound = workers + 1, 1
    for column in range(indexes.shape[1]):
        # Combine as many columns as fit into one integer, then renumber its different values.
        numbers = numbers * base + indexes[:, column]
        bound *= base
        if column + 1 == indexes.shape[1] or bound * base >= 1 << 62:
            _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
            bound = len(firsts)
    order = np.argsort(firsts)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[numbers], firsts[order].astype(np.int64)
