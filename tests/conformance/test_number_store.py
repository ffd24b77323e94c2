"""Tenants' numbers are kept the same way on every engine."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import CapacityExhausted, NotFound
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.shards import Designed, Fleet, NumberStore, Registry
from holdfast.shards.stores import MemoryNumberStore, SqlNumberStore
from holdfast.testing.shards import NumberStoreConformance


class TestMemory(NumberStoreConformance):
    @pytest.fixture
    def store(self) -> NumberStore:
        return MemoryNumberStore()


class TestSqlite(NumberStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[NumberStore]:
        with SqliteDatabase(tmp_path / "shards.sqlite") as database:
            SqlNumberStore(database, "another").assign([b"a", b"z"], 10)
            yield SqlNumberStore(database, "shop")


class TestPostgres(NumberStoreConformance):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[NumberStore]:
        schema = f"shards_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create schema {schema}".encode())
            with PostgresDatabase(PostgresOptions(url=f"{postgres_url}?options=-csearch_path%3D{schema}")) as database:
                SqlNumberStore(database, "another").assign([b"a", b"z"], 10)
                yield SqlNumberStore(database, "shop")
            connection.execute(f"drop schema {schema} cascade".encode())


def test_tenants_by_name_have_shards_of_a_design() -> None:
    designed = Designed(Fleet.of(f"w{number}" for number in range(16)), 4, 2, key=b"key")
    registry = Registry(MemoryNumberStore(), designed.capacity)
    one, other = (designed.shard(number) for number in registry.numbers(["tenant-1", "tenant-2"]))
    assert designed.shard(registry.number("tenant-1")) == one != other
    assert registry.known(b"tenant-2") == 1
    assert registry.left == 138
    with pytest.raises(NotFound, match="tenant-3"):
        registry.known("tenant-3")
    assert registry.release(["tenant-1", "tenant-9"]) == 1
    assert registry.number("tenant-3") == 0
    with pytest.raises(CapacityExhausted, match="all 140 numbers are taken"):
        registry.numbers(f"more-{number}" for number in range(139))
    assert registry.number("\udcff") == 2, "text that is no text is a name, too"
