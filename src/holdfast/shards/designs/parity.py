"""One worker of each group, any two shards with at most size - 2 in common: the last worker checks the others.

The workers of all groups but the last are free, and the last one makes the sum zero. Two shards that differ in one
worker therefore differ in another: a code with one check symbol. It needs no prime, only something to add in: numbers
modulo the workers of a group, and exclusive or for every doubling. There are as many shards as ways to choose the free
ones.

When every group is doubled, the shards there are stay what they are. The new ones are the same once more for every way
to go over to the new half in an even number of groups: those that go over in most groups first, where nobody is yet.
"""

from collections.abc import Sequence
from itertools import product

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment


class Parity:
    """The design on `groups` groups that began with `start` workers each and were doubled so many times.

    Worker w of group g is g * per_group + w.
    """

    __slots__ = ("_doublings", "_patterns", "_start", "_steps", "size")

    def __init__(self, groups: int, start: int, doublings: int = 0) -> None:
        if groups < 2 or start < 1 or not 0 <= doublings <= 32:
            raise InvalidValue(
                f"{groups} groups of {start} workers, doubled {doublings} times: expected 2 groups, 1 worker, 0 to 32"
            )
        self.size = groups
        self._start = start
        self._doublings = doublings
        self._patterns = _patterns(groups)
        self._steps = _steps(groups)

    @property
    def overlap(self) -> int:
        return self.size - 2

    @property
    def per_group(self) -> int:
        return self._start << self._doublings

    @property
    def workers(self) -> int:
        return self.size * self.per_group

    @property
    def capacity(self) -> int:
        return int(self.per_group ** (self.size - 1))

    @property
    def segments(self) -> Sequence[Segment]:
        first = self._start ** (self.size - 2)
        found = [Segment(0, self._start, first)]
        known = self._start * first
        for _ in range(self._doublings):
            for _ in self._patterns:
                found.append(Segment(found[-1].end, self._start, known // self._start))
            known <<= self.size - 1
        return tuple(found)

    def doubled(self) -> "Parity":
        """The design on twice the workers in every group, with the same shards at the same numbers, and more."""
        return Parity(self.size, self._start, self._doublings + 1)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        halves = [0] * self.size
        known = self.capacity
        for doubling in range(self._doublings - 1, -1, -1):
            known >>= self.size - 1
            which, number = divmod(number, known)
            if which:
                half = self._start << doubling
                for group, goes_over in enumerate(self._patterns[which - 1]):
                    halves[group] += half * goes_over
        per_group = self.per_group
        return tuple(
            group * per_group + half + worker
            for group, (half, worker) in enumerate(zip(halves, self._first(number), strict=True))
        )

    def _first(self, number: int) -> Sequence[int]:
        """A shard of the first workers: a class is moved on by the same steps in each group."""
        start = self._start
        number, move = divmod(number, start)
        free = [0]
        for _ in range(self.size - 2):
            number, worker = divmod(number, start)
            free.append(worker)
        free.append(-sum(free))
        return [(worker + step * move) % start for worker, step in zip(free, self._steps, strict=True)]


def _steps(groups: int) -> Sequence[int]:
    """How far each group goes from one shard of a class to the next: together nothing.

    If each step has no factor in common with the number of workers, a class has every worker once. For an odd number of
    groups of an even number of workers there are no such steps; then two classes together have every worker twice.
    """
    there_and_back = [1, -1] * (groups // 2)
    return there_and_back if groups % 2 == 0 else [*there_and_back[:-2], 1, 1, -2]


def _patterns(groups: int) -> Sequence[tuple[int, ...]]:
    """The ways to go over to the new half: in an even number of groups, most first, and not in none."""
    found = [pattern for pattern in product((0, 1), repeat=groups) if sum(pattern) % 2 == 0 and any(pattern)]
    return sorted(found, key=lambda pattern: (-sum(pattern), pattern))
