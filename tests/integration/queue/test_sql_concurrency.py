"""PostgreSQL: many who send, handle and settle at once lose nothing, hold nothing twice, and never wait in a circle."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import msgspec
import psycopg
import pytest

from holdfast._clock import SystemClock
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.queue import Queue, Topic
from holdfast.queue.backend import DeadLetterQuery, LeaseRequest, LeaseResult, QueueChange
from holdfast.queue.backends.sql import SqlBackend, sweep
from holdfast.queue.backends.sql import backend as backends
from holdfast.queue.backends.sql.step import Step
from holdfast.queue.backends.sql.tenant import TenantRow
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
from holdfast.queue.rules.admission import FORGET_AFTER
from holdfast.queue.rules.placement import own_lane
from holdfast.testing import FakeClock
from tests.integration.queue.places import STUCK, drain, eventually, schema_of_its_own
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

    def __init__(self, backend: SqlBackend, each: int, tenants: int = 8) -> None:
        self.backend = backend
        self.each = each  # messages of a producer
        self.tenants = tenants
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
            tenant=f"t{random.randrange(self.tenants)}",
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


PLAIN = OutgoingMessage(tenant="a", body=b"x")
SENDS: dict[str, Callable[[SqlBackend], object]] = {
    "one": lambda backend: backend.send("work", [PLAIN]),
    "several": lambda backend: backend.send("work", [PLAIN] * 3),
    "spilled": lambda backend: backend.send("work", [PLAIN] * 12),
    "with a key": lambda backend: backend.send("work", [OutgoingMessage(tenant="a", body=b"x", key="k")]),
    "in a group": lambda backend: backend.send("work", [OutgoingMessage(tenant="a", body=b"x", group="g")] * 2),
    "delayed": lambda backend: backend.send("work", [OutgoingMessage(tenant="a", body=b"x", delay=1.0)]),
    "published": lambda backend: backend.send("news", [PLAIN] * 2, is_topic=True),
    "limits": lambda backend: backend.change("work", QueueChange(limits={"a": Limits(max_waiting=50)})),
}
KEPT = {"one": 1, "several": 3, "spilled": 12, "with a key": 1, "in a group": 2, "delayed": 1, "published": 2}
"""How many messages each of them stores."""


def with_unused_tenant(database: PostgresDatabase, clock: FakeClock) -> SqlBackend:
    """A queue with a tenant that the next sweep deletes, with its overflow lane."""
    backend = SqlBackend(database, clock)
    policy = QueuePolicy(lanes=4, spill_above=10)
    backend.change("work", QueueChange(policy=policy, subscribe=["news"]), create=True)
    backend.send("work", [PLAIN] * 12)
    assert len(drain(backend, "work")) == 12
    clock.advance(FORGET_AFTER + 1.0)
    return backend


def require_kept(database: PostgresDatabase, backend: SqlBackend, clock: FakeClock, how: str) -> None:
    """All that was sent is there once and is counted, and can be handled."""
    require_exact(database)
    [tenant] = backend.inspect("work", tenants=["a"]).tenants
    assert tenant.limits == (Limits(max_waiting=50) if how == "limits" else None)
    assert tenant.waiting + tenant.delayed == KEPT.get(how, 0)
    clock.advance(2.0)
    assert len(drain(backend, "work")) == KEPT.get(how, 0)


@pytest.mark.parametrize("how", SENDS)
def test_a_tenant_that_a_sweep_is_deleting_is_made_anew(
    database: PostgresDatabase, runs_again: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Who sends to it finds it, and waits until it is deleted."""
    clock = FakeClock()
    backend = with_unused_tenant(database, clock)
    has_deleted, may_commit, pids = threading.Event(), threading.Event(), [0]

    def slow(step: Step, after: str) -> tuple[str, bool]:
        following, has_forgotten = sweep.forget_tenants(step, after)
        if not has_deleted.is_set():
            assert has_forgotten
            [(pids[0],)] = step.transaction.execute("select pg_backend_pid()")
            has_deleted.set()
            assert may_commit.wait(STUCK)
        return following, has_forgotten

    def is_waited_for() -> bool:
        statement = "select 1 from pg_stat_activity where $1 = any(pg_blocking_pids(pid))"
        return bool(database.read(lambda transaction: transaction.execute(statement, (pids[0],))))

    monkeypatch.setattr(backends, "forget_tenants", slow)
    with ThreadPoolExecutor(2) as threads:
        sweeping = threads.submit(backend.sweep, "work")
        assert has_deleted.wait(STUCK)
        sending = threads.submit(SENDS[how], backend)
        eventually(is_waited_for, "the sender does not wait for the sweep")
        may_commit.set()
        assert sweeping.result(STUCK) == 0
        sending.result(STUCK)
    require_kept(database, backend, clock, how)
    assert runs_again == [], "nobody waited in a circle"
    backend.close()


