"""Poll one URL per zone, which answers 200 or 500, or an object that exists while the zone is out."""

import http.client
from collections.abc import Sequence

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._names import check_address
from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.status.sources.source import POLL_SECONDS, PolledSource
from holdfast.status.sources.web import MAX_STORE_AGE_SECONDS, http_get
from holdfast.status.wire import KNOWN_HEADER

EXISTS = "exists+"
"""Prefix of a pattern: the zone is out if its address exists, as with an object in S3."""


class EndpointSource(PolledSource):
    """A source that polls one address per zone, for hosts that do not follow a Holdfast server.

    `https://host/status/{zone}` answers 200 while the zone is in and 500 while it is out. With the prefix `exists+`,
    200 means out, and 403 or 404, which S3 answers for a missing object, means in. Other responses count as no answer.
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
            raise InvalidValue(f"address {pattern!r} without zones: expected at least one zone")
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
        """Return the status of a zone that is out, or None if it is in."""
        reply = http_get(self._addresses[zone], {})
        age = int(reply.headers.get("age", "0"))  # seconds since the endpoint read its own store
        if reply.headers.get(KNOWN_HEADER) == "no" or age >= MAX_STORE_AGE_SECONDS:
            raise http.client.HTTPException(f"{self._addresses[zone]} has not read its own store recently")
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
