"""What can be said about a PostgreSQL server: where it is, and how patient to be with it."""

import math
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast._errors import InvalidValue

APPLICATION_NAME_BYTES = 63
"""PostgreSQL cuts names there: https://www.postgresql.org/docs/current/runtime-config-logging.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Where the database is and how to use it. Durations are seconds; the password is in no repr and no message."""

    url: str = field(repr=False)
    """`postgresql://user:password@host:5432/database`, with libpq's parameters after `?`. Holdfast sets `search_path`
    nowhere, so `?options=-csearch_path%3Dname` puts its tables into a schema of their own. Needs sessions: a proxy
    that hands each transaction to another one (PgBouncer's transaction mode) would lose the timeouts."""
    pool_minimum: int = 1
    """Connections that are kept however long they lie idle. One: the next caller need not wait for a new one (some
    milliseconds), and a process that rarely writes holds no more of the server's connections."""
    pool_maximum: int = 10
    """Most connections at once. PostgreSQL allows 100 by default: nine such processes leave some for people."""
    patience: float = 30.0
    """How long to wait for a free connection, and to go on trying while the server is away, before EngineUnavailable.
    A restart takes seconds and a failover to a standby mostly under 30."""
    statement_timeout: float = 30.0
    """Longest that one statement may run, or a transaction sit between two of them, before the server ends it. As
    long as `patience`: more would keep callers waiting for longer than an outage does. Migrations are exempt."""
    application_name: str = "holdfast"
    """How the connections are called in `pg_stat_activity`, unless the url says otherwise. Ours, so that an operator
    can tell them from the service's own."""

    def __post_init__(self) -> None:
        if self.url.partition("://")[0] not in {"postgresql", "postgres"}:
            # Nothing of it is shown: without a scheme there is no telling which part is the password.
            raise InvalidValue("url must look like postgresql://user:password@host:5432/database; its scheme does not")
        if not _is_readable(self.url):
            raise InvalidValue(
                f"url {_visible(self.url)!r} cannot be read: expected postgresql://user:password@host:5432/database "
                "with known parameters, and special characters of the password written as %XX"
            )
        if self.pool_minimum < 0:
            raise InvalidValue(f"pool_minimum is {self.pool_minimum}: expected 0 or more")
        if self.pool_maximum < max(1, self.pool_minimum):
            raise InvalidValue(
                f"pool_maximum is {self.pool_maximum}: expected 1 or more, and not less than pool_minimum, "
                f"which is {self.pool_minimum}"
            )
        if not 0 <= self.patience < math.inf:
            raise InvalidValue(f"patience is {self.patience}: expected seconds, 0 or more")
        if not 0.001 <= self.statement_timeout <= 86_400:
            raise InvalidValue(f"statement_timeout is {self.statement_timeout}: expected 0.001 to 86400 seconds")
        if not (self.application_name.isascii() and self.application_name.isprintable()):
            raise InvalidValue(f"application_name is {self.application_name!r}: expected printable ASCII")
        if not 1 <= len(self.application_name) <= APPLICATION_NAME_BYTES:
            raise InvalidValue(
                f"application_name is {self.application_name!r}: expected 1 to {APPLICATION_NAME_BYTES} characters"
            )

    @property
    def place(self) -> str:
        """`host:port/database` for messages, without user and password; several hosts are separated by commas."""
        parts = conninfo_to_dict(self.url)
        hosts = str(parts.get("host") or parts.get("hostaddr") or "localhost").split(",")
        ports = str(parts.get("port") or "").split(",")
        if len(ports) < len(hosts):
            ports *= len(hosts)
        database = parts.get("dbname") or parts.get("user") or ""
        return ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False)) + f"/{database}"


def _is_readable(url: str) -> bool:
    """Whether libpq takes the url, and as what was meant."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return False  # its own words are left out: they quote the part that it did not understand
    # A password with a bare `/` or `@` ends up in these, and from there in messages.
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    return not misread and str(parts.get("port") or "0").replace(",", "").isdecimal()


def _visible(url: str) -> str:
    """The url without what may be secret: user and password before the last `@`, parameters after `?`."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{'...@' if '@' in rest else ''}{rest.rpartition('@')[2].partition('?')[0]}"
