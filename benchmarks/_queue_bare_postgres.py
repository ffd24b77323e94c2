"""The loop over psycopg that one would write: insert a hundred, claim a hundred, delete a hundred.

The smallest queue that keeps the same promise, as the one on SQLite: see `_queue_bare_sqlite.py`. Each step is one
statement in a transaction of its own. Options: `url`.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from benchmarks._queue_roles import BATCH, Options, Tally

TABLE = (
    "create table item (id bigint generated always as identity primary key, tenant text not null, "
    "sent timestamptz not null default now(), until timestamptz, body bytea not null)"
)
WAITING = "create index item_waiting on item (sent, id) where until is null"
CLAIMED = "create index item_claimed on item (until) where until is not null"
INSERT = "insert into item (tenant, body) select * from unnest(%s::text[], %s::bytea[])"
INSERT_ONE = "insert into item (tenant, body) values (%s, %s)"
RECLAIM = "update item set until = null where until <= now()"
CLAIM = (
    "update item set until = now() + interval '30 seconds' where id = any(array("
    "select id from item where until is null order by sent, id limit %s for update skip locked)) returning id, body"
)
DELETE = "delete from item where id = any(%s)"


def opened(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, prepare_threshold=0)


class Sender:
    def __init__(self, options: Options) -> None:
        self._connection = opened(options["url"])
        self._connection.execute(TABLE)
        self._connection.execute(WAITING)
        self._connection.execute(CLAIMED)

    def send(self, job: str, numbers: Sequence[float], tenants: Sequence[str]) -> None:
        assert job == "nothing"
        many = len(tenants)
        names = [tenants[int(number) % many] for number in numbers]
        self._connection.execute(INSERT, (names, [b"%d" % number for number in numbers]), binary=True)

    def send_one(self, job: str, number: float, tenant: str) -> None:
        assert job == "nothing"
        self._connection.execute(INSERT_ONE, (tenant, b"%d" % number))

    def close(self) -> None:
        self._connection.close()


class Runner:
    def __init__(self, options: Options, tally: Tally) -> None:
        self._connection = opened(options["url"])
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
        reclaim_at = 0.0
        while not self._is_stopping:
            if time.monotonic() >= reclaim_at:  # not every time: each statement is a round trip
                execute(RECLAIM)
                reclaim_at = time.monotonic() + 1.0
            rows = execute(CLAIM, (BATCH,), binary=True).fetchall()
            if not rows:
                time.sleep(0.0005)
                self._is_idle.set()
                continue
            self._is_idle.clear()
            for _, body in rows:
                self._handle(int(body))
            execute(DELETE, ([id_ for id_, _ in rows],))
