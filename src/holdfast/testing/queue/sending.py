"""The promises of `send`: every message is stored or refused, each key is stored once, and waiting workers wake up."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast._errors import InvalidValue, NotFound
from holdfast.queue.backend import Backend, DeadLetterQuery, LeaseRequest, QueueChange
from holdfast.queue.message import MAX_BODY_BYTES, MAX_KEY_BYTES, Bury, RefusedMessage, Release, SentMessage
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.testing.queue.probe import STEPS, BackendSuite, DepthCounts, Probe, ids, message, together

TENANTS: tuple[str, ...] = (
    *("a", "A", " a", "a ", "ä", "a\u0308", "\N{GRINNING FACE}", "'; drop table--", "%", "_", "\\", '"', "a\nb"),
    *("\x01", "\ufffe", "{}", "[1]", "null", "$1", "x" * 100, "\N{HEBREW LETTER ALEF}b"),
)
"""Names that are easily mistaken for something else."""


class SendSuite(BackendSuite):
    """Tests of sending."""

    def test_a_message_is_delivered_unchanged(self, work: Probe) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        body, deadline = bytes(range(256)), work.now + 12.5
        [sent] = work.send_accepted(message("shop", body, trace=trace, deadline=deadline))
        delivery = work.lease_one()
        assert (delivery.tenant, delivery.body, delivery.trace) == ("shop", body, trace)
        assert (delivery.deadline, delivery.group) == (deadline, None)
        assert (delivery.id, delivery.queue, delivery.lane) == (sent.id, "work", sent.lane)
        assert sent.trace == trace
        assert (sent.queue, sent.is_duplicate, sent.is_spilled) == ("work", False, False)
        assert (delivery.attempt, delivery.receipt.deliveries) == (1, 1)
        assert delivery.sent_at == delivery.ready_since == pytest.approx(work.now, abs=0.001)

    def test_a_message_without_a_trace_is_given_one(self, work: Probe) -> None:
        """It is derived from the message and the same on every delivery. An invalid `traceparent` is replaced."""
        sent = work.send_accepted(message(), message(), message(trace="nonsense"))
        traces = {one.trace for one in sent}
        assert len(traces) == 3
        assert all(trace.startswith("00-") and len(trace) == 55 for trace in traces)
        assert {one.trace for one in work.lease()} == traces

    def test_an_empty_body_is_a_body(self, work: Probe) -> None:
        work.send_accepted(message(body=b""), message(body=b"\0\0"))
        assert sorted(one.body for one in work.lease()) == [b"", b"\0\0"]

    def test_a_body_may_have_the_maximum_size(self, work: Probe) -> None:
        body = b"\xff" * MAX_BODY_BYTES
        work.put(body=body)
        assert work.lease_one().body == body
        with pytest.raises(InvalidValue, match=str(MAX_BODY_BYTES + 1)):
            work.put(body=body + b"x")

    def test_ids_are_never_used_twice(self, work: Probe) -> None:
        seen: set[int] = set()
        for _ in range(5):
            sent = work.put(count=3)
            assert len(set(sent)) == 3
            assert not seen.intersection(sent)
            seen.update(sent)
            work.drain()

    def test_sending_no_messages_does_nothing(self, work: Probe) -> None:
        assert list(work.send()) == []
        assert list(work.backend.settle([])) == []
        assert work.depth == DepthCounts()

    def test_a_thousand_messages_in_one_transaction(self, work: Probe) -> None:
        messages = [message(f"tenant {number % 37}", b"%d" % number) for number in range(1000)]
        sent = work.send_accepted(*messages)
        assert work.depth == DepthCounts(ready=1000)
        bodies = {one.id: outgoing.body for one, outgoing in zip(sent, messages, strict=True)}
        assert {one.id: one.body for one in work.drain()} == bodies
        assert work.depth == DepthCounts()

    def test_tenants_are_distinguished_to_the_last_bit(self, work: Probe) -> None:
        """Names are not folded, trimmed, normalised or interpreted, whatever characters they contain."""
        work.send_accepted(*(message(tenant, tenant.encode()) for tenant in TENANTS))
        for tenant in TENANTS:
            assert work.tenant(tenant).ready == 1
        found = work.drain()
        assert sorted(one.tenant for one in found) == sorted(TENANTS)
        assert all(one.tenant.encode() == one.body for one in found)

    @pytest.mark.parametrize(
        "bad",
        [
            *({"tenant": tenant} for tenant in ("", "a\0b", "\ud800", "x" * 10_000)),
            *({"priority": priority} for priority in (-1, 4)),
            *({"delay": delay} for delay in (-1.0, math.nan, math.inf)),
            *({"ttl": ttl} for ttl in (0.0, -1.0, math.nan)),
            *({"group": group} for group in ("", "g\0")),
            *({"key": "x" * (MAX_KEY_BYTES + 1)}, {"deadline": math.nan}),
        ],
        ids=lambda bad: ascii(bad)[:20],
    )
    def test_one_invalid_message_refuses_the_whole_batch(self, work: Probe, bad: dict[str, object]) -> None:
        """Sending is one transaction: nothing is stored."""
        with pytest.raises(InvalidValue):
            work.send(message(), message(**bad))  # type: ignore[arg-type]
        assert work.depth == DepthCounts()

    def test_an_unknown_queue_is_not_found(self, backend: Backend) -> None:
        asked = (
            lambda: backend.send("nobody", [message()]),
            lambda: backend.lease(LeaseRequest(queue="nobody", count=1, lease=1.0)),
            lambda: backend.sweep("nobody"),
            lambda: backend.inspect("nobody"),
            lambda: backend.list_dead_letters(DeadLetterQuery(queue="nobody")),
            lambda: backend.redrive(DeadLetterQuery(queue="nobody")),
            lambda: backend.change("nobody", QueueChange(policy=QueuePolicy())),
        )
        for ask in asked:
            with pytest.raises(NotFound, match="nobody"):
                ask()

    def test_a_queue_is_created_once(self, backend: Backend) -> None:
        one, other = QueuePolicy(lanes=16), QueuePolicy(lanes=32)
        assert backend.change("work", QueueChange(policy=one), create=True) == one
        assert backend.change("work", QueueChange(policy=other), create=True) == one
        assert backend.inspect("work").policy == one
        assert backend.change("work", QueueChange(policy=other)) == other
        assert backend.change("work", QueueChange()) == other
        assert backend.inspect("work").policy == other
        assert backend.change("default", QueueChange(), create=True) == QueuePolicy()

    def test_an_existing_queue_is_not_changed_by_a_second_creation(self, backend: Backend) -> None:
        """Its limits and subscriptions, too: only the first creation counts."""
        first, later = Limits(spill_rate=1.0), Limits(spill_rate=2.0)
        backend.change("work", QueueChange(limits={"a": first}, subscribe=["news"]), create=True)
        again = QueueChange(limits={"a": later, "b": later}, subscribe=["sport"], unsubscribe=["news"])
        backend.change("work", again, create=True)
        found = backend.inspect("work", tenants=["a", "b"])
        assert [(one.tenant, one.limits) for one in found.tenants if one.limits is not None] == [("a", first)]
        assert list(found.topics) == ["news"]
        backend.change("work", again)
        assert list(backend.inspect("work").topics) == ["sport"]

    @pytest.mark.parametrize("name", ["", "a b", "a\0", "ä", "x" * 129])
    def test_an_invalid_name_of_a_queue_is_refused(self, backend: Backend, name: str) -> None:
        with pytest.raises(InvalidValue):
            backend.change(name, QueueChange(), create=True)

    def test_queues_do_not_mix(self, work: Probe) -> None:
        other = work.another("other")
        work.require_capability("deduplication")
        work.put(count=2)
        work.put(delay=5.0)
        work.put(key="k", group="g")
        [theirs] = other.put(key="k", group="g")
        assert ids(other.lease()) == [theirs]
        assert work.tenant().leased == 0
        assert other.tenant().leased == 1
        other.set_limits(concurrency=1)
        held = work.lease()
        assert len(held) == 3
        work.advance_time(10.0)
        assert other.lease() == []
        assert other.backend.sweep("other", other.now) == 0
        assert work.depth == DepthCounts(leased=3, delayed=1), "each queue has its own due messages"
        work.settle(Bury("why"), *held)
        assert other.backend.list_dead_letters(other.query()) == []
        assert other.redrive() == 0
        assert work.redrive() == 3
        assert ids(work.drain()) != []
        assert work.depth == DepthCounts()
        assert other.depth == DepthCounts(leased=1)

    def test_due_messages_of_another_queue_wake_no_worker(self, work: Probe) -> None:
        """A queue without workers must not keep the workers of other queues busy."""
        other = work.another("other")
        other.put()
        other.lease_one(lease=1.0)
        work.advance_time(5.0)
        work.put(delay=60.0)
        assert work.request_lease().next_due == pytest.approx(60.0, abs=0.01)

    def test_a_send_says_how_much_of_the_backlog_is_used(self, work: Probe) -> None:
        work.change_policy(max_waiting=100)
        [sent] = work.send_accepted(message())
        assert sent.pressure == pytest.approx(0.01)
        [*_, last] = work.send_accepted(*[message()] * 4)
        assert last.pressure == pytest.approx(0.05)
        work.change_policy(max_waiting=None)
        assert [one.pressure for one in work.send(message()) if isinstance(one, SentMessage)] == [0.0]


class KeySuite(BackendSuite):
    """Tests of messages that a sender sends again because it does not know whether they were stored."""

    required_capability = "deduplication"

    def test_the_same_key_is_stored_once(self, work: Probe) -> None:
        [first] = work.send_accepted(message(key="k"))
        [again] = work.send_accepted(message(key="k", body=b"another"))
        assert not first.is_duplicate
        assert again.is_duplicate
        assert (again.id, again.lane, again.trace) == (first.id, first.lane, first.trace)
        assert work.lease_one().body == b"x"

    def test_the_same_key_twice_in_one_batch_is_stored_once(self, work: Probe) -> None:
        sent = work.send_accepted(message(body=b"1", key="k"), message(body=b"2"), message(body=b"3", key="k"))
        assert [one.is_duplicate for one in sent] == [False, False, True]
        assert sent[0].id == sent[2].id
        assert sorted(one.body for one in work.lease()) == [b"1", b"2"]

    def test_keys_are_each_tenants_own(self, work: Probe) -> None:
        other = work.another("other")
        sent = work.send_accepted(
            *(message(tenant, key=key) for tenant in ("a", "A") for key in ("k", "K", "k ", "ä", "%"))
        )
        sent += other.send_accepted(message(key="k"))
        assert not any(one.is_duplicate for one in sent)
        assert len({one.id for one in sent}) == 11

    def test_a_key_outlives_its_message(self, work: Probe) -> None:
        """Also if it is dead: that is when a sender without an answer tries again."""
        work.put(key="done")
        work.drain()
        work.put(key="dead")
        work.settle(Bury("why"), work.lease_one())
        assert all(one.is_duplicate for one in work.send_accepted(message(key="done"), message(key="dead")))
        assert work.depth == DepthCounts(dead=1)

    def test_a_key_expires(self, work: Probe) -> None:
        """After the queue's `dedupe_for`, counted from the message that was stored."""
        work.change_policy(dedupe_for=60.0)
        [first] = work.send_accepted(message(key="k"))
        work.advance_time(59.0)
        assert work.send_accepted(message(key="k"))[0].is_duplicate
        work.advance_time(2.0)
        [second] = work.send_accepted(message(key="k"))
        assert not second.is_duplicate
        assert second.id != first.id
        work.advance_time(59.0)
        work.backend.sweep("work")
        assert work.send_accepted(message(key="k"))[0].id == second.id
        work.advance_time(2.0)
        work.backend.sweep("work")
        assert not work.send_accepted(message(key="k"))[0].is_duplicate

    def test_a_duplicate_uses_up_nothing(self, work: Probe) -> None:
        """It counts against no rate and no backlog."""
        work.set_limits(max_rate=1.0, max_burst=2.0)
        work.send_accepted(message(key="k"))
        assert work.send_accepted(*[message(key="k")] * 10)[-1].is_duplicate
        work.send_accepted(message(key="other"))
        [refused] = work.send(message())
        assert isinstance(refused, RefusedMessage)

    def test_a_key_of_a_message_that_was_refused_is_free(self, work: Probe) -> None:
        work.set_limits(max_rate=1.0, max_burst=1.0)
        first, *others = work.send(message(), message(key="k"), message(key="k"))
        assert isinstance(first, SentMessage)
        assert [type(one) for one in others] == [RefusedMessage, RefusedMessage]
        work.advance_time(1.0)
        [sent] = work.send_accepted(message(key="k"))
        assert not sent.is_duplicate

    def test_of_concurrent_sends_with_one_key_one_is_stored(self, work: Probe) -> None:
        def send(producer: int) -> list[SentMessage]:
            order = range(20) if producer % 2 else reversed(range(20))
            return work.send_accepted(*(message(f"t{number % 3}", key=f"k{number}") for number in order))

        sent = [one for some in together(6, send) for one in some]
        assert sum(not one.is_duplicate for one in sent) == 20
        assert len({one.id for one in sent}) == 20
        assert work.depth == DepthCounts(ready=20)


