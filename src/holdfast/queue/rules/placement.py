"""Choose the lane of a message. Pure.

A lane is one number, so that a backend needs one column for it. Each priority has the same number of shared lanes,
`QueuePolicy.lanes`. A slot is a position among them: a slot has one lane for each priority. Shared lanes are numbered
from 0, by slot and priority. Tenants' own lanes follow from slot `_OWN` on. Overflow lanes, for the spilled messages of
one tenant, are negative.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from holdfast.queue.message import PRIORITY_LEVELS, is_spill_lane
from holdfast.shards.fleet import Fleet
from holdfast.shards.hashed import HashedSharding

_KEY = b"holdfast queue lanes"
_OWN = 4096
"""The first slot of tenants' own lanes: above all shared ones."""
HANDS_KEPT = 65536
"""Hands that are cached: dealing one takes as long as sending ten messages."""


def shared_lane(slot: int, priority: int) -> int:
    """Return the lane of a slot for messages of a priority."""
    return slot * PRIORITY_LEVELS + priority


def own_lane(tenant: int, priority: int) -> int:
    """Return a tenant's own lane: for a queue without shared lanes, or for fresh messages beside a long backlog."""
    return shared_lane(_OWN + tenant, priority)


def is_own_lane(lane: int) -> bool:
    """Return whether a lane is some tenant's own lane. Overflow lanes are not."""
    return lane >= own_lane(0, 0)


def spill_lane(tenant: int, priority: int) -> int:
    """Return a tenant's overflow lane for spilled messages of a priority."""
    return -1 - shared_lane(tenant, priority)


def tenant_lanes(tenant: int) -> list[int]:
    """Return all lanes that only this tenant uses, whether they exist or not."""
    return [lane(tenant, priority) for lane in (own_lane, spill_lane) for priority in range(PRIORITY_LEVELS)]


def get_priority(lane: int) -> int:
    """Return the priority of the messages in a lane."""
    return (-1 - lane if is_spill_lane(lane) else lane) % PRIORITY_LEVELS


def get_rank(lane: int) -> int:
    """Return the order in which lanes are searched: by priority, overflow lanes after all others."""
    return get_priority(lane) + (PRIORITY_LEVELS if is_spill_lane(lane) else 0)


def deal_hand(tenant: str, slot_count: int, size: int) -> Sequence[int]:
    """Return a tenant's slots. They depend on its name only, and hardly change when slots are added."""
    return _dealer(slot_count, size)(tenant)


@lru_cache(maxsize=64)
def _dealer(slot_count: int, size: int) -> Callable[[str], Sequence[int]]:
    dealt = HashedSharding(Fleet.from_workers([f"lane-{slot}" for slot in range(slot_count)]), size, key=_KEY)
    return lru_cache(maxsize=HANDS_KEPT)(lambda tenant: dealt.shard(tenant).slot_indexes)


@lru_cache(maxsize=HANDS_KEPT)
def get_hand_lanes(tenant: str, priority: int, slot_count: int, size: int) -> Sequence[int]:
    """Return the lanes of a tenant's hand for messages of a priority."""
    return tuple(shared_lane(slot, priority) for slot in deal_hand(tenant, slot_count, size))


class LaneLoad(NamedTuple):
    """The waiting messages of a lane, and `turn`: when it was last served, or, if a limit makes it wait, may be served.

    Loads compare in this order.
    """

    ready: int
    turn: int


EMPTY_LANE = LaneLoad(0, 0)
"""The load of a lane that does not exist yet."""
RUN = 8
"""Consecutive messages of one tenant that go to one lane before the next lane is chosen: touching a lane costs as much
as storing a few messages."""


def find_least_loaded(lanes: Sequence[int], depths: Mapping[int, LaneLoad]) -> int:
    """Return the lane with the fewest messages; of several, the one that was served longest ago and so comes next."""
    return min(lanes, key=depths.__getitem__)


class _Run:
    """A lane that is being filled."""

    __slots__ = ("lane", "left")

    def __init__(self) -> None:
        self.lane = self.left = 0  # `left`: messages that still go to this lane


class LanePlacement:
    """Chooses the lanes of the messages of one transaction, one after the other, by the loads in `depths`."""

    def __init__(self, depths: dict[int, LaneLoad]) -> None:
        self.depths = depths
        self._runs: dict[Sequence[int], _Run] = {}
        """The current run of each hand."""

    def choose_lane(self, lanes: Sequence[int]) -> int:
        """Return the lane of the next message, out of the lanes of its tenant's hand."""
        run = self._runs.get(lanes)
        if run is None:
            run = self._runs[lanes] = _Run()
        if not run.left:
            run.lane = find_least_loaded(lanes, self.depths)
            ready, turn = self.depths[run.lane]
            # Count delayed messages as well, or a whole batch would become due in one lane.
            self.depths[run.lane] = LaneLoad(ready + RUN, turn)
            run.left = RUN
        run.left -= 1
        return run.lane
