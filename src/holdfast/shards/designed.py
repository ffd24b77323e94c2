"""Shards whose overlap is bounded by construction: the shard of a tenant, computed from its number. Pure."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from holdfast._errors import CapacityExhausted, InvalidValue
from holdfast._names import format_count
from holdfast.shards.design_choice import choose_design, double_design, find_shard_in_class
from holdfast.shards.fleet import Fleet
from holdfast.shards.names import compute_score, hash_name, mix_bits
from holdfast.shards.order import ShardOrder
from holdfast.shards.shard import Shard


class DesignedSharding:
    """The shards of a fleet, `size` workers each, of which no two share more than `overlap`. Immutable.

    Two tenants with the same number have the same shard. Without the key, tenants cannot work out which tenants share
    their workers. The design uses the first `design_slot_count` slots; later slots are spare, so that adding them moves
    no tenant. `doubling_starts` has the first slot of each doubling: slot `start + i` is then the twin of slot i.
    Raises InvalidValue with advice if no design fits.
    """

    slot_indexes: Callable[[int], tuple[int, ...]]
    """Return the slot indexes of a tenant's shard by number. Faster than `shard`; also raises CapacityExhausted."""

    def __init__(
        self,
        fleet: Fleet,
        size: int,
        overlap: int,
        *,
        key: bytes,
        design_slot_count: int | None = None,
        doubling_starts: Sequence[int] = (),
    ) -> None:
        self.design_slot_count = len(fleet) if design_slot_count is None else design_slot_count
        if not 1 <= self.design_slot_count <= len(fleet):
            raise InvalidValue(f"the first {self.design_slot_count} slots of {len(fleet)}: expected 1 to {len(fleet)}")
        self.fleet = fleet
        self.doubling_starts = tuple(doubling_starts)
        self.design, self.cells = choose_design(fleet, self.design_slot_count, size, overlap)
        for start in self.doubling_starts:
            self._check_doubling(start)
            self.design = double_design(self.design)
            self.cells = [[*cell, *(start + index for index in cell)] for cell in self.cells]
        self._key = key
        self.order = ShardOrder(self.design, key)
        self.size, self.overlap = self.design.size, self.design.overlap
        self.capacity = self.design.capacity
        """Number of tenants that can have a shard of their own."""
        listed = [index for cell in self.cells for index in cell]
        # None if the design's workers are the slots themselves, as with quadruples of a whole fleet: no lookup.
        self._workers = None if listed == list(range(len(listed))) else listed
        self._seed = hash_name(key, b"relief")  # another text would move tenants
        self._sharer_seeds = {
            index: {other: hash_name(key, b"%d" % other) for other in live}
            for index, others in fleet.slot_sharers().items()
            if (live := [other for other in others if not fleet.slots[other].is_drained])
        }
        self.slot_indexes = self._build_lookup()

    def _check_doubling(self, start: int) -> None:
        """Raise InvalidValue unless every slot of the design has a twin of the same group, `start` slots later."""
        indexes, slots = [index for cell in self.cells for index in cell], self.fleet.slots
        if not max(indexes) < start < len(slots) - max(indexes):
            raise InvalidValue(
                f"twins from slot {start} on: expected {max(indexes) + 1} to {len(slots) - max(indexes) - 1}, after "
                "the slots that they double"
            )
        for index in indexes:
            twin = slots[start + index]
            if twin.group != slots[index].group or twin.shares_slot_of is not None:
                raise InvalidValue(
                    f"worker {twin.worker} as the twin of {slots[index].worker}: expected a worker of the same group "
                    "with its own slot"
                )

    def double(self, workers: Sequence[str]) -> "DesignedSharding":
        """Return a sharding with a twin for each worker: more shards, and no tenant moves.

        Raise InvalidValue if the design cannot be doubled.
        """
        return DesignedSharding(
            self.fleet.double(workers),
            self.size,
            self.overlap,
            key=self._key,
            design_slot_count=self.design_slot_count,
            doubling_starts=(*self.doubling_starts, len(self.fleet)),
        )

    @property
    def spare_slots(self) -> Sequence[int]:
        """The slots that are in no shard. They can replace others, or isolate a tenant."""
        used = {index for cell in self.cells for index in cell}
        return [
            index for index, slot in enumerate(self.fleet.slots) if index not in used and slot.shares_slot_of is None
        ]

    @property
    def attackers_survived(self) -> int:
        """Most tenants that can take down all their workers at the same time while all other tenants keep a worker."""
        return self.capacity - 1 if self.overlap == 0 else (self.size - 1) // self.overlap

    def shard(self, tenant: int) -> Shard:
        """Return the shard of the tenant with this number. Raise CapacityExhausted past the capacity."""
        indexes, slots = self.slot_indexes(tenant), self.fleet.slots
        return Shard(indexes, tuple([slots[index] for index in indexes]))

    def _build_lookup(self) -> Callable[[int], tuple[int, ...]]:
        """Return the function behind `slot_indexes`, without steps that this design does not need."""
        capacity, out_of_range, workers = self.capacity, self._out_of_range, self._workers
        shard_in_class = find_shard_in_class(self.design)
        locate, order, shard = self.order.segment_order(0).locate, self.order, self.design.shard

        def look_up(tenant: int) -> tuple[int, ...]:
            if not 0 <= tenant < capacity:
                raise out_of_range(tenant)
            # If all classes are alike, skip the shard number: class and position give the shard.
            return shard(order[tenant]) if shard_in_class is None else shard_in_class(*locate(tenant))

        def look_up_mapped(tenant: int) -> tuple[int, ...]:
            return tuple([workers[number] for number in look_up(tenant)]) if workers else look_up(tenant)

        def look_up_shared(tenant: int) -> tuple[int, ...]:
            return tuple([self._choose_sharer(tenant, index) for index in look_up_mapped(tenant)])

        if self._sharer_seeds:
            return look_up_shared
        return look_up if workers is None else look_up_mapped

    def __reduce__(self) -> tuple[object, ...]:
        make = partial(
            DesignedSharding,
            key=self._key,
            design_slot_count=self.design_slot_count,
            doubling_starts=self.doubling_starts,
        )
        return make, (self.fleet, self.size, self.overlap)

    def _choose_sharer(self, tenant: int, index: int) -> int:
        """Return the slot of the worker that serves a tenant, of those that share a slot: by rendezvous hashing."""
        seeds = self._sharer_seeds.get(index)
        if seeds is None:
            return index
        drawn, slots = mix_bits(tenant ^ self._seed), self.fleet.slots
        return max(seeds, key=lambda other: compute_score(drawn ^ seeds[other], slots[other].weight))

    def _out_of_range(self, tenant: int) -> InvalidValue | CapacityExhausted:
        if tenant < 0:
            return InvalidValue(f"tenant {tenant}: expected 0 or more")
        return CapacityExhausted(
            f"tenant {tenant} has no shard of its own: a fleet of {format_count(len(self.fleet), 'worker')} has "
            f"{format_count(self.capacity, 'shard')} of {self.size} that share at most {self.overlap}; {self.advice}"
        )

    @property
    def advice(self) -> str:
        """Advice for error messages on how to get more shards."""
        for overlap in range(self.overlap + 1, self.size):
            with suppress(InvalidValue):  # not every overlap has a design, nor can every design be doubled
                design, _ = choose_design(self.fleet, self.design_slot_count, self.size, overlap)
                for _ in self.doubling_starts:
                    design = double_design(design)
                if design.capacity > self.capacity:
                    return f"allow an overlap of {overlap}, or add workers"
        return "add workers"
