"""How long things took, in 8 KB whatever their number: counts in buckets that are 3 % wide or less. Pure."""

import math
from array import array
from collections.abc import Iterable

SHORTEST_EXPONENT = -20
"""Of two, for the first bucket."""
SHORTEST = math.ldexp(0.5, SHORTEST_EXPONENT)
"""Half a microsecond; what took less is counted there."""
OCTAVES = 30
"""Up to 512 seconds; what took longer is counted there."""
STEPS = 32
"""Buckets in an octave, of equal width: the widest is 1/32 of its lower edge."""
LAST = OCTAVES * STEPS - 1
EMPTY = bytes(4 * OCTAVES * STEPS)


class Histogram:
    """Counts of durations in two windows: this one and the one before it. Not thread-safe."""

    __slots__ = ("_ended", "_ended_before", "_now", "_unbounded", "_unbounded_before", "_window_before")

    def __init__(self) -> None:
        self._now, self._window_before = array("I", EMPTY), array("I", EMPTY)
        self._ended = self._ended_before = self._unbounded = self._unbounded_before = 0

    @property
    def total(self) -> int:
        """All that was counted, those without a bound as well."""
        return self._ended + self._ended_before + self.unbounded

    @property
    def unbounded(self) -> int:
        """Those that had not ended when they were given up."""
        return self._unbounded + self._unbounded_before

    def add(self, samples: Iterable[float]) -> None:
        """Count durations in seconds; infinity is one that had not ended."""
        counts = self._now
        frexp = math.frexp
        for seconds in samples:
            if seconds == math.inf:
                self._unbounded += 1
                continue
            fraction, exponent = frexp(max(seconds, SHORTEST))
            place = (exponent - SHORTEST_EXPONENT) * STEPS + int((fraction - 0.5) * 2 * STEPS)
            counts[min(place, LAST)] += 1
            self._ended += 1

    def turn(self) -> None:
        """Begin a new window, and forget the one before this."""
        self._window_before, self._now = self._now, array("I", EMPTY)
        self._ended_before, self._ended = self._ended, 0
        self._unbounded_before, self._unbounded = self._unbounded, 0

    def clear(self) -> None:
        """Forget everything."""
        self.turn()
        self.turn()

    def above(self, share: float) -> float:
        """The duration that this share of the samples exceeds; infinity if that many had not ended, or none counted.

        `above(0.001)` is the 99.9th percentile. Within a bucket samples are taken to be spread evenly.
        """
        left = self.total * share - self.unbounded
        if left <= 0:
            return math.inf
        for place in range(LAST, -1, -1):
            count = self._now[place] + self._window_before[place]
            if count and count >= left:
                lower, upper = _edges(place)
                return upper - (upper - lower) * left / count
            left -= count
        return SHORTEST


def _edges(place: int) -> tuple[float, float]:
    exponent, step = divmod(place, STEPS)
    whole = math.ldexp(1.0, exponent + SHORTEST_EXPONENT - 1)
    return whole * (1 + step / STEPS), whole * (1 + (step + 1) / STEPS)
