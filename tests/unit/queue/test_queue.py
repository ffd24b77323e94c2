"""A queue as those who send see it."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast._errors import Backpressure, EngineUnavailable, InvalidValue, NotFound
from holdfast.calls import deadline, detached
from holdfast.calls.context import SCOPE, reset_scope
from holdfast.calls.scope import IncomingScope
from holdfast.queue import (
    Delivery,
    HandlerOptions,
    Limits,
    OutgoingMessage,
    Queue,
    QueuePolicy,
    RefusedMessage,
    SentMessage,
    Topic,
    open_backend,
)
from holdfast.queue.backend import LeaseRequest, QueueChange
from holdfast.queue.backends.memory import MemoryBackend
from holdfast.queue.events import SendEvent
from holdfast.testing import FakeClock
from tests.unit.forked import in_child
from tests.unit.queue.made import Kept
from tests.unit.queue.toy import LimitedBackend
from tests.unit.queue.worker.bench import Faulty

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def backend(clock: FakeClock) -> MemoryBackend:
    return MemoryBackend(clock)


@pytest.fixture
def queue(backend: MemoryBackend, clock: FakeClock) -> Queue:
    return Queue("work", backend, clock=clock)


def _all(queue: Queue) -> list[Delivery]:
    return list(queue.backend.lease(LeaseRequest(queue=queue.name, count=100, lease=30.0)).deliveries)


class TestSending:
    def test_what_is_sent_is_what_arrives(self, queue: Queue) -> None:
        sent = queue.send(b"hello", tenant="a", priority=0, group="g", key="k", ttl=60)
        [delivery] = _all(queue)
        assert (delivery.id, delivery.body, delivery.tenant, delivery.group) == (sent.id, b"hello", "a", "g")
        assert (sent.queue, sent.lane % 4, sent.trace, sent.is_duplicate) == ("work", 0, delivery.trace, False)

    def test_a_key_keeps_a_message_from_being_kept_twice(self, queue: Queue) -> None:
        first = queue.send(b"x", tenant="a", key="k")
        second = queue.send(b"x", tenant="a", key="k")
        assert second.id == first.id
        assert second.is_duplicate

    def test_many_are_sent_in_one_step(self, queue: Queue) -> None:
        results = queue.send_many([OutgoingMessage(tenant=f"t{number}", body=b"%d" % number) for number in range(100)])
        assert all(isinstance(result, SentMessage) for result in results)
        assert {delivery.body for delivery in _all(queue)} == {b"%d" % number for number in range(100)}
        assert queue.send_many([]) == []

    def test_a_sink_is_told_what_was_sent_and_what_became_of_it(self, backend: MemoryBackend, clock: FakeClock) -> None:
        kept = Kept()
        policy = QueuePolicy(limits=Limits(max_rate=1.0, max_burst=2.0))
        queue = Queue("work", backend, policy=policy, clock=clock, sink=kept)
        queue.send(b"1", tenant="a")
        batch = [OutgoingMessage(tenant="a", body=b"2"), OutgoingMessage(tenant="a", body=b"3")]
        results = asyncio.run(queue.send_many_async(batch))
        with pytest.raises(Backpressure):
            queue.send(b"4", tenant="a")
        first, second, third = kept.all
        assert second == SendEvent(queue="work", at=clock.wall(), messages=batch, results=results)
        assert [type(result) for result in results] == [SentMessage, RefusedMessage]
        assert isinstance(first, SendEvent)
        assert isinstance(third, SendEvent)
        assert [len(first.results), type(third.results[0])] == [1, RefusedMessage]

    def test_a_sink_that_raises_loses_no_message(self, backend: MemoryBackend) -> None:
        class Broken:
            def emit(self, event: SendEvent) -> None:
                raise RuntimeError("no")

        queue = Queue("work", backend, sink=Broken())
        queue.send(b"1", tenant="a")
        assert [delivery.body for delivery in _all(queue)] == [b"1"]

    def test_a_tenant_that_has_sent_too_much_is_told_when_to_come_back(self, queue: Queue, clock: FakeClock) -> None:
        queue.backend.change("work", QueueChange(limits={"noisy": Limits(max_rate=1.0, max_burst=2.0)}))
        queue.send(b"1", tenant="noisy")
        queue.send(b"2", tenant="noisy")
        with pytest.raises(Backpressure, match=r"tenant noisy exceeds its max_rate; try again in 1\.000 s") as told:
            queue.send(b"3", tenant="noisy")
        assert told.value.retry_after == pytest.approx(1.0)
        queue.send(b"of somebody else", tenant="quiet")
        clock.advance(1.0)
        queue.send(b"3", tenant="noisy")

    def test_a_tenant_whose_backlog_is_full_is_told_so(self, queue: Queue) -> None:
        queue.backend.change("work", QueueChange(limits={"noisy": Limits(max_waiting=1)}))
        queue.send(b"1", tenant="noisy")
        with pytest.raises(Backpressure, match="tenant noisy has too many messages waiting"):
            queue.send(b"2", tenant="noisy")
        [refused] = queue.send_many([OutgoingMessage(tenant="noisy", body=b"2")])
        assert isinstance(refused, RefusedMessage)

    @pytest.mark.parametrize(
        "message",
        [OutgoingMessage(tenant="", body=b""), OutgoingMessage(tenant="a", body=bytes(1 << 21))],
        ids=["tenant", "body"],
    )
    def test_what_no_queue_takes_is_refused(self, queue: Queue, message: OutgoingMessage) -> None:
        with pytest.raises(InvalidValue):
            queue.send_one(message)

    def test_an_event_loop_is_not_blocked(self, queue: Queue) -> None:
        @queue.job
        async def work(number: int) -> None: ...

        async def main() -> list[int]:
            first = await queue.send_async(b"1", tenant="a", priority=1)
            second = await queue.send_one_async(OutgoingMessage(tenant="a", body=b"2"))
            [third] = await queue.send_many_async([OutgoingMessage(tenant="a", body=b"3")])
            fourth = await work.to("a").send_async(4)
            assert isinstance(third, SentMessage)
            return [first.id, second.id, third.id, fourth.id]

        threads: set[int] = set()
        backend = queue.backend
        assert isinstance(backend, MemoryBackend)
        faulty = Faulty(backend)
        faulty.on["send"] = lambda: threads.add(threading.get_ident())
        queue._lazy_backend._backend = faulty
        queue._lazy_backend._opened = None
        ids = asyncio.run(main())
        assert {delivery.id for delivery in _all(queue)} == set(ids)
        assert threading.get_ident() not in threads
        assert threads


class TestWhatTravels:
    def test_the_deadline_of_the_sender(self, queue: Queue, clock: FakeClock) -> None:
        with deadline(60):
            queue.send(b"x", tenant="a")
        [delivery] = _all(queue)
        assert delivery.deadline == pytest.approx(clock.wall() + 60, abs=5)

    def test_the_trace_of_the_request_that_is_being_answered(self, queue: Queue) -> None:
        token = SCOPE.set(IncomingScope(float("inf"), None, None, TRACE))
        try:
            sent = queue.send(b"x", tenant="a")
            with deadline(5):
                within = queue.send(b"x", tenant="a")
        finally:
            reset_scope(token)
        assert (sent.trace, within.trace) == (TRACE, TRACE)
        assert [delivery.trace for delivery in _all(queue)] == [TRACE, TRACE]

    def test_what_a_message_says_itself_comes_first(self, queue: Queue, clock: FakeClock) -> None:
        other = TRACE.replace("0af7", "ffff")
        token = SCOPE.set(IncomingScope(float("inf"), None, None, TRACE))
        try:
            with deadline(60):
                queue.send_one(OutgoingMessage(tenant="a", body=b"", trace=other, deadline=clock.wall() + 7))
        finally:
            reset_scope(token)
        [delivery] = _all(queue)
        assert (delivery.trace, delivery.deadline) == (other, clock.wall() + 7)

    def test_nothing_when_the_sender_says_so(self, queue: Queue) -> None:
        with deadline(60), detached():
            queue.send(b"x", tenant="a")
        [delivery] = _all(queue)
        assert delivery.deadline is None

    def test_a_deadline_in_a_thousand_years_is_none(self, queue: Queue) -> None:
        with deadline(1e15):
            queue.send(b"x", tenant="a")
        with deadline(None):
            queue.send(b"x", tenant="a")
        assert [delivery.deadline for delivery in _all(queue)] == [None, None]

    def test_a_deadline_crosses_to_the_thread_that_sends(self, queue: Queue, clock: FakeClock) -> None:
        async def main() -> None:
            with deadline(60):
                await queue.send_async(b"x", tenant="a")

        asyncio.run(main())
        [delivery] = _all(queue)
        assert delivery.deadline == pytest.approx(clock.wall() + 60, abs=5)


class TestOpening:
    def test_nothing_is_opened_before_it_is_needed(self, tmp_path: Path) -> None:
        path = tmp_path / "work.sqlite"
        queue = Queue("work", f"sqlite:{path}")
        queue.job(name="work")(lambda: None)
        queue.close()
        assert not path.exists()
        queue.open()
        assert path.exists()
        queue.close()

    def test_a_queue_that_exists_keeps_its_policy(self, backend: MemoryBackend) -> None:
        first = Queue("work", backend, policy=QueuePolicy(lease=7.0))
        second = Queue("work", backend, policy=QueuePolicy(lease=9.0))
        assert (first.policy.lease, second.policy.lease) == (7.0, 7.0)
        assert Queue("other", backend, policy=QueuePolicy(lease=9.0)).policy.lease == 9.0

    def test_whoever_has_another_policy_for_it_is_told(
        self, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        Queue("work", backend, policy=QueuePolicy(lease=7.0)).open()
        for policy in (None, QueuePolicy(lease=7.0)):
            Queue("work", backend, policy=policy).open()
        assert caplog.text == ""
        Queue("work", backend, policy=QueuePolicy(lease=9.0, limits=Limits(spill_rate=5))).open()
        assert "queue work already exists with a different policy: " in caplog.text
        assert "limits.spill_rate is none and not 5, lease is 7 and not 9. The policy in a program" in caplog.text

    @pytest.mark.parametrize(
        ("at", "address"),
        [
            ("memory:", "memory:"),
            ("sqlite:/data/work.sqlite", "sqlite:/data/work.sqlite"),
            ("postgresql://anna:secret@db.test:5433/work?sslmode=require", "postgresql://db.test/work"),
            (MemoryBackend(), "MemoryBackend"),
        ],
    )
    def test_where_it_is_can_be_told_without_secrets(self, at: Any, address: str) -> None:
        assert Queue("work", at).address == address

    def test_a_file_is_told_with_its_whole_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        assert Queue("work", "sqlite:work.sqlite").address == f"sqlite:{tmp_path / 'work.sqlite'}"

    def test_a_backend_that_was_passed_stays_open(self, backend: MemoryBackend) -> None:
        with Queue("work", backend) as queue:
            queue.send(b"x", tenant="a")
        assert len(_all(queue)) == 1

    def test_close_may_be_repeated_and_what_was_closed_is_opened_again(self, tmp_path: Path) -> None:
        queue = Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}")
        queue.close()
        queue.send(b"x", tenant="a")
        queue.close()
        queue.close()
        assert len(_all(queue)) == 1
        queue.close()

    def test_many_threads_open_it_once(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        opened: list[str] = []

        def count(url: str, **options: object) -> MemoryBackend:
            opened.append(url)
            return MemoryBackend()

        monkeypatch.setattr("holdfast.queue.queue.open_backend", count)
        queue = Queue("work", "memory:")
        together = threading.Barrier(8)

        def use() -> None:
            together.wait()
            queue.send(b"x", tenant="a")

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert opened == ["memory:"]
        assert len(_all(queue)) == 8

    def test_what_fails_while_it_is_opened_is_closed_and_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        backends = [Faulty(MemoryBackend()), Faulty(MemoryBackend())]
        backends[0].fail("change", EngineUnavailable("away"))
        closed: list[Faulty] = []

        def close(backend: Faulty) -> None:
            closed.append(backend)

        waiting = list(backends)
        monkeypatch.setattr("holdfast.queue.queue.open_backend", lambda *_, **__: waiting.pop(0))
        monkeypatch.setattr(Faulty, "close", close)
        queue = Queue("work", "memory:")
        with pytest.raises(EngineUnavailable):
            queue.open()
        assert closed == [backends[0]]
        queue.open()
        assert queue.backend is backends[1]

    def test_a_forked_child_opens_its_own(self, tmp_path: Path) -> None:
        queue = Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}")
        queue.send(b"parent", tenant="a")
        parents = queue.backend

        def work() -> bool:
            queue.send(b"child", tenant="a")
            is_own = queue.backend is not parents
            queue.close()
            return is_own

        in_child(work)
        queue.send(b"parent again", tenant="a")
        assert queue.backend is parents
        assert {delivery.body for delivery in _all(queue)} == {b"parent", b"child", b"parent again"}
        queue.close()

    def test_a_lock_that_another_thread_held_does_not_stop_the_child(self, tmp_path: Path) -> None:
        queue = Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}")
        with queue._lazy_backend._lock:
            in_child(lambda: queue.send(b"child", tenant="a").id > 0)
        assert len(_all(queue)) == 1
        queue.close()

    def test_what_a_child_closes_is_not_its_parents(self, tmp_path: Path) -> None:
        queue = Queue("work", f"sqlite:{tmp_path / 'work.sqlite'}")
        queue.send(b"x", tenant="a")

        def work() -> bool:
            queue.close()
            return True

        in_child(work)
        assert len(_all(queue)) == 1
        queue.close()

    def test_sqlite_needs_a_file(self) -> None:
        with pytest.raises(InvalidValue, match="sqlite: without a file"):
            open_backend("sqlite:")

    @pytest.mark.parametrize("form", ["sqlite:{}", "sqlite://{}"])
    def test_a_sqlite_file_may_be_written_in_two_ways(self, tmp_path: Path, form: str) -> None:
        path = tmp_path / "work.sqlite"
        with open_backend(form.format(path)):
            assert path.exists()

    def test_a_relative_path_is_relative(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with open_backend("sqlite:work.sqlite"):
            assert (tmp_path / "work.sqlite").exists()

    @pytest.mark.parametrize("name", ["", "a b", "x" * 200])
    def test_names_are_checked(self, name: str) -> None:
        with pytest.raises(InvalidValue, match=r"queue .*: expected 1 to 128"):
            Queue(name, "memory:")

    @pytest.mark.parametrize("name", [None, 7, b"work"])
    def test_a_name_is_text(self, name: Any) -> None:
        with pytest.raises(InvalidValue, match=f"queue of type {type(name).__name__}: expected its name"):
            Queue(name, "memory:")


class TestHandlers:
    def test_a_queue_has_one_handler(self, queue: Queue) -> None:
        @queue.handle(timeout=5.0)
        def handle(_: Delivery) -> None: ...

        assert queue.handler is handle
        assert queue.handler_options.timeout == 5.0
        with pytest.raises(InvalidValue, match="queue work already has a handler"):
            queue.handle()(handle)

    def test_a_handler_needs_no_parentheses(self, queue: Queue) -> None:
        @queue.handle
        def handle(_: Delivery) -> None: ...

        assert queue.handler is handle
        assert queue.handler_options == HandlerOptions()
        with pytest.raises(InvalidValue, match="queue work already has a handler"):
            queue.handle(handle)

    @pytest.mark.parametrize("kind", ["sync", "async", "object", "partial"])
    def test_a_generator_is_refused_because_calling_it_would_do_nothing(self, queue: Queue, kind: str) -> None:
        def sync(_: object) -> Iterator[None]:
            yield

        async def asynchronous(_: object) -> AsyncIterator[None]:
            yield

        class Callable:
            def __call__(self, _: object) -> Iterator[None]:
                yield

        generator: Any = {
            "sync": sync,
            "async": asynchronous,
            "object": Callable(),
            "partial": functools.partial(sync, 1),
        }[kind]
        with pytest.raises(InvalidValue, match="is a generator, and calling it would do nothing: expected a function"):
            queue.handle()(generator)
        with pytest.raises(InvalidValue, match="is a generator, and calling it would do nothing: expected a function"):
            queue.job(name="work")(generator)
        assert queue.handler is None
        assert not queue.jobs


class TestTopics:
    def test_every_queue_that_subscribes_gets_a_message(self, backend: MemoryBackend) -> None:
        mail, bill = Queue("mail", backend), Queue("bill", backend)
        with Topic("orders", backend) as topic:
            topic.subscribe(mail)
            topic.subscribe(bill)
            assert len(topic.publish([OutgoingMessage(tenant="a", body=b"x")])) == 2
            topic.unsubscribe(bill)
            assert [
                result.queue
                for result in topic.publish([OutgoingMessage(tenant="a", body=b"y")])
                if isinstance(result, SentMessage)
            ] == ["mail"]
        assert [delivery.body for delivery in _all(mail)] == [b"x", b"y"]
        assert [delivery.body for delivery in _all(bill)] == [b"x"]

    def test_a_sink_is_told_of_every_queue_what_became_of_the_messages(
        self, backend: MemoryBackend, clock: FakeClock
    ) -> None:
        kept = Kept()
        topic = Topic("orders", backend, clock=clock, sink=kept)
        messages = [OutgoingMessage(tenant="a", body=b"x"), OutgoingMessage(tenant="b", body=b"y")]
        assert topic.publish(messages) == []
        small = QueuePolicy(limits=Limits(max_rate=1.0, max_burst=1.0))
        for queue in (Queue("mail", backend), Queue("bill", backend, policy=small)):
            topic.subscribe(queue)
        Queue("bill", backend).send(b"0", tenant="b")
        results = topic.publish(messages)
        assert topic.publish([]) == []
        assert {event.queue: event for event in kept.all if isinstance(event, SendEvent)} == {
            name: SendEvent(
                queue=name,
                at=clock.wall(),
                messages=messages,
                results=[result for result in results if result.queue == name],
            )
            for name in ("bill", "mail")
        }
        assert len(kept.all) == 2
        assert [type(result) for result in results if result.queue == "bill"] == [SentMessage, RefusedMessage]

    def test_deadline_and_trace_travel(self, backend: MemoryBackend, queue: Queue, clock: FakeClock) -> None:
        topic = Topic("orders", backend, clock=clock)
        topic.subscribe(queue)
        with deadline(60):
            asyncio.run(topic.publish_async([OutgoingMessage(tenant="a", body=b"x", trace=TRACE)]))
            topic.publish([OutgoingMessage(tenant="a", body=b"y")])
        for delivery in _all(queue):
            assert delivery.deadline == pytest.approx(clock.wall() + 60, abs=5)

    def test_a_queue_that_is_kept_elsewhere_cannot_subscribe(self, backend: MemoryBackend) -> None:
        with pytest.raises(NotFound):
            Topic("orders", backend).subscribe(Queue("elsewhere", MemoryBackend()))

    def test_a_topic_may_have_an_address(self, tmp_path: Path) -> None:
        address = f"sqlite:{tmp_path / 'work.sqlite'}"
        with Queue("mail", address) as mail, Topic("orders", address) as topic:
            topic.subscribe(mail)
            topic.publish([OutgoingMessage(tenant="a", body=b"x")])
            assert [delivery.body for delivery in _all(mail)] == [b"x"]

    def test_names_of_topics_are_checked(self) -> None:
        with pytest.raises(InvalidValue, match="topic 'a b': expected 1 to 128"):
            Topic("a b", "memory:")


class TestCapabilities:
    """What a backend cannot do is refused before it is asked."""

    def test_a_message_that_asks_for_it_is_not_sent(self) -> None:
        queue = Queue("work", LimitedBackend())
        for options in ({"group": "g"}, {"key": "k"}, {"delay": 61.0}):
            with pytest.raises(InvalidValue, match="this backend"):
                queue.send(b"x", tenant="a", **options)
        queue.send(b"x", tenant="a", delay=60.0)
        assert queue.backend.inspect("work").totals.delayed == 1

    def test_a_topic_neither_publishes_nor_subscribes(self) -> None:
        backend = LimitedBackend()
        queue, topic = Queue("work", backend), Topic("news", backend)
        for use in (
            topic.subscribe,
            topic.unsubscribe,
            lambda _: topic.publish([OutgoingMessage(tenant="a", body=b"x")]),
        ):
            with pytest.raises(InvalidValue, match="this backend does not support topics"):
                use(queue)
