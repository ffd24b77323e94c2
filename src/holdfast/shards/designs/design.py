"""The protocol of designs, and the simple designs: disjoint shards, pairs, tuples, copies of a design. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast._errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.shards.designs.parity import Parity
    from holdfast.shards.designs.polynomials import Polynomials


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive shards, divided into classes. The shards of a class load all workers equally, or nearly so."""

    first: int
    class_size: int
    classes: int

    @property
    def end(self) -> int:
        return self.first + self.class_size * self.classes


class Design(Protocol):
    """Numbered shards. Immutable; takes little memory even with millions of shards."""

    @property
    def workers(self) -> int:
        """Number of workers; they are numbered from 0."""

    @property
    def size(self) -> int:
        """Workers per shard."""

    @property
    def overlap(self) -> int:
        """Most workers that two different shards have in common."""

    @property
    def capacity(self) -> int:
        """Number of shards; they are numbered from 0."""

    @property
    def segments(self) -> Sequence[Segment]:
        """All shard numbers, as consecutive ranges. Each range is divided into classes.

        A class is a number of consecutive shards, which together use every worker equally often. All classes of a range
        have equally many.
        """

    def shard(self, number: int) -> tuple[int, ...]:
        """Return the workers of a shard, all different, in constant time. Raise InvalidValue past the capacity."""


class Disjoint:
    """Shards that share no worker. Each has one worker of every group, and a group has `start << doublings` workers.

    Worker w of group g is g * per_group + w.
    """

    overlap = 0

    def __init__(self, groups: int, start: int, doublings: int = 0) -> None:
        if groups < 1 or start < 1 or not 0 <= doublings <= 32:
            raise InvalidValue(
                f"{groups} groups of {start} workers, doubled {doublings} times: expected 1 or more of both, 0 to 32"
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
        """Return the design with twice the workers per group: the same shards at the same numbers, and as many new."""
        return Disjoint(self.size, self._start, self._doublings + 1)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        return tuple(range(number, self.workers, self.per_group))


class Pairs:
    """Every pair of `workers` workers, without groups."""

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
    """Every combination of one worker of each of `groups` groups. Worker w of group g is g * per_group + w."""

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
    """`count` copies of a design, each on its own workers: worker w of family f is f * design.workers + w.

    For fleets with more groups than a shard has workers: each family uses some of the groups. Shard numbers go to the
    families in turn, so that these fill equally, and a shard keeps its number when the design is doubled.
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
