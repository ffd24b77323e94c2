"""PostgreSQL that goes away, or whose answers are lost: what senders hear, and that workers recover by themselves."""

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from holdfast._errors import EngineUnavailable, OutcomeUnknown
from holdfast.queue import Delivery, OutgoingMessage, Queue, QueuePolicy, SentMessage, open_backend
from holdfast.queue.backend import Ack, Backend, LeaseRequest, QueueChange, Settlement
from holdfast.queue.events import BackendErrorEvent
from holdfast.queue.worker import Worker, WorkerOptions
from tests.integration.queue.places import Events, depth, drain, eventually, schema_of_its_own
from tests.services.postgres import RestartablePostgres
from tests.support.proxy import LossyProxy

COMMIT = b"COMMIT\0"
OPTIONS = WorkerOptions(concurrency=2, shutdown_timeout=5.0)
PATIENCE = 0.1
"""Seconds that a sender waits for a server that is away: short, so that it hears of it."""


class Producer:
    """Sends numbers, one after the other, and repeats what it was told had failed."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.sent: dict[int, set[int]] = {}
        self.failed = threading.Event()
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                sent = self._queue.send(b"%d" % number, tenant="a", key=str(number))
            except (EngineUnavailable, OutcomeUnknown):
                self.failed.set()
                continue
            except BaseException as error:
                self.errors.append(error)
                return
            self.sent.setdefault(number, set()).add(sent.id)
            number += 1


def test_a_restart_loses_nothing_and_a_worker_goes_on_by_itself(restartable_postgres: RestartablePostgres) -> None:
    server, events, handled = restartable_postgres, Events(), list[tuple[int, bytes]]()
    with open_backend(server.url, timeout=PATIENCE) as backend:
        queue = Queue("work", backend, policy=QueuePolicy(lease=2.0))

        @queue.handle()
        def handle(delivery: Delivery) -> None:
            handled.append((delivery.id, delivery.body))

        with Worker(queue, OPTIONS, sink=events):
            producer = Producer(queue)
            eventually(lambda: len(handled) >= 20)
            server.stop()
            assert producer.failed.wait(60.0)
            eventually(lambda: events.of(BackendErrorEvent))
            server.start()
            before = len(producer.sent)
            eventually(lambda: len(producer.sent) > before + 20)
            producer.stop()
            assert producer.errors == []
            eventually(lambda: depth(backend, "work") == (0, 0, 0, 0))
        acknowledged = {(id_, b"%d" % number) for number, ids in producer.sent.items() for id_ in ids}
        assert acknowledged <= set(handled)
        assert len({body for _, body in handled}) == len({id_ for id_, _ in handled})  # none was kept twice


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[LossyProxy]:
    server = urlsplit(postgres_url)
    assert server.hostname is not None
    assert server.port is not None
    with LossyProxy(server.hostname, server.port) as proxy:
        yield proxy


@pytest.fixture
def url(postgres_url: str, proxy: LossyProxy) -> Iterator[str]:
    server = urlsplit(postgres_url)
    with schema_of_its_own(postgres_url) as url:
        yield url.replace(f"{server.hostname}:{server.port}", f"{proxy.host}:{proxy.port}")


@pytest.fixture
def backend(url: str) -> Iterator[Backend]:
    with open_backend(url) as backend:
        backend.change("work", QueueChange(policy=QueuePolicy(lease=30.0)), create=True)
        yield backend


def take(backend: Backend, lease: float = 30.0) -> list[Delivery]:
    return list(backend.lease(LeaseRequest(queue="work", count=10, lease=lease)).deliveries)


class TestLostReplies:
    def test_a_send_whose_reply_is_lost_is_kept_once_when_it_is_repeated_with_its_key(
        self, backend: Backend, proxy: LossyProxy
    ) -> None:
        message = OutgoingMessage(tenant="a", body=b"one", key="order-1")
        proxy.lose("reply", COMMIT)
        with pytest.raises(OutcomeUnknown):
            backend.send("work", [message])
        [second] = backend.send("work", [message])
        assert isinstance(second, SentMessage)
        assert second.is_duplicate
        assert drain(backend, "work") == [b"one"]

    def test_a_send_that_never_arrived_is_kept_when_it_is_repeated_with_its_key(
        self, backend: Backend, proxy: LossyProxy
    ) -> None:
        message = OutgoingMessage(tenant="a", body=b"one", key="order-1")
        proxy.lose("request", COMMIT)
        with pytest.raises(OutcomeUnknown):
            backend.send("work", [message])
        [second] = backend.send("work", [message])
        assert isinstance(second, SentMessage)
        assert not second.is_duplicate
        assert drain(backend, "work") == [b"one"]

    def test_without_a_key_the_sender_decides_between_twice_and_never(
        self, backend: Backend, proxy: LossyProxy
    ) -> None:
        message = OutgoingMessage(tenant="a", body=b"one")
        proxy.lose("reply", COMMIT)
        with pytest.raises(OutcomeUnknown):
            backend.send("work", [message])
        backend.send("work", [message])
        assert drain(backend, "work") == [b"one", b"one"]

    def test_a_settlement_whose_reply_is_lost_may_be_repeated(self, backend: Backend, proxy: LossyProxy) -> None:
        backend.send("work", [OutgoingMessage(tenant="a", body=b"one")])
        [held] = take(backend)
        proxy.lose("reply", COMMIT)
        with pytest.raises(OutcomeUnknown):
            backend.settle([Settlement(held.receipt, Ack())])
        assert backend.settle([Settlement(held.receipt, Ack())]) == [False]
        assert depth(backend, "work") == (0, 0, 0, 0)

    def test_a_lease_whose_reply_is_lost_ends_like_any_other(self, backend: Backend, proxy: LossyProxy) -> None:
        """Nobody holds what was handed out: it is handed out once more when the lease is over."""
        backend.send("work", [OutgoingMessage(tenant="a", body=b"one")])
        proxy.lose("reply", COMMIT)
        with pytest.raises(OutcomeUnknown):
            take(backend, lease=0.1)
        found: list[Delivery] = []

        def is_back() -> bool:
            found.extend(take(backend))
            return bool(found)

        eventually(is_back)
        assert [(one.body, one.attempt) for one in found] == [(b"one", 2)]

    def test_a_worker_whose_settlement_got_no_reply_does_nothing_twice(
        self, url: str, backend: Backend, proxy: LossyProxy
    ) -> None:
        """It says again what became of the message, and is told that this is settled."""
        events, handled = Events(), list[bytes]()
        queue = Queue("work", url)

        @queue.handle()
        def handle(delivery: Delivery) -> None:
            handled.append(delivery.body)
            proxy.lose("reply", b"delete from holdfast_queue_message")

        with queue, Worker(queue, OPTIONS, sink=events):
            queue.send(b"one", tenant="a")
            eventually(lambda: handled and proxy.losses and depth(backend, "work") == (0, 0, 0, 0))
        assert handled == [b"one"]

    def test_a_worker_cut_off_for_a_while_goes_on(self, url: str, backend: Backend, proxy: LossyProxy) -> None:
        events, handled = Events(), set[bytes]()
        with open_backend(url, timeout=PATIENCE) as slow:
            queue = Queue("work", slow)

            @queue.handle()
            def handle(delivery: Delivery) -> None:
                handled.add(delivery.body)

            with Worker(queue, OPTIONS, sink=events):
                queue.send(b"before", tenant="a")
                eventually(lambda: b"before" in handled)
                proxy.refuse()
                eventually(lambda: events.of(BackendErrorEvent))
                proxy.admit()
                proxy.cut()
                queue_elsewhere(backend)
                eventually(lambda: handled == {b"before", b"meanwhile"})
                eventually(lambda: depth(backend, "work") == (0, 0, 0, 0))


def queue_elsewhere(backend: Backend) -> None:
    """Somebody else sends something."""
    backend.send("work", [OutgoingMessage(tenant="b", body=b"meanwhile")])
