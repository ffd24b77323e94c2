"""What a resolver is and finds; resolvers that need no network: a list, a pattern, a function. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone

AddressesByZone: TypeAlias = Mapping[Zone, Sequence[str]]
"""The addresses of one service in each of its zones."""


class Resolver(Protocol):
    """Finds the endpoints of one service. May be slow: `RefreshingDirectory` calls it in the background."""

    def resolve(self) -> AddressesByZone:
        """The addresses by zone, as they are now. Raises HoldfastError or OSError if that cannot be found out."""


class Directory(Protocol):
    """Knows where the endpoints of one service are."""

    def current(self) -> AddressesByZone:
        """The addresses by zone, from memory: called for every request. Another object when they have changed."""


def normalize(found: AddressesByZone) -> AddressesByZone:
    """The same for good: without zones that have no endpoint, each address once. Raises InvalidValue."""
    normalized = {}
    for zone, addresses in found.items():
        if isinstance(addresses, str):  # which is a sequence of texts as well
            raise InvalidValue(f"endpoints of zone {zone} are {addresses!r}: expected a list of addresses")
        if addresses:
            normalized[zone] = tuple(dict.fromkeys(addresses))
    return MappingProxyType(normalized)


def parse_zones(names: Iterable[str]) -> tuple[Zone, ...]:
    """The zones, each once. Raises InvalidValue if there is none, or if one cannot be an AZ-ID."""
    zones = tuple(dict.fromkeys(parse_zone(name) for name in names))
    if not zones:
        raise InvalidValue("zones are none: expected at least one AZ-ID such as use1-az1")
    return zones


def check_template(name: str, template: str, *fields: str) -> str:
    """The template, if it has the first field and no other than these. Raises InvalidValue."""
    expected = " and ".join(f"{{{field}}}" for field in fields)
    try:
        filled = template.format(**dict.fromkeys(fields, "1"))
    except (LookupError, ValueError, AttributeError) as error:
        raise InvalidValue(f"{name} is {template!r}: expected a text with {expected}, and no other braces") from error
    if filled == template.format(**{**dict.fromkeys(fields, "1"), fields[0]: "2"}):
        raise InvalidValue(f"{name} is {template!r}: expected {{{fields[0]}}} in it")
    return template


def format_address(template: str, host: str, port: int | str) -> str:
    """The address of a host and a port; the numbers of IPv6 get their brackets."""
    return template.format(host=f"[{host}]" if ":" in host else host, port=port)


class StaticResolver:
    """The endpoints that it is given. A Resolver and a Directory."""

    def __init__(self, by_zone: AddressesByZone) -> None:
        self._known = normalize(by_zone)
        empty = by_zone.keys() - self._known.keys()
        if empty or not by_zone:
            raise InvalidValue(
                f"endpoints of zones {', '.join(sorted(empty)) or 'none'}: expected at least one zone, and one in each"
            )

    def resolve(self) -> AddressesByZone:
        return self._known

    def current(self) -> AddressesByZone:
        return self._known


class PatternResolver(StaticResolver):
    """One name in each zone, such as that of a load balancer: `https://{zone}.pricing.internal`."""

    def __init__(self, pattern: str, zones: Iterable[str]) -> None:
        check_template("pattern", pattern, "zone")
        super().__init__({zone: [pattern.format(zone=zone)] for zone in parse_zones(zones)})


class FunctionResolver:
    """The endpoints that a function returns, for whatever this folder has no resolver for."""

    def __init__(self, function: Callable[[], AddressesByZone]) -> None:
        self._function = function

    def resolve(self) -> AddressesByZone:
        return self._function()
