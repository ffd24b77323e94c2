"""Turn recorded latencies into histograms with our buckets. Pure. Needs NumPy.

Recorded histograms have buckets of another growth: each is spread evenly, on a logarithmic scale, over those of our
buckets that it overlaps. Percentiles become a coarse histogram: below p90 the logarithm of the latency is normally
distributed with the median p50, and above it with the slope from p90 to p99.
"""

import math

import numpy as np

from holdfast._errors import InvalidValue
from holdfast.metrics.histogram import PER_DOUBLING
from holdfast.telemetry.block import Floats, Histograms, Integers

DEFAULT_GROWTH = 1.1
LOWEST, HIGHEST = -160, 140
"""The range of our buckets, from a microsecond to two days. Latencies outside are moved to its ends."""
_MILLISECOND = math.log2(0.001) * PER_DOUBLING
"""The position of a millisecond on the scale of our buckets, where 0 is a second and 8 are two seconds."""
_MAX_POINTS = 32
"""With more requests than this, percentiles are converted bucket by bucket, otherwise request by request."""
_Z90, _Z99 = 1.2815515655446004, 2.3263478740408408
"""The percentiles of the normal distribution."""
_WIDEST = 3.0
"""Standard deviations from the median beyond which no latency is assumed."""
_TABLE_Z = np.linspace(-4, 4, 1601)
_TABLE_P = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in _TABLE_Z])


def build_empty(rows: int) -> Histograms:
    """Return empty histograms."""
    none = np.zeros(0, np.int64)
    return _build(rows, none, none, none)


def spread_histograms(rows: int, owners: Integers, buckets: Floats, counts: Floats, growths: Floats) -> Histograms:
    """Return histograms with our buckets.

    The entries have the row that they belong to, their bucket, a count, and the growth of the buckets. Bucket `i`
    holds latencies of growth^i up to growth^(i+1) milliseconds. Raise InvalidValue if a number makes no sense.
    """
    whole = np.rint(buckets)
    if not (np.all(np.isfinite(whole)) and np.all(np.abs(whole) < 1e6) and np.all(whole == buckets)):
        raise InvalidValue("histogram: expected whole numbers as buckets")
    if not (np.all(counts >= 0) and np.all(counts < 2**31)):
        raise InvalidValue("histogram: expected counts of 0 or more")
    if not (np.all(growths > 1) and np.all(growths <= 1000)):
        raise InvalidValue("growth of a histogram: expected more than 1, such as 1.1")
    kept = counts > 0
    width = np.log2(growths[kept]) * PER_DOUBLING
    begin = whole[kept] * width + _MILLISECOND
    low, high = np.clip(begin, LOWEST, HIGHEST), np.clip(begin + width, LOWEST, HIGHEST)
    values, owner = np.rint(counts[kept]), owners[kept]
    first = np.floor(low).astype(np.int64)
    last = np.maximum(np.ceil(high).astype(np.int64) - 1, first)
    entries, found = _enumerate(first, last)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = 1 / (high - low)
    share = np.where(found >= last[entries], 1.0, (found + 1 - low[entries]) * scale[entries])
    return _build(rows, owner[entries], found, _difference(np.floor(values[entries] * share + 0.5), entries))


def convert_percentiles(successes: Integers, p50: Floats, p90: Floats, p99: Floats) -> Histograms:
    """Return a coarse histogram for each row, from percentiles in milliseconds. NaN means unknown.

    Raise InvalidValue if a percentile is negative, or smaller than a lower one.
    """
    known = (successes > 0) & ~(np.isnan(p50) & np.isnan(p90) & np.isnan(p99))
    given = [np.maximum(each[known], 0.0) for each in (p50, p90, p99)]
    if any(np.any(each[known] < 0) or np.any(np.isinf(each[known])) for each in (p50, p90, p99)):
        raise InvalidValue("percentiles: expected milliseconds, 0 or more")
    middle = np.where(np.isnan(given[0]), np.where(np.isnan(given[1]), given[2], given[1]), given[0])
    upper = np.where(np.isnan(given[1]), middle, given[1])
    top = np.where(np.isnan(given[2]), upper, given[2])
    # Some recorders interpolate percentiles of few requests: a little disorder is their rounding.
    if np.any(upper < middle * 0.99) or np.any(top < upper * 0.99):
        raise InvalidValue("percentiles: expected p50_ms <= p90_ms <= p99_ms")
    with np.errstate(divide="ignore"):
        center, high, highest = (
            np.clip(np.log2(each) * PER_DOUBLING + _MILLISECOND, LOWEST, HIGHEST) for each in (middle, upper, top)
        )
    slope, tail = np.maximum(high - center, 0) / _Z90, np.maximum(highest - high, 0) / (_Z99 - _Z90)
    owners, values = np.flatnonzero(known), successes[known].astype(np.int64)
    few = values <= _MAX_POINTS
    parts = [
        _place_requests(owners[few], values[few], center[few], slope[few], tail[few]),
        _fill_buckets(owners[~few], values[~few], center[~few], slope[~few], tail[~few]),
    ]
    owner, buckets, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _build(len(successes), owner, buckets, counts)


