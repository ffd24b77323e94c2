"""The loop over apsw that one would write: insert a hundred, claim a hundred, delete a hundred; synchronous FULL.

The smallest queue that keeps the same promise: what a killed worker has claimed is handed out again after a while, what
waits is handed out in the order in which it came, and neither is looked for by going through the whole table. It has
one table and two indexes, and knows no tenants, delays, retries or heartbeats. Options: `path`.
"""

import threading
import time
from collections.abc import Sequence

import apsw

from benchmarks._queue_roles import BATCH, Options, Tally

TABLE = (
    "create table if not exists item "
    "(id integer primary key, tenant text not null, sent integer not null, until integer, body blob not null)"
)
WAITING = "create index if not exists item_waiting on item (sent) where until is null"
CLAIMED = "create index if not exists item_claimed on item (until) where until is not null"
INSERT = "insert into item (tenant, sent, body) values (?, ?, ?)"
RECLAIM = "update item set until = null where until <= ?"
CLAIM = (
    "update item set until = ? where id in (select id from item where until is null order by sent limit ?) "
    "returning id, body"
)
LEASE = 30_000
DELETE = "delete from item where id = ?"


def opened(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(10_000)
    for statement in ("pragma journal_mode = wal", "pragma synchronous = full", TABLE, WAITING, CLAIMED):
        connection.execute(statement).fetchall()
    return connection


class Sender:
    def __init__(self, options: Options) -> None:
        self._connection = opened(options["path"])

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:
        assert job == "nothing"
        many = len(tenants)
        now = int(time.time() * 1000)
        rows = [(tenants[int(number) % many], now, b"%d" % number) for number in numbers]
        self._connection.execute("begin immediate")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("commit")

    def send_one(self, job: str, number: float, tenant: str) -> None:
        assert job == "nothing"
        self._connection.execute(INSERT, (tenant, int(time.time() * 1000), b"%d" % number))

    def close(self) -> None:
        self._connection.close()


class Runner:
    def __init__(self, options: Options, tally: Tally) -> None:
        self._connection = opened(options["path"])
        self._handle = tally.jobs["nothing"]
        self._is_stopping = False
        self._is_idle = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def is_settled(self) -> bool:
        return self._is_idle.is_set()

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        execute = self._connection.execute
        while not self._is_stopping:
            now = int(time.time() * 1000)
            execute("begin immediate")
            execute(RECLAIM, (now,))
            rows = execute(CLAIM, (now + LEASE, BATCH)).fetchall()
            execute("commit")
            if not rows:
                time.sleep(0.0005)
                self._is_idle.set()
                continue
            self._is_idle.clear()
            for _, body in rows:
                self._handle(int(body))  # type: ignore[arg-type]
            execute("begin immediate")
            self._connection.executemany(DELETE, [(id_,) for id_, _ in rows])
            execute("commit")
