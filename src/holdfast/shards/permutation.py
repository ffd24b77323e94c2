"""A keyed order of 0 to n - 1: whoever does not have the key cannot tell what comes next to what. Pure.

A Feistel network over two halves, with tables for its rounds, on the next square that holds n; what falls outside is
sent through again until it does not ("cycle walking": Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
"""

import hashlib
import struct
from collections.abc import Callable, Sequence

from holdfast._errors import InvalidValue

ROUNDS = 4
"""Luby and Rackoff (1988): four rounds make what cannot be told from chance, even by who may ask both ways."""
LARGEST = 1 << 32
"""Halves of 16 bits: four tables of 128 KB at the most."""


class Permutation:
    """One of the orders of 0 to `size` - 1, chosen by a key. Immutable."""

    __slots__ = ("at", "half", "size", "tables")

    at: Callable[[int], int]
    """What stands at a place, for whoever knows that there is such a place: it is not looked at."""

    def __init__(self, size: int, key: bytes) -> None:
        if not 1 <= size <= LARGEST:
            raise InvalidValue(f"a permutation of {size}: expected 1 to {LARGEST}")
        self.size = size
        self.half = max(1, ((size - 1).bit_length() + 1) // 2)
        self.tables = tuple(_table(key, number, self.half) for number in range(ROUNDS))
        self.at = _network(size, self.half, self.tables)

    def __getitem__(self, number: int) -> int:
        """What stands at a place."""
        if not 0 <= number < self.size:
            raise InvalidValue(f"place {number}: expected 0 to {self.size - 1}")
        return self.at(number)


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
