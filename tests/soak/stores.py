"""Where the messages are kept: what can happen to it in the middle of everything, and how large it is afterwards."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast.engines import Database, Transaction
from tests.services.postgres import RestartablePostgres
from tests.soak.jobs import FULL_CAPABILITIES

_TABLES = ("message", "party", "key", "dead", "publication", "tenant", "lane")
_BY_LANE = (
    "select coalesce(sum(ready), 0), coalesce(sum(leased), 0), coalesce(sum(delayed), 0), coalesce(sum(dead), 0) "
    "from holdfast_queue_lane"
)
_COUNTERS = (
    _BY_LANE,
    "select coalesce(sum(ready), 0), coalesce(sum(leased), 0), coalesce(sum(dead), 0) from holdfast_queue_tenant",
    "select count(*) from holdfast_queue_message where until is null",
    "select count(*) from holdfast_queue_message where until is not null and leased = 1",
    "select count(*) from holdfast_queue_message where until is not null and leased = 0",
    "select count(*) from holdfast_queue_dead",
)


class Store(Protocol):
    """A store in the hands of the soak."""

    name: str
    url: str
    has_one_writer: bool
    """Whether a process that stands still may keep all others from writing."""

    def faults(self) -> list[tuple[str, Callable[[], None]]]:
        """What happens to it, in this order; each returns when it is over."""

    def database(self) -> Database:
        """For looking inside. To be closed."""

    def size(self, database: Database) -> int:
        """Bytes that its tables and indexes take."""

    def tidy(self, database: Database) -> None:
        """What the engine does by itself, sooner or later."""


class SqliteStore:
    """A file, on a disk that has no room for a while."""

    name = "sqlite"
    has_one_writer = True
    FULL_SECONDS = 1.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "soak.sqlite"
        self.url = f"sqlite:{self._path}"

    def faults(self) -> list[tuple[str, Callable[[], None]]]:
        return [("the disk is full", self._fill), ("the disk is full again", self._fill)]

    def _fill(self) -> None:
        flag = self._directory / FULL_CAPABILITIES
        flag.touch()
        time.sleep(self.FULL_SECONDS)
        flag.unlink()

    def database(self) -> Database:
        from holdfast.engines.sqlite import SqliteDatabase

        return SqliteDatabase(self._path)

    def size(self, database: Database) -> int:
        def look(transaction: Transaction) -> int:
            pages, free, page = (
                int(transaction.execute(f"pragma {what}")[0][0])
                for what in ("page_count", "freelist_count", "page_size")
            )
            return (pages - free) * page

        return database.read(look)

    def tidy(self, database: Database) -> None:
        """Pages that nothing is on are used again as they are."""


class PostgresStore:
    """A server that is restarted in good order, and one that crashes."""

    name = "postgres"
    has_one_writer = False
    DOWN_SECONDS = 1.0
    """How long it is away: longer than senders wait for it, so that somebody hears of it."""

    def __init__(self, server: RestartablePostgres) -> None:
        self.server = server
        self.url = server.url

    def faults(self) -> list[tuple[str, Callable[[], None]]]:
        return [("the server is restarted", self._restart), ("the server crashes", self._crash)]

    def _restart(self) -> None:
        self.server.stop()
        time.sleep(self.DOWN_SECONDS)
        self.server.start()

    def _crash(self) -> None:
        self.server.crash()
        time.sleep(self.DOWN_SECONDS)
        self.server.start()

    def database(self) -> Database:
        from holdfast.engines.postgres import PostgresDatabase, PostgresOptions

        return PostgresDatabase(PostgresOptions(url=self.url))

    def size(self, database: Database) -> int:
        rows = database.read(
            lambda transaction: transaction.execute(
                "select sum(pg_total_relation_size(oid)) from pg_class "
                "where relkind = 'r' and relname like 'holdfast_queue%'"
            )
        )
        return int(rows[0][0])

    def tidy(self, database: Database) -> None:
        """What autovacuum does once a minute."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("vacuum")


def counters(database: Database) -> tuple[dict[str, int], dict[str, int]]:
    """What the counters say, and what counting says, at one moment."""

    def look(transaction: Transaction) -> list[tuple[int, ...]]:
        return [tuple(map(int, transaction.execute(statement)[0])) for statement in _COUNTERS]

    lanes, tenants, (ready,), (leased,), (delayed,), (dead,) = database.read(look)
    kept = {
        "ready by lane": lanes[0],
        "leased by lane": lanes[1],
        "delayed by lane": lanes[2],
        "dead by lane": lanes[3],
        "ready by tenant": tenants[0],
        "leased by tenant": tenants[1],
        "dead by tenant": tenants[2],
    }
    counted = {"ready": ready, "leased": leased, "delayed": delayed, "dead": dead}
    return kept, {name: counted[name.partition(" ")[0]] for name in kept}


def rows(database: Database) -> dict[str, int]:
    """How many rows each table has."""

    def look(transaction: Transaction) -> dict[str, int]:
        return {
            table: int(transaction.execute(f"select count(*) from holdfast_queue_{table}")[0][0]) for table in _TABLES
        }

    return database.read(look)
