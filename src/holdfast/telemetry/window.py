"""Arrange one bin of one workload for a detector: arrays by operation, zone and instance. Pure. Needs NumPy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from holdfast._types import Operation, Side, Zone, ZoneState
from holdfast.telemetry.bins import Bin, BinKey
from holdfast.telemetry.block import COUNTS, Block, Histograms, Integers
from holdfast.telemetry.context import Deployment, SharedResource

LATENCY_QUANTILE = 0.9
"""The latency quantile of a zone: p90 shows slowness that the median hides, and ignores a few outliers."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The measurements of one side. Each array has the shape operations x zones x instances."""

    requests: Integers
    faults: Integers
    client_errors: Integers
    success_seconds: Histograms
    """Latencies of successful requests: a row for each cell, in the order of the arrays."""
    fault_seconds: Histograms
    """Latencies of requests that ended in a fault: a row for each cell."""


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
    resources: tuple[SharedResource, ...] = ()
    """The shared resources that the workload declares."""

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
        position = self.zones.index(zone)
        requests, faults = (each[:, position].sum(axis=0) for each in (cells.requests, cells.faults))
        rows = np.arange(cells.requests.size).reshape(cells.requests.shape)[:, position].ravel()
        latencies = Histograms.merge([cells.success_seconds.take(rows)], np.zeros(len(rows), np.int64), 1).row(0)
        return ZoneReading(
            requests=int(requests.sum()),
            faults=int(faults.sum()),
            latency=latencies.quantile(LATENCY_QUANTILE),
            instances=int(np.count_nonzero(requests)),
            failing_instances=int(np.count_nonzero(faults)),
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
    resources: Sequence[SharedResource] = (),
) -> Window:
    """Build the window of a workload from the bins of one time. Bins of other workloads and zones are left out."""
    keys = [key for key in bins if key.workload == workload]
    measured = [bins[key] for key in keys]
    counts = [(each.count_2xx, each.count_3xx, each.count_4xx, each.count_5xx, each.faults) for each in measured]
    block = Block(
        np.arange(len(keys)),
        np.array(counts, np.int64).reshape(len(keys), len(COUNTS)),
        np.zeros(len(keys), np.int64),
        np.zeros(len(keys), np.bool_),
        Histograms.of([each.success_seconds for each in measured]),
        Histograms.of([each.fault_seconds for each in measured]),
    )
    window = Window(
        workload=workload,
        start=start,
        seconds=seconds,
        zones=zones,
        states={} if states is None else states,
        deployments=tuple(deployments),
        resources=tuple(resources),
    )
    return WindowIndex(zones, keys).fill(window, block)


class WindowIndex:
    """The positions of series in the arrays of a window. One index serves all windows with the same series."""

    def __init__(self, zones: Sequence[Zone], keys: Sequence[BinKey]) -> None:
        """Arrange the series with these labels. Those of other zones are left out."""
        kept = [(row, key) for row, key in enumerate(keys) if key.zone in zones]
        self.operations = tuple(sorted({key.operation for _, key in kept}, key=str))
        self.instances = tuple(tuple(sorted({key.instance for _, key in kept if key.zone == zone})) for zone in zones)
        operation_at = {operation: index for index, operation in enumerate(self.operations)}
        zone_at = {zone: index for index, zone in enumerate(zones)}
        instance_at = [{name: index for index, name in enumerate(names)} for names in self.instances]
        self._shape = len(self.operations), len(zones), max(map(len, self.instances), default=0)
        by_side: dict[Side, list[tuple[int, int]]] = {}
        for row, key in kept:
            zone = zone_at[key.zone]
            position = operation_at[key.operation], zone, instance_at[zone][key.instance]
            cell = int(np.ravel_multi_index(position, self._shape))
            by_side.setdefault(key.side, []).append((cell, row))
        self._sides = {side: np.array(sorted(found), np.int64).T for side, found in by_side.items()}
        """For each side the cells, and the rows of a block that belong to them."""

    def fill(self, window: Window, block: Block) -> Window:
        """Return the window with the measurements of a block, whose rows have the labels of this index."""
        return replace(
            window,
            operations=self.operations,
            instances=self.instances,
            cells={side: self._build_cells(block, cells, rows) for side, (cells, rows) in self._sides.items()},
        )

    def _build_cells(self, block: Block, cells: Integers, rows: Integers) -> Cells:
        size = int(np.prod(self._shape))
        counts = np.zeros((size, len(COUNTS)), np.int64)
        counts[cells] = block.counts[rows]
        shaped = counts.reshape(*self._shape, len(COUNTS))
        return Cells(
            shaped[..., :4].sum(axis=-1),
            shaped[..., 4],
            shaped[..., 2],
            block.success.spread(rows, cells, size),
            block.fault.spread(rows, cells, size),
        )
