"""The one writer of a SQLite file, with group commit.

A durable commit costs one sync of the disk whether it holds one row or a thousand, so works that wait together are
committed together. Each still stands alone: the error of one is seen by its own caller only.

The writer is a role, not a thread. Whoever queues a work while nobody writes becomes the writer and commits all that is
queued; it then wakes those whose work is done and hands the role to the first that came meanwhile. A lone caller so
pays for no switch between threads, which would cost it a third of its speed (benchmarks/engines.py).
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

from holdfast._errors import EngineError, OutcomeUnknown
from holdfast.engines.database import Result, Transaction
from holdfast.engines.sqlite.connection import connect, run
from holdfast.engines.sqlite.faults import translate, translate_commit

GROUP_LIMIT = 1024
"""Most works in one commit: past this the sync is paid for many times over, and the first would only wait longer."""

Work: TypeAlias = Callable[[Transaction], Any]


class _Item:
    """One queued work, how it ended, and how its caller is woken: to find it done, or to become the writer."""

    __slots__ = ("_awake", "done", "error", "future", "leads", "value", "work")

    def __init__(self, work: Work, future: "Future[Any] | None" = None) -> None:
        self.work = work
        self.future = future
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        self._awake = threading.Lock()
        self._awake.acquire()

    def wait(self) -> None:
        self._awake.acquire()

    def wake(self) -> None:
        self._awake.release()

    def begin(self) -> bool:
        """Whether the work is still wanted."""
        return self.future is None or self.future.set_running_or_notify_cancel()

    def finish(self) -> None:
        self.done = True
        if self.future is None:
            self.wake()
        elif self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class _WorkFailed(Exception):
    """A work of the group raised, so nothing of the group was kept."""


class Writer:
    """Commits works in the order in which they were queued. Thread-safe."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._connection: apsw.Connection | None = connect(path, patience)
        self._gate = threading.Lock()  # guards the queue and who writes; never held while writing
        self._idle = threading.Condition(self._gate)
        self._waiting: deque[_Item] = deque()
        self._writing = False
        self._open = True
        self._holder: int | None = None
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Commit `work`, alone or with others, and return its result when it is durable."""
        if self._holder == threading.get_ident():
            raise EngineError(
                f"{self._path}: a write inside a write would wait for itself; use the transaction at hand"
            )
        item = _Item(work)
        try:
            self._queue(item)
            if not item.leads:
                item.wait()
            if item.leads:
                self._commit_next()
        finally:
            self._leave(item)
        if item.error is not None:
            raise item.error
        result: Result = item.value
        return result

    def submit(self, work: Callable[[Transaction], Result]) -> "Future[Result]":
        """Queue `work`; the future is done when it is durable, or has failed. It can be cancelled until it is begun."""
        future: Future[Result] = Future()
        item = _Item(work, future)
        self._queue(item)
        if item.leads:
            self._bell.put(True)
        return future

    def close(self) -> None:
        """Commit what was queued before, then close the file. May be repeated."""
        with self._gate:
            self._open = False
            while self._writing:
                self._idle.wait()
            thread, self._thread = self._thread, None
            connection, self._connection = self._connection, None
        if thread is not None:
            self._bell.put(False)
            thread.join()
        if connection is not None:
            connection.close()

    def _queue(self, item: _Item) -> None:
        """Queue the work. When nobody writes, its caller leads."""
        with self._gate:
            if not self._open:
                raise EngineError(f"{self._path} is closed: open it again before writing")
            if item.future is not None and self._thread is None:
                # A daemon: a program that forgot to close may end, and loses nothing that was acknowledged.
                self._thread = threading.Thread(target=self._serve, name=f"holdfast-{self._path.name}", daemon=True)
                self._thread.start()
            self._waiting.append(item)
            item.leads = not self._writing
            self._writing = True

    def _leave(self, item: _Item) -> None:
        """Let the next one write; also when the caller was interrupted (Ctrl-C) before its work was begun."""
        if not item.done:
            with self._gate, suppress(ValueError):
                self._waiting.remove(item)
        if item.leads:
            self._hand_on()

    def _hand_on(self) -> None:
        with self._gate:
            if not self._waiting:
                self._writing = False
                self._idle.notify_all()
                return
            successor = self._waiting[0]
            successor.leads = True
        if successor.future is None:
            successor.wake()
        else:
            self._bell.put(True)

    def _serve(self) -> None:
        """Play the writer's role for those who do not wait."""
        while self._bell.get():
            try:
                self._commit_next()
            finally:
                self._hand_on()

    def _commit_next(self) -> None:
        """Commit what is queued, up to the limit, and tell everyone how their work ended."""
        self._holder = threading.get_ident()
        group: list[_Item] = []
        while self._waiting and len(group) < GROUP_LIMIT:
            item = self._waiting.popleft()
            if item.begin():
                group.append(item)
        try:
            if group:
                self._commit(group)
        except Exception as error:  # noqa: BLE001 - nobody's work was kept, and everybody must hear why
            for item in group:
                item.error = error
        except BaseException:  # the thread that plays the writer was interrupted (Ctrl-C)
            for item in group:
                item.error = OutcomeUnknown(f"{self._path}: the commit was interrupted: look before repeating it")
            raise
        finally:
            self._holder = None
            for item in group:
                item.finish()

    def _commit(self, group: list[_Item]) -> None:
        try:
            self._transact(group, _run_together)
        except _WorkFailed as failed:
            if len(group) == 1:
                group[0].error = failed.__cause__
            else:
                self._transact(group, _run_apart)

    def _transact(self, group: list[_Item], run_all: Callable[[apsw.Connection, Path, list[_Item]], None]) -> None:
        connection = self._begin()
        try:
            run_all(connection, self._path, group)
            connection.execute("commit")
        except apsw.Error as error:
            self._abandon(connection)
            raise translate_commit(error, self._path) from error
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def _abandon(self, connection: apsw.Connection) -> None:
        """Open anew before the next write: after a failed sync, what this connection remembers cannot be trusted."""
        self._connection = None
        with suppress(apsw.Error):  # closing tries to write, too
            connection.close(True)

    def _begin(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._patience)
        try:
            self._connection.execute("begin immediate")
        except apsw.Error as error:
            raise translate(error, self._path, self._patience) from error
        return self._connection


def _run_together(connection: apsw.Connection, path: Path, group: list[_Item]) -> None:
    """The quick way, for the usual case that nothing fails: no savepoints."""
    for item in group:
        try:
            item.value = run(connection, path, item.work)
        except Exception as error:
            raise _WorkFailed from error
        _require_transaction(connection, path)


def _run_apart(connection: apsw.Connection, path: Path, group: list[_Item]) -> None:
    """The careful way, after a failure: each work in a savepoint of its own, still one commit."""
    for item in group:
        item.value = None
        connection.execute("savepoint work")
        try:
            item.value = run(connection, path, item.work)
        except Exception as error:
            if not connection.in_transaction:
                raise  # the engine gave up the whole transaction (disk full): nobody's work is left
            connection.execute("rollback to work")
            item.error = error
        _require_transaction(connection, path)
        connection.execute("release work")


def _require_transaction(connection: apsw.Connection, path: Path) -> None:
    """Guard against a work that ended the transaction: the rest would commit one by one."""
    if not connection.in_transaction:
        raise EngineError(f"{path}: a work ended its own transaction: leave that to the engine; nothing was written")
