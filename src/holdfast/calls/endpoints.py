"""Which endpoint to call next: every zone in turn, without those that are out."""

import itertools
from collections.abc import Mapping, Sequence

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import Zone, ZoneView


class NoEndpoint(EngineUnavailable):
    """Every zone that has endpoints is out."""

    slug = "no-endpoint"


class Endpoints:
    """The endpoints of one service by zone. Thread-safe.

    Calls go round the zones, and inside a zone round its endpoints, so that zones get equal shares whatever the number
    of their instances.
    """

    def __init__(self, by_zone: Mapping[Zone, Sequence[str]], view: ZoneView, workload: str | None = None) -> None:
        empty = [zone for zone, addresses in by_zone.items() if not addresses]
        if empty or not by_zone:
            raise InvalidValue(f"endpoints of zones {empty or 'none'}: expected at least one zone, and one in each")
        self._zones = list(by_zone)
        self._addresses = {zone: itertools.cycle(list(addresses)) for zone, addresses in by_zone.items()}
        self._view = view
        self._workload = workload
        self._turn = itertools.count()

    def next(self) -> tuple[Zone, str]:
        """The zone and the address to call. Raises NoEndpoint when all zones are out."""
        out = self._view.out(self._workload)
        zones = [zone for zone in self._zones if zone not in out] if out else self._zones
        if not zones:
            raise NoEndpoint(
                f"all zones ({', '.join(self._zones)}) are out: bring one back, or add endpoints elsewhere"
            )
        zone = zones[next(self._turn) % len(zones)]
        return zone, next(self._addresses[zone])
