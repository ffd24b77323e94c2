"""Build the objects that the settings describe. Only this module and `compose_evacuation` connect the parts."""

import logging
import os
import pwd
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from holdfast._clock import SystemClock
from holdfast._errors import DatabaseCorrupt, InvalidValue, NotFound, SettingsError
from holdfast._types import StatusStore, VerdictKind, Zone
from holdfast.config import Settings
from holdfast.config.settings import require_known
from holdfast.engines import Database

if TYPE_CHECKING:
    from holdfast.alerts import Alert, Alerter
    from holdfast.canary import Probe
    from holdfast.config.queues import QueueSettings
    from holdfast.engines.aws import AwsOptions, AwsSession, FoundZone
    from holdfast.queue.backend import Backend, QueueSnapshot
    from holdfast.status.sns import SnsPublisher
    from holdfast.watch import WatchStore

logger = logging.getLogger("holdfast.queue")

SQLITE_SUFFIX = ".sqlite"


def get_database_path(settings: Settings, subsystem: str) -> Path | None:
    """Return the SQLite file of a subsystem, which need not exist yet, or None if PostgreSQL stores the state."""
    if settings.database.url.scheme != "sqlite":
        return None
    return settings.data_directory / f"{subsystem}{SQLITE_SUFFIX}"


def open_database(settings: Settings, subsystem: str) -> Database:
    """Open the database of a subsystem: its own SQLite file, or the PostgreSQL database that all subsystems share."""
    path = get_database_path(settings, subsystem)
    if path is not None:
        from holdfast.engines.sqlite import SqliteDatabase

        _require_server_store(path, ensure_data_directory(settings))
        marker = path.with_name(f"{path.name}-created")
        if not path.exists():
            marker.unlink(missing_ok=True)  # the store was removed on purpose: a lost log leaves the file
        return SqliteDatabase(path, timeout=settings.database.timeout, marker=marker)
    from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

    return PostgresDatabase(
        PostgresOptions(
            url=settings.database.url.reveal(),
            max_connections=settings.database.max_connections,
            timeout=settings.database.timeout,
        )
    )


_MAX_EMPTY_BYTES = 4096
"""Size of a SQLite file without tables: one page."""


def _require_server_store(path: Path, folder: Path) -> None:
    """Raise DatabaseCorrupt if the server's own store is lost, because the store of verdicts exists.

    The server creates the store of verdicts after its own.
    """
    witness = folder / f"watch{SQLITE_SUFFIX}"
    if path.stem == "server" and _is_empty(path) and not _is_empty(witness):
        raise DatabaseCorrupt(
            f"{path} has no data, although {witness.name} shows that this directory was in use: the file or its log "
            f"was removed. Restore {path.name} from a backup. To begin without its data, remove {witness.name}, which "
            "has the verdicts"
        )


def _is_empty(path: Path) -> bool:
    """Return whether a SQLite file and its log, which need not exist, have no tables. Does not open them."""
    return _get_size(path) <= _MAX_EMPTY_BYTES and not _get_size(path.with_name(f"{path.name}-wal"))


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Databases:
    """The stores of one process: a SQLite file per subsystem or one PostgreSQL pool, and an AWS session."""

    def __init__(self, settings: Settings) -> None:
        self.clock = SystemClock()
        self._settings = settings
        self._lock = threading.Lock()
        self.opened: dict[str, Database] = {}
        """The open databases by subsystem; PostgreSQL, which all share, has an empty name."""
        self._aws: AwsSession | None = None

    def database(self, subsystem: str) -> Database:
        """Return the database of a subsystem. The first call opens it. Thread-safe."""
        name = "" if get_database_path(self._settings, subsystem) is None else subsystem  # all share one PostgreSQL
        with self._lock:
            if name not in self.opened:
                self.opened[name] = open_database(self._settings, subsystem)
            return self.opened[name]

    def aws(self) -> "AwsSession":
        """Return the AWS session that the settings describe. The first call opens it."""
        if self._aws is None:
            self._aws = open_aws_session(self._settings)
        return self._aws

    def close(self) -> None:
        """Close all open databases and the AWS session. May be repeated."""
        while self.opened:
            self.opened.popitem()[1].close()
        if self._aws is not None:
            self._aws.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_queue_backend(settings: Settings, databases: Databases) -> "Backend":
    """Open the backend of all queues: the one that `queue_backend` names, or else the database of the settings."""
    if settings.queue_backend is not None:
        from holdfast.queue import open_backend

        database = settings.database
        url = settings.queue_backend.reveal()
        return open_backend(url, timeout=database.timeout, max_connections=database.max_connections)
    from holdfast.queue.backends.sql import SqlBackend
    from holdfast.queue.backends.sql.schema import SUBSYSTEM

    return SqlBackend(databases.database(SUBSYSTEM))


