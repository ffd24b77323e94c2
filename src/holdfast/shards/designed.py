"""Shards whose overlap is bounded by construction: which design fits a fleet, and the shard of each tenant. Pure."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from holdfast._errors import CapacityExhausted, InvalidValue
from holdfast.shards.designs import Parity, Polynomials, Quadruples
from holdfast.shards.field import largest_prime_power
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.order import Order


@dataclass(frozen=True, slots=True)
class Shard:
    """What one tenant has."""

    tenant: int
    """The number of the tenant in its registry."""
    places: tuple[int, ...]
    """The slots of the fleet."""
    slots: tuple[Slot, ...]

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(slot.worker for slot in self.slots)


class Designed:
    """The shards of a fleet, `size` workers each, of which no two share more than `overlap`. Immutable.

    Each tenant needs a number of its own: two with the same number have the same shard. The key keeps tenants from
    working out who their neighbours are. `first` pins the design to so many slots, so that those that are added later
    are spare and move nobody. Raises InvalidValue where no design fits, saying what would.
    """

    __slots__ = ("_capacity", "_cells", "_key", "_order", "_workers", "design", "fleet")

    design: Quadruples | Parity | Polynomials

    def __init__(self, fleet: Fleet, size: int, overlap: int, *, key: bytes, first: int | None = None) -> None:
        count = len(fleet) if first is None else first
        if not 1 <= count <= len(fleet):
            raise InvalidValue(f"the first {count} slots of {len(fleet)}: expected 1 to {len(fleet)}")
        if not 1 <= size <= count:
            raise InvalidValue(f"shards of {size} in a fleet of {count}: expected 1 to {count} workers")
        if not 0 <= overlap < size:
            raise InvalidValue(f"overlap {overlap} of shards of {size}: expected 0 to {size - 1}")
        self.fleet = fleet
        self._key = key
        self._build(*_choose(replace(fleet, slots=fleet.slots[:count]), size, overlap))

    def doubled(self, workers: Sequence[str]) -> "Designed":
        """With a twin for each worker there is: more shards, and nobody who has one moves.

        Raises InvalidValue for a design that cannot be doubled: another one has to be made, and everybody moves.
        """
        if isinstance(self.design, Polynomials):
            raise InvalidValue(
                f"shards of {self.size} that share at most {self.overlap} cannot be doubled in place: "
                "make new ones of the larger fleet, and move tenants over"
            )
        twin = copy(self)
        twin.fleet = self.fleet.double(workers)
        cells = [[*cell, *(len(self.fleet) + place for place in cell)] for cell in self._cells]
        twin._build(self.design.doubled(), cells)  # noqa: SLF001 - of its own kind
        return twin

    def _build(self, design: Quadruples | Parity | Polynomials, cells: Sequence[Sequence[int]]) -> None:
        """Take a design, and the slots that stand for its workers."""
        self.design = design
        self._cells = cells
        self._order = Order(design, self._key)
        self._capacity = design.capacity
        listed = [place for cell in cells for place in cell]
        # Nothing to look up where the workers of the design are the slots, as with quadruples of a whole fleet.
        self._workers = None if listed == list(range(len(listed))) else listed

    @property
    def size(self) -> int:
        return self.design.size

    @property
    def overlap(self) -> int:
        return self.design.overlap

    @property
    def capacity(self) -> int:
        """How many tenants have a shard of their own."""
        return self.design.capacity

    @property
    def spare(self) -> Sequence[int]:
        """The slots that are in no shard: they did not fit, and are there to replace others, or to isolate a tenant."""
        used = {place for cell in self._cells for place in cell}
        return [place for place in range(len(self.fleet)) if place not in used]

    @property
    def survives(self) -> int:
        """How many tenants may take all of their workers down at once, and everybody else still has one."""
        return self.capacity - 1 if self.overlap == 0 else (self.size - 1) // self.overlap

    def shard(self, tenant: int) -> Shard:
        """The shard of the tenant with this number. Raises CapacityExhausted past the capacity."""
        places, slots = self.places(tenant), self.fleet.slots
        return Shard(tenant, places, tuple([slots[place] for place in places]))

    def places(self, tenant: int) -> tuple[int, ...]:
        """The slots of that shard alone, which is quicker."""
        if not 0 <= tenant < self._capacity:
            raise self._outside(tenant)
        workers, numbers = self._workers, self.design.shard(self._order[tenant])
        return numbers if workers is None else tuple([workers[number] for number in numbers])

    def _outside(self, tenant: int) -> InvalidValue | CapacityExhausted:
        if tenant < 0:
            return InvalidValue(f"tenant {tenant}: expected 0 or more")
        return CapacityExhausted(
            f"tenant {tenant} has no shard of its own: {len(self.fleet)} workers give {self.capacity} shards of "
            f"{self.size} that share at most {self.overlap}; {self._advice()}"
        )

    def _advice(self) -> str:
        more = []
        if self.overlap + 1 < self.size:
            more.append(f"an overlap of {self.overlap + 1} gives more")
        return " and ".join([*more, "more workers give more"])


def _choose(fleet: Fleet, size: int, overlap: int) -> tuple[Quadruples | Parity | Polynomials, Sequence[Sequence[int]]]:
    """The design for a fleet, and the slots that stand for its workers: cells of equal width."""
    groups = list(fleet.groups().values())
    count = len(fleet)
    if len(groups) == 1 and (size, overlap) == (4, 2) and count & (count - 1) == 0:
        # No other design has more shards, or leaves nothing over; and it can be doubled.
        return Quadruples(count.bit_length() - 1), [groups[0]]
    cells = _cells(groups, size)
    width = min(len(cell) for cell in cells)
    if size >= 2 and overlap == size - 2 and len(cells) == size:
        return Parity(size, width), [cell[:width] for cell in cells]
    fitting = largest_prime_power(width)
    if fitting is None or fitting < size:
        raise InvalidValue(
            f"shards of {size} that share at most {overlap} need {size} parts of the fleet with {size} workers each, "
            f"two at least, and the smallest has {width}: allow a larger overlap, make them smaller, or add workers"
        )
    return Polynomials(size, fitting, overlap), [cell[:fitting] for cell in cells]


def _cells(groups: Sequence[Sequence[int]], size: int) -> Sequence[Sequence[int]]:
    """As many parts of the fleet as a shard has workers, spread over the groups, none of two groups."""
    if len(groups) > size:
        raise InvalidValue(
            f"shards of {size} cannot have a worker in each of {len(groups)} groups: make them larger, or groups fewer"
        )
    cells: list[Sequence[int]] = []
    for number, group in enumerate(groups):
        parts = size // len(groups) + (number < size % len(groups))
        if len(group) < parts:
            raise InvalidValue(f"a group of {len(group)} workers for {parts} of each shard: expected no fewer")
        cells += [group[part::parts] for part in range(parts)]
    return cells
