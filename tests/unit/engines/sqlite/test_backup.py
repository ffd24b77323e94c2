"""Backups of a database that is in use."""

import threading
from pathlib import Path

import pytest

from holdfast import Conflict, DatabaseFull
from holdfast.engines.sqlite import SqliteDatabase
from tests.support.disk import FaultyDisk


def fill(database: SqliteDatabase, count: int) -> None:
    database.write(lambda transaction: transaction.execute("create table item (number bigint, body text)"))
    rows = [(number, "x" * 500) for number in range(count)]
    database.write(lambda transaction: transaction.execute_many("insert into item values ($1, $2)", rows))


def count(database: SqliteDatabase) -> int:
    result: int = database.read(lambda transaction: transaction.execute("select count(*) from item"))[0][0]
    return result


def test_a_backup_is_complete_while_others_keep_writing(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        fill(database, 20_000)
        steps: list[tuple[int, int]] = []

        def write_in_between(done: int, total: int) -> None:
            steps.append((done, total))
            database.write(lambda transaction: transaction.execute("insert into item values (-1, 'later')"))

        database.backup(tmp_path / "copy.sqlite", write_in_between)
        assert count(database) == 20_000 + len(steps)
    assert len(steps) > 1, "every step saw a write in between, and the copy did not start over"
    assert steps[-1][0] == steps[-1][1]
    assert sorted(steps) == steps
    with SqliteDatabase(tmp_path / "copy.sqlite") as copy:
        copy.check()
        assert count(copy) == 20_000


def test_a_backup_is_one_file_and_does_not_overwrite(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        fill(database, 10)
        database.backup(folder / "copy.sqlite")
        assert [path.name for path in folder.iterdir()] == ["copy.sqlite"]
        with pytest.raises(Conflict, match=r"copy\.sqlite exists already"):
            database.backup(folder / "copy.sqlite")


def test_a_backup_that_fails_leaves_no_file_behind(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        fill(database, 1000)
        disk.full = True
        with pytest.raises(DatabaseFull, match=r"copy\.sqlite"):
            database.backup(folder / "copy.sqlite")
        disk.full = False
        assert list(folder.iterdir()) == []
        database.backup(folder / "copy.sqlite")


def test_readers_go_on_during_a_backup(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        fill(database, 5000)
        seen: list[int] = []

        def read_in_between(done: int, total: int) -> None:
            thread = threading.Thread(target=lambda: seen.append(count(database)))
            thread.start()
            thread.join(10)

        database.backup(tmp_path / "copy.sqlite", read_in_between)
        assert seen
        assert set(seen) == {5000}
