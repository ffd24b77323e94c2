"""More than one step takes: lanes, keys and publications by the thousand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import DeadLetterQuery, LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend, keys, sweep, topics
from holdfast.queue.backends.sql.backend import LOOKS
from holdfast.queue.backends.sql.lanes import SOME
from holdfast.queue.message import Ack, Bury, OutgoingMessage, Settlement
from holdfast.queue.policy import QueuePolicy
from holdfast.queue.rules.admission import FORGET_AFTER
from holdfast.testing import FakeClock
from tests.unit.queue.backends.sql.counting import require_exact

TENANTS = SOME + 200


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(tmp_path / "queue.sqlite") as database:
        yield database


@pytest.fixture
def backend(database: SqliteDatabase, clock: FakeClock) -> SqlBackend:
    backend = SqlBackend(database, clock)
    backend.change("work", QueueChange(), create=True)
    return backend


def rows(database: SqliteDatabase, table: str) -> int:
    [(count,)] = database.read(lambda transaction: transaction.execute(f"select count(*) from holdfast_queue_{table}"))
    return int(count)


def test_of_more_lanes_than_are_looked_at_all_have_their_turn(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock
) -> None:
    """A lane for each tenant, of every priority: none is passed over."""
    backend.change("work", QueueChange(policy=QueuePolicy(lanes_per_tenant=0)))
    for priority in (0, 3):
        backend.send(
            "work", [OutgoingMessage(tenant=f"t{number}", body=b"x", priority=priority) for number in range(TENANTS)]
        )
    found: list[tuple[str, int]] = []
    while leased := backend.lease(
        LeaseRequest(queue="work", count=300, lease=60.0, leased_so_far=len(found))
    ).deliveries:
        found += [(one.tenant, one.lane % 4) for one in leased]
        backend.settle([Settlement(one.receipt, Ack()) for one in leased])
        clock.advance(0.002)
    assert sorted(found) == sorted((f"t{number}", priority) for number in range(TENANTS) for priority in (0, 3))
    require_exact(database)


def test_keys_whose_time_is_over_are_forgotten_however_many(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock
) -> None:
    for number in range(0, keys.AT_ONCE + 500, 500):
        backend.send("work", [OutgoingMessage(tenant="a", body=b"x", key=f"k{number + more}") for more in range(500)])
    clock.advance(1000.0)
    backend.send("work", [OutgoingMessage(tenant="a", body=b"x", key="young")])
    backend.sweep("work")
    assert rows(database, "key") == 1


def test_publications_that_nobody_ever_saw_are_forgotten(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock
) -> None:
    """Not those that somebody may still see."""
    backend.change("work", QueueChange(subscribe=["news"]))
    for _ in range(3):
        backend.send("news", [OutgoingMessage(tenant="a", body=b"x")] * 500, is_topic=True)
    assert rows(database, "publication") == 1500 > topics.AT_ONCE
    clock.advance(1.0)
    backend.send("news", [OutgoingMessage(tenant="a", body=b"x")], is_topic=True)
    assert backend.sweep("work", backend.inspect("work").at) == 1500
    assert rows(database, "publication") == 1
    [last] = backend.lease(LeaseRequest(queue="work", count=10, lease=60.0)).deliveries
    assert last.is_first_subscriber
    assert rows(database, "publication") == 0


def test_publications_are_forgotten_whatever_older_messages_there_are(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock
) -> None:
    """In whichever queue: one that is delayed by a year must not keep them for a year."""
    backend.send("work", [OutgoingMessage(tenant="a", body=b"x", delay=1_000_000.0)])
    backend.change("other", QueueChange(subscribe=["news"]), create=True)
    for _ in range(3):
        backend.send("news", [OutgoingMessage(tenant="a", body=b"x", ttl=1.0)] * 500, is_topic=True)
    clock.advance(2.0)
    backend.send("news", [OutgoingMessage(tenant="a", body=b"x")], is_topic=True)
    assert backend.sweep("other") == 1500
    assert rows(database, "publication") == 1
    [last] = backend.lease(LeaseRequest(queue="other", count=10, lease=60.0)).deliveries
    assert last.is_first_subscriber


def test_one_sweep_looks_at_some_publications_that_are_needed_and_the_next_at_others(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them there are, it takes no longer; and all are looked at in the end."""
    monkeypatch.setattr(topics, "AT_ONCE", 2)
    backend.change("work", QueueChange(subscribe=["news"]))
    for number in range(2 * LOOKS + 7):
        ttl = 1.0 if number == 2 * LOOKS + 2 else None
        backend.send("news", [OutgoingMessage(tenant="a", body=b"x", ttl=ttl)], is_topic=True)
    clock.advance(2.0)
    assert backend.sweep("work") == 1
    assert rows(database, "publication") == 2 * LOOKS + 7
    backend.sweep("work")
    assert rows(database, "publication") == 2 * LOOKS + 6
    assert backend.sweep("work", backend.inspect("work").at) == 2 * LOOKS + 6
    assert rows(database, "publication") == 0, "from the first on, after the last"


