"""A journal in SQLite, on the operator's machine, or in PostgreSQL."""

from collections.abc import Sequence

import msgspec

from holdfast._types import Zone
from holdfast.engines import Database, Migration, Transaction
from holdfast.evacuate.journal import Entry, RecordedRuns, Run, build_conflict, build_lease_lost
from holdfast.evacuate.journals import JOURNALS, JournalType

SUBSYSTEM = "evacuation"

MIGRATIONS = (
    Migration(
        1,
        "the journal of evacuations",
        (
            """create table holdfast_evacuation_runs (
                id bigint primary key,
                version bigint not null,
                runs text not null
            )""",
            """create table holdfast_evacuation_entry (
                zone text not null,
                resource text not null,
                run text not null,
                type text not null,
                number bigint not null,
                entry text not null,
                primary key (zone, resource, run)
            )""",
            "create index holdfast_evacuation_entry_type on holdfast_evacuation_entry (type)",
        ),
    ),
)

_READ_RUNS = "select version, runs from holdfast_evacuation_runs where id = 1"
_INSERT_RUNS = (
    "insert into holdfast_evacuation_runs (id, version, runs) values (1, 1, $1) on conflict do nothing "
    "returning version"
)
_UPDATE_RUNS = (
    "update holdfast_evacuation_runs set version = version + 1, runs = $1 where id = 1 and version = $2 "
    "returning version"
)
_WRITE_ENTRY = (
    "insert into holdfast_evacuation_entry (zone, resource, run, type, number, entry) values ($1, $2, $3, $4, $5, $6) "
    "on conflict (zone, resource, run) do update set type = excluded.type, number = excluded.number, "
    "entry = excluded.entry where holdfast_evacuation_entry.number <= excluded.number returning number"
)
_DELETE_ENTRY = "delete from holdfast_evacuation_entry where zone = $1 and resource = $2 and run = $3"
_READ_ENTRIES = (
    "select entry from holdfast_evacuation_entry where ($1 = '' or zone = $1) and ($2 = '' or type = $2) "
    "order by zone, resource, run"
)


class SqlJournal:
    """A journal in a database. See `holdfast.evacuate.journal.Journal`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def read_runs(self) -> RecordedRuns:
        rows = self._database.read(lambda transaction: transaction.execute(_READ_RUNS))
        if not rows:
            return RecordedRuns(0, ())
        version, runs = rows[0]
        return RecordedRuns(version, msgspec.json.decode(runs, type=tuple[Run, ...]))

    def write_runs(self, runs: Sequence[Run], expected: int) -> RecordedRuns:
        kept = tuple(runs)
        text = msgspec.json.encode(kept).decode()
        statement, parameters = (_UPDATE_RUNS, (text, expected)) if expected else (_INSERT_RUNS, (text,))
        rows = self._database.write_statement(statement, parameters)
        if not rows:
            raise build_conflict(expected)
        return RecordedRuns(rows[0][0], kept)

    def write_entries(self, entries: Sequence[Entry]) -> None:
        def work(transaction: Transaction) -> None:
            for entry in entries:
                text = msgspec.json.encode(entry).decode()
                values = (entry.zone, entry.resource, entry.run, entry.type, entry.number, text)
                if not transaction.execute(_WRITE_ENTRY, values):
                    raise build_lease_lost(entry)

        self._database.write(work)

    def read_entries(self, zone: Zone | None = None, *, type: str | None = None) -> Sequence[Entry]:  # noqa: A002
        rows = self._database.read(lambda transaction: transaction.execute(_READ_ENTRIES, (zone or "", type or "")))
        return [msgspec.json.decode(text, type=Entry) for (text,) in rows]

    def delete_entries(self, entries: Sequence[Entry]) -> None:
        def work(transaction: Transaction) -> None:
            for entry in entries:
                transaction.execute(_DELETE_ENTRY, (entry.zone, entry.resource, entry.run))

        if entries:
            self._database.write(work)


JOURNALS.register("database")(
    JournalType("database", "", lambda _, resources: SqlJournal(resources.database(SUBSYSTEM)))
)
