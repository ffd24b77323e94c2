"""A rate limit with a burst, stored as one number. Pure.

The generic cell rate algorithm (ITU-T I.371): instead of a token count and its time, store the time at which the bucket
will be full again. A full bucket needs no row, no timer and no clean-up. A burst below 1 counts as 1.
"""

import math

TOLERANCE = 1e-6
"""Seconds by which a token may come early: times since the epoch are exact to a quarter of that, and stores round."""
MAX_CLOCK_DIFFERENCE = 1.0
"""Seconds by which clocks may differ before an impossibly empty bucket counts as stale."""
_ROUNDING = 1e-9
"""The part of a token that may be missing: sums of fractions are not exact."""


def take(full_at: float, now: float, wanted: int, rate: float, burst: float) -> tuple[int, float]:
    """Take up to `wanted` tokens. Return how many were taken, and when the bucket will be full again."""
    granted = min(wanted, count_available(full_at, now, rate, burst))
    return granted, spend(full_at, now, granted, rate, burst)


def count_available(full_at: float, now: float, rate: float, burst: float) -> int:
    """Return the number of whole tokens that are available now."""
    if rate <= 0:
        return 0
    count = max(0, math.floor(_tokens(full_at, now, rate, burst) + _ROUNDING))
    # Times are rounded: if a token is left when these are spent, it is available, too, and its caller need not wait.
    return count + (_tokens(spend(full_at, now, count, rate, burst), now, rate, burst) + _ROUNDING >= 1)


def seconds_until_token(full_at: float, now: float, rate: float, burst: float) -> float:
    """Return the seconds until one token is available, or infinity if the rate is 0."""
    return math.inf if rate <= 0 else max(0.0, (1 - _tokens(full_at, now, rate, burst)) / rate)


def spend(full_at: float, now: float, count: int, rate: float, burst: float) -> float:
    """Return when the bucket will be full again after `count` available tokens are taken."""
    if not count:
        return full_at
    return min(max(full_at, now) + count / rate, now + max(1.0, burst) / rate)


def reserve(full_at: float, now: float, count: int, rate: float, burst: float) -> tuple[list[float], float]:
    """Reserve `count` tokens. Return the seconds until each is available, and when the bucket will be full again."""
    begin = max(full_at, now)
    first = begin - now - (max(1.0, burst) - 1) / rate
    delays = [first + number / rate for number in range(count)]
    return [delay if delay > TOLERANCE else 0.0 for delay in delays], begin + count / rate if count else full_at


def _tokens(full_at: float, now: float, rate: float, burst: float) -> float:
    capacity = max(1.0, burst)
    if full_at - now > capacity / rate + MAX_CLOCK_DIFFERENCE:
        # It cannot be that empty: its rate was lower when it was emptied, or the clock was set back since. Do not wait
        # for an obsolete limit: grant one token, and `spend` then leaves the bucket as empty as it can be.
        return 1.0
    early = min(TOLERANCE, 0.5 / rate)  # less than a token, or a high rate would not be limited
    return capacity - (max(0.0, full_at - now) - early) * rate
