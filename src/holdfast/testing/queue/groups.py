"""The promises of groups and topics: one message of a group at a time; each subscriber gets each message of a topic."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.backend import QueueChange
from holdfast.queue.message import Ack, Bury, Disposition, Drop, RefusedMessage, Release, RetryLater, SentMessage
from holdfast.testing.queue.probe import BackendSuite, DepthCounts, Probe, ids, message


class GroupSuite(BackendSuite):
    """Tests of messages that are handled in order."""

    required_capability = "groups"

    def test_a_group_is_handled_one_by_one_in_its_order(self, work: Probe) -> None:
        sent = work.put(count=4, group="g")
        sent += work.put(count=2, group="g")
        assert work.depth == DepthCounts(ready=1, delayed=5)
        for number in sent:
            delivery = work.lease_one()
            assert (delivery.id, delivery.group) == (number, "g")
            assert work.lease() == []
            work.ack(delivery)
        assert work.depth == DepthCounts()

    def test_the_backlog_of_one_group_blocks_no_other(self, work: Probe) -> None:
        [head, *_] = work.put(count=500, group="deep")
        assert work.lease_one().id == head
        others = [*work.put(group="other"), *work.put(), *work.put("b", group="deep")]
        assert sorted(ids(work.lease())) == sorted(others)

    @pytest.mark.parametrize("end", [Ack(), Drop(), Bury("why")], ids=lambda end: type(end).__name__)
    def test_every_final_disposition_lets_the_next_of_a_group_go(self, work: Probe, end: Disposition) -> None:
        """Also a burial: a poison message does not block its group for ever."""
        first, second = work.put(count=2, group="g")
        head = work.lease_one()
        assert head.id == first
        work.settle(end, head)
        assert work.lease_one().id == second

    def test_the_next_waits_while_the_first_is_tried_again(self, work: Probe) -> None:
        first, second = work.put(count=2, group="g")
        work.settle(RetryLater(10.0), work.lease_one())
        assert work.lease() == []
        work.advance_time(10.1)
        again = work.lease_one()
        assert (again.id, again.attempt) == (first, 2)
        work.settle(Release(), again)
        again = work.lease_one()
        assert again.id == first
        work.ack(again)
        assert work.lease_one().id == second

    def test_the_next_waits_while_the_first_is_delivered_again(self, work: Probe) -> None:
        work.change_policy(max_attempts=2)
        first, second = work.put(count=2, group="g")
        for _ in range(2):
            assert work.lease_one(lease=1.0).id == first
            work.advance_time(2.0)
        found = work.request_lease()
        assert found.buried == 1
        rest = found.deliveries or work.lease()
        assert ids(rest) == [second]

    def test_a_delay_delays_the_messages_behind_it(self, work: Probe) -> None:
        """A message that is delayed itself waits for its turn and for its delay."""
        [first] = work.put(group="g", delay=10.0)
        [second] = work.put(group="g")
        [third] = work.put(group="g", delay=60.0)
        assert work.depth == DepthCounts(delayed=3)
        assert work.lease() == []
        work.advance_time(11.0)
        for number in (first, second):
            delivery = work.lease_one()
            assert delivery.id == number
            work.ack(delivery)
        found = work.request_lease()
        assert list(found.deliveries) == []
        assert found.next_due == pytest.approx(49.0, abs=0.01)
        work.advance_time(50.0)
        assert work.lease_one().id == third

    def test_priorities_do_not_change_the_order_of_a_group(self, work: Probe) -> None:
        sent = [*work.put(group="g", priority=3), *work.put(group="g", priority=0), *work.put(group="g", priority=1)]
        assert ids(work.drain()) == sent

    def test_an_expired_message_lets_the_next_of_its_group_go(self, work: Probe) -> None:
        work.put(group="g", ttl=1.0)
        [second] = work.put(group="g")
        work.advance_time(2.0)
        assert ids(work.drain()) == [second]
        work.put(group="g", ttl=1.0)
        [fourth] = work.put(group="g")
        work.advance_time(2.0)
        assert work.backend.sweep("work") == 1
        assert work.lease_one().id == fourth

    def test_a_sweep_drops_messages_that_wait_in_their_group(self, work: Probe) -> None:
        work.put(count=20, group="g")
        held = work.lease_one()
        work.advance_time(1.0)
        before = work.now
        work.advance_time(1.0)
        [fresh] = work.put(group="g")
        assert work.backend.sweep("work", before) == 19
        assert work.lease() == []
        work.ack(held)
        assert work.lease_one().id == fresh

    def test_an_empty_group_can_be_used_again(self, work: Probe) -> None:
        for _ in range(3):
            sent = work.put(count=2, group="g")
            assert ids(work.drain()) == sent

    def test_a_redriven_message_waits_for_its_group(self, work: Probe) -> None:
        """Two messages of one group are never leased at the same time."""
        [first, second, third] = work.put(count=3, group="g")
        work.settle(Bury("why"), work.lease_one())
        held = work.lease_one()
        assert held.id == second
        assert work.redrive() == 1
        assert work.lease() == []
        work.ack(held)
        rest = work.drain()
        assert sorted(ids(rest)) == [first, third]
        assert {one.group for one in rest} == {"g"}

    def test_a_leased_message_blocks_its_group_whatever_happens_to_the_others(self, work: Probe) -> None:
        """A redriven message has the lowest id and still waits, also if others that wait expire."""
        work.put(group="g")
        work.settle(Bury("why"), work.lease_one())
        [second] = work.put(group="g")
        held = work.lease_one()
        assert held.id == second
        work.put(group="g", ttl=1.0)
        assert work.redrive() == 1
        work.advance_time(2.0)
        work.put(group="g")
        assert work.backend.sweep("work") == 1
        assert work.lease() == []
        work.advance_time(1.0)
        assert work.backend.sweep("work", work.now) == 2, "the redriven message keeps its age"
        assert work.lease() == []
        [fifth] = work.put(group="g")
        work.ack(held)
        assert ids(work.drain()) == [fifth]
        assert work.depth == DepthCounts()

    def test_redriven_messages_keep_their_order(self, work: Probe) -> None:
        sent = work.put(count=3, group="g")
        for _ in sent:
            work.settle(Bury("why"), work.lease_one())
        assert work.redrive() == 3
        assert work.depth == DepthCounts(ready=1, delayed=2)
        assert ids(work.drain()) == sent

    def test_discarding_dead_letters_of_a_group_lets_no_message_through(self, work: Probe) -> None:
        dead, first, second = work.put(count=3, group="g")
        work.settle(Bury("why"), work.lease_one())
        head = work.lease_one()
        assert head.id == first
        assert work.redrive() == 1, "behind the one that is leased, with a lower id"
        work.put(group="other")
        work.settle(Bury("why"), work.lease_one())
        assert work.backend.redrive(work.query(), discard=True) == 1
        assert work.lease() == []
        work.ack(head)
        assert ids(work.drain()) == [dead, second]

    def test_groups_work_with_one_lane_for_each_tenant(self, work: Probe) -> None:
        work.change_policy(lanes_per_tenant=0, spill_above=1)
        sent = [*work.put(count=2), *work.put(count=3, group="g")]
        assert sorted(ids(work.drain())) == sorted(sent)

    def test_many_workers_keep_the_order_of_every_group(self, work: Probe) -> None:
        work.change_policy(max_attempts=1000)
        groups = [f"g{number}" for number in range(5)]
        handled: dict[str, list[int]] = {group: [] for group in groups}
        sent: dict[str, list[int]] = {group: [] for group in groups}
        in_hand: set[str] = set()
        gate = threading.Lock()

        def produce(group: str) -> None:
            for size in (1, 3, 2, 4, 1):
                kept = work.send_accepted(*[message(f"t{len(group)}", group=group)] * size)
                sent[group] += [one.id for one in kept]

        def serve(worker: int) -> None:
            turn = worker
            while True:
                some = work.lease(4)
                with gate:
                    if sum(map(len, handled.values())) == len(groups) * 11:
                        return
                    names = [one.group or "" for one in some]
                    assert len(set(names)) == len(names)
                    assert not in_hand.intersection(names)
                    in_hand.update(names)
                for one in some:
                    turn += 1
                    disposition: Disposition = Release() if turn % 4 == 0 else Ack()
                    with gate:
                        in_hand.discard(one.group or "")
                        if isinstance(disposition, Ack):
                            handled[one.group or ""].append(one.id)
                    assert work.settle(disposition, one) == [True]

        with ThreadPoolExecutor(8) as threads:
            futures = [threads.submit(produce, group) for group in groups]
            futures += [threads.submit(serve, worker) for worker in range(3)]
            for future in futures:
                future.result()
        assert handled == sent
        assert work.depth == DepthCounts()


class TopicSuite(BackendSuite):
    """Tests of topics."""

    required_capability = "topics"

    def test_every_subscriber_gets_every_message(self, work: Probe) -> None:
        other, third = self._subscribers(work)
        results = work.backend.send("news", [message("a", b"1"), message("b", b"2")], is_topic=True)
        assert [one.queue for one in results if isinstance(one, SentMessage)] == ["work", "other", "work", "other"]
        assert len({one.id for one in results if isinstance(one, SentMessage)}) == 4
        assert third.depth == DepthCounts()
        for queue in (work, other):
            found = queue.drain()
            assert sorted((one.tenant, one.body) for one in found) == [("a", b"1"), ("b", b"2")]
            assert {one.queue for one in found} == {queue.queue}

    def test_one_delivery_of_each_message_is_the_first(self, work: Probe) -> None:
        other, _ = self._subscribers(work)
        bodies = [b"%d" % number for number in range(10)]
        work.backend.send("news", [message(body=body) for body in bodies], is_topic=True)
        found = work.lease(4)
        assert all(one.is_first_subscriber for one in found)
        found += other.lease(7)
        assert sum(one.is_first_subscriber for one in found) == len({one.body for one in found})
        work.settle(RetryLater(1.0), *found[:2])
        work.settle(Release(), *found[2:4])
        work.advance_time(2.0)
        found += work.lease()
        found += other.lease()
        firsts = [one.body for one in found if one.is_first_subscriber]
        assert sorted(firsts) == bodies

    def test_a_message_that_was_dropped_for_one_is_first_for_another(self, work: Probe) -> None:
        other, _ = self._subscribers(work)
        work.backend.send("news", [message()], is_topic=True)
        work.advance_time(1.0)
        assert work.backend.sweep("work", work.now) == 1
        assert other.lease_one().is_first_subscriber

    def test_other_messages_are_never_the_first_of_a_topic(self, work: Probe) -> None:
        work.put()
        assert not work.lease_one().is_first_subscriber

    def test_a_topic_without_subscribers_stores_nothing(self, work: Probe) -> None:
        assert list(work.backend.send("nobody", [message()], is_topic=True)) == []
        assert list(work.backend.send("nobody", [], is_topic=True)) == []

    def test_a_queue_and_a_topic_may_have_the_same_name(self, work: Probe) -> None:
        assert list(work.backend.send("work", [message()], is_topic=True)) == []
        assert work.depth == DepthCounts()

    def test_a_queue_that_unsubscribes_gets_no_more(self, work: Probe) -> None:
        """It keeps its messages, and gets a message once even if it subscribes twice."""
        other, _ = self._subscribers(work)
        work.backend.change("work", QueueChange(subscribe=["news", "sport"]))
        assert list(work.inspect().topics) == ["news", "sport"]
        work.backend.send("news", [message()], is_topic=True)
        work.backend.change("work", QueueChange(unsubscribe=["news", "nothing"]))
        assert list(work.inspect().topics) == ["sport"]
        work.backend.send("news", [message()], is_topic=True)
        assert (len(work.drain()), len(other.drain())) == (1, 2)

    def test_each_subscriber_refuses_for_itself(self, work: Probe) -> None:
        """Limits, keys and delays are those of each queue."""
        other, _ = self._subscribers(work)
        work.set_limits("a", max_rate=1.0, max_burst=1.0)
        results = work.backend.send("news", [message(), message(delay=5.0)], is_topic=True)
        assert [type(one) for one in results] == [SentMessage, SentMessage, RefusedMessage, SentMessage]
        assert work.depth == DepthCounts(ready=1)
        assert other.depth == DepthCounts(ready=1, delayed=1)
        work.drain()
        other.drain()
        other.advance_time(6.0)
        assert other.lease_one().is_first_subscriber, "the first queue refused it"

    @pytest.mark.parametrize("topic", ["", "a b", "x" * 129])
    def test_an_invalid_name_of_a_topic_is_refused(self, work: Probe, topic: str) -> None:
        with pytest.raises(InvalidValue, match="topic"):
            work.backend.change("work", QueueChange(subscribe=[topic]))

    def _subscribers(self, work: Probe) -> tuple[Probe, Probe]:
        """Return the queues `work` and `other`, which subscribe, unlike a third."""
        other, third = work.another("other"), work.another("third")
        for queue in ("work", "other"):
            work.backend.change(queue, QueueChange(subscribe=["news"]))
        return other, third
