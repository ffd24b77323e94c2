"""One run of a work in one transaction, and how it ended."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import psycopg
from psycopg import IsolationLevel, pq

from holdfast._errors import EngineError, HoldfastError, OutcomeUnknown
from holdfast.engines.database import Result, Row, Transaction, Value, require_portable
from holdfast.engines.postgres.connection import PostgresConnection, has_ended
from holdfast.engines.postgres.faults import Fault, Remedy, diagnose


class Interrupted(Exception):
    """A run that left no trace and can be repeated, after the remedy that its fault asks for."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class PostgresTransaction:
    """The statements of one transaction; see `holdfast.engines.Transaction`."""

    __slots__ = ("_connection", "_place", "_writing", "begun", "fault", "over")

    def __init__(self, connection: PostgresConnection, place: str, *, writing: bool) -> None:
        self._connection = connection
        self._place = place
        self._writing = writing
        self.fault: Fault | None = None
        """What the first statement that failed died of. PostgreSQL then refuses all others."""
        self.begun = False
        self.over = False

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
        if self.over:
            raise EngineError(f"a transaction on {self._place} was used after its work had returned: run another")
        if self.fault is not None:
            raise EngineError(
                f"an earlier statement of this transaction on {self._place} failed, so nothing of it will be "
                f"written ({self.fault.reason}): let its error end the work"
            ) from self.fault.error
        self.begun = True
        try:
            yield
        except psycopg.Error as error:
            self.fault = diagnose(error, self._place, writing=self._writing, broken=self._connection.closed)
            raise self.fault.error from error


def run_once(
    connection: PostgresConnection, place: str, work: Callable[[Transaction], Result], *, writing: bool
) -> Result:
    """Run `work` and commit it. Raises what `work` raises, Interrupted, or OutcomeUnknown.

    Reads see one snapshot (REPEATABLE READ). Writes are READ COMMITTED: each statement sees what was committed
    before it, so `n = n + 1` counts exactly and `for update skip locked` finds the next free row, where REPEATABLE
    READ would fail whoever came second and have the whole work run again. What a write decides upon it must
    therefore lock, or name in its `where`.
    """
    connection.isolation_level = IsolationLevel.READ_COMMITTED if writing else IsolationLevel.REPEATABLE_READ
    connection.read_only = None if writing else True  # None: a standby refuses to begin a transaction that may write
    transaction = PostgresTransaction(connection, place, writing=writing)
    try:
        result = work(transaction)
    except BaseException as error:
        fault = transaction.fault
        _roll_back(connection, fault)
        if fault is not None and fault.remedy is not Remedy.NONE and isinstance(error, Exception):
            raise Interrupted(fault) from error  # whatever the work made of it
        raise
    finally:
        transaction.over = True
    if transaction.fault is not None:  # the work hid it
        _roll_back(connection, transaction.fault)
        _raise(transaction.fault)
    if not writing:
        _roll_back(connection)
    elif transaction.begun:
        _commit(connection, place)
    return result


def run_alone(
    connection: PostgresConnection, place: str, sql: str, parameters: Sequence[Value], *, can_repeat: bool
) -> list[Row]:
    """Run one statement that is a transaction of its own. Raises its error, Interrupted, or OutcomeUnknown."""
    _require_connected(connection, place)
    transaction = PostgresTransaction(connection, place, writing=True)
    connection.autocommit = True
    try:
        return transaction.execute(sql, parameters)
    except HoldfastError as error:
        fault = transaction.fault
        if fault is None or fault.remedy is Remedy.NONE:
            raise
        if fault.remedy is Remedy.RECONNECT:
            connection.close()
        if can_repeat or fault.remedy is Remedy.RERUN:
            raise Interrupted(fault) from error
        raise _unknown(place, fault) from error
    except BaseException:
        connection.close()  # interrupted while waiting for the reply
        raise
    finally:
        if not connection.closed:
            connection.autocommit = False


def _require_connected(connection: PostgresConnection, place: str) -> None:
    """Nothing was sent yet, so this is known to be undone. Once a commit is on its way it would not be."""
    if has_ended(connection):
        lost = psycopg.OperationalError("the server closed the connection before the commit")
        raise Interrupted(diagnose(lost, place, broken=True))


def _unknown(place: str, fault: Fault) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the connection to PostgreSQL at {place} was lost while a transaction was being committed "
        f"({fault.reason}): it may or may not have been written; look before repeating it"
    )


def _commit(connection: PostgresConnection, place: str) -> None:
    _require_connected(connection, place)
    if connection.pgconn.transaction_status != pq.TransactionStatus.INTRANS:
        raise EngineError(f"a work on PostgreSQL at {place} ended its own transaction: leave that to the engine")
    try:
        connection.commit()
    except psycopg.Error as error:
        fault = diagnose(error, place, writing=True, broken=connection.closed)
        if fault.remedy is Remedy.RECONNECT:
            raise _unknown(place, fault) from error
        _roll_back(connection, fault)
        _raise(fault, error)
    except BaseException:
        connection.close()  # interrupted while waiting for the reply
        raise


def _raise(fault: Fault, cause: psycopg.Error | None = None) -> NoReturn:
    if fault.remedy is Remedy.NONE:
        raise fault.error from (cause or fault.error.__cause__)
    raise Interrupted(fault)


def _roll_back(connection: PostgresConnection, fault: Fault | None = None) -> None:
    """Undo everything. A connection that cannot do even that, or is of no more use, is closed: the server undoes it."""
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()
    if fault is not None and fault.remedy is Remedy.RECONNECT:
        connection.close()
