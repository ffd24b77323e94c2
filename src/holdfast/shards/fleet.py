"""The workers there are, in slots: what shards are made of. Pure.

A slot is a place in a fleet, and holds a worker: a server, a queue, a database, by any name. Shards are made of slots,
so that a worker can be replaced without moving anybody: only whoever has its slot gets another worker there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast._errors import InvalidValue, NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place in a fleet, and who is there."""

    worker: str
    group: tuple[str, ...] = ()
    """Where it is: its zone, or several such things, the most important first. A shard spreads over each of them."""
    weight: float = 1.0
    """How much of the load it takes, beside others. Only hashed shards can heed it."""
    host: str | None = None
    """The machine behind it, if several workers may share one."""
    is_drained: bool = False
    """Still a member of its shards, and no longer to be given work."""

    def __post_init__(self) -> None:
        if not self.worker:
            raise InvalidValue("a worker without a name: expected some text")
        if not 0 < self.weight < math.inf:
            raise InvalidValue(f"weight {self.weight} of worker {self.worker}: expected a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All slots, in an order that never changes: new ones come at the end. Every change is a new fleet."""

    slots: tuple[Slot, ...]
    share_hosts: bool = False
    """Whether several slots may be on one machine. Then two shards that share no worker may still fail together."""
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[str, int] = {}
        hosts: dict[str, str] = {}
        for place, slot in enumerate(self.slots):
            if slot.worker in places:
                raise InvalidValue(f"worker {slot.worker} is in two slots: expected each worker once")
            if len(slot.group) != len(self.slots[0].group):
                raise InvalidValue(
                    f"worker {slot.worker} has {len(slot.group)} groups and worker {self.slots[0].worker} "
                    f"{len(self.slots[0].group)}: expected as many for each"
                )
            places[slot.worker] = place
            if slot.host is not None and not self.share_hosts and slot.host in hosts:
                raise InvalidValue(
                    f"workers {hosts[slot.host]} and {slot.worker} are both on {slot.host}: what shards share no "
                    "longer says what fails together; give each a machine, or allow it with share_hosts"
                )
            if slot.host is not None:
                hosts[slot.host] = slot.worker
        object.__setattr__(self, "_places", places)

    @classmethod
    def of(cls, workers: Iterable[str]) -> "Fleet":
        """A fleet without groups."""
        return cls(slots=tuple(Slot(worker=worker) for worker in workers))

    @classmethod
    def grouped(cls, workers: Mapping[str, Iterable[str]]) -> "Fleet":
        """A fleet of workers by group, such as their zones."""
        return cls(slots=tuple(Slot(worker=one, group=(group,)) for group, some in workers.items() for one in some))

    def __len__(self) -> int:
        return len(self.slots)

    def place_of(self, worker: str) -> int:
        """The slot of a worker. Raises NotFound."""
        if worker not in self._places:
            raise NotFound(f"there is no worker {worker} in this fleet")
        return self._places[worker]

    def groups(self) -> dict[tuple[str, ...], Sequence[int]]:
        """The slots of every group, in the order in which the groups came to be."""
        found: dict[tuple[str, ...], list[int]] = {}
        for place, slot in enumerate(self.slots):
            found.setdefault(slot.group, []).append(place)
        return dict(found)

    def add(self, *slots: Slot) -> "Fleet":
        """With more slots, at the end."""
        return replace(self, slots=(*self.slots, *slots))

    def drain(self, worker: str) -> "Fleet":
        """With a worker that is to get no more work, until it is replaced. Nobody moves."""
        place = self.place_of(worker)
        return self._with(place, replace(self.slots[place], is_drained=True))

    def replace(self, place: int, worker: str, *, host: str | None = None) -> "Fleet":
        """With another worker in a slot: whoever has the slot gets it."""
        if not 0 <= place < len(self.slots):
            raise InvalidValue(f"slot {place}: expected 0 to {len(self.slots) - 1}")
        return self._with(place, replace(self.slots[place], worker=worker, host=host, is_drained=False))

    def double(self, workers: Sequence[str]) -> "Fleet":
        """With a new worker for each there is, in the same group and of the same weight."""
        if len(workers) != len(self.slots):
            raise InvalidValue(f"{len(workers)} workers to double a fleet of {len(self.slots)}: expected as many")
        twins = (
            replace(slot, worker=new, host=None, is_drained=False)
            for slot, new in zip(self.slots, workers, strict=True)
        )
        return self.add(*twins)

    def _with(self, place: int, slot: Slot) -> "Fleet":
        return replace(self, slots=(*self.slots[:place], slot, *self.slots[place + 1 :]))
