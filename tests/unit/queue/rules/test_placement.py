"""Which lanes a tenant has, and which of them a message goes to."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.queue.message import PRIORITY_LEVELS
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.placement import (
    EMPTY_LANE,
    RUN,
    LaneLoad,
    LanePlacement,
    deal_hand,
    find_least_loaded,
    get_hand_lanes,
    get_priority,
    get_rank,
    is_own_lane,
    own_lane,
    shared_lane,
    spill_lane,
    tenant_lanes,
)
from holdfast.testing import seeded

LANES, HAND = QueuePolicy().lanes, QueuePolicy().lanes_per_tenant
TENANTS = [f"tenant-{number}" for number in range(2000)]
SLOTS = st.integers(0, 4095)
IDS = st.integers(1, 1 << 40)
URGENCY = st.integers(0, PRIORITY_LEVELS - 1)
KNOWN = [(50, 0, 21, 25), (76, 77, 72, 126)]


@given(st.text(min_size=1, max_size=20), st.integers(1, 64), st.integers(1, 300))
def test_a_hand_has_as_many_different_slots_as_it_should_and_stays(tenant: str, size: int, lanes: int) -> None:
    if size > lanes:
        with pytest.raises(InvalidValue):
            deal_hand(tenant, lanes, size)
        return
    slots = deal_hand(tenant, lanes, size)
    assert len(set(slots)) == len(slots) == size
    assert all(0 <= slot < lanes for slot in slots)
    assert deal_hand(tenant, lanes, size) == slots


def test_another_process_deals_the_same_hands() -> None:
    """Also those of versions to come: messages would go to other lanes than their tenant's while both run."""
    code = "from holdfast.queue.rules.placement import deal_hand; "
    code += "print([tuple(deal_hand(name, 128, 4)) for name in ('a', 'ä')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str([tuple(deal_hand(name, 128, 4)) for name in ("a", "ä")])
    assert [tuple(deal_hand(name, 128, 4)) for name in ("a", "ä")] == KNOWN


@pytest.mark.no_cover
def test_hands_are_spread_over_all_lanes() -> None:
    used = Counter(slot for tenant in TENANTS for slot in deal_hand(tenant, LANES, HAND))
    mean = len(TENANTS) * HAND / LANES
    assert len(used) == LANES
    # Five standard deviations of a share of 4 in 128.
    assert all(abs(count - mean) < 5 * mean**0.5 for count in used.values())


def test_the_first_slot_is_as_well_spread() -> None:
    """It is the one that a quiet tenant uses."""
    used = Counter(deal_hand(tenant, LANES, HAND)[0] for tenant in TENANTS)
    mean = len(TENANTS) / LANES
    assert max(used.values()) < mean + 5 * mean**0.5


def test_ten_noisy_tenants_cover_the_hands_of_half_a_percent_of_the_others() -> None:
    """With the defaults, as the policy says."""
    hands = [frozenset(deal_hand(tenant, LANES, HAND)) for tenant in TENANTS]
    chance, covered, trials = seeded("noisy"), 0, 400
    for _ in range(trials):
        noisy = chance.sample(range(len(TENANTS)), 10)
        filled = frozenset().union(*(hands[number] for number in noisy))
        covered += sum(slots <= filled for slots in hands) - len(noisy)
    share = covered / (trials * (len(TENANTS) - 10))
    assert share == pytest.approx(0.005, abs=0.001)
    assert share < 0.01


@pytest.mark.no_cover
def test_more_lanes_move_only_what_they_take() -> None:
    """From 128 to 256, half of each hand on average; none changes from one old lane to another."""
    kept = 0
    for tenant in TENANTS:
        before, after = set(deal_hand(tenant, 128, 4)), set(deal_hand(tenant, 256, 4))
        assert all(slot in before for slot in after if slot < 128)
        kept += len(before & after)
    assert kept / (4 * len(TENANTS)) == pytest.approx(0.5, abs=0.02)


@pytest.mark.no_cover
def test_one_more_lane_moves_few() -> None:
    changed = sum(set(deal_hand(tenant, 128, 4)) != set(deal_hand(tenant, 129, 4)) for tenant in TENANTS)
    assert changed / len(TENANTS) == pytest.approx(4 / 129, abs=0.015)


