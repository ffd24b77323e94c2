"""One worker of each group, any two shards with at most size - 2 in common: the last worker checks the others. Pure.

The workers of all groups but the last are free, and the last one makes the sum zero. Two shards that differ in one
worker therefore differ in another: a code with one check symbol. It needs no prime, only something to add in: numbers
modulo the workers of a group, and exclusive or for every doubling.

When every group is doubled, the shards there are stay. The new ones are the same once more for every way to go over to
the new half in an even number of groups: those that go over in most groups first, where nobody is yet.
"""

from collections.abc import Sequence
from itertools import product
from operator import add

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment

MAX_DOUBLED_GROUPS = 12
"""Groups that can be doubled: there are 2,047 ways then to go over to the new half."""


class Parity:
    """`groups` groups of `start` workers each, doubled `doublings` times; worker w of group g is g * per_group + w."""

    def __init__(self, groups: int, start: int, doublings: int = 0) -> None:
        if groups < 2 or start < 1 or not 0 <= doublings <= 32:
            raise InvalidValue(
                f"{groups} groups of {start} workers, doubled {doublings} times: expected 2 groups, 1 worker, 0 to 32"
            )
        if doublings and groups > MAX_DOUBLED_GROUPS:
            raise InvalidValue(
                f"shards of {groups} that were doubled: expected {MAX_DOUBLED_GROUPS} workers at the most, because "
                "there are twice as many ways to go over for each"
            )
        self.size = groups
        self.overlap = groups - 2
        self.start = start
        self.doublings = doublings
        self.patterns = _patterns(groups) if doublings else ()
        self.steps = _steps(groups)
        self.per_group = start << doublings
        self.workers = groups * self.per_group
        self.capacity = int(self.per_group ** (groups - 1))
        self._first_capacity = start ** (groups - 1)
        placed = [(group * self.per_group, step) for group, step in enumerate(self.steps)]
        self._middle, self._last = placed[1:-1], placed[-1]

    @property
    def segments(self) -> Sequence[Segment]:
        first = self.start ** (self.size - 2)
        found = [Segment(0, self.start, first)]
        known = self.start * first
        for _ in range(self.doublings):
            for _ in self.patterns:
                found.append(Segment(found[-1].end, self.start, known // self.start))
            known <<= self.size - 1
        return tuple(found)

    def double(self) -> "Parity":
        """The design on twice the workers in every group, with the same shards at the same numbers, and more."""
        return Parity(self.size, self.start, self.doublings + 1)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        found = self.shard_in_class(*divmod(number % self._first_capacity, self.start))
        return tuple(map(add, found, self._halves(number))) if self.doublings else found

    def shard_in_class(self, index: int, move: int) -> tuple[int, ...]:
        """The shard at a position of a class of the first workers: all are moved on by the same steps in each group."""
        start, total = self.start, 0
        workers = [move]
        for first, step in self._middle:
            index, worker = divmod(index, start)
            total += worker
            workers.append(first + (worker + step * move) % start)
        first, step = self._last
        workers.append(first + (step * move - total) % start)
        return tuple(workers)

    def _halves(self, number: int) -> Sequence[int]:
        """How far a shard is moved in each group, to the half that it is in, of the halves that doublings made."""
        firsts = [0] * self.size
        known = self.capacity
        for doubling in range(self.doublings - 1, -1, -1):
            known >>= self.size - 1
            which, number = divmod(number, known)
            if which:
                half = self.start << doubling
                for group, goes_over in enumerate(self.patterns[which - 1]):
                    firsts[group] += half * goes_over
        return firsts


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
