"""PostgreSQL keeps the promises of the database seam."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from tests.conformance.database import DatabaseConformance, Reopen


class TestPostgresDatabase(DatabaseConformance):
    @pytest.fixture
    def options(self, postgres_url: str) -> Iterator[PostgresOptions]:
        schema = f"conformance_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create schema {schema}".encode())
            yield PostgresOptions(url=f"{postgres_url}?options=-csearch_path%3D{schema}")
            connection.execute(f"drop schema {schema} cascade".encode())

    @pytest.fixture
    def database(self, options: PostgresOptions) -> Iterator[Database]:
        with PostgresDatabase(options) as database:
            yield database

    @pytest.fixture
    def reopen(self, options: PostgresOptions) -> Iterator[Reopen]:
        with ExitStack() as opened:
            yield lambda: opened.enter_context(PostgresDatabase(options))