@given(SLOTS, IDS, URGENCY)
def test_a_lane_says_what_it_is(slot: int, tenant: int, priority: int) -> None:
    shared, own, spill = shared_lane(slot, priority), own_lane(tenant, priority), spill_lane(tenant, priority)
    assert 0 <= shared < own
    assert spill < 0
    assert get_priority(shared) == get_priority(own) == get_priority(spill) == priority
    assert get_rank(shared) == get_rank(own) == priority
    assert get_rank(spill) == PRIORITY_LEVELS + priority


@given(st.tuples(IDS, URGENCY), st.tuples(IDS, URGENCY))
def test_no_two_share_a_lane_of_their_own(one: tuple[int, int], other: tuple[int, int]) -> None:
    for lane in (own_lane, spill_lane, shared_lane):
        assert (lane(*one) == lane(*other)) == (one == other)


def test_a_message_goes_to_the_least_deep_lane_of_its_hand() -> None:
    depths = {5: LaneLoad(3, 10), 1: LaneLoad(1, 30), 9: LaneLoad(1, 20), 7: EMPTY_LANE}
    assert find_least_loaded([5, 1, 9], depths) == 9, "of two, the one whose turn was the longest ago"
    assert find_least_loaded([5, 1, 7], depths) == 7, "one that is yet to be made is empty"
    assert find_least_loaded([5], depths) == 5


@given(
    st.dictionaries(st.integers(0, 90), st.builds(LaneLoad, st.integers(0, 5), st.integers(0, 5)), min_size=1),
    st.data(),
)
def test_no_lane_of_the_hand_is_less_deep(depths: dict[int, LaneLoad], data: st.DataObject) -> None:
    lanes = data.draw(st.lists(st.sampled_from(sorted(depths)), min_size=1, unique=True))
    chosen = find_least_loaded(lanes, depths)
    assert chosen in lanes
    assert depths[chosen] == min(depths[lane] for lane in lanes)


@given(st.lists(st.integers(0, 100), min_size=4, max_size=4), st.integers(1, 500))
def test_a_batch_fills_the_lanes_of_a_hand_evenly_run_after_run(ready: list[int], count: int) -> None:
    """No lane is chosen while another has fewer messages, counted in runs."""
    placing = LanePlacement({lane: LaneLoad(depth, 0) for lane, depth in enumerate(ready)})
    depths = list(ready)
    for _ in range(count):
        lane = placing.choose_lane((0, 1, 2, 3))
        depths[lane] += 1
    touched = [depth for depth, before in zip(depths, ready, strict=True) if depth > before]
    assert sum(depths) == sum(ready) + count
    assert max(touched) - min(depths) <= 2 * RUN


def test_tenants_of_one_batch_have_runs_of_their_own() -> None:
    placing = LanePlacement(dict.fromkeys(range(8), EMPTY_LANE))
    assert [placing.choose_lane(hand) for _ in range(3) for hand in ((0, 1), (4, 5))] == [0, 4] * 3
    assert [placing.choose_lane((0, 1)) for _ in range(RUN)] == [0] * (RUN - 3) + [1] * 3


def test_a_lane_of_ones_own_is_told_from_shared_and_spill_lanes() -> None:
    assert is_own_lane(own_lane(7, 2))
    assert not is_own_lane(shared_lane(4095, PRIORITY_LEVELS - 1))
    assert not is_own_lane(spill_lane(7, 2))


def test_the_lanes_of_a_hand_have_the_priority_of_the_message() -> None:
    assert get_hand_lanes("a", 1, 128, 4) == tuple(shared_lane(slot, 1) for slot in deal_hand("a", 128, 4))


@given(IDS)
def test_the_lanes_of_a_tenant_are_its_own_and_its_overflow_lanes(tenant: int) -> None:
    lanes = tenant_lanes(tenant)
    assert [lane for lane in lanes if lane >= 0] == [own_lane(tenant, priority) for priority in range(PRIORITY_LEVELS)]
    assert [lane for lane in lanes if lane < 0] == [spill_lane(tenant, priority) for priority in range(PRIORITY_LEVELS)]
    assert all(is_own_lane(lane) for lane in lanes if lane >= 0)
    assert not set(lanes).intersection(tenant_lanes(tenant + 1))
