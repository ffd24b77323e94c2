"""From an address to the source that it stands for."""

from collections.abc import Sequence

from holdfast._types import Zone
from holdfast.status.sources.endpoint import EndpointSource
from holdfast.status.sources.rhythm import PERIOD_SECONDS
from holdfast.status.sources.server import ServerSource
from holdfast.status.sources.source import Source


def source_of(
    address: str,
    *,
    zones: Sequence[Zone] = (),
    workload: str | None = None,
    token: str | None = None,
    period: float = PERIOD_SECONDS,
) -> Source:
    """A Holdfast server, or, with `{zone}` in the address, an EndpointSource that is asked about `zones`.

    A token is for servers only: it is never sent elsewhere.
    """
    if "{zone}" in address:
        return EndpointSource(address, zones, workload=workload, period=period)
    return ServerSource(address, token=token, period=period)
