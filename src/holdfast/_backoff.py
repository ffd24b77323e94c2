"""How long to wait before a retry: capped exponential backoff, with jitter. Pure.

The four kinds of jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from holdfast._errors import InvalidValue

Chance = Callable[[], float]
"""A number in [0, 1), a new one each time."""

MAX_EXPONENT = 64
"""More doublings than any cap allows; without it a long-lived retry would overflow a float."""


class Jitter(StrEnum):
    """How much of a delay is left to chance."""

    FULL = "full"
    """Anything from nothing to the whole delay: the least work for the server."""
    EQUAL = "equal"
    """Half of the delay, and anything up to the other half."""
    DECORRELATED = "decorrelated"
    """From the base to three times the previous delay."""
    NONE = "none"
    """All clients that failed together come back together. For tests and comparisons."""


_FULL, _EQUAL, _DECORRELATED, _ = Jitter  # looked up once, as in `retry.py`


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A rule for delays; the default is what botocore has."""

    base: float = 0.05
    """Seconds; the delay before the first retry is at most this."""
    cap: float = 20.0
    """Seconds that no delay exceeds."""
    jitter: Jitter = Jitter.FULL

    def __post_init__(self) -> None:
        if not 0 <= self.base < math.inf:
            raise InvalidValue(f"backoff base {self.base}: expected seconds, 0 or more")
        if not self.base <= self.cap < math.inf:
            raise InvalidValue(f"backoff cap {self.cap}: expected seconds, at least the base of {self.base}")
        object.__setattr__(self, "jitter", Jitter(self.jitter))

    def delay(self, retry: int, previous: float, chance: Chance) -> float:
        """Seconds before retry number `retry`, counted from 1, when the one before it waited `previous` seconds."""
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
