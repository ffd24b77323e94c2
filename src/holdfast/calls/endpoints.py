"""The choice of the next endpoint: each zone in turn, or the own zone first, never a zone that is out. Pure."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone, ZoneView
from holdfast.calls.resolvers.resolver import AddressesByZone, EndpointCache, StaticResolver

ChooseAddress: TypeAlias = Callable[[Collection[str], frozenset[Zone]], str | None]
"""Returns the address to call, given the addresses tried and the zones that are out; None if none is left."""

_NONE: frozenset[Zone] = frozenset()


class NoEndpoint(EngineUnavailable):
    """Every zone that has endpoints is out, or no endpoints are known."""

    slug = "no-endpoint"


class Endpoint(NamedTuple):
    """The zone and address to call: `zone, address = endpoints.next()`."""

    zone: Zone
    address: str


class AllZonesIn:
    """A ZoneView in which no zone is out."""

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:  # noqa: ARG002
        return _NONE  # always the same object: `next` compares by identity


class Endpoints:
    """The endpoints of one service by zone. Thread-safe; makes no network calls.

    Calls go to the zones in turn, and inside a zone to its endpoints in turn: each zone gets an equal share, with few
    endpoints or many. With `own_zone`, first attempts stay in that zone while it is in, so that the failure of another
    zone does not affect them. A retry goes to another zone. Zones are AZ-IDs: the name of a zone, such as us-east-1a,
    raises InvalidValue.

    `endpoints` is a mapping, or an EndpointCache that follows changes, such as `RefreshingEndpointCache`. Without
    `zones`, all zones are in. `offset` is the index to start with. Use a random one in short-lived processes; otherwise
    each of them starts with the first endpoint.
    """

    def __init__(
        self,
        endpoints: AddressesByZone | EndpointCache,
        zones: ZoneView | None = None,
        workload: str | None = None,
        *,
        own_zone: Zone | None = None,
        offset: int = 0,
    ) -> None:
        directory = StaticResolver(endpoints) if isinstance(endpoints, Mapping) else endpoints
        if not hasattr(directory, "current"):
            # A resolver may call a server, which must not happen for every request.
            raise InvalidValue(
                f"endpoints are {endpoints!r}: expected addresses by zone, or a RefreshingEndpointCache of a resolver"
            )
        self._directory = directory
        self._zone_view = AllZonesIn() if zones is None else zones
        self._workload = workload
        self._own_zone = None if own_zone is None else parse_zone(own_zone)
        self._offset = offset
        self._zone_counter = itertools.count(offset)
        self._address_counters: dict[Zone, itertools.count[int]] = {}
        self._candidates = _Candidates({}, _NONE, [], None)

    def next(self, tried: Collection[str] = ()) -> Endpoint:
        """Return the endpoint to call, with an address that is not in `tried`. When all were tried, start over.

        A retry goes to the zone with the fewest tried endpoints: the whole zone of the others may have failed. Among
        equals, the own zone comes first. Raise NoEndpoint if no zone with endpoints is in.
        """
        known = self._directory.current()
        out = self._zone_view.zones_out(self._workload)
        candidates = self._candidates
        if candidates.known is not known or candidates.out is not out:
            candidates = self._candidates = self._find_candidates(known, out)
        if tried:
            candidates = _leave_out_tried(candidates, tried)
        zone = candidates.own_zone or candidates.zones[next(self._zone_counter) % len(candidates.zones)]
        addresses = candidates.known[zone]
        return Endpoint(zone, addresses[next(self._address_counters[zone]) % len(addresses)])

    def _find_candidates(self, known: AddressesByZone, out: frozenset[Zone]) -> "_Candidates":
        zones = [zone for zone, addresses in known.items() if addresses and zone not in out]
        if not zones:
            names = ", ".join(zone for zone, addresses in known.items() if addresses)
            if not names:
                raise NoEndpoint("no endpoints are known: add endpoints, or check the resolver")
            raise NoEndpoint(f"all zones with endpoints ({names}) are out: bring one in, or add endpoints elsewhere")
        for zone in zones:
            # Another offset than that of the zones. With the same offset, only two of four endpoints, in two zones with
            # two each, could be the first.
            self._address_counters.setdefault(zone, itertools.count(self._offset // len(known)))
        return _Candidates(known, out, zones, self._own_zone if self._own_zone in zones else None)


class ShardEndpoints:
    """The endpoints of one tenant's shard. A retry goes to another endpoint of the same shard, never outside of it.

    `members` are all endpoints of the shard, each with the AZ-ID of its zone. `choose` picks one of their addresses, as
    `holdfast.shards.pick_worker` does. Thread-safe if `choose` is.
    """

    def __init__(
        self,
        members: Iterable[tuple[Zone, str]],
        choose: ChooseAddress,
        zones: ZoneView | None = None,
        workload: str | None = None,
    ) -> None:
        self._zone_by_address = {address: parse_zone(zone) for zone, address in members}
        if not self._zone_by_address:
            raise InvalidValue("the shard has no endpoints: expected at least one")
        self._choose = choose
        self._zone_view = AllZonesIn() if zones is None else zones
        self._workload = workload

    def next(self, tried: Collection[str] = ()) -> Endpoint:
        """Return the endpoint to call, outside `tried` while there are others. Raise NoEndpoint if all are out."""
        out = self._zone_view.zones_out(self._workload)
        address = self._choose(tried, out)
        if address is None and tried:
            address = self._choose((), out)
        if address is None:
            raise NoEndpoint(
                f"no endpoint of the shard ({', '.join(self._zone_by_address)}) may be called: bring a zone in, or "
                "replace members"
            )
        if address not in self._zone_by_address:
            raise InvalidValue(f"choose returned {address}, which is not in the shard: expected one of its addresses")
        return Endpoint(self._zone_by_address[address], address)


class _Candidates(NamedTuple):
    """The endpoints to choose from. Valid until the known endpoints or the zones that are out change."""

    known: AddressesByZone
    out: frozenset[Zone]
    zones: list[Zone]
    """The zones that are in."""
    own_zone: Zone | None
    """None if it is not in `zones`."""


def _leave_out_tried(candidates: _Candidates, tried: Collection[str]) -> _Candidates:
    """Return the untried endpoints, with the least tried zones as `zones`; `candidates` if all were tried."""
    left = {zone: [address for address in candidates.known[zone] if address not in tried] for zone in candidates.zones}
    counts = {zone: len(candidates.known[zone]) - len(left[zone]) for zone in candidates.zones if left[zone]}
    if not counts:
        return candidates
    zones = [zone for zone, count in counts.items() if count == min(counts.values())]
    return _Candidates(left, candidates.out, zones, candidates.own_zone if candidates.own_zone in zones else None)
