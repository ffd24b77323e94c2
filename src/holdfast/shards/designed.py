"""Shards whose overlap is bounded by construction: the shard of each tenant, by its number. Pure."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from holdfast._errors import CapacityExhausted, InvalidValue
from holdfast.shards.choice import choose, doubled, in_class
from holdfast.shards.fleet import Fleet
from holdfast.shards.names import mixed, number_of, score
from holdfast.shards.order import Order
from holdfast.shards.shard import Shard


class Designed:
    """The shards of a fleet, `size` workers each, of which no two share more than `overlap`. Immutable.

    Two tenants with the same number have the same shard. The key keeps tenants from working out who their neighbours
    are. `first` is the number of slots that the design is made of: later ones are spare and move nobody. `twins` are
    the slots at which each doubling begins. Raises InvalidValue where no design fits, saying what would.
    """

    places: Callable[[int], tuple[int, ...]]
    """The slots of the shard of a tenant alone, which is quicker than `shard`."""

    def __init__(
        self, fleet: Fleet, size: int, overlap: int, *, key: bytes, first: int | None = None, twins: Sequence[int] = ()
    ) -> None:
        self.first = len(fleet) if first is None else first
        if not 1 <= self.first <= len(fleet):
            raise InvalidValue(f"the first {self.first} slots of {len(fleet)}: expected 1 to {len(fleet)}")
        self.fleet = fleet
        self.twins = tuple(twins)
        self.design, self.cells = choose(fleet, self.first, size, overlap)
        for start in self.twins:
            self._check_twins(start)
            self.design = doubled(self.design)
            self.cells = [[*cell, *(start + place for place in cell)] for cell in self.cells]
        self._key = key
        self.order = Order(self.design, key)
        self.size, self.overlap = self.design.size, self.design.overlap
        self.capacity = self.design.capacity
        """How many tenants have a shard of their own."""
        listed = [place for cell in self.cells for place in cell]
        # Nothing to look up where the workers of the design are the slots, as with quadruples of a whole fleet.
        self._workers = None if listed == list(range(len(listed))) else listed
        self._seed = number_of(key, b"relief")
        self._reliefs = {
            place: [(other, number_of(key, b"%d" % other)) for other in live]
            for place, others in fleet.reliefs().items()
            if (live := [other for other in others if not fleet.slots[other].is_drained])
        }
        self.places = self._placing()

    def _check_twins(self, start: int) -> None:
        """Raise InvalidValue unless every slot of the design has a twin of the same group from this slot on."""
        places, slots = [place for cell in self.cells for place in cell], self.fleet.slots
        if not max(places) < start < len(slots) - max(places):
            raise InvalidValue(
                f"twins from slot {start} on: expected {max(places) + 1} to {len(slots) - max(places) - 1}, after "
                "those that they double"
            )
        for place in places:
            twin = slots[start + place]
            if twin.group != slots[place].group or twin.relieves is not None:
                raise InvalidValue(
                    f"worker {twin.worker} as the twin of {slots[place].worker}: expected one of the same group with "
                    "its own slot"
                )

    def doubled(self, workers: Sequence[str]) -> "Designed":
        """With a twin for each worker: more shards, and nobody moves. Raises InvalidValue if that cannot be done."""
        twins = (*self.twins, len(self.fleet))
        fleet = self.fleet.double(workers)
        return Designed(fleet, self.size, self.overlap, key=self._key, first=self.first, twins=twins)

    @property
    def spare(self) -> Sequence[int]:
        """The slots that are in no shard: they did not fit, and are there to replace others, or to isolate a tenant."""
        used = {place for cell in self.cells for place in cell}
        return [place for place, slot in enumerate(self.fleet.slots) if place not in used and slot.relieves is None]

    @property
    def survives(self) -> int:
        """How many tenants may take all of their workers down at once, and everybody else still has one."""
        return self.capacity - 1 if self.overlap == 0 else (self.size - 1) // self.overlap

    def shard(self, tenant: int) -> Shard:
        """The shard of the tenant with this number. Raises CapacityExhausted past the capacity."""
        places, slots = self.places(tenant), self.fleet.slots
        return Shard(places, tuple([slots[place] for place in places]))

    def _placing(self) -> Callable[[int], tuple[int, ...]]:
        """What `places` is: without a step for what this design has not."""
        capacity, outside, member, workers = self.capacity, self._outside, in_class(self.design), self._workers
        locate, order, shard = self.order.part(0).locate, self.order, self.design.shard

        def plainly(tenant: int) -> tuple[int, ...]:
            if not 0 <= tenant < capacity:
                raise outside(tenant)
            # Where all classes are alike, straight from the class and the place in it to the shard.
            return shard(order[tenant]) if member is None else member(*locate(tenant))

        def mapped(tenant: int) -> tuple[int, ...]:
            return tuple([workers[number] for number in plainly(tenant)]) if workers else plainly(tenant)

        def relieved(tenant: int) -> tuple[int, ...]:
            return tuple([self._relieved(tenant, place) for place in mapped(tenant)])

        if self._reliefs:
            return relieved
        return plainly if workers is None else mapped

    def __reduce__(self) -> tuple[object, ...]:
        make = partial(Designed, key=self._key, first=self.first, twins=self.twins)
        return make, (self.fleet, self.size, self.overlap)

    def _relieved(self, tenant: int, place: int) -> int:
        """Which of the workers that share the tenants of a slot has this one: by rendezvous, as shards from names."""
        if place not in self._reliefs:
            return place
        drawn, slots = mixed(tenant ^ self._seed), self.fleet.slots
        return max(self._reliefs[place], key=lambda one: score(drawn ^ one[1], slots[one[0]].weight))[0]

    def _outside(self, tenant: int) -> InvalidValue | CapacityExhausted:
        if tenant < 0:
            return InvalidValue(f"tenant {tenant}: expected 0 or more")
        return CapacityExhausted(
            f"tenant {tenant} has no shard of its own: {len(self.fleet)} workers give {self.capacity} shards of "
            f"{self.size} that share at most {self.overlap}; {self.advice}"
        )

    @property
    def advice(self) -> str:
        """What would give more shards."""
        for overlap in range(self.overlap + 1, self.size):
            with suppress(InvalidValue):  # not every overlap has a design, nor can every design be doubled
                design, _ = choose(self.fleet, self.first, self.size, overlap)
                for _ in self.twins:
                    design = doubled(design)
                if design.capacity > self.capacity:
                    return f"an overlap of {overlap} gives more, and so do more workers"
        return "more workers give more"
