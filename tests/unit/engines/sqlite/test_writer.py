"""Group commit: works that wait together are committed together, and each still stands alone."""

import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from holdfast import Conflict, DatabaseFull, EngineError, OutcomeUnknown
from holdfast.engines import Transaction
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.testing.disk import FaultyDisk


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    database = SqliteDatabase(tmp_path / "test.sqlite")
    database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
    return database


def insert(name: str) -> "Insert":
    return Insert(name)


class Insert:
    """A work that adds one row, and can be told apart by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, transaction: Transaction) -> str:
        transaction.execute("insert into item values ($1)", (self.name,))
        return self.name


def names(database: SqliteDatabase) -> list[str]:
    rows = database.read(lambda transaction: transaction.execute("select name from item order by name"))
    return [row[0] for row in rows]


class Held:
    """A work that holds the writer's role until it is released, so that others have to queue."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()
        self.future: Future[None] = database.submit(self)
        assert self.begun.wait(10)

    def __call__(self, transaction: Transaction) -> None:
        self.begun.set()
        assert self.release.wait(10)


def test_works_that_wait_together_become_visible_in_one_commit(database: SqliteDatabase) -> None:
    held = Held(database)
    futures = [database.submit(insert(f"row {number}")) for number in range(10)]

    def look_from_outside(transaction: Transaction) -> tuple[int, int]:
        inside = transaction.execute("select count(*) from item")[0][0]
        return inside, len(names(database))

    seen = database.submit(look_from_outside)
    held.release.set()
    assert seen.result(10) == (10, 0)
    assert [future.result(10) for future in futures] == [f"row {number}" for number in range(10)]
    assert len(names(database)) == 10


def test_a_failing_work_harms_nobody_who_shares_its_commit(database: SqliteDatabase) -> None:
    held = Held(database)
    good = [database.submit(insert(name)) for name in ("a", "b")]
    duplicate = database.submit(insert("a"))
    wrong = database.submit(lambda transaction: transaction.execute("select * from nowhere"))
    later = database.submit(insert("c"))
    held.release.set()
    assert [future.result(10) for future in [*good, later]] == ["a", "b", "c"]
    with pytest.raises(Conflict):
        duplicate.result(10)
    with pytest.raises(EngineError, match="nowhere"):
        wrong.result(10)
    assert names(database) == ["a", "b", "c"]


def test_a_lone_failing_work_is_run_once(database: SqliteDatabase) -> None:
    runs = []

    def fail(transaction: Transaction) -> None:
        runs.append(transaction)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        database.write(fail)
    assert len(runs) == 1


