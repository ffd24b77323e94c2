"""The promises about order: urgent and fresh messages first, but each gets a share; expired messages are dropped."""

import pytest

from holdfast.queue.message import Bury, Release, RetryLater
from holdfast.testing.queue.probe import BackendSuite, DepthCounts, Probe, ids, message


class TurnSuite(BackendSuite):
    """Tests of messages that wait in the same queue."""

    def test_urgent_messages_come_first(self, work: Probe) -> None:
        sent = {priority: work.put(f"t{priority}", 2, priority=priority) for priority in (3, 0, 2, 1)}
        found = ids(work.drain(1))
        assert [sorted(found[place : place + 2]) for place in (0, 2, 4, 6)] == [sent[rank] for rank in range(4)]

    def test_messages_of_one_tenant_and_priority_come_in_their_order(self, work: Probe) -> None:
        work.change_policy(lanes=1, lanes_per_tenant=1)
        sent = [number for _ in range(5) for number in work.put(count=3)]
        assert ids(work.drain(4)) == sent

    def test_less_urgent_messages_are_not_starved(self, work: Probe) -> None:
        """However many urgent ones wait: they get a share of the leases, the least urgent first."""
        work.change_policy(low_priority_share=0.1)
        work.put("urgent", 500, priority=0)
        low = set(work.put("low", 20, priority=3))
        found: list[int] = []
        for _ in range(100):
            found += ids(work.lease(1, leased_so_far=len(found)))
        assert len(low.intersection(found)) == 10
        assert len(low.intersection(ids(work.lease(100, leased_so_far=100)))) == 10

    def test_spilled_messages_are_not_starved(self, work: Probe) -> None:
        """However many others wait; without a share they come last."""
        work.change_policy(spill_above=10)
        spilled = set(work.put("deep", 60)[10:])
        for tenant in range(40):
            work.put(f"t{tenant}", 10)
        assert not spilled.intersection(ids(work.lease(100)))
        work.change_policy(spill_share=0.1)
        assert len(spilled.intersection(ids(work.lease(100)))) == 10

    def test_no_tenant_waits_behind_the_backlog_of_another(self, work: Probe) -> None:
        work.change_policy(spill_above=None)
        for tenant in range(3):
            work.put(f"noisy {tenant}", 400)
        quiet = [number for tenant in range(20) for number in work.put(f"quiet {tenant}")]
        assert set(quiet) <= set(ids(work.lease(100)))

    def test_a_lone_tenant_gets_all_leases(self, work: Probe) -> None:
        work.change_policy(spill_above=50)
        sent = work.put(count=200)
        assert sorted(ids(work.lease(200))) == sent

    def test_after_an_outage_fresh_messages_come_before_the_backlog(self, work: Probe) -> None:
        """Even more than `spill_above`: the backlog delays no fresh message."""
        work.change_policy(spill_above=10, fresh_for=60.0)
        tenants = [f"t{number}" for number in range(5)]
        old = {number for tenant in tenants for number in work.put(tenant, 30)}
        work.advance_time(3600.0)
        fresh = {number for tenant in tenants for number in work.put(tenant, 2)}
        fresh |= {one.id for tenant in tenants for one in work.send_accepted(message(tenant))}
        assert {*ids(work.lease(15))} == fresh
        assert {*ids(work.drain())} == old


