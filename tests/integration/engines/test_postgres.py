"""What PostgreSQL adds to the seam: connections that break, servers that restart, and works that collide."""

import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import (
    Conflict,
    DatabaseFull,
    EngineError,
    EngineMismatch,
    EngineUnavailable,
    InvalidValue,
    OutcomeUnknown,
    SettingsError,
)
from holdfast.engines import Database, Migration, Transaction
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.postgres import connection as postgres_connection
from holdfast.engines.postgres.connection import IDLE_SECONDS
from holdfast.engines.postgres.errors import MAX_RUNS
from holdfast.testing import FakeClock
from tests.services.postgres import RestartablePostgres
from tests.support.proxy import LossyProxy

STUCK = 30.0
SYNC, FLUSH = b"S\0\0\0\4", b"H\0\0\0\4"  # messages of PostgreSQL's protocol: a batch ends with the first
COMMIT = b"COMMIT\0"  # without the end, READ COMMITTED is found first


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    """A schema of the test's own, with an empty table `item`."""
    schema = f"postgres_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        connection.execute(f"create table {schema}.item (id bigint primary key, count bigint)".encode())
        yield f"{postgres_url}?options=-csearch_path%3D{schema}"
        connection.execute(f"drop schema {schema} cascade".encode())


@pytest.fixture
def database(url: str) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(PostgresOptions(url=url)) as database:
        yield database


@pytest.fixture
def proxy(url: str) -> Iterator[LossyProxy]:
    server = urlsplit(url)
    assert server.hostname
    assert server.port
    with LossyProxy(server.hostname, server.port) as proxy:
        yield proxy


@pytest.fixture
def proxied(url: str, proxy: LossyProxy) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(PostgresOptions(url=through(proxy, url)), clock=FakeClock()) as database:
        yield database


def through(proxy: LossyProxy, url: str) -> str:
    server = urlsplit(url)
    return url.replace(f"{server.hostname}:{server.port}", f"{proxy.host}:{proxy.port}")


def ids(database: Database) -> list[int]:
    return [row[0] for row in database.read(lambda t: t.execute("select id from item order by id"))]


class Insert:
    """A work that counts its runs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.runs = 0

    def __call__(self, transaction: Transaction) -> None:
        self.runs += 1
        transaction.execute("insert into item (id) values ($1)", (self.number,))


def terminate(url: str, pid: int) -> None:
    """End a connection as an administrator does, and return when it is gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select pg_terminate_backend(%s, 10000)", (pid,)).fetchone()
    assert row == (True,)


