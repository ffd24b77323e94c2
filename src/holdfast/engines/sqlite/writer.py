"""The single writer of a SQLite file, with group commit.

A durable commit costs one sync of the disk for one row or a thousand, so queued transactions are committed together.
They are still independent: an error of one reaches only its own caller.

The leader is a role, not a thread. A caller that queues a transaction while no thread writes becomes the leader: it
commits all that are queued, then passes the role to the next caller. A single caller therefore needs no switch between
threads, which would cost a third of its speed (benchmarks/engines.py). The main thread never leads, because a signal
can raise an exception between any two of its steps; the writer's own thread leads for it, and for `submit`. So `work`
may run in its caller's thread, another caller's, or the writer's: it must not take a lock that a caller may hold.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import apsw

from holdfast._errors import Conflict, EngineError, HoldfastError
from holdfast.engines.database import Result, Transaction
from holdfast.engines.sqlite.connection import connect, run_work
from holdfast.engines.sqlite.errors import translate, translate_commit

MAX_GROUP_SIZE = 1024
"""Maximum transactions in one commit. Above this, sharing the sync gains little, and the first one waits longer."""

Work: TypeAlias = Callable[[Transaction], Any]

_WAKE, _STOP = True, False  # signals to the writer's thread


class _QueuedWork:
    """One queued transaction and its result. Its caller is woken when it has ended, or to become the leader."""

    __slots__ = ("_woken", "can_lead", "error", "future", "is_leader", "value", "work")

    def __init__(self, work: Work, future: "Future[Any] | None" = None, *, can_lead: bool = False) -> None:
        self.work = work
        self.future = future
        self.can_lead = can_lead
        self.is_leader = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def wait(self) -> None:
        self._woken.acquire()

    def wake(self) -> None:
        self._woken.release()

    def begin(self) -> bool:
        """Return False if the transaction was cancelled."""
        return self.future is None or self.future.set_running_or_notify_cancel()

    def finish(self) -> None:
        if self.future is None:
            self.wake()
        elif self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class _WorkFailed(Exception):
    """A transaction of the group raised, so nothing of the group was written."""


class Writer:
    """A writer that commits transactions in the order in which they were queued. Thread-safe."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._connection: apsw.Connection | None = connect(path, timeout)
        self._lock = threading.Lock()  # protects the queue and the leader role; never held while writing
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[_QueuedWork] = deque()
        self._is_writing = False
        self._is_open = True
        self._leader: int | None = None
        self._is_running_work = False
        self._signals: SimpleQueue[bool] = SimpleQueue()
        # A daemon thread: a program that forgot to close can exit, and loses nothing that was acknowledged.
        self._thread = threading.Thread(target=self._serve, name=f"holdfast-{path.name}", daemon=True)
        self._thread.start()

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Commit `work`, alone or in a group, and return its result when it is durable."""
        if self._leader == threading.get_ident():
            raise self._build_deadlock_error()
        item = _QueuedWork(work, can_lead=threading.current_thread() is not threading.main_thread())
        # Do not check `item.is_leader` here: a leader that passes the role on sets it before the wake.
        if not self._queue(item):
            item.wait()
        if item.is_leader:
            self._lead()
        if item.error is not None:
            raise item.error
        result: Result = item.value
        return result

    def submit(self, work: Callable[[Transaction], Result]) -> "Future[Result]":
        """Queue `work`. The future is done when it is durable or has failed, and can be cancelled until it starts."""
        if self._is_running_work and self._leader == threading.get_ident():
            raise self._build_deadlock_error()
        future: Future[Result] = Future()
        self._queue(_QueuedWork(work, future))
        return future

    def close(self) -> None:
        """Commit the queued transactions, then close the file. May be repeated."""
        if self._leader == threading.get_ident():
            raise self._build_deadlock_error()
        with self._lock:
            was_open, self._is_open = self._is_open, False
            self._signals.put(_WAKE)
            while self._is_writing or self._waiting:
                self._idle.wait()
            connection, self._connection = self._connection, None
        if was_open:
            self._signals.put(_STOP)
            self._thread.join()
        if connection is not None:
            with suppress(apsw.Error):  # acknowledged data is in the log, and is read when the file is opened again
                connection.close(True)

    def _queue(self, item: _QueuedWork) -> bool:
        """Queue a transaction. Return True if its caller is now the leader; otherwise the caller will be woken.

        The main thread may be interrupted anywhere in here. It never becomes the leader, so it cannot leave the role
        taken. If it is interrupted before the signal, the next leader commits the transaction.
        """
        with self._lock:
            if not self._is_open:
                raise EngineError(f"{self._path} is closed: open it again before writing")
            self._waiting.append(item)
            is_leader = item.can_lead and not self._is_writing
            if is_leader:
                self._is_writing = item.is_leader = True
        if not item.can_lead:
            self._signals.put(_WAKE)
        return is_leader

    def _lead(self) -> None:
        """Commit one group and pass the role on. Never runs in the main thread, so no signal interrupts it."""
        self._leader = threading.get_ident()
        try:
            for item in self._commit_next():
                item.finish()
        finally:
            self._leader = None
            self._pass_lead_on()

    def _pass_lead_on(self) -> None:
        with self._lock:
            successor = self._waiting[0] if self._waiting else None
            if successor is not None and successor.can_lead:
                successor.is_leader = True
            else:
                self._is_writing = False
                self._idle.notify_all()
        if successor is None:
            return
        if successor.can_lead:
            successor.wake()
        else:
            self._signals.put(_WAKE)

    def _serve(self) -> None:
        """Lead for callers that cannot: those of `submit`, and the main thread."""
        while self._signals.get() is _WAKE:
            with self._lock:
                if self._is_writing or not self._waiting:
                    continue
                self._is_writing = True
            self._lead()

    def _commit_next(self) -> list[_QueuedWork]:
        """Commit the queued transactions, up to the limit. Return those whose callers can be woken."""
        group: list[_QueuedWork] = []
        while self._waiting and len(group) < MAX_GROUP_SIZE:
            item = self._waiting.popleft()
            if item.begin():
                group.append(item)
        self._is_running_work = True
        try:
            if group:
                self._commit(group)
        except Exception as error:  # noqa: BLE001 - nothing was written, and every caller must get the reason
            for item in group:
                item.error = _copy_error(error)
        finally:
            self._is_running_work = False
        return group

    def _commit(self, group: list[_QueuedWork]) -> None:
        try:
            self._transact(group, _run_without_savepoints)
        except _WorkFailed as failed:
            if len(group) == 1:
                group[0].error = failed.__cause__
            else:
                self._commit_with_savepoints(group)
        except Conflict:
            # If a constraint is checked at the commit, the error does not say which transaction violated it.
            if len(group) == 1:
                raise
            for item in group:
                self._commit_single(item)

    def _commit_with_savepoints(self, group: list[_QueuedWork]) -> None:
        try:
            self._transact(group, _run_with_savepoints)
        except Conflict:
            for item in group:
                item.error = None
                self._commit_single(item)

    def _commit_single(self, item: _QueuedWork) -> None:
        try:
            self._transact([item], _run_without_savepoints)
        except _WorkFailed as failed:
            item.error = failed.__cause__
        except (EngineError, Conflict) as error:
            item.error = error

    def _transact(
        self, group: list[_QueuedWork], run_all: Callable[[apsw.Connection, Path, list[_QueuedWork]], None]
    ) -> None:
        connection = self._connection = self._connection or connect(self._path, self._timeout)
        try:
            connection.execute("begin immediate")
        except apsw.Error as error:
            raise translate(error, self._path, self._timeout) from error
        try:
            run_all(connection, self._path, group)
            connection.execute("commit")
        except apsw.ConstraintError as error:
            self._roll_back(connection)
            raise translate(error, self._path) from error
        except apsw.Error as error:
            self._abandon(connection)
            raise translate_commit(error, self._path) from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except apsw.Error:
            self._abandon(connection)

    def _abandon(self, connection: apsw.Connection) -> None:
        """Drop the connection, so that the next write opens a new one: after a failed sync, its cache is unreliable."""
        self._connection = None
        with suppress(apsw.Error):  # closing also tries to write
            connection.close(True)

    def _build_deadlock_error(self) -> EngineError:
        return EngineError(f"{self._path}: a write inside a write would wait for itself; use the open transaction")


def _run_without_savepoints(connection: apsw.Connection, path: Path, group: list[_QueuedWork]) -> None:
    """Run all transactions without savepoints: fast, for the usual case that none fails."""
    for item in group:
        try:
            item.value = run_work(connection, path, item.work)
        except BaseException as error:
            raise _WorkFailed from error


def _run_with_savepoints(connection: apsw.Connection, path: Path, group: list[_QueuedWork]) -> None:
    """Run each transaction in its own savepoint, after a failure. There is still one commit."""
    for item in group:
        item.value = None
        connection.execute("savepoint work")
        try:
            item.value = run_work(connection, path, item.work)
        except BaseException as error:
            if not connection.in_transaction:
                raise  # SQLite rolled back the whole group (disk full)
            connection.execute("rollback to work")
            item.error = error
        connection.execute("release work")


def _copy_error(error: Exception) -> Exception:
    """Return a copy of `error` for another caller: threads that raise the same object would mix their tracebacks."""
    if not isinstance(error, HoldfastError):
        return error
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
