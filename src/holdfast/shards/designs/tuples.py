"""One worker of each group, in every combination: shards that are not the same, and may share all workers but one.

Those that are moves of each other by the same step in each group share nothing, and have every worker once: a class.
Pure.
"""

from collections.abc import Sequence

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment


class Tuples:
    """The design on `groups` groups of `per_group` workers each; worker w of group g is g * per_group + w."""

    __slots__ = ("capacity", "per_group", "size")

    def __init__(self, groups: int, per_group: int) -> None:
        if groups < 1 or per_group < 1:
            raise InvalidValue(f"{groups} groups of {per_group} workers: expected 1 or more of each")
        self.size = groups
        self.per_group = per_group
        self.capacity = int(per_group**groups)

    @property
    def overlap(self) -> int:
        return self.size - 1

    @property
    def workers(self) -> int:
        return self.size * self.per_group

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
