"""Stateful search for shards with bounded overlap, for any fleet and any overlap. Pure.

It can take over from a stateful search such as Infima's (https://github.com/awslabs/route53-infima). For every
combination of `overlap` workers in an assigned shard, it stores the other workers of the shard: they are blocked, and
must not be combined with these again. A depth-first search without blocked workers finds a shard if one is left.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Literal

from holdfast._errors import CapacityExhausted, InvalidValue
from holdfast._names import format_count
from holdfast.shards.fleet import Fleet
from holdfast.shards.names import encode_name, format_name

MAX_PARTS = 100_000
"""Most combinations of `overlap` workers stored for a shard. Shards of 16 with overlap 8 have 12,870: slow enough."""
_MAX_DRAWS = 4
"""Random draws before the next free worker is taken, which favours workers after a gap."""
_NO_OPTIONS: tuple[int, Sequence[int]] = (0, ())


class SearchedSharding:
    """The shards of a fleet, `size` workers each, of which no two share more than `overlap`. Not thread-safe.

    Shards are spread over the groups of the fleet, which differ by at most one worker in a shard. With several
    dimensions, each combination is a group. Drained workers are not assigned. The shard of a tenant depends on the key,
    its name and the shards assigned before. `max_steps` limits how many workers a search tries. Without it a search
    goes on until it is certain, which may take long if few shards are left.
    """

    def __init__(self, fleet: Fleet, size: int, overlap: int, *, key: bytes, max_steps: int | None = None) -> None:
        groups = _groups(fleet)
        smallest = min((len(group) for group in groups), default=0)
        max_size = sum(min(len(group), smallest + 1) for group in groups)
        if not 1 <= size <= max_size:
            raise InvalidValue(f"shards of {size}: expected 1 to {max_size} workers, which the smallest group allows")
        if not 0 <= overlap < size:
            raise InvalidValue(f"overlap {overlap} of shards of {size}: expected 0 to {size - 1}")
        if comb(size, overlap) > MAX_PARTS:
            raise InvalidValue(
                f"shards of {size} that share at most {overlap} have {comb(size, overlap)} combinations of {overlap} "
                f"to store: expected at most {MAX_PARTS}; make shards or the overlap smaller"
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
        """Return the slot indexes of a tenant, sorted. Assign a shard if it has none. Raise CapacityExhausted."""
        name = encode_name(tenant)
        found = self._shards.get(name)
        if found is None:
            found, is_certain = _search(self._spread, self._used, _KeyedRandom(self._key, name), self._max_steps)
            if found is None:
                raise self._exhausted(name, is_certain=is_certain)
            self._record_shard(name, found)
        return found

    def adopt(self, tenant: str | bytes, workers: Iterable[str]) -> None:
        """Record a shard that was assigned elsewhere: of any size, with workers of any groups, drained or not.

        Raise InvalidValue if it shares more than `overlap` workers with another tenant, which the message names, or if
        the tenant has another shard already. Raise NotFound for a worker that is not in the fleet.
        """
        name = encode_name(tenant)
        listed = list(workers)
        indexes = tuple(sorted({self.fleet.find_index(worker) for worker in listed}))
        if not listed or len(indexes) < len(listed):
            raise InvalidValue(f"the shard {listed} of tenant {format_name(name)}: expected workers, each once")
        if comb(len(indexes), self.overlap) > MAX_PARTS:
            raise InvalidValue(
                f"the shard of tenant {format_name(name)} has {len(indexes)} workers, and too many combinations of "
                f"{self.overlap} to store: expected fewer workers"
            )
        present = self._shards.get(name)
        if present is None:
            if self._used.has_overlap(indexes):
                raise self._too_close(name, indexes)
            self._record_shard(name, indexes)
        elif present != indexes:
            raise InvalidValue(f"tenant {format_name(name)} has another shard: remove it before it gets this one")

    def remove(self, tenant: str | bytes) -> bool:
        """Free the shard of a tenant, so that its workers may be combined again. Return whether it had one."""
        indexes = self._shards.pop(encode_name(tenant), None)
        if indexes is not None:
            self._used.remove(indexes)
        return indexes is not None

    def find(self, tenant: str | bytes) -> tuple[int, ...] | None:
        """Return the slot indexes of a tenant, sorted, or None if it has no shard. Nothing is assigned."""
        return self._shards.get(encode_name(tenant))

    def __iter__(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Yield every tenant and its slot indexes, sorted, in the order of assignment."""
        return iter(self._shards.items())

    def __len__(self) -> int:
        return len(self._shards)

    def _record_shard(self, name: bytes, indexes: tuple[int, ...]) -> None:
        self._shards[name] = indexes
        self._used.add(indexes)

    def _exhausted(self, name: bytes, *, is_certain: bool) -> CapacityExhausted:
        wanted = f"that shares at most {self.overlap} with each of the {len(self)} assigned"
        advice = ["remove tenants that are gone", "add workers"]
        if self.overlap + 1 < self.size:
            advice.insert(1, f"allow an overlap of {self.overlap + 1}")
        workers = format_count(self.size, "worker")
        why = f"no shard of {workers} is left {wanted}"
        if not is_certain:
            why = f"no shard of {workers} {wanted} was found in {self._max_steps} steps, and some may be left"
            advice.insert(0, "allow more steps")
        return CapacityExhausted(
            f"tenant {format_name(name)} has no shard: {why}; {', '.join(advice[:-1])}, or {advice[-1]}"
        )

    def _too_close(self, name: bytes, indexes: tuple[int, ...]) -> InvalidValue:
        mine = set(indexes)
        neighbour, shared = next(
            (other, shared)
            for other, theirs in self._shards.items()
            if (shared := len(mine.intersection(theirs))) > self.overlap
        )
        return InvalidValue(
            f"the shard of tenant {format_name(name)} shares {format_count(shared, 'worker')} with that of tenant "
            f"{format_name(neighbour)}: expected at most {self.overlap}"
        )


