"""Layouts: everything that decides which tenant has which workers, except the tenants' numbers. Pure.

A change is another layout. Former layouts tell which workers a tenant had before, so that a store needs only a number
for each tenant. `adapt_layout` fits a layout to a new list of workers so that few tenants move.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import msgspec

from holdfast._errors import CapacityExhausted, Conflict, InvalidValue, NotFound
from holdfast._names import format_count
from holdfast.shards.designed import DesignedSharding
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.names import format_name
from holdfast.shards.shard import Shard


class NumberedTenant(NamedTuple):
    """A tenant's name and its number."""

    name: bytes
    number: int


class IsolatedTenant(NamedTuple):
    """A tenant's name and the spare slots that no other tenant has."""

    name: bytes
    slot_indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A fleet, the parameters of its shards, and the isolated tenants. See `DesignedSharding` for the parameters."""

    fleet: Fleet
    size: int
    overlap: int
    key: bytes = field(repr=False)
    design_slot_count: int
    """Number of slots that the design uses; later slots are spare."""
    doubling_starts: tuple[int, ...] = ()
    """For each doubling, the index of the first slot that it added."""
    isolated: tuple[IsolatedTenant, ...] = ()
    version: int = field(default=0, compare=False)
    """The version in effect, or the one that this layout was derived from; 0 for a first layout. Not serialised."""
    sharding: DesignedSharding = field(init=False, repr=False, compare=False)
    _isolated_slots: dict[bytes, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sharding = DesignedSharding(
            self.fleet,
            self.size,
            self.overlap,
            key=self.key,
            design_slot_count=self.design_slot_count,
            doubling_starts=self.doubling_starts,
        )
        object.__setattr__(self, "sharding", sharding)
        object.__setattr__(self, "_isolated_slots", dict(self.isolated))
        free = set(sharding.spare_slots)
        for name, indexes in self.isolated:
            if (
                not indexes
                or not free.issuperset(indexes)
                or len({*indexes}) < len(indexes)
                or self._isolated_slots[name] != indexes
            ):
                raise InvalidValue(
                    f"tenant {format_name(name)} is isolated on slots that are not spare, or not its own: "
                    "release it, or leave these slots out of the design"
                )
            free.difference_update(indexes)

    @classmethod
    def create(cls, fleet: Fleet, size: int, overlap: int, *, key: bytes) -> "Layout":
        """Return a first layout, whose design uses the whole fleet."""
        return cls(fleet=fleet, size=size, overlap=overlap, key=key, design_slot_count=len(fleet))

    @property
    def capacity(self) -> int:
        """Number of tenants that can have a shard of their own."""
        return self.sharding.capacity

    @property
    def attackers_survived(self) -> int:
        """Like `DesignedSharding.attackers_survived`, but in the worst case: all empty slots are in one shard."""
        live = self.size - min(self.size, len(self.empty_slots))
        if live == self.size:
            return self.sharding.attackers_survived
        return max(0, (live - 1) // self.overlap) if self.overlap else (self.capacity - 1) * (live > 0)

    @property
    def spare_slots(self) -> Sequence[int]:
        """The slots that are in no shard and that no isolated tenant has."""
        taken = {index for _, indexes in self.isolated for index in indexes}
        return [index for index in self.sharding.spare_slots if index not in taken]

    @property
    def live_spare_slots(self) -> Sequence[int]:
        """The spare slots whose workers are not drained."""
        return [index for index in self.spare_slots if not self.fleet.slots[index].is_drained]

    @property
    def empty_slots(self) -> Sequence[int]:
        """The slots of the design whose workers are all drained: tenants with such a slot have one worker fewer."""
        slots, sharers = self.fleet.slots, self.fleet.slot_sharers()
        return [
            index
            for cell in self.sharding.cells
            for index in cell
            if slots[index].is_drained and all(slots[other].is_drained for other in sharers.get(index, ()))
        ]

    def shard(self, tenant: NumberedTenant) -> Shard:
        """Return the shard of a tenant. Raise CapacityExhausted if its number is past the capacity."""
        indexes = self._isolated_slots.get(tenant.name)
        if indexes is None:
            return self.sharding.shard(tenant.number)
        return Shard(indexes, tuple([self.fleet.slots[index] for index in indexes]))

    def redesign(self, size: int, overlap: int) -> "Layout":
        """Return a layout with new shards of all live workers, including spare ones and those that share a slot.

        Nearly all tenants move. Raise Conflict while a tenant is isolated, because its workers would get other tenants.
        """
        if self.isolated:
            names = ", ".join(format_name(name) for name, _ in self.isolated)
            raise Conflict(f"new shards would use the workers of isolated tenants: release {names} first")
        live = tuple(replace(slot, shares_slot_of=None) for slot in self.fleet.slots if not slot.is_drained)
        made = Layout.create(replace(self.fleet, slots=live), size, overlap, key=self.key)
        return replace(made, version=self.version)

    def is_isolated(self, name: bytes) -> bool:
        """Return whether a tenant has workers of its own."""
        return name in self._isolated_slots

    def with_fleet(self, fleet: Fleet) -> "Layout":
        """Return a layout with the same design and another fleet: workers replaced, drained, added or sharing slots."""
        return replace(self, fleet=fleet)

    def double(self, workers: Sequence[str]) -> "Layout":
        """Return a layout with a twin for each worker: more shards, no moves. Raise InvalidValue if impossible."""
        return replace(self, fleet=self.fleet.double(workers), doubling_starts=(*self.doubling_starts, len(self.fleet)))

    def isolate(self, name: bytes, count: int | None = None) -> "Layout":
        """Return a layout with a tenant on `count` spare workers of its own, by default as many as a shard has.

        No other tenant moves. Raise CapacityExhausted if there are too few, Conflict if it is isolated already.
        """
        wanted = self.size if count is None else count
        if wanted < 1:
            raise InvalidValue(f"{wanted} workers for an isolated tenant: expected 1 or more")
        if name in self._isolated_slots:
            raise Conflict(f"tenant {format_name(name)} is isolated already: release it before it gets other workers")
        free = self.live_spare_slots
        if len(free) < wanted:
            raise CapacityExhausted(
                f"{format_count(len(free), 'spare worker')} for tenant {format_name(name)}, and {wanted} are wanted: "
                "add workers (new ones are spare), or isolate it on fewer"
            )
        indexes = tuple(sorted(_order_across_groups(self.fleet, free)[:wanted]))
        return replace(self, isolated=(*self.isolated, IsolatedTenant(name, indexes)))

    def release(self, name: bytes) -> "Layout":
        """Return a layout with an isolated tenant back in its shard. Raise NotFound if it is not isolated."""
        if name not in self._isolated_slots:
            raise NotFound(f"tenant {format_name(name)} is not isolated: there is nothing to release")
        return replace(self, isolated=tuple(tenant for tenant in self.isolated if tenant.name != name))

    def to_json(self) -> bytes:
        """Return the layout as JSON, including the key: store it where tenants cannot read it."""
        rest = {name: getattr(self, name) for name in _COPIED_FIELDS}
        return msgspec.json.encode(
            _LayoutDocument(slots=self.fleet.slots, shared_host_policy=self.fleet.shared_host_policy, **rest)
        )

    @classmethod
    def from_json(cls, text: bytes) -> "Layout":
        """Parse a layout written by `to_json`. Raise InvalidValue if it is malformed."""
        try:
            written = msgspec.json.decode(text, type=_LayoutDocument)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidValue(f"this is not a layout of shards: {error}") from error
        fleet = Fleet(slots=written.slots, shared_host_policy=written.shared_host_policy)
        return cls(fleet=fleet, **{name: getattr(written, name) for name in _COPIED_FIELDS})


class _LayoutDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    slots: tuple[Slot, ...]
    shared_host_policy: Literal["refuse", "warn", "allow"] = "refuse"
    size: int
    overlap: int
    key: bytes
    design_slot_count: int
    doubling_starts: tuple[int, ...] = ()
    isolated: tuple[IsolatedTenant, ...] = ()


_COPIED_FIELDS = ("size", "overlap", "key", "design_slot_count", "doubling_starts", "isolated")
"""Fields of a layout that are serialised unchanged."""


def _order_across_groups(fleet: Fleet, indexes: Sequence[int]) -> Sequence[int]:
    """Return these slots, ordered so that the first ones are of different groups."""
    seen: dict[tuple[str, ...], int] = {}
    ranks = {}
    for index in indexes:
        group = fleet.slots[index].group
        ranks[index] = seen[group] = seen.get(group, 0) + 1
    return sorted(indexes, key=lambda index: (ranks[index], index))


def adapt_layout(layout: Layout, workers: Fleet) -> Layout:
    """Return a layout with the same design for these workers: a worker that is still listed keeps its slot.

    A slot whose worker is gone gets a new worker of the same group, or else a spare one. If there is neither, it stays
    empty, and its tenants have one worker fewer. New workers that no slot needs are spare. Raise InvalidValue for a
    worker whose group has changed, because its shards would no longer spread over groups.
    """
    listed = {slot.worker: slot for slot in workers.slots}
    known = {slot.worker for slot in layout.fleet.slots}
    new = [slot for slot in workers.slots if slot.worker not in known]
    renewed = tuple(_renew_slot(slot, listed.get(slot.worker)) for slot in layout.fleet.slots)
    fleet = replace(layout.fleet, slots=renewed, shared_host_policy=workers.shared_host_policy)
    spare = [index for index in layout.spare_slots if not fleet.slots[index].is_drained]
    idle = {*layout.spare_slots}
    # Slots with tenants first, because spare slots may stay empty.
    empty = [index for index, slot in enumerate(fleet.slots) if slot.is_drained]
    for index in sorted(empty, key=lambda index: index in idle):
        group = fleet.slots[index].group
        newcomer = next((slot for slot in new if slot.group == group), None)
        if newcomer is not None:
            new.remove(newcomer)
            fleet = fleet.replace(index, newcomer.worker, host=newcomer.host, weight=newcomer.weight)
        elif index not in idle and fleet.slots[index].shares_slot_of is None:
            substitute = next((other for other in spare if fleet.slots[other].group == group), None)
            if substitute is not None:
                spare.remove(substitute)
                fleet = fleet.replace_with_spare(fleet.slots[index].worker, fleet.slots[substitute].worker)
    return layout.with_fleet(fleet.add(*new))


def _renew_slot(slot: Slot, found: Slot | None) -> Slot:
    if found is None:
        return replace(slot, is_drained=True, host=None)  # without a host, so that a new worker may be on its host
    if found.group != slot.group:
        raise InvalidValue(
            f"worker {slot.worker} was in {' / '.join(slot.group) or 'no group'} and is in "
            f"{' / '.join(found.group) or 'none'}: give it another name, as a new worker"
        )
    return replace(slot, weight=found.weight, host=found.host, is_drained=found.is_drained)
