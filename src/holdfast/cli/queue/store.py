"""The store that the commands on queues use, and the options that name it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast._errors import NotFound
from holdfast._names import check_queue_name
from holdfast.cli.output import SettingsOptions, print_note
from holdfast.compose import Databases, get_database_path, open_queue_backend, require_store, seed_queues
from holdfast.config import QueueUrl, Settings
from holdfast.queue.backend import Backend, QueueSnapshot
from holdfast.queue.open import get_backend_kind

QueueArgument: TypeAlias = Annotated[str, Parameter(name="QUEUE", help="The name of the queue.")]
_STORE_HINT = (
    "name the store that producers and workers use, with --backend, --settings, HOLDFAST_SETTINGS or --data-directory"
)


@dataclass(frozen=True, slots=True)
class QueueStore:
    """An open store of queues, used directly and not through a server."""

    backend: Backend
    address: str
    """The address of the store for people, without a password."""

    def names(self) -> Sequence[str]:
        """Return the names of all queues."""
        return self.backend.list_queues()

    def require(self, queue: str) -> str:
        """Return `queue` if it exists. Otherwise raise NotFound with the existing queues."""
        known = self.names()
        if check_queue_name(queue) not in known:
            existing = f"existing queues: {', '.join(known)}" if known else "there are none yet"
            raise NotFound(
                f"there is no queue {queue} in {self.address}: {existing}; a queue is created when a program first "
                "uses it, or by [[queue]] in the settings"
            )
        return queue

    def select(self, queue: str | None) -> Sequence[str]:
        """Return the given queue, or all queues if it is None."""
        return self.names() if queue is None else [self.require(queue)]

    def inspect(self, queues: Sequence[str], *, top: int, tenants: Sequence[str] = ()) -> list[QueueSnapshot]:
        """Return a snapshot of each queue."""
        return [self.backend.inspect(queue, tenants=tenants, top=top) for queue in queues]

    @property
    def is_exact(self) -> bool:
        """Whether depths are exact, not estimates."""
        return self.backend.capabilities.exact_counts

    def note_estimates(self, *, as_json: bool) -> None:
        """Print a note on standard error if depths are estimates."""
        if not self.is_exact:
            print_note(f"{self.address}: these numbers are estimates, and may be out of date", as_json=as_json)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions(SettingsOptions):
    """The options that name the store of queues."""

    backend: Annotated[
        str | None,
        Parameter(
            help="Address of the queues, as in holdfast.queue.Queue: sqlite:FILE, postgresql://USER@HOST/NAME, or an "
            "address of another registered backend. Default: the store of the settings."
        ),
    ] = None

    @contextmanager
    def open(self) -> Iterator[QueueStore]:
        """Open the store. Raise NotFound if there is none.

        Does not create a store, nor tables in an existing database, unless the settings define queues.
        """
        from holdfast.queue.backends.sql.schema import SUBSYSTEM  # here, because --help needs no database

        values = self.load()
        if self.backend is not None:
            values = msgspec.structs.replace(values, queue_backend=QueueUrl(self.backend), queue=())
        path = get_database_path(values, SUBSYSTEM)
        with Databases(values) as databases:
            if not values.queue:
                _require_queues(values, databases)
            with open_queue_backend(values, databases) as backend:
                seed_queues(values, backend, warn=False)  # commands show the stored policy anyway
                yield QueueStore(backend, str(values.queue_backend or path or values.database.url))


QUEUES = QueueOptions()


def _require_queues(values: Settings, databases: Databases) -> None:
    """Raise NotFound, with a hint, if there are no queues."""
    from holdfast.queue.backends.sql.addresses import has_tables, require_queues_in_file
    from holdfast.queue.backends.sql.schema import SUBSYSTEM

    path = get_database_path(values, SUBSYSTEM)
    if values.queue_backend is None:
        require_store(values, SUBSYSTEM, hint=", or where the queues are with --backend")
    try:
        if values.queue_backend is not None:
            url = values.queue_backend.reveal()
            get_backend_kind(url).require_queues(url, timeout=values.database.timeout)
        elif path is not None:
            require_queues_in_file(path)
        elif not has_tables(databases.database(SUBSYSTEM)):
            raise NotFound(f"there are no queues in {values.database.url}")  # noqa: TRY301 - handled like a file's error
    except NotFound as error:
        raise NotFound(f"{error}: {_STORE_HINT}") from error
