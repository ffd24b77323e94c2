"""Keep the measurements of the last day, and answer queries about them. Pure.

| kept | length of a bin | for |
|---|---|---|
| by operation, zone, side and instance | `telemetry.bin_seconds`, 10 s | 15 minutes |
| by operation, zone and side | the same | an hour |
| by operation, zone and side | 60 s | 24 hours |

A bin is dropped when it is older than that. The number of series is limited by the SeriesTable, so memory is bounded.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from holdfast._errors import InvalidValue
from holdfast.telemetry.bins import LONG_TERM, MEDIUM_TERM, MINUTE, SHORT_TERM, Bin, BinKey, bin_number
from holdfast.telemetry.block import EMPTY, Block, build_blocks, sum_over_instances
from holdfast.telemetry.collector import GRACE_SECONDS, Amendment
from holdfast.telemetry.query import MeasuredSeries, SeriesAnswer, SeriesPoint, SeriesQuery
from holdfast.telemetry.series import ALL_OPERATIONS, SeriesTable

MAX_POINTS = 20_000
"""Maximum points of one answer: about 3 MB."""
DEFAULT_POINTS = 300
"""Points of a series if the query names no step: as many as a chart has room for."""
_BLOCKS_AT_ONCE = 64
"""Blocks that are added up in one step: the memory for a day at once would be more than that of the store."""
_QUANTILES = (0.5, 0.9, 0.99)


class Tier(StrEnum):
    """The four kinds of stored bins."""

    INSTANCES = "instances"
    """Bins of `bin_seconds` by instance."""
    ZONES = "zones"
    """Bins of `bin_seconds` over all instances of a zone."""
    LONG_INSTANCES = "long_instances"
    """Measurements by instance whose source has a resolution above `bin_seconds`, in bins of a minute."""
    MINUTES = "minutes"
    """Bins of a minute over all instances of a zone: the sum of ZONES and LONG_INSTANCES."""


def get_retention(tier: Tier) -> float:
    """Return the seconds that bins of a tier are kept."""
    return {Tier.MINUTES: LONG_TERM, Tier.ZONES: MEDIUM_TERM}.get(tier, SHORT_TERM)


class StoredBlock(NamedTuple):
    """A block and its place in the store."""

    workload: str
    tier: Tier
    start: float
    seconds: float
    """Length of the bin."""
    block: Block


@dataclass(slots=True)
class _Workload:
    """The stored bins of one workload: for each tier, a block by the number of the bin."""

    tiers: dict[Tier, dict[int, Block]] = field(default_factory=lambda: {tier: {} for tier in Tier})


@dataclass(slots=True)
class _Step:
    """The stored bins of one point of an answer."""

    blocks: list[Block] = field(default_factory=list)
    seconds: defaultdict[Tier, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that the bins of each tier cover."""

    def add(self, other: "_Step") -> None:
        """Add the bins of another step."""
        self.blocks += other.blocks
        for tier, seconds in other.seconds.items():
            self.seconds[tier] += seconds


