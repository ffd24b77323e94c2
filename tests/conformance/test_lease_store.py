"""One server at a time has the lease of detection, in every database; the database refuses writes of former holders."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from holdfast import LeaseLost, Verdict, VerdictKind
from holdfast.engines import Database, Migration
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.watch import WatchStore
from holdfast.watch.lease import LeaseStore, fence_by_lease, fence_by_number

VERDICT = Verdict(id="one", workload="shop", kind=VerdictKind.REGIONAL, since=1.0, at=2.0)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield opened.enter_context(SqliteDatabase(tmp_path / "watch.sqlite"))
            return
        url, schema = request.getfixturevalue("postgres_url"), f"lease_{uuid.uuid4().hex}"
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(f"create schema {schema}".encode())
        opened.callback(connection.execute, f"drop schema {schema} cascade".encode())
        options = PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}", max_connections=2)
        yield opened.enter_context(PostgresDatabase(options))


@pytest.fixture
def stores(database: Database) -> tuple[LeaseStore, LeaseStore]:
    return LeaseStore(database, "a", "http://a", 10.0), LeaseStore(database, "b", "http://b", 10.0)


@pytest.fixture
def let_expire(database: Database) -> Callable[[float], None]:
    def set_remaining(seconds: float) -> None:
        now = "unixepoch('now', 'subsec')" if database.dialect == "sqlite" else "extract(epoch from clock_timestamp())"
        database.write_statement(f"update holdfast_lease set expires_at = {now} + $1", (seconds,))

    return set_remaining


def test_a_free_lease_is_taken_once_and_then_belongs_to_its_holder(stores: tuple[LeaseStore, LeaseStore]) -> None:
    one, other = stores
    assert one.read() is None
    number = one.take()
    assert number is not None
    assert (other.take(), one.take()) == (None, None)
    seen = other.read()
    assert seen is not None
    assert (seen.number, seen.holder, seen.address, seen.is_valid) == (number, "a", "http://a", True)
    assert 9 < seen.remaining <= 10
    one.require(number)
    with pytest.raises(LeaseLost, match=f"its lease {number + 1} has expired, or another server took over"):
        one.require(number + 1)


def test_an_expired_released_or_impossible_lease_is_taken_over_with_a_higher_number(
    stores: tuple[LeaseStore, LeaseStore], let_expire: Callable[[float], None]
) -> None:
    one, other = stores
    first = one.take() or 0
    let_expire(-0.1)
    with pytest.raises(LeaseLost):
        one.require(first)
    second = other.take() or 0
    assert second > first
    assert one.renew(first) is None
    one.release(first)
    other.require(second)
    other.release(second)
    third = one.take() or 0
    let_expire(400.0)  # the clock of the database was set back
    seen = one.read()
    assert seen is not None
    assert not seen.is_valid
    assert (other.take() or 0) > third > second


def test_the_lease_of_a_holder_that_has_ended_need_not_expire(stores: tuple[LeaseStore, LeaseStore]) -> None:
    one, other = stores
    first = one.take() or 0
    assert other.take(from_ended=first - 1) is None
    assert (other.take(from_ended=first) or 0) > first


def test_an_expired_lease_that_nobody_took_is_renewed_and_its_holder_learns_of_others(
    stores: tuple[LeaseStore, LeaseStore], let_expire: Callable[[float], None]
) -> None:
    one, other = stores
    number = one.take() or 0
    let_expire(-5.0)
    assert (one.renew(number) or 0) > 1e6, "no other server has ever waited"
    one.require(number)
    other.note_standby(number)
    age = one.renew(number)
    assert age is not None
    assert 0 <= age < 5


def test_a_former_holder_cannot_record_a_verdict(
    database: Database, stores: tuple[LeaseStore, LeaseStore], let_expire: Callable[[float], None]
) -> None:
    one, other = stores
    first = one.take() or 0
    fenced = WatchStore(fence_by_lease(database, first))
    fenced.record("shop", "threshold", {"n": 1}, 1.0, opened=None, closed=[])
    let_expire(-0.1)
    for _ in range(2):  # expired, and then taken over
        with pytest.raises(LeaseLost):
            fenced.record("shop", "threshold", {"n": 2}, 2.0, opened=VERDICT, closed=[])
        with pytest.raises(LeaseLost):
            fenced.save_position("file", "7")
        other.take()
    assert fenced.verdicts() == []
    assert fenced.load_state("shop", "threshold", dict) == ({"n": 1}, 1.0)
    second = other.read()
    assert second is not None
    WatchStore(fence_by_lease(database, second.number)).record(
        "shop", "threshold", {"n": 3}, 3.0, opened=VERDICT, closed=[]
    )
    assert [each.id for each in fenced.verdicts()] == ["one"]


def test_another_database_refuses_the_writes_of_a_former_holder(database: Database) -> None:
    migrations = (Migration(1, "numbers", ("create table number (value bigint)",)),)
    with fence_by_number(database, 5) as first:
        assert len(first.migrate("numbers", migrations)) == 1
        first.write_statement("insert into number values ($1)", (1,))
        second = fence_by_number(database, 7)
        second.write_statement("insert into number values ($1)", (2,))
        with pytest.raises(LeaseLost):
            first.write_statement("insert into number values ($1)", (3,))
        fence_by_number(database, 5)  # a former holder that starts late does not lower it
        second.write_statement("insert into number values ($1)", (4,))
        second.check()
        assert second.read(lambda each: each.execute("select value from number order by value")) == [(1,), (2,), (4,)]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_takeover_waits_for_a_verdict_that_is_being_recorded(
    database: Database, stores: tuple[LeaseStore, LeaseStore]
) -> None:
    """Writes of PostgreSQL interleave, so the check locks the lease. SQLite has one writer."""
    number = stores[0].take() or 0
    unlocked = "select 1 from holdfast_lease where name = 'detection' for update skip locked"

    def find_unlocked(*_: object) -> list[tuple[int]]:
        return database.write(lambda another: another.execute(unlocked))

    assert fence_by_lease(database, number).write(find_unlocked) == []
    assert find_unlocked() == [(1,)]
