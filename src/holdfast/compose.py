"""From settings to objects: the one place that joins the parts."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast._clock import Clock, SystemClock
from holdfast._errors import Conflict, SettingsError
from holdfast.config import Settings
from holdfast.engines import Database

SQLITE_SUFFIX = ".sqlite"


def open_database(settings: Settings, subsystem: str, clock: Clock | None = None) -> Database:
    """The database of one subsystem: a SQLite file of its own, or the PostgreSQL database that all share."""
    clock = clock or SystemClock()
    if settings.database.url.scheme == "sqlite":
        from holdfast.engines.sqlite import SqliteDatabase

        path = data_directory(settings) / f"{subsystem}{SQLITE_SUFFIX}"
        return SqliteDatabase(path, patience=settings.database.patience, clock=clock)
    from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

    return PostgresDatabase(
        PostgresOptions(
            url=settings.database.url.reveal(),
            pool_maximum=settings.database.connections,
            patience=settings.database.patience,
        ),
        clock=clock,
    )


def data_directory(settings: Settings) -> Path:
    """The folder that holds this Holdfast's files, made if need be and closed to other users."""
    path = settings.data_directory
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"data_directory {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise SettingsError(f"data_directory {path} cannot be written by this user: change its owner, or set another")
    return path


@contextmanager
def only_server(settings: Settings) -> Iterator[None]:
    """Hold the data directory for one server. Raises Conflict when another one has it."""
    path = data_directory(settings) / "server.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise Conflict(
                f"another server (process {file.read().strip() or 'unknown'}) uses {path.parent}: "
                "stop it, or set another data_directory"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
