"""Zone statuses in SQLite or PostgreSQL."""

from collections.abc import Sequence

from holdfast._types import Zone, ZoneStatus
from holdfast.engines import Database, Migration, Row
from holdfast.status.stores.rules import EXPIRED, EXPIRY, checked, conflict

SUBSYSTEM = "status"

MIGRATIONS = (
    Migration(
        1,
        "zone statuses",
        (
            # Workload '' stands for all: a key cannot hold null.
            """create table holdfast_zone_status (
                zone text not null,
                workload text not null,
                is_out bigint not null,
                since double precision not null,
                written_by text not null,
                reason text not null,
                expires double precision,
                version bigint not null,
                primary key (zone, workload)
            )""",
        ),
    ),
)

COLUMNS = "zone, workload, is_out, since, written_by, reason, expires, version"
"""What a status is kept in, here and in the record of changes."""
_READ = f"select {COLUMNS} from holdfast_zone_status"  # noqa: S608 - nothing but our own names
_INSERT = (
    f"insert into holdfast_zone_status ({COLUMNS}) "  # noqa: S608
    f"values ($1, $2, $3, $4, $5, $6, $7, 1) on conflict do nothing returning {COLUMNS}"
)
_UPDATE = (
    "update holdfast_zone_status set is_out = $1, since = $2, written_by = $3, reason = $4, expires = $5, "  # noqa: S608
    f"version = version + 1 where zone = $6 and workload = $7 and version = $8 returning {COLUMNS}"
)
_EXPIRE = (
    "update holdfast_zone_status set is_out = 0, since = $1, written_by = $2, reason = $3 || reason || $4, "  # noqa: S608
    f"expires = null, version = version + 1 where is_out <> 0 and expires <= $1 returning {COLUMNS}"
)


class SqlStatusStore:
    """Zone statuses in a database. Thread-safe; see `holdfast.StatusStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def read(self) -> Sequence[ZoneStatus]:
        rows = self._database.read(lambda transaction: transaction.execute(_READ))
        return [status_of(row) for row in rows]

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        values = values_of(checked(status))
        key, value = values[:2], values[2:-1]
        if expected == 0:
            rows = self._database.write(lambda transaction: transaction.execute(_INSERT, (*key, *value)))
        else:
            rows = self._database.write(lambda transaction: transaction.execute(_UPDATE, (*value, *key, expected)))
        if not rows:
            raise conflict(status, expected)
        return status_of(rows[0])

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        rows = self._database.write(lambda transaction: transaction.execute(_EXPIRE, (now, EXPIRY, *EXPIRED)))
        return [status_of(row) for row in rows]


def values_of(status: ZoneStatus) -> tuple[str | float | None, ...]:
    """The status as a row of the columns."""
    return (
        status.zone,
        status.workload or "",
        int(status.out),
        status.since,
        status.by,
        status.reason,
        status.expires,
        status.version,
    )


def status_of(row: Row) -> ZoneStatus:
    """The status that a row of the columns stands for."""
    zone, workload, is_out, since, by, reason, expires, version = row
    return ZoneStatus(
        zone=Zone(zone),
        workload=workload or None,
        out=bool(is_out),
        since=since,
        by=by,
        reason=reason,
        expires=expires,
        version=version,
    )
