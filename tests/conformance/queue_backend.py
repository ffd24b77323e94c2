"""What the backends that come with Holdfast do beyond the promises of the seam, as tests to inherit.

How lanes are chosen and searched is for each backend to decide. The built-in ones follow one set of rules, and these
tests hold them to it: where messages are placed, and what happens beyond the numbers that one step looks at.
"""

from collections.abc import Sequence

import pytest

from holdfast.queue.message import Bury, OutgoingMessage, RefusalReason, RefusedMessage, Release, SentMessage
from holdfast.queue.policy import Limits
from holdfast.queue.rules.admission import FORGET_AFTER
from holdfast.queue.rules.placement import get_hand_lanes
from holdfast.testing.queue import BackendConformance, Probe
from holdfast.testing.queue.probe import DepthCounts, ids, message


class BuiltInConformance(BackendConformance):
    """All promises of the seam, and the rules of the built-in backends. Override the fixture `backend`."""

    def test_somebody_elses_message_is_among_the_next_into_however_many_lanes_they_divide(self, work: Probe) -> None:
        """No lane has a second one before all have had one."""
        work.change_policy(lanes=64, lanes_per_tenant=4, spill_above=None)
        work.put("noisy", 400)
        [quiet] = work.put("quiet")
        assert quiet in ids(work.lease(7))

    def test_one_message_at_a_time_all_lanes_have_their_turn(self, work: Probe) -> None:
        work.change_policy(spill_above=None)
        work.put("noisy", 400)
        quiet = [number for tenant in range(10) for number in work.put(f"quiet {tenant}")]
        found: list[int] = []
        for _ in range(40):
            found += ids(work.lease(1))
            work.advance_time(0.002)
        assert set(quiet) <= set(found)

    def test_after_an_outage_nobodys_old_messages_wait_behind_all_that_others_have(self, work: Probe) -> None:
        """Of those who sent so much while nobody worked, little is in lanes that others share."""
        work.change_policy(spill_above=10, fresh_for=60.0, lanes=2, lanes_per_tenant=2)
        quiet: list[int] = []
        for minute in range(60):
            work.put("noisy", 20)
            quiet += work.put("quiet") if minute > 54 else []
            work.advance_time(60.0)
        assert {*quiet} <= {*ids(work.lease(100))}

    def test_of_what_was_spilled_fresh_messages_come_first_too(self, work: Probe) -> None:
        work.change_policy(fresh_for=60.0)
        work.set_limits(spill_rate=0.001, spill_burst=1.0)
        old = work.put(count=40)
        work.advance_time(61.0)
        fresh = work.put(count=20)
        assert ids(work.lease(1)) == old[:1]
        assert ids(work.lease(5)) == fresh[:5]
        work.change_policy(backlog_share=0.2)
        assert sorted(ids(work.lease(10))) == sorted([*old[1:3], *fresh[5:13]])

    def test_fresh_messages_are_found_behind_very_many_lanes_of_old_ones(self, work: Probe) -> None:
        """Where every tenant has a lane of its own, there are more of them than can be looked at each time."""
        work.change_policy(lanes_per_tenant=0)
        work.send_accepted(*(message(f"t{number}") for number in range(600)))
        work.advance_time(3600.0)
        fresh = work.put("t599")
        assert ids(work.lease(1)) == fresh

    def test_fresh_messages_are_found_behind_very_many_lanes_that_had_some(self, work: Probe) -> None:
        """What was fresh there is handed out; what came after that is not behind what is old."""
        work.change_policy(lanes_per_tenant=0)
        everybody = [message(f"t{number:04}") for number in range(1100)]
        work.send_accepted(*everybody)
        work.advance_time(3600.0)
        work.send_accepted(*everybody)
        for _ in range(11):
            work.ack(*work.lease(100))
            work.advance_time(0.01)
        fresh = work.put("t1099")
        work.advance_time(0.01)
        assert ids(work.lease(1)) == fresh

    def test_fresh_messages_are_found_behind_very_many_tenants_excess(self, work: Probe) -> None:
        """There is a lane for each tenant's."""
        work.change_policy(limits=Limits(spill_rate=0.001, spill_burst=1.0), lanes_per_tenant=0)
        work.send_accepted(*(message(f"t{number % 520}") for number in range(1040)))
        work.ack(*work.lease(520))
        assert work.inspect().totals.spilled == 520
        work.advance_time(61.0)
        fresh = work.put("t519")
        assert ids(work.lease(1)) == fresh

    def test_all_that_is_wanted_is_found_whatever_has_expired_beside_it(self, work: Probe) -> None:
        """What is too old to be handed out is in nobody's way, and hides nothing."""
        work.change_policy(
            lanes=1, lanes_per_tenant=1, spill_above=None, fresh_for=60.0, low_priority_share=0.1, backlog_share=0.5
        )
        work.put(count=50, ttl=5.0)
        sent = [*work.put(count=10), *work.put(count=30, priority=3)]
        work.advance_time(3600.0)
        sent += work.put(count=10, priority=3)
        found = work.request_lease(50)
        assert (found.dropped, sorted(ids(found.deliveries))) == (50, sent)

    def test_a_sweep_drops_any_number(self, work: Probe) -> None:
        """More than fit into one step."""
        for _ in range(3):
            work.put("a", 900)
        [kept] = work.put("b", delay=5.0)
        work.advance_time(10.0)
        assert work.backend.sweep("work", work.now - 7.0) == 2700
        assert work.depth == DepthCounts(ready=1)
        assert work.tenant("a").waiting == 0
        assert work.lease_one().id == kept

    def test_as_many_are_accepted_in_a_batch_as_one_by_one_at_the_same_time(self, work: Probe) -> None:
        """A hundred without restriction, then fewer than a second of the rate, which falls with each of them."""
        work.change_policy(max_waiting=1000, rate_under_backpressure=100.0)
        apart = [work.send(message("apart"))[0] for _ in range(196)]
        together = work.send(*[message("together")] * 1000)
        for results in (apart, together):
            refused = [one for one in results if isinstance(one, RefusedMessage)]
            assert len(results) - len(refused) == 194
            assert [one.retry_after for one in refused] == pytest.approx([0.0034] * len(refused), abs=1e-4)

    def test_a_rate_above_a_thousand_is_a_rate(self, work: Probe) -> None:
        """Also for whoever sends one at a time."""
        work.set_limits(max_rate=10_000.0, max_burst=20.0)
        kept = [isinstance(work.send(message())[0], SentMessage) for _ in range(30)]
        assert kept == [True] * 20 + [False] * 10
        work.advance_time(0.001)
        assert sum(isinstance(one, SentMessage) for one in work.send(*[message()] * 30)) == pytest.approx(10, abs=1)

    def test_whoever_waits_behind_very_many_at_their_limits_is_found_without_delay(self, work: Probe) -> None:
        """More than are looked at at once: a worker is told to ask again, and not to wait."""
        tenants = [f"t{number}" for number in range(600)]
        work.change_policy(limits=Limits(concurrency=1))
        for _ in range(2):
            work.send_accepted(*map(message, tenants))
        while work.lease(200, lease=1000.0):
            pass
        assert work.depth == DepthCounts(ready=600, leased=600)
        work.advance_time(2.0)
        work.set_limits("late", spill_rate=1e-6, spill_burst=1.0)
        work.put("late", 3)
        assert [one.tenant for one in work.lease(3, lease=1000.0)] == ["late"] * 3
        work.put("late", 2)
        found, asked = work.request_lease(2), 1
        while not found.deliveries and asked < 20:
            assert found.next_due == 0.0
            found, asked = work.request_lease(2), asked + 1
        assert [one.tenant for one in found.deliveries] == ["late"] * 2

    def test_names_that_nobody_can_have_are_nobodys(self, work: Probe) -> None:
        work.put()
        assert [one.tenant for one in work.inspect("\0", "\ud800", "x" * 100_000).tenants] == ["a"]
        for odd in ("\0", "\ud800"):
            assert list(work.backend.list_dead_letters(work.query(tenant=odd))) == []
            assert list(work.backend.list_dead_letters(work.query(reason=odd))) == []
        assert list(work.backend.list_dead_letters(work.query(ids=(-1, 0, 1 << 70), after=1 << 70))) == []

    def test_lanes_of_single_tenants_are_listed_as_well(self, work: Probe) -> None:
        work.change_policy(spill_above=2, lanes=1, lanes_per_tenant=1)
        work.put(count=5)
        assert sorted((lane.lane < 0, lane.ready) for lane in work.inspect().lanes) == [(False, 2), (True, 3)]

    def test_a_tenant_uses_few_of_the_lanes(self, work: Probe) -> None:
        work.change_policy(lanes=64, lanes_per_tenant=4, spill_above=None)
        lanes = [one.lane for _ in range(80) for one in work.send_accepted(*_alike(1))]
        assert len(set(lanes)) == 4
        assert all(lanes.count(lane) == 20 for lane in set(lanes))
        many = [one.lane for one in work.send_accepted(*_alike(800))]
        assert set(many) == set(lanes)
        assert all(180 <= many.count(lane) <= 220 for lane in set(lanes)), "of many at once, some at a time"

    def test_a_message_goes_to_the_least_deep_lane_of_the_hand(self, work: Probe) -> None:
        work.change_policy(lanes=64, lanes_per_tenant=2, spill_above=None)
        first, second, *_ = [one.lane for _ in range(6) for one in work.send_accepted(*_alike(1))]
        assert first != second
        held = work.lease()
        gone = [one for one in held if one.lane == first]
        assert len(gone) == 3
        work.ack(*gone)
        work.settle(Release(), *(one for one in held if one.lane == second))
        assert [one.lane for one in work.send_accepted(*_alike(3))] == [first] * 3

    def test_a_tenant_chooses_among_all_of_its_hand_whoever_was_there_before(self, work: Probe) -> None:
        """Also with its first message of a priority, one by one: lanes that are there already are those of others."""
        work.change_policy(lanes=64, lanes_per_tenant=4, spill_above=None)
        noisy = {lane for tenant in "xyz" for lane in _hand(tenant)}
        tenants = [tenant for number in range(60) if 0 < len(noisy.intersection(_hand(tenant := f"t{number}"))) < 4]
        assert len(tenants) > 10
        work.send_accepted(*(message(tenant) for tenant in tenants))
        for tenant in "xyz":
            work.put(tenant, 200, priority=0)
        assert not noisy.intersection(
            one.lane for tenant in tenants for one in work.send_accepted(message(tenant, priority=0))
        )

    def test_priorities_have_lanes_of_their_own(self, work: Probe) -> None:
        work.change_policy(lanes=1, lanes_per_tenant=1)
        assert len({one.lane for priority in range(4) for one in work.send_accepted(*_alike(2, priority))}) == 4

    def test_with_a_hand_of_0_each_tenant_has_a_lane_of_its_own(self, work: Probe) -> None:
        work.change_policy(lanes_per_tenant=0)
        lanes = {tenant: {one.lane for one in work.send_accepted(*_alike(3, 2, tenant))} for tenant in "abcdefgh"}
        assert all(len(some) == 1 for some in lanes.values())
        assert len(set.union(*lanes.values())) == 8
        found = work.lease(8)
        assert sorted(one.tenant for one in found) == list("abcdefgh")
        assert len(work.drain()) == 16
        assert work.depth == DepthCounts(leased=8)

    def test_whoever_asks_for_many_of_many_tenants_gets_many(self, work: Probe) -> None:
        """However the messages lie: a few deep lanes, and many that are nearly empty."""
        for tenant in range(40):
            work.put(f"t{tenant}", 1 + 30 * (tenant % 10 == 0))
        assert len(work.lease(150)) == 150
        assert len(work.lease(150)) == 10

    def test_messages_whose_workers_died_twice_part_so_that_one_that_kills_does_not_take_the_others_with_it(
        self, work: Probe
    ) -> None:
        """Each comes back at another time, within a lease."""
        work.change_policy(max_attempts=3, lease=60.0)
        numbers = work.put(count=8)
        for _ in range(2):
            assert len(work.lease(8, lease=1.0)) == 8
            work.advance_time(2.0)
        assert work.lease(8) == []
        assert work.depth == DepthCounts(delayed=8)
        groups: list[list[int]] = []
        for _ in range(60):
            work.advance_time(1.0)
            groups.append([delivery.id for delivery in work.lease(8)])
        assert sorted(number for group in groups for number in group) == sorted(numbers)
        assert max(map(len, groups)) < 8

    def test_more_lanes_lose_nothing(self, work: Probe) -> None:
        """What waits, is held, delayed, grouped, spilled or dead stays where it is, and is served."""
        self._resized(work, (8, 4), (256, 4))

    def test_fewer_lanes_lose_nothing(self, work: Probe) -> None:
        self._resized(work, (256, 4), (2, 2))

    def test_lanes_of_ones_own_lose_nothing(self, work: Probe) -> None:
        self._resized(work, (64, 4), (64, 0))
        self._resized(work, (64, 0), (16, 2))

    def _resized(self, work: Probe, before: tuple[int, int], after: tuple[int, int]) -> None:
        work.require_capability("groups")
        work.change_policy(lanes=before[0], lanes_per_tenant=before[1], spill_above=20)
        sent: list[int] = []
        for tenant in range(12):
            sent += work.put(f"t{tenant}", 4) + work.put(f"t{tenant}", 2, priority=0)
            sent += work.put(f"t{tenant}", 3, group="g") + work.put(f"t{tenant}", delay=50.0)
        sent += work.put("deep", 60)
        held = work.lease(40)
        dead, back, late = held[:5], held[5:10], held[10:15]
        work.settle(Bury("why"), *dead)
        work.change_policy(lanes=after[0], lanes_per_tenant=after[1])
        work.settle(Release(), *back)
        work.ack(*held[15:])
        gone = set(ids(held[15:]))
        for tenant in range(12):
            sent += work.put(f"t{tenant}", 3)
        assert work.redrive() == 5
        work.advance_time(100.0)
        found = ids(work.drain(30))
        assert len(found) == len(set(found)), "none came twice"
        assert gone.isdisjoint(found)
        assert gone.union(found) == set(sent)
        assert set(ids(late)) <= set(found), "those that were held at the time are delivered again"
        assert work.depth == DepthCounts()

    def test_what_got_past_the_rate_is_moved_aside_when_it_is_found(self, work: Probe) -> None:
        sent = work.put(count=10)
        work.set_limits(spill_rate=1.0, spill_burst=3.0)
        found = work.request_lease()
        assert (len(found.deliveries), found.spilled) == (3, 7)
        assert (work.tenant().ready, work.tenant().spilled) == (0, 7)
        rest = work.lease()
        assert all(one.lane < 0 for one in rest)
        assert sorted(ids([*found.deliveries, *rest])) == sent

    def test_backpressure_grows_with_the_backlog(self, work: Probe) -> None:
        work.change_policy(max_waiting=1000, rate_under_backpressure=100.0)
        taken: list[int] = []
        for depth in (200, 500, 900):
            while (waiting := work.tenant().waiting) < depth:
                work.advance_time(10.0)
                work.send(*[message()] * (depth - waiting))
            work.advance_time(60.0)
            results = work.send(*[message()] * 200)
            taken.append(sum(isinstance(one, SentMessage) for one in results))
            refused = results[-1]
            assert isinstance(refused, RefusedMessage)
            assert refused.reason is RefusalReason.MAX_WAITING
            assert 0 < refused.retry_after <= 60.0
            work.advance_time(refused.retry_after + 0.001)
            work.put()
        assert taken[0] > taken[1] > taken[2] > 0
        work.change_policy(max_waiting=None)
        work.put(count=1000)

    def test_a_sweep_forgets_tenants_that_nothing_refers_to(self, work: Probe) -> None:
        """After a while, and whatever they had. A tenant that comes back is like a new one."""
        work.change_policy(spill_above=2, dedupe_for=2000.0)
        done = {"handled", "spilled", "in a group", "alone"}
        work.put("handled")
        work.put("spilled", 5)
        work.put("in a group", 2, group="g")
        work.put("with a key", key="k")
        work.drain()
        work.put("dead")
        work.settle(Bury("why"), work.lease_one())
        work.put("held", 2, group="g")
        held = work.lease_one(lease=40_000.0)
        work.set_limits("alone")
        work.set_limits("limited", spill_rate=5.0)
        work.put("waits")
        work.put("delayed", delay=30_000.0)
        kept = {"with a key", "dead", "held", "limited", "waits", "delayed"}

        def known() -> set[str]:
            work.backend.sweep("work")
            return {one.tenant for one in work.inspect(*done, *kept).tenants}

        work.advance_time(FORGET_AFTER - 1.0)
        assert known() == kept | done - {"alone"}, "which never had a message"
        work.advance_time(2.0)
        assert known() == kept
        assert [one.is_spilled for one in work.send_accepted(*[message("spilled")] * 3)] == [False, False, True]
        assert len(work.drain()) == 4
        work.ack(held)
        assert work.redrive() == 1
        work.advance_time(30_000.0)
        assert len(work.drain()) == 3
        work.set_limits("limited")
        work.advance_time(FORGET_AFTER + 1.0)
        assert known() == set()
        assert work.depth == DepthCounts()

    def test_a_tenant_is_not_forgotten_if_it_would_come_before_others_then(self, work: Probe) -> None:
        """Its lane was served after theirs, and a new one is served first."""
        work.change_policy(lanes_per_tenant=0, fresh_for=86_400.0)
        work.put("waits", 2)
        work.ack(*work.lease(1))
        work.advance_time(1.0)
        work.put("served")
        work.ack(*work.lease(1))
        work.advance_time(FORGET_AFTER + 1.0)
        work.backend.sweep("work")
        work.put("served")
        assert [one.tenant for one in work.drain(1)] == ["waits", "served"]
        work.advance_time(FORGET_AFTER + 1.0)
        work.backend.sweep("work")
        assert list(work.inspect("waits", "served").tenants) == []


def _hand(tenant: str) -> Sequence[int]:
    return get_hand_lanes(tenant, 0, 64, 4)


def _alike(count: int, priority: int = 2, tenant: str = "a") -> list[OutgoingMessage]:
    return [message(tenant, priority=priority)] * count
