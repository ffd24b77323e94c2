"""Connections to a SQLite file, the transactions that run on them, and a counter of commits."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw

from holdfast._errors import DatabaseCorrupt, EngineError, EngineMismatch, HoldfastError
from holdfast.engines.database import Result, Row, Transaction, Value, require_portable
from holdfast.engines.sqlite.errors import translate

MINIMUM_VERSION = (3, 51, 3)
"""Oldest SQLite version that works. Earlier ones can damage a WAL database that two processes write and checkpoint:
https://sqlite.org/wal.html#walresetbug"""

_PRAGMAS = (
    "pragma synchronous = full",  # a commit is on the disk when it returns
    "pragma fullfsync = 1",  # also on macOS, where fsync alone does not reach the disk
    "pragma foreign_keys = on",
    "pragma journal_size_limit = 67108864",  # truncate the log to 64 MiB after a burst
    "pragma trusted_schema = off",
)


_BUSY_POLL_SECONDS = 0.0001
"""Approximate seconds between two tries to get a lock that another process holds: shorter than a commit. SQLite's own
timeout sleeps up to 100 ms, so a process that writes all the time would nearly always win the lock."""


_LOG_CHECKS = 3
"""Checks in a row that must miss the log. One alone is wrong about twice in a million times under load."""


_CHECKPOINT_PAGES = 1000
"""Pages in the log from which a commit also copies it into the database: SQLite's default."""


class _BusyHandler:
    """A busy handler of SQLite: waits up to `seconds` for a lock that another process holds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._deadline = now + self._seconds
        if now >= self._deadline:
            return False
        # Waiting processes try at different moments, and less often after 100 tries.
        time.sleep(_BUSY_POLL_SECONDS * (0.5 + random.random()) * (1 if tries < 100 else 10))  # noqa: S311 - not a secret
        return True


def _checkpoint(connection: apsw.Connection, name: str, pages: int) -> int:
    """Copy a long log into the database after a commit, as SQLite does by default. Ignore errors.

    The commit is already durable. SQLite's default also ignores the error, but apsw would raise it.
    """
    if pages >= _CHECKPOINT_PAGES:
        with suppress(apsw.Error):
            connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
    return apsw.SQLITE_OK


def require_version(found: str) -> None:
    """Raise EngineMismatch if the version `found` of SQLite is older than `MINIMUM_VERSION`."""
    if tuple(int(part) for part in found.split(".")) < MINIMUM_VERSION:
        needed = ".".join(str(part) for part in MINIMUM_VERSION)
        raise EngineMismatch(
            f"SQLite {found} is too old, {needed} is needed: older versions can damage the database. "
            "Install the apsw wheel, which contains SQLite: pip install --force-reinstall --only-binary apsw apsw"
        )


def connect(path: Path, timeout: float, *, is_reader: bool = False) -> apsw.Connection:
    """Open the file. Create it if it does not exist. Raise EngineError, after about `timeout` seconds if locked."""
    require_version(apsw.sqlite_lib_version())
    try:
        with suppress(OSError):  # SQLite's own error is clearer
            path.touch(mode=0o600)  # for its owner only; SQLite gives its log the same mode
        connection = apsw.Connection(str(path))
    except apsw.Error as error:
        raise translate(error, path) from error
    try:
        connection.set_busy_handler(_BusyHandler(timeout))
        connection.set_wal_hook(_checkpoint)
        mode = connection.execute("pragma journal_mode = wal").fetchall()
        for pragma in _PRAGMAS:
            connection.execute(pragma).fetchall()
        if is_reader:
            connection.execute("pragma query_only = on").fetchall()
    except apsw.Error as error:
        connection.close(True)
        raise translate(error, path, timeout) from error
    if mode != [("wal",)]:
        connection.close(True)
        raise EngineError(f"{path} cannot have a write-ahead log: use a file on a local disk")
    return connection


def checkpoint(path: Path, timeout: float) -> None:
    """Copy the log into the database, as far as no reader needs it. Ignore errors: the log has everything."""
    with suppress(apsw.Error), closing(connect(path, timeout)) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def identify(path: Path) -> tuple[int, int] | None:
    """Return device and number of the file at `path`, or None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - in every transaction, and faster
    except OSError:
        return None
    return found.st_dev, found.st_ino


def require_log(path: Path) -> None:
    """Raise DatabaseCorrupt if the write-ahead log was removed, and with it the latest commits.

    SQLite creates the log before the index of the log (`-shm`), and deletes it after the index. So while one index
    exists, even if other processes open and close the database, its log exists. A new index can have the number of a
    deleted one, though not several times in a row.
    """
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))

    def lacks_log() -> bool:
        before = identify(index)
        return before is not None and not log.exists() and identify(index) == before

    if all(lacks_log() for _ in range(_LOG_CHECKS)):
        raise DatabaseCorrupt(
            f"{log} is missing, although {path.name} was not closed: the latest commits were in it. Put it back, or "
            f"restore {path.name} from a backup and remove {index.name}. To continue without these commits, remove "
            f"only {index.name}"
        )


class SqliteTransaction:
    """The transaction of one `work`; see `holdfast.engines.Transaction`."""

    __slots__ = ("_connection", "_path", "failure")

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection: apsw.Connection | None = connection
        self._path = path
        self.failure: HoldfastError | None = None
        """The error of the first failed statement. From then on, nothing of this transaction will be written."""

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        connection = self._require_connection(sql)
        try:
            return connection.execute(sql, parameters).fetchall()
        except apsw.Error as error:
            raise self._record_failure(error) from error

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        connection = self._require_connection(sql)
        try:
            connection.executemany(sql, rows).fetchall()
        except apsw.Error as error:
            raise self._record_failure(error) from error

    def end(self) -> None:
        """Refuse further statements: `work` has returned, and they would run in another caller's transaction."""
        self._connection = None

    def _require_connection(self, sql: str) -> apsw.Connection:
        if self._connection is None:
            raise EngineError(f"a transaction on {self._path} was used after its end: begin another one")
        if self.failure is not None:
            raise EngineError(
                f"an earlier statement of this transaction on {self._path} failed, so nothing of it will be written "
                f"({self.failure}): let that error end the transaction"
            ) from self.failure
        require_portable(sql)
        return self._connection

    def _record_failure(self, error: apsw.Error) -> HoldfastError:
        self.failure = translate(error, self._path)
        return self.failure


def run_work(connection: apsw.Connection, path: Path, work: Callable[[Transaction], Result]) -> Result:
    """Run `work` in the open transaction. Raise its error, or the error of a statement that `work` caught."""
    transaction = SqliteTransaction(connection, path)
    try:
        result = work(transaction)
    finally:
        transaction.end()
    if transaction.failure is not None:
        raise transaction.failure
    return result


_OPEN_TIMEOUT = 1.0
"""Seconds to wait for a lock when opening. It is held for longer only while SQLite recovers the file."""


class ChangeCounter:
    """A counter of commits, read on a separate connection in microseconds. Never waits for a writer. Thread-safe.

    Reading the shared memory file would be faster, but closing that file would release the locks that SQLite holds on
    it: https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._is_open = True

    def read(self) -> int | None:
        """Return a number that changes with every commit of any process, or None if unknown: then assume a commit."""
        with self._lock:
            if not self._is_open:
                return None
            try:
                if self._connection is None:
                    self._connection = connect(self._path, _OPEN_TIMEOUT, is_reader=True)
                rows: list[tuple[Any, ...]] = self._connection.execute("pragma data_version").fetchall()
            except (apsw.Error, EngineError):
                self._disconnect()
                return None
            return int(rows[0][0])

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)
