"""Arrange the measurements of the last periods for alarms: one row for each series that alarms may read. Pure.

Needs NumPy. Most rows are counts and latencies of an operation in a zone. The others are computed here, over zones:

| series | value of a period |
|---|---|
| `multi-az/chi-squared` | 1 for the zone that a chi-squared test over the zones with requests finds, otherwise 0 |
| `RelativeThroughput` | the zone's share of all requests, in per cent of its share in the hour before the window |
| `5xx-errors`, `slow-requests`, `instances` | instances with faults, with a slow request, and with any request |

A period without requests has no value: NaN. What was computed of a bin is kept until the bin changes.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, Zone
from holdfast.alarms.chi_squared import SIGNIFICANCE, get_tail_probability
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
from holdfast.alarms.statistics import parse_statistic
from holdfast.telemetry.bins import MINUTE, BinKey
from holdfast.telemetry.block import Block
from holdfast.telemetry.series import ALL_INSTANCES, ALL_OPERATIONS, SeriesTable
from holdfast.telemetry.store import SeriesStore, Tier

Floats: TypeAlias = "NDArray[np.float64]"

USUAL_MINUTES = 60
"""Minutes of which the usual share of a zone is the mean: long enough for rare requests, short enough for a day."""
MIN_USUAL_MINUTES = 10
"""With fewer of them, the usual share is not known."""
MIN_EXPECTED_REQUESTS = 20
"""With fewer expected requests in a period, chance alone may halve them."""


class PeriodNote(Struct, frozen=True, array_like=True):
    """A fact about a period that its measurements do not show, and that later evaluations need, too."""

    start: float
    zones_out: tuple[Zone, ...] = ()
    """The zones that were out when the period ended."""
    is_paused: bool = False
    """Whether Holdfast did not run for most of the period."""


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
    """For each period, whether data could be received. It could not, if no process was running for most of it."""
    zones_out: tuple[Set[Zone], ...]
    """For each period, the zones that were out."""
    silent_zones: tuple[Set[Zone], ...]
    """For each period, the zones of which neither servers nor clients nor canaries reported a request."""


@dataclass(frozen=True, slots=True)
class _Column:
    """The series over all instances in one period."""

    block: Block
    rows: "NDArray[np.int64]"
    """For each row of the block the number of its series; -1 for one that no alarm reads."""
    values: tuple[Floats, ...]
    """Requests, faults, and latency in ms."""


class RecentMetrics:
    """Reads the measurements of one workload. Not thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, store: SeriesStore, table: SeriesTable) -> None:
        """Raise InvalidValue if the store has no bins of the alarms' period."""
        options = declaration.options
        tier = store.get_tier(options.period)
        if tier is None:
            raise InvalidValue(
                f"alarms of workload {declaration.workload}: no bins of telemetry have a period of {options.period} s: "
                "set telemetry.bin_seconds to a length of which a minute is a multiple, or alarms.period to 60"
            )
        self._tier = tier
        self._workload, self._zones = declaration.workload, declaration.zones
        self._options = options
        self._statistic = parse_statistic(options.latency_statistic)
        self._store, self._table = store, table
        self._zone_numbers = {zone: number for number, zone in enumerate(self._zones)}
        self._series: dict[tuple[Operation | None, Zone, Side], int] = {}
        self._by_number: dict[int, int] = {}
        self._columns: dict[float, _Column] = {}
        self._usual: dict[float, tuple[Block, Floats]] = {}
        self._contributors: dict[float, tuple[list[Block], Floats]] = {}
        self._instances = np.zeros(0, np.int64), np.zeros(0, np.int64)
        """Sorted numbers of series by instance, and the code of each: see `_find_codes`."""
        self._instance_codes: dict[tuple[Zone, str], int] = {}
        self._rows: dict[SeriesReference, int] = {}
        self._notes: dict[float, PeriodNote] = {}
        """What was noted when a period was the newest one, by its start."""
        self._critical_values = find_critical_values(len(self._zones))

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

    @property
    def notes(self) -> list[PeriodNote]:
        """The notes about periods that later calls of `read` may need, to be saved."""
        return [each for each in self._notes.values() if each.zones_out or each.is_paused]

    def restore(self, notes: Iterable[PeriodNote]) -> None:
        """Use the notes that were saved after an earlier `read`."""
        self._notes = {each.start: each for each in notes}

    def read(
        self, end: float, periods: int, zones_out: Set[Zone] | None = None, *, is_paused: bool = False
    ) -> MetricWindow:
        """Return the series of the last periods before `end`, which is the end of one.

        Zones in `zones_out` have no relative throughput: they get no traffic on purpose. When they are in again, they
        still have none in the periods in which they were out. No zone has any in a period in which Holdfast was paused,
        as `is_paused` says of the newest one. With None, the restored notes say both of the newest period.
        """
        seconds, width = self._options.period, periods + self._options.chi_squared_periods - 1
        starts = [end - seconds * age for age in range(width, 0, -1)]
        if zones_out is not None:
            self._notes[starts[-1]] = PeriodNote(starts[-1], tuple(sorted(zones_out)), is_paused)
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
        parts = [recent, self._test_outliers(counts[0], counts[1], periods)]
        notes = [self._notes.get(start, PeriodNote(start)) for start in shown]
        parts.append(self._compare_throughput(counts[0, :, -periods:], notes))
        parts.append(np.stack([self._count_contributors(start) for start in shown], axis=-1).reshape(-1, periods))
        parts.append(np.full((1, periods), np.nan))
        measured = self._find_measured(counts[0, :, -periods:], end)
        watched = tuple(
            column is not None and not note.is_paused for column, note in zip(columns[-periods:], notes, strict=True)
        )
        out = tuple(frozenset(note.zones_out) for note in notes)
        silent = self._find_silent(counts[0, :, -periods:])
        self._drop_before(starts[0])
        return MetricWindow(tuple(shown), np.concatenate(parts), self._rows, measured, watched, out, silent)

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
        block = self._store.read_block(self._workload, self._tier, start)
        if block is None:
            return None
        known = self._columns.get(start)
        if known is not None and known.block is block:
            return known
        rows = np.array([self._find_series(number) for number in block.numbers.tolist()], np.int64)
        requests = block.counts[:, :4].sum(axis=1).astype(np.float64)
        faults = block.counts[:, 4].astype(np.float64)
        latency = compute_statistics(self._statistic, block.success) * 1000
        self._columns[start] = _Column(block, rows, (requests, np.where(requests > 0, faults, np.nan), latency))
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

    def _compare_throughput(self, requests: Floats, notes: Sequence[PeriodNote]) -> Floats:
        rows = np.array([self._series.get((None, zone, Side.SERVER), -1) for zone in self._zones], np.int64)
        padded = np.concatenate([np.nan_to_num(requests), np.zeros((1, len(notes)))])[rows]
        totals = padded.sum(axis=0)
        usual = self._get_usual_share(notes[0].start)
        expected = usual[:, None] * totals
        with np.errstate(all="ignore"):
            relative = np.where(expected >= MIN_EXPECTED_REQUESTS, 100 * padded / expected, np.nan)
        for position, note in enumerate(notes):
            for zone in self._zones if note.is_paused else {*note.zones_out, *notes[-1].zones_out}:
                if zone in self._zone_numbers:
                    relative[self._zone_numbers[zone], position] = np.nan
        return relative

    def _get_usual_share(self, end: float) -> Floats:
        """Return each zone's share of the requests in the hour before `end`; NaN if it is not known."""
        last = end // MINUTE * MINUTE
        minutes = [last - MINUTE * age for age in range(USUAL_MINUTES, 0, -1)]
        found = [requests for minute in minutes if (requests := self._get_totals(minute)) is not None]
        used = [requests for requests in found if requests.sum() > 0]
        if len(used) < MIN_USUAL_MINUTES:
            return np.full(len(self._zones), np.nan)
        total = np.sum(used, axis=0)
        return np.asarray(total / total.sum(), np.float64)

    def _get_totals(self, minute: float) -> "Floats | None":
        """Return the requests of each zone in one minute; None if nothing is stored of it."""
        block = self._store.read_block(self._workload, Tier.MINUTES, minute)
        if block is None:
            return None
        known = self._usual.get(minute)
        if known is None or known[0] is not block:
            keys = [BinKey(self._workload, ALL_OPERATIONS, zone, ALL_INSTANCES, Side.SERVER) for zone in self._zones]
            numbers = [-1 if (number := self._table.find(key)) is None else number for key in keys]
            rows = {number: row for row, number in enumerate(block.numbers.tolist())}
            counts = [block.counts[rows[number], :4].sum() if number in rows else 0 for number in numbers]
            known = self._usual[minute] = block, np.array(counts, np.float64)
        return known[1]

    def _count_contributors(self, start: float) -> Floats:
        """Return how many instances of each zone have faults, slow requests, and requests."""
        blocks = self._store.read_instances(self._workload, start, self._options.period)
        known = self._contributors.get(start)
        if known is None or len(known[0]) != len(blocks) or any(map(_is_other, known[0], blocks)):
            known = self._contributors[start] = blocks, self._count_instances(blocks)
        return known[1]

    def _count_instances(self, blocks: list[Block]) -> Floats:
        zones = len(self._zones)
        if not blocks:
            return np.full((3, zones), np.nan)
        numbers = np.concatenate([block.numbers for block in blocks])
        codes = self._find_codes(numbers)
        counts = np.concatenate([block.counts for block in blocks])
        slowest = np.concatenate([block.success.maxima for block in blocks])
        requests = counts[:, :4].sum(axis=1)
        contributes = (counts[:, 4] > 0, slowest > self._options.max_latency, requests > 0)
        found = [np.unique(codes[(codes >= 0) & each]) % zones for each in contributes]
        counted = np.stack([np.bincount(each, minlength=zones) for each in found]).astype(np.float64)
        return np.where(counted[2] > 0, counted, np.nan)

    def _find_codes(self, numbers: "NDArray[np.int32]") -> "NDArray[np.int64]":
        """Return a code for each series: the same for all series of one instance, with its zone in the remainder."""
        wanted = np.unique(numbers).astype(np.int64)
        known, codes = self._instances
        positions = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
        is_known = known[positions] == wanted if len(known) else np.zeros(len(wanted), np.bool_)
        found = np.full(len(wanted), -1, np.int64)
        found[is_known] = codes[positions[is_known]]
        for index in np.flatnonzero(~is_known).tolist():
            key = self._table.key(int(wanted[index]))
            if key.side is Side.SERVER and key.zone in self._zone_numbers:
                number = self._instance_codes.setdefault((key.zone, key.instance), len(self._instance_codes))
                found[index] = number * len(self._zones) + self._zone_numbers[key.zone]
        self._instances = wanted, found
        if len(self._instance_codes) > 2 * len(wanted) + 1000:  # instances come and go: number them again
            self._instance_codes.clear()
            self._instances = np.zeros(0, np.int64), np.zeros(0, np.int64)
        return found[np.searchsorted(wanted, numbers)]

    def _drop_before(self, start: float) -> None:
        """Drop all that was computed of bins that no later call needs."""
        self._columns = {each: column for each, column in self._columns.items() if each >= start}
        self._contributors = {each: kept for each, kept in self._contributors.items() if each >= start}
        self._notes = {each: note for each, note in self._notes.items() if each >= start}
        oldest = start - MINUTE * (USUAL_MINUTES + 1)
        self._usual = {minute: kept for minute, kept in self._usual.items() if minute >= oldest}


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


def _is_other(one: Block, other: Block) -> bool:
    return one is not other
