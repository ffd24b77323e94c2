"""What is kept in the order of its numbers, where things come and go at every place. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

Kept = TypeVar("Kept")
Entry: TypeAlias = tuple[int, int, Kept]
"""By what it is ordered, which of several of the same comes first, and the thing itself."""

CHUNK = 512
"""Entries that stand together: to add or remove one moves at most twice as many, however many there are."""


class Ordered(Generic[Kept]):
    """Things by two numbers, which no two of them have both in common. Not thread-safe."""

    __slots__ = ("_chunks", "_count")

    def __init__(self) -> None:
        self._chunks: list[list[Entry[Kept]]] = []  # none of them empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, first: int, second: int, kept: Kept) -> None:
        """Keep a thing."""
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
        """Forget the thing with these numbers, which must be there."""
        place = self._place((first, second))
        chunk = self._chunks[place]
        del chunk[_find(chunk, (first, second))]
        self._count -= 1
        if not chunk:
            del self._chunks[place]

    def between(self, least: int, most: int) -> Iterator[Kept]:
        """Those whose first number is within these. Nothing may be added or removed before it ends."""
        for _, _, kept in self._entries(least, most):
            yield kept

    def first(self, least: int = 0) -> int | None:
        """The lowest first number that is not below `least`; None: there is none."""
        for first, _, _ in self._entries(least, None):
            return first
        return None

    def last(self) -> int | None:
        """The highest first number; None: there is nothing."""
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
        """The chunk in which an entry with these numbers stands, or would."""
        chunks = self._chunks
        if numbers >= chunks[-1][0][:2]:  # most are added at the end
            return len(chunks) - 1
        return max(0, bisect_right(chunks, numbers, key=_begin) - 1)


def _begin(chunk: list[Entry[Kept]]) -> tuple[int, ...]:
    return chunk[0][:2]


def _find(chunk: list[Entry[Kept]], numbers: tuple[int, ...]) -> int:
    return bisect_left(chunk, numbers)
