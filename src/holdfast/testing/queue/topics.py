"""What topics promise: each subscriber gets each message, and one of them is the first."""

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.backend import Change
from holdfast.queue.message import Refused, Release, RetryLater, Sent
from holdfast.testing.queue.probe import Depth, Probe, Suite, message


class Topics(Suite):
    """Messages for many."""

    def test_every_subscriber_gets_every_message(self, work: Probe) -> None:
        """As a message of its own."""
        other, third = self._subscribers(work)
        results = work.backend.send("news", [message("a", b"1"), message("b", b"2")], topic=True)
        assert [one.queue for one in results if isinstance(one, Sent)] == ["work", "other", "work", "other"]
        assert len({one.id for one in results if isinstance(one, Sent)}) == 4
        assert third.depth == Depth()
        for queue in (work, other):
            found = queue.drain()
            assert sorted((one.tenant, one.body) for one in found) == [("a", b"1"), ("b", b"2")]
            assert {one.queue for one in found} == {queue.queue}

    def test_one_delivery_of_each_message_is_the_first(self, work: Probe) -> None:
        """Whichever subscriber it is for; another attempt of it is not."""
        other, _ = self._subscribers(work)
        bodies = [b"%d" % number for number in range(10)]
        work.backend.send("news", [message(body=body) for body in bodies], topic=True)
        found = work.lease(4)
        assert all(one.is_first_of_topic for one in found)
        found += other.lease(7)
        assert sum(one.is_first_of_topic for one in found) == len({one.body for one in found})
        work.settle(RetryLater(1.0), *found[:2])
        work.settle(Release(), *found[2:4])
        work.elapse(2.0)
        found += work.lease()
        found += other.lease()
        firsts = [one.body for one in found if one.is_first_of_topic]
        assert sorted(firsts) == bodies

    def test_a_message_that_was_dropped_for_one_is_first_for_another(self, work: Probe) -> None:
        """Nobody has had it."""
        other, _ = self._subscribers(work)
        work.backend.send("news", [message()], topic=True)
        work.elapse(1.0)
        assert work.backend.sweep("work", work.now) == 1
        assert other.one().is_first_of_topic

    def test_other_messages_are_never_the_first_of_a_topic(self, work: Probe) -> None:
        """They have none."""
        work.needs("topics")
        work.put()
        assert not work.one().is_first_of_topic

    def test_of_a_topic_without_subscribers_nothing_is_kept(self, work: Probe) -> None:
        """That is no error: nobody wanted it."""
        work.needs("topics")
        assert list(work.backend.send("nobody", [message()], topic=True)) == []
        assert list(work.backend.send("nobody", [], topic=True)) == []

    def test_a_queue_and_a_topic_may_have_the_same_name(self, work: Probe) -> None:
        """They are not the same."""
        work.needs("topics")
        assert list(work.backend.send("work", [message()], topic=True)) == []
        assert work.depth == Depth()

    def test_whoever_unsubscribes_gets_no_more(self, work: Probe) -> None:
        """But keeps what it has; and may subscribe twice without getting it twice."""
        other, _ = self._subscribers(work)
        work.backend.change("work", Change(subscribe=["news", "sport"]))
        assert list(work.look().topics) == ["news", "sport"]
        work.backend.send("news", [message()], topic=True)
        work.backend.change("work", Change(unsubscribe=["news", "nothing"]))
        assert list(work.look().topics) == ["sport"]
        work.backend.send("news", [message()], topic=True)
        assert (len(work.drain()), len(other.drain())) == (1, 2)

    def test_each_subscriber_refuses_for_itself(self, work: Probe) -> None:
        """And limits, keys and delays are those of each queue."""
        other, _ = self._subscribers(work)
        work.limit("a", max_rate=1.0, max_burst=1.0)
        results = work.backend.send("news", [message(), message(delay=5.0)], topic=True)
        assert [type(one) for one in results] == [Sent, Sent, Refused, Sent]
        assert work.depth == Depth(ready=1)
        assert other.depth == Depth(ready=1, delayed=1)
        work.drain()
        other.drain()
        other.elapse(6.0)
        assert other.one().is_first_of_topic, "the first queue had refused it"

    @pytest.mark.parametrize("topic", ["", "a b", "x" * 129])
    def test_a_topic_has_a_name_like_a_queue(self, work: Probe, topic: str) -> None:
        """For the same reasons."""
        work.needs("topics")
        with pytest.raises(InvalidValue, match="topic"):
            work.backend.change("work", Change(subscribe=[topic]))

    def _subscribers(self, work: Probe) -> tuple[Probe, Probe]:
        """The queues `work` and `other` subscribe, and a third does not."""
        work.needs("topics")
        other, third = work.another("other"), work.another("third")
        for queue in ("work", "other"):
            work.backend.change(queue, Change(subscribe=["news"]))
        return other, third