class SeriesStore:
    """The stored bins of all workloads. Not thread-safe."""

    def __init__(self, table: SeriesTable, seconds: float) -> None:
        self._table = table
        self._seconds = seconds
        self._minute = max(MINUTE, seconds)
        self._workloads: dict[str, _Workload] = {}
        self._changed: dict[tuple[str, Tier, int], None] = {}

    def close_bin(self, number: int, bins: Mapping[BinKey, Bin], workloads: Sequence[str]) -> None:
        """Store a complete bin. `workloads` are all that are watched: one without measurements gets an empty bin."""
        by_workload: dict[str, dict[BinKey, Bin]] = {name: {} for name in workloads}
        for key, measured in bins.items():
            by_workload.setdefault(key.workload, {})[key] = measured
        for name, measured_bins in by_workload.items():
            by_instance, by_zone = build_blocks(measured_bins, self._table, self._seconds)
            self._put(name, Tier.INSTANCES, number, by_instance)
            self._put(name, Tier.ZONES, number, by_zone)
            self._sum_minute(name, bin_number(number * self._seconds, self._minute))

    def amend(self, late: Mapping[int, Amendment], late_minutes: Mapping[int, Amendment], now: float) -> None:
        """Add late measurements to stored bins. Bins that are no longer kept by instance take no replacements."""
        oldest = bin_number(now - SHORT_TERM, self._seconds)
        for number, amendment in late.items():
            for name, part in _split_by_workload(amendment).items():
                if number < oldest and self._get(name, Tier.INSTANCES, number) is EMPTY:
                    self._add_to_zones(name, number, part.added)
                    continue
                added, replaced = self._amend(name, Tier.INSTANCES, number, part, self._seconds)
                by_zone = sum_over_instances(self._get(name, Tier.INSTANCES, number), self._table, self._seconds)
                # The peak of the whole is unknown by now: it is at least that of each part.
                by_zone = by_zone.with_peaks_of(self._get(name, Tier.ZONES, number), added, replaced)
                self._put(name, Tier.ZONES, number, by_zone)
                self._sum_minute(name, bin_number(number * self._seconds, self._minute))
        for number, amendment in late_minutes.items():
            for name, part in _split_by_workload(amendment).items():
                self._amend(name, Tier.LONG_INSTANCES, number, part, self._minute)
                self._sum_minute(name, number)

    def prune(self, now: float) -> None:
        """Drop the bins that are too old, and forget the series that only they had."""
        for workload in self._workloads.values():
            for tier, blocks in workload.tiers.items():
                oldest = bin_number(now - get_retention(tier), self._get_length(tier))
                for number in [number for number in blocks if number < oldest]:
                    del blocks[number]
        self._table.forget(now, SHORT_TERM + self._minute, LONG_TERM + self._minute)

    def pop_changed(self) -> list[StoredBlock]:
        """Return the blocks that were stored or amended since the last call."""
        changed, self._changed = self._changed, {}
        return [
            StoredBlock(name, tier, number * length, length, self._workloads[name].tiers[tier][number])
            for name, tier, number in changed
            if number in self._workloads[name].tiers[tier]
            for length in (self._get_length(tier),)
        ]

    def load(self, stored: StoredBlock) -> None:
        """Restore a block from before a restart. Ignore one of another length: the settings were changed meanwhile."""
        if stored.seconds != self._get_length(stored.tier):
            return
        number = bin_number(stored.start, stored.seconds)
        self._put(stored.workload, stored.tier, number, stored.block)
        del self._changed[stored.workload, stored.tier, number]

    @property
    def nbytes(self) -> int:
        """Size of all blocks in memory, in bytes."""
        return sum(
            block.nbytes
            for workload in self._workloads.values()
            for blocks in workload.tiers.values()
            for block in blocks.values()
        )

    def snapshot(self, workload: str) -> "SeriesStore":
        """Return the stored bins of a workload as they are now, for queries in another thread. Quick, and small."""
        copied = SeriesStore(self._table.snapshot(), self._seconds)
        found = self._workloads.get(workload)
        if found is not None:
            copied._workloads[workload] = _Workload({tier: dict(blocks) for tier, blocks in found.tiers.items()})
        return copied

    def answer(self, query: SeriesQuery, now: float) -> SeriesAnswer:
        """Answer a query. Raise InvalidValue if its step is too short for stored bins, or the answer too long."""
        tiers, step = self._choose_tiers(query, now)
        steps: dict[float, _Step] = {}
        for tier in tiers:
            length = self._get_length(tier)
            for number, block in self._find_bins(query, tier).items():
                found = steps.setdefault(bin_number(number * length, step) * step, _Step())
                found.blocks.append(block)
                found.seconds[tier] += self._get_seconds(query.workload, tier, number, now)
        labels = _Labels(query, self._table, [block for found in steps.values() for block in found.blocks])
        if len(labels.names) * len(steps) > MAX_POINTS:
            raise InvalidValue(
                f"{len(labels.names)} series of {len(steps)} points each are more than {MAX_POINTS} points: "
                "ask for a shorter time, a longer step, or one zone or operation"
            )
        points: dict[str | None, list[SeriesPoint]] = {name: [] for name in labels.names}
        everything = _Step()
        for start, found in sorted(steps.items()):
            found.blocks = [labels.sum(found.blocks)]
            everything.add(found)
            for name, point in labels.build_points(found, start):
                points[name].append(point)
        totals = dict(labels.build_points(everything, min(steps, default=0.0)))
        series = [MeasuredSeries(name, totals[name], found_points) for name, found_points in points.items()]
        return SeriesAnswer(query.workload, step, series)

    def find_tier(self, seconds: float) -> tuple[Tier, float] | None:
        """Return the tier over all instances of a zone with the longest bins that fill `seconds`, and their length.

        Return None if the bins of no tier do.
        """
        lengths = [(tier, self._get_length(tier)) for tier in (Tier.MINUTES, Tier.ZONES)]
        return next((each for each in lengths if math.isclose(seconds % each[1], 0.0)), None)

    def read_block(self, workload: str, tier: Tier, start: float) -> Block | None:
        """Return the stored bin that begins at `start`, or None if there is none."""
        found = self._workloads.get(workload)
        return None if found is None else found.tiers[tier].get(bin_number(start, self._get_length(tier)))

    def count_bins(self, workload: str, start: float, end: float) -> int:
        """Return the number of stored bins over all instances that begin from `start` on, and before `end`."""
        found = self._workloads.get(workload)
        numbers = () if found is None else found.tiers[Tier.ZONES]
        return sum(start <= number * self._seconds < end for number in numbers)

    def iterate_zones(self, workload: str, start: float) -> Iterator[tuple[float, list[BinKey], Block]]:
        """Yield the start of each stored bin from `start` on, oldest first, with its series over all instances."""
        found = self._workloads.get(workload)
        for number, block in sorted({} if found is None else found.tiers[Tier.ZONES].items()):
            if number * self._seconds >= start:
                keys = [self._table.key(each) for each in block.numbers.tolist()]
                rows = [row for row, key in enumerate(keys) if key.operation != ALL_OPERATIONS]
                yield number * self._seconds, [keys[row] for row in rows], block.take(np.array(rows, np.int64))

    def read_instances(self, workload: str, start: float, seconds: float) -> list[Block]:
        """Return the bins by instance that begin within `seconds` seconds from `start` on."""
        found = self._workloads.get(workload)
        if found is None:
            return []
        blocks = []
        for tier in (Tier.INSTANCES, Tier.LONG_INSTANCES):
            length, bins = self._get_length(tier), found.tiers[tier]
            first, end = (math.ceil(each / length - 1e-6) for each in (start, start + seconds))
            blocks += [bins[number] for number in range(first, end) if number in bins]
        return blocks

    def _choose_tiers(self, query: SeriesQuery, now: float) -> tuple[tuple[Tier, ...], float]:
        """Return the tiers that answer a query, and the length of a step: a multiple of the longest bins in them."""
        by_instance = query.is_by_instance
        wanted = query.step if query.step is not None else (query.end - query.start) / DEFAULT_POINTS
        has_minutes = self._has_minutes(query)
        is_recent = query.start >= now - MEDIUM_TERM - self._seconds
        if by_instance:
            tiers: tuple[Tier, ...] = (Tier.INSTANCES, Tier.LONG_INSTANCES) if has_minutes else (Tier.INSTANCES,)
        else:
            tiers = (Tier.ZONES,) if is_recent and wanted < self._minute and not has_minutes else (Tier.MINUTES,)
        length = max(map(self._get_length, tiers))
        if query.step is not None and query.step < length:
            reason = ""
            if has_minutes:
                reason = ", because some of the measurements are by the minute"
            elif tiers == (Tier.MINUTES,):
                reason = f", because bins of less are kept for {MEDIUM_TERM / 60:.0f} minutes"
            raise InvalidValue(f"step is {query.step:g} s: expected at least {length:g} s{reason}")
        return tiers, length * max(1, math.ceil(wanted / length - 1e-6))

    def _has_minutes(self, query: SeriesQuery) -> bool:
        """Return whether a source of the queried measurements has a resolution above the length of a bin."""
        blocks = self._find_bins(query, Tier.LONG_INSTANCES).values()
        numbers = {number for block in blocks for number in block.numbers.tolist()}
        keys = map(self._table.key, numbers)
        return any(key.side is query.side and query.zone in (None, key.zone) for key in keys)

    def _find_bins(self, query: SeriesQuery, tier: Tier) -> dict[int, Block]:
        """Return the stored bins of a tier in the time of a query, oldest first."""
        workload, length = self._workloads.get(query.workload), self._get_length(tier)
        if workload is None:
            return {}
        first, last = bin_number(query.start, length), bin_number(query.end - length / 2, length)
        blocks = workload.tiers[tier]
        return {number: blocks[number] for number in sorted(blocks) if first <= number <= last}

    def _get_seconds(self, workload: str, tier: Tier, number: int, now: float) -> float:
        """Return the seconds that a stored bin covers: less than its length if it is a minute in progress."""
        length = self._get_length(tier)
        if tier is not Tier.MINUTES or (number + 1) * length < now - GRACE_SECONDS - self._seconds:
            return length
        stored = self._workloads[workload].tiers[Tier.ZONES].keys() & set(self._get_numbers(number))
        return min(length, len(stored) * self._seconds) or length

    def _get_length(self, tier: Tier) -> float:
        return self._seconds if tier in (Tier.INSTANCES, Tier.ZONES) else self._minute

    def _get(self, workload: str, tier: Tier, number: int) -> Block:
        found = self._workloads.get(workload)
        return EMPTY if found is None else found.tiers[tier].get(number, EMPTY)

    def _put(self, workload: str, tier: Tier, number: int, block: Block) -> None:
        self._workloads.setdefault(workload, _Workload()).tiers[tier][number] = block
        self._changed[workload, tier, number] = None
        self._table.mark_seen(block.numbers.tolist(), (number + 1) * self._get_length(tier))

    def _amend(
        self, workload: str, tier: Tier, number: int, amendment: Amendment, seconds: float
    ) -> tuple[Block, Block]:
        """Change the block of an instance tier. Return the added and the replaced measurements, over all instances."""
        added, added_by_zone = build_blocks(amendment.added, self._table, seconds)
        replaced, replaced_by_zone = build_blocks(amendment.replaced, self._table, seconds)
        kept = self._get(workload, tier, number).without(replaced.numbers)
        self._put(workload, tier, number, Block.merge([kept, replaced, added]))
        return added_by_zone, replaced_by_zone

    def _add_to_zones(self, workload: str, number: int, bins: Mapping[BinKey, Bin]) -> None:
        """Add measurements to a bin that is kept over all instances only."""
        _, by_zone = build_blocks(bins, self._table, self._seconds)
        minute = bin_number(number * self._seconds, self._minute)
        for tier, at in ((Tier.ZONES, number), (Tier.MINUTES, minute)):
            self._put(workload, tier, at, Block.merge([self._get(workload, tier, at), by_zone]))

    def _sum_minute(self, workload: str, minute: int) -> None:
        zones, longs = (self._workloads[workload].tiers[tier] for tier in (Tier.ZONES, Tier.LONG_INSTANCES))
        blocks = [zones[number] for number in self._get_numbers(minute) if number in zones]
        if minute in longs:
            blocks.append(sum_over_instances(longs[minute], self._table, self._minute))
        self._put(workload, Tier.MINUTES, minute, Block.merge(blocks))

    def _get_numbers(self, minute: int) -> range:
        """Return the numbers of the bins that begin in a minute."""
        first, end = (math.ceil(each * self._minute / self._seconds - 1e-6) for each in (minute, minute + 1))
        return range(first, end)


