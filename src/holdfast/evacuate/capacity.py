"""Decide whether the zones that remain can carry all load. Pure.

A service must have enough capacity in the other zones for its highest load of the last days. Capacity is counted in
units: instances, or tasks. A balancer that sends traffic only to units of its own zone gives every zone the same load,
so there each of the other zones must suffice for its part.
"""

from collections.abc import Mapping

from msgspec import Struct

from holdfast._types import Zone

MARGIN = 0.1
"""Share of the highest load for which there must be capacity in addition: the next peak may be higher."""


_ROUNDING = 1e-9
"""Part of a unit by which floats may be wrong: 100 units with a margin of 10 % are a little more than 110."""


class ServiceCapacity(Struct, frozen=True, kw_only=True):
    """The capacity of one service in each zone, and how much of it the highest load needs."""

    id: str
    """The ARN."""
    name: str
    type: str
    by_zone: Mapping[Zone, float]
    """Healthy units in service, in every zone in which the service may run."""
    need: float
    """Units that the highest load of the last days needs."""
    basis: str
    """How `need` was found, in words with numbers."""
    is_weak: bool = False
    """Whether `need` is a guess, because the load itself is not known."""
    is_cross_zone: bool = True
    """Whether traffic is spread over the units of all zones. If not, every zone gets the same part of it."""
    added: float = 0.0
    """Units that this evacuation adds in the other zones before it moves traffic."""
    limit: str = ""
    """The limit that prevents more units, such as `MaxSize 12`; "" if nothing does."""


class CapacityResult(Struct, frozen=True):
    """The capacity of a service without one zone."""

    remaining: float
    """Units in the other zones, with those that are added. Without cross-zone load balancing, the smallest zone counts
    for all of them."""
    needed: float
    """Units that are needed there, with the margin."""

    @property
    def suffices(self) -> bool:
        return self.remaining >= self.needed - _ROUNDING


def check_capacity(service: ServiceCapacity, zone: Zone, margin: float = MARGIN) -> CapacityResult:
    """Return whether a service can do without a zone."""
    needed = service.need * (1 + margin)
    others = [units for each, units in service.by_zone.items() if each != zone]
    if not others:
        return CapacityResult(0.0, needed)
    if service.is_cross_zone:
        return CapacityResult(sum(others) + service.added, needed)
    # Every zone gets the same load, so the zone with the fewest units decides. New units go where there are fewest.
    return CapacityResult(_fill_up(others, service.added) * len(others), needed)


def _fill_up(units: list[float], added: float) -> float:
    """Return the units of the smallest zone after whole units were added, each to the smallest zone."""
    found = sorted(units)
    for _ in range(int(added)):
        found[0] += 1
        found.sort()
    return found[0]
