"""One worker of each group, any two shards with at most size - 2 in common: a parity design. Pure.

A parity design works like a check digit: workers of all groups but the last are free, and the last one makes the sum of
all zero. So two shards that differ in one worker differ in another, too. Numbers are added modulo the workers of a
group, and by exclusive or for every doubling, so that no prime is needed.

When every group is doubled, existing shards stay. New shards are copies of them that move to the new half in an even
number of groups. Copies that move in most groups come first, because the new halves have no tenants yet.
"""

from collections.abc import Sequence
from itertools import product
from operator import add

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment

MAX_DOUBLED_GROUPS = 12
"""Most groups of a doubled design: twelve have 2,047 patterns of moves to the new half."""


class Parity:
    """Shards with one worker of every group, of which any two share at most size - 2.

    A group has `start << doublings` workers. Worker w of group g is g * per_group + w.
    """

    def __init__(self, groups: int, start: int, doublings: int = 0) -> None:
        if groups < 2 or start < 1 or not 0 <= doublings <= 32:
            raise InvalidValue(
                f"{groups} groups of {start} workers, doubled {doublings} times: expected 2 or more, 1 or more, 0 to 32"
            )
        if doublings and groups > MAX_DOUBLED_GROUPS:
            raise InvalidValue(
                f"doubled shards of {groups} workers: expected at most {MAX_DOUBLED_GROUPS}, because every worker more "
                "doubles the patterns of moves"
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
        """Return the design with twice the workers per group: the same shards at the same numbers, and new ones."""
        return Parity(self.size, self.start, self.doublings + 1)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        found = self.shard_in_class(*divmod(number % self._first_capacity, self.start))
        return tuple(map(add, found, self._halves(number))) if self.doublings else found

    def shard_in_class(self, index: int, position: int) -> tuple[int, ...]:
        """Return the shard at `position` in the class `index`, in the design before it was doubled.

        From one position to the next, the worker of each group moves on by a fixed number.
        """
        start, total = self.start, 0
        workers = [position]
        for first, step in self._middle:
            index, worker = divmod(index, start)
            total += worker
            workers.append(first + (worker + step * position) % start)
        first, step = self._last
        workers.append(first + (step * position - total) % start)
        return tuple(workers)

    def _halves(self, number: int) -> Sequence[int]:
        """Return how far a shard is moved in each group by the halves that doublings put it in."""
        firsts = [0] * self.size
        known = self.capacity
        for doubling in range(self.doublings - 1, -1, -1):
            known >>= self.size - 1
            which, number = divmod(number, known)
            if which:
                half = self.start << doubling
                for group, moves in enumerate(self.patterns[which - 1]):
                    firsts[group] += half * moves
        return firsts


def _steps(groups: int) -> Sequence[int]:
    """Return how far each group advances from one shard of a class to the next. The sum is zero.

    If no step has a factor in common with the number of workers, a class has every worker once. For an odd number of
    groups of an even number of workers there are no such steps; then two classes together have every worker twice.
    """
    alternating = [1, -1] * (groups // 2)
    return alternating if groups % 2 == 0 else [*alternating[:-2], 1, 1, -2]


def _patterns(groups: int) -> Sequence[tuple[int, ...]]:
    """Return patterns of groups that move to the new half, 1 for each: of even sum, not 0, the largest sums first."""
    found = [pattern for pattern in product((0, 1), repeat=groups) if sum(pattern) % 2 == 0 and any(pattern)]
    return sorted(found, key=lambda pattern: (-sum(pattern), pattern))
