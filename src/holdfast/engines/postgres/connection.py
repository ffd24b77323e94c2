"""Connections to PostgreSQL: options, set-up, and a listener for notifications."""

import math
import select
from dataclasses import dataclass, field
from typing import TypeAlias

import psycopg
from psycopg import pq
from psycopg.abc import Buffer, ConnDict
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from holdfast._errors import EngineError, EngineMismatch, InvalidValue
from holdfast.engines.database import Row

APPLICATION_NAME_BYTES = 63
"""PostgreSQL truncates longer names: https://www.postgresql.org/docs/current/runtime-config-logging.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """The address of the database, limits and timeouts in seconds. `repr` and messages omit the password."""

    url: str = field(repr=False)
    """`postgresql://user:password@host:5432/database`, with libpq's parameters after `?`. Holdfast never sets
    `search_path`, so `?options=-csearch_path%3Dname` puts its tables into a separate schema. Needs sessions: a proxy
    that runs each transaction in another session (PgBouncer's transaction mode) would lose the timeouts."""
    min_connections: int = 1
    """Idle connections that stay open. With one, the next caller need not wait for a new connection."""
    max_connections: int = 10
    """Maximum number of connections. PostgreSQL allows 100 by default: nine such processes leave some for operators."""
    timeout: float = 30.0
    """Maximum time to wait for a free connection, or to retry while the server is unavailable, before raising
    EngineUnavailable. A restart takes seconds, and a failover to a standby usually less than 30."""
    statement_timeout: float = 30.0
    """Maximum time of one statement, or between two statements of a transaction. Equal to `timeout`, so that callers
    do not wait longer than in an outage. Migrations are exempt."""
    application_name: str = "holdfast"
    """The name in `pg_stat_activity`, unless the url sets one: distinguishes these connections from the service's."""

    def __post_init__(self) -> None:
        if self.url.partition("://")[0] not in {"postgresql", "postgres"}:
            # Without a scheme, any part may be the password, so the message shows nothing of the url.
            raise InvalidValue(
                "the scheme of url is not postgresql: expected postgresql://user:password@host:5432/database"
            )
        if not _is_valid_url(self.url):
            raise InvalidValue(
                f"url {_mask_url(self.url)!r} is not valid: expected postgresql://user:password@host:5432/database "
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
        """`host:port/database` for messages, without user and password. Several hosts are separated by commas."""
        parts = conninfo_to_dict(self.url)
        hosts = str(parts.get("host") or parts.get("hostaddr") or "localhost").split(",")
        ports = str(parts.get("port") or "").split(",")
        if len(ports) < len(hosts):
            ports *= len(hosts)
        database = parts.get("dbname") or parts.get("user") or ""
        return ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False)) + f"/{database}"


def _is_valid_url(url: str) -> bool:
    """Return whether libpq accepts the url, and does not take part of the password for a host, port or database."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return False  # its message is omitted, because it may quote the password
    # A password with a bare `/` or `@` ends up in these parts, and would be shown in messages.
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    return not misread and str(parts.get("port") or "0").replace(",", "").isdecimal()


def _mask_url(url: str) -> str:
    """Return the url without the parts that may be secret: before the last `@`, and after `?`."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{'...@' if '@' in rest else ''}{rest.rpartition('@')[2].partition('?')[0]}"


PostgresConnection: TypeAlias = psycopg.Connection[Row]

IDLE_SECONDS = 3.0
"""Maximum idle time inside a transaction, because others wait for its locks. Transactions only run statements, so a
longer pause means that the whole process is suspended. The transaction is run again when the process continues."""
MINIMUM_VERSION = 14
"""The oldest version with security fixes in the year when Holdfast was started:
https://www.postgresql.org/support/versioning/"""

CONNECT_TIMEOUT = 5
"""Maximum wait for one address to answer, in seconds. A new connection takes milliseconds. A host that does not answer
gets a few retransmissions of the first packet (after 1 and 3 s), not the whole timeout."""

# A server whose zone lost power closes no connection. Without these options, a client would wait for its reply for two
# hours, the kernel's default. With them, a connection ends after 10 + 3 x 5 = 25 seconds without an answer.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}


class _NumericLoader(Loader):
    """A loader that returns `numeric`, such as `sum` and `avg` of bigint, as int or float, like SQLite does."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        try:
            return int(text)
        except ValueError:
            return float(text)


def connect(options: PostgresOptions, timeout: float) -> PostgresConnection:
    """Open a connection. Raise psycopg.Error if that fails, EngineMismatch if the server is not suitable."""
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
            f"the database {location} stores text as {encoding}, which cannot represent every tenant's name: "
            "create a database with encoding UTF8"
        )


def _set_up(connection: PostgresConnection, options: PostgresOptions) -> None:
    # All integers have 64 bits, as in SQLite. By default, their type would depend on the size of the number, and with
    # it the prepared statement and the result of arithmetic.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_loader("numeric", _NumericLoader)
    idle = min(IDLE_SECONDS, options.statement_timeout)
    # The second releases the locks of a client that was killed or suspended inside a transaction. The third makes
    # commits durable even if the server's default is asynchronous.
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
    """Return whether the server has closed the connection, as far as is known without a round trip."""
    if connection.closed:
        return True
    # Between two statements, a server sends only notices, or that it closes the connection.
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    try:
        while poller.poll(0):
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return False


def is_stuck(connection: PostgresConnection) -> bool:
    """Return whether the connection still waits for replies after a statement has failed: it cannot be used again.

    psycopg sends the statements of a batch through libpq's pipeline. If the server ends the connection meanwhile, the
    last replies never come, and libpq refuses to leave the pipeline.
    """
    return connection.pgconn.pipeline_status != pq.PipelineStatus.OFF


class NotificationListener:
    """A listener for notifications on one channel. Not thread-safe."""

    def __init__(self, options: PostgresOptions, channel: str) -> None:
        self._options = options
        self._channel = channel
        self._connection: PostgresConnection | None = None

    def wait_for_notifications(self, seconds: float) -> list[str] | None:
        """Wait up to `seconds` for notifications and return their texts, or None if some may have been missed."""
        try:
            if self._connection is None:
                self._connection = self._connect()
                return None  # there was no connection before, so notifications may have been missed
            notifications = self._connection.notifies(timeout=seconds, stop_after=1)
            return [notification.payload for notification in notifications]
        except (psycopg.Error, EngineError):
            self.close()
            return None

    def close(self) -> None:
        """Close the connection. May be repeated."""
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
