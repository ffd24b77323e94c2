"""No statement reads messages that it does not need: each goes by an index, however many there are."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.engines import Migration, Row, Transaction, Value
from holdfast.engines.database import Result
from holdfast.engines.migrations import apply_migrations
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue.backend import DeadLetterQuery, LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend
from holdfast.queue.message import Ack, Bury, Disposition, OutgoingMessage, RetryLater, Settlement
from holdfast.queue.policy import QueuePolicy
from holdfast.testing import FakeClock

SCAN = re.compile(r"SCAN (?!one\b|json_each\b|VIRTUAL|CONSTANT|rank\d|\(|\d)")
SMALL = re.compile(r"SCAN (holdfast_queue_sequence|p\b|holdfast_queue_publication|CONSTANT ROW)")


class Explained(SqliteDatabase):
    """A database that asks for the plan of each statement before it runs it."""

    plans: dict[str, list[str]]

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        return super().read(lambda transaction: work(_Explaining(transaction, self.plans)))

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        return super().write(lambda transaction: work(_Explaining(transaction, self.plans)))

    def migrate(self, subsystem: str, migrations: Sequence[Migration]) -> list[Migration]:
        self.plans = {}
        return super().write(lambda transaction: apply_migrations(transaction, subsystem, migrations, 0.0))


class _Explaining:
    def __init__(self, transaction: Transaction, plans: dict[str, list[str]]) -> None:
        self._transaction = transaction
        self._plans = plans

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        rows = self._transaction.execute(f"explain query plan {sql}", parameters)
        self._plans[sql] = [row[3] for row in rows]
        return self._transaction.execute(sql, parameters)

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        for row in list(rows):
            self.execute(sql, row)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Explained]:
    with Explained(tmp_path / "queue.sqlite") as database:
        yield database


def test_no_step_scans_a_table(database: Explained) -> None:
    """Whatever is asked of the backend."""
    clock = FakeClock()
    backend = SqlBackend(database, clock)
    backend.change("work", QueueChange(policy=QueuePolicy(ttl=50.0), subscribe=["news"]), create=True)
    several = [
        OutgoingMessage(tenant=tenant, body=b"x", group=group, key="k") for tenant in "ab" for group in (None, "g")
    ]
    for _ in range(3):
        backend.send(
            "work", [*several, OutgoingMessage(tenant="a", body=b"x", ttl=5.0), OutgoingMessage(tenant="a", body=b"x")]
        )
        backend.send("news", several, is_topic=True)
        held = backend.lease(LeaseRequest(queue="work", count=5, lease=5.0)).deliveries
        dispositions: list[Disposition] = [Ack(), RetryLater(1.0), Bury("why")]
        backend.settle(
            [Settlement(one.receipt, disposition) for one, disposition in zip(held, dispositions, strict=False)]
        )
        clock.advance(7.0)
        backend.inspect("work", tenants=["a"], messages=[1, 2])
        backend.list_dead_letters(
            DeadLetterQuery(queue="work", tenant="a", reason="w", ids=(1, 2, 3), buried_before=0.0)
        )
        backend.redrive(DeadLetterQuery(queue="work"))
        backend.change("work", QueueChange(limits={"forgotten": None}))
        backend.sweep("work", backend.inspect("work").at - 1)
    scans = {
        statement: [line for line in plan if SCAN.match(line) and not SMALL.match(line)]
        for statement, plan in database.plans.items()
    }
    assert len(scans) > 40
    assert any(statement.startswith("delete from holdfast_queue_tenant") for statement in scans)
    assert {statement: plan for statement, plan in scans.items() if plan} == {}


def test_depth_and_age_are_read_from_lanes_and_an_index(database: Explained) -> None:
    """One entry of it for each lane."""
    backend = SqlBackend(database, FakeClock())
    backend.change("work", QueueChange(), create=True)
    database.plans.clear()
    backend.inspect("work")
    lines = [line for plan in database.plans.values() for line in plan if "message" in line or " m " in f"{line} "]
    assert lines == ["SEARCH m USING INDEX holdfast_queue_message_ready (lane=?)"]
