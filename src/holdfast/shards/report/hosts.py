"""Machines in place of workers: what tenants share where several workers are on one machine. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.shards.fleet import Fleet, Slot
from holdfast.shards.report.table import Places, Table


@dataclass(frozen=True, slots=True)
class SharedHost:
    """A machine with several workers on it."""

    host: str
    workers: tuple[str, ...]


def shared_hosts(fleet: Fleet) -> tuple[SharedHost, ...]:
    """The machines with several workers, and which."""
    return tuple(SharedHost(host, workers) for host, workers in fleet.crowded().items())


def by_host(fleet: Fleet, table: npt.ArrayLike | Table) -> tuple[Fleet, Places]:
    """The same with machines in place of workers: a fleet of them, and who has which.

    A worker of which no machine is known is one itself. What a machine weighs is what its workers weigh together; it is
    where the first of them is, and drained once all of them are. Raises InvalidValue if a worker without a machine has
    the name of one.
    """
    slots = []
    for name, places in _machines(fleet):
        some = [fleet.slots[place] for place in places]
        slots.append(
            Slot(
                worker=name,
                group=some[0].group,
                weight=sum(slot.weight for slot in some),
                is_drained=all(slot.is_drained for slot in some),
            )
        )
    return Fleet(slots=tuple(slots)), on_hosts(fleet, table).array()


def on_hosts(fleet: Fleet, table: npt.ArrayLike | Table) -> Table:
    """Which machines tenants have; one that a tenant has two workers on counts once."""
    machines = _machines(fleet)
    onto = np.zeros(len(fleet), dtype=np.int32)
    for number, (_, places) in enumerate(machines):
        onto[places] = number
    return Table.of(table, len(fleet)).mapped(onto, len(machines))


def _machines(fleet: Fleet) -> Sequence[tuple[str, list[int]]]:
    """Every machine and the slots on it, in the order of their first slots."""
    places: dict[tuple[str, bool], list[int]] = {}
    for place, slot in enumerate(fleet.slots):
        name = slot.worker if slot.host is None else slot.host
        places.setdefault((name, slot.host is None), []).append(place)
    return [(name, some) for (name, _), some in places.items()]
