"""Keep the measurements of the last day in memory, and save them, so that a restart loses only the bin in progress."""

import logging
from collections.abc import Mapping, Sequence

from holdfast._errors import InvalidValue, MissingExtra
from holdfast._names import format_count
from holdfast.engines import Database, Migration, Transaction
from holdfast.telemetry.bins import LONG_TERM, MINUTE, Bin, BinKey
from holdfast.telemetry.collector import MAX_AHEAD_SECONDS, Amendment
from holdfast.telemetry.query import SeriesAnswer, SeriesQuery
from holdfast.telemetry.series import SeriesTable

try:
    from holdfast.telemetry.block import decode_block, encode_block
    from holdfast.telemetry.store import SeriesStore, StoredBlock, Tier, get_retention
except ModuleNotFoundError as error:
    raise MissingExtra("the history of measurements", "server") from error

logger = logging.getLogger("holdfast.telemetry")

SUBSYSTEM = "telemetry"

MIGRATIONS = (
    Migration(
        1,
        "the bins of workloads",
        (
            """create table holdfast_telemetry_bin (
                workload text not null,
                tier text not null,
                start double precision not null,
                seconds double precision not null,
                content bytea not null,
                primary key (workload, tier, start)
            )""",
        ),
    ),
)

_SAVE = (
    "insert into holdfast_telemetry_bin (workload, tier, start, seconds, content) values ($1, $2, $3, $4, $5) "
    "on conflict (workload, tier, start) do update set seconds = excluded.seconds, content = excluded.content"
)
_DELETE = "delete from holdfast_telemetry_bin where workload = $1 and tier = $2 and start < $3"
_DELETE_ALL = "delete from holdfast_telemetry_bin where start < $1"
_LOAD = (
    "select start, seconds, content from holdfast_telemetry_bin "
    "where workload = $1 and tier = $2 and start >= $3 and start <= $4 order by start"
)


class TelemetryHistory:
    """The measurements of the last day, in memory and in a database. Needs NumPy.

    Not thread-safe, except that `save` may run beside the other methods: it encodes and writes, which may take long.
    """

    def __init__(
        self, database: Database, table: SeriesTable, seconds: float, workloads: Sequence[str], now: float
    ) -> None:
        self._database = database
        self._table = table
        self._workloads = workloads
        self._store = SeriesStore(table, seconds)
        self._unsaved: dict[tuple[str, Tier, float], tuple[float, bytes]] = {}
        """Length and content of bins, by workload, tier and start."""
        database.migrate(SUBSYSTEM, MIGRATIONS)
        # Also the bins of workloads that are no longer in the settings.
        database.write_statement(_DELETE_ALL, (now - LONG_TERM - seconds,), is_idempotent=True)
        for workload in workloads:
            for tier in Tier:
                times = now - get_retention(tier), now + MAX_AHEAD_SECONDS
                for stored in _load(database, table, workload, tier, times):
                    self._store.load(stored)

    @property
    def store(self) -> SeriesStore:
        """The measurements in memory. Only the owner of this history may change them."""
        return self._store

    @property
    def nbytes(self) -> int:
        """Size of the stored measurements in memory, in bytes."""
        return self._store.nbytes

    def add(
        self,
        complete: Sequence[tuple[int, Mapping[BinKey, Bin]]],
        late: Mapping[int, Amendment],
        late_minutes: Mapping[int, Amendment],
        now: float,
    ) -> None:
        """Add complete bins and late measurements, and drop the bins that are too old. `save` saves the changes."""
        for number, bins in complete:
            self._store.close_bin(number, bins, self._workloads)
        self._store.amend(late, late_minutes, now)
        self._store.prune(now)

    def save(self, now: float) -> None:
        """Save all changes, and delete the bins that are too old, in one transaction. If it fails, call it again."""
        for each in self._store.pop_changed():  # here, and not in `add`, because it takes long
            encoded = encode_block(each.block, self._table)
            self._unsaved[each.workload, each.tier, each.start] = each.seconds, encoded
        changes, self._unsaved = self._unsaved, {}
        # Bins that are too old are left out, or a long failure of the database would fill the memory.
        unsaved = {key: each for key, each in changes.items() if key[2] >= now - get_retention(key[1])}
        if not unsaved:
            return

        def write(transaction: Transaction) -> None:
            transaction.execute_many(_SAVE, [(*key, *each) for key, each in unsaved.items()])
            for workload in {key[0] for key in unsaved}:
                for tier in Tier:
                    transaction.execute(_DELETE, (workload, tier, now - get_retention(tier)))

        try:
            self._database.write(write)
        except BaseException:
            self._unsaved = unsaved | self._unsaved
            raise

    def snapshot(self, workload: str) -> SeriesStore:
        """Return the measurements of a workload as they are now. Another thread may query them."""
        return self._store.snapshot(workload)


def answer_from(database: Database, query: SeriesQuery, seconds: float, now: float) -> SeriesAnswer:
    """Answer a query from saved bins, in a process that has no history: without the bin in progress."""
    tiers = [tier for tier in Tier if tier is not Tier.INSTANCES or query.is_by_instance]  # instances are many
    times = query.start - MINUTE, now + MAX_AHEAD_SECONDS
    store, _ = load_store(database, query.workload, seconds, tiers, times)
    return store.answer(query, now)


def load_store(
    database: Database, workload: str, seconds: float, tiers: Sequence[Tier], times: tuple[float, float]
) -> tuple[SeriesStore, SeriesTable]:
    """Return the saved bins of a workload that start between two times, in a process that has no history."""
    database.migrate(SUBSYSTEM, MIGRATIONS)
    table = SeriesTable()
    store = SeriesStore(table, seconds)
    for tier in tiers:
        for stored in _load(database, table, workload, tier, times):
            store.load(stored)
    return store, table


def _load(
    database: Database, table: SeriesTable, workload: str, tier: Tier, times: tuple[float, float]
) -> list[StoredBlock]:
    """Return the saved bins of one tier that start between two times. Skip damaged ones, with a log line."""
    found: list[StoredBlock] = []
    problems: list[InvalidValue] = []
    rows = database.read(lambda transaction: transaction.execute(_LOAD, (workload, tier, *times)))
    for start, seconds, content in rows:
        try:
            found.append(StoredBlock(workload, tier, start, seconds, decode_block(content, workload, table)))
        except InvalidValue as error:
            problems.append(error)
    if problems:
        logger.warning(
            "left out %s of telemetry that cannot be read; the first: %s",
            format_count(len(problems), "stored bin"),
            problems[0],
        )
    return found
