"""Shards of four workers, any two with at most two in common: a Steiner quadruple system. Pure.

A Steiner quadruple system is a set of fours in which every three workers are together exactly once. Workers are numbers
of n bits here, and four are a shard if their exclusive or is zero: three give the fourth. No design with this overlap
has more shards (https://en.wikipedia.org/wiki/Steiner_system, the Boolean case): 2048 workers give 357,389,824.

The four workers of a shard are w, w ^ u, w ^ v and w ^ u ^ v: a plane through 0, spanned by u and v, and moved by w.
Moves of one plane are disjoint and cover all workers: they are a class. When the workers are doubled, existing shards
stay. After them come copies of them among the new workers, then shards with two old and two new workers.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment

MAX_BITS = 20
"""A million workers, so that shard numbers stay far below 64 bits."""


class Quadruples:
    """Shards of four of 2^bits workers, of which any two share at most two. Doubled from 2^start_bits workers."""

    planes_before: Sequence[int]
    """Number of planes through 0 before those of each pair of pivots."""
    pivots: Sequence[tuple[int, int]]
    """The highest bits of u and v."""

    size = 4
    overlap = 2

    def __init__(self, bits: int, start_bits: int | None = None) -> None:
        start = bits if start_bits is None else start_bits
        if not 2 <= start <= bits <= MAX_BITS:
            raise InvalidValue(f"quadruples of 2^{bits} workers, doubled from 2^{start}: expected 2 to {MAX_BITS} bits")
        self.bits = bits
        self.start_bits = start
        self.workers = 1 << bits
        self.capacity = count_quadruples(bits)
        self.planes_before, self.pivots = _planes(bits)

    @property
    def segments(self) -> Sequence[Segment]:
        found = [Segment(0, 1 << (self.start_bits - 2), count_quadruples(self.start_bits) >> (self.start_bits - 2))]
        for half in range(self.start_bits, self.bits):
            found.append(Segment(found[-1].end, 1 << (half - 2), count_quadruples(half) >> (half - 2)))
            found.append(Segment(found[-1].end, 1 << (half - 1), ((1 << half) - 1) << (half - 1)))
        return tuple(found)

    def double(self) -> "Quadruples":
        """Return the design with twice the workers: the same shards at the same numbers, and new ones."""
        return Quadruples(self.bits + 1, self.start_bits)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        for half in range(self.bits - 1, self.start_bits - 1, -1):  # a step per doubling: few
            known = count_quadruples(half)
            if number >= 2 * known:
                return _across(number - 2 * known, half)
            if number >= known:
                a, b, c, d = self.shard_in_class(*divmod(number - known, 1 << (half - 2)))
                moved = 1 << half
                return a + moved, b + moved, c + moved, d + moved
        return self.shard_in_class(*divmod(number, 1 << (self.start_bits - 2)))

    def shard_in_class(self, index: int, position: int) -> tuple[int, int, int, int]:
        """Return the shard at `position` in a class: w, w ^ u, w ^ v, w ^ u ^ v. u and v depend on the class only."""
        pair = bisect_right(self.planes_before, index) - 1
        high, low = self.pivots[pair]
        rest = index - self.planes_before[pair]
        u = rest >> low
        v = rest - (u << low) + (1 << low)
        # `_with_gap`, inlined for speed: adding the upper part of a number inserts a zero below that part.
        u += (u >> low << low) + (1 << high)
        w = position + (position >> low << low)
        w += w >> high << high
        moved = w ^ u
        return w, moved, w ^ v, moved ^ v


def count_quadruples(bits: int) -> int:
    """Return the number of shards of 2^bits workers."""
    points = 1 << bits
    return points * (points - 1) * (points - 2) // 24


def _planes(bits: int) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    """Return the number of planes through 0 before each pair of pivots, and the pairs.

    Each plane has exactly one basis with highest bits `high` of u and `low` of v in which u has not the bit `low`.
    """
    pivots = [(high, low) for high in range(bits) for low in range(high)]
    counts = [1 << (high - 1 + low) for high, low in pivots]
    return tuple(accumulate(counts, initial=0))[:-1], tuple(pivots)


def _with_gap(number: int, bit: int) -> int:
    """Return the number with a zero inserted at a bit; the higher bits move up."""
    return number + (number >> bit << bit)


def _across(number: int, bits: int) -> tuple[int, ...]:
    """Return a shard with two of the first 2^bits workers and two of the second: pairs with the same difference."""
    index, position = divmod(number, 1 << (bits - 1))
    difference, shift = divmod(index, 1 << (bits - 1))
    difference += 1
    top = difference.bit_length() - 1
    below, above = _with_gap(position, top), _with_gap(position ^ shift, top) + (1 << bits)
    return below, below ^ difference, above, above ^ difference
