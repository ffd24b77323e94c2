"""Where messages wait: beside others or alone, and what happens when the number of lanes changes."""

from collections.abc import Sequence

from holdfast.queue.message import Bury, Outgoing, Release
from holdfast.queue.rules.placement import lanes_of
from holdfast.testing.queue.probe import Depth, Probe, Suite, ids, message


class Lanes(Suite):
    """Lanes, hands, and changing both on a running queue."""

    def test_a_tenant_uses_few_of_the_lanes(self, work: Probe) -> None:
        """As many as its hand has, by turns; so that it fills no more than those."""
        work.policy(lanes=64, hand=4, spill_above=None)
        lanes = [one.lane for _ in range(80) for one in work.kept(*_alike(1))]
        assert len(set(lanes)) == 4
        assert all(lanes.count(lane) == 20 for lane in set(lanes))
        many = [one.lane for one in work.kept(*_alike(800))]
        assert set(many) == set(lanes)
        assert all(180 <= many.count(lane) <= 220 for lane in set(lanes)), "of many at once, some at a time"

    def test_a_message_goes_to_the_least_deep_lane_of_the_hand(self, work: Probe) -> None:
        """Counted in what waits there now."""
        work.policy(lanes=64, hand=2, spill_above=None)
        first, second, *_ = [one.lane for _ in range(6) for one in work.kept(*_alike(1))]
        assert first != second
        held = work.lease()
        gone = [one for one in held if one.lane == first]
        assert len(gone) == 3
        work.done(*gone)
        work.settle(Release(), *(one for one in held if one.lane == second))
        assert [one.lane for one in work.kept(*_alike(3))] == [first] * 3

    def test_a_tenant_chooses_among_all_of_its_hand_whoever_was_there_before(self, work: Probe) -> None:
        """Also with its first message of a priority, one by one: lanes that are there already are those of others."""
        work.policy(lanes=64, hand=4, spill_above=None)
        noisy = {lane for tenant in "xyz" for lane in _hand(tenant)}
        tenants = [tenant for number in range(60) if 0 < len(noisy.intersection(_hand(tenant := f"t{number}"))) < 4]
        assert len(tenants) > 10
        work.kept(*(message(tenant) for tenant in tenants))
        for tenant in "xyz":
            work.put(tenant, 200, priority=0)
        assert not noisy.intersection(one.lane for tenant in tenants for one in work.kept(message(tenant, priority=0)))

    def test_priorities_have_lanes_of_their_own(self, work: Probe) -> None:
        """An urgent message never waits behind one that is not."""
        work.policy(lanes=1, hand=1)
        assert len({one.lane for priority in range(4) for one in work.kept(*_alike(2, priority))}) == 4

    def test_with_a_hand_of_0_each_tenant_has_a_lane_of_its_own(self, work: Probe) -> None:
        """Whatever others do, and however many there are."""
        work.policy(hand=0)
        lanes = {tenant: {one.lane for one in work.kept(*_alike(3, 2, tenant))} for tenant in "abcdefgh"}
        assert all(len(some) == 1 for some in lanes.values())
        assert len(set.union(*lanes.values())) == 8
        found = work.lease(8)
        assert sorted(one.tenant for one in found) == list("abcdefgh")
        assert len(work.drain()) == 16
        assert work.depth == Depth(leased=8)

    def test_more_lanes_lose_nothing(self, work: Probe) -> None:
        """What waits, is held, delayed, grouped, spilled or dead stays where it is, and is served."""
        self._resized(work, (8, 4), (256, 4))

    def test_fewer_lanes_lose_nothing(self, work: Probe) -> None:
        """Lanes that are no more are emptied as others are."""
        self._resized(work, (256, 4), (2, 2))

    def test_lanes_of_ones_own_lose_nothing(self, work: Probe) -> None:
        """Nor does the way back."""
        self._resized(work, (64, 4), (64, 0))
        self._resized(work, (64, 0), (16, 2))

    def _resized(self, work: Probe, before: tuple[int, int], after: tuple[int, int]) -> None:
        work.needs("groups")
        work.policy(lanes=before[0], hand=before[1], spill_above=20)
        sent: list[int] = []
        for tenant in range(12):
            sent += work.put(f"t{tenant}", 4) + work.put(f"t{tenant}", 2, priority=0)
            sent += work.put(f"t{tenant}", 3, group="g") + work.put(f"t{tenant}", delay=50.0)
        sent += work.put("deep", 60)
        held = work.lease(40)
        dead, back, late = held[:5], held[5:10], held[10:15]
        work.settle(Bury("why"), *dead)
        work.policy(lanes=after[0], hand=after[1])
        work.settle(Release(), *back)
        work.done(*held[15:])
        gone = set(ids(held[15:]))
        for tenant in range(12):
            sent += work.put(f"t{tenant}", 3)
        assert work.redrive() == 5
        work.elapse(100.0)
        found = ids(work.drain(30))
        assert len(found) == len(set(found)), "none came twice"
        assert gone.isdisjoint(found)
        assert gone.union(found) == set(sent)
        assert set(ids(late)) <= set(found), "those that were held at the time are delivered again"
        assert work.depth == Depth()


def _hand(tenant: str) -> Sequence[int]:
    return lanes_of(tenant, 0, 64, 4)


def _alike(count: int, priority: int = 2, tenant: str = "a") -> list[Outgoing]:
    return [message(tenant, priority=priority)] * count
