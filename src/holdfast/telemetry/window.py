"""What a detector looks at: one workload in one bin, zone by zone. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast._types import Side, Zone
from holdfast.telemetry.bins import Bin, BinKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneReading:
    """One zone in one window."""

    requests: int
    faults: int
    latency: float | None
    """Seconds that nine of ten successful requests did not exceed; None when there were none."""
    instances: int
    """How many instances answered at all."""
    failing_instances: int
    """How many of them answered a request with a fault."""

    @property
    def fault_share(self) -> float:
        """The share of requests that ended in a fault; 0 when there were none."""
        return self.faults / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One workload from `start` on, for `seconds`."""

    workload: str
    start: float
    seconds: float
    zones: Mapping[Zone, ZoneReading]

    @property
    def end(self) -> float:
        """When the window ended."""
        return self.start + self.seconds


LATENCY_SHARE = 0.9
"""The quantile that is watched: the slow tenth shows trouble that the median hides, and a few outliers do not."""


def window_of(
    workload: str, zones: tuple[Zone, ...], start: float, seconds: float, bins: Mapping[BinKey, Bin]
) -> Window:
    """The window of a workload, with a reading for each of its zones, also for those that were silent."""
    readings = {}
    for zone in zones:
        total = Bin()
        instances, failing = set(), set()
        for key, one in bins.items():
            if key.workload == workload and key.zone == zone and key.side is Side.SERVER:
                total.merge(one)
                instances.add(key.instance)
                if one.faults:
                    failing.add(key.instance)
        readings[zone] = ZoneReading(
            requests=total.requests,
            faults=total.faults,
            latency=total.successes.quantile(LATENCY_SHARE),
            instances=len(instances),
            failing_instances=len(failing),
        )
    return Window(workload=workload, start=start, seconds=seconds, zones=readings)