def _place_requests(
    owners: Integers, values: Integers, center: Floats, slope: Floats, tail: Floats
) -> tuple[Integers, Integers, Integers]:
    """Return an entry for each request: the first of `n` is at the quantile 0.5 / n, and so on."""
    entries, order = _enumerate(np.zeros_like(values), values - 1)
    z = _POINTS[values[entries], order]
    position = center[entries] + slope[entries] * np.minimum(z, _Z90) + tail[entries] * np.maximum(z - _Z90, 0)
    return owners[entries], np.ceil(position).astype(np.int64) - 1, np.ones(len(entries), np.int64)


def _fill_buckets(
    owners: Integers, values: Integers, center: Floats, slope: Floats, tail: Floats
) -> tuple[Integers, Integers, Integers]:
    """Return an entry for each bucket, with the share of the requests that the distribution has in it."""
    top = center + slope * _Z90
    first = np.floor(center - _WIDEST * slope).astype(np.int64)
    last = np.maximum(np.ceil(top + (_WIDEST - _Z90) * tail).astype(np.int64) - 1, first)
    entries, found = _enumerate(first, last)
    edge = found + 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        below = (edge - center[entries]) / slope[entries]
        above = _Z90 + (edge - top[entries]) / tail[entries]
    z = np.nan_to_num(np.where(edge <= top[entries], below, above), nan=_WIDEST, posinf=_WIDEST, neginf=-_WIDEST)
    share = np.where(found >= last[entries], 1.0, np.interp(z, _TABLE_Z, _TABLE_P))
    return owners[entries], found, _difference(np.floor(values[entries] * share + 0.5), entries)


def _enumerate(first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """Return, for each entry, its index repeated for each number from `first` to `last`, and that number."""
    lengths = last - first + 1
    ends = np.cumsum(lengths)
    entries = np.repeat(np.arange(len(lengths)), lengths)
    return entries, np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths - first, lengths)


def _difference(totals: Floats, entries: Integers) -> Integers:
    """Return the counts of running totals, which begin again with every entry."""
    counts = np.diff(totals, prepend=0.0)
    begins = np.flatnonzero(np.diff(entries, prepend=-1))
    counts[begins] = totals[begins]
    return counts.astype(np.int64)


def _build(rows: int, owners: Integers, buckets: Integers, counts: Integers) -> Histograms:
    kept = counts > 0
    width = HIGHEST - LOWEST + 1
    cells = owners[kept] * width + (np.clip(buckets[kept], LOWEST, HIGHEST) - LOWEST)
    values = counts[kept]
    if np.any(np.diff(cells) < 0):
        order = np.argsort(cells, kind="stable")
        cells, values = cells[order], values[order]
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    values = np.add.reduceat(values, begins) if len(begins) else values
    owner, found = np.divmod(cells[begins], width)
    found += LOWEST
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=rows), out=offsets[1:])
    sums = np.bincount(owner, values * np.exp2((found + 0.5) / PER_DOUBLING), rows).astype(np.float64)
    minima, maxima = np.full(rows, np.inf, np.float32), np.full(rows, -np.inf, np.float32)
    filled = np.flatnonzero(np.diff(offsets))
    minima[filled] = np.exp2(found[offsets[filled]] / PER_DOUBLING)
    maxima[filled] = np.exp2((found[offsets[filled + 1] - 1] + 1) / PER_DOUBLING)
    return Histograms(
        offsets, found.astype(np.int16), values.astype(np.int32), np.zeros(rows, np.int32), sums, minima, maxima
    )


def _build_points() -> Floats:
    """Return the normal quantiles (k + 0.5) / n, by n and k."""
    points = np.zeros((_MAX_POINTS + 1, _MAX_POINTS))
    for number in range(1, _MAX_POINTS + 1):
        points[number, :number] = np.interp((np.arange(number) + 0.5) / number, _TABLE_P, _TABLE_Z)
    return points


_POINTS = _build_points()