def has_queue_store(settings: Settings, databases: Databases) -> bool:
    """Return whether the store of the queues exists. Does not create it."""
    if settings.queue_backend is not None:
        from holdfast.queue.open import get_backend_kind

        url = settings.queue_backend.reveal()
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
    """Create the queues in the settings that do not exist yet, with their policy and the limits of their tenants.

    Existing queues are not changed: their policy and limits are stored with the messages, and an operator may have
    changed them. With `warn`, log a warning for each existing queue that differs from the settings.
    """
    from holdfast.queue.backend import QueueChange
    from holdfast.queue.policy import format_differences

    for queue in settings.queue:
        try:
            snapshot = queues.inspect(queue.name, tenants=list(queue.own_limits), top=0, lanes=False)
        except NotFound:
            queues.change(queue.name, QueueChange(policy=queue.policy, limits=queue.own_limits), create=True)
            continue
        differing = _find_differences(queue, snapshot) if warn else []
        if differing:
            logger.warning(
                "queue %s differs from the settings: %s. Settings apply only when a queue is created: change the queue "
                "with `holdfast queue limits`, `holdfast queue resize` or over HTTP, or change the settings",
                queue.name,
                format_differences(differing),
            )


def _find_differences(queue: "QueueSettings", snapshot: "QueueSnapshot") -> list[str]:
    """Return the differences between the stored queue and its settings."""
    from holdfast.queue import Limits
    from holdfast.queue.policy import list_differences

    stored = {tenant.tenant: tenant.limits or Limits() for tenant in snapshot.tenants}
    found = list_differences(snapshot.policy, queue.policy)
    for name, limits in queue.own_limits.items():
        found += list_differences(stored.get(name, Limits()), limits, f" of tenant {name}")
    return found


def open_status_store(settings: Settings, databases: Databases) -> StatusStore:
    """Open the store of zone statuses that the settings name."""
    from holdfast.status.stores import STATUS_STORES

    return STATUS_STORES.open(settings.status.store, databases)


def open_publisher(databases: Databases, topic: str) -> "SnsPublisher":
    """Return a publisher for an SNS topic."""
    from holdfast.status.sns import SnsPublisher

    return SnsPublisher(databases.aws(), topic)


def open_alerts(settings: Settings, databases: Databases) -> "list[Alert]":
    """Return the alerts of the settings. Raise SettingsError, which names the alert, if a secret is missing."""
    from holdfast.alerts import CHANNELS, Alert, ChannelContext
    from holdfast.alerts.channel import parse_channel_options

    is_text = settings.log.format == "text" or (settings.log.format == "auto" and sys.stdout.isatty())
    context, found = ChannelContext(open_aws=databases.aws, writes_json=not is_text), []
    for alert in settings.alert:
        try:
            channel = CHANNELS.get(alert.channel)(parse_channel_options(alert.channel, alert.options), context)
        except (InvalidValue, SettingsError) as error:
            raise SettingsError(f"alert {alert.name}: {error}") from error
        kinds, workloads = frozenset(alert.kinds), frozenset(alert.workloads)
        found.append(Alert(name=alert.name, channel=channel, kinds=kinds, workloads=workloads, after=alert.after))
    return found


def open_alerter(settings: Settings, databases: Databases, verdicts: "WatchStore") -> "Alerter":
    """Return what tells people of the verdicts in a store. Raise SettingsError if a secret is missing."""
    from holdfast.alerts import Alerter, AlertStore
    from holdfast.alerts.message import AlertedVerdict
    from holdfast.alerts.store import SUBSYSTEM
    from holdfast.evacuate.service import EvacuationMode, build_advice
    from holdfast.watch.store import RecordedVerdicts

    source = RecordedVerdicts(verdicts, [workload.name for workload in settings.workload])
    alerts, store = open_alerts(settings, databases), AlertStore(databases.database(SUBSYSTEM))
    mode = EvacuationMode(settings.evacuation.mode)

    def advise(verdict: AlertedVerdict) -> str | None:
        zone = verdict.zone if verdict.kind == VerdictKind.ISOLATED else None
        return None if zone is None else build_advice(Zone(zone), verdict.workload, mode)

    return Alerter(alerts, store, source, link=settings.server.page_url, advise=advise)


