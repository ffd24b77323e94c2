"""One connection to PostgreSQL, set up the way Holdfast needs it, and one that listens for notifications."""

import math
import select
from dataclasses import dataclass, field
from typing import TypeAlias

import psycopg
from psycopg.abc import Buffer, ConnDict
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from holdfast._errors import EngineError, EngineMismatch, InvalidValue
from holdfast.engines.database import Row

APPLICATION_NAME_BYTES = 63
"""PostgreSQL cuts names there: https://www.postgresql.org/docs/current/runtime-config-logging.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Where the database is and how to use it. Durations are seconds; the password is in no repr and no message."""

    url: str = field(repr=False)
    """`postgresql://user:password@host:5432/database`, with libpq's parameters after `?`. Holdfast sets `search_path`
    nowhere, so `?options=-csearch_path%3Dname` puts its tables into a schema of their own. Needs sessions: a proxy
    that hands each transaction to another one (PgBouncer's transaction mode) would lose the timeouts."""
    min_connections: int = 1
    """Connections that are kept however long they lie idle. With one, the next caller need not wait for a new one."""
    max_connections: int = 10
    """Most connections at once. PostgreSQL allows 100 by default: nine such processes leave some for people."""
    timeout: float = 30.0
    """How long to wait for a free connection, and to go on trying while the server is away, before EngineUnavailable.
    A restart takes seconds and a failover to a standby mostly under 30."""
    statement_timeout: float = 30.0
    """Longest that one statement may run, or a transaction sit between two of them. As long as `timeout`: more would
    keep callers waiting for longer than an outage does. Migrations are exempt."""
    application_name: str = "holdfast"
    """Their name in `pg_stat_activity`, unless the url says otherwise: tells them from the service's own."""

    def __post_init__(self) -> None:
        if self.url.partition("://")[0] not in {"postgresql", "postgres"}:
            # Nothing of it is shown: without a scheme there is no telling which part is the password.
            raise InvalidValue("url must look like postgresql://user:password@host:5432/database; its scheme does not")
        if not _is_valid_url(self.url):
            raise InvalidValue(
                f"url {_mask_url(self.url)!r} cannot be read: expected postgresql://user:password@host:5432/database "
                "with known parameters, and special characters of the password written as %XX"
            )
        if self.min_connections < 0:
            raise InvalidValue(f"min_connections is {self.min_connections}: expected 0 or more")
        if self.max_connections < max(1, self.min_connections):
            raise InvalidValue(
                f"max_connections is {self.max_connections}: expected 1 or more, and not less than min_connections, "
                f"which is {self.min_connections}"
            )
        if not 0 <= self.timeout < math.inf:
            raise InvalidValue(f"timeout is {self.timeout}: expected seconds, 0 or more")
        if not 0.001 <= self.statement_timeout <= 86_400:
            raise InvalidValue(f"statement_timeout is {self.statement_timeout}: expected 0.001 to 86400 seconds")
        if not (self.application_name.isascii() and self.application_name.isprintable()):
            raise InvalidValue(f"application_name is {self.application_name!r}: expected printable ASCII")
        if not 1 <= len(self.application_name) <= APPLICATION_NAME_BYTES:
            raise InvalidValue(
                f"application_name is {self.application_name!r}: expected 1 to {APPLICATION_NAME_BYTES} characters"
            )

    @property
    def location(self) -> str:
        """`host:port/database` for messages, without user and password; several hosts are separated by commas."""
        parts = conninfo_to_dict(self.url)
        hosts = str(parts.get("host") or parts.get("hostaddr") or "localhost").split(",")
        ports = str(parts.get("port") or "").split(",")
        if len(ports) < len(hosts):
            ports *= len(hosts)
        database = parts.get("dbname") or parts.get("user") or ""
        return ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False)) + f"/{database}"


def _is_valid_url(url: str) -> bool:
    """Whether libpq takes the url, and as what was meant."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return False  # its own words are left out: they quote the part that it did not understand
    # A password with a bare `/` or `@` ends up in these, and from there in messages.
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    return not misread and str(parts.get("port") or "0").replace(",", "").isdecimal()


def _mask_url(url: str) -> str:
    """The url without what may be secret: user and password before the last `@`, parameters after `?`."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{'...@' if '@' in rest else ''}{rest.rpartition('@')[2].partition('?')[0]}"


PostgresConnection: TypeAlias = psycopg.Connection[Row]

