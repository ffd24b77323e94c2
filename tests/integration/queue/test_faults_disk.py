"""A disk without room, below SQLite: senders are told, nothing is half-written, and workers survive it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._errors import DatabaseFull
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import Delivery, OutgoingMessage, Queue, QueuePolicy, open_backend
from holdfast.queue.backend import Ack, Backend, Bury, LeaseRequest, QueueChange, Settlement
from holdfast.queue.events import BackendErrorEvent
from holdfast.queue.worker import Worker, WorkerOptions
from holdfast.testing import FakeClock
from tests.integration.queue.places import Events, depth, drain, eventually
from tests.support.disk import FaultyDisk

LEASE = 30.0


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.sqlite"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def backend(disk: FaultyDisk, path: Path, clock: FakeClock) -> Iterator[Backend]:
    with open_backend(f"sqlite:{path}", clock=clock) as backend:
        backend.change("work", QueueChange(policy=QueuePolicy(lease=LEASE)), create=True)
        yield backend


def messages(count: int) -> list[OutgoingMessage]:
    return [OutgoingMessage(tenant=f"t{number % 3}", body=b"%d" % number, key=str(number)) for number in range(count)]


def take(backend: Backend, count: int = 100) -> list[Delivery]:
    return list(backend.lease(LeaseRequest(queue="work", count=count, lease=LEASE)).deliveries)


class TestSender:
    def test_a_send_is_refused_and_nothing_of_it_is_kept(self, backend: Backend, disk: FaultyDisk, path: Path) -> None:
        backend.send("work", messages(10))
        disk.full = True
        with pytest.raises(DatabaseFull, match="nothing was written"):
            backend.send("work", messages(200))
        disk.full = False
        assert depth(backend, "work") == (10, 0, 0, 0)
        with SqliteDatabase(path) as database:
            database.check()

    def test_what_was_refused_can_be_sent_when_there_is_room(self, backend: Backend, disk: FaultyDisk) -> None:
        """Its keys were not kept either."""
        disk.full = True
        with pytest.raises(DatabaseFull):
            backend.send("work", messages(10))
        disk.full = False
        assert not any(sent.is_duplicate for sent in backend.send("work", messages(10)))  # type: ignore[union-attr]
        assert len(drain(backend, "work")) == 10

    def test_looking_needs_no_room(self, backend: Backend, disk: FaultyDisk) -> None:
        backend.send("work", messages(10))
        disk.full = True
        assert depth(backend, "work") == (10, 0, 0, 0)
        disk.full = False


class TestWorker:
    def test_what_cannot_be_leased_stays_where_it_is(self, backend: Backend, disk: FaultyDisk) -> None:
        backend.send("work", messages(10))
        disk.full = True
        with pytest.raises(DatabaseFull):
            take(backend)
        disk.full = False
        assert [one.attempt for one in take(backend)] == [1] * 10

    @pytest.mark.parametrize("disposition", [Ack(), Bury("because")])
    def test_what_cannot_be_settled_is_held_until_it_can_be(
        self, disposition: Ack | Bury, backend: Backend, disk: FaultyDisk
    ) -> None:
        backend.send("work", messages(10))
        settlements = [Settlement(one.receipt, disposition) for one in take(backend)]
        disk.full = True
        with pytest.raises(DatabaseFull):
            backend.settle(settlements)
        disk.full = False
        assert depth(backend, "work") == (0, 10, 0, 0)
        assert all(backend.settle(settlements))
        assert depth(backend, "work") == (0, 0, 0, 10 if isinstance(disposition, Bury) else 0)

    def test_what_cannot_be_settled_in_time_is_delivered_again(
        self, backend: Backend, disk: FaultyDisk, clock: FakeClock
    ) -> None:
        backend.send("work", messages(1))
        [late] = take(backend)
        disk.full = True
        with pytest.raises(DatabaseFull):
            backend.settle([Settlement(late.receipt, Ack())])
        clock.advance(LEASE + 1)
        disk.full = False
        [again] = take(backend)
        assert (again.id, again.attempt) == (late.id, 2)
        assert backend.settle([Settlement(late.receipt, Ack())]) == [False]
        assert backend.settle([Settlement(again.receipt, Ack())]) == [True]

    def test_a_worker_says_what_became_of_a_message_as_soon_as_there_is_room(
        self, disk: FaultyDisk, path: Path
    ) -> None:
        """It neither loses it nor does it again."""
        events, handled = Events(), list[bytes]()
        queue = Queue("work", f"sqlite:{path}")

        @queue.handle()
        def handle(delivery: Delivery) -> None:
            handled.append(delivery.body)
            disk.full = True

        with queue, Worker(queue, WorkerOptions(concurrency=1, shutdown_timeout=5.0), sink=events):
            queue.send(b"one", tenant="a")
            eventually(
                lambda: any(
                    isinstance(one, BackendErrorEvent) and one.operation == "settle"
                    for one in events.of(BackendErrorEvent)
                )
            )
            assert depth(queue.backend, "work") == (0, 1, 0, 0)
            disk.full = False
            eventually(lambda: depth(queue.backend, "work") == (0, 0, 0, 0))
        assert handled == [b"one"]

    def test_a_worker_goes_on_when_there_is_room_to_lease(self, disk: FaultyDisk, path: Path) -> None:
        events, handled = Events(), threading.Event()
        queue = Queue("work", f"sqlite:{path}")

        @queue.handle()
        def handle(_: Delivery) -> None:
            handled.set()

        with queue:
            queue.send(b"one", tenant="a")
            worker = Worker(queue, WorkerOptions(concurrency=1, shutdown_timeout=5.0), sink=events)
            disk.full = True
            worker.start()
            eventually(
                lambda: any(
                    isinstance(one, BackendErrorEvent) and one.operation == "lease"
                    for one in events.of(BackendErrorEvent)
                )
            )
            assert not handled.is_set()
            disk.full = False
            assert handled.wait(60.0)
            worker.stop()
