"""One worker of each group, and shards that share nothing: plain sharding. There are as many as workers in a group.

When every group is doubled, the shards there are stay what they are, and as many come after them. Pure.
"""

from collections.abc import Sequence

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment


class Disjoint:
    """The design on `groups` groups that began with `start` workers each and were doubled so many times.

    Worker w of group g is g * per_group + w.
    """

    __slots__ = ("_doublings", "_start", "capacity", "per_group", "size")

    overlap = 0

    def __init__(self, groups: int, start: int, doublings: int = 0) -> None:
        if groups < 1 or start < 1 or not 0 <= doublings <= 32:
            raise InvalidValue(
                f"{groups} groups of {start} workers, doubled {doublings} times: expected 1 group, 1 worker, 0 to 32"
            )
        self.size = groups
        self.per_group = self.capacity = start << doublings
        self._start = start
        self._doublings = doublings

    @property
    def workers(self) -> int:
        return self.size * self.per_group

    @property
    def segments(self) -> Sequence[Segment]:
        halves = (self._start << doubling for doubling in range(self._doublings))
        return (Segment(0, self._start, 1), *(Segment(half, half, 1) for half in halves))

    def doubled(self) -> "Disjoint":
        """The design on twice the workers in every group, the same shards at the same numbers, and as many more."""
        return Disjoint(self.size, self._start, self._doublings + 1)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        return tuple(range(number, self.workers, self.per_group))
