"""Which lane a message goes to. Pure.

A queue's lanes are numbered: those that tenants share from 0, by slot and priority; those of one tenant alone, for its
excess, below 0. One number says it all, so that a backend has one column for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from holdfast.queue.message import PRIORITIES
from holdfast.shards.fleet import Fleet
from holdfast.shards.hashed import Hashed

_KEY = b"holdfast queue lanes"
_OWN = 4096
"""The first slot that is one tenant's own: above all that tenants share."""
HANDS_KEPT = 65536
"""Hands that are remembered: dealing one takes as long as sending ten messages."""


def shared_lane(slot: int, priority: int) -> int:
    """The lane of a slot for messages of a priority."""
    return slot * PRIORITIES + priority


def own_lane(tenant: int, priority: int) -> int:
    """The lane that a tenant has for itself, where tenants do not share."""
    return shared_lane(_OWN + tenant, priority)


def spill_lane(tenant: int, priority: int) -> int:
    """The lane for a tenant's excess."""
    return -1 - shared_lane(tenant, priority)


def priority_of(lane: int) -> int:
    """The priority of the messages in a lane."""
    return (lane if lane >= 0 else -1 - lane) % PRIORITIES


def rank_of(lane: int) -> int:
    """By what lanes are looked for: their priority, those for excess apart."""
    return priority_of(lane) + (PRIORITIES if lane < 0 else 0)


def hand(tenant: str, lanes: int, size: int) -> Sequence[int]:
    """The slots of a tenant, by its name alone: the same in every process, and nearly the same with more lanes."""
    return _dealer(lanes, size)(tenant)


@lru_cache(maxsize=64)
def _dealer(lanes: int, size: int) -> Callable[[str], Sequence[int]]:
    dealt = Hashed(Fleet.of([f"lane-{slot}" for slot in range(lanes)]), size, key=_KEY)
    return lru_cache(maxsize=HANDS_KEPT)(lambda tenant: dealt.shard(tenant).places)


def least_deep(slots: Sequence[int], priority: int, depths: Mapping[int, int]) -> int:
    """The lane among a tenant's slots with the fewest messages waiting; of several, the first of the hand."""
    return min((shared_lane(slot, priority) for slot in slots), key=lambda lane: depths.get(lane, 0))
