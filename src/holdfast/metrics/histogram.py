"""A histogram whose buckets grow by a constant factor, so that histograms can be merged. Pure.

The buckets are those of OpenTelemetry's exponential histogram at scale 3, and of Prometheus' native histogram with
schema 3: bucket `i` holds values above 2^(i/8) and up to 2^((i+1)/8). A quantile is off by at most 4.5 %.
https://opentelemetry.io/docs/specs/otel/metrics/data-model/#exponentialhistogram
"""

from collections.abc import Iterable, Sequence
from math import ceil, log2

import msgspec

PER_DOUBLING = 8
"""Number of buckets between a value and its double: each is 9 % wide."""
SMALLEST = 2.0**-20
"""Values at or below this, about a microsecond, are counted as zero."""


class Histogram(msgspec.Struct, gc=False):
    """Counts of values by size. msgspec can encode it. Not thread-safe."""

    buckets: dict[int, int] = {}
    """Number of values in each non-empty bucket, by index."""
    zeros: int = 0
    """Number of values up to `SMALLEST`."""
    count: int = 0
    sum: float = 0.0
    min: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> "Histogram":
        histogram = cls()
        for value in values:
            histogram.add(value)
        return histogram

    def add(self, value: float, count: int = 1) -> None:
        """Count `value`, which must be finite, `count` times."""
        if value > SMALLEST:
            index = ceil(log2(value) * PER_DOUBLING) - 1
            try:
                self.buckets[index] += count
            except KeyError:
                self.buckets[index] = count
        else:
            self.zeros += count
        if not self.count:
            self.min = self.max = value
        elif value > self.max:
            self.max = value
        elif value < self.min:
            self.min = value
        self.count += count
        self.sum += value * count

    def merge(self, other: "Histogram") -> None:
        if not other.count:
            return
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count
        self.min = min(self.min, other.min) if self.count else other.min
        self.max = max(self.max, other.max) if self.count else other.max
        self.zeros += other.zeros
        self.count += other.count
        self.sum += other.sum

    def quantile(self, q: float) -> float | None:
        """Return the `q`-quantile, 0.5 for the median; None if there are no values."""
        return self.quantiles([q])[0] if self.count else None

    def quantiles(self, ranks: Sequence[float]) -> list[float]:
        """Return several quantiles in one pass. `ranks` must be sorted, and there must be at least one value."""
        found: list[float] = []
        seen, value = self.zeros, SMALLEST
        buckets = iter(sorted(self.buckets.items()))
        for q in ranks:
            wanted = min(max(1, ceil(q * self.count)), self.count)
            while seen < wanted:
                index, inside = next(buckets)
                seen += inside
                value = 2.0 ** ((index + 0.5) / PER_DOUBLING)
            found.append(min(max(value, self.min), self.max))  # the bucket's middle may lie outside of all values
        return found

    def cumulative(self, edges: Sequence[float]) -> list[int]:
        """Return, for each edge, the number of values up to it. Exact if the edge is a power of two."""
        indices = [round(log2(edge) * PER_DOUBLING) for edge in edges]
        return [self.zeros + sum(count for index, count in self.buckets.items() if index < end) for end in indices]
