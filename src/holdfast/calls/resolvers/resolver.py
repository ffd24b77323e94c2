"""The interfaces Resolver and EndpointCache, and resolvers without network access: list, pattern, function. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone

AddressesByZone: TypeAlias = Mapping[Zone, Sequence[str]]
"""The addresses of one service in each of its zones."""


class Resolver(Protocol):
    """A source of one service's endpoints. May be slow: `RefreshingEndpointCache` calls it in the background."""

    def resolve(self) -> AddressesByZone:
        """Look up the current addresses by zone. Raise HoldfastError or OSError if the look-up fails."""


class EndpointCache(Protocol):
    """The known endpoints of one service, in memory."""

    def current(self) -> AddressesByZone:
        """Return the addresses by zone from memory, for every request. Return another object only after a change."""


def normalize(found: AddressesByZone) -> AddressesByZone:
    """Return an immutable copy without empty zones and duplicates.

    Raise InvalidValue for text instead of a list, and for a zone that is no AZ-ID, which would never be out.
    """
    normalized = {}
    for zone, addresses in found.items():
        if isinstance(addresses, str):  # a str is a sequence of str as well
            raise InvalidValue(f"endpoints of zone {zone} are {addresses!r}: expected a list of addresses")
        if addresses:
            normalized[parse_zone(zone)] = tuple(dict.fromkeys(addresses))
    return MappingProxyType(normalized)


def parse_zones(names: Iterable[str]) -> tuple[Zone, ...]:
    """Return the zones without duplicates. Raise InvalidValue if there is none, or one is not an AZ-ID."""
    zones = tuple(dict.fromkeys(parse_zone(name) for name in names))
    if not zones:
        raise InvalidValue("no zones: expected at least one AZ-ID such as use1-az1")
    return zones


def check_template(name: str, template: str, *fields: str) -> str:
    """Return `template`, or raise InvalidValue if it lacks the first field or has a field that is not in `fields`."""
    expected = " and ".join(f"{{{field}}}" for field in fields)
    try:
        filled = template.format(**dict.fromkeys(fields, "1"))
    except (LookupError, ValueError, AttributeError) as error:
        raise InvalidValue(f"{name} is {template!r}: expected text with {expected}, and no other braces") from error
    if filled == template.format(**{**dict.fromkeys(fields, "1"), fields[0]: "2"}):
        raise InvalidValue(f"{name} is {template!r}: expected {{{fields[0]}}} in it")
    return template


def format_address(template: str, host: str, port: int | str) -> str:
    """Return the address for a host and a port. An IPv6 host gets brackets."""
    return template.format(host=f"[{host}]" if ":" in host else host, port=port)


class StaticResolver:
    """A fixed list of endpoints. A Resolver and an EndpointCache."""

    def __init__(self, by_zone: AddressesByZone) -> None:
        self._known = normalize(by_zone)
        empty = by_zone.keys() - self._known.keys()
        if empty or not by_zone:
            raise InvalidValue(
                f"no endpoints in {', '.join(sorted(empty)) or 'any zone'}: expected at least one zone, and one in each"
            )

    def resolve(self) -> AddressesByZone:
        return self._known

    def current(self) -> AddressesByZone:
        return self._known


class PatternResolver(StaticResolver):
    """One address in each zone, such as a load balancer's: `https://{zone}.pricing.internal`."""

    def __init__(self, pattern: str, zones: Iterable[str]) -> None:
        check_template("pattern", pattern, "zone")
        super().__init__({zone: [pattern.format(zone=zone)] for zone in parse_zones(zones)})


class FunctionResolver:
    """The endpoints that a function returns, for any source without a resolver here."""

    def __init__(self, function: Callable[[], AddressesByZone]) -> None:
        self._function = function

    def resolve(self) -> AddressesByZone:
        return self._function()
