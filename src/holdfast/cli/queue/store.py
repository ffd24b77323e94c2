"""The store that commands on queues work on, and the options that name it."""

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
_NAME_ONE = (
    "name the store that producers and workers use, with --backend, --settings, HOLDFAST_SETTINGS or --data-directory"
)


@dataclass(frozen=True, slots=True)
class QueueStore:
    """Queues that can be looked at and changed, with no server between."""

    backend: Backend
    address: str
    """Where they are, for people; no password in it."""

    def names(self) -> Sequence[str]:
        """Return the names of all queues."""
        return self.backend.list_queues()

    def require(self, queue: str) -> str:
        """Return the name, if there is such a queue. Raise NotFound with those there are."""
        known = self.names()
        if check_queue_name(queue) not in known:
            there = f"there are {', '.join(known)}" if known else "there is none yet"
            raise NotFound(
                f"there is no queue {queue} in {self.address}: {there}; a queue is made when a program first uses it, "
                "or by [[queue]] of the settings"
            )
        return queue

    def select(self, queue: str | None) -> Sequence[str]:
        """Return that queue, or all of them."""
        return self.names() if queue is None else [self.require(queue)]

    def inspect(self, queues: Sequence[str], *, top: int, tenants: Sequence[str] = ()) -> list[QueueSnapshot]:
        """Return the queues as they are."""
        return [self.backend.inspect(queue, tenants=tenants, top=top) for queue in queues]

    @property
    def is_exact(self) -> bool:
        """Whether depths are exact, and not estimates."""
        return self.backend.capabilities.exact_counts

    def note_estimates(self, *, as_json: bool) -> None:
        """Say on standard error that depths are estimates, if they are."""
        if not self.is_exact:
            print_note(f"{self.address}: these numbers are estimates of a while ago", as_json=as_json)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions(SettingsOptions):
    """The options that name the store of queues that a command works on."""

    backend: Annotated[
        str | None,
        Parameter(
            help="Where the queues are, as in holdfast.queue.Queue: sqlite:FILE, postgresql://USER@HOST/NAME, or an "
            "address of another registered backend. Without it, the store of the settings."
        ),
    ] = None

    @contextmanager
    def open(self) -> Iterator[QueueStore]:
        """Open the store. Raise NotFound where there is none.

        None is made, and nothing is changed in a database of others, unless the settings have queues to be made in it.
        """
        from holdfast.queue.backends.sql.schema import SUBSYSTEM  # not above: the help of commands needs no database

        values = self.load()
        if self.backend is not None:
            values = msgspec.structs.replace(values, queue_store=QueueUrl(self.backend), queue=())
        path = get_database_path(values, SUBSYSTEM)
        with Databases(values) as databases:
            if not values.queue:
                _require_queues(values, databases)
            with open_queue_backend(values, databases) as backend:
                seed_queues(values, backend, warn=False)  # whoever looks sees what holds
                yield QueueStore(backend, str(values.queue_store or path or values.database.url))


QUEUES = QueueOptions()


def _require_queues(values: Settings, databases: Databases) -> None:
    """Raise NotFound where there are no queues, with what to name instead."""
    from holdfast.queue.backends.sql.addresses import has_tables, require_queues_in_file
    from holdfast.queue.backends.sql.schema import SUBSYSTEM

    path = get_database_path(values, SUBSYSTEM)
    if values.queue_store is None:
        require_store(values, SUBSYSTEM, hint=", or where the queues are with --backend")
    try:
        if values.queue_store is not None:
            url = values.queue_store.reveal()
            get_backend_kind(url).require_queues(url, timeout=values.database.timeout)
        elif path is not None:
            require_queues_in_file(path)
        elif not has_tables(databases.database(SUBSYSTEM)):
            raise NotFound(f"there are no queues in {values.database.url}")  # noqa: TRY301 - as of a file
    except NotFound as error:
        raise NotFound(f"{error}: {_NAME_ONE}") from error
