"""The order in which shards are assigned: class by class, so that load stays even, and secret. Pure.

The secret order is a Feistel network, which permutes numbers by mixing their two halves in rounds, here by tables. It
works on numbers of an even number of bits. A number outside the range goes through it again until it is inside ("cycle
walking": Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Design

ROUNDS = 4
"""Four rounds give a strong pseudorandom permutation (Luby and Rackoff, 1988)."""
MAX_PERMUTATION_SIZE = 1 << 32
"""Two halves of 16 bits: four tables of at most 128 KB."""


class Permutation:
    """A permutation of 0 to `size` - 1, chosen by a key. Immutable."""

    look_up: Callable[[int], int]
    """Return the number at an index from 0 to `size` - 1, which is not checked."""

    def __init__(self, size: int, key: bytes) -> None:
        if not 1 <= size <= MAX_PERMUTATION_SIZE:
            raise InvalidValue(f"a permutation of {size}: expected 1 to {MAX_PERMUTATION_SIZE}")
        self.size = size
        self.half = max(1, ((size - 1).bit_length() + 1) // 2)
        self.tables = tuple(_build_table(key, number, self.half) for number in range(ROUNDS))
        self.look_up = _build_network(size, self.half, self.tables)


def _build_network(size: int, half: int, tables: Sequence[Sequence[int]]) -> Callable[[int], int]:
    first, second, third, fourth = tables
    mask = (1 << half) - 1

    def look_up(number: int) -> int:
        while True:
            left, right = number >> half, number & mask
            left ^= first[right]
            right ^= second[left]
            left ^= third[right]
            right ^= fourth[left]
            number = left << half | right
            if number < size:
                return number

    return look_up


def _build_table(key: bytes, number: int, bits: int) -> Sequence[int]:
    stream = hashlib.shake_256(b"%d:%b" % (number, key)).digest(2 << bits)
    mask = (1 << bits) - 1
    return [value & mask for value in struct.unpack(f"<{1 << bits}H", stream)]


CLASS_OFFSETS = 4096
"""Number of classes with a start position of their own; later classes reuse these positions."""


class SegmentOrder(NamedTuple):
    """The order of one segment of a design."""

    first: int
    class_size: int
    classes: Permutation
    """The order in which classes are filled."""
    offsets: Sequence[int]
    """The positions in a class at which filling begins."""
    locate: Callable[[int], tuple[int, int]]
    """Return the class of a tenant and its position there, by the tenant's number within the segment."""


class ShardOrder:
    """A one-to-one mapping of tenant numbers to shard numbers.

    Tenants with consecutive numbers fill one class before the next. The key decides which class is next, and at which
    position filling begins. When a design is doubled, tenants keep their shards.
    """

    def __init__(self, design: Design, key: bytes) -> None:
        self.segments = design.segments
        self.segment_starts = [segment.first for segment in self.segments]
        self._key = key
        self._segment_orders: dict[int, SegmentOrder] = {}

    def segment_order(self, number: int) -> SegmentOrder:
        """Return the order of a segment, built at first use: a doubled design may have hundreds of segments."""
        made = self._segment_orders.get(number)
        if made is None:
            segment, key = self.segments[number], b"%d:%b" % (number, self._key)
            classes = Permutation(min(segment.classes, MAX_PERMUTATION_SIZE), key)
            offsets = _build_offsets(segment.class_size, key)
            locate = _build_locate(segment.class_size, classes.look_up, offsets)
            self._segment_orders[number] = made = SegmentOrder(
                segment.first, segment.class_size, classes, offsets, locate
            )
        return made

    def __getitem__(self, number: int) -> int:
        """Return the shard number of a tenant number."""
        part = self.segment_order(bisect_right(self.segment_starts, number) - 1)
        index, position = part.locate(number - part.first)
        return part.first + index * part.class_size + position


def _build_locate(
    class_size: int, look_up: Callable[[int], int], offsets: Sequence[int]
) -> Callable[[int], tuple[int, int]]:
    def locate(number: int) -> tuple[int, int]:
        index, position = divmod(number, class_size)
        if index < MAX_PERMUTATION_SIZE:  # classes past 2^32 are not permuted
            index = look_up(index)
        return index, (position + offsets[index % CLASS_OFFSETS]) % class_size

    return locate


def _build_offsets(class_size: int, key: bytes) -> Sequence[int]:
    """Return start positions in classes that cannot be guessed without the key."""
    stream = hashlib.shake_256(b"turns:%b" % key).digest(8 * CLASS_OFFSETS)
    return [value % class_size for value in struct.unpack(f"<{CLASS_OFFSETS}Q", stream)]
