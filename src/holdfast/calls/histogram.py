"""How long things took, in 8 to 16 KB whatever their number: counts in buckets that are 3 % wide or less. Pure."""

import math
from array import array
from collections.abc import Iterable, Iterator

MIN_EXPONENT = -20
"""Of two, for the first bucket."""
MIN_SECONDS = math.ldexp(0.5, MIN_EXPONENT)
"""Half a microsecond; what took less is counted there."""
OCTAVES = 30
"""Up to 512 seconds; what took longer is counted there."""
BUCKETS_PER_OCTAVE = 32
"""Buckets in an octave, of equal width: the widest is 1/32 of its lower edge."""
LAST_BUCKET = OCTAVES * BUCKETS_PER_OCTAVE - 1
EMPTY_COUNTS = bytes(4 * OCTAVES * BUCKETS_PER_OCTAVE)


class _Window:
    """What was counted between two turns."""

    __slots__ = ("ended", "lower_bounds", "total", "unfinished")

    def __init__(self) -> None:
        self.ended = array("I", EMPTY_COUNTS)
        self.lower_bounds: array[int] | None = None
        """Those of which only is known that they took longer; made when there is one."""
        self.total = 0
        self.unfinished = 0


class Histogram:
    """Counts of durations in two windows: this one and the one before it. Not thread-safe."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current, self._previous = _Window(), _Window()

    @property
    def total(self) -> int:
        """All that was counted, however it ended."""
        return self._current.total + self._previous.total

    @property
    def unfinished(self) -> int:
        """Those that had not ended when they were given up."""
        return self._current.unfinished + self._previous.unfinished

    def add(self, samples: Iterable[float]) -> None:
        """Count durations in seconds; infinity is one that had not ended, a negative one took longer than that."""
        now = self._current
        ended = now.ended
        frexp = math.frexp
        for seconds in samples:
            now.total += 1
            if seconds == math.inf:
                now.unfinished += 1
                continue
            counts = ended
            if seconds < 0:
                counts = now.lower_bounds = now.lower_bounds or array("I", EMPTY_COUNTS)
            fraction, exponent = frexp(max(abs(seconds), MIN_SECONDS))
            bucket = (exponent - MIN_EXPONENT) * BUCKETS_PER_OCTAVE + int((fraction - 0.5) * 2 * BUCKETS_PER_OCTAVE)
            counts[min(bucket, LAST_BUCKET)] += 1

    def rotate(self) -> None:
        """Begin a new window, and forget the one before this."""
        self._current, self._previous = _Window(), self._current

    def clear(self) -> None:
        """Forget everything."""
        self._current, self._previous = _Window(), _Window()

    def exceeded_by(self, share: float) -> float:
        """The duration that this share of the samples exceeds; infinity if that cannot be told, or is beyond all.

        `exceeded_by(0.001)` is the 99.9th percentile. Samples that took longer than some time count until then: the
        estimate of Kaplan and Meier (https://doi.org/10.1080/01621459.1958.10501452). Within a bucket they are spread
        evenly.
        """
        before = 1.0
        for bucket, after in self._survival():
            if after <= share:
                octave, step = divmod(bucket, BUCKETS_PER_OCTAVE)
                within = max(0.0, before - share) / (before - after)
                return math.ldexp(1 + (step + within) / BUCKETS_PER_OCTAVE, octave + MIN_EXPONENT - 1)
            before = after
        return math.inf

    @property
    def unfinished_share(self) -> float:
        """The share of the samples that exceeds all that ended, as far as it was given up; 0 if nothing was."""
        if not self.unfinished:
            return 0.0
        share = 1.0
        for _, share in self._survival():  # noqa: B007 - the last one is wanted
            pass
        return share

    def _survival(self) -> Iterator[tuple[int, float]]:
        """For each bucket in which samples ended, the share that took longer."""
        left = float(self.total)  # those that took at least as long as this bucket
        share = 1.0
        now, before = self._current, self._previous
        for bucket in range(LAST_BUCKET + 1):
            ended = now.ended[bucket] + before.ended[bucket]
            if ended:
                share *= 1 - ended / left
                left -= ended
                yield bucket, share
            if now.lower_bounds is not None:
                left -= now.lower_bounds[bucket]
            if before.lower_bounds is not None:
                left -= before.lower_bounds[bucket]
