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
from holdfast.shards.names import name_of, shown

LARGEST = 100_000
"""The most parts that are kept of one shard: 16 workers of which 8 may be shared have 12,870, which is slow enough."""
_THROWS = 4
"""How often a worker is drawn at random before the next that is free is taken, which favours those after a gap."""


class Searched:
    """The shards of a fleet, `size` workers each, of which no two share more than `overlap`. For one thread at a time.

    Shards are spread over the groups of the fleet, no group giving more than one more than another, and drained workers
    are given to nobody. Of several dimensions, each combination is a group. The shard of a tenant depends on the key,
    its name and the shards that are given already. `steps` bounds how many workers a search may try: without it a
    search goes on until it is certain, which may take long where few shards are left.
    """

    def __init__(self, fleet: Fleet, size: int, overlap: int, *, key: bytes, steps: int | None = None) -> None:
        groups = _groups(fleet)
        fewest = min((len(group) for group in groups), default=0)
        most = sum(min(len(group), fewest + 1) for group in groups)
        if not 1 <= size <= most:
            raise InvalidValue(f"shards of {size}: expected 1 to {most}, as many of each group as its smallest allows")
        if not 0 <= overlap < size:
            raise InvalidValue(f"overlap {overlap} of shards of {size}: expected 0 to {size - 1}")
        if comb(size, overlap) > LARGEST:
            raise InvalidValue(
                f"shards of {size} that share at most {overlap} have {comb(size, overlap)} parts of {overlap} to keep: "
                f"expected no more than {LARGEST}; make them smaller, or the overlap"
            )
        if steps is not None and steps < size:
            raise InvalidValue(f"{steps} steps: expected {size} or more, one for each worker of a shard")
        self.fleet = fleet
        self.size = size
        self.overlap = overlap
        self._key = key[:64]
        self._steps = steps
        self._spread = _Spread(groups, size)
        self._taken = _Taken(len(fleet), overlap)
        self._shards: dict[bytes, tuple[int, ...]] = {}

    def assign(self, tenant: str | bytes) -> tuple[int, ...]:
        """Return the slots of a tenant, in order; one that has none gets some. Raises CapacityExhausted."""
        name = name_of(tenant)
        found = self._shards.get(name)
        if found is None:
            found = _search(self._spread, self._taken, _Draws(self._key, name), self._steps)
            if not found:
                raise self._exhausted(name, is_certain=found is not None)
            self._give(name, found)
        return found

    def keep(self, tenant: str | bytes, workers: Iterable[str]) -> None:
        """Take over a shard that was given elsewhere, of any size, wherever its workers are, drained or not.

        Raises InvalidValue if it shares more than `overlap` workers with another, whose tenant is named, or if the
        tenant has another shard already; NotFound for a worker that is not in the fleet.
        """
        name = name_of(tenant)
        listed = list(workers)
        places = tuple(sorted({self.fleet.place_of(worker) for worker in listed}))
        if not listed or len(places) < len(listed):
            raise InvalidValue(f"the shard {listed} of tenant {shown(name)}: expected some workers, each once")
        if comb(len(places), self.overlap) > LARGEST:
            raise InvalidValue(
                f"the shard of tenant {shown(name)} has {len(places)} workers, and too many parts of {self.overlap} "
                "to keep: expected fewer"
            )
        present = self._shards.get(name)
        if present is None:
            if self._taken.has_part_of(places):
                raise self._too_close(name, places)
            self._give(name, places)
        elif present != places:
            raise InvalidValue(f"tenant {shown(name)} has another shard: release it before it gets this one")

    def release(self, tenant: str | bytes) -> bool:
        """Take a shard back, to be given again, whole or in parts; whether the tenant had one."""
        places = self._shards.pop(name_of(tenant), None)
        if places is not None:
            self._taken.remove(places)
        return places is not None

    def find(self, tenant: str | bytes) -> tuple[int, ...] | None:
        """The slots of a tenant's shard, in order; None if it has none. Nothing is assigned."""
        return self._shards.get(name_of(tenant))

    def __iter__(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Every tenant and its slots, in the order in which they came."""
        return iter(self._shards.items())

    def __len__(self) -> int:
        return len(self._shards)

    def _give(self, name: bytes, places: tuple[int, ...]) -> None:
        self._shards[name] = places
        self._taken.add(places)

    def _exhausted(self, name: bytes, *, is_certain: bool) -> CapacityExhausted:
        wanted = f"of {self.size} workers that shares at most {self.overlap} with each of the {len(self)} given"
        advice = ["release tenants that are gone", "add workers"]
        if self.overlap + 1 < self.size:
            advice.insert(1, f"allow an overlap of {self.overlap + 1}")
        why = f"none is left {wanted}"
        if not is_certain:
            why = f"none was found in {self._steps} steps {wanted}, and some may be left"
            advice.insert(0, "allow more steps")
        return CapacityExhausted(f"tenant {shown(name)} has no shard: {why}; {', '.join(advice[:-1])}, or {advice[-1]}")

    def _too_close(self, name: bytes, places: tuple[int, ...]) -> InvalidValue:
        mine = set(places)
        shares = ((other, len(mine.intersection(theirs))) for other, theirs in self._shards.items())
        neighbour, shared = next(entry for entry in shares if entry[1] > self.overlap)
        return InvalidValue(
            f"the shard of tenant {shown(name)} shares {shared} workers with that of tenant {shown(neighbour)}: "
            f"expected at most {self.overlap}"
        )


def _search(spread: "_Spread", taken: "_Taken", draws: "_Draws", steps: int | None) -> tuple[int, ...] | None:
    """Return the slots of a shard that may be given; an empty tuple if none is left, None if the steps ran out.

    First a guess, which nearly always will do as long as few are given. Then depth first: a worker that led nowhere is
    left out of all that follows at its depth, so that no set of workers is tried twice, in whichever order.
    """
    guess = spread.guess(draws)
    if len(guess) == spread.size and not taken.has_part_of(guess):
        return guess
    tried = spread.size
    chosen: list[int] = []
    left = [spread.live & ~taken.by_all()]
    while left:
        options, places = spread.options(left[-1], chosen)
        if not options:
            left.pop()
            if chosen:
                chosen.pop()
            continue
        if tried == steps:
            return None
        tried += 1
        place = draws.one_of(options, places)
        left[-1] ^= 1 << place
        chosen.append(place)
        if len(chosen) == spread.size:
            return tuple(sorted(chosen))
        left.append(left[-1] & ~taken.by(chosen) & ~spread.closed(chosen))
    return ()


class _Spread:
    """How a shard is spread over groups: `size` workers, no group giving more than one more than another."""

    def __init__(self, groups: Sequence[Sequence[int]], size: int) -> None:
        self.size = size
        self._each, self._more = divmod(size, len(groups))
        self._groups = [(_mask(places), places) for places in groups]
        self._group_of = {place: number for number, places in enumerate(groups) for place in places}
        self._all = tuple(self._group_of)
        self.live = _mask(self._all)

    def guess(self, draws: "_Draws") -> tuple[int, ...]:
        """A shard by chance, in order; with fewer workers, if one came twice."""
        order = list(range(len(self._groups)))
        for rank in range(self._more):
            other = rank + draws.below(len(order) - rank)
            order[rank], order[other] = order[other], order[rank]
        chosen: set[int] = set()
        for rank, number in enumerate(order if self._each else order[: self._more]):
            places = self._groups[number][1]
            for _ in range(self._each + (rank < self._more)):
                chosen.add(places[draws.below(len(places))])
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
        counts = Counter(self._group_of[place] for place in chosen)
        for number, (mask, places) in enumerate(self._groups):
            lacking = self._each - counts[number]
            if lacking > 0:
                here = left & mask
                count = here.bit_count()
                if count < lacking:
                    return 0, ()
                if count <= fewest:
                    best, fewest = (here, places), count
        return best

    def closed(self, chosen: Sequence[int]) -> int:
        """Return the workers of the group that was chosen last, if it has given all it may.

        Groups that lack workers come first: by the time that one gives more than its share, no other lacks any.
        """
        if len(self._groups) == 1:
            return 0
        group = self._group_of[chosen[-1]]
        count = sum(self._group_of[place] == group for place in chosen)
        return self._groups[group][0] if count > self._each else 0


class _Taken:
    """Who is together in a shard: for every `overlap` workers those that are with them, and may not be again."""

    def __init__(self, count: int, overlap: int) -> None:
        self._count = count
        self._overlap = overlap
        self._bits = count.bit_length()
        self._kind: Literal["H", "I"] = "H" if count <= 1 << 16 else "I"
        # A list of slots as long as it takes less room than a bit for every worker: five times less for a million
        # shards of 4 in 2048. Either way a worker beside others is there because of one shard only.
        self._table: dict[int, bytes | int] = {}

    def by_all(self) -> int:
        """Those that may join nobody, whoever is chosen: all that are in a shard, where nothing may be shared."""
        return 0 if self._overlap else self._with(())

    def by(self, chosen: Sequence[int]) -> int:
        """Those that may not join because of the one that was chosen last."""
        if not self._overlap:
            return 0
        *before, last = chosen
        found = 0
        for some in combinations(before, self._overlap - 1):
            found |= self._with(sorted((*some, last)))
        return found

    def has_part_of(self, places: Sequence[int]) -> bool:
        """Whether more than `overlap` of these slots, which are in order, are together already."""
        everybody = set(places)
        for some in combinations(places[:-1], self._overlap):  # with any that comes after them
            present = self._table.get(self._code(some), 0)
            if isinstance(present, bytes):
                if not everybody.isdisjoint(memoryview(present).cast(self._kind)):
                    return True
            elif present and present & _mask(places):
                return True
        return False

    def add(self, places: Sequence[int]) -> None:
        """A shard that is given; its slots are in order."""
        for code, others in self._parts(places):
            present = self._table.get(code, b"")
            if isinstance(present, bytes):
                present += array(self._kind, others).tobytes()
                self._table[code] = present if len(present) * 8 <= self._count else self._mask_of(present)
            else:
                self._table[code] = present | _mask(others)

    def remove(self, places: Sequence[int]) -> None:
        """A shard that was added."""
        for code, others in self._parts(places):
            present = self._table.pop(code)
            if isinstance(present, bytes):
                kept = (place for place in memoryview(present).cast(self._kind) if place not in others)
                left: bytes | int = array(self._kind, kept).tobytes()
            else:
                left = present & ~_mask(others)
            if left:
                self._table[code] = left

    def _parts(self, places: Sequence[int]) -> Iterator[tuple[int, set[int]]]:
        """Every `overlap` of a shard, as one number, and the others."""
        if len(places) > self._overlap:  # fewer can be in any number of shards
            everybody = set(places)
            for some in combinations(places, self._overlap):
                yield self._code(some), everybody.difference(some)

    def _with(self, some: Sequence[int]) -> int:
        present = self._table.get(self._code(some), 0)
        return present if isinstance(present, int) else self._mask_of(present)

    def _code(self, some: Sequence[int]) -> int:
        code = 0
        for place in some:
            code = code << self._bits | place
        return code

    def _mask_of(self, listed: bytes) -> int:
        return _mask(memoryview(listed).cast(self._kind))


class _Draws:
    """Numbers that follow from a key and a name, as many as are asked for."""

    def __init__(self, key: bytes, name: bytes) -> None:
        self._digest = hashlib.blake2b(name, key=key)
        self._left = int.from_bytes(self._digest.digest())
        self._round = 0

    def one_of(self, options: int, places: Sequence[int]) -> int:
        """One of the options, which are among these slots."""
        for _ in range(_THROWS):
            place = places[self.below(len(places))]
            if options >> place & 1:
                return place
        start = places[self.below(len(places))]
        after = options >> start << start or options
        return (after & -after).bit_length() - 1

    def below(self, limit: int) -> int:
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
    live = (tuple(place for place in places if not fleet.slots[place].is_drained) for places in fleet.groups().values())
    return [places for places in live if places]


def _mask(places: Iterable[int]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask
