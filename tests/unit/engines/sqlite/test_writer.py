"""Group commit: works that wait together are committed together, and each still stands alone."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, DatabaseFull, EngineError, InvalidValue, OutcomeUnknown
from holdfast.engines import Transaction
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.engines.sqlite.writer import Writer, _QueuedWork
from tests.support.disk import FaultyDisk

STUCK = 30.0
"""Seconds until a thread of a test is taken to be stuck."""


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


@pytest.mark.parametrize("sql", ["commit", "rollback", " Begin", "insert or rollback into item values ('a')"])
def test_a_work_cannot_end_its_own_transaction(database: SqliteDatabase, sql: str) -> None:
    held = Held(database)
    neighbour = database.submit(insert("neighbour"))
    rude = database.submit(lambda transaction: transaction.execute(sql))
    held.release.set()
    with pytest.raises(InvalidValue, match="must not begin, commit or roll back"):
        rude.result(10)
    assert neighbour.result(10) == "neighbour"
    assert names(database) == ["neighbour"]


def test_waiting_inside_a_work_or_a_callback_is_refused_instead_of_hanging(database: SqliteDatabase) -> None:
    for use in (database.submit, lambda work: database.close()):
        with pytest.raises(EngineError, match="inside a write"):
            database.write(lambda transaction, use=use: use(insert("inner")))  # type: ignore[misc]
    seen: list[BaseException] = []

    def call_back(future: "Future[str]") -> None:
        try:
            database.write(insert("from a callback"))
        except EngineError as error:
            seen.append(error)

    held = Held(database)
    future = database.submit(insert("first"))
    future.add_done_callback(call_back)
    held.release.set()
    future.result(10)
    database.write(insert("second"))
    assert len(seen) == 1
    assert names(database) == ["first", "second"]


def test_a_work_that_ends_the_thread_ends_nobody_s_waiting(database: SqliteDatabase) -> None:
    def leave(transaction: Transaction) -> None:
        transaction.execute("insert into item values ('left')")
        raise SystemExit(3)

    held = Held(database)
    neighbours = [database.submit(insert("a")), database.submit(insert("b"))]
    leaving = database.submit(leave)
    held.release.set()
    with pytest.raises(SystemExit):
        leaving.result(10)
    assert [future.result(10) for future in neighbours] == ["a", "b"]
    with pytest.raises(SystemExit):
        database.write(leave)
    assert database.submit(insert("c")).result(10) == "c"
    assert names(database) == ["a", "b", "c"]


@pytest.mark.parametrize("also_failing", [False, True])
def test_a_constraint_that_is_checked_at_the_commit_fails_its_own_work_only(
    database: SqliteDatabase, also_failing: bool
) -> None:
    database.write(
        lambda transaction: transaction.execute(
            "create table part (name text references item (name) deferrable initially deferred)"
        )
    )
    held = Held(database)
    good = [database.submit(insert("a")), database.submit(insert("b"))]
    orphan = database.submit(lambda transaction: transaction.execute("insert into part values ('nobody')"))
    wrong = database.submit(insert("a")) if also_failing else None
    held.release.set()
    assert [future.result(10) for future in good] == ["a", "b"]
    with pytest.raises(Conflict, match="FOREIGN KEY"):
        orphan.result(10)
    if wrong is not None:
        with pytest.raises(Conflict, match="UNIQUE"):
            wrong.result(10)
    assert names(database) == ["a", "b"]


def test_an_error_of_the_whole_group_is_every_caller_s_own(tmp_path: Path) -> None:
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        held = Held(database)
        futures = [database.submit(insert(str(number))) for number in range(3)]
        disk.full = True
        held.release.set()
        errors = [future.exception(10) for future in futures]
        disk.full = False
    assert {type(error) for error in errors} == {DatabaseFull}
    assert len({id(error) for error in errors}) == 3


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


def test_a_commit_counts_though_there_is_no_room_to_copy_the_log(tmp_path: Path) -> None:
    """A caller that heard of a full disk here would send again what is there already."""
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        disk.full_for_copies = True
        for number in range(3):
            database.write(insert(str(number) * 3_000_000))  # about 700 pages: the second makes the log long enough
        assert len(names(database)) == 3
        assert (tmp_path / "test.sqlite").stat().st_size < 3_000_000
        disk.full_for_copies = False
        database.write(insert("copied"))
        assert (tmp_path / "test.sqlite").stat().st_size > 3_000_000


def test_a_database_can_be_closed_while_the_disk_is_full_and_has_everything_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    with FaultyDisk() as disk:
        database = SqliteDatabase(tmp_path / "test.sqlite")
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        database.write(insert("before"))
        assert names(database) == ["before"]
        disk.full = True
        database.close()
        disk.full = False
        with SqliteDatabase(tmp_path / "test.sqlite") as again:
            assert names(again) == ["before"]


def test_a_failed_sync_leaves_the_outcome_unknown_and_the_database_usable(tmp_path: Path) -> None:
    with FaultyDisk() as disk, SqliteDatabase(tmp_path / "test.sqlite") as database:
        database.write(lambda transaction: transaction.execute("create table item (name text primary key)"))
        disk.failing = True
        with pytest.raises(OutcomeUnknown, match="check before you repeat it"):
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


def in_a_process(script: str, path: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script that is interrupted on purpose; unmeasured, because coverage's own locks do not survive that."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


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
    run = in_a_process(INTERRUPTED, tmp_path / "test.sqlite")
    assert run.returncode != -signal.SIGKILL, run.stderr
    told, rows = run.stdout.splitlines()
    assert told == "interrupted", run.stderr
    assert "after" in rows


STORM = """
    import signal, sys, threading, time
    from holdfast.engines.sqlite import SqliteDatabase

    class Alarm(Exception):
        pass

    armed = False

    def ring(*_):
        global armed
        if armed:
            armed = False
            raise Alarm

    database = SqliteDatabase(sys.argv[1])
    database.write(lambda transaction: transaction.execute("create table item (name text)"))
    stop = threading.Event()

    def others():
        while not stop.is_set():
            database.write(lambda transaction: transaction.execute("insert into item values ('other')"))

    threads = [threading.Thread(target=others) for _ in range(3)]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGALRM, ring)
    alarms, end = 0, time.monotonic() + 2
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
    while time.monotonic() < end:
        try:
            armed = True
            while True:
                database.write(lambda transaction: transaction.execute("insert into item values ('main')"))
        except Alarm:
            alarms += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    stop.set()
    for thread in threads:
        thread.join(10)
    database.write(lambda transaction: transaction.execute("insert into item values ('after')"))
    database.check()
    database.close()
    print(alarms > 100, any(thread.is_alive() for thread in threads))
