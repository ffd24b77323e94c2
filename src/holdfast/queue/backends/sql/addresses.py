"""Addresses of queues in a database: `sqlite:FILE` and `postgresql://USER@HOST/NAME`."""

import re
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlsplit

from holdfast._clock import Clock
from holdfast._errors import InvalidValue, NotFound
from holdfast.engines import Database
from holdfast.queue.backends.sql.backend import SqlBackend
from holdfast.queue.open import BACKENDS

TABLE = "holdfast_queue"
_SQLITE = re.compile(r"sqlite:(?://)?(?P<path>[^?#]+)")
_IN_SQLITE = "select 1 from sqlite_master where type = 'table' and name = ?"
_IN_POSTGRES = "select to_regclass($1) is not null"


class SqliteKind:
    """Queues in a SQLite file."""

    def open(self, url: str, *, clock: Clock | None, timeout: float, max_connections: int) -> SqlBackend:  # noqa: ARG002
        from holdfast.engines.sqlite import SqliteDatabase

        return SqlBackend(SqliteDatabase(_file_of(url), timeout=timeout, clock=clock), clock)

    def describe(self, url: str) -> str:
        return f"sqlite:{_file_of(url).absolute()}"

    def require_queues(self, url: str, *, timeout: float) -> None:  # noqa: ARG002
        path = _file_of(url)
        try:
            is_file = path.is_file()
        except OSError as error:
            raise InvalidValue(f"{path} cannot be read: {error.strerror}") from error
        if not is_file:
            raise NotFound(f"there is no file {path}")
        require_queues_in_file(path)


class PostgresKind:
    """Queues in a PostgreSQL database."""

    def open(self, url: str, *, clock: Clock | None, timeout: float, max_connections: int) -> SqlBackend:
        from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

        options = PostgresOptions(url=url, max_connections=max_connections, timeout=timeout)
        return SqlBackend(PostgresDatabase(options, clock=clock), clock)

    def describe(self, url: str) -> str:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"

    def require_queues(self, url: str, *, timeout: float) -> None:
        from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

        with closing(PostgresDatabase(PostgresOptions(url=url, max_connections=1, timeout=timeout))) as database:
            if not has_tables(database):
                raise _no_queues(self.describe(url))


BACKENDS.register("sqlite")(SqliteKind())
for _scheme in ("postgresql", "postgres"):
    BACKENDS.register(_scheme)(PostgresKind())


def _file_of(url: str) -> Path:
    match = _SQLITE.fullmatch(url)
    if match is None:
        raise InvalidValue("sqlite: without a file: expected an address such as sqlite:work.sqlite")
    return Path(match["path"])


def require_queues_in_file(path: Path) -> None:
    """Raise NotFound if a SQLite file has no queues. The file is not changed, whatever application it belongs to.

    An unreadable file is left to the engine, which reports the cause better.
    """
    # Python's own library and not the engine, which creates a write-ahead log for every file that it opens. Both must
    # not have the same file open at the same time: when one closes it, the other loses its locks.
    # https://sqlite.org/howtocorrupt.html#_multiple_copies_of_sqlite_linked_into_the_same_application
    import sqlite3

    # Writers always have a log beside the file. Without one, open it as immutable, so that no empty log is left behind.
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True)) as connection:
            has_queues = connection.execute(_IN_SQLITE, (TABLE,)).fetchone() is not None
    except sqlite3.Error:
        return
    if not has_queues:
        raise _no_queues(str(path))


def has_tables(database: Database) -> bool:
    """Return whether a PostgreSQL database has the tables of queues. Does not create them."""
    return database.read(lambda transaction: transaction.execute(_IN_POSTGRES, (TABLE,))) == [(True,)]


def _no_queues(where: str) -> NotFound:
    return NotFound(f"there are no queues in {where}")
