"""From settings to objects: the one place that joins the parts."""

import fcntl
import logging
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from holdfast._clock import SystemClock
from holdfast._errors import Conflict, NotFound, SettingsError
from holdfast._types import StatusStore
from holdfast.config import Settings
from holdfast.engines import Database

if TYPE_CHECKING:
    from holdfast.config.queues import QueueSettings
    from holdfast.engines.aws import AwsSession
    from holdfast.queue.backend import Backend, QueueSnapshot
    from holdfast.status.sns import SnsPublisher

logger = logging.getLogger("holdfast.queue")

SQLITE_SUFFIX = ".sqlite"


def get_database_path(settings: Settings, subsystem: str) -> Path | None:
    """Return the SQLite file of a subsystem, which need not exist yet; None: the state is kept in PostgreSQL."""
    if settings.database.url.scheme != "sqlite":
        return None
    return settings.data_directory / f"{subsystem}{SQLITE_SUFFIX}"


def open_database(settings: Settings, subsystem: str) -> Database:
    """The database of one subsystem: a SQLite file of its own, or the PostgreSQL database that all share."""
    path = get_database_path(settings, subsystem)
    if path is not None:
        from holdfast.engines.sqlite import SqliteDatabase

        ensure_data_directory(settings)
        return SqliteDatabase(path, timeout=settings.database.timeout)
    from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

    return PostgresDatabase(
        PostgresOptions(
            url=settings.database.url.reveal(),
            max_connections=settings.database.max_connections,
            timeout=settings.database.timeout,
        )
    )


class Databases:
    """What one process keeps its state in: a file for each subsystem, or one PostgreSQL pool, or an AWS account."""

    def __init__(self, settings: Settings) -> None:
        self.clock = SystemClock()
        self._settings = settings
        self._opened: dict[str, Database] = {}
        self._aws: AwsSession | None = None

    def database(self, subsystem: str) -> Database:
        """The database of a subsystem, opened when it is first asked for."""
        name = "" if get_database_path(self._settings, subsystem) is None else subsystem  # PostgreSQL is shared by all
        if name not in self._opened:
            self._opened[name] = open_database(self._settings, subsystem)
        return self._opened[name]

    def aws(self) -> "AwsSession":
        """The AWS session that the settings describe, opened when it is first asked for."""
        if self._aws is None:
            self._aws = open_aws_session(self._settings)
        return self._aws

    def close(self) -> None:
        """Close all of them. May be repeated."""
        while self._opened:
            self._opened.popitem()[1].close()
        if self._aws is not None:
            self._aws.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_queue_backend(settings: Settings, databases: Databases) -> "Backend":
    """Open the backend of all queues: what `queue_store` names, or else the database of the settings."""
    if settings.queue_store is not None:
        from holdfast.queue import open_backend

        database = settings.database
        url = settings.queue_store.reveal()
        return open_backend(url, timeout=database.timeout, max_connections=database.max_connections)
    from holdfast.queue.backends.sql import SqlBackend
    from holdfast.queue.backends.sql.schema import SUBSYSTEM

    return SqlBackend(databases.database(SUBSYSTEM))


def has_queue_store(settings: Settings, databases: Databases) -> bool:
    """Whether there is a store of queues already: to ask makes none."""
    if settings.queue_store is not None:
        from holdfast.queue.open import get_backend_kind

        url = settings.queue_store.reveal()
        try:
            get_backend_kind(url).require_queues(url, timeout=settings.database.timeout)
        except NotFound:
            return False
        return True
    from holdfast.queue.backends.sql.addresses import has_tables
    from holdfast.queue.backends.sql.schema import SUBSYSTEM

    path = get_database_path(settings, SUBSYSTEM)
    return has_tables(databases.database(SUBSYSTEM)) if path is None else path.exists()


