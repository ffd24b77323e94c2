"""Which lane a message goes to. Pure.

A queue's lanes are numbered: those that tenants share from 0, by slot and priority; those of one tenant alone, for its
excess, below 0. One number says it all, so that a backend has one column for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from holdfast.queue.message import PRIORITY_LEVELS
from holdfast.shards.fleet import Fleet
from holdfast.shards.hashed import HashedSharding

_KEY = b"holdfast queue lanes"
_OWN = 4096
"""The first slot that is one tenant's own: above all that tenants share."""
HANDS_KEPT = 65536
"""Hands that are remembered: dealing one takes as long as sending ten messages."""


def shared_lane(slot: int, priority: int) -> int:
    """The lane of a slot for messages of a priority."""
    return slot * PRIORITY_LEVELS + priority


def own_lane(tenant: int, priority: int) -> int:
    """The lane that a tenant has for itself: where tenants do not share, or for what it sends beside a long backlog."""
    return shared_lane(_OWN + tenant, priority)


def is_own_lane(lane: int) -> bool:
    """Whether a lane is one that a tenant has for itself, and not for its excess."""
    return lane >= own_lane(0, 0)


def spill_lane(tenant: int, priority: int) -> int:
    """The lane for a tenant's excess."""
    return -1 - shared_lane(tenant, priority)


def get_priority(lane: int) -> int:
    """The priority of the messages in a lane."""
    return (lane if lane >= 0 else -1 - lane) % PRIORITY_LEVELS


def get_rank(lane: int) -> int:
    """By what lanes are looked for: their priority, those for excess apart."""
    return get_priority(lane) + (PRIORITY_LEVELS if lane < 0 else 0)


def deal_hand(tenant: str, lanes: int, size: int) -> Sequence[int]:
    """The slots of a tenant, by its name alone: the same in every process, and nearly the same with more lanes."""
    return _dealer(lanes, size)(tenant)


@lru_cache(maxsize=64)
def _dealer(lanes: int, size: int) -> Callable[[str], Sequence[int]]:
    dealt = HashedSharding(Fleet.from_workers([f"lane-{slot}" for slot in range(lanes)]), size, key=_KEY)
    return lru_cache(maxsize=HANDS_KEPT)(lambda tenant: dealt.shard(tenant).slot_indexes)


@lru_cache(maxsize=HANDS_KEPT)
def get_hand_lanes(tenant: str, priority: int, lanes: int, size: int) -> Sequence[int]:
    """The lanes of a tenant's hand for messages of a priority."""
    return tuple(shared_lane(slot, priority) for slot in deal_hand(tenant, lanes, size))


class LaneLoad(NamedTuple):
    """How many messages wait in a lane, and when it had its last turn."""

    ready: int
    turn: int


EMPTY_LANE = LaneLoad(0, 0)
"""That of a lane which is yet to be made."""
RUN = 8
"""Messages of one tenant that come together and go to one lane, before the next is chosen: every lane that is touched
costs as much as some messages do."""


def find_least_loaded(lanes: Sequence[int], depths: Mapping[int, LaneLoad]) -> int:
    """Return the lane with the fewest messages; of several, the one whose turn was the longest ago: it is next."""
    return min(lanes, key=depths.__getitem__)


class LanePlacement:
    """Where the messages of one step go, one after the other, to lanes whose depths are known."""

    def __init__(self, depths: dict[int, LaneLoad]) -> None:
        self.depths = depths
        self._runs: dict[Sequence[int], list[int]] = {}
        """By hand: the lane that is being filled, and how many more go there."""

    def choose_lane(self, lanes: Sequence[int]) -> int:
        """The lane of a message whose tenant may use these."""
        run = self._runs.get(lanes)
        if run is None:
            run = self._runs[lanes] = [0, 0]
        if not run[1]:
            number = find_least_loaded(lanes, self.depths)
            ready, turn = self.depths[number]
            # Also those that are delayed, or all of a batch would be due in one lane.
            self.depths[number] = LaneLoad(ready + RUN, turn)
            run[:] = number, RUN
        run[1] -= 1
        return run[0]
