"""Zone statuses in SQLite or PostgreSQL."""

from collections.abc import Sequence

from holdfast._errors import Conflict
from holdfast._types import Zone, ZoneStatus
from holdfast.engines import Database, Migration, Row

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

_READ = "select zone, workload, is_out, since, written_by, reason, expires, version from holdfast_zone_status"
_INSERT = (
    "insert into holdfast_zone_status (zone, workload, is_out, since, written_by, reason, expires, version) "
    "values ($1, $2, $3, $4, $5, $6, $7, 1) on conflict do nothing "
    "returning zone, workload, is_out, since, written_by, reason, expires, version"
)
_UPDATE = (
    "update holdfast_zone_status set is_out = $1, since = $2, written_by = $3, reason = $4, expires = $5, "
    "version = version + 1 where zone = $6 and workload = $7 and version = $8 "
    "returning zone, workload, is_out, since, written_by, reason, expires, version"
)


class SqlStatusStore:
    """Zone statuses in a database. Thread-safe; see `holdfast.StatusStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def read(self) -> Sequence[ZoneStatus]:
        rows = self._database.read(lambda transaction: transaction.execute(_READ))
        return [_status(row) for row in rows]

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        key = (status.zone, status.workload or "")
        value = (int(status.out), status.since, status.by, status.reason, status.expires)
        if expected == 0:
            rows = self._database.write(lambda transaction: transaction.execute(_INSERT, (*key, *value)))
        else:
            rows = self._database.write(lambda transaction: transaction.execute(_UPDATE, (*value, *key, expected)))
        if not rows:
            raise Conflict(
                f"the status of zone {status.zone} for {status.workload or 'all workloads'} is not at version "
                f"{expected} any more: read it again, then decide again"
            )
        return _status(rows[0])


def _status(row: Row) -> ZoneStatus:
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