def test_waiting_threads_get_their_own_results(database: SqliteDatabase) -> None:
    results: dict[str, str] = {}

    def call(name: str) -> None:
        results[name] = database.write(insert(name))

    held = Held(database)
    threads = [threading.Thread(target=call, args=(f"row {number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    held.release.set()
    for thread in threads:
        thread.join(10)
    assert results == {f"row {number}": f"row {number}" for number in range(20)}
    assert len(names(database)) == 20


def test_a_cancelled_work_is_not_written(database: SqliteDatabase) -> None:
    held = Held(database)
    unwanted = database.submit(insert("unwanted"))
    assert unwanted.cancel()
    held.release.set()
    database.write(insert("wanted"))
    assert names(database) == ["wanted"]


def test_a_group_of_cancelled_works_writes_nothing(database: SqliteDatabase) -> None:
    held = Held(database)
    assert database.submit(insert("unwanted")).cancel()
    held.release.set()
    held.future.result(10)
    database.close()


def test_a_write_inside_a_write_says_that_it_would_wait_for_itself(database: SqliteDatabase) -> None:
    with pytest.raises(EngineError, match="inside a write"):
        database.write(lambda transaction: database.write(insert("inner")))
    assert names(database) == []


@pytest.mark.parametrize("others", [0, 2])
def test_a_work_that_ends_its_own_transaction_writes_nothing_and_is_refused(
    database: SqliteDatabase, others: int
) -> None:
    held = Held(database)
    neighbours = [database.submit(insert(str(number))) for number in range(others)]

    def roll_back(transaction: Transaction) -> None:
        transaction.execute("insert into item values ('lost')")
        transaction.execute("rollback")

    rude = database.submit(roll_back)
    held.release.set()
    with pytest.raises(EngineError, match="ended its own transaction"):
        rude.result(10)
    for neighbour in neighbours:
        with pytest.raises(EngineError):
            neighbour.result(10)
    database.write(insert("after"))
    assert names(database) == ["after"]


def test_close_commits_what_was_submitted_and_may_be_repeated(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "test.sqlite")
    database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
    futures = [database.submit(insert(str(number))) for number in range(50)]
    database.close()
    database.close()
    assert all(future.done() for future in futures)
    with pytest.raises(EngineError, match="closed"):
        database.submit(insert("late"))
    with SqliteDatabase(tmp_path / "test.sqlite") as again:
        assert len(names(again)) == 50


def test_a_full_disk_is_named_loses_nothing_and_heals_when_there_is_room(tmp_path: Path) -> None:
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        database.write(insert("before"))
        disk.full = True
        with pytest.raises(DatabaseFull, match=r"test\.sqlite.*free some space"):
            database.write(insert("no room"))
        held = [database.submit(insert(f"no room {number}")) for number in range(3)]
        for future in held:
            with pytest.raises(DatabaseFull):
                future.result(10)
        assert names(database) == ["before"]
        disk.full = False
        database.write(insert("after"))
        assert names(database) == ["after", "before"]
        database.check()


def test_a_failed_sync_leaves_the_outcome_unknown_and_the_database_usable(tmp_path: Path) -> None:
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        disk.failing = True
        with pytest.raises(OutcomeUnknown, match="look before repeating"):
            database.write(insert("perhaps"))
        disk.failing = False
        database.write(insert("surely"))
        assert set(names(database)) - {"perhaps"} == {"surely"}
        database.check()


def test_every_acknowledged_write_survives_a_power_cut(tmp_path: Path) -> None:
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        for number in range(20):
            database.write(insert(str(number)))
            folder = tmp_path / f"after-{number}"
            folder.mkdir()
            copy = disk.cut_power(database.path, folder)
            with SqliteDatabase(copy) as found:
                assert len(names(found)) == number + 1


def test_the_power_cut_would_be_noticed_with_less_syncing(tmp_path: Path) -> None:
    """The test above can fail: with synchronous = normal the same power cut loses acknowledged rows."""
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        connection = database._writer._connection
        assert connection is not None
        connection.execute("pragma synchronous = normal")
        for number in range(20):
            database.write(insert(str(number)))
        copy = disk.cut_power(database.path, _folder(tmp_path / "after"))
        with SqliteDatabase(copy) as found:
            assert len(names(found)) < 20


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


INTERRUPTED = """
    import os, signal, sys, threading
    from holdfast.engines.sqlite import SqliteDatabase

    database = SqliteDatabase(sys.argv[1])
    database.write(lambda transaction: transaction.execute("create table item (name text)"))
    begun, release = threading.Event(), threading.Event()

    def held(transaction):
        begun.set()
        release.wait(10)

    threading.Thread(target=database.write, args=(held,)).start()
    begun.wait(10)
    main = threading.main_thread().ident
    threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
    try:
        database.write(lambda transaction: transaction.execute("insert into item values ('interrupted')"))
    except KeyboardInterrupt:
        print("interrupted")
    release.set()
    database.write(lambda transaction: transaction.execute("insert into item values ('after')"))
    print(database.read(lambda transaction: transaction.execute("select name from item")))
    database.close()
"""


def test_a_caller_interrupted_while_it_waits_holds_up_nobody(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(tmp_path / "test.sqlite")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode != -signal.SIGKILL, run.stderr
    assert run.stdout.splitlines() == ["interrupted", "[('after',)]"], run.stderr
