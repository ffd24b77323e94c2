"""Queues in SQLite and in PostgreSQL keep the promises of the queue's seam."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import Backend, sum_lanes
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.message import Bury, RefusedMessage, RetryLater, SentMessage
from holdfast.testing import FakeClock
from holdfast.testing.queue.probe import Probe, ids, message
from tests.conformance.queue_backend import BuiltInConformance

TABLES = (
    "",
    *(f"_{name}" for name in ("dead", "key", "lane", "message", "party", "publication", "subscription", "tenant")),
)


@pytest.fixture(scope="module")
def schema_url(postgres_url: str) -> Iterator[str]:
    """A schema for all tests: to make one takes longer than most of them."""
    schema = f"queue_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        yield f"{postgres_url}?options=-csearch_path%3D{schema}"
        connection.execute(f"drop schema {schema} cascade".encode())


class Shared(PostgresDatabase):
    """A database that stays open when the backend of one test is closed."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def shared(schema_url: str) -> Iterator[PostgresDatabase]:
    """Connections for all tests."""
    database = Shared(PostgresOptions(url=schema_url))
    yield database
    PostgresDatabase.close(database)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with all tables and nothing in them, for all tests."""
    path = tmp_path_factory.mktemp("empty") / "queue.sqlite"
    SqlBackend(SqliteDatabase(path)).close()
    return path.read_bytes()


class Sql(BuiltInConformance):
    """The promises, and what only a database can do wrong."""

    def test_a_sweep_lets_lanes_have_their_turn_that_a_clock_which_was_ahead_has_put_off(
        self, work: Probe, clock: FakeClock
    ) -> None:
        """As that of a server was in whose place another has come: leases alone would not see them for an hour."""
        work.change_policy(lanes=4, lanes_per_tenant=4)
        work.put(count=40)
        work.ack(*work.lease(40))
        clock.jump_wall(-3600.0)
        sent = work.put(count=40)
        work.backend.sweep("work")
        assert sorted(ids(work.lease(40))) == sent

    def test_lanes_that_are_not_listed_are_in_the_sums(self, work: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
        """Dead letters most of all: nothing waits in their lanes, so they are the last to be listed."""
        work.change_policy(lanes_per_tenant=0, spill_above=2)
        work.put("poisoned", 2)
        work.settle(Bury("why"), *work.lease())
        work.put("held")
        assert len(work.lease(lease=60.0)) == 1
        work.put("first")
        first = work.now
        work.advance_time(5.0)
        for tenant in "abcd":
            work.put(tenant, 4)
        work.put("a", delay=60.0)
        whole = work.inspect()
        assert (whole.lanes_left_out, whole.totals) == (0, sum_lanes(whole.lanes))
        monkeypatch.setattr("holdfast.queue.backends.sql.look.LANES", 3)
        part = work.inspect()
        assert len(part.lanes) == 3
        assert part.totals == whole.totals
        assert part.lanes_left_out == len(whole.lanes) - 3
        assert (part.totals.leased, part.totals.delayed, part.totals.dead, part.totals.spilled) == (1, 1, 2, 8)
        assert part.totals.oldest_since == pytest.approx(first, abs=0.01)

    def test_what_is_to_be_delivered_again_soon_wakes_whoever_waits(self, work: Probe) -> None:
        """Else it would be known only when there is something else to do."""
        work.put()
        held = work.lease_one()
        assert work.lease() == []
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(work.backend.wait, "work", 3600.0)
            work.settle(RetryLater(0.001), held)
            assert waiting.result(30.0)

    def test_one_by_one_or_together_messages_end_up_alike(self, work: Probe) -> None:
        """There is a short way for one plain message, and a long one for all."""
        messages = [message(tenant) for tenant in ("free", "limited") for _ in range(9)]
        ways = []
        for queue, batches in (("apart", [[one] for one in messages]), ("together", [messages])):
            other = work.another(queue)
            other.change_policy(lanes=16, lanes_per_tenant=4, spill_above=6)
            other.set_limits("limited", spill_rate=3.0, spill_burst=3.0, max_rate=7.0, max_burst=7.0, concurrency=2)
            other.put("free")  # the first of a tenant takes the long way
            other.put("limited")
            results = [result for batch in batches for result in other.send(*batch)]
            ways.append(
                (
                    [isinstance(result, SentMessage) and result.is_spilled for result in results],
                    [isinstance(result, RefusedMessage) for result in results],
                    [result.pressure for result in results][-1],
                    (other.inspect().totals.ready, other.inspect().totals.spilled),
                )
            )
        assert ways[0] == ways[1]


class TestSqlite(Sql):
    @pytest.fixture
    def backend(self, tmp_path: Path, empty: bytes, clock: FakeClock) -> Iterator[Backend]:
        path = tmp_path / "queue.sqlite"
        path.write_bytes(empty)
        with SqlBackend(SqliteDatabase(path), clock) as backend:
            yield backend


@pytest.mark.no_cover  # the same lines as for SQLite, but for a few
class TestPostgres(Sql):
    @pytest.fixture
    def backend(self, shared: PostgresDatabase, clock: FakeClock) -> Iterator[Backend]:
        with SqlBackend(shared, clock) as backend:
            yield backend
        tables = ", ".join(f"holdfast_queue{name}" for name in TABLES)
        shared.write(lambda transaction: transaction.execute(f"truncate {tables}"))
