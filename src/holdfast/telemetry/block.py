"""Many series of one bin as arrays: 100 bytes a series instead of a thousand, and sums without loops. Pure.

Needs NumPy. Blocks are immutable. Series are numbered by a SeriesTable; the encoded form has their labels instead, so
that another process can read it.
"""

import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Side, Zone
from holdfast.metrics.histogram import Histogram
from holdfast.telemetry.bins import Bin, BinKey
from holdfast.telemetry.series import SeriesTable

Integers: TypeAlias = "NDArray[np.integer[Any]]"
Floats: TypeAlias = "NDArray[np.floating[Any]]"

COUNTS = ("count_2xx", "count_3xx", "count_4xx", "count_5xx", "faults")
"""The columns of `Block.counts`."""
_MAX_COUNT = np.iinfo(np.int32).max
_COMPRESSION = 1
"""zlib's fastest level: a block shrinks to a third, and higher levels take four times as long for a tenth less."""


@dataclass(frozen=True, slots=True)
class Histograms:
    """The histograms of many rows. The buckets of row `i` are at `offsets[i]` up to `offsets[i + 1]`."""

    offsets: Integers
    buckets: Integers
    values: Integers
    zeros: Integers
    sums: Floats
    minima: Floats
    maxima: Floats

    @classmethod
    def of(cls, histograms: Collection[Histogram]) -> "Histograms":
        rows = len(histograms)
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.fromiter((len(each.buckets) for each in histograms), np.int32, rows), out=offsets[1:])
        size = int(offsets[-1])
        return cls(
            offsets,
            np.fromiter(chain.from_iterable(each.buckets for each in histograms), np.int16, size),
            _cap(np.fromiter(chain.from_iterable(each.buckets.values() for each in histograms), np.int64, size)),
            _cap(np.fromiter((each.zeros for each in histograms), np.int64, rows)),
            np.fromiter((each.sum for each in histograms), np.float64, rows),
            np.fromiter((each.min if each.count else math.inf for each in histograms), np.float32, rows),
            np.fromiter((each.max if each.count else -math.inf for each in histograms), np.float32, rows),
        )

    @classmethod
    def merge(cls, parts: Sequence["Histograms"], groups: Integers, size: int) -> "Histograms":
        """Add up the rows of all `parts` that have the same number in `groups`, which is below `size`."""
        entries = np.repeat(groups, np.concatenate([np.diff(part.offsets) for part in parts]))
        buckets = np.concatenate([part.buckets for part in parts]).astype(np.int64)
        lowest, highest = (int(buckets.min()), int(buckets.max())) if len(buckets) else (0, 0)
        width = highest - lowest + 1
        cells = entries * width + (buckets - lowest)
        values = np.concatenate([part.values for part in parts])
        if size * width <= len(cells):  # a table of all rows and buckets is small: several times as fast as sorting
            sums = np.bincount(cells, values, size * width)
            cells = np.flatnonzero(sums)
            values = sums[cells]
        else:
            cells, inverse = np.unique(cells, return_inverse=True)
            values = np.bincount(inverse, values, len(cells))
        rows, found = np.divmod(cells, width)
        offsets = np.zeros(size + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=size), out=offsets[1:])
        minima, maxima = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
        np.minimum.at(minima, groups, np.concatenate([part.minima for part in parts]))
        np.maximum.at(maxima, groups, np.concatenate([part.maxima for part in parts]))
        return cls(
            offsets,
            (found + lowest).astype(np.int16),
            _cap(values),
            _cap(np.bincount(groups, np.concatenate([part.zeros for part in parts]), size)),
            np.bincount(groups, np.concatenate([part.sums for part in parts]), size).astype(np.float64, copy=False),
            minima,
            maxima,
        )

    def take(self, rows: Integers) -> "Histograms":
        """Return the histograms of some rows, in their order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        entries = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return Histograms(
            offsets,
            self.buckets[entries],
            self.values[entries],
            self.zeros[rows],
            self.sums[rows],
            self.minima[rows],
            self.maxima[rows],
        )

    def spread(self, rows: Integers, positions: Integers, size: int) -> "Histograms":
        """Return `size` histograms: those of `rows` at `positions`, which are sorted, and empty ones elsewhere."""
        taken = self.take(rows)
        lengths = np.zeros(size, np.int64)
        lengths[positions] = np.diff(taken.offsets)
        offsets = np.zeros(size + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        zeros, sums = np.zeros(size, np.int32), np.zeros(size)
        minima, maxima = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
        for target, source in (
            (zeros, taken.zeros),
            (sums, taken.sums),
            (minima, taken.minima),
            (maxima, taken.maxima),
        ):
            target[positions] = source
        return Histograms(offsets, taken.buckets, taken.values, zeros, sums, minima, maxima)

    def row(self, index: int) -> Histogram:
        """Return one histogram."""
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        buckets = dict(zip(self.buckets[start:end].tolist(), self.values[start:end].tolist(), strict=True))
        zeros = int(self.zeros[index])
        count = zeros + sum(buckets.values())
        if not count:
            return Histogram()
        minimum, maximum = float(self.minima[index]), float(self.maxima[index])
        return Histogram(buckets, zeros, count, float(self.sums[index]), minimum, maximum)


@dataclass(frozen=True, slots=True)
class Block:
    """The measurements of many series in one bin: one row for each series, sorted by its number."""

    numbers: Integers
    counts: Integers
    """A row of `COUNTS` for each series."""
    peaks: Integers
    """The most requests in one second of the bin."""
    coarse: "NDArray[np.bool_]"
    """Whether percentiles are rough, because the source has wide buckets."""
    success: Histograms
    fault: Histograms

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        arrays = [self.numbers, self.counts, self.peaks, self.coarse]
        for part in (self.success, self.fault):
            arrays += [getattr(part, name) for name in part.__slots__]
        return sum(array.nbytes for array in arrays)

    @classmethod
    def merge(cls, blocks: Sequence["Block"], numbers: Sequence[Integers] | None = None) -> "Block":
        """Add up the series of several blocks. `numbers`, if given, has other numbers for the series of each block.

        Series that get the same number become one. The peak is the highest of theirs, which is right for blocks of
        different times; `build_blocks` finds the peak of several instances in the same bin.
        """
        if not blocks:
            return EMPTY
        given = np.concatenate(numbers if numbers is not None else [block.numbers for block in blocks])
        found, groups = np.unique(given, return_inverse=True)
        size = len(found)
        counts = np.concatenate([block.counts for block in blocks])
        peaks, coarse = np.zeros(size, np.int32), np.zeros(size, np.bool_)
        np.maximum.at(peaks, groups, np.concatenate([block.peaks for block in blocks]))
        np.logical_or.at(coarse, groups, np.concatenate([block.coarse for block in blocks]))
        return cls(
            found.astype(np.int32),
            _cap(np.stack([np.bincount(groups, column, size) for column in counts.T], axis=1)),
            peaks,
            coarse,
            Histograms.merge([block.success for block in blocks], groups, size),
            Histograms.merge([block.fault for block in blocks], groups, size),
        )

    def take(self, rows: Integers) -> "Block":
        """Return some rows, in the order of `rows`, which must sort them by number."""
        return Block(
            self.numbers[rows],
            self.counts[rows],
            self.peaks[rows],
            self.coarse[rows],
            self.success.take(rows),
            self.fault.take(rows),
        )

    def without(self, numbers: Integers) -> "Block":
        """Return the block without some series."""
        return self.take(np.flatnonzero(~np.isin(self.numbers, numbers)))

    def with_peaks_of(self, *others: "Block") -> "Block":
        """Return the block with at least the peaks that `others` have for the same series."""
        peaks = self.peaks.copy()
        for other in others:
            _, own_rows, other_rows = np.intersect1d(self.numbers, other.numbers, return_indices=True)
            peaks[own_rows] = np.maximum(peaks[own_rows], other.peaks[other_rows])
        return replace(self, peaks=peaks)


def build_blocks(bins: Mapping[BinKey, Bin], table: SeriesTable, seconds: float) -> tuple[Block, Block]:
    """Return the measurements of one bin by instance, and summed over instances.

    The second block has a series for each operation in each zone, and one for all operations in each zone. Their peaks
    are exact, because all their requests are counted by second.
    """
    numbered = sorted((table.number(key), measured) for key, measured in bins.items())
    numbers, cells = [number for number, _ in numbered], [measured for _, measured in numbered]
    counts = [(each.count_2xx, each.count_3xx, each.count_4xx, each.count_5xx, each.faults) for each in cells]
    by_instance = Block(
        np.array(numbers, np.int32),
        _cap(np.array(counts, np.int64).reshape(len(cells), len(COUNTS))),
        _cap(np.fromiter((_find_peak(each, seconds) for each in cells), np.int64, len(cells))),
        np.fromiter((each.is_coarse for each in cells), np.bool_, len(cells)),
        Histograms.of([each.success_seconds for each in cells]),
        Histograms.of([each.fault_seconds for each in cells]),
    )
    zones = np.array([table.zone_number(number) for number in numbers], np.int32)
    totals = np.array([table.total_number(number) for number in numbers], np.int32)
    by_zone = sum_over_instances(by_instance, table, seconds)
    both = np.concatenate([zones, totals])
    peaks = _find_peaks(cells * 2, np.searchsorted(by_zone.numbers, both), len(by_zone), seconds)
    return by_instance, replace(by_zone, peaks=peaks)


def sum_over_instances(by_instance: Block, table: SeriesTable, seconds: float) -> Block:
    """Return a series for each operation in each zone, and one for all operations in each zone.

    Their peak is that of the busiest instance, or the mean if that is higher: too low if there are several instances.
    """
    numbers = by_instance.numbers.tolist()
    zones = np.array([table.zone_number(number) for number in numbers], np.int32)
    by_zone = Block.merge([by_instance], [zones])
    totals = np.array([table.total_number(number) for number in by_zone.numbers.tolist()], np.int32)
    summed = Block.merge([by_zone, by_zone], [by_zone.numbers, totals])
    return replace(summed, peaks=np.maximum(summed.peaks, _find_mean(summed.counts[:, :-1].sum(axis=1), seconds)))


def _find_peak(measured: Bin, seconds: float) -> int:
    """Return the most requests in one second. If the source does not know them, they are spread evenly."""
    return max(measured.by_second.values(), default=0) or math.ceil(measured.requests / max(seconds, 1.0))


def _find_peaks(cells: Sequence[Bin], groups: Integers, size: int, seconds: float) -> Integers:
    """Return the most requests in one second for each group of cells."""
    evenly = [0 if each.by_second else each.requests for each in cells]
    spread = np.bincount(groups, evenly, size) / max(seconds, 1.0)
    entries = sum(len(each.by_second) for each in cells)
    if not entries:
        return _cap(np.ceil(spread))
    at = np.fromiter(chain.from_iterable(each.by_second for each in cells), np.int64, entries)
    values = np.fromiter(chain.from_iterable(each.by_second.values() for each in cells), np.int64, entries)
    at -= at.min()
    width = int(at.max()) + 1
    rows = np.repeat(groups, np.fromiter((len(each.by_second) for each in cells), np.int64, len(cells)))
    known = np.bincount(rows * width + at, values, size * width).reshape(size, width).max(axis=1)
    return _cap(np.ceil(known + spread))


def _find_mean(requests: Integers, seconds: float) -> Integers:
    """Return the mean number of requests in one second, rounded up."""
    return _cap(np.ceil(requests / max(seconds, 1.0)))


def _cap(values: "NDArray[Any]") -> "NDArray[np.int32]":
    """Return counts as 32 bits. A count beyond them, two billion, is wrong anyway."""
    capped: NDArray[np.int32] = np.minimum(values, _MAX_COUNT).astype(np.int32)
    return capped


def _build_empty() -> Block:
    none = Histograms.of([])
    counts = np.zeros((0, len(COUNTS)), np.int32)
    return Block(np.zeros(0, np.int32), counts, np.zeros(0, np.int32), np.zeros(0, np.bool_), none, none)


EMPTY = _build_empty()
"""A block without series."""

_TYPES = {"counts": "<i4", "peaks": "<i4", "coarse": "?"}
_HISTOGRAM_TYPES = {
    "offsets": "<i4",
    "buckets": "<i2",
    "values": "<i4",
    "zeros": "<i4",
    "sums": "<f8",
    "minima": "<f4",
    "maxima": "<f4",
}


class _Encoded(msgspec.Struct, array_like=True):
    """The stored form of a block."""

    labels: list[tuple[str, str, str, str, Side]]
    """Service, operation, zone, instance and side of each series, sorted."""
    counts: list[bytes]
    success: list[bytes]
    fault: list[bytes]


def encode_block(block: Block, table: SeriesTable) -> bytes:
    """Return a block of one workload as bytes, with the labels of its series in place of their numbers."""
    keys = [table.key(number) for number in block.numbers.tolist()]
    encoded = _Encoded(
        [(key.operation.service, key.operation.name, key.zone, key.instance, key.side) for key in keys],
        _encode_arrays(block, _TYPES),
        _encode_arrays(block.success, _HISTOGRAM_TYPES),
        _encode_arrays(block.fault, _HISTOGRAM_TYPES),
    )
    return zlib.compress(msgspec.msgpack.encode(encoded), _COMPRESSION)


def decode_block(encoded: bytes, workload: str, table: SeriesTable) -> Block:
    """Return the block of a workload. Raise InvalidValue if `encoded` is damaged, or has another form."""
    try:
        found = msgspec.msgpack.decode(zlib.decompress(encoded), type=_Encoded)
        counts, peaks, coarse = _decode_arrays(found.counts, _TYPES)
        success = Histograms(*_decode_arrays(found.success, _HISTOGRAM_TYPES))
        fault = Histograms(*_decode_arrays(found.fault, _HISTOGRAM_TYPES))
        rows = len(found.labels)
        counts = counts.reshape(rows, len(COUNTS))
    except (zlib.error, msgspec.MsgspecError, ValueError, TypeError) as error:
        raise InvalidValue(f"a stored bin of workload {workload} cannot be read: {error}") from error
    if not (len(peaks) == len(coarse) == rows and _is_consistent(success, rows) and _is_consistent(fault, rows)):
        raise InvalidValue(f"a stored bin of workload {workload} cannot be read: its arrays do not fit together")
    keys = (
        BinKey(workload, Operation(service, name), Zone(zone), instance, side)
        for service, name, zone, instance, side in found.labels
    )
    numbers = np.fromiter(map(table.number, keys), np.int32, rows)
    order = np.argsort(numbers)
    return Block(numbers, counts, peaks, coarse, success, fault).take(order)


def _is_consistent(histograms: Histograms, rows: int) -> bool:
    """Return whether all rows, and the buckets of each, are within the arrays."""
    offsets, buckets = histograms.offsets, histograms.buckets
    by_row = (histograms.zeros, histograms.sums, histograms.minima, histograms.maxima)
    return (
        len(offsets) == rows + 1
        and offsets[0] == 0
        and bool(np.all(np.diff(offsets) >= 0))
        and offsets[-1] == len(buckets) == len(histograms.values)
        and all(len(array) == rows for array in by_row)
    )


def _encode_arrays(owner: Block | Histograms, types: Mapping[str, str]) -> list[bytes]:
    return [getattr(owner, name).astype(kind, copy=False).tobytes() for name, kind in types.items()]


def _decode_arrays(encoded: Sequence[bytes], types: Mapping[str, str]) -> "list[NDArray[Any]]":
    return [np.frombuffer(each, kind) for each, kind in zip(encoded, types.values(), strict=True)]