def _search(
    spread: "_GroupSpread", taken: "_UsedCombinations", draws: "_KeyedRandom", max_steps: int | None
) -> tuple[tuple[int, ...] | None, bool]:
    """Return the sorted slots of a shard that may be assigned, or None, and whether the result is certain.

    A random guess comes first: it nearly always succeeds while few shards are assigned. The search after it is depth
    first. A worker that led nowhere is left out of all that follows at its depth: no set is tried in two orders.
    """
    guess = spread.guess(draws)
    if len(guess) == spread.size and not taken.has_overlap(guess):
        return guess, True
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
            return None, False
        tried += 1
        index = draws.choose(options, indexes)
        left[-1] ^= 1 << index
        chosen.append(index)
        if len(chosen) == spread.size:
            return tuple(sorted(chosen)), True
        left.append(left[-1] & ~taken.blocked_by(chosen) & ~spread.closed(chosen))
    return None, True


class _GroupSpread:
    """The spread of shards of `size` workers over groups, which differ by at most one worker in a shard."""

    def __init__(self, groups: Sequence[Sequence[int]], size: int) -> None:
        self.size = size
        self._each, self._more = divmod(size, len(groups))
        self._groups = groups
        self._masks = [_mask(indexes) for indexes in groups]
        self._group_of = {index: number for number, indexes in enumerate(groups) for index in indexes}
        self._all = tuple(self._group_of)
        self.live_mask = _mask(self._all)

    def guess(self, draws: "_KeyedRandom") -> tuple[int, ...]:
        """Return a random shard, sorted. It has fewer workers if one was drawn twice."""
        order = list(range(len(self._groups)))
        for rank in range(self._more):
            other = rank + draws.randbelow(len(order) - rank)
            order[rank], order[other] = order[other], order[rank]
        chosen: set[int] = set()
        for rank, number in enumerate(order if self._each else order[: self._more]):
            indexes = self._groups[number]
            for _ in range(self._each + (rank < self._more)):
                chosen.add(indexes[draws.randbelow(len(indexes))])
        return tuple(sorted(chosen))

    def options(self, left: int, chosen: Sequence[int]) -> tuple[int, Sequence[int]]:
        """Return a mask of workers of which one must come next, and slots to draw from; _NO_OPTIONS if none is left.

        A group that lacks a worker has to give one in any case, so only its workers need to be tried.
        """
        best: tuple[int, Sequence[int]] = (left, self._all)
        fewest = left.bit_count()
        if fewest < self.size - len(chosen):
            return _NO_OPTIONS
        if len(self._groups) == 1 or not self._each:
            return best
        counts = Counter(self._group_of[index] for index in chosen)
        for number, (mask, indexes) in enumerate(zip(self._masks, self._groups, strict=True)):
            lacking = self._each - counts[number]
            if lacking > 0:
                here = left & mask
                count = here.bit_count()
                if count < lacking:
                    return _NO_OPTIONS
                if count <= fewest:
                    best, fewest = (here, indexes), count
        return best

    def closed(self, chosen: Sequence[int]) -> int:
        """Return a mask of the group of the last worker if that group may give no more, else 0.

        Groups that lack workers come first: when a group gives more than its share, no other group lacks any.
        """
        if len(self._groups) == 1:
            return 0
        group = self._group_of[chosen[-1]]
        count = sum(self._group_of[index] == group for index in chosen)
        return self._masks[group] if count > self._each else 0


