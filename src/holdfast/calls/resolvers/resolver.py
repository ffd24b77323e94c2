"""What a resolver is and finds; resolvers that need no network: a list, a pattern, a function. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def check_form(name: str, form: str, *fields: str) -> str:
    """The form, if it has the first field and no other than these. Raises InvalidValue."""
    expected = " and ".join(f"{{{field}}}" for field in fields)
    try:
        filled = form.format(**dict.fromkeys(fields, "1"))
    except (LookupError, ValueError, AttributeError) as error:
        raise InvalidValue(f"{name} is {form!r}: expected a text with {expected}, and no other braces") from error
    if filled == form.format(**{**dict.fromkeys(fields, "1"), fields[0]: "2"}):
        raise InvalidValue(f"{name} is {form!r}: expected {{{fields[0]}}} in it")
    return form


def fill(form: str, host: str, port: int | str) -> str:
    """The address of a host and a port; the numbers of IPv6 get their brackets."""
    return form.format(host=f"[{host}]" if ":" in host else host, port=port)


class Listed:
    """The endpoints that it is given. A Resolver and a Directory."""

    def __init__(self, by_zone: ByZone) -> None:
        self._known = tidy(by_zone)
        empty = by_zone.keys() - self._known.keys()
        if empty or not by_zone:
            raise InvalidValue(
                f"endpoints of zones {', '.join(sorted(empty)) or 'none'}: expected at least one zone, and one in each"
            )

    def resolve(self) -> ByZone:
        return self._known

    def current(self) -> ByZone:
        return self._known


class Pattern(Listed):
    """One name in each zone, such as that of a load balancer: `https://{zone}.pricing.internal`."""

    def __init__(self, pattern: str, zones: Iterable[str]) -> None:
        check_form("pattern", pattern, "zone")
        super().__init__({zone: [pattern.format(zone=zone)] for zone in zones_of(zones)})


class Called:
    """The endpoints that a function returns, for whatever this folder has no resolver for."""

    def __init__(self, function: Callable[[], ByZone]) -> None:
        self._function = function

    def resolve(self) -> ByZone:
        return self._function()
