"""Which endpoint to call next: every zone in turn, or the own one first, without those that are out. Pure."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import Zone, ZoneView
from holdfast.calls.resolvers.resolver import ByZone, Directory, Listed

Choose: TypeAlias = Callable[[Collection[str], frozenset[Zone]], str | None]
"""Names the address to call, given those that were tried and the zones that are out; None if none is left."""

_NONE: frozenset[Zone] = frozenset()


class NoEndpoint(EngineUnavailable):
    """Every zone that has endpoints is out."""

    slug = "no-endpoint"


class Endpoint(NamedTuple):
    """Where to call. A pair: `zone, address = endpoints.next()`."""

    zone: Zone
    address: str


class AllIn:
    """A ZoneView that knows of no zone that is out."""

    def out(self, workload: str | None = None) -> frozenset[Zone]:  # noqa: ARG002
        return _NONE  # always the same one, which makes it quick to see that nothing has changed


class Endpoints:
    """The endpoints of one service by zone. Thread-safe; decides from memory.

    Calls go round the zones, and inside a zone round its endpoints, so that zones get equal shares whatever the number
    of their instances. With `own_zone`, calls stay in that zone while it is in, so that one zone's failure stays in it.

    The endpoints are a mapping, or a Directory that knows them as they change, such as `Refreshing`. Without a `view`,
    all zones are in. `turn` is where the round begins: random for short-lived processes, else all call the first.
    """

    def __init__(
        self,
        endpoints: ByZone | Directory,
        view: ZoneView | None = None,
        workload: str | None = None,
        *,
        own_zone: Zone | None = None,
        turn: int = 0,
    ) -> None:
        directory = Listed(endpoints) if isinstance(endpoints, Mapping) else endpoints
        if not hasattr(directory, "current"):
            # A resolver may ask a server: that must not happen for every request.
            raise InvalidValue(f"endpoints are {endpoints!r}: expected addresses by zone, or Refreshing(...) of this")
        self._directory = directory
        self._view = AllIn() if view is None else view
        self._workload = workload
        self._own_zone = own_zone
        self._first = turn
        self._turn = itertools.count(turn)
        self._turns: dict[Zone, itertools.count[int]] = {}
        self._usable = _Usable({}, _NONE, [], None)

    def next(self, tried: Collection[str] = ()) -> Endpoint:
        """Return the endpoint to call; on a retry, one whose address was not `tried`. When all were, it starts over.

        The own zone comes first while it is in and has one that was not tried. Else a retry goes to the zone in which
        the fewest were tried: the zone may be what failed. Raise NoEndpoint when all zones with endpoints are out.
        """
        known = self._directory.current()
        out = self._view.out(self._workload)
        usable = self._usable
        if usable.known is not known or usable.out is not out:
            usable = self._usable = self._look_again(known, out)
        if tried:
            usable = _untried(usable, tried)
        zone = usable.own_zone or usable.zones[next(self._turn) % len(usable.zones)]
        addresses = usable.known[zone]
        return Endpoint(zone, addresses[next(self._turns[zone]) % len(addresses)])

    def _look_again(self, known: ByZone, out: frozenset[Zone]) -> "_Usable":
        zones = [zone for zone, addresses in known.items() if addresses and zone not in out]
        if not zones:
            names = ", ".join(known) or "none is known"
            raise NoEndpoint(f"all zones ({names}) are out: bring one back, or add endpoints elsewhere")
        for zone in zones:
            # Divided: with the same start as the zones, of two zones with two endpoints only two would ever come first.
            self._turns.setdefault(zone, itertools.count(self._first // len(known)))
        return _Usable(known, out, zones, self._own_zone if self._own_zone in zones else None)


class ShardEndpoints:
    """The endpoints of one tenant's shard: on a retry another one of the same shard, never one outside of it.

    `members` are all endpoints of the shard. `choose` picks one of their addresses, as `holdfast.shards.pick` does. As
    thread-safe as `choose`.
    """

    def __init__(
        self,
        members: Iterable[tuple[Zone, str]],
        choose: Choose,
        view: ZoneView | None = None,
        workload: str | None = None,
    ) -> None:
        self._zones = {address: zone for zone, address in members}
        if not self._zones:
            raise InvalidValue("a shard has no endpoints: expected at least one")
        self._choose = choose
        self._view = AllIn() if view is None else view
        self._workload = workload

    def next(self, tried: Collection[str] = ()) -> Endpoint:
        """Return the endpoint to call, not one of `tried` while there are others. Raise NoEndpoint if all are out."""
        out = self._view.out(self._workload)
        address = self._choose(tried, out)
        if address is None and tried:
            address = self._choose((), out)
        if address is None:
            raise NoEndpoint(
                f"none of the shard ({', '.join(self._zones)}) may be called: bring a zone back, or replace members"
            )
        if address not in self._zones:
            raise InvalidValue(f"{address} was chosen, which is not in the shard: expected one of its endpoints")
        return Endpoint(self._zones[address], address)


class _Usable(NamedTuple):
    """What can be called, for as long as neither the endpoints nor the zones that are out change."""

    known: ByZone
    out: frozenset[Zone]
    zones: list[Zone]
    """Those that are in."""
    own_zone: Zone | None
    """Only if it is one of them."""


def _untried(usable: _Usable, tried: Collection[str]) -> _Usable:
    """What of it was not tried, in the zones that come next; everything if all was tried."""
    left = {zone: [address for address in usable.known[zone] if address not in tried] for zone in usable.zones}
    counts = {zone: len(usable.known[zone]) - len(left[zone]) for zone in usable.zones if left[zone]}
    if not counts:
        return usable
    zones = [zone for zone, count in counts.items() if count == min(counts.values())]
    return _Usable(left, usable.out, zones, usable.own_zone if usable.own_zone in counts else None)