def test_tenants_are_forgotten_with_their_lanes_however_many(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock
) -> None:
    """Not those that have messages."""
    backend.change("work", QueueChange(policy=QueuePolicy(lanes_per_tenant=0)))
    tenants = [f"t{number}" for number in range(sweep.TENANTS_AT_ONCE + 200)]
    backend.send("work", [OutgoingMessage(tenant=tenant, body=b"x") for tenant in tenants])
    backend.change("other", QueueChange(), create=True)
    backend.send("other", [OutgoingMessage(tenant="t0", body=b"x", delay=1e6)])
    while leased := backend.lease(LeaseRequest(queue="work", count=500, lease=60.0)).deliveries:
        backend.settle([Settlement(one.receipt, Ack()) for one in leased])
    backend.send("work", [OutgoingMessage(tenant="t1", body=b"x")])
    clock.advance(FORGET_AFTER + 1.0)
    assert rows(database, "tenant") == len(tenants) + 1
    backend.sweep("work")
    assert rows(database, "tenant") == 2
    assert [one.tenant for one in backend.inspect("work", tenants=tenants).tenants] == ["t1"]
    assert rows(database, "lane") == 1 + QueuePolicy().lanes_per_tenant
    require_exact(database)


def test_one_sweep_looks_at_some_tenants_that_are_needed_and_the_next_at_others(
    backend: SqlBackend, database: SqliteDatabase, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them there are, it takes no longer; and all are looked at in the end."""
    monkeypatch.setattr(sweep, "TENANTS_AT_ONCE", 2)
    tenants = [f"t{number:02}" for number in range(2 * LOOKS + 7)]
    backend.send("work", [OutgoingMessage(tenant=tenant, body=b"x", delay=1e6) for tenant in tenants])
    backend.change("work", QueueChange(limits={"t99": None}))
    clock.advance(FORGET_AFTER + 1.0)
    backend.sweep("work")
    assert rows(database, "tenant") == len(tenants) + 1
    backend.sweep("work")
    assert rows(database, "tenant") == len(tenants)
    backend.change("work", QueueChange(limits={"t": None}))
    backend.sweep("work")
    assert rows(database, "tenant") == len(tenants), "from the first on, after the last"


def test_a_sweep_that_is_cut_short_in_one_lane_goes_on_in_the_next(backend: SqlBackend, clock: FakeClock) -> None:
    for tenant in ("a", "b", "c"):
        backend.send("work", [OutgoingMessage(tenant=tenant, body=b"x")] * 700)
    clock.advance(1.0)
    assert backend.sweep("work", backend.inspect("work").at) == 2100


def test_groups_of_forgotten_dead_letters_are_forgotten(backend: SqlBackend, database: SqliteDatabase) -> None:
    backend.send("work", [OutgoingMessage(tenant="a", body=b"x", group="g")])
    [held] = backend.lease(LeaseRequest(queue="work", count=1, lease=60.0)).deliveries
    backend.settle([Settlement(held.receipt, Bury("why"))])
    assert rows(database, "party") == 1, "whoever is redriven needs it"
    backend.redrive(DeadLetterQuery(queue="work"), discard=True)
    assert rows(database, "party") == 0


def test_waiting_for_a_queue_that_nobody_made_ends(backend: SqlBackend) -> None:
    """Though others commit meanwhile."""
    backend.change("other", QueueChange(), create=True)
    assert not backend.wait("nobody", 0.0)
