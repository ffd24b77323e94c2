"""Store every verdict from its opening to its closing, the state of each detector, and positions of sources."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.alerts import AlertedVerdict
from holdfast.detect.encoding import decode_state, encode_state
from holdfast.engines import Database, Migration, Row, Transaction

SUBSYSTEM = "watch"

MIGRATIONS = (
    Migration(
        1,
        "verdicts and the states of detectors",
        (
            """create table holdfast_verdict (
                id text primary key,
                workload text not null,
                kind text not null,
                zone text,
                resource text,
                since double precision not null,
                summary text not null,
                evidence text not null,
                opened_at double precision not null,
                closed_at double precision
            )""",
            """create table holdfast_detector_state (
                workload text primary key,
                detector text not null,
                saved_at double precision not null,
                state text not null
            )""",
        ),
    ),
    Migration(
        2,
        "positions of telemetry sources",
        ("create table holdfast_source_position (source text primary key, position text not null)",),
    ),
    Migration(
        3,
        "the states of alarms, and their history",
        (
            """create table holdfast_alarm_state (
                workload text not null,
                name text not null,
                value text not null,
                reason text not null,
                reason_data text,
                updated_at double precision not null,
                primary key (workload, name)
            )""",
            """create table holdfast_alarm_history (
                workload text not null,
                name text not null,
                at double precision not null,
                alarm_type text not null,
                item_type text not null,
                summary text not null,
                content text not null,
                primary key (workload, name, at)
            )""",
            "create index holdfast_alarm_history_at on holdfast_alarm_history (workload, at)",
            """create table holdfast_alarm_evaluation (
                workload text primary key,
                evaluated_at double precision not null,
                operations text not null
            )""",
        ),
    ),
    Migration(
        4,
        "withheld actions and definitions of alarms, and several history items of an alarm at the same time",
        (
            "alter table holdfast_alarm_evaluation add column suppressed text not null default '{}'",
            """create table holdfast_alarm_definition (
                workload text not null,
                name text not null,
                alarm_type text not null,
                digest text not null,
                about_operation integer not null,
                primary key (workload, name)
            )""",
            "drop index holdfast_alarm_history_at",
            "alter table holdfast_alarm_history rename to holdfast_alarm_history_before",
            """create table holdfast_alarm_history (
                workload text not null,
                name text not null,
                at double precision not null,
                position integer not null,
                alarm_type text not null,
                item_type text not null,
                summary text not null,
                content text not null,
                primary key (workload, name, at, position)
            )""",
            """insert into holdfast_alarm_history
                (workload, name, at, position, alarm_type, item_type, summary, content)
                select workload, name, at, 0, alarm_type, item_type, summary, content
                from holdfast_alarm_history_before""",
            "drop table holdfast_alarm_history_before",
            "create index holdfast_alarm_history_at on holdfast_alarm_history (workload, at)",
        ),
    ),
    Migration(
        5,
        "notes about the last evaluation steps of alarms, and details in their history",
        (
            "alter table holdfast_alarm_evaluation add column notes text not null default '[]'",
            "alter table holdfast_alarm_history add column is_detail integer not null default 0",
            # Alarms about operations have a slash in their names.
            """update holdfast_alarm_history set is_detail = 1
                where replace(name, '/', '') <> name or summary = 'Alarm updated from INSUFFICIENT_DATA to OK'""",
        ),
    ),
    Migration(
        6,
        "the verdict of the latest window",
        ("alter table holdfast_detector_state add column verdict text",),
    ),
)

_COLUMNS = "id, workload, kind, zone, resource, since, summary, evidence, opened_at, closed_at"
_OPEN = (
    "insert into holdfast_verdict (id, workload, kind, zone, resource, since, summary, evidence, opened_at) "
    "values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (id) do nothing"
)
_CLOSE = "update holdfast_verdict set closed_at = $1 where id = $2 and closed_at is null"
_OPEN_VERDICTS = f"select {_COLUMNS} from holdfast_verdict where closed_at is null order by opened_at desc"  # noqa: S608
_LIST = f"select {_COLUMNS} from holdfast_verdict order by opened_at desc limit $1"  # noqa: S608 - our own names
_FIND = f"select {_COLUMNS} from holdfast_verdict where id = $1"  # noqa: S608 - our own names
_SAVE = (
    "insert into holdfast_detector_state (workload, detector, saved_at, state, verdict) values ($1, $2, $3, $4, $5) "
    "on conflict (workload) do update set detector = excluded.detector, saved_at = excluded.saved_at, "
    "state = excluded.state, verdict = excluded.verdict"
)
_LOAD = "select state, saved_at from holdfast_detector_state where workload = $1 and detector = $2"
_LOAD_CURRENT = "select detector, verdict from holdfast_detector_state where workload = $1 and verdict is not null"

_SAVE_POSITION = (
    "insert into holdfast_source_position (source, position) values ($1, $2) "
    "on conflict (source) do update set position = excluded.position"
)
_LOAD_POSITION = "select position from holdfast_source_position where source = $1"


class RecordedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as it was recorded, with the summary and the evidence of its opening."""

    id: str
    workload: str
    kind: VerdictKind
    zone: Zone | None
    resource: str | None
    since: float
    summary: str
    evidence: dict[str, Any]
    opened_at: float
    """Time at which the verdict was recorded, some seconds after the end of the window that led to it."""
    closed_at: float | None

    def to_verdict(self) -> Verdict:
        """Return the verdict as it was when it opened."""
        fields = msgspec.structs.asdict(self)
        del fields["closed_at"]
        return Verdict(at=fields.pop("opened_at"), **fields)


