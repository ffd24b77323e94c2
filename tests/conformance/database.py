"""What every Database must do, as tests to inherit.

    class TestMyDatabase(DatabaseConformance):
        @pytest.fixture
        def database(self, tmp_path: Path) -> Iterator[Database]:
            with MyDatabase(tmp_path / "test") as database:
                yield database

Each test makes its tables in the SQL that the engines share, so that a fresh, empty database is all it takes.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeAlias, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._errors import Conflict, EngineError, EngineMismatch, InvalidValue
from holdfast.engines.database import Database, Row, Transaction, Value
from holdfast.engines.migrations import Migration
from tests.depth import nested

__all__ = ["DatabaseConformance", "Reopen"]

Reopen: TypeAlias = Callable[[], Database]
Item = TypeVar("Item")

WRITERS = 8
"""Threads that write at once: enough to collide, few enough for a small machine."""

STUCK = 30.0
"""Real seconds until a thread of a test is taken to be stuck."""

_EXAMPLES = nested(100)
# Text with NUL is left out: PostgreSQL cannot hold it.
_VALUES = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.none() | st.binary(),
)

_STEPS = (
    Migration(1, "the table", ("create table item (id bigint primary key)",)),
    Migration(2, "names", ("alter table item add column name text", "insert into item (id, name) values (1, 'first')")),
)


class DatabaseConformance:
    """The promises of `holdfast.engines.Database`. Override the fixtures `database` and `reopen`."""

    @pytest.fixture
    def database(self) -> Iterator[Database]:
        """A fresh, empty database; the fixture closes it."""
        raise NotImplementedError("override the fixture `database` with a fresh, empty Database of your engine")

    @pytest.fixture
    def reopen(self, database: Database) -> Reopen:
        """Opens the place of `database` once more; the fixture closes what it handed out."""
        raise NotImplementedError("override the fixture `reopen` with a function that opens the same place once more")

    def test_what_was_written_is_read(self, database: Database) -> None:
        """What one work wrote, the next one reads; both return what the work returns."""
        assert make_item(database) == "made"
        database.write(lambda t: t.execute("insert into item (id, name) values ($1, $2)", (1, "one")))
        assert database.read(lambda t: t.execute("select id, name from item")) == [(1, "one")]

    def test_a_statement_without_rows_returns_an_empty_list(self, database: Database) -> None:
        """Statements that change something, and questions nobody answers, both return no rows."""
        make_item(database)
        assert database.write(lambda t: t.execute("insert into item (id) values (1)")) == []
        assert database.write(lambda t: t.execute("select id from item where id = $1", (2,))) == []

    def test_values_come_back_as_they_went_in(self, database: Database) -> None:
        """Integers of 64 bits, floats, text, bytes and null keep their value and their type."""
        make_item(database)
        database.write(lambda t: t.execute("insert into item (id) values (0)"))

        @_EXAMPLES
        @given(_VALUES)
        def come_back(values: tuple[Value, ...]) -> None:
            sql = "update item set count = $1, share = $2, name = $3, body = $4"
            database.write(lambda t: t.execute(sql, values))
            row = only(database.read(lambda t: t.execute("select count, share, name, body from item")))
            assert row == values
            assert [type(value) for value in row] == [type(value) for value in values]

        come_back()

    @pytest.mark.parametrize(
        "value", [2**63 - 1, -(2**63), b"", b"\0", b"a\0b\xff", "", "Ä\N{GRINNING FACE}\n'\"\\ $1 %s ?", 0.1, 1e300]
    )
    def test_values_at_the_edge_come_back(self, database: Database, value: Value) -> None:
        """The largest integers, nothing at all, NUL among bytes, and text that looks like SQL."""
        column = {int: "count", float: "share", str: "name", bytes: "body"}[type(value)]
        make_item(database)
        database.write(lambda t: t.execute(f"insert into item (id, {column}) values (1, $1)", (value,)))
        assert database.read(lambda t: t.execute(f"select {column} from item")) == [(value,)]

    def test_a_parameter_may_be_used_twice(self, database: Database) -> None:
        """`$1` means the same wherever it stands."""
        make_item(database)
        sql = "insert into item (id, count, name) values ($1, $1, $2)"
        database.write(lambda t: t.execute(sql, (7, "seven")))
        assert database.read(lambda t: t.execute("select id, count, name from item")) == [(7, 7, "seven")]

    def test_sums_of_integers_are_integers(self, database: Database) -> None:
        """Counting and adding give int, dividing gives float, in every engine."""
        make_item(database, (1, 2, 6))
        row = only(database.read(lambda t: t.execute("select count(*), sum(id), avg(id) from item")))
        assert row == (3, 9, 3.0)
        assert [type(value) for value in row] == [int, int, float]

    def test_arithmetic_has_64_bits(self, database: Database) -> None:
        """However small the numbers that went in, the result may be large."""
        assert database.read(lambda t: t.execute("select $1 * 100000", (100_000,))) == [(10**10,)]

    def test_returning_gives_the_changed_rows(self, database: Database) -> None:
        """`returning` spares the second question."""
        make_item(database, (1, 2))
        sql = "update item set count = id * 10 where id > $1 returning id, count"
        assert database.write(lambda t: t.execute(sql, (1,))) == [(2, 20)]

    def test_execute_many_takes_lists_and_generators(self, database: Database) -> None:
        """One statement for every row of parameters, from whatever gives rows; none is fine too."""
        make_item(database)
        sql = "insert into item (id, name) values ($1, $2)"
        database.write(lambda t: t.execute_many(sql, [(1, "a"), (2, None)]))
        database.write(lambda t: t.execute_many(sql, ((number, "b") for number in range(3, 1003))))
        database.write(lambda t: t.execute_many(sql, []))
        database.write(lambda t: t.execute_many(sql, iter(())))
        assert ids(database) == list(range(1, 1003))

    def test_an_error_in_execute_many_undoes_all_its_rows(self, database: Database) -> None:
        """A batch is not half written, whether the engine or the generator of the rows fails."""
        make_item(database)
        sql = "insert into item (id) values ($1)"
        with pytest.raises(Conflict):
            database.write(lambda t: t.execute_many(sql, [(1,), (2,), (1,), (3,)]))
        error = KeyError("no more rows")

        def rows() -> Iterator[Sequence[Value]]:
            yield (1,)
            raise error

        with pytest.raises(KeyError) as caught:
            database.write(lambda t: t.execute_many(sql, rows()))
        assert caught.value is error
        assert ids(database) == []
        database.write(lambda t: t.execute(sql, (1,)))

    def test_an_error_of_the_work_passes_through_and_undoes_everything(self, database: Database) -> None:
        """The caller gets the very object that the work raised; reads pass theirs through as well."""
        make_item(database)
        error = RuntimeError("changed my mind")

        def work(transaction: Transaction) -> NoReturn:
            transaction.execute("select id from item")
            raise error

        def write_first(transaction: Transaction) -> NoReturn:
            transaction.execute("insert into item (id) values (1)")
            work(transaction)

        with pytest.raises(RuntimeError) as caught:
            database.write(write_first)
        assert caught.value is error
        with pytest.raises(RuntimeError) as caught:
            database.read(work)
        assert caught.value is error
        assert ids(database) == []

    def test_a_hidden_error_still_undoes_everything(self, database: Database) -> None:
        """A statement that failed ends the transaction: a work that catches its error cannot save the rest."""
        make_item(database, (1,))

        def work(transaction: Transaction) -> None:
            transaction.execute("insert into item (id) values (2)")
            with pytest.raises(Conflict):
                transaction.execute("insert into item (id) values (1)")

        with pytest.raises(Conflict):
            database.write(work)
        assert ids(database) == [1]

    def test_a_transaction_is_of_no_use_after_its_work(self, database: Database) -> None:
        """Kept and used later, it raises EngineError instead of running in somebody else's transaction."""
        make_item(database)
        kept = [database.write(lambda t: t), database.read(lambda t: t)]
        for transaction in kept:
            with pytest.raises(EngineError, match="was used after its end"):
                transaction.execute("insert into item (id) values (1)")
        assert ids(database) == []

    def test_what_only_one_engine_takes_is_refused_by_all(self, database: Database) -> None:
        """Other parameters, several statements, and a work that would end its own transaction."""
        make_item(database)
        for sql in ("select ?", "select 1; select 2", "select $2, $1", "commit", "rollback"):
            with pytest.raises(InvalidValue):
                database.write(lambda t, sql=sql: t.execute(sql))  # type: ignore[misc]
        assert ids(database) == []

    def test_a_read_cannot_write(self, database: Database) -> None:
        """A write inside a read is an EngineError and changes nothing; the next write is not harmed."""
        make_item(database)
        with pytest.raises(EngineError):
            database.read(lambda t: t.execute("insert into item (id) values (1)"))
        assert ids(database) == []
        database.write(lambda t: t.execute("insert into item (id) values (2)"))
        assert ids(database) == [2]

    def test_a_read_sees_one_snapshot(self, database: Database) -> None:
        """What is committed while a read runs, it does not see, not even in its later statements."""
        make_item(database, (1,))

        def work(transaction: Transaction) -> tuple[list[Row], list[Row]]:
            before = transaction.execute("select id from item")
            elsewhere(lambda: database.write(lambda t: t.execute("insert into item (id) values (2)")))
            return before, transaction.execute("select id from item")

        assert database.read(work) == ([(1,)], [(1,)])
        assert ids(database) == [1, 2]

    def test_a_read_does_not_wait_for_a_writer(self, database: Database) -> None:
        """While a write is under way, reads see what was there before it."""
        make_item(database, (1,))

        def work(transaction: Transaction) -> list[int]:
            transaction.execute("update item set id = 2")
            return elsewhere(lambda: ids(database))

        assert database.write(work) == [1]
        assert ids(database) == [2]

    def test_concurrent_writes_all_count_once(self, database: Database) -> None:
        """No update of many threads is lost, and none is done twice."""
        make_item(database, (1,))
        database.write(lambda t: t.execute("update item set count = 0"))

        def increment(_: int) -> None:
            for _ in range(25):
                database.write(lambda t: t.execute("update item set count = count + 1 where id = 1"))

        together(increment)
        assert database.read(lambda t: t.execute("select count from item")) == [(25 * WRITERS,)]

    def test_one_statement_is_a_transaction_of_its_own(self, database: Database) -> None:
        """Its rows are returned, what it wrote is there, and nothing of one that fails."""
        make_item(database, (1,))
        assert database.write_statement("insert into item (id) values ($1), ($2) returning id", (2, 3)) == [(2,), (3,)]
        assert database.write_statement("update item set count = $1", (7,)) == []
        with pytest.raises(Conflict):
            database.write_statement("insert into item (id) values ($1), ($2)", (4, 2))
        with pytest.raises(EngineError):
            database.write_statement("selekt 1")
        with pytest.raises(InvalidValue):
            database.write_statement("insert into item (id) values ($2), ($1)", (4, 5))
        assert ids(database) == [1, 2, 3]
        assert database.write(lambda t: t.execute("select count from item where id = 1")) == [(7,)]

    def test_concurrent_statements_all_count_once(self, database: Database) -> None:
        """Beside works of several statements."""
        make_item(database, (1,))
        database.write_statement("update item set count = 0")

        def increment(_: int) -> None:
            for _ in range(25):
                database.write_statement("update item set count = count + 1 where id = 1")

        together(increment)
        assert database.read(lambda t: t.execute("select count from item")) == [(25 * WRITERS,)]

    def test_a_failing_work_does_not_harm_its_neighbours(self, database: Database) -> None:
        """Of many works at the same time, those that fail undo their own changes only."""
        make_item(database)

        def write(number: int) -> str:
            def work(transaction: Transaction) -> None:
                transaction.execute("insert into item (id) values ($1)", (number,))
                if number % 3 == 0:
                    raise LookupError(number)
                if number % 3 == 1:
                    transaction.execute("insert into item (id) values ($1)", (number,))

            try:
                database.write(work)
            except (LookupError, Conflict) as error:
                return type(error).__name__
            return "written"

        assert together(write) == [["LookupError", "Conflict", "written"][number % 3] for number in range(WRITERS)]
        assert ids(database) == [number for number in range(WRITERS) if number % 3 == 2]

    @pytest.mark.parametrize(
        "statement",
        [
            "insert into part (id, item) values (1, 1)",
            "insert into part (id, item) values (2, 99)",
            "insert into part (id, item, size) values (2, 1, -1)",
            "insert into part (id) values (2)",
        ],
        ids=["unique", "foreign key", "check", "not null"],
    )
    def test_a_violated_constraint_is_a_conflict(self, database: Database, statement: str) -> None:
        """Whatever a constraint forbids is a Conflict with the engine's own error as its cause."""
        make_item(database, (1,))
        references = "item bigint not null references item (id), size bigint check (size > 0)"
        database.write(lambda t: t.execute(f"create table part (id bigint primary key, {references})"))
        database.write(lambda t: t.execute("insert into part (id, item) values (1, 1)"))
        with pytest.raises(Conflict) as caught:
            database.write(lambda t: t.execute(statement))
        assert caught.value.__cause__ is not None
        assert database.read(lambda t: t.execute("select count(*) from part")) == [(1,)]

    @pytest.mark.parametrize(
        "statement", ["selekt 1", "select id from nowhere", "insert into item (nothing) values (1)"]
    )
    def test_a_statement_that_makes_no_sense_is_an_engine_error(self, database: Database, statement: str) -> None:
        """Syntax, tables and columns that are not there: EngineError, never the driver's own class."""
        make_item(database)
        for run in (database.read, database.write):
            with pytest.raises(EngineError) as caught:
                run(lambda t: t.execute(statement))
            assert caught.value.__cause__ is not None
        assert ids(database) == []

    def test_migrations_are_applied_in_order_and_once(self, database: Database) -> None:
        """The first call returns the steps that it applied, the second has nothing left to do."""
        assert database.migrate("parts", _STEPS) == list(_STEPS)
        assert database.migrate("parts", _STEPS) == []
        assert database.read(lambda t: t.execute("select id, name from item")) == [(1, "first")]

    def test_a_later_release_applies_its_new_steps_only(self, database: Database) -> None:
        """Steps that were applied before are left alone, even when their indentation changed since."""
        assert database.migrate("parts", _STEPS[:1]) == list(_STEPS[:1])
        spaced = Migration(1, "the table", ("  create table item (id bigint primary key)\n",))
        assert database.migrate("parts", (spaced, _STEPS[1])) == [_STEPS[1]]

    def test_a_failing_migration_leaves_nothing_behind(self, database: Database) -> None:
        """Not even the steps before it are kept, and a corrected release can start from where it was."""
        broken = Migration(2, "broken", ("insert into item (id) values (1)", "selekt 1"))
        with pytest.raises(EngineError):
            database.migrate("parts", (_STEPS[0], broken))
        with pytest.raises(EngineError):
            database.read(lambda t: t.execute("select id from item"))
        assert database.migrate("parts", _STEPS) == list(_STEPS)

    def test_tables_of_a_newer_release_are_refused(self, database: Database) -> None:
        """An older release does not touch what it does not know."""
        database.migrate("parts", _STEPS)
        with pytest.raises(EngineMismatch, match="newer release"):
            database.migrate("parts", _STEPS[:1])

    def test_an_edited_migration_is_refused(self, database: Database) -> None:
        """Tables that were made by other statements than the release has are not used."""
        database.migrate("parts", _STEPS[:1])
        edited = Migration(1, "the table", ("create table item (id bigint primary key, name text)",))
        with pytest.raises(EngineMismatch, match="migration 1"):
            database.migrate("parts", (edited, _STEPS[1]))

    def test_subsystems_are_migrated_side_by_side(self, database: Database) -> None:
        """Each has its own numbers; one that is up to date says nothing about another."""
        other = (Migration(1, "elsewhere", ("create table elsewhere (id bigint primary key)",)),)
        assert database.migrate("parts", _STEPS) == list(_STEPS)
        assert database.migrate("others", other) == list(other)
        assert database.migrate("parts", _STEPS) == []
        assert database.migrate("others", other) == []

    def test_processes_that_start_at_once_migrate_once(self, database: Database, reopen: Reopen) -> None:
        """Of several databases on the same place one applies the steps, and the others wait for it."""
        databases = [database, *(reopen() for _ in range(3))]
        applied = together(lambda number: databases[number % len(databases)].migrate("parts", _STEPS))
        assert sorted(applied, key=len) == [[]] * (WRITERS - 1) + [list(_STEPS)]
        for opened in databases:
            assert ids(opened) == [1]

    def test_what_was_written_outlives_the_database_object(self, database: Database, reopen: Reopen) -> None:
        """Closed and opened again, everything is still there."""
        database.migrate("parts", _STEPS)
        database.close()
        again = reopen()
        assert again.migrate("parts", _STEPS) == []
        assert ids(again) == [1]

    def test_close_finishes_what_was_accepted(self, database: Database, reopen: Reopen) -> None:
        """Closing waits for a write that is under way, and that one is still written."""
        make_item(database)
        running, finish = threading.Event(), threading.Event()

        def work(transaction: Transaction) -> None:
            running.set()
            assert finish.wait(STUCK)
            transaction.execute("insert into item (id) values (1)")

        with ThreadPoolExecutor() as threads:
            written = threads.submit(database.write, work)
            assert running.wait(STUCK)
            closed = threads.submit(database.close)
            with pytest.raises(TimeoutError):
                closed.result(0.05)
            finish.set()
            written.result(STUCK)
            closed.result(STUCK)
        assert ids(reopen()) == [1]

    def test_close_may_be_repeated(self, database: Database) -> None:
        """Also by leaving the `with` block of one that is closed already."""
        with database as entered:
            assert entered is database
            database.close()
        database.close()

    def test_a_closed_database_says_so(self, database: Database) -> None:
        """Whatever is asked of it is an EngineError."""
        database.close()
        for use in (
            lambda: database.read(lambda t: t.execute("select 1")),
            lambda: database.write(lambda t: t.execute("select 1")),
            lambda: database.migrate("parts", _STEPS),
            database.check,
        ):
            with pytest.raises(EngineError, match="closed"):
                use()

    def test_check_passes_on_a_healthy_database(self, database: Database) -> None:
        """Empty or in use, there is nothing to complain about."""
        database.check()
        database.migrate("parts", _STEPS)
        database.check()