def build_probes(settings: Settings, workloads: Sequence[str] = (), zone: Zone | None = None) -> "list[Probe]":
    """Return the probes of all workloads, or of the named ones, at their endpoints in one zone, or in all zones.

    Raise NotFound if there are none.
    """
    for name in workloads or (None,):
        require_known(settings.workload, zone, name)
    found = [
        probe
        for workload in settings.workload
        if not workloads or workload.name in workloads
        for canary in workload.canary
        for probe in canary.to_probes(workload.name, workload.zones if zone is None else (zone,))
    ]
    if not found:
        scope = f" of {', '.join(workloads)}" if workloads else ""
        where = "" if zone is None else f" in zone {zone}"
        raise NotFound(f"no canary{scope} has an endpoint{where}: add a [[workload.canary]] to the settings")
    return found


def open_aws_session(settings: Settings) -> "AwsSession":
    """Open the AWS session that the settings describe. Raise MissingExtra without boto3."""
    from holdfast.engines.aws import AwsSession

    return AwsSession(build_aws_options(settings))


def build_aws_options(settings: Settings) -> "AwsOptions":
    """Return the identity, region and endpoint that the settings describe."""
    from holdfast.engines.aws import AwsOptions

    aws = settings.aws
    return AwsOptions(
        region=aws.region,
        profile=aws.profile,
        role_arn=aws.role_arn,
        external_id=aws.external_id,
        endpoint_url=aws.endpoint_url,
    )


def find_zone(settings: Settings) -> "FoundZone":
    """Return the zone of this process: `agent.zone`, or else where the platform says that it runs.

    Raise NotFound, which names every source and why it failed; or EngineUnavailable if it is worth trying again.
    """
    from holdfast.engines.aws import ZoneFinder, ZoneOptions
    from holdfast.engines.aws.zone_identity import open_own_session

    aws = settings.aws

    def open_session(region: str | None) -> "AwsSession":
        return open_own_session(region or aws.region, profile=aws.profile, endpoint_url=aws.endpoint_url)

    options = ZoneOptions(zone=settings.agent.zone, address_endpoint=aws.address_endpoint)
    return ZoneFinder(options, open_session=open_session).find()


def require_store(settings: Settings, subsystem: str, *, hint: str = "") -> None:
    """Raise NotFound if a subsystem has no store yet, so that a command that only reads does not create an empty one.

    `hint` is appended to the message. Raise SettingsError if this user may not access the data directory.
    """
    path = get_database_path(settings, subsystem)
    if path is None:
        return
    require_access(settings.data_directory)
    if not path.exists():
        raise NotFound(
            f"there is no store at {path}: name the settings or the directory that the server uses, with --settings, "
            f"HOLDFAST_SETTINGS or --data-directory{hint}"
        )


def require_access(folder: Path) -> None:
    """Raise SettingsError, which names the owner, if `folder` exists and this user may not read and write it."""
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
        ancestor = ancestor.parent  # a folder above is closed to this user: its owner can help
    user = get_user_name(os.geteuid())
    advice = advise_on_access(ancestor, owner, user, is_read_only=is_read_only(ancestor))
    raise SettingsError(f"data_directory {folder} cannot be read and written by {user}: {advice}")


def advise_on_access(path: Path, owner: str, user: str, *, is_read_only: bool) -> str:
    """Return why `user` may not read and write `path`, and what to do."""
    if is_read_only:
        return f"{path} is on a read-only filesystem; make that writable, or set another data_directory"
    if owner == user:
        return f"its mode does not allow that; run `chmod u+rwx {path}`, or set another data_directory"
    return f"{path} belongs to {owner}; do this as {owner}, or set another data_directory"


def is_read_only(path: Path) -> bool:
    """Return whether `path` is on a filesystem that no user can write to."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _find_owner(path: Path) -> str | None:
    """Return the owner of `path`, or None if this user may not see it."""
    try:
        return get_user_name(path.stat().st_uid)
    except OSError:
        return None


def get_user_name(number: int) -> str:
    """Return the name of a user of this system, or `uid-<number>` if it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run as a user without a name
        return f"uid-{number}"


def ensure_data_directory(settings: Settings) -> Path:
    """Return the data directory. Create it, closed to other users, if it does not exist."""
    path = settings.data_directory
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"data_directory {path} cannot be created: {error.strerror}") from error
    require_access(path)
    return path


def prepare_data_directory(settings: Settings) -> None:
    """Create the data directory of a server if needed. Log a warning if other users may write to it."""
    directory = ensure_data_directory(settings)
    if directory.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        logging.getLogger("holdfast.server").warning(
            "data_directory %s can be written by other users, who can replace its files and so become operators: "
            "run `chmod go-w %s`",
            directory,
            directory,
        )
