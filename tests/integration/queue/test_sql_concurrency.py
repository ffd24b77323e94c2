"""PostgreSQL: many who send, handle and settle at once lose nothing, hold nothing twice, and never wait in a circle."""

import logging
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import psycopg
import pytest

from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.queue.backend import Change, Leased, Want
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.message import Again, Back, Done, Outcome, Outgoing, Sent, Settlement
from holdfast.queue.policy import Limits, QueuePolicy
from tests.unit.queue.backends.sql.counting import require_exact

PRODUCERS = WORKERS = 4
EACH = 400
OUTCOMES: tuple[Outcome, ...] = (*[Done()] * 8, Back(), Again(0.002, counts=False))


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    schema = f"concurrency_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        url = f"{postgres_url}?options=-csearch_path%3D{schema}"
        with PostgresDatabase(PostgresOptions(url=url, pool_maximum=PRODUCERS + WORKERS)) as database:
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

    def __init__(self, backend: SqlBackend) -> None:
        self.backend = backend
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
        left = EACH
        while left:
            count = min(left, random.choice([1, 5, 40]))
            left -= count
            results = self.backend.send("work", [self._message(random) for _ in range(count)])
            with self._gate:
                self.sent += [one.id for one in results if isinstance(one, Sent) and not one.is_duplicate]
        with self._gate:
            self.sent.append(0)  # this one has no more

    def _message(self, random: Random) -> Outgoing:
        return Outgoing(
            tenant=f"t{random.randrange(8)}",
            body=b"x",
            priority=random.choice([0, 2, 2]),
            delay=random.choice([0.0] * 9 + [0.01]),
            group=random.choice([None] * 6 + ["g", "h"]),
            key=random.choice([None] * 6 + [f"k{random.randrange(40)}"]),
        )

    def _serve(self, random: Random) -> None:
        while True:
            leased = self.backend.lease(Want(queue="work", count=random.choice([1, 10, 50]), lease=600.0))
            if not leased.deliveries:
                if self._is_over():
                    return
                self.backend.wait("work", min(0.05, leased.next_due or 0.05))
                continue
            outcomes = [random.choice(OUTCOMES) for _ in leased.deliveries]
            self._hold(leased)
            self._let_go(leased, outcomes)
            settlements = [
                Settlement(one.receipt, outcome) for one, outcome in zip(leased.deliveries, outcomes, strict=True)
            ]
            assert all(self.backend.settle(settlements))

    def _hold(self, leased: Leased) -> None:
        with self._gate:
            ids = {one.id for one in leased.deliveries}
            groups = [(one.tenant, one.group) for one in leased.deliveries if one.group is not None]
            assert not self._held.intersection(ids), "somebody else holds it"
            assert len(set(groups)) == len(groups)
            assert not self._busy.intersection(groups), "somebody else holds one of its group"
            self._held |= ids
            self._busy.update(groups)

    def _let_go(self, leased: Leased, outcomes: list[Outcome]) -> None:
        with self._gate:
            for one, outcome in zip(leased.deliveries, outcomes, strict=True):
                self._held.discard(one.id)
                if one.group is not None:
                    self._busy.discard((one.tenant, one.group))
                if isinstance(outcome, Done):
                    self.handled.append(one.id)
                    if one.group is not None:
                        self.orders.setdefault((one.tenant, one.group), []).append(one.id)

    def _is_over(self) -> bool:
        with self._gate:
            return self.sent.count(0) == PRODUCERS and len(self.handled) == len(self.sent) - PRODUCERS


@pytest.mark.parametrize("hand", [4, 0])
@pytest.mark.parametrize("limits", [Limits(), Limits(concurrency=4, rate=100.0, burst=20.0)], ids=["free", "limited"])
def test_many_at_once_lose_nothing_and_hold_nothing_twice(
    database: PostgresDatabase, runs_again: list[str], limits: Limits, hand: int
) -> None:
    policy = QueuePolicy(lanes=16, hand=hand, spill_above=50, attempts=1000, limits=limits)
    backend = SqlBackend(database)
    backend.change("work", Change(policy=policy), create=True)
    traffic = Traffic(backend)
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
    backend.change("work", Change(policy=QueuePolicy(lanes=8, spill_above=3)), create=True)
    gate = threading.Barrier(8)

    def send(number: int) -> None:
        random = Random(number)
        for first in range(0, 60, 6):
            tenants = [f"t{first + place}" for place in range(-3, 6)]
            random.shuffle(tenants)
            gate.wait()
            priority = random.randrange(4)
            backend.send("work", [Outgoing(tenant=tenant, body=b"x", priority=priority) for tenant in tenants * 2])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(8)))
    require_exact(database)
    assert sum(lane.ready for lane in backend.look("work").lanes) == 8 * 10 * 18
    assert runs_again == [], "nobody waited in a circle"
    backend.close()


def test_without_a_clock_it_goes_by_the_servers_time(database: PostgresDatabase) -> None:
    """So that machines need not agree on theirs."""

    def time() -> float:
        statement = "select extract(epoch from clock_timestamp())::double precision"
        [(seconds,)] = database.read(lambda transaction: transaction.execute(statement))
        return float(seconds)

    with SqlBackend(database) as backend:
        backend.change("work", Change(), create=True)
        before = time()
        backend.send("work", [Outgoing(tenant="a", body=b"x")])
        [delivery] = backend.lease(Want(queue="work", count=1, lease=60.0)).deliveries
        assert before - 0.001 <= delivery.sent <= backend.look("work").at <= time()
