"""Whether anybody has committed to a SQLite file since."""

import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from holdfast import DatabaseCorrupt
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.engines.sqlite import connection as connections
from holdfast.engines.sqlite.connection import ChangeCounter, identify, require_log

INSERT = "insert into item values (1)"
TRY_TO_WRITE = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
try:
    connection.execute("begin immediate")
except apsw.BusyError:
    print("locked")
else:
    print("free")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.sqlite"


def test_every_commit_changes_it_and_nothing_else_does(path: Path) -> None:
    with SqliteDatabase(path) as database, SqliteDatabase(path) as other:
        counter = database.change_counter()
        database.write(lambda transaction: transaction.execute("create table item (number integer)"))
        seen = [counter.read()]
        for writer in (database, other, database):
            writer.write(lambda transaction: transaction.execute(INSERT))
            seen.append(counter.read())
        assert None not in seen
        assert len(set(seen)) == 4
        database.read(lambda transaction: transaction.execute("select * from item"))
        database.write(lambda transaction: transaction.execute("select * from item"))
        assert counter.read() == seen[-1]
        counter.close()


def test_a_commit_of_another_process_changes_it(path: Path) -> None:
    with SqliteDatabase(path) as database:
        database.write(lambda transaction: transaction.execute("create table item (number integer)"))
        counter = database.change_counter()
        before = counter.read()
        write = f"import apsw, sys; apsw.Connection(sys.argv[1]).execute('{INSERT}')"
        subprocess.run([sys.executable, "-c", write, str(path)], check=True)
        assert counter.read() != before
        counter.close()


def test_reading_it_waits_for_no_writer_and_takes_away_no_lock(path: Path) -> None:
    """Whoever opens SQLite's files by hand, and closes them again, lets others write in the middle of a transaction."""
    with SqliteDatabase(path) as database:
        database.write(lambda transaction: transaction.execute("create table item (number integer)"))
        writer = apsw.Connection(str(path))
        writer.execute("begin immediate")
        writer.execute(INSERT)
        counter = database.change_counter()
        before = counter.read()
        assert before is not None
        assert counter.read() == before
        counter.close()
        tried = subprocess.run(
            [sys.executable, "-c", TRY_TO_WRITE, str(path)], capture_output=True, text=True, check=True
        )
        assert tried.stdout.strip() == "locked"
        writer.execute("commit")
        writer.close()


def test_where_it_cannot_be_told_it_says_so_and_tries_again(path: Path) -> None:
    counter = ChangeCounter(path.parent / "later" / "test.sqlite")
    assert counter.read() is None
    (path.parent / "later").mkdir()
    assert counter.read() is not None
    counter.close()


def test_after_closing_it_knows_nothing(path: Path) -> None:
    counter = ChangeCounter(path)
    assert counter.read() is not None
    counter.close()
    counter.close()
    assert counter.read() is None


def test_many_threads_may_ask_at_once(path: Path) -> None:
    counter = ChangeCounter(path)
    found: list[int | None] = []

    def ask() -> None:
        found.extend(counter.read() for _ in range(200))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1200
    assert len(set(found)) == 1
    assert None not in found
    counter.close()


def test_an_index_that_another_process_made_with_the_same_number_is_no_sign_of_a_lost_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process closes the database and another opens it while the check runs; the file system reuses the number."""
    log = path.with_name(f"{path.name}-wal")
    path.with_name(f"{path.name}-shm").touch()
    calls = 0

    def identify_meanwhile(index: Path) -> tuple[int, int] | None:
        nonlocal calls
        calls += 1
        if calls == 2:
            log.touch()
        return identify(index)

    monkeypatch.setattr(connections, "identify", identify_meanwhile)
    require_log(path)
    log.unlink()
    with pytest.raises(DatabaseCorrupt):
        require_log(path)
