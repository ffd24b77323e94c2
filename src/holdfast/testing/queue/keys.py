"""What deduplication keys promise: of several messages with the same key, one."""

from concurrent.futures import ThreadPoolExecutor

from holdfast.queue.message import Bury, Refused, Sent
from holdfast.testing.queue.probe import Depth, Probe, Suite, message


class Keys(Suite):
    """Messages that are sent again by somebody who does not know whether they were kept."""

    def test_the_same_key_is_kept_once(self, work: Probe) -> None:
        """Whoever sends it again is told which message it is."""
        work.needs("deduplication")
        [first] = work.kept(message(key="k"))
        [again] = work.kept(message(key="k", body=b"another"))
        assert not first.is_duplicate
        assert again.is_duplicate
        assert (again.id, again.lane, again.trace) == (first.id, first.lane, first.trace)
        assert work.one().body == b"x"

    def test_the_same_key_twice_in_one_step_is_kept_once(self, work: Probe) -> None:
        """The first of them, with the results in the order of the messages."""
        work.needs("deduplication")
        sent = work.kept(message(body=b"1", key="k"), message(body=b"2"), message(body=b"3", key="k"))
        assert [one.is_duplicate for one in sent] == [False, False, True]
        assert sent[0].id == sent[2].id
        assert sorted(one.body for one in work.lease()) == [b"1", b"2"]

    def test_keys_are_each_tenants_own(self, work: Probe) -> None:
        """And each queue's, and told apart to the last bit."""
        work.needs("deduplication")
        other = work.another("other")
        sent = work.kept(*(message(tenant, key=key) for tenant in ("a", "A") for key in ("k", "K", "k ", "ä", "%")))
        sent += other.kept(message(key="k"))
        assert not any(one.is_duplicate for one in sent)
        assert len({one.id for one in sent}) == 11

    def test_a_key_is_remembered_after_its_message_is_done(self, work: Probe) -> None:
        """Or dead; that is when a sender that was not answered tries again."""
        work.needs("deduplication")
        work.put(key="done")
        work.drain()
        work.put(key="dead")
        work.settle(Bury("why"), work.one())
        assert all(one.is_duplicate for one in work.kept(message(key="done"), message(key="dead")))
        assert work.depth == Depth(dead=1)

    def test_a_key_is_forgotten_in_time(self, work: Probe) -> None:
        """After the queue's `dedupe_for`, counted from the message that was kept."""
        work.needs("deduplication")
        work.policy(dedupe_for=60.0)
        [first] = work.kept(message(key="k"))
        work.elapse(59.0)
        assert work.kept(message(key="k"))[0].is_duplicate
        work.elapse(2.0)
        [second] = work.kept(message(key="k"))
        assert not second.is_duplicate
        assert second.id != first.id
        work.elapse(59.0)
        work.backend.sweep("work")
        assert work.kept(message(key="k"))[0].id == second.id
        work.elapse(2.0)
        work.backend.sweep("work")
        assert not work.kept(message(key="k"))[0].is_duplicate

    def test_a_duplicate_uses_up_nothing(self, work: Probe) -> None:
        """Of no rate and no backlog: it is not a message."""
        work.needs("deduplication")
        work.limit(max_rate=1.0, max_burst=2.0)
        work.kept(message(key="k"))
        assert work.kept(*[message(key="k")] * 10)[-1].is_duplicate
        work.kept(message(key="other"))
        [refused] = work.send(message())
        assert isinstance(refused, Refused)

    def test_a_key_of_a_message_that_was_refused_is_free(self, work: Probe) -> None:
        """Sent again when there is room, it is kept."""
        work.needs("deduplication")
        work.limit(max_rate=1.0, max_burst=1.0)
        first, *others = work.send(message(), message(key="k"), message(key="k"))
        assert isinstance(first, Sent)
        assert [type(one) for one in others] == [Refused, Refused]
        work.elapse(1.0)
        [sent] = work.kept(message(key="k"))
        assert not sent.is_duplicate

    def test_of_many_who_send_the_same_key_at_once_one_is_first(self, work: Probe) -> None:
        """And the others are told which."""
        work.needs("deduplication")

        def send(producer: int) -> list[Sent]:
            order = range(20) if producer % 2 else reversed(range(20))
            return work.kept(*(message(f"t{number % 3}", key=f"k{number}") for number in order))

        with ThreadPoolExecutor(6) as threads:
            sent = [one for some in threads.map(send, range(6)) for one in some]
        assert sum(not one.is_duplicate for one in sent) == 20
        assert len({one.id for one in sent}) == 20
        assert work.depth == Depth(ready=20)