class TestLostConnections:
    def test_idle_connections_that_were_terminated_are_not_noticed(self, url: str, database: PostgresDatabase) -> None:
        def pid(transaction: Transaction) -> int:
            return int(transaction.execute("select pg_backend_pid()")[0][0])

        for run in (database.read, database.write):
            before = run(pid)
            terminate(url, before)
            assert run(pid) != before

    def test_a_connection_lost_between_statements_runs_the_work_again(
        self, url: str, database: PostgresDatabase
    ) -> None:
        insert = Insert(1)

        def work(transaction: Transaction) -> None:
            insert(transaction)
            if insert.runs == 1:
                terminate(url, transaction.execute("select pg_backend_pid()")[0][0])
            transaction.execute("update item set count = 1")

        database.write(work)
        assert insert.runs == 2
        assert database.read(lambda t: t.execute("select id, count from item")) == [(1, 1)]

    def test_a_connection_lost_before_the_commit_is_sent_runs_the_work_again(
        self, url: str, database: PostgresDatabase
    ) -> None:
        insert = Insert(1)

        def work(transaction: Transaction) -> None:
            insert(transaction)
            if insert.runs == 1:
                terminate(url, transaction.execute("select pg_backend_pid()")[0][0])

        database.write(work)
        assert insert.runs == 2
        assert ids(database) == [1]

    @pytest.mark.parametrize("loss", ["request", "reply"])
    def test_a_statement_lost_on_the_way_runs_the_work_again(
        self, loss: str, proxy: LossyProxy, proxied: PostgresDatabase
    ) -> None:
        insert = Insert(1)
        proxy.lose("request" if loss == "request" else "reply", b"insert into item")
        proxied.write(insert)
        assert (insert.runs, proxy.losses) == (2, 1)
        assert ids(proxied) == [1]

    def test_a_batch_lost_on_the_way_runs_the_work_again(self, proxy: LossyProxy, proxied: PostgresDatabase) -> None:
        proxy.lose("reply", b"insert into item")
        rows = [(number,) for number in range(1000)]
        proxied.write(lambda t: t.execute_many("insert into item (id) values ($1)", rows))
        assert proxy.losses == 1
        assert ids(proxied) == list(range(1000))

    @pytest.mark.parametrize(
        ("reason", "last_words"),
        [
            ("shutdown", "terminating connection due to administrator command"),
            # Not among the errors after which a connection counts as lost. It counts as lost because it is stuck.
            ("transaction_timeout", "terminating connection due to transaction timeout"),
        ],
    )
    def test_a_batch_whose_server_leaves_after_the_last_row_runs_again_on_another_connection(
        self, url: str, proxy: LossyProxy, proxied: PostgresDatabase, reason: str, last_words: str
    ) -> None:
        """The reply to the end of the batch is missing, and psycopg cannot leave its pipeline."""
        pids: list[int] = []
        errors: list[EngineError] = []

        def work(transaction: Transaction) -> None:
            pids.append(transaction.execute("select pg_backend_pid()")[0][0])
            if len(pids) == 1 and reason == "shutdown":
                proxy.end(SYNC, FLUSH, lambda: terminate(url, pids[0]))
            elif len(pids) == 1:
                transaction.execute("set local transaction_timeout = '300ms'")
                proxy.end(SYNC, FLUSH, lambda: None)
            try:
                transaction.execute_many("insert into item (id) values ($1)", [(1,), (2,)])
            except EngineError as error:
                errors.append(error)
                raise

        proxied.write(work)
        assert len(pids) == len(set(pids)) == 2
        assert (ids(proxied), proxy.losses) == ([1, 2], 1)
        assert [last_words in str(error) for error in errors] == [True]

    def test_a_work_that_hides_the_loss_is_run_again_all_the_same(
        self, proxy: LossyProxy, proxied: PostgresDatabase
    ) -> None:
        insert = Insert(1)

        def work(transaction: Transaction) -> None:
            try:
                insert(transaction)
            except EngineError as error:
                if insert.runs == 1:
                    return
                raise LookupError from error

        proxy.lose("request", b"insert into item")
        proxied.write(work)
        assert insert.runs == 2
        assert ids(proxied) == [1]

    def test_a_commit_lost_on_its_way_to_the_server_is_not_repeated(
        self, proxy: LossyProxy, proxied: PostgresDatabase
    ) -> None:
        insert = Insert(1)
        proxy.lose("request", COMMIT)
        with pytest.raises(OutcomeUnknown, match="check before you repeat it"):
            proxied.write(insert)
        assert (insert.runs, proxy.losses) == (1, 1)
        assert ids(proxied) == []

    def test_a_lost_reply_to_a_commit_is_not_repeated(self, proxy: LossyProxy, proxied: PostgresDatabase) -> None:
        insert = Insert(1)
        proxy.lose("reply", COMMIT)
        with pytest.raises(OutcomeUnknown, match="check before you repeat it"):
            proxied.write(insert)
        assert (insert.runs, proxy.losses) == (1, 1)
        assert ids(proxied) == [1]
        proxied.write(Insert(2))
        assert ids(proxied) == [1, 2]

    @pytest.mark.parametrize(("loss", "kept"), [("request", []), ("reply", [1])])
    def test_one_statement_that_is_lost_is_not_repeated(
        self, proxy: LossyProxy, proxied: PostgresDatabase, loss: Literal["request", "reply"], kept: list[int]
    ) -> None:
        proxy.lose(loss, b"insert into item")
        with pytest.raises(OutcomeUnknown, match="check before you repeat it"):
            proxied.write_statement("insert into item (id) values (1)")
        assert proxy.losses == 1
        assert ids(proxied) == kept
        proxied.write_statement("insert into item (id) values (2)")
        assert ids(proxied) == [*kept, 2]

    def test_one_statement_that_can_be_repeated_is_repeated(self, proxy: LossyProxy, proxied: PostgresDatabase) -> None:
        proxied.write(Insert(1))
        proxy.lose("reply", b"select id from item")
        assert proxied.write_statement("select id from item", is_idempotent=True) == [(1,)]
        assert proxy.losses == 1

    def test_a_read_that_has_its_answer_does_not_care_about_the_rest(
        self, proxy: LossyProxy, proxied: PostgresDatabase
    ) -> None:
        proxy.lose("request", b"ROLLBACK")
        assert ids(proxied) == []
        assert proxy.losses == 1
        assert ids(proxied) == []

    def test_a_server_that_stays_away_is_an_error_after_the_patience(self, url: str, proxy: LossyProxy) -> None:
        clock = FakeClock()
        options = PostgresOptions(url=through(proxy, url), timeout=30.0)
        with PostgresDatabase(options, clock=clock) as database:
            proxy.refuse()
            for run in (database.write, database.read):
                began = clock.monotonic()
                with pytest.raises(EngineUnavailable, match=f"127.0.0.1:{proxy.port}/.* was unavailable for 30.0 s"):
                    run(Insert(1))
                assert clock.monotonic() - began == pytest.approx(30.0)
            assert max(clock.sleeps) <= 2.0
            assert len(clock.sleeps) <= 2 * 45  # 30 s in pauses that soon take at least a second
            proxy.admit()
            database.write(Insert(1))
            assert ids(database) == [1]

    def test_a_check_of_a_server_that_is_away_ends_soon(self, url: str, proxy: LossyProxy) -> None:
        clock = FakeClock()
        with PostgresDatabase(PostgresOptions(url=through(proxy, url), timeout=30.0), clock=clock) as database:
            database.check()
            proxy.refuse()
            with pytest.raises(EngineUnavailable, match=r"was unavailable for 5\.0 s"):
                database.check()


