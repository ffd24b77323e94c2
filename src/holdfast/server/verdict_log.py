"""Every verdict there has been, from its opening to its closing."""

from collections.abc import Sequence

import msgspec

from holdfast._types import Verdict, VerdictKind, Zone
from holdfast.engines import Database, Migration, Row

SUBSYSTEM = "verdicts"

MIGRATIONS = (
    Migration(
        1,
        "verdicts",
        (
            """create table holdfast_verdict (
                id text primary key,
                workload text not null,
                kind text not null,
                zone text,
                since double precision not null,
                opened_at double precision not null,
                closed_at double precision,
                evidence text not null
            )""",
        ),
    ),
)

_OPEN = (
    "insert into holdfast_verdict (id, workload, kind, zone, since, opened_at, evidence) "
    "values ($1, $2, $3, $4, $5, $6, $7) on conflict (id) do nothing"
)
_CLOSE = "update holdfast_verdict set closed_at = $1 where id = $2 and closed_at is null"
_OPEN_ONES = (
    "select id, workload, kind, zone, since, opened_at, closed_at, evidence from holdfast_verdict "
    "where closed_at is null order by opened_at desc"
)
_LIST = (
    "select id, workload, kind, zone, since, opened_at, closed_at, evidence from holdfast_verdict "
    "order by opened_at desc limit $1"
)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as it was recorded; its evidence is that of the opening."""

    id: str
    workload: str
    kind: VerdictKind
    zone: Zone | None
    since: float
    opened_at: float
    """When the server came to it, which is some seconds after the window that proved it."""
    closed_at: float | None
    evidence: dict[str, dict[str, float | None]]

    def verdict(self) -> Verdict:
        """The verdict as it was when it was reached."""
        return Verdict(
            id=self.id,
            workload=self.workload,
            kind=self.kind,
            zone=self.zone,
            since=self.since,
            at=self.opened_at,
            evidence=self.evidence,
        )


class VerdictLog:
    """Records verdicts. Thread-safe; opening or closing one again changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def open(self, verdict: Verdict, at: float) -> None:
        """Record that a verdict was reached."""
        evidence = msgspec.json.encode(verdict.evidence).decode()
        values = (verdict.id, verdict.workload, str(verdict.kind), verdict.zone, verdict.since, at, evidence)
        self._database.write(lambda transaction: transaction.execute(_OPEN, values))

    def close(self, verdict_id: str, at: float) -> None:
        """Record that it no longer holds."""
        self._database.write(lambda transaction: transaction.execute(_CLOSE, (at, verdict_id)))

    def open_ones(self) -> "Sequence[Recorded]":
        """The verdicts that have not been closed, newest first."""
        rows = self._database.read(lambda transaction: transaction.execute(_OPEN_ONES))
        return [_recorded(row) for row in rows]

    def list(self, limit: int = 100) -> list[Recorded]:
        """The latest verdicts, newest first."""
        rows = self._database.read(lambda transaction: transaction.execute(_LIST, (limit,)))
        return [_recorded(row) for row in rows]


def _recorded(row: Row) -> Recorded:
    verdict_id, workload, kind, zone, since, opened_at, closed_at, evidence = row
    return Recorded(
        id=verdict_id,
        workload=workload,
        kind=VerdictKind(kind),
        zone=None if zone is None else Zone(zone),
        since=since,
        opened_at=opened_at,
        closed_at=closed_at,
        evidence=msgspec.json.decode(evidence),
    )
