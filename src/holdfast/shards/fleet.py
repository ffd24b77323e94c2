"""The workers there are, in slots: what shards are made of. Pure.

A slot holds a worker: a server, a queue, a database, by any name. Shards are made of slots, so that a worker can be
replaced and only those tenants notice that have its slot.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast._errors import InvalidValue, NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place in a fleet, and who is there."""

    worker: str
    group: tuple[str, ...] = ()
    """Where it is: its zone, or several such things, the most important first. A shard spreads over each of them."""
    weight: float = 1.0
    """How much of the load it takes, beside others: in hashed shards, and beside those that share a slot with it."""
    host: str | None = None
    """The machine behind it, if several workers may share one."""
    is_drained: bool = False
    """Still a member of its shards, and no longer to be given work."""
    relieves: str | None = None
    """The worker whose tenants it shares: it has no slot of its own, and serves some of those of the other."""

    def __post_init__(self) -> None:
        if not is_printable_text(self.worker):
            raise InvalidValue(f"a worker named {self.worker!r}: expected some text that can be printed")
        for name in (*self.group, *([] if self.host is None else [self.host])):
            if not is_printable_text(name):
                raise InvalidValue(f"worker {self.worker} in {name!r}: expected some text that can be printed")
        if not 0 < self.weight < math.inf:
            raise InvalidValue(f"weight {self.weight} of worker {self.worker}: expected a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All slots, in an order that never changes: new ones come at the end. Every change is a new fleet."""

    slots: tuple[Slot, ...]
    shared_host_policy: Literal["refuse", "warn", "allow"] = "refuse"
    """What to do if several slots are on one machine: then two shards that share no worker may still fail together."""
    _indexes: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        indexes: dict[str, int] = {}
        hosts: dict[str, str] = {}
        for index, slot in enumerate(self.slots):
            if slot.worker in indexes:
                raise InvalidValue(f"worker {slot.worker} is in two slots: expected each worker once")
            if len(slot.group) != len(self.slots[0].group):
                raise InvalidValue(
                    f"worker {slot.worker} has {len(slot.group)} groups and worker {self.slots[0].worker} "
                    f"{len(self.slots[0].group)}: expected as many for each"
                )
            indexes[slot.worker] = index
            if slot.host is not None:
                other = hosts.setdefault(slot.host, slot.worker)
                if other != slot.worker:
                    self._check_shared_host(slot.host, other, slot.worker)
        for slot in self.slots:
            if slot.relieves is not None:
                self._check_relief(slot, indexes)
        object.__setattr__(self, "_indexes", indexes)

    def _check_shared_host(self, host: str, one: str, other: str) -> None:
        found = f"workers {one} and {other} are both on {host}: what shards share no longer says what fails together"
        if self.shared_host_policy == "refuse":
            raise InvalidValue(
                f"{found}; give each a machine, or let it pass with shared_host_policy (--allow-shared-hosts)"
            )
        if self.shared_host_policy == "warn":
            warnings.warn(found, stacklevel=2)

    def _check_relief(self, slot: Slot, indexes: Mapping[str, int]) -> None:
        other = self.slots[indexes[slot.relieves]] if slot.relieves and slot.relieves in indexes else None
        if other is None or other is slot or other.relieves is not None:
            raise InvalidValue(
                f"worker {slot.worker} relieves {slot.relieves}: expected another worker, which has a slot"
            )
        if other.group != slot.group:
            # Else it would be in a group from which its shards have another worker already.
            raise InvalidValue(f"worker {slot.worker} relieves {slot.relieves} in another group: expected the same")

    @classmethod
    def from_workers(cls, workers: Iterable[str]) -> "Fleet":
        """A fleet without groups."""
        return cls(slots=tuple(Slot(worker=worker) for worker in workers))

    @classmethod
    def from_groups(cls, workers: Mapping[str, Iterable[str]]) -> "Fleet":
        """A fleet of workers by group, such as their zones."""
        return cls(slots=tuple(Slot(worker=one, group=(group,)) for group, some in workers.items() for one in some))

    def __len__(self) -> int:
        return len(self.slots)

    def find_index(self, worker: str) -> int:
        """The slot of a worker. Raises NotFound."""
        if worker not in self._indexes:
            raise NotFound(f"there is no worker {worker} in this fleet")
        return self._indexes[worker]

    def indexes_by_group(self, slot_count: int | None = None) -> dict[tuple[str, ...], Sequence[int]]:
        """Return the slots of every group, or only of the first slots. Workers that relieve others have none."""
        found: dict[tuple[str, ...], list[int]] = {}
        for index, slot in enumerate(self.slots[:slot_count]):
            if slot.relieves is None:
                found.setdefault(slot.group, []).append(index)
        return dict(found)

    def dimensions(self) -> tuple[tuple[str, ...], ...]:
        """What there is of each dimension of the groups, such as all zones and all versions, in the order of slots."""
        depth = len(self.slots[0].group) if self.slots else 0
        return tuple(tuple(dict.fromkeys(slot.group[number] for slot in self.slots)) for number in range(depth))

    def relief_groups(self) -> dict[int, Sequence[int]]:
        """The workers that share the tenants of a slot, itself among them; only slots with more than one."""
        found: dict[int, list[int]] = {}
        for index, slot in enumerate(self.slots):
            if slot.relieves is not None:
                relieved = self._indexes[slot.relieves]
                found.setdefault(relieved, [relieved]).append(index)
        return dict(found)

    def shared_hosts(self) -> dict[str, tuple[str, ...]]:
        """Return the machines with several workers, and which."""
        found: dict[str, list[str]] = {}
        for slot in self.slots:
            if slot.host is not None:
                found.setdefault(slot.host, []).append(slot.worker)
        return {host: tuple(workers) for host, workers in found.items() if len(workers) > 1}

    def add(self, *slots: Slot) -> "Fleet":
        """With more slots, at the end."""
        return replace(self, slots=(*self.slots, *slots))

    def drain(self, worker: str) -> "Fleet":
        """With a worker that gets no more work. Nobody moves, unless others share its slot: they take its tenants."""
        self.find_index(worker)  # raises NotFound
        slots = (replace(slot, is_drained=True) if slot.worker == worker else slot for slot in self.slots)
        return replace(self, slots=tuple(slots))

    def replace(self, slot: int | str, worker: str, *, host: str | None = None, weight: float | None = None) -> "Fleet":
        """With a new worker in a slot, or in that of a worker: whoever has the slot gets it."""
        index = self.find_index(slot) if isinstance(slot, str) else slot
        if not 0 <= index < len(self.slots):
            raise InvalidValue(f"slot {index}: expected 0 to {len(self.slots) - 1}")
        old = self.slots[index]
        self._expect_new(worker)
        slots = self._redirect_reliefs(old.worker, worker)
        slots[index] = replace(
            old, worker=worker, host=host, weight=old.weight if weight is None else weight, is_drained=False
        )
        return replace(self, slots=tuple(slots))

    def relieve(self, worker: str, by: str, *, weight: float | None = None, host: str | None = None) -> "Fleet":
        """With one more worker, that takes half of the tenants of a slot, at the same weight; a third, if two share it.

        Nobody else moves, and no two shards share more: two that share the new worker shared the old one.
        """
        slot = self.slots[self.find_index(worker)]
        self._expect_new(by)
        more = replace(
            slot,
            worker=by,
            weight=slot.weight if weight is None else weight,
            host=host,
            is_drained=False,
            relieves=slot.relieves or worker,
        )
        return self.add(more)

    def substitute(self, worker: str, by: str) -> "Fleet":
        """With a spare worker in the slot of another, which is drained and gets the spare's slot."""
        index, spare = self.find_index(worker), self.find_index(by)
        if index == spare:
            raise InvalidValue(f"{by} in its own slot: expected a spare worker")
        old, new = self.slots[index], self.slots[spare]
        if new.is_drained:
            raise InvalidValue(f"{by} in the slot of {worker}: it is drained; expected one that can take work")
        if (old.group, old.relieves) != (new.group, new.relieves):
            raise InvalidValue(f"{by} in the slot of {worker}: expected a worker of the same group with its own slot")
        slots = self._redirect_reliefs(worker, by)
        slots[index], slots[spare] = new, replace(old, is_drained=True)
        return replace(self, slots=tuple(slots))

    def double(self, workers: Sequence[str]) -> "Fleet":
        """With a new worker for each there is, in the same group and of the same weight."""
        if len(workers) != len(self.slots):
            raise InvalidValue(f"{len(workers)} workers to double a fleet of {len(self.slots)}: expected as many")
        names = {slot.worker: new for slot, new in zip(self.slots, workers, strict=True)}
        twins = (
            replace(
                slot,
                worker=names[slot.worker],
                host=None,
                is_drained=False,
                relieves=None if slot.relieves is None else names[slot.relieves],
            )
            for slot in self.slots
        )
        return self.add(*twins)

    def _expect_new(self, worker: str) -> None:
        if worker in self._indexes:
            raise InvalidValue(
                f"worker {worker} is in the fleet already: expected a new one; a spare one takes a slot by `substitute`"
            )

    def _redirect_reliefs(self, old: str, new: str) -> list[Slot]:
        """All slots, where whoever relieved one worker relieves another."""
        return [replace(slot, relieves=new) if slot.relieves == old else slot for slot in self.slots]


def is_printable_text(name: str) -> bool:
    """Whether it is some text that can be shown as it is: not empty, nothing in it that cannot be printed."""
    return bool(name) and name.isprintable()