"""


def test_signals_that_raise_in_the_main_thread_never_wedge_the_writer(tmp_path: Path) -> None:
    run = in_a_process(STORM, tmp_path / "test.sqlite")
    assert run.stdout == "True False\n", run.stderr


EVERY_LINE = """
    import inspect, sys, threading
    from holdfast.engines.sqlite import SqliteDatabase
    from holdfast.engines.sqlite.writer import Writer, _QueuedWork

    functions = (Writer.write, Writer._queue, _QueuedWork.__init__, _QueuedWork.wait)
    watched = {function.__code__: function for function in functions}
    lines = [(code, line) for code in watched for _, _, line in code.co_lines() if line]
    survived = 0
    for number, (code, line) in enumerate(dict.fromkeys(lines)):
        database = SqliteDatabase(f"{sys.argv[1]}-{number}")
        database.write(lambda transaction: transaction.execute("create table item (name text)"))

        def trace(frame, event, _):
            if frame.f_code is code and event == "line" and frame.f_lineno == line:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        try:
            sys.settrace(trace)
            database.write(lambda transaction: transaction.execute("insert into item values ('interrupted')"))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        done = []
        insert = lambda transaction: transaction.execute("insert into item values ('other')")
        other = threading.Thread(target=lambda: done.append(database.write(insert)), daemon=True)
        other.start()
        other.join(5)
        closing = threading.Thread(target=database.close, daemon=True)
        closing.start()
        closing.join(5)
        survived += bool(done) and not closing.is_alive()
        if not (done and not closing.is_alive()):
            print(code.co_name, line, done, closing.is_alive())
    print(survived > 10, survived == len(dict.fromkeys(lines)))
"""


def test_an_interrupt_at_any_line_of_a_write_in_the_main_thread_holds_up_nobody(tmp_path: Path) -> None:
    run = in_a_process(EVERY_LINE, tmp_path / "test")
    assert run.stdout == "True True\n", run.stdout + run.stderr


def test_whoever_is_handed_the_lead_early_does_not_harm_the_one_who_hands_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader is told so before it has begun to wait, and is woken only after it has gone on."""
    begun, queued, went_on = threading.Event(), threading.Event(), threading.Event()
    queue, lead, wait, wake = Writer._queue, Writer._lead, _QueuedWork.wait, _QueuedWork.wake

    def is_next() -> bool:
        return threading.current_thread().name.startswith("next")

    def queue_late(writer: Writer, item: _QueuedWork) -> Any:
        result = queue(writer, item)
        if is_next():
            queued.set()
            while not item.is_leader:
                threading.Event().wait(0.001)
        return result

    def lead_and_go_on(writer: Writer) -> None:
        lead(writer)
        if is_next():
            went_on.set()

    def wait_and_go_on(item: _QueuedWork) -> None:
        if is_next():
            went_on.set()
        wait(item)

    def wake_late(item: _QueuedWork) -> None:
        if item.work is insert_one and not is_next():
            assert went_on.wait(STUCK)
        wake(item)

    monkeypatch.setattr(Writer, "_queue", queue_late)
    monkeypatch.setattr(Writer, "_lead", lead_and_go_on)
    monkeypatch.setattr(_QueuedWork, "wait", wait_and_go_on)
    monkeypatch.setattr(_QueuedWork, "wake", wake_late)

    def insert_one(transaction: Transaction) -> None:
        transaction.execute("insert into item default values")

    def insert_slowly(transaction: Transaction) -> None:
        begun.set()
        assert queued.wait(STUCK)
        insert_one(transaction)

    with (
        SqliteDatabase(tmp_path / "busy.sqlite") as database,
        ThreadPoolExecutor(1, "first") as first,
        ThreadPoolExecutor(1, "next") as second,
    ):
        database.write(lambda transaction: transaction.execute("create table item (id integer primary key)"))
        leading = first.submit(database.write, insert_slowly)
        assert begun.wait(STUCK)
        led = second.submit(database.write, insert_one)
        leading.result(STUCK)
        led.result(STUCK)
        assert database.read(lambda transaction: transaction.execute("select count(*) from item")) == [(2,)]
