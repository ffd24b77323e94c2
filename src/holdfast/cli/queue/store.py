"""The store that commands on queues work on, and the options that name it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from holdfast._errors import InvalidValue, NotFound
from holdfast._names import queue_of
from holdfast.cli.queue.existing import require_in, require_in_file
from holdfast.compose import SQLITE_SUFFIX, Databases, existing_store, open_queues, seed_queues
from holdfast.config import Settings, load
from holdfast.config.places import Place
from holdfast.engines import Database
from holdfast.queue.backend import Backend, Snapshot

QueueArgument: TypeAlias = Annotated[str, Parameter(name="QUEUE", help="The name of the queue.")]
At: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--at",
        help="Where the queues are, as in holdfast.queue.Queue: sqlite:FILE or postgresql://USER@HOST/NAME. Without "
        "it, the store of the settings.",
    ),
]
# As `holdfast.queue.open_backend` has it.
_SQLITE = re.compile(r"sqlite:(?://)?(?P<path>[^?#]+)")


@dataclass(frozen=True, slots=True)
class Store:
    """Queues that can be looked at and changed, with no server between."""

    backend: Backend
    database: Database
    place: str
    """Where they are, for people; no secret in it."""

    def names(self) -> list[str]:
        """The names of all queues."""
        from holdfast.queue.backends.sql.names import queue_names

        return queue_names(self.database)

    def require(self, queue: str) -> str:
        """The name, if there is such a queue. Raises NotFound with those there are."""
        known = self.names()
        if queue_of(queue) not in known:
            there = f"there are {', '.join(known)}" if known else "there is none yet"
            raise NotFound(
                f"there is no queue {queue} in {self.place}: {there}; a queue is made when a program first uses it, "
                "or by [[queue]] of the settings"
            )
        return queue

    def chosen(self, queue: str | None) -> list[str]:
        """That queue, or all of them."""
        return self.names() if queue is None else [self.require(queue)]

    def look(self, queues: Sequence[str], *, top: int, tenants: Sequence[str] = ()) -> list[Snapshot]:
        """The queues as they are."""
        return [self.backend.look(queue, tenants=tenants, top=top) for queue in queues]


@contextmanager
def open_store(at: str | None, file: Path | None, data_directory: Path | None) -> Iterator[Store]:
    """The store that the options name. Raises NotFound where there is none.

    None is made, and nothing is changed in a database of others, unless the settings have queues to be made in it.
    """
    options: dict[Place, object] = {("data_directory",): data_directory}
    path = None if at is None else _file_of(at)
    if path is None:
        options["database", "url"] = at
    values = load(file, options=options).settings
    # Not above: the help of all commands needs no database.
    from holdfast.queue.backends.sql import SqlBackend
    from holdfast.queue.backends.sql.schema import SUBSYSTEM

    if path is not None:
        from holdfast.engines.sqlite import SqliteDatabase

        require_in_file(path)
        database: Database = SqliteDatabase(path, patience=values.database.patience)
        with SqlBackend(database) as backend:
            yield Store(backend, database, str(path))
        return
    is_seeded = at is None and bool(values.queue)
    if not is_seeded:
        _require_store(values, SUBSYSTEM)
    with Databases(values) as databases:
        if not is_seeded and databases.of(SUBSYSTEM).dialect == "postgres":
            require_in(databases.of(SUBSYSTEM), _place(values, SUBSYSTEM))
        with open_queues(databases) as queues:
            if is_seeded:
                seed_queues(values, queues, warn=False)  # whoever looks sees what holds
            yield Store(queues, databases.of(SUBSYSTEM), _place(values, SUBSYSTEM))


def _file_of(at: str) -> Path | None:
    """The file that an address names, which exists; None: it names a server."""
    scheme = at.partition(":")[0]
    if scheme in ("postgresql", "postgres"):
        return None
    found = _SQLITE.fullmatch(at)
    if found is None:
        # Not the rest of it: there may be a password in it.
        raise InvalidValue(f"--at {scheme}:...: expected sqlite:FILE or postgresql://USER@HOST/NAME")
    path = Path(found["path"])
    try:
        is_there = path.is_file()
    except OSError as error:
        raise InvalidValue(f"--at: {path} cannot be read: {error.strerror}") from error
    if not is_there:
        raise NotFound(f"there is no file {path}: name the one that producers and workers use, after --at sqlite:")
    return path


def _require_store(values: Settings, subsystem: str) -> None:
    try:
        existing_store(values, subsystem)
    except NotFound as error:
        raise NotFound(f"{error}, or where the queues are with --at") from error
    if values.database.url.scheme == "sqlite":
        require_in_file(values.data_directory / f"{subsystem}{SQLITE_SUFFIX}")


def _place(values: Settings, subsystem: str) -> str:
    url = values.database.url
    return str(values.data_directory / f"{subsystem}{SQLITE_SUFFIX}" if url.scheme == "sqlite" else url)