class WakeSuite(BackendSuite):
    """Tests of workers that wait for messages."""

    def test_a_send_wakes_a_waiting_worker(self, work: Probe) -> None:
        assert work.lease() == []
        self._woken(work, work.put)

    def test_a_wait_ends_immediately_after_an_unseen_send(self, work: Probe) -> None:
        """No send is missed at any moment, and each of several workers may find a message."""
        assert work.lease() == []
        work.put(count=2)
        assert work.backend.wait("work", 60.0)
        assert len(work.lease(1)) == 1
        assert work.backend.wait("work", 60.0), "one worker has its message, and another may take the rest"
        assert len(work.lease(5)) == 1
        assert self._ends(work, 0.0)

    def test_a_released_message_wakes_another_worker(self, work: Probe) -> None:
        """The worker that released it does not want more."""
        work.put()
        held = work.lease_one()
        assert work.lease() == []
        self._woken(work, lambda: work.settle(Release(), held))
        assert work.lease_one().id == held.id

    def test_the_next_of_a_group_wakes_a_waiting_worker(self, work: Probe) -> None:
        work.put(count=2, group="group")
        self._wakes(work)

    def test_the_next_of_a_tenant_at_its_limit_wakes_a_waiting_worker(self, work: Probe) -> None:
        work.set_limits(concurrency=1)
        work.put(count=2)
        self._wakes(work)

    def _wakes(self, work: Probe) -> None:
        """Settle a message: a worker that found nothing wakes up, and then finds a message."""
        held = work.lease_one()
        assert work.lease() == []
        self._woken(work, lambda: work.ack(held))
        work.advance_time(1.0)
        assert len(work.lease()) == 1

    def _woken(self, work: Probe, by: Callable[[], object]) -> None:
        """Call `by` while another thread waits, and check that it wakes up."""
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(work.backend.wait, "work", 3600.0)
            by()
            assert waiting.result(30.0)

    def test_a_wait_without_messages_ends(self, work: Probe) -> None:
        assert self._ends(work, 0.01)

    def _ends(self, work: Probe, seconds: float) -> bool:
        """Return whether a wait without messages ends, though perhaps not the first time."""
        return any(not work.lease() and not work.backend.wait("work", seconds) for _ in range(STEPS))
