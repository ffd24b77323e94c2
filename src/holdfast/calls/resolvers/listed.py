"""Endpoints that are known from the beginning. Pure."""

from collections.abc import Iterable

from holdfast._errors import InvalidValue
from holdfast.calls.resolvers.form import check_form
from holdfast.calls.resolvers.resolver import ByZone, tidy, zones_of


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
