"""Queues in SQLite and in PostgreSQL keep the promises of the queue's seam."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import Backend
from holdfast.queue.backends.sql import SqlBackend
from holdfast.testing import FakeClock
from holdfast.testing.queue import BackendConformance

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


class TestSqlite(BackendConformance):
    @pytest.fixture
    def backend(self, tmp_path: Path, clock: FakeClock) -> Iterator[Backend]:
        with SqlBackend(SqliteDatabase(tmp_path / "queue.sqlite"), clock) as backend:
            yield backend


@pytest.mark.no_cover  # the same lines as for SQLite, but for a few
class TestPostgres(BackendConformance):
    @pytest.fixture
    def backend(self, schema_url: str, clock: FakeClock) -> Iterator[Backend]:
        with SqlBackend(PostgresDatabase(PostgresOptions(url=schema_url)), clock) as backend:
            yield backend
        with psycopg.connect(schema_url, autocommit=True) as connection:
            connection.execute(f"truncate {', '.join(f'holdfast_queue{name}' for name in TABLES)}".encode())
