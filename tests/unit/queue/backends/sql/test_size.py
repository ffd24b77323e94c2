"""How large a store is, and that it does not grow."""

from pathlib import Path
from random import Random

import apsw
import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import Change, LeaseRequest
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.message import Ack, Outgoing, Settlement

pytestmark = pytest.mark.no_cover  # the same lines, many thousand times
MESSAGES = 50_000
BODY = b"x" * 20
MOST = 80
"""Bytes that a message may take beside its body."""


def test_a_message_takes_few_bytes_and_gives_them_back(tmp_path: Path) -> None:
    """Of a thousand tenants, in batches of a hundred; when all are handled, the space is there for the next."""
    path, random = tmp_path / "queue.sqlite", Random(1)
    with SqlBackend(SqliteDatabase(path)) as backend:
        backend.change("work", Change(), create=True)
        _fill(backend, random)
        full, _ = _pages(path)
        assert full / MESSAGES - len(BODY) <= MOST
        _drain(backend)
        drained, free = _pages(path)
        assert drained <= 1.2 * full
        assert free >= 0.9 * drained, "nearly all of the file is there for others"
        _fill(backend, random, MESSAGES // 5)
        again, _ = _pages(path)
        assert again == drained


def _fill(backend: SqlBackend, random: Random, messages: int = MESSAGES) -> None:
    for _ in range(messages // 100):
        backend.send("work", [Outgoing(tenant=f"tenant-{random.randrange(1000)}", body=BODY) for _ in range(100)])


def _drain(backend: SqlBackend) -> None:
    handled = 0
    while handled < MESSAGES:
        leased = backend.lease(LeaseRequest(queue="work", count=1000, lease=60.0, before=handled))
        assert leased.deliveries
        assert all(backend.settle([Settlement(one.receipt, Ack()) for one in leased.deliveries]))
        handled += len(leased.deliveries)


def _pages(path: Path) -> tuple[int, int]:
    """The bytes of the file, and those of them that are free."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        [(free,)] = connection.execute("pragma freelist_count").fetchall()
        [(size,)] = connection.execute("pragma page_size").fetchall()
    finally:
        connection.close()
    return path.stat().st_size, int(str(free)) * int(str(size))
