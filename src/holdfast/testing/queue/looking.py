"""What `look` promises: exact numbers, of lanes and of tenants."""

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.backend import Stage, Totals, totals_of
from holdfast.queue.message import Ack, Bury, RetryLater
from holdfast.queue.policy import Limits
from holdfast.testing.queue.probe import Depth, Probe, Suite


class Looking(Suite):
    """How deep a queue is."""

    def test_an_empty_queue_has_nothing(self, work: Probe) -> None:
        """Neither lanes nor tenants."""
        snapshot = work.look("nobody")
        assert (snapshot.queue, list(snapshot.lanes), list(snapshot.tenants)) == ("work", [], [])
        assert (list(snapshot.topics), snapshot.lanes_left_out) == ([], 0)
        assert snapshot.totals == Totals()

    def test_all_queues_are_listed_by_name(self, work: Probe) -> None:
        """Also one that nobody has sent to."""
        work.another("another")
        assert list(work.backend.queues()) == ["another", "work"]

    def test_every_step_is_counted(self, work: Probe) -> None:
        """In the lanes, and with the tenant."""
        work.put(count=6)
        work.put(count=2, delay=10.0)
        assert work.depth == Depth(ready=6, delayed=2)
        done, again, bury, *held = work.lease(5)
        assert work.depth == Depth(ready=1, leased=5, delayed=2)
        work.settle(Ack(), done)
        work.settle(RetryLater(5.0), again)
        work.settle(Bury("why"), bury)
        assert work.depth == Depth(ready=1, leased=2, delayed=3, dead=1)
        tenant = work.tenant()
        assert (tenant.ready, tenant.spilled, tenant.leased, tenant.dead) == (1, 0, 2, 1)
        assert len(held) == 2

    def test_the_oldest_is_the_one_that_waits_the_longest(self, work: Probe) -> None:
        """In each lane; none where nobody waits."""
        work.policy(lanes=1, hand=1)
        work.put()
        first = work.now
        work.elapse(5.0)
        work.put()
        [lane] = work.look().lanes
        assert lane.oldest == pytest.approx(first, abs=0.01)
        [held] = work.lease(1)
        [lane] = work.look().lanes
        assert lane.oldest == pytest.approx(first + 5.0, abs=0.01)
        work.lease(1)
        [lane] = work.look().lanes
        assert (lane.oldest, lane.leased) == (None, 2)
        assert held.attempt == 1

    def test_the_tenants_with_the_most_are_listed(self, work: Probe) -> None:
        """The deepest first, and those that were asked for."""
        for place, tenant in enumerate("abcdef"):
            work.put(tenant, 1 + place * 2)
        found = work.backend.look("work", tenants=["a", "nobody"], top=2).tenants
        assert [(one.tenant, one.ready) for one in found] == [("f", 11), ("e", 9), ("a", 1)]
        assert list(work.backend.look("work", top=0).tenants) == []
        assert [one.tenant for one in work.backend.look("work", top=100).tenants] == list("fedcba")
        with pytest.raises(InvalidValue, match="-1"):
            work.backend.look("work", top=-1)

    def test_a_tenant_that_is_asked_for_is_listed_once(self, work: Probe) -> None:
        """Though it is one of the deepest, or has nothing but limits."""
        work.put("a")
        work.limit("b", concurrency=3)
        found = work.look("a", "a", "b").tenants
        assert [(one.tenant, one.limits) for one in found] == [("a", None), ("b", Limits(concurrency=3))]

    def test_single_messages_can_be_looked_for(self, work: Probe) -> None:
        """Where each is in its life, and until when; those that are done, or of other queues, are not there."""
        work.needs("groups")
        [elsewhere] = work.another("other").put()
        [done, dead, leased, failed] = work.put(count=4)
        held = {one.id: one for one in work.lease(lease=20.0)}
        work.settle(Ack(), held[done])
        work.settle(Bury("why"), held[dead])
        work.settle(RetryLater(10.0), held[failed])
        [delayed] = work.put("b", delay=5.0)
        waiting, behind = work.put("b", 2, group="g")
        asked = [done, dead, leased, failed, delayed, waiting, behind, elsewhere, 0, -1, 1 << 70]
        now = work.now
        found = work.backend.look("work", messages=asked).messages
        assert {number: (one.tenant, one.stage, one.attempts) for number, one in found.items()} == {
            dead: ("a", Stage.DEAD, 1),
            leased: ("a", Stage.LEASED, 1),
            failed: ("a", Stage.DELAYED, 1),
            delayed: ("b", Stage.DELAYED, 0),
            waiting: ("b", Stage.WAITING, 0),
            behind: ("b", Stage.DELAYED, 0),
        }
        untils = {number: None if one.until is None else round(one.until - now, 2) for number, one in found.items()}
        assert untils == {dead: None, leased: 20.0, failed: 10.0, delayed: 5.0, waiting: None, behind: None}
        assert found[failed].sent == pytest.approx(now, abs=0.01)
        assert found[delayed].sent == pytest.approx(now + 5.0, abs=0.01)
        work.elapse(15.0)
        assert work.backend.look("work", messages=[failed]).messages[failed].stage is Stage.WAITING

    def test_lanes_can_be_left_out(self, work: Probe) -> None:
        """For who wants to know of a tenant alone."""
        work.put()
        snapshot = work.backend.look("work", lanes=False, tenants=["a"])
        assert (list(snapshot.lanes), snapshot.lanes_left_out) == ([], 0)
        assert snapshot.totals == Totals()
        assert [one.tenant for one in snapshot.tenants] == ["a"]

    def test_names_that_nobody_can_have_are_nobodys(self, work: Probe) -> None:
        """Whatever a database thinks of them."""
        work.put()
        assert [one.tenant for one in work.look("\0", "\ud800", "x" * 100_000).tenants] == ["a"]
        for odd in ("\0", "\ud800"):
            assert list(work.backend.dead(work.query(tenant=odd))) == []
            assert list(work.backend.dead(work.query(reason=odd))) == []
        assert list(work.backend.dead(work.query(ids=(-1, 0, 1 << 70), after=1 << 70))) == []

    def test_lanes_of_single_tenants_are_listed_as_well(self, work: Probe) -> None:
        """Spilled messages wait below 0."""
        work.policy(spill_above=2, lanes=1, hand=1)
        work.put(count=5)
        assert sorted((lane.lane < 0, lane.ready) for lane in work.look().lanes) == [(False, 2), (True, 3)]

    def test_all_lanes_together_are_told_as_well(self, work: Probe) -> None:
        """What is spilled apart from the rest, of lanes and of tenants; and since when the oldest waits."""
        work.policy(spill_above=2, lanes=1, hand=1)
        work.put(count=3)
        first = work.now
        work.settle(Bury("why"), *work.lease(1))
        work.elapse(5.0)
        work.put("b", 2)
        work.put("c", delay=60.0)
        work.put("a", 3)
        found = work.look()
        assert found.totals == totals_of(found.lanes)
        totals, tenant = found.totals, work.tenant()
        assert (totals.ready, totals.spilled, totals.waiting) == (3, 4, 7)
        assert (totals.leased, totals.delayed, totals.dead) == (0, 1, 1)
        assert (tenant.ready, tenant.spilled, tenant.waiting) == (1, 4, 5)
        assert totals.lanes == len(found.lanes) == 2
        assert totals.oldest == totals.oldest_ready == pytest.approx(first, abs=0.01)
