"""What every design promises, and the simple designs: disjoint shards, pairs, tuples, copies of another. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast._errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.shards.designs.parity import Parity
    from holdfast.shards.designs.polynomials import Polynomials


@dataclass(frozen=True, slots=True)
class Segment:
    """Shards in a row that are made of classes. Those of one class load all workers alike, or as nearly as can be."""

    first: int
    class_size: int
    """Shards in a class."""
    classes: int

    @property
    def end(self) -> int:
        return self.first + self.class_size * self.classes


class Design(Protocol):
    """Shards by number. Immutable, and small however many shards there are."""

    @property
    def workers(self) -> int:
        """How many workers it places shards on: 0 to one less."""

    @property
    def size(self) -> int:
        """Workers in a shard."""

    @property
    def overlap(self) -> int:
        """The most workers that two different shards have in common."""

    @property
    def capacity(self) -> int:
        """How many shards there are: 0 to one less."""

    @property
    def segments(self) -> Sequence[Segment]:
        """All shards, in classes: whoever fills one after the other loads all workers alike."""

    def shard(self, number: int) -> tuple[int, ...]:
        """The workers of a shard, all different. In constant time. Raises InvalidValue past the capacity."""


class Disjoint:
    """`groups` groups of `start` workers each, doubled `doublings` times; worker w of group g is g * per_group + w."""

    overlap = 0

    def __init__(self, groups: int, start: int, doublings: int = 0) -> None:
        if groups < 1 or start < 1 or not 0 <= doublings <= 32:
            raise InvalidValue(
                f"{groups} groups of {start} workers, doubled {doublings} times: expected 1 group, 1 worker, 0 to 32"
            )
        self.size = groups
        self.per_group = self.capacity = start << doublings
        self.workers = groups * self.per_group
        self._start = start
        self._doublings = doublings

    @property
    def segments(self) -> Sequence[Segment]:
        halves = (self._start << doubling for doubling in range(self._doublings))
        return (Segment(0, self._start, 1), *(Segment(half, half, 1) for half in halves))

    def double(self) -> "Disjoint":
        """The design on twice the workers in every group, the same shards at the same numbers, and as many more."""
        return Disjoint(self.size, self._start, self._doublings + 1)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        return tuple(range(number, self.workers, self.per_group))


class Pairs:
    """The design on so many workers, without groups."""

    size = 2
    overlap = 1

    def __init__(self, workers: int) -> None:
        if workers < 2:
            raise InvalidValue(f"pairs of {workers} workers: expected 2 or more")
        self.workers = workers
        self.capacity = workers * (workers - 1) // 2

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


class Tuples:
    """The design on `groups` groups of `per_group` workers each; worker w of group g is g * per_group + w."""

    def __init__(self, groups: int, per_group: int) -> None:
        if groups < 1 or per_group < 1:
            raise InvalidValue(f"{groups} groups of {per_group} workers: expected 1 or more of each")
        self.size = groups
        self.overlap = groups - 1
        self.per_group = per_group
        self.workers = groups * per_group
        self.capacity = int(per_group**groups)

    @property
    def segments(self) -> Sequence[Segment]:
        return (Segment(0, self.per_group, self.per_group ** (self.size - 1)),)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        per_group = self.per_group
        number, step = divmod(number, per_group)
        found = [step]
        for group in range(1, self.size):
            number, worker = divmod(number, per_group)
            found.append(group * per_group + (worker + step) % per_group)
        return tuple(found)


class Families:
    """`count` copies of a design, each on workers of its own: worker w of family f is f * design.workers + w.

    For fleets with more groups than a shard has workers: each family has some of the groups. Families are dealt in
    turn, so that they fill alike, and a shard keeps its number when the design is doubled.
    """

    def __init__(self, design: "Disjoint | Parity | Polynomials | Tuples", count: int) -> None:
        if count < 1:
            raise InvalidValue(f"{count} families: expected 1 or more")
        self.design = design
        self.count = count
        self.size = design.size
        self.overlap = design.overlap
        self.workers = design.workers * count
        self.capacity = design.capacity * count

    @property
    def segments(self) -> Sequence[Segment]:
        return tuple(
            Segment(segment.first * self.count, segment.class_size * self.count, segment.classes)
            for segment in self.design.segments
        )

    def shard(self, number: int) -> tuple[int, ...]:
        number, family = divmod(number, self.count)
        first = family * self.design.workers
        return tuple([first + worker for worker in self.design.shard(number)])
