"""PostgreSQL: many who send, handle and settle at once lose nothing, hold nothing twice, and never wait in a circle."""

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import psycopg
import pytest

from holdfast._clock import SystemClock
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.queue import Queue, Topic
from holdfast.queue.backend import DeadLetterQuery, LeaseRequest, LeaseResult, QueueChange
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.message import (
    Ack,
    Bury,
    Delivery,
    Disposition,
    OutgoingMessage,
    Release,
    RetryLater,
    SentMessage,
    Settlement,
)
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.testing import FakeClock
from tests.integration.queue.places import STUCK, schema_of_its_own
from tests.table import sampled
from tests.unit.queue.backends.sql.counting import require_exact

PRODUCERS = WORKERS = 4
DISPOSITIONS: tuple[Disposition, ...] = (*[Ack()] * 8, Release(), RetryLater(0.002, is_attempt=False))


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    schema = f"concurrency_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        url = f"{postgres_url}?options=-csearch_path%3D{schema}"
        with PostgresDatabase(PostgresOptions(url=url, max_connections=PRODUCERS + WORKERS)) as database:
            yield database
        connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture
def runs_again() -> Iterator[list[str]]:
    """Why transactions were run again: the engine hides that from those who asked for them."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, handler = logging.getLogger("holdfast.engines.postgres"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


class Traffic:
    """Messages of a few tenants, with groups, priorities, delays and keys, all at once."""

    def __init__(self, backend: SqlBackend, each: int) -> None:
        self.backend = backend
        self.each = each  # messages of a producer
        self.sent: list[int] = []
        self.handled: list[int] = []
        self.orders: dict[tuple[str, str], list[int]] = {}
        self._held: set[int] = set()
        self._busy: set[tuple[str, str]] = set()
        self._gate = threading.Lock()

    def run(self) -> None:
        with ThreadPoolExecutor(PRODUCERS + WORKERS) as threads:
            producing = [threads.submit(self._produce, Random(number)) for number in range(PRODUCERS)]
            serving = [threads.submit(self._serve, Random(100 + number)) for number in range(WORKERS)]
            for future in (*producing, *serving):
                future.result()

    def _produce(self, random: Random) -> None:
        left = self.each
        while left:
            count = min(left, random.choice([1, 5, 40]))
            left -= count
            results = self.backend.send("work", [self._message(random) for _ in range(count)])
            with self._gate:
                self.sent += [one.id for one in results if isinstance(one, SentMessage) and not one.is_duplicate]
        with self._gate:
            self.sent.append(0)  # this one has no more

    def _message(self, random: Random) -> OutgoingMessage:
        return OutgoingMessage(
            tenant=f"t{random.randrange(8)}",
            body=b"x",
            priority=random.choice([0, 2, 2]),
            delay=random.choice([0.0] * 9 + [0.01]),
            group=random.choice([None] * 6 + ["g", "h"]),
            key=random.choice([None] * 6 + [f"k{random.randrange(40)}"]),
        )

    def _serve(self, random: Random) -> None:
        while True:
            leased = self.backend.lease(LeaseRequest(queue="work", count=random.choice([1, 10, 50]), lease=600.0))
            if not leased.deliveries:
                if self._is_over():
                    return
                self.backend.wait("work", min(0.05, leased.next_due or 0.05))
                continue
            dispositions = [random.choice(DISPOSITIONS) for _ in leased.deliveries]
            self._hold(leased)
            self._let_go(leased, dispositions)
            settlements = [
                Settlement(one.receipt, disposition)
                for one, disposition in zip(leased.deliveries, dispositions, strict=True)
            ]
            assert all(self.backend.settle(settlements))

    def _hold(self, leased: LeaseResult) -> None:
        with self._gate:
            ids = {one.id for one in leased.deliveries}
            groups = [(one.tenant, one.group) for one in leased.deliveries if one.group is not None]
            assert not self._held.intersection(ids), "somebody else holds it"
            assert len(set(groups)) == len(groups)
            assert not self._busy.intersection(groups), "somebody else holds one of its group"
            self._held |= ids
            self._busy.update(groups)

    def _let_go(self, leased: LeaseResult, dispositions: list[Disposition]) -> None:
        with self._gate:
            for one, disposition in zip(leased.deliveries, dispositions, strict=True):
                self._held.discard(one.id)
                if one.group is not None:
                    self._busy.discard((one.tenant, one.group))
                if isinstance(disposition, Ack):
                    self.handled.append(one.id)
                    if one.group is not None:
                        self.orders.setdefault((one.tenant, one.group), []).append(one.id)

    def _is_over(self) -> bool:
        with self._gate:
            return self.sent.count(0) == PRODUCERS and len(self.handled) == len(self.sent) - PRODUCERS


@pytest.mark.parametrize("each", sampled([120, 400]))
@pytest.mark.parametrize("hand", [4, 0])
@pytest.mark.parametrize(
    "limits", [Limits(), Limits(concurrency=4, spill_rate=100.0, spill_burst=20.0)], ids=["free", "limited"]
)
def test_many_at_once_lose_nothing_and_hold_nothing_twice(
    database: PostgresDatabase, runs_again: list[str], limits: Limits, hand: int, each: int
) -> None:
    policy = QueuePolicy(lanes=16, lanes_per_tenant=hand, spill_above=50, max_attempts=1000, limits=limits)
    backend = SqlBackend(database)
    backend.change("work", QueueChange(policy=policy), create=True)
    traffic = Traffic(backend, each)
    traffic.run()
    sent = [number for number in traffic.sent if number]
    assert sorted(traffic.handled) == sorted(sent)
    assert all(order == sorted(order) for order in traffic.orders.values())
    require_exact(database)
    assert database.read(lambda transaction: transaction.execute("select count(*) from holdfast_queue_message")) == [
        (0,)
    ]
    assert runs_again == [], "nobody waited in a circle"
    backend.close()


def test_new_tenants_and_lanes_are_made_by_many_at_once(database: PostgresDatabase, runs_again: list[str]) -> None:
    """All of them the first to send, to the same tenants, in whatever order."""
    backend = SqlBackend(database)
    backend.change("work", QueueChange(policy=QueuePolicy(lanes=8, spill_above=3)), create=True)
    gate = threading.Barrier(8)

    def send(number: int) -> None:
        random = Random(number)
        for first in range(0, 60, 6):
            tenants = [f"t{first + place}" for place in range(-3, 6)]
            random.shuffle(tenants)
            gate.wait()
            priority = random.randrange(4)
            backend.send(
                "work", [OutgoingMessage(tenant=tenant, body=b"x", priority=priority) for tenant in tenants * 2]
            )

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(8)))
    require_exact(database)
    assert sum(lane.ready for lane in backend.inspect("work").lanes) == 8 * 10 * 18
    assert runs_again == [], "nobody waited in a circle"
    backend.close()


def test_a_sweep_and_whoever_ends_the_first_of_a_group_never_wait_in_a_circle(
    database: PostgresDatabase, runs_again: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has found the next of the group, which has expired, and is slow to lock their tenant."""
    clock = FakeClock()
    backend = SqlBackend(database, clock)
    backend.change("work", QueueChange(), create=True)
    backend.send("work", [OutgoingMessage(tenant="a", body=b"first", group="g")])
    backend.send("work", [OutgoingMessage(tenant="a", body=b"next", group="g", ttl=1.0)])
    backend.send("work", [OutgoingMessage(tenant="a", body=b"last", group="g")])
    [first] = backend.lease(LeaseRequest(queue="work", count=5, lease=60.0)).deliveries
    clock.advance(2.0)
    lock, has_found, is_locked = Step.lock, threading.Event(), threading.Event()

    def slow(step: Step) -> None:
        is_sweep = threading.current_thread() is sweeper
        if is_sweep:
            has_found.set()
            assert is_locked.wait(STUCK)
        lock(step)
        if not is_sweep:
            is_locked.set()

    monkeypatch.setattr(Step, "lock", slow)
    swept: list[int] = []
    sweeper = threading.Thread(target=lambda: swept.append(backend.sweep("work")))
    sweeper.start()
    assert has_found.wait(STUCK)
    assert backend.settle([Settlement(first.receipt, Ack())]) == [True]
    sweeper.join()
    assert swept == [1]
    [last] = backend.lease(LeaseRequest(queue="work", count=5, lease=60.0)).deliveries
    assert last.body == b"last"
    require_exact(database)
    assert runs_again == [], "nobody waited in a circle"
    backend.close()