IDLE_SECONDS = 3.0
"""Longest that a transaction may have nothing to say: others wait for its locks. Works do nothing but speak to it; one
that stands still for longer belongs to a process that does, and is run again when that goes on."""
MINIMUM_VERSION = 14
"""The oldest that still got security fixes in the year in which Holdfast was begun:
https://www.postgresql.org/support/versioning/"""

CONNECT_TIMEOUT = 5
"""Longest wait for one address to answer, in seconds. A new connection takes milliseconds; a host that fell silent is
worth a few retransmissions of the first packet (after 1 and 3 s), not the whole timeout."""

# A server whose zone lost power closes no connection: without these, a reply would be waited for until the kernel's
# defaults run out, after two hours. 10 + 3 x 5 = 25 seconds of silence are the end.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}


class _NumericLoader(Loader):
    """`sum` and `avg` of bigint are numeric here: as int or float they are what SQLite returns."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        try:
            return int(text)
        except ValueError:
            return float(text)


def connect(options: PostgresOptions, timeout: float) -> PostgresConnection:
    """Open a connection. Raises psycopg.Error when it cannot be had, EngineMismatch when it would not do."""
    parameters: ConnDict = {
        "application_name": options.application_name,
        "connect_timeout": max(1, min(CONNECT_TIMEOUT, math.ceil(timeout))),
        **_KEEPALIVE,
        **conninfo_to_dict(options.url),
        "client_encoding": "UTF8",
    }
    connection: PostgresConnection = psycopg.connect(
        make_conninfo("", **parameters), autocommit=True, cursor_factory=psycopg.RawCursor
    )
    try:
        _require_usable(connection, options.location)
        _set_up(connection, options)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_usable(connection: PostgresConnection, location: str) -> None:
    if connection.info.server_version < MINIMUM_VERSION * 10_000:
        found = connection.info.parameter_status("server_version")
        raise EngineMismatch(
            f"PostgreSQL at {location} is version {found}: Holdfast needs {MINIMUM_VERSION} or newer; "
            "upgrade the server"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise EngineMismatch(
            f"the database {location} stores text as {encoding}, which cannot hold every tenant's name: "
            "create one with encoding UTF8"
        )


def _set_up(connection: PostgresConnection, options: PostgresOptions) -> None:
    # One type for every integer, 64 bits as in SQLite: by default the type, and with it the prepared statement and
    # the result of arithmetic, would depend on how large the number happens to be.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_loader("numeric", _NumericLoader)
    idle = min(IDLE_SECONDS, options.statement_timeout)
    # A client that dies or stands still inside a transaction leaves its locks until the second of these. The third
    # keeps the promise that a commit is durable where the server's default is that it is not.
    connection.execute(
        "select set_config('statement_timeout', $1, false), "
        "set_config('idle_in_transaction_session_timeout', $2, false), "
        "set_config('synchronous_commit', "
        "replace(current_setting('synchronous_commit'), 'off', 'local'), false)",
        (_milliseconds(options.statement_timeout), _milliseconds(idle)),
    )
    connection.autocommit = False


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))


def is_disconnected(connection: PostgresConnection) -> bool:
    """Whether the server has already hung up, as far as can be told without asking it."""
    if connection.closed:
        return True
    # Between a reply and the next statement a server has nothing to say but notices, or that it is leaving.
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    try:
        while poller.poll(0):
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return False


class NotificationListener:
    """Hears what is notified on one channel, as long as the connection holds. For one thread at a time."""

    def __init__(self, options: PostgresOptions, channel: str) -> None:
        self._options = options
        self._channel = channel
        self._connection: PostgresConnection | None = None

    def wait_for_notifications(self, seconds: float) -> list[str] | None:
        """Wait for notifications; their texts. None: there is, or was until now, no connection: anything may be new."""
        try:
            if self._connection is None:
                self._connection = self._connect()
                return None  # what was notified before this nobody has heard
            notifications = self._connection.notifies(timeout=seconds, stop_after=1)
            return [notification.payload for notification in notifications]
        except (psycopg.Error, EngineError):
            self.close()
            return None

    def close(self) -> None:
        """Hang up. May be repeated."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> PostgresConnection:
        connection = connect(self._options, CONNECT_TIMEOUT)
        try:
            connection.autocommit = True
            connection.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(self._channel)))
        except BaseException:
            connection.close()
            raise
        return connection