class AgeSuite(BackendSuite):
    """Tests of messages that wait long."""

    def test_fresh_messages_come_before_the_backlog(self, work: Probe) -> None:
        work.change_policy(fresh_for=60.0, lanes=1, lanes_per_tenant=1)
        old = []
        for _ in range(3):
            old += work.put()
            work.advance_time(1.0)
        work.advance_time(100.0)
        fresh = []
        for _ in range(3):
            fresh += work.put()
            work.advance_time(1.0)
        assert ids(work.drain(1)) == [*fresh, *old]

    def test_backlog_messages_get_a_share_of_the_leases(self, work: Probe) -> None:
        """The share is counted over all leases of a worker, whether it leases one message at a time or many."""
        work.change_policy(fresh_for=60.0, backlog_share=0.1)
        old = set(work.put("a", 50) + work.put("b", 50))
        work.advance_time(100.0)
        for size in (1, 7, 100):
            work.put("a", 100)
            work.put("c", 100)
            found: list[int] = []
            while len(found) < 100:
                found += ids(work.lease(min(size, 100 - len(found)), leased_so_far=len(found)))
            assert len(old.intersection(found)) == 10

    def test_without_a_share_backlog_messages_come_after_fresh_ones(self, work: Probe) -> None:
        work.change_policy(fresh_for=60.0, backlog_share=0.0)
        old = set(work.put(count=20))
        work.advance_time(100.0)
        work.put(count=150)
        assert not old.intersection(ids(work.lease(100)))

    def test_an_unused_share_goes_to_other_messages(self, work: Probe) -> None:
        work.change_policy(backlog_share=0.3, low_priority_share=0.3, spill_share=0.3)
        sent = work.put(count=100)
        assert sorted(ids(work.lease(100))) == sent
        work.put(count=10)
        work.advance_time(1000.0)
        assert len(work.lease(10)) == 10

    def test_a_delayed_message_is_fresh(self, work: Probe) -> None:
        work.change_policy(fresh_for=60.0)
        [delayed] = work.put("a", delay=1000.0)
        [failed] = work.put("b")
        work.settle(RetryLater(1000.0), work.lease_one())
        work.advance_time(900.0)
        work.put("c")
        assert all(lane.oldest_since is not None for lane in work.inspect().lanes if lane.ready)
        oldest = min(lane.oldest_since for lane in work.inspect().lanes if lane.oldest_since is not None)
        assert oldest == pytest.approx(work.now, abs=0.01)
        work.advance_time(101.0)
        assert sorted(ids(work.lease(2))) == sorted([delayed, failed])

    def test_a_released_message_keeps_its_age(self, work: Probe) -> None:
        work.change_policy(fresh_for=60.0)
        work.put()
        held = work.lease_one(lease=1000.0)
        work.advance_time(100.0)
        [fresh] = work.put()
        work.settle(Release(), held)
        assert ids(work.lease(1)) == [fresh]
        assert work.lease_one().ready_since == held.ready_since

    def test_a_message_is_dropped_when_it_is_older_than_its_ttl(self, work: Probe) -> None:
        """Its own ttl or, without one, the queue's."""
        work.change_policy(ttl=10.0)
        work.put()
        [longer] = work.put(ttl=100.0)
        work.put(ttl=1.0)
        work.advance_time(11.0)
        found = work.request_lease()
        assert (ids(found.deliveries), found.dropped) == ([longer], 2)
        work.ack(*found.deliveries)
        work.change_policy(ttl=None)
        work.put(ttl=5.0)
        [kept] = work.put()
        work.advance_time(50.0)
        found = work.request_lease()
        assert ids(found.deliveries) == [kept]
        assert found.dropped == 1
        assert work.depth == DepthCounts(leased=1)

    def test_a_ttl_counts_from_when_a_message_is_due(self, work: Probe) -> None:
        """A delay does not use it up, and a retry does not renew it."""
        work.change_policy(ttl=10.0)
        [delayed] = work.put(delay=100.0)
        work.advance_time(105.0)
        delivery = work.lease_one()
        assert delivery.id == delayed
        work.settle(RetryLater(6.0), delivery)
        work.advance_time(7.0)
        found = work.request_lease()
        assert (list(found.deliveries), found.dropped) == ([], 1)

    def test_a_ttl_of_its_own_counts_from_when_a_message_is_due(self, work: Probe) -> None:
        [delayed] = work.put(delay=100.0, ttl=10.0)
        work.advance_time(105.0)
        assert work.lease_one(lease=1.0).id == delayed
        work.advance_time(6.0)
        found = work.request_lease()
        assert (list(found.deliveries), found.dropped) == ([], 1)

    def test_a_sweep_does_not_drop_leased_messages(self, work: Probe) -> None:
        work.put("ttl", ttl=5.0)
        work.put("first")
        work.put("again")
        held = {one.tenant: one for one in work.lease(lease=100.0)}
        work.settle(RetryLater(1.0), held["again"])
        work.advance_time(2.0)
        held["again"] = work.lease_one(lease=100.0)
        work.advance_time(10.0)
        assert work.backend.sweep("work", work.now) == 0
        assert work.depth == DepthCounts(leased=3)
        work.ack(*held.values())

    def test_a_leased_message_that_expires_is_not_delivered_again(self, work: Probe) -> None:
        """But the worker may finish it."""
        work.change_policy(ttl=10.0)
        work.put(count=2)
        one, _ = work.lease(lease=20.0)
        work.advance_time(15.0)
        work.ack(one)
        work.advance_time(10.0)
        found = work.request_lease()
        assert (list(found.deliveries), found.dropped, found.redelivered) == ([], 1, 0)
        assert work.depth == DepthCounts()

    def test_a_sweep_drops_messages_sent_before_a_time(self, work: Probe) -> None:
        """Not messages that are leased, dead, or sent since."""
        work.put("a", 3)
        work.put("b", 2, priority=0)
        [held] = work.lease(1)
        work.put("dead")
        [dead] = [one for one in work.lease() if one.tenant == "dead"]
        work.settle(Bury("why"), dead)
        work.advance_time(100.0)
        work.backend.sweep("work")
        work.lease(1)
        before = work.depth
        assert work.backend.sweep("work", work.now - 200.0) == 0
        assert work.depth == before
        edge = work.now
        work.advance_time(1.0)
        [fresh] = work.put("c")
        swept = work.backend.sweep("work", edge)
        assert swept == before.ready
        assert work.depth == DepthCounts(ready=1, leased=before.leased, dead=1)
        assert fresh in ids(work.lease())
        assert held.id not in ids(work.lease())

    def test_a_sweep_drops_messages_that_wait_for_a_retry(self, work: Probe) -> None:
        """It was sent before, though it is due later. A message that was sent with a delay is not dropped."""
        work.put("a")
        work.settle(RetryLater(1000.0), work.lease_one())
        [later] = work.put("a", delay=1000.0)
        work.advance_time(1.0)
        assert work.depth == DepthCounts(delayed=2)
        assert work.backend.sweep("work", work.now) == 1
        work.advance_time(1001.0)
        assert ids(work.lease()) == [later]

    def test_a_sweep_drops_expired_messages(self, work: Probe) -> None:
        work.put("a", 3, ttl=1.0)
        [kept] = work.put("a")
        work.advance_time(2.0)
        assert work.backend.sweep("work") == 3
        assert work.depth == DepthCounts(ready=1)
        work.change_policy(ttl=10.0)
        work.put("b", 2)
        longer = work.put("b", 2, ttl=100.0)
        work.advance_time(20.0)
        assert work.backend.sweep("work") == 3
        assert work.depth == DepthCounts(ready=2)
        assert sorted(ids(work.lease())) == longer
        assert kept not in longer

    def test_a_sweep_ends_delays_and_leases(self, work: Probe) -> None:
        work.put()
        work.lease_one(lease=5.0)
        work.put(delay=5.0)
        work.advance_time(6.0)
        assert work.depth == DepthCounts(leased=1, delayed=1)
        assert work.backend.sweep("work") == 0
        assert work.depth == DepthCounts(ready=2)
