"""Addresses that say one thing about one zone: 200 or 500, or whether something is there."""

import http.client
from collections.abc import Sequence

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.status.sources.source import POLL_SECONDS, PolledSource
from holdfast.status.sources.web import MAX_STORE_AGE_SECONDS, check_address, http_get
from holdfast.status.wire import KNOWN_HEADER

EXISTS = "exists+"
"""Before a pattern: the zone is out if there is something at its address, as with an object in S3."""


class EndpointSource(PolledSource):
    """Asks an address for each of some zones, for hosts that do not follow a Holdfast server.

    `https://host/status/{zone}` answers 200 while the zone is in and 500 while it is out. With `exists+` before it, 200
    means out, and 403 or 404 in: S3 answers so for an object that is not there. Any other answer is silence.
    """

    def __init__(
        self,
        pattern: str,
        zones: Sequence[Zone],
        *,
        workload: str | None = None,
        poll_interval: float = POLL_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        if "{zone}" not in pattern:
            raise InvalidValue(f"address {pattern!r}: expected {{zone}} in it, where the AZ-ID belongs")
        if not zones:
            raise InvalidValue(f"address {pattern!r} without zones: expected at least one to ask about")
        super().__init__(pattern, "holdfast-poll", poll_interval)
        self._pattern = pattern
        self._in_codes, self._out_codes = ((403, 404), (200,)) if pattern.startswith(EXISTS) else ((200, 304), (500,))
        bare = pattern.removeprefix(EXISTS).replace("{workload}", workload or "")
        self._addresses = {zone: check_address(bare.replace("{zone}", zone)) for zone in zones}
        self._workload = workload if "{workload}" in pattern else None
        self._clock = clock or SystemClock()
        self._since: dict[Zone, float] = {}

    def _poll(self) -> None:
        out = [status for zone in self._addresses if (status := self._ask(zone)) is not None]
        self._report(out, self._clock.wall(), frozenset(self._addresses))

    def _ask(self, zone: Zone) -> ZoneStatus | None:
        reply = http_get(self._addresses[zone], {})
        age = int(reply.headers.get("age", "0"))  # seconds since the endpoint itself knew
        if reply.headers.get(KNOWN_HEADER) == "no" or age >= MAX_STORE_AGE_SECONDS:
            raise http.client.HTTPException(f"{self._addresses[zone]} has not heard from its own store for long")
        if reply.status in self._in_codes:
            self._since.pop(zone, None)
            return None
        if reply.status not in self._out_codes:
            raise http.client.HTTPException(f"{self._addresses[zone]} answered {reply.status}")
        since = self._since.setdefault(zone, self._clock.wall())
        reason = f"answered {reply.status}"
        return ZoneStatus(
            zone=zone, workload=self._workload, state=ZoneState.OUT, since=since, by=self._pattern, reason=reason
        )
