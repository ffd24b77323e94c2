"""Write a scenario as CSV files: bins, labels, announced deploys, zone states and shared resources.

`docs/how-to/simulate-zones.md` describes the columns.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from holdfast._errors import Conflict, InvalidValue
from holdfast._types import Side
from holdfast.metrics.histogram import PER_DOUBLING
from holdfast.simulate.zones.scenario import WORKLOAD, Scenario
from holdfast.simulate.zones.traffic import BUCKETS, LOWEST_BUCKET
from holdfast.simulate.zones.windows import TRANSPORT, ReportedBin, run_scenario
from holdfast.telemetry.block import Histograms

GROWTH = 1.1
"""Growth of the buckets in files: bucket `i` holds latencies of GROWTH^i up to GROWTH^(i+1) milliseconds."""
BIN_COLUMNS = (
    "time",
    "arrived",
    "workload",
    "operation",
    "zone",
    "instance",
    "side",
    "requests",
    "faults",
    "growth",
    "histogram",
)
_MIDDLES_MS = 1000 * np.exp2((np.arange(BUCKETS) + LOWEST_BUCKET + 0.5) / PER_DOUBLING)
_BUCKET_IN_FILES = np.floor(np.log(_MIDDLES_MS) / math.log(GROWTH)).astype(np.int64)
"""The bucket in files that has the middle of each of our buckets."""
_WIDTH = 1 << 20
"""More than the number of buckets in files."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file, and the number of its rows without the header."""

    path: Path
    rows: int


def write_scenario(
    folder: Path, scenario: Scenario, random: Generator, *, advance: Callable[[], object] = lambda: None
) -> list[WrittenFile]:
    """Write the files of a scenario into `folder`, which is created. Call `advance` after each bin.

    Raise Conflict if a file exists, and InvalidValue if a file cannot be written.
    """
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "labels.csv": (
            ("start", "end", "kind", "zone", "resource", "instance"),
            [(each.start, each.end, each.kind, each.zone, each.resource, each.instance) for each in scenario.labels],
        )
    }
    if scenario.deployments:
        rows: list[Sequence[Any]] = [(each.start, each.end, each.zone) for each in scenario.deployments]
        tables["deploys.csv"] = ("start", "end", "zone"), rows
    if scenario.states:
        rows = [(each.start, each.end, each.zone, each.state) for each in scenario.states]
        tables["states.csv"] = ("start", "end", "zone", "state"), rows
    if scenario.resources:
        rows = [(each.name, str(one), each.zone) for each in scenario.resources for one in each.operations]
        tables["resources.csv"] = ("resource", "operation", "zone"), rows
    tables["bins.csv"] = BIN_COLUMNS, _list_bins(scenario, random, advance)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be created: {error.strerror}; name another folder") from error
    return [_write(folder / name, header, found) for name, (header, found) in tables.items()]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> WrittenFile:
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            return WrittenFile(path, _write_rows(file, header, rows))
    except FileExistsError as error:
        raise Conflict(f"{path} exists already: remove it, or name another folder") from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be written: {error.strerror}; name another folder") from error


def _write_rows(file: TextIOWrapper, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    count = 0
    for row in rows:
        writer.writerow([f"{each:.15g}" if isinstance(each, float) else each for each in row])
        count += 1
    return count


def _list_bins(scenario: Scenario, random: Generator, advance: Callable[[], object]) -> Iterator[Sequence[Any]]:
    labels = [
        (str(operation), zone, instance, "" if side is Side.SERVER else side.value)
        for operation, side in zip(scenario.operations, scenario.sides, strict=True)
        for zone, names in zip(scenario.zones, scenario.instances, strict=True)
        for instance in names
    ]
    for reported in run_scenario(scenario, random):
        yield from list_rows(reported, labels, scenario.seconds)
        advance()


def list_rows(
    reported: ReportedBin, labels: Sequence[tuple[str, str, str, str]], seconds: float
) -> Iterator[Sequence[Any]]:
    """Yield a row for each cell that has requests and is not lost. `labels` has the labels of all cells, in order."""
    measured, arrival = reported.measured, reported.arrival
    requests, faults = measured.requests.reshape(-1), measured.faults.reshape(-1)
    kept = requests > 0
    skew = delay = np.zeros(len(requests))
    if arrival is not None:
        kept &= arrival.received.reshape(-1)
        skew = np.broadcast_to(arrival.skew, measured.requests.shape).reshape(-1)
        delay = np.broadcast_to(arrival.delay, measured.requests.shape).reshape(-1)
    time = (measured.start + skew).tolist()
    arrived = (measured.start + seconds + TRANSPORT + delay).tolist()
    texts = _format_histograms(measured.latencies)
    numbers, failed = requests.tolist(), faults.tolist()
    for cell in np.flatnonzero(kept).tolist():
        operation, zone, instance, side = labels[cell]
        yield (
            f"{time[cell]:.15g}",
            f"{arrived[cell]:.15g}",
            WORKLOAD,
            operation,
            zone,
            instance,
            side,
            numbers[cell],
            failed[cell],
            GROWTH,
            texts[cell],
        )


def _format_histograms(histograms: Histograms) -> list[str]:
    """Return each histogram as text: pairs of bucket and count."""
    lengths = np.diff(histograms.offsets)
    cells = np.repeat(np.arange(len(lengths)), lengths)
    buckets = _BUCKET_IN_FILES[histograms.buckets - LOWEST_BUCKET]
    keys = cells * _WIDTH + buckets
    first = np.flatnonzero(np.diff(keys, prepend=-_WIDTH))
    values = np.add.reduceat(histograms.values, first) if len(first) else np.zeros(0, np.int64)
    pairs = [f"{bucket}:{count}" for bucket, count in zip(buckets[first].tolist(), values.tolist(), strict=True)]
    ends = np.cumsum(np.bincount(cells[first], minlength=len(lengths))).tolist()
    return [" ".join(pairs[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