class _UsedCombinations:
    """The workers of assigned shards: for every combination of `overlap` workers, those blocked by it."""

    def __init__(self, count: int, overlap: int) -> None:
        self._count = count
        self._overlap = overlap
        self._bits = count.bit_length()
        self._kind: Literal["H", "I"] = "H" if count <= 1 << 16 else "I"
        # Blocked workers are a list of slots (bytes) while that is smaller than a mask (int): five times smaller for a
        # million shards of 4 in 2048 workers. Each one is there because of one shard only.
        self._table: dict[int, bytes | int] = {}

    def blocked_for_all(self) -> int:
        """Return a mask of workers that cannot be chosen at all: with overlap 0, the workers of all shards."""
        return 0 if self._overlap else self._with(())

    def blocked_by(self, chosen: Sequence[int]) -> int:
        """Return a mask of workers that are blocked because of the worker that was chosen last."""
        if not self._overlap:
            return 0
        *before, last = chosen
        found = 0
        for some in combinations(before, self._overlap - 1):
            found |= self._with(sorted((*some, last)))
        return found

    def has_overlap(self, indexes: Sequence[int]) -> bool:
        """Return whether more than `overlap` of these sorted slots are in one shard."""
        wanted = set(indexes)
        for some in combinations(indexes[:-1], self._overlap):  # together with any slot after them
            present = self._table.get(self._code(some), 0)
            if isinstance(present, bytes):
                if not wanted.isdisjoint(memoryview(present).cast(self._kind)):
                    return True
            elif present and present & _mask(indexes):
                return True
        return False

    def add(self, indexes: Sequence[int]) -> None:
        """Record an assigned shard, by its sorted slots."""
        for code, others in self._parts(indexes):
            present = self._table.get(code, b"")
            if isinstance(present, bytes):
                present += array(self._kind, others).tobytes()
                self._table[code] = present if len(present) * 8 <= self._count else self._mask_of(present)
            else:
                self._table[code] = present | _mask(others)

    def remove(self, indexes: Sequence[int]) -> None:
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
        """Yield every combination of `overlap` slots, as one number, and the other slots of the shard."""
        if len(indexes) > self._overlap:  # smaller shards can never share too much
            shard = set(indexes)
            for some in combinations(indexes, self._overlap):
                yield self._code(some), shard.difference(some)

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
    """An endless source of random numbers that follow from a key and a name."""

    def __init__(self, key: bytes, name: bytes) -> None:
        self._digest = hashlib.blake2b(name, key=key)
        self._left = int.from_bytes(self._digest.digest())
        self._round = 0

    def choose(self, options: int, indexes: Sequence[int]) -> int:
        """Return one slot of the mask `options`, all of which are in `indexes`."""
        for _ in range(_MAX_DRAWS):
            index = indexes[self.randbelow(len(indexes))]
            if options >> index & 1:
                return index
        start = indexes[self.randbelow(len(indexes))]
        after = options >> start << start or options
        return (after & -after).bit_length() - 1

    def randbelow(self, limit: int) -> int:
        if not self._left >> 64:  # with few bits left, some numbers would be more likely
            self._round += 1
            digest = self._digest.copy()
            digest.update(b"/%d" % self._round)
            self._left = int.from_bytes(digest.digest())
        self._left, drawn = divmod(self._left, limit)
        return drawn


def _groups(fleet: Fleet) -> Sequence[Sequence[int]]:
    """Return the slots of each group without drained ones. Groups without any other slot are left out."""
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
