"""Arrange the measurements of the last periods for alarms: one row for each series that alarms may read. Pure.

Needs NumPy. Most rows are counts and latencies of an operation in a zone. The others are computed here, over zones:

| series | value of a period |
|---|---|
| `multi-az/chi-squared` | 1 for the zone that a chi-squared test over the zones with requests finds, otherwise 0 |
| `RelativeThroughput` | the zone's share of all requests, in per cent of its share in the hour before the window |
| `5xx-errors`, `slow-requests`, `instances` | instances with faults, with a slow request, and with any request |

A period without requests has no value: NaN. Periods end at the time of an evaluation, so their windows slide: every ten
seconds if the period is below a minute, otherwise every minute. Values of a window are kept until a bin of it changes,
because they are read again one period later.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast._alarm_options import AlarmOptions
from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, Zone
from holdfast.alarms.chi_squared import SIGNIFICANCE, get_tail_probability
from holdfast.alarms.contributors import ContributorCounts
from holdfast.alarms.declaration import (
    CHI_SQUARED,
    ERRING,
    FAULTS,
    INSTANCES,
    LATENCY,
    REQUESTS,
    SLOW,
    THROUGHPUT,
    AlarmDeclaration,
    MeasuredOperation,
    SeriesReference,
)
from holdfast.alarms.histogram_statistics import compute_statistics
from holdfast.alarms.statistics import Interpolation, parse_statistic
from holdfast.alarms.step_notes import StepNotes
from holdfast.alarms.throughput import ThroughputComparison
from holdfast.telemetry.block import Block
from holdfast.telemetry.series import ALL_OPERATIONS, SeriesTable
from holdfast.telemetry.store import SeriesStore

Floats: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """The series of some periods."""

    starts: tuple[float, ...]
    """Start of each period, oldest first."""
    values: Floats
    """A row for each series, a column for each period. The last row has no values."""
    rows: Mapping[SeriesReference, int]
    """The row of each series. The same object as before, unless series were added or removed."""
    measured: Mapping[MeasuredOperation, float]
    """Operations with requests, each with the end of its newest period that has some."""
    watched: tuple[bool, ...]
    """For each period, whether data could be received in all of it. While no process runs, none is received."""
    contributors_watched: tuple[bool, ...]
    """For each period, the same about measurements by instance. They are stored for a shorter time than others."""
    is_current: bool
    """Whether data could be received since the last evaluation."""
    zones_out: tuple[Set[Zone], ...]
    """For each period, the zones that were out."""
    silent_zones: tuple[Set[Zone], ...]
    """For each period, the zones without any request, as servers, clients and canaries report them."""


@dataclass(frozen=True, slots=True)
class _Column:
    """The series over all instances in one period."""

    blocks: Sequence[Block]
    """The stored bins of the period."""
    rows: "NDArray[np.int64]"
    """The number of each series, -1 for one that no alarm reads."""
    values: tuple[Floats, ...]
    """Requests, faults, and latency in ms."""


class RecentMetrics:
    """Reads the measurements of one workload. Not thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, store: SeriesStore, table: SeriesTable) -> None:
        """Raise InvalidValue if the bins of the store do not fit the time between two evaluations."""
        options = declaration.options
        tier = store.find_tier(options.step)
        if tier is None:
            raise InvalidValue(
                f"alarms of workload {declaration.workload}: bins of telemetry do not fit in {options.step} s, after "
                f"which alarms with a period of {options.period} s are evaluated: set telemetry.bin_seconds to a "
                "length that fits a whole number of times, or set alarms.period to 60 or more"
            )
        self._tier, self._length = tier
        self._workload, self._zones = declaration.workload, declaration.zones
        self._options = options
        self._statistic = parse_statistic(options.latency_statistic)
        self._interpolation = Interpolation(options.percentile_interpolation)
        self._store, self._table = store, table
        self._zone_numbers = {zone: number for number, zone in enumerate(self._zones)}
        self._series: dict[tuple[Operation | None, Zone, Side], int] = {}
        self._by_number: dict[int, int] = {}
        self._columns: dict[float, _Column] = {}
        self._contributors = ContributorCounts(declaration, store, table)
        self._throughput = ThroughputComparison(declaration, store, table)
        self._rows: dict[SeriesReference, int] = {}
        self.notes = StepNotes(options.step, options.period)
        """Facts about the last steps, which `read` uses."""
        self._critical_values = find_critical_values(len(self._zones))

    @property
    def options(self) -> AlarmOptions:
        """The options of the alarms."""
        return self._options

    def restrict(self, kept: Iterable[MeasuredOperation]) -> None:
        """Forget the series of all other operations."""
        known = set(kept)
        series = [
            (operation, zone, side)
            for operation, zone, side in self._series
            if operation is None or MeasuredOperation(operation, side) in known
        ]
        if len(series) < len(self._series):
            self._series = {key: number for number, key in enumerate(series)}
            self._by_number.clear()
            self._columns.clear()
            self._rows = {}

    def read(self, end: float, periods: int) -> MetricWindow:
        """Return the series of the last periods before `end`, which is the end of an evaluation step.

        A zone has no relative throughput in periods in which it was out, and none while it is out: it gets no traffic
        on purpose. No zone has any in a period in which Holdfast was paused.
        """
        seconds, width = self._options.period, periods + self._options.chi_squared_periods - 1
        starts = [end - seconds * age for age in range(width, 0, -1)]
        known = len(self._series)
        columns = [self._get_column(start) for start in starts]
        if len(self._series) != known or not self._rows:
            self._rows = self._build_rows()
        size = len(self._series)
        counts = np.full((3, size, width), np.nan)
        for position, column in enumerate(columns):
            if column is not None:
                used = column.rows >= 0
                for kind, values in enumerate(column.values):
                    counts[kind, column.rows[used], position] = values[used]
        shown = starts[-periods:]
        recent = counts[:, :, -periods:].reshape(3 * size, periods)
        contributors = [self._contributors.count(start) for start in shown]
        out = tuple(self.notes.find_zones_out(start) for start in shown)
        paused = tuple(self.notes.is_paused(start) for start in shown)
        throughput = self._compare_throughput(counts[0, :, -periods:], starts[-periods])
        for position, zones in enumerate(out):
            without = self._zones if paused[position] else zones | self.notes.find_zones_out_at(end)
            throughput[[self._zone_numbers[zone] for zone in without if zone in self._zone_numbers], position] = np.nan
        parts = [
            recent,
            self._test_outliers(counts[0], counts[1], periods),
            throughput,
            np.stack([counted for counted, _ in contributors], axis=-1).reshape(-1, periods),
            np.full((1, periods), np.nan),
        ]
        window = MetricWindow(
            starts=tuple(shown),
            values=np.concatenate(parts),
            rows=self._rows,
            measured=self._find_measured(counts[0, :, -periods:], end),
            watched=tuple(
                self._is_whole(start, column) and not is_paused
                for start, column, is_paused in zip(shown, columns[-periods:], paused, strict=True)
            ),
            contributors_watched=tuple(
                is_whole and not is_paused for (_, is_whole), is_paused in zip(contributors, paused, strict=True)
            ),
            is_current=self._is_stored(end - self._length) and not self.notes.is_step_paused(end),
            zones_out=out,
            silent_zones=self._find_silent(counts[0, :, -periods:]),
        )
        self._drop_before(starts[0])
        return window

    def _is_whole(self, start: float, column: _Column | None) -> bool:
        """Return whether Holdfast ran in all of a period. It may have started within a bin that follows none."""
        is_stored = column is not None and len(column.blocks) == self._number_of_bins
        return is_stored and self._is_stored(start - self._length)

    def _is_stored(self, start: float) -> bool:
        return self._store.read_block(self._workload, self._tier, start) is not None

    @property
    def _number_of_bins(self) -> int:
        return round(self._options.period / self._length)

    def _find_measured(self, requests: Floats, end: float) -> dict[MeasuredOperation, float]:
        """Return the operations with requests, not only in the newest period: the data of a slow source comes late."""
        has_requests = requests[:, ::-1] > 0
        ages = np.where(has_requests.any(axis=1), np.argmax(has_requests, axis=1), -1).tolist()
        found: dict[MeasuredOperation, float] = {}
        for (operation, _, side), age in zip(self._series, ages, strict=True):
            if operation is not None and age >= 0:
                each, at = MeasuredOperation(operation, side), end - self._options.period * age
                found[each] = max(at, found.get(each, at))
        return found

    def _find_silent(self, requests: Floats) -> tuple[Set[Zone], ...]:
        """Return for each period the zones without any request."""
        reports = np.zeros((len(self._zones), requests.shape[1]), np.bool_)
        for number, zone in enumerate(self._zones):
            rows = [row for side in Side if (row := self._series.get((None, zone, side))) is not None]
            reports[number] = (requests[rows] > 0).any(axis=0)
        return tuple(frozenset(self._zones[number] for number in np.flatnonzero(~column)) for column in reports.T)

    def _list_tested(self) -> list[Operation]:
        """Return the operations that an outlier test looks at."""
        return list(dict.fromkeys(each for each, _, side in self._series if each is not None and side is Side.SERVER))

    def _build_rows(self) -> dict[SeriesReference, int]:
        """Number the rows, in the order in which `read` puts them together."""
        found = [
            SeriesReference(metric, zone, operation, side)
            for metric in (REQUESTS, FAULTS, LATENCY)
            for operation, zone, side in self._series
        ]
        found += [SeriesReference(CHI_SQUARED, zone, each) for each in self._list_tested() for zone in self._zones]
        found += [SeriesReference(THROUGHPUT, zone) for zone in self._zones]
        found += [SeriesReference(rule, zone) for rule in (ERRING, SLOW, INSTANCES) for zone in self._zones]
        return {reference: row for row, reference in enumerate(found)}

    def _get_column(self, start: float) -> _Column | None:
        bins = [start + self._length * number for number in range(self._number_of_bins)]
        read = (self._store.read_block(self._workload, self._tier, each) for each in bins)
        blocks = [block for block in read if block is not None]
        if not blocks:
            return None
        known = self._columns.get(start)
        if known is not None and _are_same(known.blocks, blocks):
            return known
        block = blocks[0] if len(blocks) == 1 else Block.merge(blocks)
        rows = np.array([self._find_series(number) for number in block.numbers.tolist()], np.int64)
        requests = block.counts[:, :4].sum(axis=1).astype(np.float64)
        faults = block.counts[:, 4].astype(np.float64)
        latency = compute_statistics(self._statistic, block.success, self._interpolation) * 1000
        self._columns[start] = _Column(blocks, rows, (requests, np.where(requests > 0, faults, np.nan), latency))
        return self._columns[start]

    def _find_series(self, number: int) -> int:
        found = self._by_number.get(number)
        if found is None:
            key = self._table.key(number)
            operation = None if key.operation == ALL_OPERATIONS else key.operation
            series = operation, key.zone, key.side
            found = self._series.setdefault(series, len(self._series)) if key.zone in self._zone_numbers else -1
            self._by_number[number] = found
        return found

    def _test_outliers(self, requests: Floats, faults: Floats, periods: int) -> Floats:
        """Return the flags of the outlier tests, by operation and zone."""
        operations = self._list_tested()
        keys = [(each, zone, Side.SERVER) for each in operations for zone in self._zones]
        rows = np.array([self._series.get(key, -1) for key in keys], np.int64)
        shape = len(operations), len(self._zones), requests.shape[1]
        parts = []
        for values in (requests, faults):
            padded = np.concatenate([np.nan_to_num(values), np.zeros((1, shape[2]))])[rows].reshape(shape)
            width = self._options.chi_squared_periods
            parts.append(np.lib.stride_tricks.sliding_window_view(padded, width, axis=2).sum(axis=3))
        flags = find_outliers(parts[1], parts[0] > 0, self._critical_values)
        return flags.reshape(-1, periods)

    def _compare_throughput(self, requests: Floats, first: float) -> Floats:
        """Return the relative throughput of each zone. `first` is the start of the first period."""
        rows = np.array([self._series.get((None, zone, Side.SERVER), -1) for zone in self._zones], np.int64)
        padded = np.concatenate([np.nan_to_num(requests), np.zeros((1, requests.shape[1]))])[rows]
        return self._throughput.compare(padded, first)

    def _drop_before(self, start: float) -> None:
        """Drop the values of bins that no later call needs."""
        self._columns = {each: column for each, column in self._columns.items() if each >= start}
        self._contributors.drop_before(start)
        self._throughput.drop_before(start)
        self.notes.drop_before(start)


def find_outliers(errors: Floats, takes_part: "NDArray[np.bool_]", critical_values: Floats) -> Floats:
    """Return 1 where a chi-squared test over axis 1, the zones, finds the outlier, otherwise 0.

    The same as `find_outlier` of the zones that take part. The others, and a zone alone, have no value.
    """
    counts = np.where(takes_part, errors, 0.0)
    number = takes_part.sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        expected = counts.sum(axis=1, keepdims=True) / number
        distances = np.where(takes_part, np.abs(counts - expected), -1.0)
        statistic = np.where(takes_part, (counts - expected) ** 2, 0.0).sum(axis=1, keepdims=True) / expected
    is_significant = np.nan_to_num(statistic) >= critical_values[number]
    farthest = np.argmax(distances, axis=1)[:, None, :] == np.arange(errors.shape[1])[None, :, None]
    flags = (is_significant & farthest).astype(np.float64)
    return np.where(takes_part & (number > 1), flags, np.nan)


def find_critical_values(zones: int) -> Floats:
    """Return the smallest significant statistic for each number of zones that take part, from 0 on."""
    found = [np.inf, np.inf]
    for degrees_of_freedom in range(1, zones):
        low, high = 0.0, 1e4
        for _ in range(80):
            middle = (low + high) / 2
            is_significant = get_tail_probability(middle, degrees_of_freedom) <= SIGNIFICANCE
            low, high = (low, middle) if is_significant else (middle, high)
        found.append(high)
    return np.array(found)


def _are_same(known: Sequence[Block], found: Sequence[Block]) -> bool:
    return len(known) == len(found) and all(one is other for one, other in zip(known, found, strict=True))