class _Labels:
    """The labels by which a query groups series, and the series that belong to each."""

    def __init__(self, query: SeriesQuery, table: SeriesTable, blocks: Sequence[Block]) -> None:
        self._numbers = np.unique(np.concatenate([EMPTY.numbers, *(block.numbers for block in blocks)]))
        keys = [table.key(number) for number in self._numbers.tolist()]
        labels = [_get_label(query, key) if _matches(query, key) else None for key in keys]
        names = sorted({label for label in labels if label is not None})
        indices = {name: index for index, name in enumerate(names)}
        self._indices = np.array([-1 if label is None else indices[label] for label in labels], np.int32)
        self.names: list[str | None] = [name or None for name in names]
        """The labels, sorted. A query that does not group has one, None, if it found any series."""
        self.has_peak = len(names) == sum(label is not None for label in labels)
        """Whether every label belongs to one series: the peak of a sum is unknown."""

    def sum(self, blocks: Sequence[Block]) -> Block:
        """Return the sum of the series that the query is about, numbered by the index of their label in `names`."""
        summed: list[Block] = []
        for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
            part = blocks[start : start + _BLOCKS_AT_ONCE]
            found = [self._indices[np.searchsorted(self._numbers, block.numbers)] for block in part]
            rows = [np.flatnonzero(indices >= 0) for indices in found]
            taken = [block.take(each) for block, each in zip(part, rows, strict=True)]
            summed.append(Block.merge(taken, [indices[each] for indices, each in zip(found, rows, strict=True)]))
        return Block.merge(summed)

    def build_points(self, step: _Step, start: float) -> Iterator[tuple[str | None, SeriesPoint]]:
        """Yield each label with the sum of its series in the blocks of a step, which `sum` returned."""
        merged = Block.merge(step.blocks)
        seconds = max(step.seconds.values(), default=1.0)
        rows = {number: row for row, number in enumerate(merged.numbers.tolist())}
        for index, name in enumerate(self.names):
            yield name, _build_point(merged, rows.get(index), start, seconds, has_peak=self.has_peak)


