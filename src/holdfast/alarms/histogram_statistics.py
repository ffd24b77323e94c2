"""Statistics of many histograms at once, by the same rules as `statistics`. Pure. Needs NumPy."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.alarms.statistics import Distribution, Statistic, StatisticKind, compute_statistic
from holdfast.metrics.histogram import PER_DOUBLING, SMALLEST

if TYPE_CHECKING:
    from holdfast.telemetry.block import Histograms

Floats: TypeAlias = "NDArray[np.float64]"

_OFFSET = 1 << 15


def compute_statistics(statistic: Statistic, histograms: "Histograms") -> Floats:
    """Return a statistic of each histogram; NaN for an empty one."""
    counts = count_values(histograms)
    if statistic.kind is StatisticKind.PERCENTILE:
        return _compute_percentiles(statistic.upper or 0.0, histograms, counts)
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


def _compute_percentiles(percent: float, histograms: "Histograms", counts: "NDArray[np.int64]") -> Floats:
    """Return the middle of the bucket with the nearest rank, within the extremes."""
    rows = np.repeat(np.arange(len(counts)), np.diff(histograms.offsets))
    order = np.argsort(rows * (2 * _OFFSET) + histograms.buckets, kind="stable")
    buckets, sums = histograms.buckets[order], np.cumsum(histograms.values[order], dtype=np.int64)
    before = np.concatenate([[0], sums])[histograms.offsets[:-1]]
    ranks = np.maximum(1, np.ceil(np.round(percent * counts / 100, 6)))
    positions = np.minimum(np.searchsorted(sums, before + ranks - histograms.zeros), max(0, len(sums) - 1))
    found = (
        2.0 ** ((buckets[positions] + 0.5) / PER_DOUBLING) if len(buckets) else np.zeros(len(counts), dtype=np.float64)
    )
    low, high = histograms.minima.astype(np.float64), histograms.maxima.astype(np.float64)
    values = np.where(ranks <= histograms.zeros, np.minimum(low, SMALLEST), found)
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, np.clip(values, low, high), np.nan)
