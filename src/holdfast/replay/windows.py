"""Build the windows of one workload from recorded bins. Pure. Needs NumPy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from holdfast._types import Operation, Side, Zone, ZoneState
from holdfast.replay.latencies import build_empty
from holdfast.replay.rows import Rows
from holdfast.replay.timeline import RecordedBin
from holdfast.telemetry.bins import BinKey
from holdfast.telemetry.block import Histograms, Integers
from holdfast.telemetry.context import DEPLOYMENT_SECONDS, Deployment, SharedResource
from holdfast.telemetry.window import Cells, Window

_SIDES = tuple(Side)
_MAX_LAYOUTS = 64


class StateSpan(NamedTuple):
    """The state of a zone from `start` to `end`."""

    start: float
    end: float
    zone: Zone
    state: ZoneState


class _Layout(NamedTuple):
    """The arrangement of arrays for the operations and instances of a bin."""

    operations: tuple[Operation, ...]
    instances: tuple[tuple[str, ...], ...]
    shape: tuple[int, int, int]
    operation_positions: Integers
    """The position of each known operation, by its number."""
    instance_positions: Integers


class WindowBuilder:
    """Builds windows. It numbers the operations and instances of the workload as they appear."""

    def __init__(
        self,
        workload: str,
        zones: tuple[Zone, ...],
        *,
        deployments: Sequence[Deployment] = (),
        states: Sequence[StateSpan] = (),
        resources: Sequence[SharedResource] = (),
    ) -> None:
        self.workload, self.zones = workload, zones
        self._deployments, self._states, self._resources = deployments, states, tuple(resources)
        self._zone_at = {zone: index for index, zone in enumerate(zones)}
        self._operations: dict[Operation, int] = {}
        self._instances: dict[tuple[int, str], int] = {}
        self._codes = np.zeros((0, 4), np.int64)
        """Zone, operation, instance and side of each series; zone -1 if the series is not part of the windows."""
        self._layouts: dict[tuple[bytes, bytes], _Layout] = {}

    def build(self, recorded: RecordedBin, keys: Sequence[BinKey]) -> Window:
        """Return the window of a bin. `keys` are the labels of all series by number."""
        start, end = recorded.start, recorded.end
        window = Window(
            workload=self.workload,
            start=start,
            seconds=recorded.seconds,
            zones=self.zones,
            instances=tuple(() for _ in self.zones),
            states=self._find_states(start, end),
            deployments=tuple(
                each for each in self._deployments if each.start < end and each.end > end - DEPLOYMENT_SECONDS
            ),
            resources=self._resources,
        )
        rows = self.select(recorded.rows, keys)
        if rows is None:
            return window
        zones, operations, instances, sides = self._codes[rows.numbers].T
        layout = self._find_layout(operations, instances)
        places = layout.operation_positions[operations], zones, layout.instance_positions[instances]
        cells = np.ravel_multi_index(places, layout.shape)
        found = {}
        for number in np.unique(sides).tolist():
            chosen = np.flatnonzero(sides == number)
            found[_SIDES[number]] = _build_cells(rows, chosen, cells[chosen], layout.shape)
        return Window(
            workload=window.workload,
            start=start,
            seconds=window.seconds,
            zones=self.zones,
            operations=layout.operations,
            instances=layout.instances,
            cells=found,
            states=window.states,
            deployments=window.deployments,
            resources=window.resources,
        )

    def find_zones_out(self, recorded: RecordedBin) -> frozenset[Zone]:
        """Return the zones that got no traffic at the time of a bin."""
        states = self._find_states(recorded.start, recorded.end)
        return frozenset(zone for zone, state in states.items() if state.is_out)

    def select(self, rows: Rows | None, keys: Sequence[BinKey]) -> Rows | None:
        """Return the rows of this workload and its zones that have requests, or None if there are none."""
        if rows is None:
            return None
        if len(keys) > len(self._codes):
            added = [self._encode(key) for key in keys[len(self._codes) :]]
            self._codes = np.concatenate([self._codes, np.array(added, np.int64)])
        is_used = (self._codes[rows.numbers, 0] >= 0) & (rows.requests > 0)
        if not np.any(is_used):
            return None
        return rows if np.all(is_used) else rows.take(np.flatnonzero(is_used))

    def _encode(self, key: BinKey) -> tuple[int, int, int, int]:
        zone = self._zone_at.get(key.zone, -1)
        if key.workload != self.workload or zone < 0:
            return -1, 0, 0, 0
        operation = self._operations.setdefault(key.operation, len(self._operations))
        instance = self._instances.setdefault((zone, key.instance), len(self._instances))
        return zone, operation, instance, _SIDES.index(key.side)

    def _find_states(self, start: float, end: float) -> Mapping[Zone, ZoneState]:
        return {
            each.zone: each.state
            for each in self._states
            if each.start < end and each.end > start and each.state is not ZoneState.IN
        }

    def _find_layout(self, operations: Integers, instances: Integers) -> _Layout:
        used = np.unique(operations), np.unique(instances)
        known = self._layouts.get((used[0].tobytes(), used[1].tobytes()))
        if known is not None:
            return known
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        names = list(self._operations)
        order = sorted(used[0].tolist(), key=lambda each: str(names[each]))
        operation_positions = np.zeros(len(names), np.int64)
        operation_positions[order] = np.arange(len(order))
        labels = list(self._instances)
        by_zone = [
            sorted((labels[each], each) for each in used[1].tolist() if labels[each][0] == zone)
            for zone in range(len(self.zones))
        ]
        instance_positions = np.zeros(len(labels), np.int64)
        for found in by_zone:
            for position, (_, each) in enumerate(found):
                instance_positions[each] = position
        layout = _Layout(
            tuple(names[each] for each in order),
            tuple(tuple(label for (_, label), _ in found) for found in by_zone),
            (len(order), len(self.zones), max(map(len, by_zone))),
            operation_positions,
            instance_positions,
        )
        self._layouts[used[0].tobytes(), used[1].tobytes()] = layout
        return layout


def _build_cells(rows: Rows, chosen: Integers, cells: Integers, shape: tuple[int, int, int]) -> Cells:
    size = int(np.prod(shape))
    found, groups = np.unique(cells, return_inverse=True)
    requests, faults = (
        np.bincount(cells, each[chosen], size).astype(np.int64).reshape(shape) for each in (rows.requests, rows.faults)
    )
    if len(found) == len(cells):
        order = chosen[np.argsort(cells)]
        latencies = rows.latencies.spread(order, found, size)
    else:  # several rows of one series
        merged = Histograms.merge([rows.latencies.take(chosen)], groups, len(found))
        latencies = merged.spread(np.arange(len(found)), found, size)
    return Cells(requests, faults, np.zeros(shape, np.int64), latencies, build_empty(size))
