"""The promises of `lease` and `settle`: one worker at a time, and no settlement by a former one."""

import math
import threading

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.message import (
    Ack,
    Bury,
    Delivery,
    Disposition,
    Drop,
    ExtendLease,
    Receipt,
    Release,
    RetryLater,
    Settlement,
)
from holdfast.testing.queue.probe import STEPS, BackendSuite, DepthCounts, Probe, ids, together

DISPOSITIONS: tuple[Disposition, ...] = (Ack(), RetryLater(1.0), Bury("why"), Release(), ExtendLease(60.0), Drop())


class LeaseSuite(BackendSuite):
    """Tests of leases."""

    def test_a_message_is_leased_to_one_worker_at_a_time(self, work: Probe) -> None:
        work.put()
        delivery = work.lease_one()
        assert work.lease() == []
        work.ack(delivery)
        work.advance_time(1000.0)
        assert work.lease() == []
        assert work.depth == DepthCounts()

    def test_no_more_messages_are_leased_than_requested(self, work: Probe) -> None:
        sent = work.put(count=7)
        found = [work.lease(3) for _ in range(4)]
        assert [len(some) for some in found] == [3, 3, 1, 0]
        assert sorted(one.id for some in found for one in some) == sorted(sent)

    def test_a_delivery_counts_leases_that_expired_without_settlement(self, work: Probe) -> None:
        work.put()
        first = work.lease_one(lease=10.0)
        work.settle(Release(), first)
        second = work.lease_one(lease=10.0)
        work.settle(RetryLater(1.0), second)
        work.advance_time(2.0)
        third = work.lease_one(lease=10.0)
        work.advance_time(11.0)
        fourth = self._later(work)
        work.advance_time(11.0)
        fifth = self._later(work)
        assert [one.expired_leases for one in (first, second, third, fourth, fifth)] == [0, 0, 0, 1, 2]
        work.settle(Bury("why"), fifth)
        work.redrive()
        assert work.lease_one().expired_leases == 0, "after a redrive"

    def _later(self, work: Probe) -> Delivery:
        """Return a delivery that may be delayed, because its workers crashed more than once."""
        for _ in range(STEPS):
            found = work.lease(lease=10.0)
            if found:
                return found[0]
            work.advance_time(60.0)
        raise AssertionError("the message was not delivered again")

    def test_a_message_is_delivered_again_when_its_lease_ends(self, work: Probe) -> None:
        work.put()
        first = work.lease_one(lease=10.0)
        work.advance_time(9.9)
        assert work.lease() == []
        work.advance_time(0.2)
        again = work.request_lease()
        assert again.redelivered == 1
        [second] = again.deliveries
        assert (second.id, second.attempt) == (first.id, 2)
        assert second.receipt.deliveries == first.receipt.deliveries + 1
        assert (second.sent_at, second.body) == (first.sent_at, first.body)
        work.ack(second)
        assert work.depth == DepthCounts()

    def test_a_late_worker_may_settle_until_the_message_is_leased_again(self, work: Probe) -> None:
        """A slow worker's message is not handled twice."""
        work.put()
        late = work.lease_one(lease=1.0)
        work.advance_time(5.0)
        work.ack(late)
        assert work.drain() == []

    @pytest.mark.parametrize("disposition", DISPOSITIONS, ids=lambda disposition: type(disposition).__name__)
    def test_a_receipt_is_invalid_once_another_worker_has_the_message(
        self, work: Probe, disposition: Disposition
    ) -> None:
        """Whatever the late worker settles, the message stays leased to the other one."""
        work.put()
        stale = work.lease_one(lease=1.0)
        work.advance_time(2.0)
        good = work.lease_one()
        before = work.inspect("a")
        assert work.settle(disposition, stale) == [False]
        assert work.inspect("a") == before
        work.ack(good)

    @pytest.mark.parametrize("disposition", DISPOSITIONS, ids=lambda disposition: type(disposition).__name__)
    @pytest.mark.parametrize(
        "end", [Ack(), RetryLater(5.0), Bury("why"), Release(), Drop()], ids=lambda end: type(end).__name__
    )
    def test_a_receipt_is_valid_for_one_settlement(
        self, work: Probe, end: Disposition, disposition: Disposition
    ) -> None:
        work.put()
        delivery = work.lease_one()
        pair = [Settlement(delivery.receipt, end), Settlement(delivery.receipt, disposition)]
        assert list(work.backend.settle(pair)) == [True, False]
        before = work.inspect("a")
        assert work.settle(disposition, delivery) == [False]
        assert work.inspect("a") == before

    @pytest.mark.parametrize("disposition", DISPOSITIONS, ids=lambda disposition: type(disposition).__name__)
    def test_a_receipt_from_before_a_redrive_is_invalid(self, work: Probe, disposition: Disposition) -> None:
        work.put()
        stale = work.lease_one()
        work.settle(Bury("why"), stale)
        work.redrive()
        assert work.settle(disposition, stale) == [False]
        good = work.lease_one()
        assert good.id == stale.id
        assert good.receipt != stale.receipt
        assert work.settle(disposition, stale) == [False]
        work.ack(good)

    def test_receipts_of_unknown_messages_are_refused(self, work: Probe) -> None:
        """Each one alone: the others of the same call are settled."""
        work.put()
        delivery = work.lease_one()
        forged = [Receipt(delivery.id + 1000, 1), Receipt(delivery.id, 2), Receipt(delivery.id, 0), Receipt(-1, 1)]
        settlements = [*(Settlement(receipt, Ack()) for receipt in forged), Settlement(delivery.receipt, Ack())]
        assert list(work.backend.settle(settlements)) == [False] * 4 + [True]

    def test_a_waiting_message_cannot_be_settled(self, work: Probe) -> None:
        [number] = work.put()
        assert list(work.backend.settle([Settlement(Receipt(number, 0), Ack())])) == [False]
        assert work.depth == DepthCounts(ready=1)

    def test_a_heartbeat_extends_a_lease(self, work: Probe) -> None:
        work.put()
        delivery = work.lease_one(lease=10.0)
        for _ in range(5):
            work.advance_time(8.0)
            assert work.settle(ExtendLease(10.0), delivery) == [True]
            assert work.lease() == []
        work.advance_time(9.9)
        assert work.lease() == []
        work.advance_time(0.2)
        assert work.lease_one().attempt == 2

    def test_a_heartbeat_may_come_with_a_settlement(self, work: Probe) -> None:
        work.put(count=2)
        one, other = work.lease(lease=10.0)
        settlements = [
            Settlement(one.receipt, ExtendLease(60.0)),
            Settlement(one.receipt, Ack()),
            Settlement(other.receipt, ExtendLease(60.0)),
        ]
        assert list(work.backend.settle(settlements)) == [True, True, True]
        assert work.depth == DepthCounts(leased=1)
        work.advance_time(30.0)
        assert work.lease() == []

    def test_a_failed_message_is_delivered_again_after_its_delay(self, work: Probe) -> None:
        [number] = work.put()
        first = work.lease_one()
        assert work.settle(RetryLater(20.0), first) == [True]
        assert work.depth == DepthCounts(delayed=1)
        work.advance_time(19.9)
        found = work.request_lease()
        assert list(found.deliveries) == []
        assert found.next_due == pytest.approx(0.1, abs=0.01)
        work.advance_time(0.2)
        second = work.lease_one()
        assert (second.id, second.attempt, second.sent_at) == (number, 2, first.sent_at)
        assert second.ready_since == pytest.approx(first.ready_since + 20.0, abs=0.01)

    def test_a_postponed_delivery_is_not_an_attempt(self, work: Probe) -> None:
        work.change_policy(max_attempts=1)
        work.put()
        for _ in range(3):
            first = work.lease_one()
            assert first.attempt == 1
            work.settle(RetryLater(5.0, is_attempt=False), first)
            work.advance_time(6.0)
        assert work.lease_one().attempt == 1

    def test_a_retry_without_delay_comes_soon(self, work: Probe) -> None:
        work.put()
        work.settle(RetryLater(0.0), work.lease_one())
        work.advance_time(0.01)
        assert work.lease_one().attempt == 2

    def test_a_released_message_can_be_leased_immediately(self, work: Probe) -> None:
        work.change_policy(lanes=1, lanes_per_tenant=1)
        [number, *_] = work.put(count=3)
        first, *others = work.lease()
        assert first.id == number
        work.settle(Release(), *others, first)
        assert work.depth == DepthCounts(ready=3)
        again = work.lease()
        assert ids(again) == ids([first, *others])
        assert [one.attempt for one in again] == [1, 1, 1]
        assert work.settle(Ack(), first) == [False]
        work.ack(*again)

    def test_a_message_that_is_released_often_is_not_buried(self, work: Probe) -> None:
        """A worker that stops is not a failure of the message; attempts that fail still count."""
        work.change_policy(max_attempts=2)
        work.put()
        for _ in range(5):
            work.settle(Release(), work.lease_one())
        assert work.lease_one(lease=1.0).attempt == 1
        work.advance_time(2.0)
        assert work.lease_one(lease=1.0).attempt == 2
        work.advance_time(2.0)
        assert work.request_lease().buried == 1

    def test_a_dropped_message_is_deleted(self, work: Probe) -> None:
        work.put()
        assert work.settle(Drop(), work.lease_one()) == [True]
        work.advance_time(1000.0)
        assert work.lease() == []
        assert work.depth == DepthCounts()

    def test_a_message_that_crashes_its_workers_is_buried(self, work: Probe) -> None:
        work.change_policy(max_attempts=3, lease=1.0)
        [number] = work.put()
        for attempt in (1, 2, 3):
            assert work.lease_one(lease=1.0).attempt == attempt
            work.advance_time(2.0)
            if attempt == 2:
                assert work.lease() == []
                work.advance_time(1.0)
        last = work.request_lease()
        assert list(last.deliveries) == []
        assert (last.buried, last.redelivered) == (1, 0)
        [letter] = work.backend.list_dead_letters(work.query())
        assert (letter.id, letter.attempts) == (number, 3)
        assert "3 deliveries" in letter.reason
        assert work.depth == DepthCounts(dead=1)

    def test_one_call_settles_messages_of_several_queues(self, work: Probe) -> None:
        other = work.another("other")
        work.put(count=2)
        other.put(count=2)
        mine, theirs = work.lease(), other.lease()
        mixed: list[Delivery] = [theirs[0], mine[0], mine[0], theirs[1], mine[1]]
        assert work.settle(Ack(), *mixed) == [True, True, False, True, True]
        assert work.depth == other.depth == DepthCounts()

    def test_a_delayed_message_waits(self, work: Probe) -> None:
        """Its age counts from when it became due: it was not late until then."""
        [number] = work.put(delay=100.0)
        sent = work.now
        assert work.depth == DepthCounts(delayed=1)
        found = work.request_lease()
        assert list(found.deliveries) == []
        assert found.next_due == pytest.approx(100.0, abs=0.01)
        work.advance_time(99.9)
        assert work.lease() == []
        work.advance_time(0.2)
        delivery = work.lease_one()
        assert (delivery.id, delivery.attempt) == (number, 1)
        assert delivery.sent_at == pytest.approx(sent + 100.0, abs=0.01)

    def test_next_due_is_when_there_may_be_more(self, work: Probe) -> None:
        assert work.request_lease().next_due is None
        work.put(delay=50.0)
        work.put()
        assert work.request_lease(lease=20.0).next_due == pytest.approx(20.0, abs=0.01)
        work.advance_time(15.0)
        assert work.request_lease().next_due == pytest.approx(5.0, abs=0.01)

    def test_a_lease_says_how_much_its_tenants_have(self, work: Probe) -> None:
        work.put("a", 5)
        found = work.request_lease(3)
        assert (found.tenants["a"].ready, found.tenants["a"].leased) == (2, 3)
        assert not found.are_others_waiting
        work.put("b", 1)
        work.put("c", 1)
        work.put("d", 1)
        found = work.request_lease(1)
        assert found.are_others_waiting
        found = work.request_lease(100)
        assert len(found.deliveries) == 4
        assert not found.are_others_waiting

    @pytest.mark.parametrize("count", [0, -1])
    def test_a_lease_request_needs_a_positive_count(self, work: Probe, count: int) -> None:
        with pytest.raises(InvalidValue, match=str(count)):
            work.lease(count)

    @pytest.mark.parametrize("lease", [0.0, -1.0, math.nan, math.inf])
    def test_a_lease_has_a_positive_finite_length(self, work: Probe, lease: float) -> None:
        """A lease without an end would hide its message for ever."""
        work.put()
        with pytest.raises(InvalidValue, match=str(lease)):
            work.lease(lease=lease)
        assert work.depth == DepthCounts(ready=1)

    @pytest.mark.parametrize(
        "disposition",
        [
            *map(RetryLater, (-1.0, math.nan, math.inf)),
            *map(ExtendLease, (0.0, math.nan, math.inf)),
        ],
    )
    def test_an_invalid_disposition_changes_nothing(self, work: Probe, disposition: Disposition) -> None:
        """Nor do the others of the same call."""
        work.put(count=2)
        one, other = work.lease()
        with pytest.raises(InvalidValue):
            work.backend.settle([Settlement(one.receipt, Ack()), Settlement(other.receipt, disposition)])
        assert work.depth == DepthCounts(leased=2)

    def test_many_workers_never_lease_the_same_message(self, work: Probe) -> None:
        sent: list[int] = []
        for batch in range(10):
            sent += [number for tenant in range(4) for number in work.put(f"t{tenant}", 5 + batch % 3)]
        handled: list[int] = []
        held: set[int] = set()
        gate = threading.Lock()

        def serve(worker: int) -> None:
            while True:
                some = work.lease(1 + worker % 5)
                with gate:
                    if not some and len(handled) >= len(sent):
                        return
                    assert not held.intersection(ids(some))
                    held.update(ids(some))
                work.settle(ExtendLease(60.0), *some)
                with gate:
                    held.difference_update(ids(some))
                    handled.extend(ids(some))
                work.ack(*some)

        together(6, serve)
        assert sorted(handled) == sorted(sent)
        assert work.depth == DepthCounts()
