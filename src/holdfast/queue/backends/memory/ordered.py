"""A collection that is ordered by two numbers, with fast changes at every position. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

Kept = TypeVar("Kept")
Entry: TypeAlias = tuple[int, int, Kept]
"""The order key, the tie-breaker, and the value."""

CHUNK = 512
"""Entries per chunk: adding or removing one moves at most twice as many, whatever the size of the collection."""


class Ordered(Generic[Kept]):
    """Values ordered by two numbers. Each pair of numbers is unique. Not thread-safe."""

    __slots__ = ("_chunks", "_count")

    def __init__(self) -> None:
        self._chunks: list[list[Entry[Kept]]] = []  # none of them empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, first: int, second: int, kept: Kept) -> None:
        """Add a value."""
        entry = (first, second, kept)
        self._count += 1
        if not self._chunks:
            self._chunks.append([entry])
            return
        place = self._place((first, second))
        chunk = self._chunks[place]
        if chunk[-1][:2] < (first, second):
            chunk.append(entry)
        else:
            insort(chunk, entry)
        if len(chunk) > 2 * CHUNK:
            self._chunks[place : place + 1] = [chunk[:CHUNK], chunk[CHUNK:]]

    def remove(self, first: int, second: int) -> None:
        """Remove the value with these numbers, which must exist."""
        place = self._place((first, second))
        chunk = self._chunks[place]
        del chunk[_find(chunk, (first, second))]
        self._count -= 1
        if not chunk:
            del self._chunks[place]

    def between(self, least: int, most: int) -> Iterator[Kept]:
        """Yield the values whose first number is in the range. Do not change the collection meanwhile."""
        for _, _, kept in self._entries(least, most):
            yield kept

    def first(self, least: int = 0) -> int | None:
        """Return the lowest first number that is not below `least`, or None."""
        for first, _, _ in self._entries(least, None):
            return first
        return None

    def last(self) -> int | None:
        """Return the highest first number, or None if the collection is empty."""
        return self._chunks[-1][-1][0] if self._chunks else None

    def _entries(self, least: int, most: int | None) -> Iterator[Entry[Kept]]:
        if not self._chunks:
            return
        place = self._place((least,))
        begin = _find(self._chunks[place], (least,))
        while place < len(self._chunks):
            chunk = self._chunks[place]
            for at in range(begin, len(chunk)):
                if most is not None and chunk[at][0] > most:
                    return
                yield chunk[at]
            place, begin = place + 1, 0

    def _place(self, numbers: tuple[int, ...]) -> int:
        """Return the index of the chunk for an entry with these numbers."""
        chunks = self._chunks
        if numbers >= chunks[-1][0][:2]:  # the usual case: add at the end
            return len(chunks) - 1
        return max(0, bisect_right(chunks, numbers, key=_begin) - 1)


def _begin(chunk: list[Entry[Kept]]) -> tuple[int, ...]:
    return chunk[0][:2]


def _find(chunk: list[Entry[Kept]], numbers: tuple[int, ...]) -> int:
    return bisect_left(chunk, numbers)
