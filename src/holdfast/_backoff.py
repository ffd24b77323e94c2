"""Delays before retries: capped exponential backoff with jitter. Pure.

The four kinds of jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from holdfast._errors import InvalidValue

Chance = Callable[[], float]
"""A random source: every call returns a new number in [0, 1)."""

MAX_EXPONENT = 64
"""More doublings than any cap allows. Without this limit, a long series of retries would overflow a float."""


class Jitter(StrEnum):
    """The part of a delay that is random."""

    FULL = "full"
    """Random between 0 and the whole delay: the least load for the server."""
    EQUAL = "equal"
    """Half of the delay, plus a random part of the other half."""
    DECORRELATED = "decorrelated"
    """Random between the base and three times the previous delay."""
    NONE = "none"
    """Not random: clients that failed together retry together. For tests and comparisons."""


_FULL, _EQUAL, _DECORRELATED, _ = Jitter  # looked up once, as in `retry.py`


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A rule for delays between attempts.

    The cap and the jitter are those of botocore. Its base is a second, in all released modes. It is shorter here,
    because a retry mostly goes to another host; the retry budget, and not the delay, protects an overloaded service.
    """

    base: float = 0.05
    """Maximum delay before the first retry, in seconds."""
    cap: float = 20.0
    """Maximum delay before any retry, in seconds."""
    jitter: Jitter = Jitter.FULL

    def __post_init__(self) -> None:
        if not 0 <= self.base < math.inf:
            raise InvalidValue(f"backoff base {self.base}: expected seconds, 0 or more")
        if not self.base <= self.cap < math.inf:
            raise InvalidValue(f"backoff cap {self.cap}: expected seconds, at least the base of {self.base}")
        object.__setattr__(self, "jitter", Jitter(self.jitter))

    def delay(self, retry: int, previous: float, chance: Chance) -> float:
        """Return the seconds to wait before a retry.

        `retry` counts from 1. `previous` is the delay before the previous retry, or 0. `chance` is a random source.
        """
        jitter = self.jitter
        if jitter is _DECORRELATED:
            longest = max(self.base, 3 * (previous or self.base))
            return min(self.cap, self.base + chance() * (longest - self.base))
        whole = math.ldexp(self.base, retry - 1 if retry <= MAX_EXPONENT else MAX_EXPONENT)
        if whole > self.cap:  # noqa: PLR1730 - `min` takes 80 ns
            whole = self.cap
        if jitter is _FULL:
            return chance() * whole
        if jitter is _EQUAL:
            return whole / 2 + chance() * whole / 2
        return whole