def test_what_is_handed_out_while_a_sweep_is_about_to_drop_it_is_kept(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is at work on it."""
    clock = FakeClock()
    backend = SqlBackend(database, clock)
    backend.change("work", QueueChange(), create=True)
    backend.send("work", [OutgoingMessage(tenant="a", body=b"one")] * 3)
    clock.advance(2.0)
    lock, has_found, may_lock = Step.lock, threading.Event(), threading.Event()

    def slow(step: Step) -> None:
        if threading.current_thread() is sweeper:
            has_found.set()
            assert may_lock.wait(STUCK)
        lock(step)

    swept: list[int] = []
    sweeper = threading.Thread(target=lambda: swept.append(backend.sweep("work", clock.wall() - 1.0)))
    monkeypatch.setattr(Step, "lock", slow)
    sweeper.start()
    assert has_found.wait(STUCK)
    [held] = backend.lease(LeaseRequest(queue="work", count=1, lease=60.0)).deliveries
    may_lock.set()
    sweeper.join()
    assert swept == [2]
    assert backend.settle([Settlement(held.receipt, Ack())]) == [True]
    require_exact(database)
    backend.close()


def test_many_who_sweep_at_once_drop_each_message_once(database: PostgresDatabase, runs_again: list[str]) -> None:
    """Those of groups as well, while others are handled."""
    clock = FakeClock()
    backend = SqlBackend(database, clock)
    backend.change("work", QueueChange(policy=QueuePolicy(lanes=4)), create=True)
    for tenant in "abc":
        backend.send(
            "work", [OutgoingMessage(tenant=tenant, body=b"x", group=group) for group in (None, "g", "h") * 300]
        )
    held = backend.lease(LeaseRequest(queue="work", count=100, lease=60.0)).deliveries
    clock.advance(1.0)
    before = clock.wall()
    gate = threading.Barrier(5)

    def sweep() -> int:
        gate.wait()
        return backend.sweep("work", before)

    with ThreadPoolExecutor(5) as threads:
        sweeps = [threads.submit(sweep) for _ in range(4)]
        gate.wait()
        assert all(all(backend.settle([Settlement(one.receipt, Ack())])) for one in held)
        assert sum(one.result() for one in sweeps) == 2700 - len(held)
    require_exact(database)
    assert runs_again == [], "nobody waited in a circle"
    assert backend.inspect("work").lanes == []
    backend.close()


def test_queues_and_topics_go_by_the_servers_time_whatever_that_of_their_machine_is(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one machine holds is not due on another that is ahead."""
    machine = time.time
    monkeypatch.setattr(SystemClock, "wall", lambda _: machine() - 3600.0)
    with schema_of_its_own(postgres_url) as url, Queue("work", url) as queue, Topic("news", url) as topic:
        topic.subscribe(queue)
        queue.send(b"one", tenant="a")
        topic.publish([OutgoingMessage(tenant="a", body=b"two")])
        held = queue.backend.lease(LeaseRequest(queue="work", count=5, lease=600.0)).deliveries
        assert len(held) == 2
        assert all(abs(one.sent_at - queue.backend.inspect("work").at) < STUCK for one in held)
        monkeypatch.setattr(SystemClock, "wall", lambda _: machine() + 3600.0)
        with Queue("work", url) as other:
            assert other.backend.lease(LeaseRequest(queue="work", count=5, lease=600.0)).deliveries == []


def test_a_queue_with_a_clock_goes_by_it(postgres_url: str) -> None:
    clock = FakeClock()
    with schema_of_its_own(postgres_url) as url, Queue("work", url, clock=clock) as queue:
        assert queue.backend.inspect("work").at == clock.wall()


def test_without_a_clock_it_goes_by_the_servers_time(database: PostgresDatabase) -> None:
    """So that machines need not agree on theirs."""

    def server_time() -> float:
        statement = "select extract(epoch from clock_timestamp())::double precision"
        [(seconds,)] = database.read(lambda transaction: transaction.execute(statement))
        return float(seconds)

    with SqlBackend(database) as backend:
        backend.change("work", QueueChange(), create=True)
        before = server_time()
        backend.send("work", [OutgoingMessage(tenant="a", body=b"x")])
        [delivery] = backend.lease(LeaseRequest(queue="work", count=1, lease=60.0)).deliveries
        assert before - 0.001 <= delivery.sent_at <= backend.inspect("work").at <= server_time()


def test_an_old_receipt_of_a_message_that_waits_for_its_group_locks_nobody_out(
    database: PostgresDatabase, runs_again: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was buried and redriven since: the one before it can still be ended at the same time."""
    backend = SqlBackend(database, FakeClock())
    backend.change("work", QueueChange(), create=True)

    def taken(group: str) -> Delivery:
        backend.send("work", [OutgoingMessage(tenant="a", body=b"x", group=group)])
        [delivery] = backend.lease(LeaseRequest(queue="work", count=5, lease=60.0)).deliveries
        return delivery

    old = taken("g")
    assert backend.settle([Settlement(old.receipt, Bury("why"))]) == [True]
    head = taken("g")
    assert backend.redrive(DeadLetterQuery(queue="work")) == 1
    other = taken("h")
    lock, has_found, is_locked = Step.lock, threading.Event(), threading.Event()

    def slow(step: Step) -> None:
        is_late = threading.current_thread() is settler
        if is_late:
            has_found.set()
            assert is_locked.wait(STUCK)
        lock(step)
        if not is_late:
            is_locked.set()

    monkeypatch.setattr(Step, "lock", slow)
    results: list[Sequence[bool]] = []
    late = [Settlement(one.receipt, RetryLater(1.0)) for one in (old, other)]
    settler = threading.Thread(target=lambda: results.append(backend.settle(late)))
    settler.start()
    assert has_found.wait(STUCK)
    assert backend.settle([Settlement(head.receipt, Ack())]) == [True]
    settler.join()
    assert results == [[False, True]]
    assert runs_again == [], "nobody waited in a circle"
    backend.close()
