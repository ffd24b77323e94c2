"""A SQLite file as a Database: one writer, concurrent reads on snapshots, and online backups."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

import apsw

from holdfast._clock import Clock, SystemClock
from holdfast._errors import Conflict, DatabaseCorrupt, EngineError
from holdfast.engines.database import Result, Row, Transaction, Value
from holdfast.engines.migrations import Migration, apply_migrations
from holdfast.engines.sqlite.connection import ChangeCounter, checkpoint, connect, identify, require_log, run_work
from holdfast.engines.sqlite.errors import translate
from holdfast.engines.sqlite.writer import Writer

IDLE_READERS = 8
"""Maximum number of idle connections for reads. More are opened as needed, and closed after use."""


class SqliteDatabase:
    """One SQLite file. Safe to use from any number of threads, and from several processes on one machine.

    `timeout` is the maximum time in seconds to wait for another process's write lock before raising DatabaseLocked.
    `marker` is a file that `migrate` creates when the tables exist. From then on, a database without tables has lost
    them, and `migrate` raises DatabaseCorrupt instead of creating new ones.
    """

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = 5.0,
        clock: Clock | None = None,
        marker: Path | None = None,
    ) -> None:
        self.path = Path(path)
        self._marker = marker
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._process = os.getpid()
        self._idle: deque[apsw.Connection] = deque()
        self._is_open = True
        require_log(self.path)
        self._writer = Writer(self.path, timeout)
        self._file = identify(self.path)

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        self._require_usable()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self.path, self._timeout, is_reader=True)
        try:
            connection.execute("begin")
            return run_work(connection, self.path, work)
        finally:
            self._return_reader(connection)

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        self._require_usable()
        return self._writer.write(work)

    def write_statement(self, sql: str, parameters: Sequence[Value] = (), *, is_idempotent: bool = False) -> list[Row]:  # noqa: ARG002
        return self.write(lambda transaction: transaction.execute(sql, parameters))

    def submit(self, work: Callable[[Transaction], Result]) -> "Future[Result]":
        """Queue `work` like `write`, but do not wait: the future is done when the transaction is durable.

        Queued transactions share one sync: one thread with many in flight is nearly as fast as one large transaction.
        """
        self._require_usable()
        return self._writer.submit(work)

    def change_counter(self) -> ChangeCounter:
        """Return a counter that shows cheaply whether any process has committed."""
        return ChangeCounter(self.path)

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        now = self._clock.wall()

        def apply(transaction: Transaction) -> list[Migration]:
            # Inside the transaction: the process that created the marker has committed its tables before.
            if self._marker is not None and self._marker.exists() and not _has_tables(transaction):
                raise DatabaseCorrupt(
                    f"{self.path} has no data, although {self._marker.name} shows that it had: the file or its log was "
                    f"removed. Restore {self.path.name} from a backup. To begin without its data, remove "
                    f"{self.path.name}"
                )
            return apply_migrations(transaction, subsystem, migrations, now)

        applied = self.write(apply)
        if applied:
            checkpoint(self.path, self._timeout)  # without its log, the file must not look like a new one
        if self._marker is not None:
            with suppress(OSError):  # the marker only serves a later start
                self._marker.touch(mode=0o600)
        return applied

    def check(self) -> None:
        findings = [row[0] for row in self.read(lambda transaction: transaction.execute("pragma integrity_check(10)"))]
        if findings != ["ok"]:
            raise DatabaseCorrupt(f"{self.path} is damaged: {'; '.join(findings)}: restore it from a backup")

    def backup(self, target: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> None:
        """Copy a snapshot of the database to the new file `target`, while readers and writers continue.

        `progress` is called with the copied pages and the total pages. `target` appears only when it is complete.
        """
        self._require_usable()
        target = Path(target)
        if target.exists():
            raise Conflict(f"{target} exists already: a backup does not overwrite files")
        partial = target.with_name(target.name + ".partial")
        partial.unlink(missing_ok=True)
        source = connect(self.path, self._timeout, is_reader=True)
        try:
            _copy(source, partial, progress)
            partial.replace(target)
            _sync_folder(target.parent)
        except apsw.Error as error:
            raise translate(error, target) from error
        finally:
            source.close(True)
            partial.unlink(missing_ok=True)

    def close(self) -> None:
        if self._process != os.getpid():
            return  # a forked child has no writer thread, and must not touch the parent's connections
        self._writer.close()
        self._is_open = False
        while self._idle:
            with suppress(apsw.Error):  # the last connection to close checkpoints, which fails if the disk is full
                self._idle.pop().close(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _return_reader(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except apsw.Error as error:
            connection.close(True)
            raise translate(error, self.path) from error
        if self._is_open and len(self._idle) < IDLE_READERS:
            self._idle.append(connection)
        else:
            connection.close(True)

    def _require_usable(self) -> None:
        if self._process != os.getpid():
            raise EngineError(f"{self.path} was opened before a fork: open it again in the new process")
        if not self._is_open:
            raise EngineError(f"{self.path} is closed: open it again before using it")
        if identify(self.path) != self._file:
            raise EngineError(
                f"{self.path} was deleted or replaced while this process uses it: nothing more is read or written; "
                "restore it from a backup if necessary, then restart this process"
            )


def _has_tables(transaction: Transaction) -> bool:
    return bool(transaction.execute("select 1 from sqlite_schema limit 1"))


_PAGES_PER_STEP = 1024
"""4 MiB at the usual page size: small enough for a progress bar, large enough to add no cost."""


def _copy(source: apsw.Connection, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    """Copy all pages in one read transaction: without a snapshot, SQLite would start over after every write."""
    source.execute("begin").fetchall()
    source.execute("select count(*) from sqlite_schema").fetchall()  # takes the snapshot
    partial.touch(mode=0o600)  # closed to other users, like the original
    destination = apsw.Connection(str(partial))
    try:
        with destination.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_PER_STEP)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)
        # The copy is in WAL mode, too. Without it, the copy is a single file that can be moved and opened anywhere.
        destination.execute("pragma journal_mode = delete").fetchall()
    finally:
        destination.close(True)
        source.execute("rollback").fetchall()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
