"""Durations as counts in buckets at most 3 % wide, in 8 to 16 KB for any number of samples. Pure."""

import math
from array import array
from collections.abc import Iterable, Iterator

MIN_EXPONENT = -20
"""Power of two of the first bucket."""
MIN_SECONDS = math.ldexp(0.5, MIN_EXPONENT)
"""Half a microsecond. The first bucket also counts shorter durations."""
OCTAVES = 30
"""Up to 512 seconds. The last bucket also counts longer durations."""
BUCKETS_PER_OCTAVE = 32
"""Buckets of equal width in an octave: the widest is 1/32 of its lower edge."""
LAST_BUCKET = OCTAVES * BUCKETS_PER_OCTAVE - 1
EMPTY_COUNTS = bytes(4 * OCTAVES * BUCKETS_PER_OCTAVE)
TIMED_OUT = math.inf
"""The sample of an attempt that its own timeout ended."""


def censored_at(seconds: float) -> float:
    """Return the sample of an attempt that a deadline ended after `seconds`: its latency is longer. Stored negated."""
    return -seconds


class _Window:
    """The counts between two rotations."""

    __slots__ = ("censored", "ended", "timed_out", "total")

    def __init__(self) -> None:
        self.ended = array("I", EMPTY_COUNTS)
        self.censored: array[int] | None = None
        """Counts of `censored_at` samples; made with the first one."""
        self.total = 0
        self.timed_out = 0


class Histogram:
    """Counts of durations in two windows: the current one and the one before it. Not thread-safe."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current, self._previous = _Window(), _Window()

    @property
    def total(self) -> int:
        """Samples of every kind."""
        return self._current.total + self._previous.total

    @property
    def timed_out(self) -> int:
        """Samples that are TIMED_OUT."""
        return self._current.timed_out + self._previous.timed_out

    def add(self, samples: Iterable[float]) -> None:
        """Count samples: durations in seconds, TIMED_OUT, or values of `censored_at`."""
        now = self._current
        ended = now.ended
        frexp = math.frexp
        for seconds in samples:
            now.total += 1
            if seconds == TIMED_OUT:
                now.timed_out += 1
                continue
            counts = ended
            if seconds < 0:  # made by `censored_at`
                counts = now.censored = now.censored or array("I", EMPTY_COUNTS)
            fraction, exponent = frexp(max(abs(seconds), MIN_SECONDS))
            bucket = (exponent - MIN_EXPONENT) * BUCKETS_PER_OCTAVE + int((fraction - 0.5) * 2 * BUCKETS_PER_OCTAVE)
            counts[min(bucket, LAST_BUCKET)] += 1

    def rotate(self) -> None:
        """Begin a new window. The current one becomes the previous one, which is dropped."""
        self._current, self._previous = _Window(), self._current

    def clear(self) -> None:
        """Drop all samples."""
        self._current, self._previous = _Window(), _Window()

    def exceeded_by(self, share: float) -> float:
        """Return the duration in seconds that this share of the samples exceeds; infinity if no sample shows it.

        `exceeded_by(0.001)` is the 99.9th percentile. Censored samples count up to the time at which they ended: the
        Kaplan-Meier estimator (https://doi.org/10.1080/01621459.1958.10501452). Samples are taken to be spread evenly
        within a bucket.
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
    def share_above_longest(self) -> float:
        """The estimated share of samples above the longest one that ended; 0 if no sample is TIMED_OUT."""
        if not self.timed_out:
            return 0.0
        share = 1.0
        for _, share in self._survival():  # noqa: B007 - only the last value is used
            pass
        return share

    def _survival(self) -> Iterator[tuple[int, float]]:
        """Yield each bucket in which samples ended, with the share of samples that took longer."""
        left = float(self.total)  # samples that reached this bucket
        share = 1.0
        now, before = self._current, self._previous
        for bucket in range(LAST_BUCKET + 1):
            ended = now.ended[bucket] + before.ended[bucket]
            if ended:
                share *= 1 - ended / left
                left -= ended
                yield bucket, share
            if now.censored is not None:
                left -= now.censored[bucket]
            if before.censored is not None:
                left -= before.censored[bucket]
