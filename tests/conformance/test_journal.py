"""Journals of evacuations are kept the same way wherever they are kept."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.journal import Journal
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.evacuate.journals.dynamodb import DynamoJournal
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.testing import FakeClock
from holdfast.testing.evacuation import JournalConformance
from tests.table import sampled


class TestMemory(JournalConformance):
    @pytest.fixture
    def journal(self) -> Journal:
        return MemoryJournal()


class TestSqlite(JournalConformance):
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        with SqliteDatabase(tmp_path / "evacuation.db") as database:
            yield SqlJournal(database)


class TestPostgres(JournalConformance):
    @pytest.fixture
    def journal(self, postgres_url: str) -> Iterator[Journal]:
        schema = f"journal_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create schema {schema}".encode())
            with PostgresDatabase(PostgresOptions(url=f"{postgres_url}?options=-csearch_path%3D{schema}")) as opened:
                yield SqlJournal(opened)
            connection.execute(f"drop schema {schema} cascade".encode())


class TestDynamo(JournalConformance):
    @pytest.fixture(params=sampled(["moto_url", "ministack_url"]))
    def journal(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        url: str = request.getfixturevalue(request.param)
        with AwsSession(AwsOptions(region="eu-west-1", endpoint_url=url, max_attempts=1)) as session:
            journal = DynamoJournal(session, f"journal-{uuid.uuid4()}", FakeClock())
            journal.create_table()
            yield journal
