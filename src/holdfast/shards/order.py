"""In which order shards are handed out: class by class, so that load stays even, and by a secret. Pure."""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence

from holdfast.shards.designs.design import Design
from holdfast.shards.permutation import LARGEST, Permutation


class Order:
    """From the number of a tenant to the number of a shard, one to one.

    Tenants of consecutive numbers fill a class before the next one is begun. Which class is next, and where in it one
    begins, only whoever has the key can tell. What a design keeps when it is doubled, its order keeps as well.
    """

    __slots__ = ("_firsts", "_key", "_permutations", "_segments")

    def __init__(self, design: Design, key: bytes) -> None:
        self._key = key
        self._segments: Sequence[tuple[int, int]] = [(each.class_size, each.classes) for each in design.segments]
        self._firsts = [segment.first for segment in design.segments]
        self._permutations = [
            Permutation(min(segment.classes, LARGEST), b"%d:%b" % (number, key))
            for number, segment in enumerate(design.segments)
        ]

    def __getitem__(self, number: int) -> int:
        """The shard of a tenant."""
        which = bisect_right(self._firsts, number) - 1
        first, (class_size, classes) = self._firsts[which], self._segments[which]
        index, place = divmod(number - first, class_size)
        if index < LARGEST:  # past four thousand million classes they come as they are
            index = self._permutations[which][index]
        assert index < classes
        return first + index * class_size + (place + self._turn(which, index)) % class_size

    def _turn(self, which: int, index: int) -> int:
        digest = hashlib.blake2b(b"%d:%d" % (which, index), key=self._key[:64], digest_size=8).digest()
        return int.from_bytes(digest)
