"""Shards of four workers, any two with two in common at the most: the planes of a space over the field of two. Pure.

The workers are all numbers of n bits, and four of them are a shard if their exclusive or is zero. Three of a shard give
the fourth, so two shards that have three in common are the same: a Steiner quadruple system, which no other with this
overlap can exceed (https://en.wikipedia.org/wiki/Steiner_system, the Boolean case). 2048 workers give 357,389,824.

All four lie at w, w ^ u, w ^ v, w ^ u ^ v: a plane through 0, spanned by u and v, moved by w. Planes that are moves of
each other are disjoint and cover everything: a class. When the workers are doubled, the shards there are stay, and more
come after them: first the same shards once more among the new workers, then those with two old and two new.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Segment

MAX_BITS = 20
"""A million workers: past that, numbers of shards no longer fit where integers of 64 bits are stored."""


class Quadruples:
    """The design on 2^bits workers that began with 2^start_bits of them."""

    planes_before: Sequence[int]
    """How many planes through 0 come before those of each pair of pivots."""
    pivots: Sequence[tuple[int, int]]

    size = 4
    overlap = 2

    def __init__(self, bits: int, start_bits: int | None = None) -> None:
        start = bits if start_bits is None else start_bits
        if not 2 <= start <= bits <= MAX_BITS:
            raise InvalidValue(f"quadruples of 2^{bits} workers, at first 2^{start}: expected 2 to {MAX_BITS} bits")
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
        """The design on twice the workers, with the same shards at the same numbers, and more."""
        return Quadruples(self.bits + 1, self.start_bits)

    def shard(self, number: int) -> tuple[int, ...]:
        if not 0 <= number < self.capacity:
            raise InvalidValue(f"shard {number}: expected 0 to {self.capacity - 1}")
        for half in range(self.bits - 1, self.start_bits - 1, -1):  # a step for each doubling, of which there are few
            known = count_quadruples(half)
            if number >= 2 * known:
                return _across(number - 2 * known, half)
            if number >= known:
                a, b, c, d = self.shard_in_class(*divmod(number - known, 1 << (half - 2)))
                moved = 1 << half
                return a + moved, b + moved, c + moved, d + moved
        return self.shard_in_class(*divmod(number, 1 << (self.start_bits - 2)))

    def shard_in_class(self, index: int, w: int) -> tuple[int, int, int, int]:
        """The shard at a position of a class: one plane, moved."""
        pair = bisect_right(self.planes_before, index) - 1
        high, low = self.pivots[pair]
        rest = index - self.planes_before[pair]
        u = rest >> low
        v = rest - (u << low) + (1 << low)
        # A number plus its upper part is the number with a zero put in below that part: `_with_gap`, without the call.
        u += (u >> low << low) + (1 << high)
        w += w >> low << low
        w += w >> high << high
        moved = w ^ u
        return w, moved, w ^ v, moved ^ v


def count_quadruples(bits: int) -> int:
    """How many shards there are of 2^bits workers."""
    points = 1 << bits
    return points * (points - 1) * (points - 2) // 24


def _planes(bits: int) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    """The planes through 0, by the highest bits of u and v, and how many come before each such pair.

    Each plane has one basis in which v has no higher bit than `low`, u none than `high`, and u not the bit `low`.
    """
    pivots = [(high, low) for high in range(bits) for low in range(high)]
    counts = [1 << (high - 1 + low) for high, low in pivots]
    return tuple(accumulate(counts, initial=0))[:-1], tuple(pivots)


def _with_gap(number: int, bit: int) -> int:
    """The number with a zero put in at a bit; the higher ones move up."""
    return number + (number >> bit << bit)


def _across(number: int, bits: int) -> tuple[int, ...]:
    """A shard with two of the first 2^bits workers and two of the second: pairs with the same difference."""
    index, position = divmod(number, 1 << (bits - 1))
    difference, shift = divmod(index, 1 << (bits - 1))
    difference += 1
    top = difference.bit_length() - 1
    below, above = _with_gap(position, top), _with_gap(position ^ shift, top) + (1 << bits)
    return below, below ^ difference, above, above ^ difference
