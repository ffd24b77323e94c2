"""Shards from names alone: no numbers to keep, no registry, and no promise about overlap but the odds. Pure.

Rendezvous hashing (Thaler and Ravishankar, A Name-Based Mapping Scheme for Rendezvous, 1996): every worker gets a score
for every tenant, and the highest scores are the tenant's shard. A worker that comes or goes changes its own scores and
nobody else's, so that it moves only those who win or lose it.
"""

import hashlib
import math
from collections.abc import Sequence
from heapq import nlargest

from holdfast._errors import InvalidValue
from holdfast.shards.fleet import Fleet, Slot

_MASK = (1 << 64) - 1


class Hashed:
    """The shards of a fleet, `size` workers each, spread over its groups. Immutable.

    Weights count: a worker of weight 2 is in twice as many shards as one of weight 1. Drained workers are in none.
    """

    __slots__ = ("_groups", "_key", "fleet", "size")

    def __init__(self, fleet: Fleet, size: int, *, key: bytes) -> None:
        self.fleet = fleet
        self._key = key[:64]
        self._groups = [
            (
                _number(self._key, "/".join(group).encode()),
                [(place, self._seed(fleet.slots[place])) for place in places],
            )
            for group, members in fleet.groups().items()
            if (places := [place for place in members if not fleet.slots[place].is_drained])
        ]
        self.size = self._checked(size)

    def shard(self, tenant: str | bytes, size: int | None = None) -> tuple[Slot, ...]:
        """The shard of the tenant of this name, which may be larger or smaller than those of others.

        Each group gives as many as the others, or one more; which give more follows from the tenant's name.
        """
        wanted = self.size if size is None else self._checked(size)
        name = _number(self._key, tenant.encode("utf-8", "surrogatepass") if isinstance(tenant, str) else tenant)
        each, more = divmod(wanted, len(self._groups))
        luck = sorted(range(len(self._groups)), key=lambda group: _mixed(name ^ self._groups[group][0]), reverse=True)
        chosen: list[int] = []
        for rank, group in enumerate(luck):
            members = self._groups[group][1]
            chosen += nlargest(
                each + (rank < more), (place for place, _ in members), key=_Scores(members, name, self.fleet)
            )
        return tuple(self.fleet.slots[place] for place in chosen)

    def chance(self, shared: int, tenants: int) -> float:
        """The share of tenants that have a neighbour with `shared` or more workers in common, when there are so many.

        By the odds of two shards drawn by chance from groups of equal size and weight: real fleets are a little worse.
        """
        counts = [len(members) for _, members in self._groups]
        if self.size % len(counts):  # which groups give more differs by tenant: as if there were no groups
            counts = [sum(counts)]
        each = self.size // len(counts)
        odds = [1.0]
        for count in counts:
            one = [
                math.comb(each, hit) * math.comb(count - each, each - hit) / math.comb(count, each)
                for hit in range(each + 1)
            ]
            odds = [
                sum(odds[other] * one[total - other] for other in range(len(odds)) if 0 <= total - other <= each)
                for total in range(len(odds) + each)
            ]
        pair = sum(odds[shared:])
        return -math.expm1((tenants - 1) * math.log1p(-pair)) if pair < 1 else 1.0

    def _checked(self, size: int) -> int:
        most = min((len(members) for _, members in self._groups), default=0) * len(self._groups)
        if not 1 <= size <= most:
            raise InvalidValue(f"shards of {size}: expected 1 to {most}, as many of each group as its smallest allows")
        return size

    def _seed(self, slot: Slot) -> int:
        return _number(self._key, slot.worker.encode("utf-8", "surrogatepass"))


class _Scores:
    """How high each worker of a group scores for one tenant."""

    __slots__ = ("_fleet", "_name", "_seeds")

    def __init__(self, members: Sequence[tuple[int, int]], name: int, fleet: Fleet) -> None:
        self._seeds = dict(members)
        self._name = name
        self._fleet = fleet

    def __call__(self, place: int) -> float:
        # The logarithm makes a weight of 2 as good as two draws: https://www.snia.org/sites/default/files/SDC15_presentations/dist_sys/Jason_Resch_New_Consistent_Hashings_Rev.pdf
        drawn = (_mixed(self._name ^ self._seeds[place]) + 0.5) / (_MASK + 1)
        return -self._fleet.slots[place].weight / math.log(drawn)


def _number(key: bytes, name: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(name, key=key, digest_size=8).digest())


def _mixed(number: int) -> int:
    """A number whose every bit depends on every bit: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31