def seed_queues(settings: Settings, queues: "Backend", *, warn: bool = True) -> None:
    """Make the queues of the settings that do not exist yet, with the policy and the limits of tenants written there.

    A queue that exists is left as it is: what it may do was perhaps changed since, and is kept with its messages. With
    `warn`, a warning says of each what is not as the settings have it.
    """
    from holdfast.queue.backend import QueueChange
    from holdfast.queue.policy import format_differences

    for queue in settings.queue:
        try:
            look = queues.inspect(queue.name, tenants=list(queue.own_limits), top=0, lanes=False)
        except NotFound:
            queues.change(queue.name, QueueChange(policy=queue.policy, limits=queue.own_limits), create=True)
            continue
        differing = _find_differences(queue, look) if warn else []
        if differing:
            logger.warning(
                "queue %s exists, and is not as the settings have it: %s. Settings are what a queue begins with: "
                "change it with `holdfast queue limits`, `holdfast queue resize` or over HTTP, or change the settings",
                queue.name,
                format_differences(differing),
            )


def _find_differences(queue: "QueueSettings", look: "QueueSnapshot") -> list[str]:
    """What is kept, and what the settings have instead."""
    from holdfast.queue import Limits
    from holdfast.queue.policy import list_differences

    kept = {one.tenant: one.limits or Limits() for one in look.tenants}
    found = list_differences(look.policy, queue.policy)
    for name, limits in queue.own_limits.items():
        found += list_differences(kept.get(name, Limits()), limits, f" of tenant {name}")
    return found


def open_status_store(settings: Settings, databases: Databases) -> StatusStore:
    """Open the store in which the settings keep zone statuses."""
    from holdfast.status.stores import open_store

    return open_store(settings.status.store, databases)


def open_publisher(databases: Databases, topic: str) -> "SnsPublisher":
    """Who publishes to an SNS topic."""
    from holdfast.status.sns import SnsPublisher

    return SnsPublisher(databases.aws(), topic)


def open_aws_session(settings: Settings) -> "AwsSession":
    """The session that the settings describe. Raises MissingExtra without boto3."""
    from holdfast.engines.aws import AwsOptions, AwsSession

    return AwsSession(AwsOptions(**msgspec.structs.asdict(settings.aws)))


def require_store(settings: Settings, subsystem: str, *, hint: str = "") -> None:
    """Raise NotFound where a subsystem has no store yet, so that looking for something does not make an empty one.

    `hint` ends the message: what else may be named. Raises SettingsError where this user may not look.
    """
    path = get_database_path(settings, subsystem)
    if path is None:
        return
    require_access(settings.data_directory)
    if not path.exists():
        raise NotFound(
            f"there is no store at {path}: name what the server uses, with --settings, HOLDFAST_SETTINGS or "
            f"--data-directory{hint}"
        )


def require_access(folder: Path) -> None:
    """Raise SettingsError, with the user who may, where this one may not read and write a data directory.

    One that is not there is none of its business.
    """
    try:
        folder.stat()
    except PermissionError:
        pass
    except OSError:
        return
    else:
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            return
    ancestor = folder.absolute()
    while (owner := _find_owner(ancestor)) is None:
        ancestor = ancestor.parent  # whoever closed a folder above is the one to ask
    raise SettingsError(
        f"data_directory {folder} cannot be read and written by {get_user_name(os.geteuid())}: "
        f"{ancestor} belongs to {owner}; do this as {owner}, or set another data_directory"
    )


def _find_owner(path: Path) -> str | None:
    """Whose it is; None if this user may not even ask."""
    try:
        return get_user_name(path.stat().st_uid)
    except OSError:
        return None


def get_user_name(number: int) -> str:
    """The name of a user of this system, or a word with the number."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run as anybody
        return f"uid-{number}"


def ensure_data_directory(settings: Settings) -> Path:
    """The folder that holds this Holdfast's files, made if need be and closed to other users."""
    path = settings.data_directory
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"data_directory {path} cannot be made: {error.strerror}") from error
    require_access(path)
    return path


@contextmanager
def lock_data_directory(settings: Settings) -> Iterator[None]:
    """Hold the data directory for one server. Raises Conflict when another one has it."""
    path = ensure_data_directory(settings) / "server.lock"
    try:
        file = path.open("a+")
    except OSError as error:
        raise SettingsError(f"{path} cannot be opened: {error.strerror}; change its owner, or remove it") from error
    with file:
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