@pytest.mark.parametrize("how", SENDS)
def test_a_tenant_that_was_deleted_since_it_was_found_is_made_anew(
    database: PostgresDatabase, runs_again: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    clock = FakeClock()
    backend = with_unused_tenant(database, clock)
    meet, met = Step.meet, 0

    def late(step: Step, names: Sequence[str]) -> dict[str, TenantRow]:
        nonlocal met
        found = meet(step, names)
        met += 1
        if met == 1:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(backend.sweep, "work").result(STUCK)
        return found

    monkeypatch.setattr(Step, "meet", late)
    if how == "one":  # as after a message that could not take the short way
        monkeypatch.setattr(backend._single, "send", lambda *_: None)
    SENDS[how](backend)
    assert met == 2, "it was run again"
    require_kept(database, backend, clock, how)
    assert runs_again == []
    backend.close()


@pytest.mark.parametrize("how", ["several", "in a group"])
def test_a_tenant_that_somebody_is_sending_to_is_not_deleted_nor_waited_for(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    clock = FakeClock()
    backend = with_unused_tenant(database, clock)
    save, is_saved = Step.save, False

    def late(step: Step) -> list[int]:
        nonlocal is_saved
        filled = save(step)
        if not is_saved:
            is_saved = True
            with ThreadPoolExecutor(1) as threads:
                threads.submit(backend.sweep, "work").result(STUCK)
        return filled

    monkeypatch.setattr(Step, "save", late)
    [before] = database.read(lambda transaction: transaction.execute("select id from holdfast_queue_tenant"))
    SENDS[how](backend)
    require_kept(database, backend, clock, how)
    assert database.read(lambda transaction: transaction.execute("select id from holdfast_queue_tenant")) == [before]
    backend.close()


def test_a_tenant_is_not_deleted_while_its_last_message_is_settled(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its counters are changed, and after."""
    monkeypatch.setattr(sweep, "FORGET_AFTER", 0.0)
    backend = SqlBackend(database, FakeClock())
    backend.change("work", QueueChange(), create=True)
    save = Step.save

    def around(step: Step) -> list[int]:
        monkeypatch.setattr(Step, "save", save)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(backend.sweep, "work").result(STUCK)
            filled = save(step)
            threads.submit(backend.sweep, "work").result(STUCK)
        return filled

    backend.send("work", [PLAIN])
    [held] = backend.lease(LeaseRequest(queue="work", count=1, lease=60.0)).deliveries
    monkeypatch.setattr(Step, "save", around)
    assert backend.settle([Settlement(held.receipt, Ack())]) == [True]
    assert [one.tenant for one in backend.inspect("work", tenants=["a"]).tenants] == ["a"]
    require_exact(database)
    backend.sweep("work")
    assert list(backend.inspect("work", tenants=["a"]).tenants) == []
    backend.close()


@pytest.mark.parametrize("each", sampled([40, 1000]))
@pytest.mark.parametrize("hand", [4, 0])
def test_nothing_is_lost_while_tenants_are_deleted_all_the_time(
    database: PostgresDatabase, runs_again: list[str], monkeypatch: pytest.MonkeyPatch, hand: int, each: int
) -> None:
    monkeypatch.setattr(sweep, "FORGET_AFTER", 0.0)
    backend = SqlBackend(database)
    policy = QueuePolicy(lanes=16, lanes_per_tenant=hand, spill_above=3, fresh_for=0.01, dedupe_for=0.01)
    backend.change("work", QueueChange(policy=msgspec.structs.replace(policy, max_attempts=1000)), create=True)
    traffic, is_over = Traffic(backend, each, tenants=60), threading.Event()

    def sweep_on() -> None:
        while not is_over.is_set():
            backend.sweep("work")

    with ThreadPoolExecutor(2) as threads:
        sweeping = [threads.submit(sweep_on) for _ in range(2)]
        try:
            traffic.run()
        finally:
            is_over.set()
        for one in sweeping:
            one.result(STUCK)
    assert sorted(traffic.handled) == sorted(number for number in traffic.sent if number)
    assert all(order == sorted(order) for order in traffic.orders.values())
    require_exact(database)
    assert runs_again == [], "nobody waited in a circle"
    eventually(lambda: not backend.sweep("work") and not rows_of_tenants(database), "tenants are left")
    backend.close()


def rows_of_tenants(database: PostgresDatabase) -> int:
    """The rows of tenants and of lanes that only one tenant uses."""
    statement = (
        "select (select count(*) from holdfast_queue_tenant) + "
        "(select count(*) from holdfast_queue_lane where number < 0 or number >= $1)"
    )
    [(count,)] = database.read(lambda transaction: transaction.execute(statement, (own_lane(0, 0),)))
    return int(count)


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
