"""What every design promises. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
