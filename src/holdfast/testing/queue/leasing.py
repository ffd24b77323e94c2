"""What `lease` and `settle` promise: one worker at a time, and none who held a message before."""

import math
import threading

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.message import (
    Ack,
    Bury,
    Delivery,
    Drop,
    ExtendLease,
    Outcome,
    Receipt,
    Release,
    RetryLater,
    Settlement,
)
from holdfast.testing.queue.probe import STEPS, Depth, Probe, Suite, ids, together

OUTCOMES: tuple[Outcome, ...] = (Ack(), RetryLater(1.0), Bury("why"), Release(), ExtendLease(60.0), Drop())


class Leasing(Suite):
    """Messages in the hands of workers."""

    def test_a_message_is_handed_to_one_worker_at_a_time(self, work: Probe) -> None:
        work.put()
        delivery = work.one()
        assert work.lease() == []
        work.done(delivery)
        work.elapse(1000.0)
        assert work.lease() == []
        assert work.depth == Depth()

    def test_no_more_is_handed_out_than_was_asked_for(self, work: Probe) -> None:
        sent = work.put(count=7)
        found = [work.lease(3) for _ in range(4)]
        assert [len(some) for some in found] == [3, 3, 1, 0]
        assert sorted(one.id for some in found for one in some) == sorted(sent)

    def test_a_delivery_says_how_often_its_workers_were_not_heard_of_again(self, work: Probe) -> None:
        work.put()
        first = work.one(lease=10.0)
        work.settle(Release(), first)
        second = work.one(lease=10.0)
        work.settle(RetryLater(1.0), second)
        work.elapse(2.0)
        third = work.one(lease=10.0)
        work.elapse(11.0)
        fourth = self._later(work)
        work.elapse(11.0)
        fifth = self._later(work)
        assert [one.deaths for one in (first, second, third, fourth, fifth)] == [0, 0, 0, 1, 2]
        work.settle(Bury("why"), fifth)
        work.redrive()
        assert work.one().deaths == 0, "of one that begins anew"

    def _later(self, work: Probe) -> Delivery:
        """One that was put off, perhaps: its workers died more than once."""
        for _ in range(STEPS):
            found = work.lease(lease=10.0)
            if found:
                return found[0]
            work.elapse(60.0)
        raise AssertionError("it was not delivered again")

    def test_a_message_is_delivered_again_when_its_lease_ends(self, work: Probe) -> None:
        work.put()
        first = work.one(lease=10.0)
        work.elapse(9.9)
        assert work.lease() == []
        work.elapse(0.2)
        again = work.leased()
        assert again.redelivered == 1
        [second] = again.deliveries
        assert (second.id, second.attempt) == (first.id, 2)
        assert second.receipt.tries == first.receipt.tries + 1
        assert (second.sent, second.body) == (first.sent, first.body)
        work.done(second)
        assert work.depth == Depth()

    def test_a_late_worker_may_settle_what_nobody_else_was_given(self, work: Probe) -> None:
        """Its work is not done twice because it took long."""
        work.put()
        late = work.one(lease=1.0)
        work.elapse(5.0)
        work.done(late)
        assert work.drain() == []

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
    def test_a_receipt_is_worth_nothing_once_somebody_else_has_the_message(self, work: Probe, outcome: Outcome) -> None:
        """Whatever the late worker says of it, the message stays with the one who holds it."""
        work.put()
        stale = work.one(lease=1.0)
        work.elapse(2.0)
        good = work.one()
        before = work.look("a")
        assert work.settle(outcome, stale) == [False]
        assert work.look("a") == before
        work.done(good)

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
    @pytest.mark.parametrize(
        "end", [Ack(), RetryLater(5.0), Bury("why"), Release(), Drop()], ids=lambda end: type(end).__name__
    )
    def test_a_receipt_is_good_for_one_end(self, work: Probe, end: Outcome, outcome: Outcome) -> None:
        work.put()
        delivery = work.one()
        pair = [Settlement(delivery.receipt, end), Settlement(delivery.receipt, outcome)]
        assert list(work.backend.settle(pair)) == [True, False]
        before = work.look("a")
        assert work.settle(outcome, delivery) == [False]
        assert work.look("a") == before

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
    def test_a_receipt_from_before_the_redrive_is_worth_nothing(self, work: Probe, outcome: Outcome) -> None:
        work.put()
        stale = work.one()
        work.settle(Bury("why"), stale)
        work.redrive()
        assert work.settle(outcome, stale) == [False]
        good = work.one()
        assert good.id == stale.id
        assert good.receipt != stale.receipt
        assert work.settle(outcome, stale) == [False]
        work.done(good)

    def test_receipts_of_what_never_was_are_refused(self, work: Probe) -> None:
        """Each alone: the others of the same call are settled."""
        work.put()
        delivery = work.one()
        forged = [Receipt(delivery.id + 1000, 1), Receipt(delivery.id, 2), Receipt(delivery.id, 0), Receipt(-1, 1)]
        settlements = [*(Settlement(receipt, Ack()) for receipt in forged), Settlement(delivery.receipt, Ack())]
        assert list(work.backend.settle(settlements)) == [False] * 4 + [True]

    def test_what_waits_cannot_be_settled(self, work: Probe) -> None:
        [number] = work.put()
        assert list(work.backend.settle([Settlement(Receipt(number, 0), Ack())])) == [False]
        assert work.depth == Depth(ready=1)

    def test_a_heartbeat_makes_a_lease_longer(self, work: Probe) -> None:
        work.put()
        delivery = work.one(lease=10.0)
        for _ in range(5):
            work.elapse(8.0)
            assert work.settle(ExtendLease(10.0), delivery) == [True]
            assert work.lease() == []
        work.elapse(9.9)
        assert work.lease() == []
        work.elapse(0.2)
        assert work.one().attempt == 2

    def test_a_heartbeat_may_come_with_the_end(self, work: Probe) -> None:
        work.put(count=2)
        one, other = work.lease(lease=10.0)
        settlements = [
            Settlement(one.receipt, ExtendLease(60.0)),
            Settlement(one.receipt, Ack()),
            Settlement(other.receipt, ExtendLease(60.0)),
        ]
        assert list(work.backend.settle(settlements)) == [True, True, True]
        assert work.depth == Depth(leased=1)
        work.elapse(30.0)
        assert work.lease() == []

    def test_what_failed_is_delivered_again_after_its_delay(self, work: Probe) -> None:
        [number] = work.put()
        first = work.one()
        assert work.settle(RetryLater(20.0), first) == [True]
        assert work.depth == Depth(delayed=1)
        work.elapse(19.9)
        found = work.leased()
        assert list(found.deliveries) == []
        assert found.next_due == pytest.approx(0.1, abs=0.01)
        work.elapse(0.2)
        second = work.one()
        assert (second.id, second.attempt, second.sent) == (number, 2, first.sent)
        assert second.at == pytest.approx(first.at + 20.0, abs=0.01)

    def test_what_is_put_off_is_not_an_attempt(self, work: Probe) -> None:
        work.policy(attempts=1)
        work.put()
        for _ in range(3):
            first = work.one()
            assert first.attempt == 1
            work.settle(RetryLater(5.0, counts=False), first)
            work.elapse(6.0)
        assert work.one().attempt == 1

    def test_a_delay_of_nothing_is_soon(self, work: Probe) -> None:
        work.put()
        work.settle(RetryLater(0.0), work.one())
        work.elapse(0.01)
        assert work.one().attempt == 2

    def test_what_was_handed_back_can_be_had_at_once(self, work: Probe) -> None:
        work.policy(lanes=1, hand=1)
        [number, *_] = work.put(count=3)
        first, *others = work.lease()
        assert first.id == number
        work.settle(Release(), *others, first)
        assert work.depth == Depth(ready=3)
        again = work.lease()
        assert ids(again) == ids([first, *others])
        assert [one.attempt for one in again] == [1, 1, 1]
        assert work.settle(Ack(), first) == [False]
        work.done(*again)

    def test_a_message_handed_back_ever_so_often_is_not_given_up(self, work: Probe) -> None:
        """A worker that stops is not a failure of the message; the attempts that fail still count."""
        work.policy(attempts=2)
        work.put()
        for _ in range(5):
            work.settle(Release(), work.one())
        assert work.one(lease=1.0).attempt == 1
        work.elapse(2.0)
        assert work.one(lease=1.0).attempt == 2
        work.elapse(2.0)
        assert work.leased().buried == 1

    def test_what_is_dropped_is_forgotten(self, work: Probe) -> None:
        work.put()
        assert work.settle(Drop(), work.one()) == [True]
        work.elapse(1000.0)
        assert work.lease() == []
        assert work.depth == Depth()

    def test_a_message_that_kills_its_workers_is_buried(self, work: Probe) -> None:
        work.policy(attempts=3, lease=1.0)
        [number] = work.put()
        for attempt in (1, 2, 3):
            assert work.one(lease=1.0).attempt == attempt
            work.elapse(2.0)
            if attempt == 2:
                assert work.lease() == []
                work.elapse(1.0)
        last = work.leased()
        assert list(last.deliveries) == []
        assert (last.buried, last.redelivered) == (1, 0)
        [letter] = work.backend.dead(work.query())
        assert (letter.id, letter.attempts) == (number, 3)
        assert "3 deliveries" in letter.reason
        assert work.depth == Depth(dead=1)

    def test_one_call_settles_messages_of_several_queues(self, work: Probe) -> None:
        other = work.another("other")
        work.put(count=2)
        other.put(count=2)
        mine, theirs = work.lease(), other.lease()
        mixed: list[Delivery] = [theirs[0], mine[0], mine[0], theirs[1], mine[1]]
        assert work.settle(Ack(), *mixed) == [True, True, False, True, True]
        assert work.depth == other.depth == Depth()

    def test_a_delayed_message_waits(self, work: Probe) -> None:
        """Then its age counts from when it fell due: it was not late until then."""
        [number] = work.put(delay=100.0)
        sent = work.now
        assert work.depth == Depth(delayed=1)
        found = work.leased()
        assert list(found.deliveries) == []
        assert found.next_due == pytest.approx(100.0, abs=0.01)
        work.elapse(99.9)
        assert work.lease() == []
        work.elapse(0.2)
        delivery = work.one()
        assert (delivery.id, delivery.attempt) == (number, 1)
        assert delivery.sent == pytest.approx(sent + 100.0, abs=0.01)

    def test_next_due_is_when_there_may_be_more(self, work: Probe) -> None:
        assert work.leased().next_due is None
        work.put(delay=50.0)
        work.put()
        assert work.leased(lease=20.0).next_due == pytest.approx(20.0, abs=0.01)
        work.elapse(15.0)
        assert work.leased().next_due == pytest.approx(5.0, abs=0.01)

    def test_a_lease_says_how_much_its_tenants_have(self, work: Probe) -> None:
        work.put("a", 5)
        found = work.leased(3)
        assert (found.tenants["a"].ready, found.tenants["a"].leased) == (2, 3)
        assert not found.others_wait
        work.put("b", 1)
        work.put("c", 1)
        work.put("d", 1)
        found = work.leased(1)
        assert found.others_wait
        found = work.leased(100)
        assert len(found.deliveries) == 4
        assert not found.others_wait

    @pytest.mark.parametrize("count", [0, -1])
    def test_a_worker_asks_for_something(self, work: Probe, count: int) -> None:
        with pytest.raises(InvalidValue, match=str(count)):
            work.lease(count)

    @pytest.mark.parametrize("lease", [0.0, -1.0, math.nan, math.inf])
    def test_a_lease_has_an_end_that_is_not_now(self, work: Probe, lease: float) -> None:
        """One that never ends would hide its message for ever."""
        work.put()
        with pytest.raises(InvalidValue, match=str(lease)):
            work.lease(lease=lease)
        assert work.depth == Depth(ready=1)

    @pytest.mark.parametrize(
        "outcome",
        [
            *map(RetryLater, (-1.0, math.nan, math.inf)),
            *map(ExtendLease, (0.0, math.nan, math.inf)),
        ],
    )
    def test_an_outcome_that_makes_no_sense_changes_nothing(self, work: Probe, outcome: Outcome) -> None:
        """Nor do those that came with it."""
        work.put(count=2)
        one, other = work.lease()
        with pytest.raises(InvalidValue):
            work.backend.settle([Settlement(one.receipt, Ack()), Settlement(other.receipt, outcome)])
        assert work.depth == Depth(leased=2)

    def test_many_workers_never_hold_the_same_message(self, work: Probe) -> None:
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
                work.done(*some)

        together(6, serve)
        assert sorted(handled) == sorted(sent)
        assert work.depth == Depth()
