"""Which workers every tenant has, as a table of numbers that was checked once. Pure.

A table has a row for each tenant: the places (slots of the fleet) of its shard, each at most once, and -1 at the end of
the rows of smaller shards.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]

LARGEST = 1 << 24
"""Most workers of a fleet: far more than there are, and few enough that what is counted stays within 63 bits."""


class Shards:
    """Different shards: places in ascending order, and what is no worker as a number above all."""

    __slots__ = ("places", "sizes", "workers")

    def __init__(self, places: Places, sizes: Ints, workers: int) -> None:
        self.places = places
        self.sizes = sizes
        self.workers = workers

    def __len__(self) -> int:
        return len(self.sizes)

    def only(self, numbers: Ints) -> "Shards":
        """Some of them, with as many columns as they need."""
        sizes = self.sizes[numbers]
        return Shards(self.places[:, : sizes.max(initial=0)][numbers], sizes, self.workers)


class Distinct(Shards):
    """The different shards of a table, in the order in which they first occur, and who has them."""

    __slots__ = ("_members", "_starts", "counts", "firsts", "numbers")

    def __init__(self, table: "Table") -> None:
        self.numbers, self.firsts = _number(table.places, table.workers)
        super().__init__(table.places[self.firsts], table.sizes[self.firsts], table.workers)
        self.counts: Ints = np.bincount(self.numbers, minlength=len(self.firsts)).astype(np.int64)
        """For each shard, how many tenants have it."""
        self._members = np.argsort(self.numbers, kind="stable")
        self._starts = np.cumsum(self.counts) - self.counts

    def tenants(self, number: int, limit: int) -> Sequence[int]:
        """The rows of those who have a shard, the lowest first."""
        start = int(self._starts[number])
        found: list[int] = self._members[start : start + min(limit, int(self.counts[number]))].tolist()
        return found


class Table:
    """A table that was checked: the places of every tenant in ascending order. Immutable.

    Hand it over in place of the array, which is then checked only once. Raises InvalidValue with the row that is wrong.
    """

    def __init__(self, table: npt.ArrayLike, workers: int | None = None) -> None:
        array = _array(table)
        lowest, highest = (int(array.min()), int(array.max())) if len(array) else (-1, -1)
        self.workers = highest + 1 if workers is None else workers
        if highest >= min(self.workers, LARGEST) or lowest < -1:
            wrong = (array < -1) | (array >= min(self.workers, LARGEST))
            row, column = (int(found[0]) for found in np.nonzero(wrong))
            most = min(self.workers, LARGEST) - 1
            raise InvalidValue(f"place {array[row, column]} of tenant {row}: expected 0 to {most}, or -1 for none")
        places = array.astype(np.int32)
        real = places >= 0
        _refuse(places, ~real[:, 0], "no worker: expected one at least")
        _refuse(places, np.any(real[:, 1:] & ~real[:, :-1], axis=1), "a place after -1: expected -1 at the end only")
        self._sort(places)
        equal = (self.places[:, 1:] == self.places[:, :-1]) & (self.places[:, 1:] < self.workers)
        _refuse(places, np.any(equal, axis=1), "a worker twice: expected each once")

    @classmethod
    def of(cls, table: "npt.ArrayLike | Table", workers: int | None = None) -> "Table":
        """A table that was checked already, as it is; else the array, checked. Of a fleet of so many workers."""
        if not isinstance(table, Table):
            return cls(table, workers)
        if workers is not None and workers != table.workers:
            raise InvalidValue(f"a table of a fleet of {table.workers} workers: expected one of {workers}")
        return table

    def _sort(self, places: Places) -> None:
        """Take rows with -1 anywhere. Inside, what is no worker is a number above all, so that rows can be sorted."""
        self.places = np.where(places < 0, np.int32(self.workers), places)
        self.places.sort(axis=1)
        self.sizes: Ints = (self.places < self.workers).sum(axis=1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def distinct(self) -> Distinct:
        """The different shards there are."""
        return Distinct(self)

    def shard(self, row: int) -> tuple[int, ...]:
        """The places of one tenant."""
        return tuple(int(place) for place in self.places[row, : self.sizes[row]])

    def live(self, fleet: Fleet) -> "Table":
        """Without the workers that are drained: they serve nobody. A tenant may have none left."""
        drained = np.array([*(slot.is_drained for slot in fleet.slots), False])
        if not drained.any():
            return self
        return self._with(np.where(drained[self.places], -1, self.array()), self.workers)

    def mapped(self, onto: npt.ArrayLike, count: int) -> "Table":
        """With every place replaced by another, one of `count`. What a tenant then has twice counts once."""
        places = np.append(np.asarray(onto, dtype=np.int32), np.int32(-1))[self.places]
        places.sort(axis=1)
        places[:, 1:][places[:, 1:] == places[:, :-1]] = -1
        return self._with(places, count)

    def array(self) -> Places:
        """As an array again, with -1 at the end of the rows of smaller shards."""
        return np.where(self.places < self.workers, self.places, np.int32(-1))

    def _with(self, places: Places, workers: int) -> "Table":
        made = Table.__new__(Table)
        made.workers = workers
        made._sort(places)  # noqa: SLF001 - of its own kind
        return made


def table_of(shards: Iterable[Sequence[int]]) -> Places:
    """The table of shards of any sizes, each the places of one tenant."""
    rows = list(shards)
    width = max((len(row) for row in rows), default=1)
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], dtype=np.int32).reshape(len(rows), width)


def _array(table: npt.ArrayLike) -> npt.NDArray[np.integer]:
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise InvalidValue("a table with rows of different lengths: expected -1 at the end of shorter ones") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidValue(f"a table of shape {array.shape}: expected a row for each tenant, and a column at least")
    if array.dtype.kind not in "iu":
        raise InvalidValue(f"a table of {array.dtype}: expected whole numbers, such as int32")
    return array


def _refuse(places: Places, wrong: npt.NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidValue(f"tenant {row} has {what}, found {places[row].tolist()}")


def _number(places: Places, workers: int) -> tuple[Ints, Ints]:
    """For each row which different one it is, in the order in which they first occur; and where each first occurs."""
    numbers = np.zeros(len(places), dtype=np.int64)
    firsts = np.zeros(min(1, len(places)), dtype=np.int64)
    base, bound = workers + 1, 1
    for column in range(places.shape[1]):
        # As many columns as fit are one number; then what is different so far is numbered anew.
        numbers = numbers * base + places[:, column]
        bound *= base
        if column + 1 == places.shape[1] or bound * base >= 1 << 62:
            _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
            bound = len(firsts)
    order = np.argsort(firsts)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[numbers], firsts[order].astype(np.int64)
