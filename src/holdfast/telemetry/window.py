"""Arrange one bin of one workload for a detector: arrays by operation, zone and instance. Pure."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast._types import Operation, Side, Zone, ZoneState
from holdfast.metrics.histogram import Histogram
from holdfast.telemetry.bins import Bin, BinKey

LATENCY_QUANTILE = 0.9
"""The latency quantile of a zone: p90 shows slowness that the median hides, and ignores a few outliers."""
DEPLOYMENT_SECONDS = 900.0
"""A window has the deployments of this many seconds before its end: some faults only show after a deployment."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An announced deployment. Failures and slow requests in its zone may be caused by it, also shortly after it."""

    zone: Zone | None
    """None means all zones at the same time."""
    start: float
    end: float
    """When it ended. While it runs, when it will have expired, which is after the end of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneReading:
    """Measurements of one zone in one window, over all operations and instances."""

    requests: int
    faults: int
    latency: float | None
    """90th percentile of the successful requests, in seconds; None if there were none."""
    instances: int
    """Number of instances that answered requests."""
    failing_instances: int
    """Number of instances that answered a request with a fault."""

    @property
    def fault_rate(self) -> float:
        """Share of requests that ended in a fault; 0 if there were no requests."""
        return self.faults / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class Cells:
    """The measurements of one side, as flat arrays with one cell per operation, zone and instance.

    The cell of operation `o`, zone `z` and instance `i` is at `(o * zones + z) * instances + i`, so that
    `numpy.frombuffer(cells.requests, "int64").reshape(window.shape)` is an array without a copy.
    """

    requests: "array[int]"
    faults: "array[int]"
    client_errors: "array[int]"
    success_seconds: Sequence[Histogram | None]
    """Latencies of successful requests; None in a cell without any."""
    fault_seconds: Sequence[Histogram | None]
    """Latencies of requests that ended in a fault; None in a cell without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Measurements of one workload from `start` on, for `seconds` seconds."""

    workload: str
    start: float
    seconds: float
    zones: tuple[Zone, ...]
    """All zones of the workload, also those without traffic."""
    operations: tuple[Operation, ...] = ()
    """The operations measured in this window, on any side."""
    instances: tuple[tuple[str, ...], ...] = ()
    """The instances of each zone, in the order of `zones`. A zone may have fewer than the arrays have room for."""
    cells: Mapping[Side, Cells] = field(default_factory=dict)
    """The measurements of each side that has any."""
    states: Mapping[Zone, ZoneState] = field(default_factory=dict)
    """The state of each zone that is not in."""
    deployments: tuple[Deployment, ...] = ()
    """Announced deployments that overlap the last 15 minutes before the end of this window, also ended ones."""

    @property
    def end(self) -> float:
        return self.start + self.seconds

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of operations, zones and instances per zone in the arrays."""
        return len(self.operations), len(self.zones), max(map(len, self.instances), default=0)

    @property
    def zones_out(self) -> frozenset[Zone]:
        """The zones that get no new traffic. Ignore their measurements."""
        return frozenset(zone for zone, state in self.states.items() if state in (ZoneState.OUT, ZoneState.DRAINING))

    def reading(self, zone: Zone, side: Side = Side.SERVER) -> ZoneReading:
        """Sum the measurements of one zone over all operations and instances."""
        cells = self.cells.get(side)
        if cells is None:
            return ZoneReading(requests=0, faults=0, latency=None, instances=0, failing_instances=0)
        operations, zones, instances = self.shape
        position = self.zones.index(zone)
        starts = [(operation * zones + position) * instances for operation in range(operations)]
        requests = [sum(cells.requests[start + instance] for start in starts) for instance in range(instances)]
        faults = [sum(cells.faults[start + instance] for start in starts) for instance in range(instances)]
        latencies = Histogram()
        for start in starts:
            for found in cells.success_seconds[start : start + instances]:
                if found is not None:
                    latencies.merge(found)
        return ZoneReading(
            requests=sum(requests),
            faults=sum(faults),
            latency=latencies.quantile(LATENCY_QUANTILE),
            instances=sum(count > 0 for count in requests),
            failing_instances=sum(count > 0 for count in faults),
        )


def build_window(
    workload: str,
    zones: tuple[Zone, ...],
    start: float,
    seconds: float,
    bins: Mapping[BinKey, Bin],
    *,
    states: Mapping[Zone, ZoneState] | None = None,
    deployments: Sequence[Deployment] = (),
) -> Window:
    """Build the window of a workload from the bins of one time. Bins of other workloads and zones are left out."""
    found = [(key, measured) for key, measured in bins.items() if key.workload == workload and key.zone in zones]
    operations = tuple(sorted({key.operation for key, _ in found}, key=str))
    instances = tuple(tuple(sorted({key.instance for key, _ in found if key.zone == zone})) for zone in zones)
    empty = Window(
        workload=workload,
        start=start,
        seconds=seconds,
        zones=zones,
        operations=operations,
        instances=instances,
        states={} if states is None else states,
        deployments=tuple(deployments),
    )
    by_side: dict[Side, dict[BinKey, Bin]] = {}
    for key, measured in found:
        by_side.setdefault(key.side, {})[key] = measured
    return replace(empty, cells={side: _build_cells(empty, measured) for side, measured in by_side.items()})


def _build_cells(window: Window, bins: Mapping[BinKey, Bin]) -> Cells:
    operations, zones, instances = window.shape
    size = operations * zones * instances
    operation_at = {operation: index for index, operation in enumerate(window.operations)}
    zone_at = {zone: index for index, zone in enumerate(window.zones)}
    instance_at = [{name: index for index, name in enumerate(names)} for names in window.instances]
    requests, faults, client_errors = (array("q", bytes(8 * size)) for _ in range(3))
    success_seconds: list[Histogram | None] = [None] * size
    fault_seconds: list[Histogram | None] = [None] * size
    for key, measured in bins.items():
        zone = zone_at[key.zone]
        cell = (operation_at[key.operation] * zones + zone) * instances + instance_at[zone][key.instance]
        requests[cell] = measured.requests
        faults[cell] = measured.faults
        client_errors[cell] = measured.count_4xx
        success_seconds[cell] = measured.success_seconds if measured.success_seconds.count else None
        fault_seconds[cell] = measured.fault_seconds if measured.fault_seconds.count else None
    return Cells(requests, faults, client_errors, success_seconds, fault_seconds)
