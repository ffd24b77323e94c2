"""The same design several times over, each time on workers of its own: shards of different families share nothing.

For fleets with more groups than a shard has workers: each family has some of the groups. Families are dealt in turn, so
that they fill alike, and a shard keeps its number when the design is doubled. Pure.
"""

from collections.abc import Sequence

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Disjoint, Segment, Tuples
from holdfast.shards.designs.parity import Parity
from holdfast.shards.designs.polynomials import Polynomials


class Families:
    """`count` copies of a design; worker w of family f is f * one.workers + w."""

    __slots__ = ("count", "one", "overlap", "size")

    def __init__(self, one: Disjoint | Parity | Polynomials | Tuples, count: int) -> None:
        if count < 1:
            raise InvalidValue(f"{count} families: expected 1 or more")
        self.one = one
        self.count = count
        self.size = one.size
        self.overlap = one.overlap

    @property
    def workers(self) -> int:
        return self.one.workers * self.count

    @property
    def capacity(self) -> int:
        return self.one.capacity * self.count

    @property
    def segments(self) -> Sequence[Segment]:
        return tuple(
            Segment(segment.first * self.count, segment.class_size * self.count, segment.classes)
            for segment in self.one.segments
        )

    def shard(self, number: int) -> tuple[int, ...]:
        number, family = divmod(number, self.count)
        first = family * self.one.workers
        return tuple([first + worker for worker in self.one.shard(number)])
