"""Statistics of many histograms at once, by the same rules as `statistics`. Pure. Needs NumPy."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.alarms.statistics import Distribution, Interpolation, Statistic, StatisticKind, compute_statistic
from holdfast.metrics.histogram import PER_DOUBLING, SMALLEST

if TYPE_CHECKING:
    from holdfast.telemetry.block import Histograms

Floats: TypeAlias = "NDArray[np.float64]"

_OFFSET = 1 << 15


def compute_statistics(
    statistic: Statistic, histograms: "Histograms", interpolation: Interpolation = Interpolation.NEAREST_RANK
) -> Floats:
    """Return a statistic of each histogram; NaN for an empty one."""
    counts = count_values(histograms)
    if statistic.kind is StatisticKind.PERCENTILE:
        return _compute_percentiles(statistic.upper or 0.0, histograms, counts, interpolation)
    basic: dict[StatisticKind, Callable[[], Floats]] = {
        StatisticKind.SAMPLE_COUNT: lambda: counts.astype(np.float64),
        StatisticKind.SUM: lambda: histograms.sums.astype(np.float64),
        StatisticKind.AVERAGE: lambda: histograms.sums / np.maximum(counts, 1),
        StatisticKind.MINIMUM: lambda: histograms.minima.astype(np.float64),
        StatisticKind.MAXIMUM: lambda: histograms.maxima.astype(np.float64),
    }
    if statistic.kind in basic:
        return np.where(counts > 0, basic[statistic.kind](), np.nan)
    # The others are rare: one by one.
    found = (compute_statistic(statistic, Distribution.of_histogram(histograms.row(row))) for row in range(len(counts)))
    return np.array([np.nan if value is None else value for value in found], np.float64)


def count_values(histograms: "Histograms") -> "NDArray[np.int64]":
    """Return the number of values in each histogram."""
    sums = np.concatenate([[0], np.cumsum(histograms.values, dtype=np.int64)])
    found: NDArray[np.int64] = sums[histograms.offsets[1:]] - sums[histograms.offsets[:-1]] + histograms.zeros
    return found


def _compute_percentiles(
    percent: float, histograms: "Histograms", counts: "NDArray[np.int64]", interpolation: Interpolation
) -> Floats:
    find = _RankedValues(histograms, counts).find
    if interpolation is Interpolation.NEAREST_RANK:
        values = find(np.maximum(1, np.ceil(np.round(percent * counts / 100, 6))))
    else:
        positions = np.maximum(0, counts - 1) * percent / 100
        below = np.floor(positions)
        low = find(below + 1)
        values = low + (find(np.minimum(below + 2, counts)) - low) * (positions - below)
    return np.where(counts > 0, values, np.nan)


class _RankedValues:
    """The values of each histogram by rank: middles of buckets, but never outside of the extremes."""

    def __init__(self, histograms: "Histograms", counts: "NDArray[np.int64]") -> None:
        rows = np.repeat(np.arange(len(counts)), np.diff(histograms.offsets))
        order = np.argsort(rows * (2 * _OFFSET) + histograms.buckets, kind="stable")
        self._buckets, self._sums = histograms.buckets[order], np.cumsum(histograms.values[order], dtype=np.int64)
        self._before = np.concatenate([[0], self._sums])[histograms.offsets[:-1]] - histograms.zeros
        self._zeros = histograms.zeros
        is_filled = counts > 0
        self._low = np.where(is_filled, histograms.minima, 0.0).astype(np.float64)
        self._high = np.where(is_filled, histograms.maxima, 0.0).astype(np.float64)

    def find(self, ranks: Floats) -> Floats:
        """Return the value with a rank in each histogram, from 1 on."""
        positions = np.minimum(np.searchsorted(self._sums, self._before + ranks), max(0, len(self._sums) - 1))
        found = 2.0 ** ((self._buckets[positions] + 0.5) / PER_DOUBLING) if len(self._buckets) else np.zeros(len(ranks))
        values = np.where(ranks <= self._zeros, np.minimum(self._low, SMALLEST), found)
        return np.clip(values, self._low, self._high)
