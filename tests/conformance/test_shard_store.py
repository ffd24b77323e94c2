"""Tenants' numbers, and layouts, are kept the same way on every engine."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.shards import ShardStore
from holdfast.shards.stores import MemoryShardStore, SqlShardStore
from holdfast.shards.stores.sql import MIGRATIONS, SUBSYSTEM
from tests.conformance.shard_store import MAX_TENANTS, ShardStoreConformance


class TestMemory(ShardStoreConformance):
    @pytest.fixture
    def store(self) -> ShardStore:
        return MemoryShardStore()


class InDatabase(ShardStoreConformance):
    """What holds beside that where several registries are in one database."""

    @pytest.fixture
    def store(self, database: Database) -> ShardStore:
        """One that is not alone in its database."""
        another = SqlShardStore(database, "another")
        another.assign([b"a", b"z"], 10)
        another.write_layout(b"another", 0, 1.0, MAX_TENANTS)
        return SqlShardStore(database, "shop")

    def test_registries_in_one_database_do_not_see_each_other(self, database: Database) -> None:
        names = ["shop", "Shop", "shop ", "", "läden/1", "shop%"]
        stores = {name: SqlShardStore(database, name) for name in names}
        for number, (name, store) in enumerate(stores.items()):
            store.assign([b"all", *(b"%d" % other for other in range(number))], MAX_TENANTS)
            store.write_layout(name.encode(), 0, 1.0, MAX_TENANTS)
        stores["shop"].remove([b"all"])
        stores["Shop"].write_layout(b"later", 1, 2.0, MAX_TENANTS)
        stores[""].write_layout(b"much later", 1, 100.0, MAX_TENANTS)
        assert [store.delete_old_layouts(3.0) for store in stores.values()] == [0, 1, 0, 0, 0, 0]
        assert stores["shop"].list_tenants(None, 10) == []
        assert stores["Shop"].list_tenants(None, 10) == [(b"0", 1), (b"all", 0)]
        assert [store.count() for store in stores.values()] == [0, 2, 3, 4, 5, 6]
        expected = {name: [name.encode()] for name in names} | {"Shop": [b"later"], "": [b"", b"much later"]}
        assert {name: [kept.text for kept in store.list_layouts(0)] for name, store in stores.items()} == expected
        assert stores["shop "].assign([b"new"], 4) == [3], "what one has given back is not free in another"

    def test_whoever_opens_the_same_registry_sees_the_same(self, database: Database) -> None:
        one, other = SqlShardStore(database, "shop"), SqlShardStore(database, "shop")
        one.assign([b"a", b"b"], MAX_TENANTS)
        one.write_layout(b"text", 0, 1.0, MAX_TENANTS)
        other.remove([b"a"])
        assert one.find([b"a", b"b"]) == [None, 1]
        assert SqlShardStore(database, "shop").list_layouts(0) == one.list_layouts(0) != []

    def test_tables_of_the_release_before_keep_their_numbers(self, database: Database) -> None:
        """That one had numbers and no layouts."""
        database.migrate(SUBSYSTEM, MIGRATIONS[:1])
        registries = [("shop", 3), ("another", 1)]
        insert = "insert into holdfast_shard_registry (name, next_number) values ($1, $2)"
        database.write(lambda transaction: transaction.execute_many(insert, registries))
        free = "insert into holdfast_shard_free (registry, number) values ($1, $2)"
        database.write(lambda transaction: transaction.execute(free, ("shop", 1)))
        rows = [("shop", b"a", 0), ("shop", b"\xff\0", 2), ("another", b"a", 0)]
        assign = "insert into holdfast_shard_tenant (registry, tenant, number) values ($1, $2, $3)"
        database.write(lambda transaction: transaction.execute_many(assign, rows))
        store = SqlShardStore(database, "shop")
        assert store.list_tenants(None, 10) == [(b"a", 0), (b"\xff\0", 2)]
        assert store.assign([b"b", b"c"], MAX_TENANTS) == [1, 3], "what was free is given first, and then what was next"
        assert store.list_layouts(0) == []
        assert store.write_layout(b"text", 0, 1.0, MAX_TENANTS).version == 1
        assert SqlShardStore(database, "another").list_tenants(None, 10) == [(b"a", 0)]


class TestSqlite(InDatabase):
    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[Database]:
        with SqliteDatabase(tmp_path / "shards.sqlite") as database:
            yield database


class TestPostgres(InDatabase):
    @pytest.fixture
    def database(self, postgres_url: str) -> Iterator[Database]:
        schema = f"shards_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create schema {schema}".encode())
            with PostgresDatabase(PostgresOptions(url=f"{postgres_url}?options=-csearch_path%3D{schema}")) as database:
                yield database
            connection.execute(f"drop schema {schema} cascade".encode())


def test_a_step_that_made_tables_somewhere_is_never_edited() -> None:
    assert MIGRATIONS[0].fingerprint == "299e84bb047ab4d7"
