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
LARGEST = 1 << 32
"""Halves of 16 bits: four tables of 128 KB at the most."""


class Permutation:
    """One of the orders of 0 to `size` - 1, chosen by a key. Immutable."""

    at: Callable[[int], int]
    """Return the number at an index, which is not checked: it must be 0 to `size` - 1."""

    def __init__(self, size: int, key: bytes) -> None:
        if not 1 <= size <= LARGEST:
            raise InvalidValue(f"a permutation of {size}: expected 1 to {LARGEST}")
        self.size = size
        self.half = max(1, ((size - 1).bit_length() + 1) // 2)
        self.tables = tuple(_table(key, number, self.half) for number in range(ROUNDS))
        self.at = _network(size, self.half, self.tables)


def _network(size: int, half: int, tables: Sequence[Sequence[int]]) -> Callable[[int], int]:
    first, second, third, fourth = tables
    mask = (1 << half) - 1

    def at(number: int) -> int:
        while True:
            left, right = number >> half, number & mask
            left ^= first[right]
            right ^= second[left]
            left ^= third[right]
            right ^= fourth[left]
            number = left << half | right
            if number < size:
                return number

    return at


def _table(key: bytes, number: int, bits: int) -> Sequence[int]:
    stream = hashlib.shake_256(b"%d:%b" % (number, key)).digest(2 << bits)
    mask = (1 << bits) - 1
    return [value & mask for value in struct.unpack(f"<{1 << bits}H", stream)]


TURNS = 4096
"""Classes that begin at a place of their own; the next ones begin where these did."""


class Part(NamedTuple):
    """The order of one segment of a design."""

    first: int
    class_size: int
    classes: Permutation
    """Which class is next."""
    turns: Sequence[int]
    """Where in it one begins."""
    locate: Callable[[int], tuple[int, int]]
    """The class of a shard of this segment, and its place there, by the number of the shard in the segment."""


class Order:
    """From the number of a tenant to the number of a shard, one to one.

    Tenants of consecutive numbers fill a class before the next one is begun; the key decides which class is next, and
    where in it one begins. What a design keeps when it is doubled, its order keeps as well.
    """

    def __init__(self, design: Design, key: bytes) -> None:
        self.segments = design.segments
        self.firsts = [segment.first for segment in self.segments]
        self._key = key
        self._made: dict[int, Part] = {}

    def part(self, number: int) -> Part:
        """The order of a segment, made when it is first asked for: a doubled design may have hundreds."""
        made = self._made.get(number)
        if made is None:
            segment, key = self.segments[number], b"%d:%b" % (number, self._key)
            classes = Permutation(min(segment.classes, LARGEST), key)
            turns = _turns(segment.class_size, key)
            locate = _locating(segment.class_size, classes.at, turns)
            self._made[number] = made = Part(segment.first, segment.class_size, classes, turns, locate)
        return made

    def __getitem__(self, number: int) -> int:
        """The shard of a tenant."""
        part = self.part(bisect_right(self.firsts, number) - 1)
        index, place = part.locate(number - part.first)
        return part.first + index * part.class_size + place


def _locating(class_size: int, at: Callable[[int], int], turns: Sequence[int]) -> Callable[[int], tuple[int, int]]:
    def locate(number: int) -> tuple[int, int]:
        index, place = divmod(number, class_size)
        if index < LARGEST:  # past four thousand million classes they come as they are
            index = at(index)
        return index, (place + turns[index % TURNS]) % class_size

    return locate


def _turns(class_size: int, key: bytes) -> Sequence[int]:
    """Where in a class one begins: enough different places that nobody who has not the key can tell."""
    stream = hashlib.shake_256(b"turns:%b" % key).digest(8 * TURNS)
    return [value % class_size for value in struct.unpack(f"<{TURNS}Q", stream)]
