"""Decide how large a service must be, so that its units in the other zones suffice without the one that fails. Pure.

AWS spreads the units of a service evenly over its zones. So the part in the zone that fails, rounded up, is lost.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

from holdfast._types import Zone
from holdfast.evacuate.capacity import MARGIN, ServiceCapacity, check_capacity

_ROUNDING = 1e-9
"""Part of a unit that is lost or gained by the arithmetic of floats."""


class ScaleOut(Struct, frozen=True, kw_only=True):
    """A size of a service, and its units in the other zones."""

    size: int
    """Units in all zones; 0 if nothing needs to be added."""
    added: float
    """Units that are new in the other zones."""
    others: float = 0.0
    """Units that the other zones must have together before traffic is moved."""
    per_zone: float = 0.0
    """Units that each of the other zones must have; 0 with cross-zone load balancing."""
    limit: str = ""
    """The bound that prevents a larger size, such as `MaxSize 12`; "" if nothing does."""


NOTHING = ScaleOut(size=0, added=0.0)


def plan_scale_out(
    service: ServiceCapacity,
    zone: Zone,
    *,
    desired: int,
    max_size: int,
    max_reason: str = "",
    free: Mapping[Zone, float] | None = None,
    margin: float = MARGIN,
) -> ScaleOut:
    """Return the smallest size with which the other zones carry the highest load, or the largest that is allowed.

    `desired` is the size now, and `max_reason` says what limits it to `max_size`. `free` has the units for which the
    subnets of each zone have addresses; None if that is unknown.
    """
    if check_capacity(service, zone, margin).suffices:
        return NOTHING
    units = {each: found for each, found in service.by_zone.items() if each != zone}
    if not units:
        return ScaleOut(size=0, added=0.0, limit="it has no other zone")
    zones, needed = len(service.by_zone), service.need * (1 + margin)
    others = math.ceil(needed - _ROUNDING) if service.is_cross_zone else 0
    per_zone = 0 if service.is_cross_zone else math.ceil(needed / len(units) - _ROUNDING)
    size, limit = max(_divide_up(others * zones, len(units)), per_zone * zones), ""
    if size > max_size:
        size, limit = max_size, max_reason
    if free is not None:
        while size > desired and not _has_addresses(service, units, zones, size, free):
            size, limit = size - 1, f"{sum(free.get(each, 0.0) for each in units):g} free IP addresses in other zones"
    if size <= desired:
        return ScaleOut(size=0, added=0.0, limit=limit)
    return ScaleOut(
        size=size,
        added=sum(_count_added(service, units, zones, size).values()),
        others=min(others, size - _divide_up(size, zones)),
        per_zone=min(per_zone, size // zones),
        limit=limit,
    )


def _count_added(
    service: ServiceCapacity, units: Mapping[Zone, float], zones: int, size: int
) -> dict[Zone | None, float]:
    """Return the units that are added in each of the other zones; with cross-zone load balancing, the sum."""
    if service.is_cross_zone:
        return {None: max(math.ceil(size - _divide_up(size, zones) - sum(units.values()) - _ROUNDING), 0)}
    return {each: max(math.ceil(size // zones - found - _ROUNDING), 0) for each, found in units.items()}


def _has_addresses(
    service: ServiceCapacity, units: Mapping[Zone, float], zones: int, size: int, free: Mapping[Zone, float]
) -> bool:
    """Return whether the subnets have addresses for new units; with cross-zone load balancing, in any zone."""
    added = _count_added(service, units, zones, size)
    if service.is_cross_zone:
        return sum(added.values()) <= sum(free.get(each, 0.0) for each in units)
    return all(number <= free.get(each, 0.0) for each, number in added.items() if each is not None)


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
