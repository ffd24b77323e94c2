"""Shards that are searched for, each held against all that are given: any fleet, any overlap, and state to keep. Pure.

For those who come from a stateful search such as Infima's (https://github.com/awslabs/route53-infima). For every
`overlap` workers that are together in a shard it is kept who else is there: those may not join them again. A search
that goes depth first, and leaves out whom it may not take, finds a shard as long as there is one.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Literal

from holdfast._errors import CapacityExhausted, InvalidValue
from holdfast.shards.fleet import Fleet
from holdfast.shards.names import encode_name, format_name

MAX_PARTS = 100_000
"""The most parts that are kept of one shard: 16 workers of which 8 may be shared have 12,870, which is slow enough."""
_MAX_DRAWS = 4
"""How often a worker is drawn at random before the next that is free is taken, which favours those after a gap."""


class SearchedSharding:
    """The shards of a fleet, `size` workers each, of which no two share more than `overlap`. For one thread at a time.

    Shards are spread over the groups of the fleet, no group giving more than one more than another, and drained workers
    are given to nobody. Of several dimensions, each combination is a group. The shard of a tenant depends on the key,
    its name and the shards that are given already. `max_steps` bounds how many workers a search may try: without it a
    search goes on until it is certain, which may take long where few shards are left.
    """

    def __init__(self, fleet: Fleet, size: int, overlap: int, *, key: bytes, max_steps: int | None = None) -> None:
        groups = _groups(fleet)
        fewest = min((len(group) for group in groups), default=0)
        most = sum(min(len(group), fewest + 1) for group in groups)
        if not 1 <= size <= most:
            raise InvalidValue(f"shards of {size}: expected 1 to {most}, as many of each group as its smallest allows")
        if not 0 <= overlap < size:
            raise InvalidValue(f"overlap {overlap} of shards of {size}: expected 0 to {size - 1}")
        if comb(size, overlap) > MAX_PARTS:
            raise InvalidValue(
                f"shards of {size} that share at most {overlap} have {comb(size, overlap)} parts of {overlap} to keep: "
                f"expected no more than {MAX_PARTS}; make them smaller, or the overlap"
            )
        if max_steps is not None and max_steps < size:
            raise InvalidValue(f"{max_steps} steps: expected {size} or more, one for each worker of a shard")
        self.fleet = fleet
        self.size = size
        self.overlap = overlap
        self._key = key[:64]
        self._max_steps = max_steps
        self._spread = _GroupSpread(groups, size)
        self._used = _UsedCombinations(len(fleet), overlap)
        self._shards: dict[bytes, tuple[int, ...]] = {}

    def assign(self, tenant: str | bytes) -> tuple[int, ...]:
        """Return the slots of a tenant, in order; one that has none gets some. Raises CapacityExhausted."""
        name = encode_name(tenant)
        found = self._shards.get(name)
        if found is None:
            found = _search(self._spread, self._used, _KeyedRandom(self._key, name), self._max_steps)
            if not found:
                raise self._exhausted(name, is_certain=found is not None)
            self._record_shard(name, found)
        return found

    def adopt(self, tenant: str | bytes, workers: Iterable[str]) -> None:
        """Take over a shard that was given elsewhere, of any size, wherever its workers are, drained or not.

        Raises InvalidValue if it shares more than `overlap` workers with another, whose tenant is named, or if the
        tenant has another shard already; NotFound for a worker that is not in the fleet.
        """
        name = encode_name(tenant)
        listed = list(workers)
        indexes = tuple(sorted({self.fleet.find_index(worker) for worker in listed}))
        if not listed or len(indexes) < len(listed):
            raise InvalidValue(f"the shard {listed} of tenant {format_name(name)}: expected some workers, each once")
        if comb(len(indexes), self.overlap) > MAX_PARTS:
            raise InvalidValue(
                f"the shard of tenant {format_name(name)} has {len(indexes)} workers, and too many parts of "
                f"{self.overlap} to keep: expected fewer"
            )
        present = self._shards.get(name)
        if present is None:
            if self._used.has_overlap(indexes):
                raise self._too_close(name, indexes)
            self._record_shard(name, indexes)
        elif present != indexes:
            raise InvalidValue(f"tenant {format_name(name)} has another shard: release it before it gets this one")

    def remove(self, tenant: str | bytes) -> bool:
        """Take a shard back, to be given again, whole or in parts; whether the tenant had one."""
        indexes = self._shards.pop(encode_name(tenant), None)
        if indexes is not None:
            self._used.remove(indexes)
        return indexes is not None

    def find(self, tenant: str | bytes) -> tuple[int, ...] | None:
        """The slots of a tenant's shard, in order; None if it has none. Nothing is assigned."""
        return self._shards.get(encode_name(tenant))

    def __iter__(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Every tenant and its slots, in the order in which they came."""
        return iter(self._shards.items())

    def __len__(self) -> int:
        return len(self._shards)

    def _record_shard(self, name: bytes, indexes: tuple[int, ...]) -> None:
        self._shards[name] = indexes
        self._used.add(indexes)

    def _exhausted(self, name: bytes, *, is_certain: bool) -> CapacityExhausted:
        wanted = f"of {self.size} workers that shares at most {self.overlap} with each of the {len(self)} given"
        advice = ["release tenants that are gone", "add workers"]
        if self.overlap + 1 < self.size:
            advice.insert(1, f"allow an overlap of {self.overlap + 1}")
        why = f"none is left {wanted}"
        if not is_certain:
            why = f"none was found in {self._max_steps} steps {wanted}, and some may be left"
            advice.insert(0, "allow more steps")
        return CapacityExhausted(
            f"tenant {format_name(name)} has no shard: {why}; {', '.join(advice[:-1])}, or {advice[-1]}"
        )

    def _too_close(self, name: bytes, indexes: tuple[int, ...]) -> InvalidValue:
        mine = set(indexes)
        shares = ((other, len(mine.intersection(theirs))) for other, theirs in self._shards.items())
        neighbour, shared = next(entry for entry in shares if entry[1] > self.overlap)
        return InvalidValue(
            f"the shard of tenant {format_name(name)} shares {shared} workers with that of tenant "
            f"{format_name(neighbour)}: expected at most {self.overlap}"
        )


def _search(
    spread: "_GroupSpread", taken: "_UsedCombinations", draws: "_KeyedRandom", max_steps: int | None
) -> tuple[int, ...] | None:
    """Return the slots of a shard that may be given; an empty tuple if none is left, None if the steps ran out.

    First a guess, which nearly always will do as long as few are given. Then depth first: a worker that led nowhere is
    left out of all that follows at its depth, so that no set of workers is tried twice, in whichever order.
    """
    guess = spread.guess(draws)
    if len(guess) == spread.size and not taken.has_overlap(guess):
        return guess
    tried = spread.size
    chosen: list[int] = []
    left = [spread.live_mask & ~taken.blocked_for_all()]
    while left:
        options, indexes = spread.options(left[-1], chosen)
        if not options:
            left.pop()
            if chosen:
                chosen.pop()
            continue
        if tried == max_steps:
            return None
        tried += 1
        index = draws.choose(options, indexes)
        left[-1] ^= 1 << index
        chosen.append(index)
        if len(chosen) == spread.size:
            return tuple(sorted(chosen))
        left.append(left[-1] & ~taken.blocked_by(chosen) & ~spread.closed(chosen))
    return ()


class _GroupSpread:
    """How a shard is spread over groups: `size` workers, no group giving more than one more than another."""

    def __init__(self, groups: Sequence[Sequence[int]], size: int) -> None:
        self.size = size
        self._each, self._more = divmod(size, len(groups))
        self._groups = [(_mask(indexes), indexes) for indexes in groups]
        self._group_of = {index: number for number, indexes in enumerate(groups) for index in indexes}
        self._all = tuple(self._group_of)
        self.live_mask = _mask(self._all)

    def guess(self, draws: "_KeyedRandom") -> tuple[int, ...]:
        """A shard by chance, in order; with fewer workers, if one came twice."""
        order = list(range(len(self._groups)))
        for rank in range(self._more):
            other = rank + draws.randbelow(len(order) - rank)
            order[rank], order[other] = order[other], order[rank]
        chosen: set[int] = set()
        for rank, number in enumerate(order if self._each else order[: self._more]):
            indexes = self._groups[number][1]
            for _ in range(self._each + (rank < self._more)):
                chosen.add(indexes[draws.randbelow(len(indexes))])
        return tuple(sorted(chosen))

    def options(self, left: int, chosen: Sequence[int]) -> tuple[int, Sequence[int]]:
        """Return the workers of whom one has to come next, and the slots to draw from; nothing if it is in vain.

        A group that lacks a worker has to give one in any case, so that only its own need be tried.
        """
        best: tuple[int, Sequence[int]] = (left, self._all)
        fewest = left.bit_count()
        if fewest < self.size - len(chosen):
            return 0, ()
        if len(self._groups) == 1 or not self._each:
            return best
        counts = Counter(self._group_of[index] for index in chosen)
        for number, (mask, indexes) in enumerate(self._groups):
            lacking = self._each - counts[number]
            if lacking > 0:
                here = left & mask
                count = here.bit_count()
                if count < lacking:
                    return 0, ()
                if count <= fewest:
                    best, fewest = (here, indexes), count
        return best

    def closed(self, chosen: Sequence[int]) -> int:
        """Return the workers of the group that was chosen last, if it has given all it may.

        Groups that lack workers come first: by the time that one gives more than its share, no other lacks any.
        """
        if len(self._groups) == 1:
            return 0
        group = self._group_of[chosen[-1]]
        count = sum(self._group_of[index] == group for index in chosen)
        return self._groups[group][0] if count > self._each else 0


class _UsedCombinations:
    """Who is together in a shard: for every `overlap` workers those that are with them, and may not be again."""

    def __init__(self, count: int, overlap: int) -> None:
        self._count = count
        self._overlap = overlap
        self._bits = count.bit_length()
        self._kind: Literal["H", "I"] = "H" if count <= 1 << 16 else "I"
        # A list of slots as long as it takes less room than a bit for every worker: five times less for a million
        # shards of 4 in 2048. Either way a worker beside others is there because of one shard only.
        self._table: dict[int, bytes | int] = {}

    def blocked_for_all(self) -> int:
        """Those that may join nobody, whoever is chosen: all that are in a shard, where nothing may be shared."""
        return 0 if self._overlap else self._with(())

    def blocked_by(self, chosen: Sequence[int]) -> int:
        """Those that may not join because of the one that was chosen last."""
        if not self._overlap:
            return 0
        *before, last = chosen
        found = 0
        for some in combinations(before, self._overlap - 1):
            found |= self._with(sorted((*some, last)))
        return found

    def has_overlap(self, indexes: Sequence[int]) -> bool:
        """Whether more than `overlap` of these slots, which are in order, are together already."""
        everybody = set(indexes)
        for some in combinations(indexes[:-1], self._overlap):  # with any that comes after them
            present = self._table.get(self._code(some), 0)
            if isinstance(present, bytes):
                if not everybody.isdisjoint(memoryview(present).cast(self._kind)):
                    return True
            elif present and present & _mask(indexes):
                return True
        return False

    def add(self, indexes: Sequence[int]) -> None:
        """A shard that is given; its slots are in order."""
        for code, others in self._parts(indexes):
            present = self._table.get(code, b"")
            if isinstance(present, bytes):
                present += array(self._kind, others).tobytes()
                self._table[code] = present if len(present) * 8 <= self._count else self._mask_of(present)
            else:
                self._table[code] = present | _mask(others)

    def remove(self, indexes: Sequence[int]) -> None:
        """A shard that was added."""
        for code, others in self._parts(indexes):
            present = self._table.pop(code)
            if isinstance(present, bytes):
                kept = (index for index in memoryview(present).cast(self._kind) if index not in others)
                left: bytes | int = array(self._kind, kept).tobytes()
            else:
                left = present & ~_mask(others)
            if left:
                self._table[code] = left

    def _parts(self, indexes: Sequence[int]) -> Iterator[tuple[int, set[int]]]:
        """Every `overlap` of a shard, as one number, and the others."""
        if len(indexes) > self._overlap:  # fewer can be in any number of shards
            everybody = set(indexes)
            for some in combinations(indexes, self._overlap):
                yield self._code(some), everybody.difference(some)

    def _with(self, some: Sequence[int]) -> int:
        present = self._table.get(self._code(some), 0)
        return present if isinstance(present, int) else self._mask_of(present)

    def _code(self, some: Sequence[int]) -> int:
        code = 0
        for index in some:
            code = code << self._bits | index
        return code

    def _mask_of(self, listed: bytes) -> int:
        return _mask(memoryview(listed).cast(self._kind))


class _KeyedRandom:
    """Numbers that follow from a key and a name, as many as are asked for."""

    def __init__(self, key: bytes, name: bytes) -> None:
        self._digest = hashlib.blake2b(name, key=key)
        self._left = int.from_bytes(self._digest.digest())
        self._round = 0

    def choose(self, options: int, indexes: Sequence[int]) -> int:
        """One of the options, which are among these slots."""
        for _ in range(_MAX_DRAWS):
            index = indexes[self.randbelow(len(indexes))]
            if options >> index & 1:
                return index
        start = indexes[self.randbelow(len(indexes))]
        after = options >> start << start or options
        return (after & -after).bit_length() - 1

    def randbelow(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        if not self._left >> 64:  # few bits would favour some numbers
            self._round += 1
            digest = self._digest.copy()
            digest.update(b"/%d" % self._round)
            self._left = int.from_bytes(digest.digest())
        self._left, drawn = divmod(self._left, limit)
        return drawn


def _groups(fleet: Fleet) -> Sequence[Sequence[int]]:
    """The slots over which shards are spread, by group, without those that are drained. Groups left empty are none."""
    live = (
        tuple(index for index in indexes if not fleet.slots[index].is_drained)
        for indexes in fleet.indexes_by_group().values()
    )
    return [indexes for indexes in live if indexes]


def _mask(indexes: Iterable[int]) -> int:
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask
