"""Sum the traffic of about one second by workload and zone, for people who watch. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast._types import Side, Zone
from holdfast.metrics.histogram import Histogram
from holdfast.telemetry.bins import BinDelta, BinKey, RequestRow

MAX_KEYS = 100_000
"""Labels whose zone is remembered, to find it quickly."""


class TrafficSample(msgspec.Struct, frozen=True):
    """The traffic of about one second: requests, faults and latency by workload and zone."""

    at: float
    workloads: Mapping[str, Mapping[str, Mapping[str, float | int | None]]]


class _ZoneTraffic(msgspec.Struct, gc=False):
    requests: int = 0
    faults: int = 0
    seconds: Histogram = msgspec.field(default_factory=Histogram)


class TrafficMeter:
    """The traffic that servers measured since the last sample. Not thread-safe."""

    def __init__(self) -> None:
        self._zones: dict[tuple[str, Zone], _ZoneTraffic] = {}
        self._by_key: dict[BinKey, _ZoneTraffic | None] = {}

    def add(self, deltas: Iterable[BinDelta], requests: Iterable[RequestRow]) -> None:
        """Add measurements as they arrive, whenever they were made."""
        by_key = self._by_key
        for key, _, status_class, is_fault, seconds in requests:
            traffic = by_key[key] if key in by_key else self._find(key)
            if traffic is not None:
                traffic.requests += 1
                if is_fault:
                    traffic.faults += 1
                if seconds is not None and status_class != 5:
                    traffic.seconds.add(seconds)
        for delta in deltas:
            traffic, measured = self._find(delta.key), delta.measured
            if traffic is not None:
                traffic.requests += measured.requests
                traffic.faults += measured.faults
                traffic.seconds.merge(measured.success_seconds)

    def pop(self, at: float, workloads: Mapping[str, Sequence[Zone]]) -> TrafficSample:
        """Return the traffic of these workloads and zones since the last call."""
        sample = TrafficSample(
            at,
            {
                name: {zone: _summarize(self._zones.get((name, zone))) for zone in zones}
                for name, zones in workloads.items()
            },
        )
        self._zones.clear()
        self._by_key.clear()
        return sample

    def _find(self, key: BinKey) -> _ZoneTraffic | None:
        """Return the traffic of the key's zone; None if no server measured it."""
        if key.side is not Side.SERVER:
            return None
        traffic = self._zones.setdefault((key.workload, key.zone), _ZoneTraffic())
        if len(self._by_key) < MAX_KEYS:
            self._by_key[key] = traffic
        return traffic


def _summarize(traffic: _ZoneTraffic | None) -> dict[str, float | int | None]:
    found = traffic or _ZoneTraffic()
    return {"requests": found.requests, "faults": found.faults, "latency": found.seconds.quantile(0.9)}
