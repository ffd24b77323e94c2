"""Which endpoint to call next: every zone in turn, or the own one first, without those that are out. Pure."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import Zone, ZoneView
from holdfast.calls.resolvers.resolver import AddressesByZone, Directory, StaticResolver

ChooseAddress: TypeAlias = Callable[[Collection[str], frozenset[Zone]], str | None]
"""Names the address to call, given those that were tried and the zones that are out; None if none is left."""

_NONE: frozenset[Zone] = frozenset()


class NoEndpoint(EngineUnavailable):
    """Every zone that has endpoints is out."""

    slug = "no-endpoint"


class Endpoint(NamedTuple):
    """Where to call. A pair: `zone, address = endpoints.next()`."""

    zone: Zone
    address: str


class AllZonesIn:
    """A ZoneView that knows of no zone that is out."""

    def out(self, workload: str | None = None) -> frozenset[Zone]:  # noqa: ARG002
        return _NONE  # always the same one, which makes it quick to see that nothing has changed


class Endpoints:
    """The endpoints of one service by zone. Thread-safe; decides from memory.

    Calls go round the zones, and inside a zone round its endpoints, so that zones get equal shares whatever the number
    of their instances. With `own_zone`, calls stay in that zone while it is in, so that one zone's failure stays in it.

    The endpoints are a mapping, or a Directory that knows them as they change, such as `RefreshingDirectory`. Without
    a `zones`, all zones are in. `offset` is where the round begins: random for short-lived processes, else all call
    the first.
    """

    def __init__(
        self,
        endpoints: AddressesByZone | Directory,
        zones: ZoneView | None = None,
        workload: str | None = None,
        *,
        own_zone: Zone | None = None,
        offset: int = 0,
    ) -> None:
        directory = StaticResolver(endpoints) if isinstance(endpoints, Mapping) else endpoints
        if not hasattr(directory, "current"):
            # A resolver may ask a server: that must not happen for every request.
            raise InvalidValue(
                f"endpoints are {endpoints!r}: expected addresses by zone, or RefreshingDirectory(...) of this"
            )
        self._directory = directory
        self._zone_view = AllZonesIn() if zones is None else zones
        self._workload = workload
        self._own_zone = own_zone
        self._offset = offset
        self._zone_counter = itertools.count(offset)
        self._address_counters: dict[Zone, itertools.count[int]] = {}
        self._candidates = _Candidates({}, _NONE, [], None)

    def next(self, tried: Collection[str] = ()) -> Endpoint:
        """Return the endpoint to call; on a retry, one whose address was not `tried`. When all were, it starts over.

        The own zone comes first while it is in and has one that was not tried. Else a retry goes to the zone in which
        the fewest were tried: the zone may be what failed. Raise NoEndpoint when all zones with endpoints are out.
        """
        known = self._directory.current()
        out = self._zone_view.out(self._workload)
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
            names = ", ".join(known) or "none is known"
            raise NoEndpoint(f"all zones ({names}) are out: bring one back, or add endpoints elsewhere")
        for zone in zones:
            # Divided: with the same start as the zones, of two zones with two endpoints only two would ever come first.
            self._address_counters.setdefault(zone, itertools.count(self._offset // len(known)))
        return _Candidates(known, out, zones, self._own_zone if self._own_zone in zones else None)


class ShardEndpoints:
    """The endpoints of one tenant's shard: on a retry another one of the same shard, never one outside of it.

    `members` are all endpoints of the shard. `choose` picks one of their addresses, as `holdfast.shards.pick_worker`
    does. As thread-safe as `choose`.
    """

    def __init__(
        self,
        members: Iterable[tuple[Zone, str]],
        choose: ChooseAddress,
        zones: ZoneView | None = None,
        workload: str | None = None,
    ) -> None:
        self._zone_by_address = {address: zone for zone, address in members}
        if not self._zone_by_address:
            raise InvalidValue("a shard has no endpoints: expected at least one")
        self._choose = choose
        self._zone_view = AllZonesIn() if zones is None else zones
        self._workload = workload

    def next(self, tried: Collection[str] = ()) -> Endpoint:
        """Return the endpoint to call, not one of `tried` while there are others. Raise NoEndpoint if all are out."""
        out = self._zone_view.out(self._workload)
        address = self._choose(tried, out)
        if address is None and tried:
            address = self._choose((), out)
        if address is None:
            raise NoEndpoint(
                f"none of the shard ({', '.join(self._zone_by_address)}) may be called: bring a zone back, or "
                "replace members"
            )
        if address not in self._zone_by_address:
            raise InvalidValue(f"{address} was chosen, which is not in the shard: expected one of its endpoints")
        return Endpoint(self._zone_by_address[address], address)


class _Candidates(NamedTuple):
    """What can be called, for as long as neither the endpoints nor the zones that are out change."""

    known: AddressesByZone
    out: frozenset[Zone]
    zones: list[Zone]
    """Those that are in."""
    own_zone: Zone | None
    """Only if it is one of them."""


def _leave_out_tried(candidates: _Candidates, tried: Collection[str]) -> _Candidates:
    """What of it was not tried, in the zones that come next; everything if all was tried."""
    left = {zone: [address for address in candidates.known[zone] if address not in tried] for zone in candidates.zones}
    counts = {zone: len(candidates.known[zone]) - len(left[zone]) for zone in candidates.zones if left[zone]}
    if not counts:
        return candidates
    zones = [zone for zone, count in counts.items() if count == min(counts.values())]
    return _Candidates(left, candidates.out, zones, candidates.own_zone if candidates.own_zone in counts else None)