def make_item(database: Database, numbers: Sequence[int] = ()) -> str:
    """Create the table `item`, with rows that have these ids."""
    body = {"sqlite": "blob", "postgres": "bytea"}[database.dialect]
    columns = f"id bigint primary key, name text, body {body}, count bigint, share double precision"

    def work(transaction: Transaction) -> str:
        transaction.execute(f"create table item ({columns})")
        transaction.execute_many("insert into item (id) values ($1)", [(number,) for number in numbers])
        return "made"

    return database.write(work)


def ids(database: Database) -> list[int]:
    """The ids in `item`, in order."""
    return [row[0] for row in database.read(lambda t: t.execute("select id from item order by id"))]


def only(rows: list[Row]) -> Row:
    """The one row that was expected."""
    (row,) = rows
    return row


def elsewhere(call: Callable[[], Item]) -> Item:
    """What `call` returns in another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result(STUCK)


def together(call: Callable[[int], Item]) -> list[Item]:
    """What `call` returns for each of `WRITERS` numbers, all at the same time."""
    start = threading.Barrier(WRITERS)

    def begin(number: int) -> Item:
        start.wait(STUCK)
        return call(number)

    with ThreadPoolExecutor(WRITERS) as threads:
        return list(threads.map(begin, range(WRITERS), timeout=STUCK))
