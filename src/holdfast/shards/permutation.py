"""A keyed order of 0 to n - 1: whoever does not have the key cannot tell what comes next to what. Pure.

A Feistel network over two halves, with tables for its rounds, on the next square that holds n; what falls outside is
sent through again until it does not ("cycle walking": Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
"""

import hashlib
from collections.abc import Sequence

from holdfast._errors import InvalidValue

ROUNDS = 4
"""Luby and Rackoff (1988): four rounds make what cannot be told from chance, even by who may ask both ways."""
LARGEST = 1 << 32
"""Halves of 16 bits: four tables of 128 KB at the most."""


class Permutation:
    """One of the orders of 0 to `size` - 1, chosen by a key. Immutable; both ways take the same time."""

    __slots__ = ("_mask", "half", "size", "tables")

    def __init__(self, size: int, key: bytes) -> None:
        if not 1 <= size <= LARGEST:
            raise InvalidValue(f"a permutation of {size}: expected 1 to {LARGEST}")
        self.size = size
        self.half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self.half) - 1
        self.tables = tuple(_table(key, number, self.half) for number in range(ROUNDS))

    def __getitem__(self, number: int) -> int:
        """What stands at a place."""
        if not 0 <= number < self.size:
            raise InvalidValue(f"place {number}: expected 0 to {self.size - 1}")
        return self.at(number)

    def at(self, number: int) -> int:
        """The same, for who knows that there is such a place."""
        half, mask, size = self.half, self._mask, self.size
        first, second, third, fourth = self.tables
        while True:
            left, right = number >> half, number & mask
            left ^= first[right]
            right ^= second[left]
            left ^= third[right]
            right ^= fourth[left]
            number = left << half | right
            if number < size:
                return number

    def place_of(self, number: int) -> int:
        """At which place it stands."""
        if not 0 <= number < self.size:
            raise InvalidValue(f"number {number}: expected 0 to {self.size - 1}")
        first, second, third, fourth = self.tables
        while True:
            left, right = number >> self.half, number & self._mask
            right ^= fourth[left]
            left ^= third[right]
            right ^= second[left]
            left ^= first[right]
            number = left << self.half | right
            if number < self.size:
                return number


def shuffled(count: int, key: bytes) -> Sequence[int]:
    """0 to `count` - 1 in an order that the key chooses, all at once."""
    digest = hashlib.blake2b(key=key[:64], digest_size=16)

    def rank(number: int) -> bytes:
        one = digest.copy()
        one.update(number.to_bytes(8))
        return one.digest()

    return tuple(sorted(range(count), key=rank))


def _table(key: bytes, number: int, bits: int) -> Sequence[int]:
    stream = hashlib.shake_256(b"%d:%b" % (number, key)).digest(2 << bits)
    mask = (1 << bits) - 1
    return (
        memoryview(stream).cast("H").tolist()
        if bits == 16
        else [value & mask for value in memoryview(stream).cast("H")]
    )
