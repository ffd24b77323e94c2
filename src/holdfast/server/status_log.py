"""The log of changes of zone statuses: a history, and the last known statuses after a restart."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast._types import ZoneStatus
from holdfast.engines import Database, Migration, Transaction
from holdfast.status.stores.database import COLUMNS, decode_row, encode_row

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
                is_published bigint not null,
                unique (zone, workload, version, state, since, reason)
            )""",
            "create index holdfast_status_log_published on holdfast_status_log (is_published, number)",
        ),
    ),
)

KEPT_CHANGES = 10_000
"""Changes that are kept: years of evacuations, and a limit for a zone that flaps."""

_COLUMNS = f"number, seen_at, {COLUMNS}"
_APPEND = (
    f"insert into holdfast_status_log ({_COLUMNS}, is_published) "  # noqa: S608
    "select coalesce(max(number), 0) + 1, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 "
    "from holdfast_status_log where true on conflict (zone, workload, version, state, since, reason) do nothing"
)
# The latest change of each key stays, however old, as the last known status. So do unpublished changes.
_PRUNE = (
    "delete from holdfast_status_log where number <= (select max(number) from holdfast_status_log) - $1 "
    "and is_published = 1 and number not in (select max(number) from holdfast_status_log group by zone, workload)"
)
_LIST = f"select {_COLUMNS} from holdfast_status_log order by number desc limit $1"  # noqa: S608
_LATEST = (
    f"select {_COLUMNS} from holdfast_status_log where number in "  # noqa: S608
    "(select max(number) from holdfast_status_log group by zone, workload)"
)
_UNPUBLISHED = f"select {_COLUMNS} from holdfast_status_log where is_published = 0 order by number limit $1"  # noqa: S608
_MARK_PUBLISHED = "update holdfast_status_log set is_published = 1 where number = $1"


class StatusLogEntry(Struct, frozen=True, kw_only=True):
    """A logged change."""

    number: int
    seen_at: float
    """When this server learned of the change; `status.since` is when it was made."""
    status: ZoneStatus


class StatusLog:
    """The log of changes. Thread-safe; logging the same change again has no effect."""

    def __init__(self, database: Database, *, publishes: bool = False) -> None:
        self._database = database
        self._publishes = publishes
        database.migrate(_TABLES, MIGRATIONS)

    def append(self, status: ZoneStatus, at: float) -> None:
        """Log a change, as still to be published if `publishes` is true.

        Raise Conflict if another server logs a change at the same time: try again.
        """
        values = (at, *encode_row(status), int(not self._publishes))

        def work(transaction: Transaction) -> None:
            transaction.execute(_APPEND, values)
            transaction.execute(_PRUNE, (KEPT_CHANGES,))

        self._database.write(work)

    def latest(self) -> list[ZoneStatus]:
        """Return the last logged status of every key."""
        return [entry.status for entry in self._read(_LATEST)]

    def list(self, limit: int = 100) -> Sequence[StatusLogEntry]:
        """Return the latest changes, newest first."""
        return self._read(_LIST, limit)

    def unpublished(self, limit: int = 100) -> Sequence[StatusLogEntry]:
        """Return the changes that are still to be published, oldest first."""
        return self._read(_UNPUBLISHED, limit)

    def mark_published(self, number: int) -> None:
        self._database.write(lambda transaction: transaction.execute(_MARK_PUBLISHED, (number,)))

    def _read(self, query: str, *values: int) -> Sequence[StatusLogEntry]:
        rows = self._database.read(lambda transaction: transaction.execute(query, values))
        return [
            StatusLogEntry(number=number, seen_at=seen_at, status=decode_row(tuple(status)))
            for number, seen_at, *status in rows
        ]
