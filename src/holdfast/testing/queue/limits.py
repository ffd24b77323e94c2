"""The promises of limits: each tenant has its own, across all workers, and other tenants are not affected."""

import threading

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.message import OutgoingMessage, RefusalReason, RefusedMessage, Release, RetryLater, SentMessage
from holdfast.queue.policy import Limits, OverMaxRate
from holdfast.testing.queue.probe import STEPS, BackendSuite, DepthCounts, Probe, ids, message, together


class LimitSuite(BackendSuite):
    """Tests of tenants that send, or lease, more than their limits."""

    def test_messages_above_the_rate_are_spilled(self, work: Probe) -> None:
        work.set_limits(spill_rate=1.0, spill_burst=3.0)
        sent = work.send_accepted(*[message()] * 5)
        assert [one.is_spilled for one in sent] == [False] * 3 + [True] * 2
        assert (work.tenant().ready, work.tenant().spilled) == (3, 2)
        work.advance_time(2.0)
        assert [one.is_spilled for one in work.send_accepted(*[message()] * 3)] == [False, False, True]
        assert len(work.drain()) == 8
        assert work.tenant().spilled == 0

    def test_messages_above_the_rate_come_after_others(self, work: Probe) -> None:
        work.set_limits(spill_rate=1.0, spill_burst=2.0)
        sent = work.put("a", 10)
        others = work.put("b", 10)
        found = ids(work.lease(12))
        assert set(found) == {*sent[:2], *others}

    def test_messages_above_spill_above_are_spilled(self, work: Probe) -> None:
        work.change_policy(spill_above=10)
        assert [one.is_spilled for one in work.send_accepted(*[message()] * 15)] == [False] * 10 + [True] * 5
        assert not any(one.is_spilled for one in work.send_accepted(*[message("b")] * 10))
        work.drain()
        assert not any(one.is_spilled for one in work.send_accepted(*[message()] * 10))

    def test_concurrency_limits_leased_messages(self, work: Probe) -> None:
        work.set_limits(concurrency=2)
        work.put(count=7)
        first, second = work.lease()
        assert work.lease() == []
        work.ack(first)
        third = work.lease_one()
        work.settle(Release(), second)
        fourth = work.lease_one()
        work.settle(RetryLater(1000.0), third)
        fifth = work.lease_one()
        assert work.lease() == []
        work.ack(fourth, fifth)
        assert len(work.lease()) == 2
        assert work.tenant().leased == 2

    def test_a_lease_that_ends_makes_room(self, work: Probe) -> None:
        """A crashed worker does not use up its tenant's share for ever."""
        work.set_limits(concurrency=1)
        work.put(count=2)
        assert len(work.lease(lease=5.0)) == 1
        assert work.lease() == []
        work.advance_time(6.0)
        assert len(work.lease()) == 1
        assert work.tenant().leased == 1

    def test_a_tenant_at_its_limit_delays_no_other(self, work: Probe) -> None:
        work.change_policy(lanes=1, lanes_per_tenant=1)
        work.set_limits("a", concurrency=1)
        work.put("a", 150)
        others = work.put("b", 5)
        found = []
        for _ in range(6):
            found += work.lease(50)
        assert set(others) <= set(ids(found))
        assert [one.tenant for one in found].count("a") == 1

    def test_run_rate_limits_leases_per_second(self, work: Probe) -> None:
        work.set_limits(run_rate=10.0, run_burst=2.0)
        work.put(count=20)
        assert len(work.lease()) == 2
        found = work.request_lease()
        assert list(found.deliveries) == []
        assert found.next_due is not None
        assert 0.0 < found.next_due <= 0.11
        work.advance_time(0.11)
        assert len(work.lease()) == 1
        for _ in range(5):
            work.advance_time(10.0)
            assert len(work.lease(lease=1000.0)) == 2

    def test_messages_above_a_cap_are_spilled(self, work: Probe) -> None:
        """A worker sets caps for tenants that lease too much while others wait."""
        work.put("a", 20)
        work.put("b", 20)
        found = work.request_lease(10, caps={"a": 2})
        assert [one.tenant for one in found.deliveries].count("a") == 2
        assert len(found.deliveries) == 10
        assert found.spilled == work.tenant("a").spilled > 0
        again = work.request_lease(10, caps={"a": 2})
        assert [one.tenant for one in again.deliveries].count("a") == 0
        assert len(work.lease(100)) == 20, "without other tenants and without a cap, the rest is leased, too"

    def test_messages_above_max_rate_are_refused(self, work: Probe) -> None:
        work.set_limits(max_rate=2.0, max_burst=3.0)
        results = work.send(*[message()] * 5)
        assert [type(one) for one in results] == [SentMessage] * 3 + [RefusedMessage] * 2
        refused = results[-1]
        assert isinstance(refused, RefusedMessage)
        assert (refused.tenant, refused.reason) == ("a", RefusalReason.MAX_RATE)
        assert refused.retry_after == pytest.approx(0.5, abs=0.01)
        assert work.depth == DepthCounts(ready=3)
        work.advance_time(refused.retry_after - 0.01)
        assert isinstance(work.send(message())[0], RefusedMessage)
        work.advance_time(0.01)
        assert [type(one) for one in work.send(message(), message())] == [SentMessage, RefusedMessage]

    def test_messages_above_max_rate_can_be_delayed(self, work: Probe) -> None:
        """If configured, nothing is refused, and the rate still applies."""
        work.set_limits(max_rate=1.0, max_burst=2.0, over_max_rate=OverMaxRate.DELAY)
        work.send_accepted(*[message()] * 4)
        assert work.depth == DepthCounts(ready=2, delayed=2)
        work.send_accepted(message())
        assert work.depth == DepthCounts(ready=2, delayed=3)
        for _ in range(3):
            assert len(work.lease(lease=1000.0)) in (1, 2)
            work.advance_time(1.001)
        assert len(work.lease(lease=1000.0)) == 1
        assert work.depth == DepthCounts(leased=5)

    @pytest.mark.parametrize("limits", [Limits(max_rate=1.0, max_burst=2.0), Limits(spill_rate=1.0, spill_burst=2.0)])
    def test_each_tenant_has_its_own_limits(self, work: Probe, limits: Limits) -> None:
        work.change_policy(limits=limits)
        for tenant in ("a", "b", "c"):
            sent = work.send(*[message(tenant)] * 3)
            assert sum(isinstance(one, SentMessage) and not one.is_spilled for one in sent) == 2

    def test_one_batch_counts_each_tenant_separately(self, work: Probe) -> None:
        work.change_policy(limits=Limits(max_rate=1.0, max_burst=2.0))
        results = work.send(*(message(tenant) for tenant in "abababc"))
        assert [type(one) for one in results] == [SentMessage] * 4 + [RefusedMessage] * 2 + [SentMessage]
        assert [one.tenant for one in results if isinstance(one, RefusedMessage)] == ["a", "b"]

    def test_a_backlog_is_refused_when_it_is_full(self, work: Probe) -> None:
        """Only that tenant is affected: others that share its lanes send without restriction."""
        work.change_policy(max_waiting=100, lanes=1, lanes_per_tenant=1)
        results = work.send(*[message()] * 103)
        assert [type(one) for one in results] == [SentMessage] * 100 + [RefusedMessage] * 3
        refused = results[-1]
        assert isinstance(refused, RefusedMessage)
        assert (refused.reason, refused.pressure) == (RefusalReason.MAX_WAITING, 1.0)
        assert refused.retry_after > 0
        assert all(isinstance(one, SentMessage) and one.pressure <= 0.1 for one in work.send(*[message("b")] * 9))
        work.set_limits("vip", max_waiting=10_000)
        work.put("vip", 500)
        work.drain()
        work.advance_time(60.0)
        work.put("a", 9)

    def test_a_batch_is_slowed_down_as_its_messages_would_be_one_by_one(self, work: Probe) -> None:
        """Every message of a batch lowers the rate for the next one."""
        work.change_policy(max_waiting=100, rate_under_backpressure=5.5)
        apart = [work.send(message("apart"))[0] for _ in range(20)]
        together = work.send(*[message("together")] * 20)
        for results in (apart, together):
            assert [type(one) for one in results] == [SentMessage] * 15 + [RefusedMessage] * 5
            refused = results[-1]
            assert isinstance(refused, RefusedMessage)
            assert (refused.reason, refused.pressure) == (RefusalReason.MAX_WAITING, 0.15)
            assert refused.retry_after > 0

    @pytest.mark.parametrize("one", [message(delay=3600.0), message(group="g")], ids=["delayed", "in a group"])
    def test_delayed_messages_are_part_of_the_backlog(self, work: Probe, one: OutgoingMessage) -> None:
        """It must be stored, too; and messages that leave make room."""
        work.change_policy(max_waiting=100)
        assert [type(result) for result in work.send(*[one] * 103)] == [SentMessage] * 100 + [RefusedMessage] * 3
        assert isinstance(work.send(message())[0], RefusedMessage)
        assert work.tenant().waiting + work.tenant().delayed == 100
        work.advance_time(7200.0)
        assert len(work.drain()) == 100
        assert work.tenant().delayed == 0
        work.put()

    def test_limits_can_be_changed_while_all_is_running(self, work: Probe) -> None:
        work.set_limits(concurrency=1)
        work.put(count=20)
        held = work.lease(lease=1000.0)
        assert len(held) == 1
        work.set_limits(concurrency=5)
        work.advance_time(2.0)
        held += work.lease(lease=1000.0)
        assert len(held) == 5
        work.set_limits(concurrency=2)
        work.advance_time(2.0)
        work.ack(*held[:3])
        assert work.lease() == []
        work.ack(held[3])
        assert len(work.lease(lease=1000.0)) == 1
        work.set_limits()
        work.advance_time(2.0)
        assert len(work.lease(lease=1000.0)) == 14

    def test_limits_are_stored_with_the_tenant(self, work: Probe) -> None:
        """Also for an unknown tenant. None restores the limits of the queue."""
        work.change_policy(limits=Limits(max_rate=1.0, max_burst=1.0))
        work.set_limits("new", max_rate=1.0, max_burst=3.0)
        assert work.tenant("new").limits == Limits(max_rate=1.0, max_burst=3.0)
        assert sum(isinstance(one, SentMessage) for one in work.send(*[message("new")] * 5)) == 3
        work.set_limits("new")
        assert work.tenant("new").limits is None
        work.advance_time(10.0)
        assert sum(isinstance(one, SentMessage) for one in work.send(*[message("new")] * 5)) == 1

    def test_a_sweep_keeps_the_limits_of_a_tenant(self, work: Probe) -> None:
        """However long it has had no messages."""
        work.set_limits("a", max_rate=1.0, max_burst=3.0)
        work.put("a")
        work.drain()
        work.advance_time(86400.0)
        work.backend.sweep("work")
        assert work.tenant("a").limits == Limits(max_rate=1.0, max_burst=3.0)

    @pytest.mark.parametrize(
        "limits",
        [
            Limits(max_rate=0.001, max_burst=1.0),
            Limits(spill_rate=0.001, spill_burst=1.0),
            Limits(run_rate=0.001, run_burst=1.0),
        ],
        ids=["max_rate", "spill_rate", "run_rate"],
    )
    def test_a_sweep_restores_no_allowance(self, work: Probe, limits: Limits) -> None:
        """A tenant that has used it up must wait for it, though it has had no messages for long."""
        work.change_policy(limits=limits)

        def is_held_back(tenant: str) -> bool:
            [result] = work.send(message(tenant))
            return isinstance(result, RefusedMessage) or result.is_spilled or not work.drain()

        assert not is_held_back("a")
        work.advance_time(900.0)
        work.backend.sweep("work")
        assert not is_held_back("b")
        assert is_held_back("a")

    @pytest.mark.parametrize("tenant", ["", "a\0", "\ud800", "x" * 10_000], ids=["empty", "nul", "half", "long"])
    def test_limits_require_a_valid_tenant(self, work: Probe, tenant: str) -> None:
        with pytest.raises(InvalidValue, match="tenant"):
            work.set_limits(tenant, concurrency=1)

    def test_many_producers_share_the_limits_of_a_tenant(self, work: Probe) -> None:
        work.require_capability("fleet_limits")
        work.set_limits("a", max_rate=1.0, max_burst=50.0)
        work.set_limits("b", spill_rate=1.0, spill_burst=20.0)

        def produce(producer: int) -> tuple[int, int]:
            kept = live = 0
            for _ in range(5):
                pair: list[OutgoingMessage] = (
                    [message("a"), message("b")] if producer % 2 else [message("b"), message("a")]
                )
                for one in work.send(*pair, message(f"c{producer}"), message("a"), message("b")):
                    kept += isinstance(one, SentMessage)
                    live += isinstance(one, SentMessage) and not one.is_spilled
            return kept, live

        made = together(6, produce)
        assert sum(kept for kept, _ in made) == 50 + 60 + 30
        assert sum(live for _, live in made) == 50 + 20 + 30
        assert work.tenant("b").spilled == 40

    def test_many_workers_share_the_concurrency_of_a_tenant(self, work: Probe) -> None:
        work.require_capability("fleet_limits")
        work.set_limits("a", concurrency=3)
        work.set_limits("b", concurrency=2)
        for _ in range(4):
            work.send_accepted(*(message(tenant) for tenant in "ab" * 5 + "c" * 5))
        held: list[str] = []
        handled: list[int] = []
        gate = threading.Lock()

        def serve(worker: int) -> None:
            for _ in range(STEPS):
                some = work.lease(1 + worker)
                with gate:
                    held.extend(one.tenant for one in some)
                    assert held.count("a") <= 3
                    assert held.count("b") <= 2
                    if len(handled) == 60:
                        return
                with gate:
                    for one in some:
                        held.remove(one.tenant)
                    handled.extend(ids(some))
                work.ack(*some)
            raise AssertionError(f"{60 - len(handled)} messages were never leased")

        together(4, serve)
        assert len(set(handled)) == 60
        assert work.depth == DepthCounts()

    def test_many_workers_share_the_run_rate_of_a_tenant(self, work: Probe) -> None:
        work.require_capability("fleet_limits")
        work.set_limits("a", run_rate=10.0, run_burst=7.0)
        work.put("a", 100)
        work.put("b", 10)

        def serve(_: int) -> list[str]:
            return [one.tenant for _ in range(10) for one in work.lease(3, lease=1000.0)]

        handed = [tenant for some in together(4, serve) for tenant in some]
        assert (handed.count("a"), handed.count("b")) == (7, 10)
