"""A SQLite file as a Database: versions, locks, damage, forks."""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from holdfast import (
    Conflict,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseLocked,
    EngineError,
    EngineMismatch,
    InvalidValue,
)
from holdfast.engines import Migration
from holdfast.engines.sqlite import MINIMUM_VERSION, SqliteDatabase
from holdfast.engines.sqlite.connection import require_version
from tests.support.disk import FaultyDisk


def test_the_sqlite_in_use_is_recent_enough() -> None:
    require_version(apsw.sqlite_lib_version())


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_an_old_sqlite_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(EngineMismatch, match=f"SQLite {version} is too old.*pip install"):
        require_version(version)


def test_the_minimum_itself_is_accepted() -> None:
    require_version(".".join(str(part) for part in MINIMUM_VERSION))


def test_commits_reach_the_disk_and_readers_do_not_wait(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        settings = {
            name: database.write(lambda transaction, name=name: transaction.execute(f"pragma {name}")[0][0])  # type: ignore[misc]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_reader_goes_on_while_a_write_is_under_way(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text)"))
        begun, release = threading.Event(), threading.Event()

        def slow(transaction: object) -> None:
            begun.set()
            assert release.wait(10)

        writing = database.submit(slow)
        assert begun.wait(10)
        assert database.read(lambda transaction: transaction.execute("select count(*) from item")) == [(0,)]
        release.set()
        writing.result(10)


@contextmanager
def another_process_writing(path: Path) -> Iterator[int]:
    """A process that holds the write lock, as its id."""
    script = """
        import sys, apsw
        connection = apsw.Connection(sys.argv[1])
        connection.execute("begin immediate")
        print("locked", flush=True)
        sys.stdin.readline()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"
        yield process.pid
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_file_locked_by_another_process_is_said_to_be_so_and_by_whom(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite", timeout=0.05) as database:
        database.write(lambda transaction: transaction.execute("create table item (name text)"))
        with another_process_writing(database.path) as process:
            with pytest.raises(DatabaseLocked, match=r"test\.sqlite is locked by .*process.*waited 0\.05 s") as caught:
                database.write(lambda transaction: transaction.execute("insert into item values ('a')"))
            if Path("/proc/locks").exists():
                assert f"process {process} (" in str(caught.value)
            assert database.read(lambda transaction: transaction.execute("select * from item")) == []
        database.write(lambda transaction: transaction.execute("insert into item values ('b')"))
        assert database.read(lambda transaction: transaction.execute("select * from item")) == [("b",)]


def test_a_lock_held_for_less_than_the_patience_is_waited_for(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite", timeout=30) as database:
        with another_process_writing(database.path):
            waiting = database.submit(lambda transaction: transaction.execute("create table item (name text)"))
        assert waiting.result(30) == []


def test_something_else_than_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(DatabaseCorrupt, match=r"notes\.txt .*not a database.*restore"):
        SqliteDatabase(path)
    assert path.read_text().startswith("these are my notes")


def test_damage_inside_the_file_is_found_by_the_check(tmp_path: Path) -> None:
    path = tmp_path / "test.sqlite"
    with SqliteDatabase(path) as database:
        database.write(lambda transaction: transaction.execute("create table item (name text)"))
        rows = [(f"row {number:050}",) for number in range(2000)]
        database.write(lambda transaction: transaction.execute_many("insert into item values ($1)", rows))
        database.check()
    with path.open("r+b") as file:
        file.seek(4096 * 5)
        file.write(os.urandom(4096))
    with SqliteDatabase(path) as database, pytest.raises(DatabaseCorrupt, match="restore it from a backup"):
        database.check()


def test_tables_are_in_the_file_itself_as_soon_as_they_are_made(tmp_path: Path) -> None:
    steps = [Migration(1, "items", ("create table item (id bigint)",))]
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.migrate("items", steps)
        shutil.copy(tmp_path / "test.sqlite", tmp_path / "copy.sqlite")
        with SqliteDatabase(tmp_path / "copy.sqlite") as copy:
            assert copy.migrate("items", steps) == []


def test_a_log_that_was_removed_is_missed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (id bigint)"))
        for name in ("test.sqlite", "test.sqlite-shm"):  # as after a crash, and without the log
            shutil.copy(tmp_path / name, left / name)
    with pytest.raises(DatabaseCorrupt, match=r"test\.sqlite-wal is missing.*Put it back"):
        SqliteDatabase(left / "test.sqlite")
    (left / "test.sqlite-shm").unlink()
    SqliteDatabase(left / "test.sqlite").close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_deleted_while_in_use_is_neither_read_nor_written(tmp_path: Path, is_replaced: bool) -> None:
    path = tmp_path / "test.sqlite"
    with SqliteDatabase(path) as database:
        database.write(lambda transaction: transaction.execute("create table item (id bigint)"))
        path.rename(tmp_path / "gone")
        if is_replaced:
            path.touch()
        for run in (database.read, database.write, database.submit):
            with pytest.raises(EngineError, match=r"deleted or replaced while this process uses it.*restart"):
                run(lambda transaction: transaction.execute("select id from item"))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot open .*missing.*folder must exist"):
        SqliteDatabase(tmp_path / "missing" / "test.sqlite")


def test_parameters_out_of_order_are_refused_because_postgresql_would_read_them_otherwise(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        with pytest.raises(InvalidValue, match=r"order \$1, \$2"):
            database.read(lambda transaction: transaction.execute("select $2, $1", (1, 2)))
        assert database.read(lambda transaction: transaction.execute("select $1, $2, $1, '$9'", (1, 2))) == [
            (1, 2, 1, "$9")
        ]


@pytest.mark.parametrize("sql", ["select ?", "select ?1", "select :name", "select 1; select 2"])
def test_what_postgresql_would_not_take_is_refused(tmp_path: Path, sql: str) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        with pytest.raises(InvalidValue, match="as every engine accepts them"):
            database.read(lambda transaction: transaction.execute(sql, (1,)))
        fine = "select '?', ':name', '; x' -- ? ;\n;"
        assert database.read(lambda transaction: transaction.execute(fine)) == [("?", ":name", "; x")]


def test_its_files_are_closed_to_other_users(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text)"))
        database.backup(tmp_path / "copy.sqlite")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_idle_readers_are_reused_and_the_excess_is_closed(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "test.sqlite") as database:

        def nested(depth: int) -> int:
            if depth == 0:
                return 0
            return 1 + database.read(lambda transaction: nested(depth - 1))

        assert nested(12) == 12
        assert len(database._idle) == 8
        assert nested(8) == 8
        assert len(database._idle) == 8


FORKED = """
    import os, sys
    from holdfast import EngineError
    from holdfast.engines.sqlite import SqliteDatabase

    database = SqliteDatabase(sys.argv[1])
    child = os.fork()
    if child == 0:
        for use in (database.read, database.write, database.submit):
            try:
                use(lambda transaction: None)
            except EngineError as error:
                print(error, flush=True)
        database.close()
        os._exit(0)
    os.waitpid(child, 0)
    database.write(lambda transaction: transaction.execute("create table item (name text)"))
    database.close()
"""


def test_a_forked_child_is_told_to_open_it_again_and_the_parent_goes_on(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKED), str(tmp_path / "test.sqlite")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert len(run.stdout.splitlines()) == 3
    assert all("opened before a fork: open it again" in line for line in run.stdout.splitlines())


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