def _matches(query: SeriesQuery, key: BinKey) -> bool:
    by_instance = query.is_by_instance
    by_operation = query.by == "operation" or query.operation is not None
    return (
        key.side is query.side
        and query.zone in (None, key.zone)
        and query.operation in (None, key.operation)
        and (by_instance or by_operation) == (key.operation != ALL_OPERATIONS)
        and query.instance in (None, key.instance)
    )


def _get_label(query: SeriesQuery, key: BinKey) -> str:
    return "" if query.by is None else str(getattr(key, query.by))


def _build_point(block: Block, row: int | None, start: float, seconds: float, *, has_peak: bool) -> SeriesPoint:
    if row is None:
        return SeriesPoint(start, 0, 0, 0.0, None, 0 if has_peak else None, None, None, None)
    *counts, faults = block.counts[row].tolist()
    requests = sum(counts)
    latencies = block.success.row(row)
    p50, p90, p99 = latencies.quantiles(_QUANTILES) if latencies.count else (None, None, None)
    return SeriesPoint(
        start,
        requests,
        faults,
        round(requests / seconds, 4),
        round(faults / requests, 6) if requests else None,
        int(block.peaks[row]) if has_peak else None,
        p50,
        p90,
        p99,
        bool(block.coarse[row]),
    )


def _split_by_workload(amendment: Amendment) -> dict[str, Amendment]:
    found: dict[str, Amendment] = {}
    for key, measured in amendment.added.items():
        found.setdefault(key.workload, Amendment()).added[key] = measured
    for key, measured in amendment.replaced.items():
        found.setdefault(key.workload, Amendment()).replaced[key] = measured
    return found
