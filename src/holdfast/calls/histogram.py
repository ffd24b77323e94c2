"""How long things took, in 8 to 16 KB whatever their number: counts in buckets that are 3 % wide or less. Pure."""

import math
from array import array
from collections.abc import Iterable, Iterator

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


class _Window:
    """What was counted between two turns."""

    __slots__ = ("ended", "longer", "total", "unbounded")

    def __init__(self) -> None:
        self.ended = array("I", EMPTY)
        self.longer: array[int] | None = None
        """Those of which only is known that they took longer; made when there is one."""
        self.total = 0
        self.unbounded = 0


class Histogram:
    """Counts of durations in two windows: this one and the one before it. Not thread-safe."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now, self._before = _Window(), _Window()

    @property
    def total(self) -> int:
        """All that was counted, however it ended."""
        return self._now.total + self._before.total

    @property
    def unbounded(self) -> int:
        """Those that had not ended when they were given up."""
        return self._now.unbounded + self._before.unbounded

    def add(self, samples: Iterable[float]) -> None:
        """Count durations in seconds; infinity is one that had not ended, a negative one took longer than that."""
        now = self._now
        ended = now.ended
        frexp = math.frexp
        for seconds in samples:
            now.total += 1
            if seconds == math.inf:
                now.unbounded += 1
                continue
            counts = ended
            if seconds < 0:
                counts = now.longer = now.longer or array("I", EMPTY)
            fraction, exponent = frexp(max(abs(seconds), SHORTEST))
            place = (exponent - SHORTEST_EXPONENT) * STEPS + int((fraction - 0.5) * 2 * STEPS)
            counts[min(place, LAST)] += 1

    def turn(self) -> None:
        """Begin a new window, and forget the one before this."""
        self._now, self._before = _Window(), self._now

    def clear(self) -> None:
        """Forget everything."""
        self._now, self._before = _Window(), _Window()

    def above(self, share: float) -> float:
        """The duration that this share of the samples exceeds; infinity if that cannot be told, or is beyond all.

        `above(0.001)` is the 99.9th percentile. Samples that took longer than some time count until then: the estimate
        of Kaplan and Meier (https://doi.org/10.1080/01621459.1958.10501452). Within a bucket they are spread evenly.
        """
        before = 1.0
        for place, after in self._survival():
            if after <= share:
                octave, step = divmod(place, STEPS)
                within = max(0.0, before - share) / (before - after)
                return math.ldexp(1 + (step + within) / STEPS, octave + SHORTEST_EXPONENT - 1)
            before = after
        return math.inf

    @property
    def beyond(self) -> float:
        """The share of the samples that exceeds all that ended, as far as it was given up; 0 if nothing was."""
        if not self.unbounded:
            return 0.0
        share = 1.0
        for _, share in self._survival():  # noqa: B007 - the last one is wanted
            pass
        return share

    def _survival(self) -> Iterator[tuple[int, float]]:
        """For each bucket in which samples ended, the share that took longer."""
        left = float(self.total)  # those that took at least as long as this bucket
        share = 1.0
        now, before = self._now, self._before
        for place in range(LAST + 1):
            ended = now.ended[place] + before.ended[place]
            if ended:
                share *= 1 - ended / left
                left -= ended
                yield place, share
            if now.longer is not None:
                left -= now.longer[place]
            if before.longer is not None:
                left -= before.longer[place]