class TestRestart:
    def test_works_survive_a_restart_of_the_server(self, restartable_postgres: RestartablePostgres) -> None:
        server = restartable_postgres
        clock = FakeClock(manual=True)
        with PostgresDatabase(PostgresOptions(url=server.url), clock=clock) as database:
            database.write(lambda t: t.execute("create table item (id bigint primary key)"))

            between = Insert(1)
            server.stop()
            server.start()
            database.write(between)
            assert between.runs == 1

            during = Insert(2)

            def restart_once(transaction: Transaction) -> None:
                during(transaction)
                if during.runs == 1:
                    server.stop()
                    server.start()

            database.write(restart_once)
            assert during.runs == 2

            server.stop()
            with ThreadPoolExecutor() as threads:
                waiting = threads.submit(database.write, Insert(3))
                clock.wait_for_sleepers(1)
                server.start()
                clock.advance(2.0)
                waiting.result(STUCK)
            assert ids(database) == [1, 2, 3]


class TestOpening:
    def test_a_server_that_is_absent_at_the_start_is_waited_for(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        clock = FakeClock()
        began = time.monotonic()
        with pytest.raises(
            EngineUnavailable, match=rf"127\.0\.0\.1:{port}/orders was unavailable for 30\.0 s.*refused"
        ):
            PostgresDatabase(PostgresOptions(url=f"postgresql://me:secret@127.0.0.1:{port}/orders"), clock=clock)
        assert sum(clock.sleeps) == pytest.approx(30.0)
        assert time.monotonic() - began < 10

    @pytest.mark.parametrize(
        ("change", "advice"),
        [
            (("/holdfast_", "/absent_"), "database in the url"),
            (("//postgres@", "//absent:secret@"), "user in the url"),
            (("?", "?sslmode=require&"), "does not offer"),
            (("?", "?connect_timeout=soon&"), "correct the url"),
            (("/holdfast_", "9/holdfast_"), "correct the url"),
        ],
    )
    def test_a_refusal_is_reported_at_once(self, url: str, change: tuple[str, str], advice: str) -> None:
        clock = FakeClock()
        with pytest.raises(SettingsError, match=advice) as caught:
            PostgresDatabase(PostgresOptions(url=url.replace(*change)), clock=clock)
        assert clock.sleeps == []
        assert "secret" not in str(caught.value)

    def test_a_wrong_password_is_reported_at_once(self, restartable_postgres: RestartablePostgres) -> None:
        server = restartable_postgres
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create role guarded login password 'correct'")
            rules = "host all guarded 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust"
            (path,) = connection.execute("show hba_file").fetchone() or ("",)
            copy = psycopg.sql.SQL("copy (select regexp_split_to_table({}, '\n')) to {}").format(rules, path)
            connection.execute(copy)
            connection.execute("select pg_reload_conf()")
        guarded = server.url.replace("postgres@", "guarded:{}@")
        clock = FakeClock()
        with pytest.raises(SettingsError, match="check the user and the password") as caught:
            PostgresDatabase(PostgresOptions(url=guarded.format("inc0rrect")), clock=clock)
        assert clock.sleeps == []
        assert "inc0rrect" not in str(caught.value)
        with PostgresDatabase(PostgresOptions(url=guarded.format("correct"))) as database:
            database.check()

    def test_an_old_server_is_refused(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgres_connection, "MINIMUM_VERSION", 99)
        with pytest.raises(EngineMismatch, match="needs 99 or newer"):
            PostgresDatabase(PostgresOptions(url=url))

    def test_a_database_that_cannot_hold_all_text_is_refused(self, postgres_url: str) -> None:
        name = f"latin_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create database {name} encoding 'LATIN1' locale 'C' template template0".encode())
            with pytest.raises(EngineMismatch, match="LATIN1"):
                PostgresDatabase(PostgresOptions(url=postgres_url.rpartition("/")[0] + f"/{name}"))
            connection.execute(f"drop database {name}".encode())

    def test_sessions_are_durable_named_and_bounded(self, url: str) -> None:
        options = PostgresOptions(
            url=f"{url}%20-csynchronous_commit%3Doff", statement_timeout=1.5, application_name="holdfast test"
        )
        names = ("application_name", "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
        with PostgresDatabase(options) as database:
            sql = ", ".join(f"current_setting('{name}')" for name in names)
            row = database.read(lambda t: t.execute(f"select {sql}"))[0]
        assert row == ("holdfast test", "1500ms", "1500ms", "local")

    def test_a_transaction_that_stands_still_does_not_keep_its_locks_for_long(self, url: str) -> None:
        with PostgresDatabase(PostgresOptions(url=url)) as database:
            setting = "select current_setting('idle_in_transaction_session_timeout')"
            assert database.read(lambda t: t.execute(setting)) == [(f"{IDLE_SECONDS:.0f}s",)]


class TestCollisions:
    def test_a_deadlock_is_run_again(self, url: str) -> None:
        start = threading.Barrier(2)
        runs = [0, 0]
        with PostgresDatabase(PostgresOptions(url=f"{url}%20-cdeadlock_timeout%3D20ms")) as database:
            database.write(lambda t: t.execute("insert into item (id, count) values (0, 0), (1, 0)"))

            def collide(number: int) -> None:
                def work(transaction: Transaction) -> None:
                    runs[number] += 1
                    transaction.execute("update item set count = count + 1 where id = $1", (number,))
                    if runs[number] == 1:
                        start.wait(STUCK)
                    transaction.execute("update item set count = count + 1 where id = $1", (1 - number,))

                database.write(work)

            with ThreadPoolExecutor() as threads:
                list(threads.map(collide, range(2), timeout=STUCK))
            assert sum(runs) > 2
            assert database.read(lambda t: t.execute("select count from item")) == [(2,), (2,)]

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    def test_works_that_always_collide_are_given_up(self, url: str, state: str) -> None:
        runs: list[int] = []

        def work(transaction: Transaction) -> None:
            runs.append(1)
            transaction.execute(failing(state))

        with (
            PostgresDatabase(PostgresOptions(url=url), clock=FakeClock()) as database,
            pytest.raises(EngineUnavailable, match=f"ran {MAX_RUNS} times"),
        ):
            database.write(work)
        assert len(runs) == MAX_RUNS

    def test_a_pool_that_is_exhausted_is_waited_for_and_then_an_error(self, url: str) -> None:
        with (
            PostgresDatabase(PostgresOptions(url=url, max_connections=1, timeout=0.05)) as database,
            ThreadPoolExecutor() as threads,
        ):
            taken, finish = threading.Event(), threading.Event()

            def hold(transaction: Transaction) -> None:
                Insert(1)(transaction)
                taken.set()
                assert finish.wait(STUCK)

            holding = threads.submit(database.write, hold)
            assert taken.wait(STUCK)
            with pytest.raises(EngineUnavailable, match=r"all 1 connections .* were in use for 0\.05 s"):
                database.write(Insert(2))
            database._pool._last_connect_error = "Connection refused\nIs it running?"
            with pytest.raises(EngineUnavailable, match=r"opening new ones fails \(Connection refused\); check"):
                database.write(Insert(2))
            finish.set()
            holding.result(STUCK)
            assert ids(database) == [1]

    def test_many_threads_share_few_connections(self, url: str) -> None:
        with (
            PostgresDatabase(PostgresOptions(url=url, max_connections=2)) as database,
            ThreadPoolExecutor(16) as threads,
        ):
            list(threads.map(database.write, [Insert(number) for number in range(200)], timeout=STUCK))
            sql = "select count(*) from pg_stat_activity where pid <> pg_backend_pid() and query like $1"
            assert ids(database) == list(range(200))
            assert database.read(lambda t: t.execute(sql, ("%into item%",)))[0][0] <= 2

    def test_a_migration_does_not_queue_behind_a_table_in_use_for_ever(self, url: str) -> None:
        steps = (Migration(1, "more", ("alter table item add column name text",)),)
        with psycopg.connect(url) as user, PostgresDatabase(PostgresOptions(url=url, timeout=0.1)) as database:
            user.execute("select * from item")
            with pytest.raises(EngineUnavailable, match="lock timeout"):
                database.migrate("items", steps)
            user.rollback()
            assert database.migrate("items", steps) == list(steps)


def failing(state: str) -> str:
    """A statement that the server fails with this SQLSTATE."""
    return f"do $body$ begin raise exception 'as told' using errcode = '{state}'; end $body$"


class TestFaults:
    def test_a_full_disk_says_so(self, database: PostgresDatabase) -> None:
        with pytest.raises(DatabaseFull, match="nothing was written"):
            database.write(lambda t: t.execute(failing("53100")))

    def test_a_statement_that_takes_too_long_is_ended(self, url: str) -> None:
        with (
            PostgresDatabase(PostgresOptions(url=url, statement_timeout=0.02)) as database,
            pytest.raises(EngineUnavailable, match="took too long"),
        ):
            database.read(lambda t: t.execute("select pg_sleep(10)"))

    def test_a_server_that_takes_no_writes_is_waited_for(self, url: str) -> None:
        options = PostgresOptions(url=f"{url}%20-cdefault_transaction_read_only%3Don")
        with PostgresDatabase(options, clock=FakeClock()) as database:
            with pytest.raises(EngineUnavailable, match="read-only transaction"):
                database.write(Insert(1))
            assert ids(database) == []

    def test_after_a_failover_no_connection_to_the_old_server_is_tried_again(self, url: str) -> None:
        start = threading.Barrier(4)
        with psycopg.connect(url, autocommit=True) as other:
            name = other.info.dbname
            other.execute(f"alter database {name} set default_transaction_read_only = on".encode())
            try:
                with (
                    PostgresDatabase(PostgresOptions(url=url), clock=FakeClock()) as database,
                    ThreadPoolExecutor(4) as threads,
                ):
                    # Four connections lie idle that will never take a write; those opened from now on will.
                    list(threads.map(lambda _: database.read(lambda _: start.wait(STUCK)), range(4)))
                    other.execute(f"alter database {name} reset default_transaction_read_only".encode())
                    insert = Insert(1)
                    database.write(insert)
                    assert insert.runs == 2
            finally:
                other.execute(f"alter database {name} reset default_transaction_read_only".encode())

    def test_an_error_names_the_state_and_the_place(self, database: PostgresDatabase) -> None:
        with pytest.raises(EngineError, match=r"127\.0\.0\.1:\d+/holdfast.*SQLSTATE 42P01"):
            database.read(lambda t: t.execute("select id from nowhere"))

    def test_text_that_cannot_be_stored_is_an_engine_error(self, database: PostgresDatabase) -> None:
        with pytest.raises(EngineError, match="NUL"):
            database.write(lambda t: t.execute("select $1", ("a\0b",)))

    def test_a_prepared_statement_outlives_a_change_of_its_table(self, url: str, database: PostgresDatabase) -> None:
        database.write(Insert(1))
        for _ in range(10):  # the driver prepares what it sees often
            assert database.read(lambda t: t.execute("select * from item")) == [(1, None)]
        with psycopg.connect(url) as other:
            other.execute("alter table item add column name text")
        assert database.read(lambda t: t.execute("select * from item")) == [(1, None, None)]

    def test_a_constraint_checked_at_the_commit_undoes_everything(self, database: PostgresDatabase) -> None:
        deferred = "parent bigint references item (id) deferrable initially deferred"
        database.write(lambda t: t.execute(f"alter table item add column {deferred}"))
        with pytest.raises(Conflict, match="foreign key"):
            database.write(lambda t: t.execute("insert into item (id, parent) values (1, 2)"))
        assert ids(database) == []

    def test_a_check_finds_tables_that_went_back_in_time(self, url: str, database: PostgresDatabase) -> None:
        database.migrate("items", (Migration(1, "more", ("alter table item add column name text",)),))
        database.check()
        with psycopg.connect(url) as other:
            other.execute("delete from holdfast_migrations")
        with pytest.raises(EngineMismatch, match="older backup"):
            database.check()


class TestMisuse:
    def test_a_transaction_ends_with_its_work(self, database: PostgresDatabase) -> None:
        transaction = database.write(lambda transaction: transaction)
        with pytest.raises(EngineError, match="was used after its end"):
            transaction.execute("select 1")

    def test_statements_after_a_failed_one_name_it(self, database: PostgresDatabase) -> None:
        messages: list[str] = []

        def work(transaction: Transaction) -> None:
            for sql in ("selekt 1", "select 1"):
                try:
                    transaction.execute(sql)
                except EngineError as error:
                    messages.append(str(error))

        with pytest.raises(EngineError, match="selekt"):
            database.write(work)
        assert "earlier statement" in messages[1]
        assert "selekt" in messages[1]

    @pytest.mark.parametrize("statement", ["commit", "rollback"])
    def test_a_work_must_not_end_its_transaction(self, database: PostgresDatabase, statement: str) -> None:
        with pytest.raises(InvalidValue, match="must not begin, commit or roll back"):
            database.write(lambda t: t.execute(statement))
        database.write(Insert(1))
        assert ids(database) == [1]

    def test_an_interrupted_work_is_undone(self, database: PostgresDatabase) -> None:
        def work(transaction: Transaction) -> None:
            Insert(1)(transaction)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            database.write(work)
        assert ids(database) == []

    def test_an_interrupted_commit_does_not_spoil_the_pool(
        self, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Connection, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                database.write(Insert(1))
        database.write(Insert(2))
        assert ids(database) == [2]

    def test_a_fork_is_told_to_open_its_own(self, url: str) -> None:
        # In a process of its own: this one has threads, and forking it is not safe.
        program = """
import os, sys
from holdfast import EngineError
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

with PostgresDatabase(PostgresOptions(url=sys.argv[1])) as database:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    try:
        print(database.read(lambda t: t.execute("select count(*) from item")))
    except EngineError as error:
        print(error)
"""
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, url],
            capture_output=True,
            text=True,
            timeout=STUCK,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        told, answered = run.stdout.splitlines()
        assert "open the database again after the fork" in told
        assert answered == "[(0,)]"
