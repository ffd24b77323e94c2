"""Turn a window into arrays with a fixed order of operations. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._types import Operation, Side
from holdfast.detect.cusum import Array
from holdfast.metrics.histogram import PER_DOUBLING
from holdfast.telemetry.window import Window

LOWEST_BUCKET, BUCKETS = -104, 160
"""Buckets of latencies that are told apart, from 0.1 ms to 128 s. Those outside count as the nearest."""
MIDDLES = (np.arange(BUCKETS) + LOWEST_BUCKET + 0.5) * (np.log(2) / PER_DOUBLING)
"""The logarithm of the middle of each bucket."""


class StreamKey(NamedTuple):
    """An operation, and the side that measures it."""

    side: Side
    operation: Operation

    def __str__(self) -> str:
        return str(self.operation) if self.side is Side.SERVER else f"{self.operation} ({self.side})"


class Measurements(NamedTuple):
    """One bin. The shape of the arrays is operations x zones x instances."""

    requests: Array
    faults: Array
    cells: NDArray[np.intp]
    buckets: NDArray[np.intp]
    values: Array
    """Latencies of successful requests as entries: the number of a cell, a bucket, and the requests in it."""
    instances: tuple[tuple[str, ...], ...]
    """The names of the instances of each zone."""

    @property
    def shape(self) -> tuple[int, int, int]:
        operations, zones, instances = self.requests.shape
        return operations, zones, instances


def list_keys(window: Window) -> list[StreamKey]:
    """Return the streams with requests in a window.

    Consumers measure many operations of other services. Only those of shared resources say something about this one.
    """
    shared = {operation for resource in window.resources for operation in resource.operations}
    found = []
    for side, cells in window.cells.items():
        for row in np.flatnonzero(cells.requests.sum(axis=(1, 2))).tolist():
            operation = window.operations[row]
            if side is not Side.CLIENT or operation in shared:
                found.append(StreamKey(side, operation))
    return found


def find_rows(known: Sequence[StreamKey], keys: Sequence[StreamKey]) -> list[int]:
    """Return the row of each key; -1 if it is not known. It takes least time if they have the same order."""
    found, row = [], 0
    for key in keys:
        while row < len(known) and known[row] != key:
            row += 1
        if row == len(known):
            rows = {each: number for number, each in enumerate(known)}
            return [rows.get(each, -1) for each in keys]
        found.append(row)
        row += 1
    return found


def measure(window: Window, keys: Sequence[StreamKey]) -> Measurements:
    """Return the measurements of a window, with a row for each of `keys`."""
    operations, zones, instances = window.shape
    shape = len(keys), zones, max(instances, 1)
    requests, faults = np.zeros(shape), np.zeros(shape)
    parts: list[tuple[NDArray[np.intp], NDArray[np.intp], Array]] = []
    for side, cells in window.cells.items():
        targets = np.array(find_rows(keys, [StreamKey(side, each) for each in window.operations]), np.intp)
        known = targets >= 0
        requests[targets[known]] = cells.requests[known]
        faults[targets[known]] = cells.faults[known]
        latencies = cells.success_seconds
        positions = np.repeat(np.arange(operations * zones * instances), np.diff(latencies.offsets))
        operation, rest = np.divmod(positions, max(zones * instances, 1))
        row = targets[operation]
        kept = row >= 0
        buckets = np.clip(latencies.buckets[kept].astype(np.intp) - LOWEST_BUCKET, 0, BUCKETS - 1)
        parts.append((row[kept] * (zones * instances) + rest[kept], buckets, latencies.values[kept].astype(np.float64)))
        empty = np.flatnonzero(latencies.zeros)  # quicker than the smallest value that is told apart
        row = targets[empty // max(zones * instances, 1)]
        kept = row >= 0
        place = row[kept] * (zones * instances) + empty[kept] % max(zones * instances, 1)
        parts.append((place, np.zeros(len(place), np.intp), latencies.zeros[empty[kept]].astype(np.float64)))
    none = np.zeros(0, np.intp)
    return Measurements(
        requests,
        faults,
        np.concatenate([none, *(part[0] for part in parts)]),
        np.concatenate([none, *(part[1] for part in parts)]),
        np.concatenate([np.zeros(0), *(part[2] for part in parts)]),
        window.instances if instances else tuple(("",) for _ in window.zones),
    )
