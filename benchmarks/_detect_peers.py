"""Methods that people use to find a failing zone, for comparison. They work on all bins of a run at once.

Each method gets requests and faults by bin, operation and zone, and returns, by bin, the zone that it isolates: the
only zone with an alarm in any operation. -1 means that it isolates none. The first three evaluate whole minutes, and
want three in a row, as alarms usually do.

- `static`: 1 % of the requests fail, and less than that in all other zones.
- `share`: the zone has 70 % of the faults.
- `chi-squared`: the faults are spread unevenly (p <= 0.05), and the zone is the farthest from the mean.
- `exact test`: the zone has more of the faults of the last three minutes than its traffic and a margin of 1.25 explain,
  by a one-sided binomial test, with the first threshold of Benjamini and Hochberg for all operations and zones.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Zones = NDArray[np.int64]
Mask = NDArray[np.bool_]
Method = Callable[[Counts, Counts], Zones]

MINUTE_BINS, WINDOW_BINS = 6, 18
IN_A_ROW = 3
STATIC_RATE, SHARE, SIGNIFICANCE, MARGIN = 0.01, 0.7, 0.05, 1.25


def find_static(requests: Counts, faults: Counts) -> Zones:
    n, k = _sum_minutes(requests), _sum_minutes(faults)
    is_high = (n > 0) & (k >= STATIC_RATE * n)
    return _repeat_minutes(_hold(is_high & (is_high.sum(axis=2, keepdims=True) == 1)), len(requests))


def find_share(requests: Counts, faults: Counts) -> Zones:
    k = _sum_minutes(faults)
    total = k.sum(axis=2, keepdims=True)
    return _repeat_minutes(_hold((total > 0) & (k >= SHARE * total)), len(requests))


def find_chi_squared(requests: Counts, faults: Counts) -> Zones:
    k = _sum_minutes(faults).astype(np.float64)
    zones = k.shape[2]
    mean = k.mean(axis=2, keepdims=True)
    statistic = np.divide((k - mean) ** 2, mean, out=np.zeros_like(k), where=mean > 0).sum(axis=2, keepdims=True)
    distance = np.abs(k - mean)
    is_farthest = np.arange(zones) == distance.argmax(axis=2)[:, :, None]
    return _repeat_minutes(_hold((statistic >= _find_critical(zones - 1)) & is_farthest), len(requests))


def find_exact(requests: Counts, faults: Counts) -> Zones:
    n, k = _sum_window(requests), _sum_window(faults)
    all_n, all_k = n.sum(axis=2, keepdims=True), k.sum(axis=2, keepdims=True)
    raised = MARGIN * n
    chance = np.divide(raised, raised + (all_n - n), out=np.zeros(n.shape), where=all_n > 0)
    tests = n.shape[1] * n.shape[2]
    is_high = get_binomial_tail(k, np.broadcast_to(all_k, k.shape), chance) <= SIGNIFICANCE / tests
    return _choose(is_high)


METHODS: dict[str, Method] = {
    "static": find_static,
    "share": find_share,
    "chi-squared": find_chi_squared,
    "exact test": find_exact,
}


def get_binomial_tail(k: Counts, n: Counts, chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of `k` or more of `n`, by the continued fraction of the incomplete beta function."""
    tail = np.where(k <= 0, 1.0, 0.0)
    inside = (k > 0) & (k <= n) & (chance > 0)
    found_k, found_n, p = k[inside], n[inside], chance[inside]
    a, b = found_k.astype(np.float64), (found_n - found_k + 1).astype(np.float64)
    is_sure = p >= 1.0
    p = np.minimum(p, 1 - 1e-12)
    # The fraction converges quickly only below the mean; above it, the complement does.
    is_swapped = p > (a + 1) / (a + b + 2)
    x = np.where(is_swapped, 1 - p, p)
    first, second = np.where(is_swapped, b, a), np.where(is_swapped, a, b)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(n.max(initial=0)) + 2)))])
    size = a + b - 1  # the beta function of integers, from factorials
    beta = logs[(a - 1).astype(np.int64)] + logs[(b - 1).astype(np.int64)] - logs[size.astype(np.int64)]
    front = np.exp(first * np.log(x) + second * np.log1p(-x) - beta) / first
    part = front * _continue_fraction(first, second, x)
    tail[inside] = np.where(is_sure, 1.0, np.clip(np.where(is_swapped, 1 - part, part), 0.0, 1.0))
    return tail


def _continue_fraction(a: NDArray[np.float64], b: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate the fraction of the incomplete beta function by the method of Lentz."""
    tiny = 1e-300
    c = np.ones_like(x)
    d = 1 / _keep_away(1 - (a + b) * x / (a + 1), tiny)
    found = d.copy()
    for m in range(1, 200):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _keep_away(1 + step * d, tiny)
            c = _keep_away(1 + step / c, tiny)
            found = found * (c * d)
        if not found.size or float(np.abs(c * d - 1).max()) < 1e-9:
            break
    return found


def _keep_away(value: NDArray[np.float64], tiny: float) -> NDArray[np.float64]:
    return np.where(np.abs(value) < tiny, tiny, value)


def _find_critical(freedom: int) -> float:
    """Return the chi-squared statistic that has the probability SIGNIFICANCE, by bisection."""
    from holdfast.alarms.chi_squared import get_tail_probability

    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if get_tail_probability(middle, freedom) > SIGNIFICANCE else (low, middle)
    return high


def _sum_minutes(counts: Counts) -> Counts:
    minutes = len(counts) // MINUTE_BINS
    found: Counts = counts[: minutes * MINUTE_BINS].reshape(minutes, MINUTE_BINS, *counts.shape[1:]).sum(axis=1)
    return found


def _sum_window(counts: Counts) -> Counts:
    total = np.cumsum(counts, axis=0)
    total[WINDOW_BINS:] -= total[:-WINDOW_BINS].copy()
    return total


def _hold(alarm: Mask) -> Zones:
    """Return the isolated zone by minute: the alarm of the same operation and zone must last."""
    held = alarm.copy()
    for earlier in range(1, IN_A_ROW):
        held[earlier:] &= alarm[:-earlier]
        held[:earlier] = False
    return _choose(held)


def _choose(alarms: Mask) -> Zones:
    """Return the only zone with an alarm in any operation."""
    alarm = np.asarray(alarms.any(axis=1))
    return np.where(alarm.sum(axis=1) == 1, alarm.argmax(axis=1), -1)


def _repeat_minutes(zones: Zones, bins: int) -> Zones:
    """Return the zone by bin: the conclusion of a minute holds from its last bin to the one before the next."""
    found = np.full(bins, -1, np.int64)
    for minute, zone in enumerate(zones.tolist()):
        start = (minute + 1) * MINUTE_BINS - 1
        found[start : start + MINUTE_BINS] = zone
    return found


def count_alarms(zones: Zones) -> int:
    """Return how often a method began to isolate a zone."""
    before = np.concatenate([[-1], zones[:-1]])
    return int(((zones >= 0) & (zones != before)).sum())