class WatchStore:
    """The store of verdicts, detector states and positions of sources. Thread-safe. Every change may be repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    @property
    def database(self) -> Database:
        """The database, for other stores of the watch."""
        return self._database

    def record(
        self,
        workload: str,
        detector: str,
        state: Any,
        at: float,
        *,
        opened: Verdict | None,
        closed: Sequence[str],
        current: Verdict | None = None,
    ) -> None:
        """Save a detector's state, the opened verdict and the ids of closed ones in one transaction.

        `current` is the verdict of the latest window, with its evidence.
        """
        encoded = b64encode(encode_state(state)).decode()
        verdict = None if current is None else msgspec.json.encode(current).decode()

        def write(transaction: Transaction) -> None:
            for verdict_id in closed:
                transaction.execute(_CLOSE, (at, verdict_id))
            if opened is not None:
                transaction.execute(_OPEN, _encode_row(opened, at))
            transaction.execute(_SAVE, (workload, detector, at, encoded, verdict))

        self._database.write(write)

    def load_state(self, workload: str, detector: str, kind: type[Any]) -> tuple[Any, float] | None:
        """Return the saved state of a workload's detector and the time of saving, or None.

        None also if another detector saved it, or an older release in a form that cannot be decoded as `kind`.
        """
        rows = self._database.read(lambda transaction: transaction.execute(_LOAD, (workload, detector)))
        if not rows:
            return None
        encoded, saved_at = rows[0]
        try:
            state = decode_state(b64decode(encoded, validate=True), kind)
        except binascii.Error:
            return None
        return None if state is None else (state, saved_at)

    def load_current(self, workload: str) -> tuple[str, Verdict] | None:
        """Return the name of a workload's detector and its verdict about the latest window, or None."""
        rows = self._database.read(lambda transaction: transaction.execute(_LOAD_CURRENT, (workload,)))
        return None if not rows else (rows[0][0], msgspec.json.decode(rows[0][1], type=Verdict))

    def save_position(self, source: str, position: str) -> None:
        """Save how far a telemetry source was read."""
        self._database.write_statement(_SAVE_POSITION, (source, position), is_idempotent=True)

    def load_position(self, source: str) -> str:
        """Return how far a telemetry source was read; "" if it was never read."""
        rows = self._database.read(lambda transaction: transaction.execute(_LOAD_POSITION, (source,)))
        return str(rows[0][0]) if rows else ""

    def list_open_verdicts(self) -> Sequence[RecordedVerdict]:
        """Return the open verdicts, newest first."""
        return self._read(_OPEN_VERDICTS)

    def verdicts(self, limit: int = 100) -> Sequence[RecordedVerdict]:
        """Return the latest verdicts, newest first."""
        return self._read(_LIST, limit)

    def find_verdict(self, verdict_id: str) -> RecordedVerdict | None:
        """Return the verdict with this id, or None."""
        return next(iter(self._read(_FIND, verdict_id)), None)

    def _read(self, query: str, *values: int | str) -> Sequence[RecordedVerdict]:
        rows = self._database.read(lambda transaction: transaction.execute(query, values))
        return [_decode_row(row) for row in rows]


class RecordedVerdicts:
    """A VerdictSource that reads the verdicts of some workloads from their store."""

    def __init__(self, store: WatchStore, workloads: Collection[str]) -> None:
        self._store = store
        self._workloads = frozenset(workloads)

    def list_open(self) -> Sequence[AlertedVerdict]:
        return [_to_alerted(each) for each in self._store.list_open_verdicts() if each.workload in self._workloads]

    def find_end(self, verdict: str) -> float | None:
        found = self._store.find_verdict(verdict)
        return None if found is None else found.closed_at


def _encode_row(verdict: Verdict, opened_at: float) -> tuple[str | float | None, ...]:
    key = verdict.id, verdict.workload, str(verdict.kind), verdict.zone, verdict.resource
    return *key, verdict.since, verdict.summary, msgspec.json.encode(verdict.evidence).decode(), opened_at


def _decode_row(row: Row) -> RecordedVerdict:
    fields = dict(zip(RecordedVerdict.__struct_fields__, row, strict=True))  # in the order of the columns
    return msgspec.convert(fields | {"evidence": msgspec.json.decode(fields["evidence"])}, RecordedVerdict)


def _to_alerted(verdict: RecordedVerdict) -> AlertedVerdict:
    return AlertedVerdict(
        id=verdict.id,
        workload=verdict.workload,
        kind=str(verdict.kind),
        zone=verdict.zone,
        resource=verdict.resource,
        since=verdict.since,
        summary=verdict.summary,
        opened_at=verdict.opened_at,
    )
