"""Every change of a zone's status, with who and when: a history, and what is last known good after a restart."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast._types import ZoneStatus
from holdfast.engines import Database, Migration, Transaction
from holdfast.status.stores.database import COLUMNS, status_of, values_of

SUBSYSTEM = "status"
_TABLES = "status_log"

MIGRATIONS = (
    Migration(
        1,
        "the history of zone statuses",
        (
            """create table holdfast_status_log (
                number bigint primary key,
                seen_at double precision not null,
                zone text not null,
                workload text not null,
                state text not null,
                share double precision,
                since double precision not null,
                written_by text not null,
                reason text not null,
                expires double precision,
                version bigint not null,
                is_announced bigint not null,
                unique (zone, workload, version, state, since, reason)
            )""",
            "create index holdfast_status_log_announced on holdfast_status_log (is_announced, number)",
        ),
    ),
)

KEPT = 10_000
"""Changes that are kept: years of evacuations, and a bound for a zone that flaps."""

_COLUMNS = f"number, seen_at, {COLUMNS}"
_APPEND = (
    f"insert into holdfast_status_log ({_COLUMNS}, is_announced) "  # noqa: S608
    "select coalesce(max(number), 0) + 1, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 "
    "from holdfast_status_log where true on conflict (zone, workload, version, state, since, reason) do nothing"
)
# The latest of each key stays, however old: it may be what is last known good. So does what is still to be announced.
_PRUNE = (
    "delete from holdfast_status_log where number <= (select max(number) from holdfast_status_log) - $1 "
    "and is_announced = 1 and number not in (select max(number) from holdfast_status_log group by zone, workload)"
)
_LIST = f"select {_COLUMNS} from holdfast_status_log order by number desc limit $1"  # noqa: S608
_LATEST = (
    f"select {_COLUMNS} from holdfast_status_log where number in "  # noqa: S608
    "(select max(number) from holdfast_status_log group by zone, workload)"
)
_UNANNOUNCED = f"select {_COLUMNS} from holdfast_status_log where is_announced = 0 order by number limit $1"  # noqa: S608
_ANNOUNCED = "update holdfast_status_log set is_announced = 1 where number = $1"


class Logged(Struct, frozen=True, kw_only=True):
    """A change as it was recorded."""

    number: int
    seen_at: float
    """When this server learned of it; the status says when it was made."""
    status: ZoneStatus


class StatusLog:
    """Records changes. Thread-safe; recording the same one again changes nothing."""

    def __init__(self, database: Database, *, announces: bool = False) -> None:
        self._database = database
        self._announces = announces
        database.migrate(_TABLES, MIGRATIONS)

    def append(self, status: ZoneStatus, at: float) -> None:
        """Record a change. If changes are announced, it is to be.

        Raises Conflict when another server records something at the same moment: do it again.
        """
        values = (at, *values_of(status), int(not self._announces))

        def work(transaction: Transaction) -> None:
            transaction.execute(_APPEND, values)
            transaction.execute(_PRUNE, (KEPT,))

        self._database.write(work)

    def latest(self) -> list[ZoneStatus]:
        """The last recorded status of every key."""
        return [entry.status for entry in self._read(_LATEST)]

    def list(self, limit: int = 100) -> Sequence[Logged]:
        """The latest changes, newest first."""
        return self._read(_LIST, limit)

    def unannounced(self, limit: int = 100) -> Sequence[Logged]:
        """The changes that are still to be announced, oldest first."""
        return self._read(_UNANNOUNCED, limit)

    def announced(self, number: int) -> None:
        """Record that a change was announced."""
        self._database.write(lambda transaction: transaction.execute(_ANNOUNCED, (number,)))

    def _read(self, query: str, *values: int) -> Sequence[Logged]:
        rows = self._database.read(lambda transaction: transaction.execute(query, values))
        return [
            Logged(number=number, seen_at=seen_at, status=status_of(tuple(status))) for number, seen_at, *status in rows
        ]
