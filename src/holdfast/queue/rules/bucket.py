"""A rate with a burst, kept as one number. Pure.

The generic cell rate algorithm (ITU-T I.371): instead of tokens and when they were counted, the moment at which the
bucket will be full again. A bucket that is full needs no row, no timer and no clean-up. A burst below 1 counts as 1.
"""

import math

TOLERANCE = 1e-6
"""Seconds by which a token may come early: times since the epoch are exact to a quarter of that, and stores round."""
MAX_CLOCK_DIFFERENCE = 1.0
"""Seconds by which clocks may differ before a bucket that is emptier than it can be counts as another one's."""


def take(full_at: float, now: float, wanted: int, rate: float, burst: float) -> tuple[int, float]:
    """How many of `wanted` there are tokens for, and when the bucket is full after those were taken."""
    granted = min(wanted, count_available(full_at, now, rate, burst))
    return granted, spend(full_at, now, granted, rate, burst)


def count_available(full_at: float, now: float, rate: float, burst: float) -> int:
    """Whole tokens that are there now."""
    return 0 if rate <= 0 else max(0, math.floor(_tokens(full_at, now, rate, burst) + 1e-9))


def seconds_until_token(full_at: float, now: float, rate: float, burst: float) -> float:
    """Seconds until there is one token; infinity: there will be none."""
    return math.inf if rate <= 0 else max(0.0, (1 - _tokens(full_at, now, rate, burst)) / rate)


def spend(full_at: float, now: float, count: int, rate: float, burst: float) -> float:
    """When the bucket is full after so many of the tokens that are there were taken."""
    if not count:
        return full_at
    return min(max(full_at, now) + count / rate, now + max(1.0, burst) / rate)


def reserve(full_at: float, now: float, count: int, rate: float, burst: float) -> tuple[list[float], float]:
    """In how many seconds each of so many tokens is there, and when the bucket is full after all of them."""
    begin = max(full_at, now)
    first = begin - now - (max(1.0, burst) - 1) / rate
    delays = [first + number / rate for number in range(count)]
    return [delay if delay > TOLERANCE else 0.0 for delay in delays], begin + count / rate if count else full_at


def _tokens(full_at: float, now: float, rate: float, burst: float) -> float:
    capacity = max(1.0, burst)
    if full_at - now > capacity / rate + MAX_CLOCK_DIFFERENCE:
        # It cannot be as empty as that: it was slower when it was emptied, or the clock was set back since. Nobody
        # should wait for the end of what holds no more. One token, and whoever takes it leaves it as empty as can be.
        return 1.0
    return capacity - max(0.0, full_at - now - TOLERANCE) * rate
