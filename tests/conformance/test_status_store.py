"""Zone statuses are kept the same way on every engine."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from holdfast import Conflict, Zone, ZoneStatus
from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.status import SqlStatusStore

ZONE = Zone("use1-az1")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with SqliteDatabase(tmp_path / "status.sqlite") as database:
            yield database
        return
    url: str = request.getfixturevalue("postgres_url")
    schema = f"status_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        with PostgresDatabase(PostgresOptions(url=f"{url}?options=-csearch_path%3D{schema}")) as opened:
            yield opened
        connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture
def store(database: Database) -> SqlStatusStore:
    return SqlStatusStore(database)


def status(*, out: bool = True, workload: str | None = None, expires: float | None = None) -> ZoneStatus:
    return ZoneStatus(zone=ZONE, workload=workload, out=out, since=100.0, by="operator", reason="test", expires=expires)


def test_nothing_is_out_at_first(store: SqlStatusStore) -> None:
    assert store.read() == []


def test_what_was_written_is_read_with_its_version(store: SqlStatusStore) -> None:
    written = store.write(status(expires=200.0), expected=0)
    assert written.version == 1
    assert store.read() == [written]
    assert (written.zone, written.out, written.since, written.by, written.expires) == (
        ZONE,
        True,
        100.0,
        "operator",
        200.0,
    )


def test_all_workloads_and_one_workload_are_different_keys(store: SqlStatusStore) -> None:
    store.write(status(), expected=0)
    store.write(status(workload="shop"), expected=0)
    assert {entry.workload for entry in store.read()} == {None, "shop"}


def test_each_write_counts_the_version_up(store: SqlStatusStore) -> None:
    store.write(status(), expected=0)
    assert store.write(status(out=False), expected=1).version == 2
    [found] = store.read()
    assert (found.out, found.version) == (False, 2)


@pytest.mark.parametrize("expected", [0, 2])
def test_who_has_not_seen_the_latest_version_cannot_write(store: SqlStatusStore, expected: int) -> None:
    store.write(status(), expected=0)
    with pytest.raises(Conflict, match=r"use1-az1 .*read it again"):
        store.write(status(out=False), expected=expected)
    assert store.read()[0].out


def test_a_version_of_what_was_never_written_is_a_conflict(store: SqlStatusStore) -> None:
    with pytest.raises(Conflict):
        store.write(status(), expected=3)


@pytest.mark.parametrize("expected", [0, 1])
def test_of_several_who_write_at_once_one_succeeds(store: SqlStatusStore, expected: int) -> None:
    if expected:
        store.write(status(), expected=0)

    def attempt(_: int) -> bool:
        try:
            store.write(status(), expected=expected)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(8))) == 1
