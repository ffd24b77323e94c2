"""Zone statuses in SQLite or PostgreSQL."""

from collections.abc import Sequence

from holdfast._types import Zone, ZoneState, ZoneStatus
from holdfast.engines import Database, Migration, Row
from holdfast.status.stores import STATUS_STORES, StatusStoreType
from holdfast.status.stores.rules import ABSENT_VERSION, EXPIRED_REASON, EXPIRY, build_conflict, check_status

SUBSYSTEM = "status"

MIGRATIONS = (
    Migration(
        1,
        "zone statuses",
        (
            # The workload '' means all workloads: a primary key cannot contain null.
            """create table holdfast_zone_status (
                zone text not null,
                workload text not null,
                state text not null,
                share double precision,
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

COLUMNS = "zone, workload, state, share, since, written_by, reason, expires, version"
"""The columns of a status, here and in the log of changes."""
_PLAIN = ("share", "since", "by", "reason", "expires", "version")
"""The fields that are stored unchanged: the columns from the fourth on."""
_READ = f"select {COLUMNS} from holdfast_zone_status"  # noqa: S608 - nothing but our own names
_INSERT = (
    f"insert into holdfast_zone_status ({COLUMNS}) "  # noqa: S608
    f"values ($1, $2, $3, $4, $5, $6, $7, $8, 1) on conflict do nothing returning {COLUMNS}"
)
_UPDATE = (
    "update holdfast_zone_status set state = $1, share = $2, since = $3, written_by = $4, reason = $5, expires = $6, "  # noqa: S608
    f"version = version + 1 where zone = $7 and workload = $8 and version = $9 returning {COLUMNS}"
)
_EXPIRE = (
    "update holdfast_zone_status set state = 'in', share = null, since = $1, written_by = $2, "  # noqa: S608
    "reason = $3 || reason || $4, expires = null, version = version + 1 where state <> 'in' and expires <= $1 "
    f"returning {COLUMNS}"
)


class SqlStatusStore:
    """Zone statuses in a database. Thread-safe; see `holdfast.StatusStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def read(self) -> Sequence[ZoneStatus]:
        rows = self._database.read(lambda transaction: transaction.execute(_READ))
        return [decode_row(row) for row in rows]

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        zone, workload, *values, _ = encode_row(check_status(status))  # the statements set the version
        if expected == ABSENT_VERSION:
            rows = self._database.write(lambda transaction: transaction.execute(_INSERT, (zone, workload, *values)))
        else:
            parameters = (*values, zone, workload, expected)
            rows = self._database.write(lambda transaction: transaction.execute(_UPDATE, parameters))
        if not rows:
            raise build_conflict(status, expected)
        return decode_row(rows[0])

    def expire(self, now: float) -> Sequence[ZoneStatus]:
        prefix, suffix = EXPIRED_REASON.split("{}")
        rows = self._database.write(lambda transaction: transaction.execute(_EXPIRE, (now, EXPIRY, prefix, suffix)))
        return [decode_row(row) for row in rows]


def encode_row(status: ZoneStatus) -> tuple[str | float | None, ...]:
    """Return the status as a row of COLUMNS."""
    return status.zone, status.workload or "", str(status.state), *(getattr(status, name) for name in _PLAIN)


def decode_row(row: Row) -> ZoneStatus:
    """Return the status in a row of COLUMNS."""
    zone, workload, state, *plain = row
    rest = dict(zip(_PLAIN, plain, strict=True))
    return ZoneStatus(zone=Zone(zone), workload=workload or None, state=ZoneState(state), **rest)


STATUS_STORES.register("database")(
    StatusStoreType("database", "", lambda _, resources: SqlStatusStore(resources.database(SUBSYSTEM)))
)
