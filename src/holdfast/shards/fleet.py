"""The workers of a fleet, in slots. Pure.

A worker is a server, a queue or a database, by any name. Shards are made of slots: when the worker of a slot is
replaced, only the tenants with that slot are affected.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast._errors import InvalidValue, NotFound
from holdfast._names import format_count

NO_WORKER = -1
"""Padding in tables of slot indexes, for shards with fewer workers than the table has columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The entry of one worker in a fleet: its slot, or the slot of another worker that it shares."""

    worker: str
    group: tuple[str, ...] = ()
    """Its zone, or several dimensions such as zone and version, most important first. Shards spread over each one."""
    weight: float = 1.0
    """Its relative share of load in hashed shards, and among the workers that share a slot."""
    host: str | None = None
    """The host of the worker, if several workers may share one."""
    is_drained: bool = False
    """Whether the worker gets no more work. It stays a member of its shards."""
    shares_slot_of: str | None = None
    """The worker whose slot it shares, or None. It serves some of that worker's tenants."""

    def __post_init__(self) -> None:
        if not is_printable_text(self.worker):
            raise InvalidValue(f"a worker named {self.worker!r}: expected printable text")
        for name in (*self.group, *([] if self.host is None else [self.host])):
            if not is_printable_text(name):
                raise InvalidValue(f"worker {self.worker} has the group or host {name!r}: expected printable text")
        if not 0 < self.weight < math.inf:
            raise InvalidValue(f"weight {self.weight} of worker {self.worker}: expected a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All slots, in an order that never changes: new slots are appended. Every change returns a new fleet."""

    slots: tuple[Slot, ...]
    shared_host_policy: Literal["refuse", "warn", "allow"] = "refuse"
    """What to do if workers share a host: two shards that share no worker could then fail together."""
    _indexes: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        indexes: dict[str, int] = {}
        hosts: dict[str, str] = {}
        for index, slot in enumerate(self.slots):
            if slot.worker in indexes:
                raise InvalidValue(f"worker {slot.worker} is in two slots: expected each worker once")
            if len(slot.group) != len(self.slots[0].group):
                raise InvalidValue(
                    f"worker {slot.worker} has {format_count(len(slot.group), 'group')}, and worker "
                    f"{self.slots[0].worker} has {len(self.slots[0].group)}: expected the same number for each"
                )
            indexes[slot.worker] = index
            if slot.host is not None:
                other = hosts.setdefault(slot.host, slot.worker)
                if other != slot.worker:
                    self._check_shared_host(slot.host, other, slot.worker)
        for slot in self.slots:
            if slot.shares_slot_of is not None:
                self._check_slot_sharer(slot, indexes)
        object.__setattr__(self, "_indexes", indexes)

    def _check_shared_host(self, host: str, one: str, other: str) -> None:
        found = f"workers {one} and {other} are both on {host}: tenants that share no worker could fail together"
        if self.shared_host_policy == "refuse":
            raise InvalidValue(
                f"{found}; give each worker its own host, or set shared_host_policy (--allow-shared-hosts)"
            )
        if self.shared_host_policy == "warn":
            warnings.warn(found, stacklevel=2)

    def _check_slot_sharer(self, slot: Slot, indexes: Mapping[str, int]) -> None:
        other = (
            self.slots[indexes[slot.shares_slot_of]] if slot.shares_slot_of and slot.shares_slot_of in indexes else None
        )
        if other is None or other is slot or other.shares_slot_of is not None:
            raise InvalidValue(
                f"worker {slot.worker} shares the slot of {slot.shares_slot_of}: expected a worker with its own slot"
            )
        if other.group != slot.group:
            # Otherwise a shard could have two workers of one group.
            raise InvalidValue(
                f"worker {slot.worker} shares the slot of {slot.shares_slot_of} in another group: expected the same one"
            )

    @classmethod
    def from_workers(cls, workers: Iterable[str]) -> "Fleet":
        """Return a fleet without groups."""
        return cls(slots=tuple(Slot(worker=worker) for worker in workers))

    @classmethod
    def from_groups(cls, workers: Mapping[str, Iterable[str]]) -> "Fleet":
        """Return a fleet of workers by group, such as their zones."""
        return cls(slots=tuple(Slot(worker=name, group=(group,)) for group, names in workers.items() for name in names))

    def __len__(self) -> int:
        return len(self.slots)

    def find_index(self, worker: str) -> int:
        """Return the slot index of a worker. Raise NotFound if it is not in the fleet."""
        if worker not in self._indexes:
            raise NotFound(f"there is no worker {worker} in this fleet")
        return self._indexes[worker]

    def indexes_by_group(self, slot_count: int | None = None) -> dict[tuple[str, ...], Sequence[int]]:
        """Return the slot indexes by group, of the first `slot_count` slots, without sharers of others' slots."""
        found: dict[tuple[str, ...], list[int]] = {}
        for index, slot in enumerate(self.slots[:slot_count]):
            if slot.shares_slot_of is None:
                found.setdefault(slot.group, []).append(index)
        return dict(found)

    def dimensions(self) -> tuple[tuple[str, ...], ...]:
        """Return the values of each group dimension, such as all zones and all versions, in the order of slots."""
        depth = len(self.slots[0].group) if self.slots else 0
        return tuple(tuple(dict.fromkeys(slot.group[number] for slot in self.slots)) for number in range(depth))

    def slot_sharers(self) -> dict[int, Sequence[int]]:
        """Return, for each slot that several workers share, the indexes of these workers, its own worker first."""
        found: dict[int, list[int]] = {}
        for index, slot in enumerate(self.slots):
            if slot.shares_slot_of is not None:
                shared = self._indexes[slot.shares_slot_of]
                found.setdefault(shared, [shared]).append(index)
        return dict(found)

    def shared_hosts(self) -> dict[str, tuple[str, ...]]:
        """Return the hosts with several workers, and their workers."""
        found: dict[str, list[str]] = {}
        for slot in self.slots:
            if slot.host is not None:
                found.setdefault(slot.host, []).append(slot.worker)
        return {host: tuple(workers) for host, workers in found.items() if len(workers) > 1}

    def add(self, *slots: Slot) -> "Fleet":
        """Return a fleet with `slots` appended."""
        return replace(self, slots=(*self.slots, *slots))

    def drain(self, worker: str) -> "Fleet":
        """Return a fleet in which `worker` gets no more work. Its tenants use the other workers of their shards.

        If other workers share its slot, they take over its tenants.
        """
        self.find_index(worker)  # raises NotFound
        slots = (replace(slot, is_drained=True) if slot.worker == worker else slot for slot in self.slots)
        return replace(self, slots=tuple(slots))

    def replace(self, slot: int | str, worker: str, *, host: str | None = None, weight: float | None = None) -> "Fleet":
        """Return a fleet in which a new worker takes a slot, given by index or by worker, with the slot's tenants."""
        index = self.find_index(slot) if isinstance(slot, str) else slot
        if not 0 <= index < len(self.slots):
            raise InvalidValue(f"slot {index}: expected 0 to {len(self.slots) - 1}")
        old = self.slots[index]
        self._expect_new(worker)
        slots = self._redirect_sharers(old.worker, worker)
        slots[index] = replace(
            old, worker=worker, host=host, weight=old.weight if weight is None else weight, is_drained=False
        )
        return replace(self, slots=tuple(slots))

    def share_slot(self, worker: str, by: str, *, weight: float | None = None, host: str | None = None) -> "Fleet":
        """Return a fleet in which the new worker `by` shares the slot of `worker`, and takes over some of its tenants.

        With equal weights it takes half of them, or a third if two workers share the slot already. No other tenant
        moves. No two shards share more than before, because two that share the new worker shared the old one.
        """
        slot = self.slots[self.find_index(worker)]
        self._expect_new(by)
        more = replace(
            slot,
            worker=by,
            weight=slot.weight if weight is None else weight,
            host=host,
            is_drained=False,
            shares_slot_of=slot.shares_slot_of or worker,
        )
        return self.add(more)

    def replace_with_spare(self, worker: str, by: str) -> "Fleet":
        """Return a fleet in which the spare worker `by` takes the slot of `worker`.

        `worker` gets the slot of `by`, and is drained.
        """
        index, spare = self.find_index(worker), self.find_index(by)
        if index == spare:
            raise InvalidValue(f"{by} cannot replace itself: expected a spare worker")
        old, new = self.slots[index], self.slots[spare]
        if new.is_drained:
            raise InvalidValue(f"{by} cannot replace {worker}: it is drained; expected a worker that is not")
        if (old.group, old.shares_slot_of) != (new.group, new.shares_slot_of):
            raise InvalidValue(f"{by} cannot replace {worker}: expected a worker of the same group with its own slot")
        slots = self._redirect_sharers(worker, by)
        slots[index], slots[spare] = new, replace(old, is_drained=True)
        return replace(self, slots=tuple(slots))

    def double(self, workers: Sequence[str]) -> "Fleet":
        """Return a fleet with a new worker for each slot: its twin, in the same group and with the same weight."""
        if len(workers) != len(self.slots):
            given = format_count(len(workers), "worker")
            raise InvalidValue(f"{given} to double a fleet of {len(self.slots)}: expected one for each")
        names = {slot.worker: new for slot, new in zip(self.slots, workers, strict=True)}
        twins = (
            replace(
                slot,
                worker=names[slot.worker],
                host=None,
                is_drained=False,
                shares_slot_of=None if slot.shares_slot_of is None else names[slot.shares_slot_of],
            )
            for slot in self.slots
        )
        return self.add(*twins)

    def _expect_new(self, worker: str) -> None:
        if worker in self._indexes:
            raise InvalidValue(
                f"worker {worker} is in the fleet already: expected a new one; use `replace_with_spare` for a spare one"
            )

    def _redirect_sharers(self, old: str, new: str) -> list[Slot]:
        """Return all slots, in which workers that share the slot of `old` share that of `new`."""
        return [replace(slot, shares_slot_of=new) if slot.shares_slot_of == old else slot for slot in self.slots]


def is_printable_text(name: str) -> bool:
    """Return whether a name is not empty and has printable characters only."""
    return bool(name) and name.isprintable()
