"""Run a function once in one transaction, and find out how the transaction ended."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import psycopg
from psycopg import IsolationLevel, pq

from holdfast._errors import EngineError, HoldfastError, OutcomeUnknown
from holdfast.engines.database import Result, Row, Transaction, Value, require_portable
from holdfast.engines.postgres.connection import PostgresConnection, is_disconnected, is_stuck
from holdfast.engines.postgres.errors import Diagnosis, RetryAction, diagnose


class RetryableFailure(Exception):
    """A run that wrote nothing and can be repeated, after the action in its diagnosis."""

    def __init__(self, diagnosis: Diagnosis, *, is_connected: bool = True) -> None:
        super().__init__(diagnosis.reason)
        self.diagnosis = diagnosis
        self.is_connected = is_connected
        """False if no connection could be opened."""


class PostgresTransaction:
    """The statements of one transaction; see `holdfast.engines.Transaction`."""

    __slots__ = ("_connection", "_location", "_writing", "diagnosis", "has_begun", "is_over")

    def __init__(self, connection: PostgresConnection, location: str, *, writing: bool) -> None:
        self._connection = connection
        self._location = location
        self._writing = writing
        self.diagnosis: Diagnosis | None = None
        """The error of the first failed statement. PostgreSQL refuses all later statements."""
        self.has_begun = False
        self.is_over = False

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        require_portable(sql)
        with self._statement():
            cursor = self._connection.execute(sql.encode(), parameters or None)
            return [] if cursor.description is None else cursor.fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        require_portable(sql)
        with self._statement(), self._connection.cursor() as cursor:
            cursor.executemany(sql.encode(), rows)

    @contextmanager
    def _statement(self) -> Iterator[None]:
        if self.is_over:
            raise EngineError(f"a transaction on {self._location} was used after its end: begin another one")
        if self.diagnosis is not None:
            raise EngineError(
                f"an earlier statement of this transaction on {self._location} failed, so nothing of it will be "
                f"written ({self.diagnosis.reason}): let that error end the transaction"
            ) from self.diagnosis.error
        self.has_begun = True
        try:
            yield
        except psycopg.Error as error:
            connection = self._connection
            is_lost = connection.closed or is_stuck(connection)
            self.diagnosis = diagnose(error, self._location, writing=self._writing, connection_lost=is_lost)
            raise self.diagnosis.error from error


def run_transaction(
    connection: PostgresConnection, location: str, work: Callable[[Transaction], Result], *, writing: bool
) -> Result:
    """Run `work` and commit it. Raise the error of `work`, RetryableFailure, or OutcomeUnknown.

    Reads see one snapshot (REPEATABLE READ). Writes are READ COMMITTED: each statement sees everything that was
    committed before it, so `n = n + 1` counts exactly and `for update skip locked` finds the next free row. With
    REPEATABLE READ, the second of two conflicting writes would fail and run again. A write must therefore lock the
    rows that it depends on, or name them in its `where`.
    """
    connection.isolation_level = IsolationLevel.READ_COMMITTED if writing else IsolationLevel.REPEATABLE_READ
    connection.read_only = None if writing else True  # not False, which a standby refuses at the beginning
    transaction = PostgresTransaction(connection, location, writing=writing)
    try:
        result = work(transaction)
    except BaseException as error:
        diagnosis = transaction.diagnosis
        _roll_back(connection, diagnosis)
        if diagnosis is not None and diagnosis.action is not RetryAction.NONE and isinstance(error, Exception):
            raise RetryableFailure(diagnosis) from error  # even if `work` raised another error
        raise
    finally:
        transaction.is_over = True
    if transaction.diagnosis is not None:  # `work` caught the error of a statement
        _roll_back(connection, transaction.diagnosis)
        _raise_diagnosis(transaction.diagnosis)
    if not writing:
        _roll_back(connection)
    elif transaction.has_begun:
        _commit(connection, location)
    return result


def run_statement(
    connection: PostgresConnection, location: str, sql: str, parameters: Sequence[Value], *, is_idempotent: bool
) -> list[Row]:
    """Run one statement as a transaction. Raise its error, RetryableFailure, or OutcomeUnknown."""
    _require_connected(connection, location)
    transaction = PostgresTransaction(connection, location, writing=True)
    connection.autocommit = True
    try:
        return transaction.execute(sql, parameters)
    except HoldfastError as error:
        diagnosis = transaction.diagnosis
        if diagnosis is None or diagnosis.action is RetryAction.NONE:
            raise
        if diagnosis.action is RetryAction.RECONNECT:
            connection.close()
        if is_idempotent or diagnosis.action is RetryAction.RERUN:
            raise RetryableFailure(diagnosis) from error
        raise _build_outcome_unknown(location, diagnosis) from error
    except BaseException:
        connection.close()  # interrupted while waiting for the reply
        raise
    finally:
        if not connection.closed:
            connection.autocommit = False


def _require_connected(connection: PostgresConnection, location: str) -> None:
    """Raise RetryableFailure if the connection is lost: before a commit is sent, nothing can have been written."""
    if is_disconnected(connection):
        lost = psycopg.OperationalError("the server closed the connection before the commit")
        raise RetryableFailure(diagnose(lost, location, connection_lost=True))


def _build_outcome_unknown(location: str, diagnosis: Diagnosis) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the connection to PostgreSQL at {location} was lost while a transaction was being committed "
        f"({diagnosis.reason}): the data may or may not have been written; check before you repeat it"
    )


def _commit(connection: PostgresConnection, location: str) -> None:
    _require_connected(connection, location)
    if connection.pgconn.transaction_status != pq.TransactionStatus.INTRANS:
        raise EngineError(f"a function ended its own transaction on PostgreSQL at {location}: leave that to the engine")
    try:
        connection.commit()
    except psycopg.Error as error:
        diagnosis = diagnose(error, location, writing=True, connection_lost=connection.closed)
        if diagnosis.action is RetryAction.RECONNECT:
            raise _build_outcome_unknown(location, diagnosis) from error
        _roll_back(connection, diagnosis)
        _raise_diagnosis(diagnosis, error)
    except BaseException:
        connection.close()  # interrupted while waiting for the reply
        raise


def _raise_diagnosis(diagnosis: Diagnosis, cause: psycopg.Error | None = None) -> NoReturn:
    if diagnosis.action is RetryAction.NONE:
        raise diagnosis.error from (cause or diagnosis.error.__cause__)
    raise RetryableFailure(diagnosis)


def _roll_back(connection: PostgresConnection, diagnosis: Diagnosis | None = None) -> None:
    """Roll back. Close the connection if that fails or the connection is lost: then the server rolls back."""
    if diagnosis is not None and diagnosis.action is RetryAction.RECONNECT:
        connection.close()  # without a request, whose reply might never come
        return
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()
