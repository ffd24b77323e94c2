"""How large a store is, and that it does not grow."""

from pathlib import Path
from random import Random

import apsw
import pytest

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.message import Ack, OutgoingMessage, Settlement
from tests.table import sampled

pytestmark = pytest.mark.no_cover  # the same lines, many thousand times
BODY = b"x" * 20
MOST = 80
"""Bytes that a message may take beside its body."""
FREE = {10_000: 0.75, 50_000: 0.9}
"""Least share of the file that is free when all messages are handled: a queue without any weighs more beside few."""


@pytest.mark.parametrize("messages", sampled(FREE))
def test_a_message_takes_few_bytes_and_gives_them_back(tmp_path: Path, messages: int) -> None:
    """With fifty of each tenant, in batches of a hundred; when all are handled, the space is there for the next."""
    path, random, tenants = tmp_path / "queue.sqlite", Random(1), messages // 50
    with SqlBackend(SqliteDatabase(path)) as backend:
        backend.change("work", QueueChange(), create=True)
        _fill(backend, random, tenants, messages)
        full, _ = _pages(path)
        assert full / messages - len(BODY) <= MOST
        _drain(backend, messages)
        drained, free = _pages(path)
        assert drained <= 1.2 * full
        assert free >= FREE[messages] * drained, "nearly all of the file is there for others"
        _fill(backend, random, tenants, messages // 5)
        again, _ = _pages(path)
        assert again == drained


def _fill(backend: SqlBackend, random: Random, tenants: int, messages: int) -> None:
    for _ in range(messages // 100):
        backend.send(
            "work", [OutgoingMessage(tenant=f"tenant-{random.randrange(tenants)}", body=BODY) for _ in range(100)]
        )


def _drain(backend: SqlBackend, messages: int) -> None:
    handled = 0
    while handled < messages:
        leased = backend.lease(LeaseRequest(queue="work", count=1000, lease=60.0, leased_so_far=handled))
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
