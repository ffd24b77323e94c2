"""What a resolver is, and what it finds. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias

from holdfast._errors import InvalidValue
from holdfast._names import zone_of
from holdfast._types import Zone

ByZone: TypeAlias = Mapping[Zone, Sequence[str]]
"""The addresses of one service in each of its zones."""


class Resolver(Protocol):
    """Finds out where the endpoints of one service are. May take its time: `Refreshing` keeps callers from waiting."""

    def resolve(self) -> ByZone:
        """The addresses by zone, as they are now. Raises HoldfastError or OSError if that cannot be found out."""


class Directory(Protocol):
    """Knows where the endpoints of one service are."""

    def current(self) -> ByZone:
        """The addresses by zone, from memory: called for every request. Another object when they have changed."""


def tidy(found: ByZone) -> ByZone:
    """The same for good: without zones that have no endpoint, each address once. Raises InvalidValue."""
    tidied = {}
    for zone, addresses in found.items():
        if isinstance(addresses, str):  # which is a sequence of texts as well
            raise InvalidValue(f"endpoints of zone {zone} are {addresses!r}: expected a list of addresses")
        if addresses:
            tidied[zone] = tuple(dict.fromkeys(addresses))
    return MappingProxyType(tidied)


def zones_of(names: Iterable[str]) -> tuple[Zone, ...]:
    """The zones, each once. Raises InvalidValue if there is none, or if one cannot be an AZ-ID."""
    zones = tuple(dict.fromkeys(zone_of(name) for name in names))
    if not zones:
        raise InvalidValue("zones are none: expected at least one AZ-ID such as use1-az1")
    return zones
