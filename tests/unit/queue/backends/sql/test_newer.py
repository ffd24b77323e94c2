"""A store that a newer release of Holdfast writes to as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import EngineMismatch
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.message import Ack, OutgoingMessage, Settlement
from holdfast.queue.policy import Limits, QueuePolicy
from holdfast.testing import FakeClock


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(tmp_path / "queue.sqlite") as database:
        yield database


@pytest.fixture
def backend(database: SqliteDatabase) -> SqlBackend:
    backend = SqlBackend(database, FakeClock())
    backend.change("work", QueueChange(limits={"a": Limits(concurrency=1)}), create=True)
    return backend


def write(database: SqliteDatabase, policy: bytes, limits: bytes) -> None:
    def work_on(table: str, column: str, value: bytes) -> None:
        database.write(
            lambda transaction: transaction.execute(f"update holdfast_queue{table} set {column} = $1", (value,))
        )

    work_on("", "policy", policy)
    work_on("_tenant", "limits", limits)


def test_what_it_added_is_passed_over_and_the_rest_holds(backend: SqlBackend, database: SqliteDatabase) -> None:
    write(database, b'{"max_attempts": 7, "new": 1, "limits": {"new": 2}}', b'{"concurrency": 1, "new": 3}')
    backend.send("work", [OutgoingMessage(tenant="a", body=b"x")] * 2)
    backend.send("work", [OutgoingMessage(tenant="a", body=b"x")])
    [held] = backend.lease(LeaseRequest(queue="work", count=10, lease=60.0)).deliveries
    assert backend.settle([Settlement(held.receipt, Ack())]) == [True]
    found = backend.inspect("work", tenants=["a"])
    assert found.policy == QueuePolicy(max_attempts=7)
    assert [one.limits for one in found.tenants] == [Limits(concurrency=1)]


def test_what_this_one_cannot_go_by_is_an_error_that_says_so(backend: SqlBackend, database: SqliteDatabase) -> None:
    write(database, b'{"max_attempts": "as many as it takes"}', b"{}")
    with pytest.raises(EngineMismatch, match=r"max_attempts.*upgrade this process"):
        backend.send("work", [OutgoingMessage(tenant="a", body=b"x")])
