import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import EngineMismatch, InvalidValue
from holdfast.engines import Migration, Row, Value
from holdfast.engines.migrations import apply_migrations, find_pending

steps = st.lists(st.tuples(st.text(), st.lists(st.text(), max_size=3).map(tuple)), max_size=8).map(
    lambda rows: [Migration(number, name, statements) for number, (name, statements) in enumerate(rows, start=1)]
)


def made_by(known: list[Migration]) -> dict[int, str]:
    return {step.number: step.fingerprint for step in known}


class Tables:
    """A transaction on tables in memory, by way of the standard library: as little of an engine as will do."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        named = {str(number): value for number, value in enumerate(parameters, start=1)}
        return self.connection.execute(sql, named).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        for row in rows:
            self.execute(sql, row)


@pytest.fixture
def tables() -> Iterator[Tables]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Tables(connection)


def two() -> list[Migration]:
    return [Migration(1, "messages", ("CREATE TABLE a (b)",)), Migration(2, "leases", ("CREATE TABLE c (d)",))]


@given(steps, st.data())
def test_whatever_was_applied_the_rest_is_pending_in_order(known: list[Migration], data: st.DataObject) -> None:
    applied = data.draw(st.integers(0, len(known)))
    assert find_pending("queue", known, made_by(known[:applied])) == known[applied:]


@given(steps)
def test_a_new_database_gets_every_step_and_then_none(known: list[Migration]) -> None:
    first = find_pending("queue", known, {})
    assert first == known
    assert find_pending("queue", known, made_by(first)) == []


@given(steps.filter(bool), st.integers(1, 100))
def test_tables_made_by_a_newer_release_are_left_alone(known: list[Migration], ahead: int) -> None:
    newest = len(known) + ahead
    applied = made_by(known) | dict.fromkeys(range(len(known) + 1, newest + 1), "unknown")
    with pytest.raises(EngineMismatch, match=rf"queue are at version {newest}, .* up to {len(known)}: .*upgrade"):
        find_pending("queue", known, applied)


@given(steps.filter(bool), st.data())
def test_tables_made_by_a_step_that_was_edited_are_left_alone(known: list[Migration], data: st.DataObject) -> None:
    edited = data.draw(st.sampled_from(known))
    applied = made_by(known) | {edited.number: "0123456789abcdef"}
    with pytest.raises(EngineMismatch, match=rf"(?s)^migration {edited.number} \(.*must never be edited"):
        find_pending("queue", known, applied)


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=6))
def test_steps_are_numbered_from_one_without_gaps(numbers: list[int]) -> None:
    known = [Migration(number, "step", ()) for number in numbers]
    if numbers == list(range(1, len(numbers) + 1)):
        assert find_pending("queue", known, {}) == known
    else:
        with pytest.raises(InvalidValue, match="migrations of queue must be numbered 1, 2, 3"):
            find_pending("queue", known, {})


def test_a_subsystem_without_steps_has_nothing_pending() -> None:
    assert find_pending("queue", [], {}) == []


@pytest.mark.parametrize("applied", [{2: ""}, {0: "", 1: ""}, {1: "", 2: "", 0: ""}])
def test_a_history_with_a_hole_is_refused(applied: dict[int, str]) -> None:
    fingerprints = {number: made_by(two()).get(number, "") for number in applied}
    with pytest.raises(EngineMismatch, match="were applied, with gaps between"):
        find_pending("queue", two(), fingerprints)


def test_pending_changes_neither_of_its_arguments() -> None:
    known, applied = two(), made_by(two()[:1])
    find_pending("queue", known, applied)
    assert (known, applied) == (two(), made_by(two()[:1]))


def test_indenting_a_step_does_not_count_as_an_edit() -> None:
    laid_out = Migration(1, "messages", ("\n\t  CREATE TABLE a (b)\n\n",))
    assert laid_out.fingerprint == two()[0].fingerprint


def test_renaming_a_step_does_not_count_as_an_edit() -> None:
    assert Migration(1, "renamed", two()[0].statements).fingerprint == two()[0].fingerprint


@pytest.mark.parametrize(
    "statements",
    [(), ("CREATE TABLE a (x)",), ("CREATE TABLE a (b)", "CREATE INDEX i ON a (b)"), ("CREATE TABLE", "a (b)")],
)
def test_changing_adding_removing_or_splitting_a_statement_is_an_edit(statements: tuple[str, ...]) -> None:
    assert Migration(1, "messages", statements).fingerprint != two()[0].fingerprint


def test_a_fingerprint_is_the_same_in_every_release() -> None:
    assert two()[0].fingerprint == "0db8786e41f9645b"


def test_applying_makes_the_tables_and_writes_down_what_made_them(tables: Tables) -> None:
    assert apply_migrations(tables, "queue", two(), now=7.0) == two()
    assert tables.execute("select b, d from a, c") == []
    written = "select subsystem, number, name, fingerprint, applied_at from holdfast_migrations order by number"
    assert tables.execute(written) == [("queue", step.number, step.name, step.fingerprint, 7.0) for step in two()]


def test_applying_again_does_nothing(tables: Tables) -> None:
    apply_migrations(tables, "queue", two(), now=7.0)
    assert apply_migrations(tables, "queue", two(), now=8.0) == []
    assert tables.execute("select distinct applied_at from holdfast_migrations") == [(7.0,)]


def test_applying_goes_on_where_an_older_release_stopped(tables: Tables) -> None:
    apply_migrations(tables, "queue", two()[:1], now=7.0)
    assert apply_migrations(tables, "queue", two(), now=8.0) == two()[1:]


def test_subsystems_in_one_database_are_numbered_apart(tables: Tables) -> None:
    apply_migrations(tables, "queue", two(), now=7.0)
    status = [Migration(1, "statuses", ("CREATE TABLE e (f)",))]
    assert apply_migrations(tables, "status", status, now=8.0) == status
    assert apply_migrations(tables, "queue", two(), now=9.0) == []


def test_a_mismatch_is_found_before_anything_is_applied(tables: Tables) -> None:
    apply_migrations(tables, "queue", two()[:1], now=7.0)
    edited = [Migration(1, "messages", ("CREATE TABLE other (b)",)), two()[1]]
    with pytest.raises(EngineMismatch):
        apply_migrations(tables, "queue", edited, now=8.0)
    assert tables.execute("select name from sqlite_master where name in ('other', 'c')") == []
