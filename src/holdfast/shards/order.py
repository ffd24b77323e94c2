"""In which order shards are handed out: class by class, so that load stays even, and by a secret. Pure."""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence

from holdfast.shards.designs.design import Design
from holdfast.shards.permutation import LARGEST, Permutation

_TURNS = 4096
"""Classes that begin at a place of their own; the next ones begin where these did."""


class Order:
    """From the number of a tenant to the number of a shard, one to one.

    Tenants of consecutive numbers fill a class before the next one is begun. Which class is next, and where in it one
    begins, only whoever has the key can tell. What a design keeps when it is doubled, its order keeps as well.
    """

    __slots__ = ("_firsts", "_segments")

    def __init__(self, design: Design, key: bytes) -> None:
        self._firsts = [segment.first for segment in design.segments]
        self._segments = [
            (
                segment.first,
                segment.class_size,
                Permutation(min(segment.classes, LARGEST), b"%d:%b" % (number, key)),
                _turns(segment.class_size, b"%d:%b" % (number, key)),
            )
            for number, segment in enumerate(design.segments)
        ]

    def __getitem__(self, number: int) -> int:
        """The shard of a tenant."""
        which = bisect_right(self._firsts, number) - 1 if len(self._firsts) > 1 else 0
        first, class_size, permutation, turns = self._segments[which]
        index, place = divmod(number - first, class_size)
        if index < LARGEST:  # past four thousand million classes they come as they are
            index = permutation[index]
        return first + index * class_size + (place + turns[index % _TURNS]) % class_size


def _turns(class_size: int, key: bytes) -> Sequence[int]:
    """Where in a class one begins: enough different places that nobody who has not the key can tell."""
    stream = hashlib.shake_256(b"turns:%b" % key).digest(8 * _TURNS)
    return [value % class_size for value in memoryview(stream).cast("Q")]
