"""A lease in the database: it decides which of several servers evaluates and acts, by the database's time.

Every take-over has a new number. A former holder that was paused still has its old number, and the database refuses its
writes: see `FencedDatabase`.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Self

import msgspec

from holdfast._errors import LeaseLost
from holdfast.engines import Database, Migration, Row, Transaction
from holdfast.engines.database import Result, Value

SUBSYSTEM = "lease"
"""The name of its migrations. Its table is in the database of the watch, and in that of telemetry."""
MAX_SECONDS = 300.0
"""The longest lease. One that seems to have more left is invalid: the database's clock was set back."""

MIGRATIONS = (
    Migration(
        1,
        "the lease of the server that evaluates",
        (
            """create table holdfast_lease (
                name text primary key,
                number bigint not null,
                holder text not null,
                address text not null,
                expires_at double precision not null,
                standby_at double precision not null
            )""",
        ),
    ),
)

_NOW = {
    "sqlite": "unixepoch('now', 'subsec')",
    "postgres": "cast(extract(epoch from clock_timestamp()) as double precision)",
}
_LOCK = {"sqlite": "", "postgres": " for share"}
"""Makes a take-over wait for the end of the transaction. SQLite has one writer anyway."""
_READ = (
    "select number, holder, address, expires_at - {now}, {now} - standby_at from holdfast_lease "
    "where name = 'detection'"
)
# The number is the time in milliseconds, or one more than the last: it grows even if one of the databases is restored.
_TAKE = (
    "insert into holdfast_lease (name, number, holder, address, expires_at, standby_at) "
    "values ('detection', cast({now} * 1000 as bigint), $1, $2, {now} + $3, 0) on conflict (name) do update set "
    "number = case when holdfast_lease.number >= excluded.number then holdfast_lease.number + 1 "
    "else excluded.number end, holder = excluded.holder, address = excluded.address, "
    "expires_at = excluded.expires_at, standby_at = 0 "
    "where holdfast_lease.expires_at <= {now} or holdfast_lease.number = $4 or holdfast_lease.expires_at > {now} + $5 "
    "returning number"
)
_RENEW = (
    "update holdfast_lease set expires_at = {now} + $1 where name = 'detection' and number = $2 "
    "returning {now} - standby_at"
)
_RELEASE = "update holdfast_lease set expires_at = 0 where name = 'detection' and number = $1"
_NOTE_STANDBY = "update holdfast_lease set standby_at = {now} where name = 'detection' and number = $1"
_CHECK = "select 1 from holdfast_lease where name = 'detection' and number = $1 and expires_at > {now}"
_RAISE_FENCE = (
    "insert into holdfast_lease (name, number, holder, address, expires_at, standby_at) "
    "values ('telemetry', $1, '', '', 0, 0) on conflict (name) do update set number = excluded.number "
    "where holdfast_lease.number < excluded.number"
)
_CHECK_FENCE = "select 1 from holdfast_lease where name = 'telemetry' and number = $1"


class Lease(msgspec.Struct, frozen=True):
    """The lease, as the database has it."""

    number: int
    holder: str
    """The identity of the process that took it: see `ProcessIdentity`."""
    address: str
    """The address of the holder's API."""
    remaining: float
    """Seconds until it expires, by the database's time; negative if it has expired."""
    standby_age: float
    """Seconds since another server last waited for it."""

    @property
    def is_valid(self) -> bool:
        return 0 < self.remaining <= MAX_SECONDS


class LeaseStore:
    """The store of the lease. Thread-safe. `seconds` is the length of a lease."""

    def __init__(self, database: Database, holder: str, address: str, seconds: float) -> None:
        self._database = database
        self._holder = holder
        self.address = address
        """The address of this server."""
        self._seconds = seconds
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def read(self) -> Lease | None:
        """Return the lease, or None if no server ever took it."""
        rows = self._database.read(lambda transaction: transaction.execute(self._format(_READ)))
        return Lease(*rows[0]) if rows else None

    def take(self, *, from_ended: int = 0) -> int | None:
        """Take the lease, and return its new number; None if another server has it.

        `from_ended` is the number of a lease whose holder has ended: it need not expire first.
        """
        values = self._holder, self.address, self._seconds, from_ended, MAX_SECONDS
        rows = self._database.write_statement(self._format(_TAKE), values)
        return int(rows[0][0]) if rows else None

    def renew(self, number: int) -> float | None:
        """Prolong the lease. Return the seconds since another server waited for it; None if it has another holder.

        A lease that has expired can be prolonged as long as no other server has taken it.
        """
        values = self._seconds, number
        rows = self._database.write_statement(self._format(_RENEW), values, is_idempotent=True)
        return float(rows[0][0]) if rows else None

    def release(self, number: int) -> None:
        """Let other servers take the lease at once. May be repeated."""
        self._database.write_statement(_RELEASE, (number,), is_idempotent=True)

    def note_standby(self, number: int) -> None:
        """Tell the holder that another server waits for the lease."""
        self._database.write_statement(self._format(_NOTE_STANDBY), (number,), is_idempotent=True)

    def require(self, number: int) -> None:
        """Raise LeaseLost if the lease has expired, or has another number."""
        self._database.read(lambda transaction: _require(transaction, self._format(_CHECK), number))

    def _format(self, sql: str) -> str:
        return sql.format(now=_NOW[self._database.dialect])


class FencedDatabase:
    """A database that refuses all writes of a former holder of the lease. It raises LeaseLost in their transactions."""

    def __init__(self, database: Database, check: str, number: int) -> None:
        self._database = database
        self._check = check
        self._number = number

    @property
    def dialect(self) -> Literal["sqlite", "postgres"]:
        return self._database.dialect

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        return self._database.read(work)

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        def fenced(transaction: Transaction) -> Result:
            _require(transaction, self._check, self._number)
            return work(transaction)

        return self._database.write(fenced)

    def write_statement(self, sql: str, parameters: Sequence[Value] = (), *, is_idempotent: bool = False) -> list[Row]:
        del is_idempotent  # a transaction whose outcome is unknown raises, and the caller repeats it
        return self.write(lambda transaction: transaction.execute(sql, parameters))

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        return self._database.migrate(subsystem, migrations)

    def check(self) -> None:
        self._database.check()

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def fence_by_lease(database: Database, number: int) -> FencedDatabase:
    """Return the database of the lease, for the holder of this number: it refuses writes after the lease expired."""
    check = _CHECK.format(now=_NOW[database.dialect]) + _LOCK[database.dialect]
    return FencedDatabase(database, check, number)


def fence_by_number(database: Database, number: int) -> FencedDatabase:
    """Return another database for the holder of this number: it refuses writes after a later holder called this."""
    database.migrate(SUBSYSTEM, MIGRATIONS)
    database.write_statement(_RAISE_FENCE, (number,), is_idempotent=True)
    return FencedDatabase(database, _CHECK_FENCE + _LOCK[database.dialect], number)


def _require(transaction: Transaction, check: str, number: int) -> None:
    if not transaction.execute(check, (number,)):
        raise LeaseLost(f"this server no longer evaluates: its lease {number} has expired, or another server took over")
