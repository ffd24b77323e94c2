"""In which order shards are handed out: class by class, so that load stays even, and by a secret. Pure.

The secret order is a Feistel network over two halves, with tables for its rounds, on the next square that holds n;
numbers that fall outside are sent through again until they do not ("cycle walking": Black and Rogaway, Ciphers with
Arbitrary Finite Domains, 2002).
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast._errors import InvalidValue
from holdfast.shards.designs.design import Design

ROUNDS = 4
"""Luby and Rackoff (1988): four rounds make what cannot be told from chance, even by who may ask both ways."""
MAX_PERMUTATION_SIZE = 1 << 32
"""Halves of 16 bits: four tables of 128 KB at the most."""


class Permutation:
    """One of the orders of 0 to `size` - 1, chosen by a key. Immutable."""

    look_up: Callable[[int], int]
    """Return the number at an index, which is not checked: it must be 0 to `size` - 1."""

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
"""Classes that begin at a position of their own; the next ones begin where these did."""


class SegmentOrder(NamedTuple):
    """The order of one segment of a design."""

    first: int
    class_size: int
    classes: Permutation
    """Which class is next."""
    offsets: Sequence[int]
    """Where in it one begins."""
    locate: Callable[[int], tuple[int, int]]
    """The class of a shard of this segment, and its position there, by the number of the shard in the segment."""


class ShardOrder:
    """From the number of a tenant to the number of a shard, one to one.

    Tenants of consecutive numbers fill a class before the next one is begun; the key decides which class is next, and
    where in it one begins. What a design keeps when it is doubled, its order keeps as well.
    """

    def __init__(self, design: Design, key: bytes) -> None:
        self.segments = design.segments
        self.segment_starts = [segment.first for segment in self.segments]
        self._key = key
        self._segment_orders: dict[int, SegmentOrder] = {}

    def segment_order(self, number: int) -> SegmentOrder:
        """The order of a segment, made when it is first asked for: a doubled design may have hundreds."""
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
        """The shard of a tenant."""
        part = self.segment_order(bisect_right(self.segment_starts, number) - 1)
        index, position = part.locate(number - part.first)
        return part.first + index * part.class_size + position


def _build_locate(
    class_size: int, look_up: Callable[[int], int], offsets: Sequence[int]
) -> Callable[[int], tuple[int, int]]:
    def locate(number: int) -> tuple[int, int]:
        index, position = divmod(number, class_size)
        if index < MAX_PERMUTATION_SIZE:  # past four thousand million classes they come as they are
            index = look_up(index)
        return index, (position + offsets[index % CLASS_OFFSETS]) % class_size

    return locate


def _build_offsets(class_size: int, key: bytes) -> Sequence[int]:
    """Where in a class one begins: enough different positions that nobody who has not the key can tell."""
    stream = hashlib.shake_256(b"turns:%b" % key).digest(8 * CLASS_OFFSETS)
    return [value % class_size for value in struct.unpack(f"<{CLASS_OFFSETS}Q", stream)]
