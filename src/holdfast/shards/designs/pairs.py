"""Shards of two workers, every pair once: two shards share one at the most, and there are no more than these. Pure.

Pairs of the same distance around a ring of all workers are moves of each other, and have every worker twice: a class.
Only those of opposite workers have each once.
"""

from collections.abc import Sequence

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment


class Pairs:
    """The design on so many workers, without groups."""

    __slots__ = ("workers",)

    size = 2
    overlap = 1

    def __init__(self, workers: int) -> None:
        if workers < 2:
            raise InvalidValue(f"pairs of {workers} workers: expected 2 or more")
        self.workers = workers

    @property
    def capacity(self) -> int:
        return self.workers * (self.workers - 1) // 2

    @property
    def segments(self) -> Sequence[Segment]:
        full = Segment(0, self.workers, (self.workers - 1) // 2)
        opposite = Segment(full.end, self.workers // 2, 1 - self.workers % 2)
        return tuple(segment for segment in (full, opposite) if segment.classes)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        distance, worker = divmod(number, self.workers)
        return worker, (worker + distance + 1) % self.workers
