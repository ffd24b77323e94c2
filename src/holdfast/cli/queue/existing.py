"""Whether there are queues at all, found out before anything is opened that would make tables for them."""

from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from holdfast._errors import NotFound
from holdfast.engines import Database

TABLE = "holdfast_queue"
_IN_SQLITE = "select 1 from sqlite_master where type = 'table' and name = ?"
_IN_POSTGRES = "select to_regclass($1) is not null"


def require_in_file(path: Path) -> None:
    """Raise NotFound if a SQLite file has no queues. It is left as it is, whoever it belongs to.

    What cannot be read is left to the engine, which says better what is wrong with it.
    """
    # Python's own library, and not the engine, which gives a write-ahead log to every file that it opens. The two must
    # not have one file open at once: what one closes, the other has no locks on any more.
    # https://sqlite.org/howtocorrupt.html#_multiple_copies_of_sqlite_linked_into_the_same_application
    import sqlite3  # the help of all commands needs no database

    # Nobody writes to queues without a log beside the file; to look there as a reader would leave an empty one behind.
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True)) as connection:
            has_queues = connection.execute(_IN_SQLITE, (TABLE,)).fetchone() is not None
    except sqlite3.Error:
        return
    if not has_queues:
        raise _none(str(path))


def require_in(database: Database, place: str) -> None:
    """The same for a PostgreSQL database, which to open changes nothing."""
    if database.read(lambda transaction: transaction.execute(_IN_POSTGRES, (TABLE,))) != [(True,)]:
        raise _none(place)


def _none(place: str) -> NotFound:
    return NotFound(
        f"there are no queues in {place}: name the store that producers and workers use, with --at, --settings, "
        "HOLDFAST_SETTINGS or --data-directory"
    )
