"""Everything that decides which tenant has which workers, except the tenants' numbers: one value, kept as text. Pure.

A change is another layout. Older layouts say what a tenant had before, so that only its number is kept for each tenant.
`adapted` fits a layout to a new list of workers so that few tenants move.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import msgspec

from holdfast._errors import CapacityExhausted, Conflict, InvalidValue, NotFound
from holdfast.shards.designed import Designed
from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.names import shown
from holdfast.shards.shard import Shard


class Numbered(NamedTuple):
    """A tenant by both its names."""

    name: bytes
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A fleet, how its shards are made, and who has workers of its own. See `Designed` for what each of them means."""

    fleet: Fleet
    size: int
    overlap: int
    key: bytes = field(repr=False)
    first: int
    """How many slots of the fleet the design is made of; those that came later are spare."""
    twins: tuple[int, ...] = ()
    isolated: tuple[tuple[bytes, tuple[int, ...]], ...] = ()
    """Tenants that have slots for themselves, which nobody else has, and which."""
    version: int = field(default=0, compare=False)
    """The version that holds, or that this was made from; 0 where there was none. It is not written with the rest."""
    designed: Designed = field(init=False, repr=False, compare=False)
    _alone: dict[bytes, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        designed = Designed(self.fleet, self.size, self.overlap, key=self.key, first=self.first, twins=self.twins)
        object.__setattr__(self, "designed", designed)
        object.__setattr__(self, "_alone", dict(self.isolated))
        free = set(designed.spare)
        for name, places in self.isolated:
            if not places or not free.issuperset(places) or len({*places}) < len(places) or self._alone[name] != places:
                raise InvalidValue(
                    f"tenant {shown(name)} is isolated on slots that are not spare, or not its own: "
                    "release it, or leave these slots out of the design"
                )
            free.difference_update(places)

    @classmethod
    def of(cls, fleet: Fleet, size: int, overlap: int, *, key: bytes) -> "Layout":
        """A first layout: the design is made of the whole fleet."""
        return cls(fleet=fleet, size=size, overlap=overlap, key=key, first=len(fleet))

    @property
    def capacity(self) -> int:
        return self.designed.capacity

    @property
    def survives(self) -> int:
        """As `Designed.survives`, as if one tenant had all slots that are empty, as far as its shard goes."""
        live = self.size - min(self.size, len(self.empty))
        if live == self.size:
            return self.designed.survives
        return max(0, (live - 1) // self.overlap) if self.overlap else (self.capacity - 1) * (live > 0)

    @property
    def spare(self) -> Sequence[int]:
        """The slots that are in no shard and are nobody's."""
        taken = {place for _, places in self.isolated for place in places}
        return [place for place in self.designed.spare if place not in taken]

    @property
    def ready(self) -> Sequence[int]:
        """Those of the spare slots whose workers can take work."""
        return [place for place in self.spare if not self.fleet.slots[place].is_drained]

    @property
    def empty(self) -> Sequence[int]:
        """The slots of the design whose workers are drained, and that nobody relieves: who has them has one less."""
        slots, relieved = self.fleet.slots, self.fleet.reliefs()
        return [
            place
            for cell in self.designed.cells
            for place in cell
            if slots[place].is_drained and all(slots[other].is_drained for other in relieved.get(place, ()))
        ]

    def shard(self, tenant: Numbered) -> Shard:
        """The shard of a tenant. Raises CapacityExhausted for a number past the capacity."""
        places = self._alone.get(tenant.name)
        if places is None:
            return self.designed.shard(tenant.number)
        return Shard(places, tuple([self.fleet.slots[place] for place in places]))

    def redesigned(self, size: int, overlap: int) -> "Layout":
        """With new shards of all workers that are not drained, spare ones and those that relieve others among them.

        Nearly everybody moves. Raises Conflict while a tenant is isolated: its workers would be given to others.
        """
        if self.isolated:
            names = ", ".join(shown(name) for name, _ in self.isolated)
            raise Conflict(f"new shards of all workers, while {names} has workers of its own: release it first")
        live = tuple(replace(slot, relieves=None) for slot in self.fleet.slots if not slot.is_drained)
        made = Layout.of(replace(self.fleet, slots=live), size, overlap, key=self.key)
        return replace(made, version=self.version)

    def is_isolated(self, name: bytes) -> bool:
        """Whether a tenant has workers of its own."""
        return name in self._alone

    def with_fleet(self, fleet: Fleet) -> "Layout":
        """With another fleet and the same design: workers that were replaced, drained, relieved, or added as spare."""
        return replace(self, fleet=fleet)

    def doubled(self, workers: Sequence[str]) -> "Layout":
        """With a twin for each worker there is: more shards, and nobody moves. Raises InvalidValue where none fits."""
        return replace(self, fleet=self.fleet.double(workers), twins=(*self.twins, len(self.fleet)))

    def isolate(self, name: bytes, count: int | None = None) -> "Layout":
        """With a tenant on spare workers of its own, as many as its shard has or `count`; nobody else moves.

        Raises CapacityExhausted if there are not so many, and Conflict if it is isolated already.
        """
        wanted = self.size if count is None else count
        if wanted < 1:
            raise InvalidValue(f"{wanted} workers for a tenant of its own: expected 1 or more")
        if name in self._alone:
            raise Conflict(f"tenant {shown(name)} is isolated already: release it before it gets other workers")
        free = self.ready
        if len(free) < wanted:
            raise CapacityExhausted(
                f"{len(free)} spare workers for tenant {shown(name)}, and {wanted} are wanted: add workers, which are "
                "spare at first, or isolate it on fewer"
            )
        places = tuple(sorted(_spread(self.fleet, free)[:wanted]))
        return replace(self, isolated=(*self.isolated, (name, places)))

    def release(self, name: bytes) -> "Layout":
        """With an isolated tenant back in its shard. Raises NotFound if it is not isolated."""
        if name not in self._alone:
            raise NotFound(f"tenant {shown(name)} is not isolated: there is nothing to release")
        return replace(self, isolated=tuple(entry for entry in self.isolated if entry[0] != name))

    def to_text(self) -> bytes:
        """All of it as JSON, the key too: keep it where tenants cannot read it."""
        rest = {name: getattr(self, name) for name in _KEPT}
        return msgspec.json.encode(_Written(slots=self.fleet.slots, shared_hosts=self.fleet.shared_hosts, **rest))

    @classmethod
    def from_text(cls, text: bytes) -> "Layout":
        """What `to_text` wrote. Raises InvalidValue."""
        try:
            written = msgspec.json.decode(text, type=_Written)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidValue(f"this is no layout of shards: {error}") from error
        fleet = Fleet(slots=written.slots, shared_hosts=written.shared_hosts)
        return cls(fleet=fleet, **{name: getattr(written, name) for name in _KEPT})


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    slots: tuple[Slot, ...]
    shared_hosts: Literal["refuse", "warn", "allow"] = "refuse"
    size: int
    overlap: int
    key: bytes
    first: int
    twins: tuple[int, ...] = ()
    isolated: tuple[tuple[bytes, tuple[int, ...]], ...] = ()


_KEPT = ("size", "overlap", "key", "first", "twins", "isolated")
"""Fields of a layout that are written as they are."""


def _spread(fleet: Fleet, places: Sequence[int]) -> Sequence[int]:
    """These slots, so that the first ones are of different groups."""
    seen: dict[tuple[str, ...], int] = {}
    ranks = {}
    for place in places:
        group = fleet.slots[place].group
        ranks[place] = seen[group] = seen.get(group, 0) + 1
    return sorted(places, key=lambda place: (ranks[place], place))


def adapted(layout: Layout, workers: Fleet) -> Layout:
    """Return the same design with these workers: a worker that is still there keeps its slot.

    Slots whose workers are gone get new ones of the same group, or else spare ones; where there are neither, they stay
    empty, and their tenants have one worker less. New workers that no slot needs are spare. Raises InvalidValue for a
    worker that is in another group than before: its shards would no longer spread.
    """
    there = {slot.worker: slot for slot in workers.slots}
    known = {slot.worker for slot in layout.fleet.slots}
    new = [slot for slot in workers.slots if slot.worker not in known]
    renewed = tuple(_renewed(slot, there.get(slot.worker)) for slot in layout.fleet.slots)
    fleet = replace(layout.fleet, slots=renewed, shared_hosts=workers.shared_hosts)
    spare = [place for place in layout.spare if not fleet.slots[place].is_drained]
    idle = {*layout.spare}
    # Slots with tenants first: what is left for the others matters less.
    empty = [place for place, slot in enumerate(fleet.slots) if slot.is_drained]
    for place in sorted(empty, key=lambda place: place in idle):
        group = fleet.slots[place].group
        newcomer = next((slot for slot in new if slot.group == group), None)
        if newcomer is not None:
            new.remove(newcomer)
            fleet = fleet.replace(place, newcomer.worker, host=newcomer.host, weight=newcomer.weight)
        elif place not in idle and fleet.slots[place].relieves is None:
            substitute = next((other for other in spare if fleet.slots[other].group == group), None)
            if substitute is not None:
                spare.remove(substitute)
                fleet = fleet.substitute(fleet.slots[place].worker, fleet.slots[substitute].worker)
    return layout.with_fleet(fleet.add(*new))


def _renewed(slot: Slot, found: Slot | None) -> Slot:
    if found is None:
        return replace(slot, is_drained=True, host=None)  # on none: a new worker may be where it was
    if found.group != slot.group:
        raise InvalidValue(
            f"worker {slot.worker} was in {' / '.join(slot.group) or 'no group'} and is in "
            f"{' / '.join(found.group) or 'none'}: give it another name, as a new worker"
        )
    return replace(slot, weight=found.weight, host=found.host, is_drained=found.is_drained)
