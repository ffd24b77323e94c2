"""SQLite keeps the promises of the database seam."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.engines import Database
from holdfast.engines.sqlite import SqliteDatabase
from tests.conformance.database import DatabaseConformance, Reopen


class TestSqliteDatabase(DatabaseConformance):
    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[Database]:
        with SqliteDatabase(tmp_path / "test.sqlite") as database:
            yield database

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Reopen]:
        with ExitStack() as opened:
            yield lambda: opened.enter_context(SqliteDatabase(tmp_path / "test.sqlite"))
