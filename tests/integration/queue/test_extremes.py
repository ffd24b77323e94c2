"""One tenant with a great many messages, and a great many tenants with one each. Nothing here depends on speed."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.engines import Row, Transaction, Value
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.queue import Limits, OutgoingMessage, QueuePolicy, RefusedMessage, SentMessage
from holdfast.queue.backend import Backend, LeaseRequest, QueueChange
from holdfast.queue.backends.sql import SqlBackend
from tests.integration.queue.places import depth, drain
from tests.table import sampled

OTHERS = 50
_SCAN = re.compile(r"SCAN (holdfast_queue_(message|tenant|dead|key|party)|[mtdkp])\b(?! USING (COVERING )?INDEX)")

Result = TypeVar("Result")

pytestmark = pytest.mark.no_cover  # the same lines a hundred thousand times


class Watched(SqliteDatabase):
    """A database that counts what is asked of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.statements: Counter[str] = Counter()
        self.rows = 0

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        return super().read(lambda transaction: work(_Watching(transaction, self)))

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        return super().write(lambda transaction: work(_Watching(transaction, self)))

    def begin(self) -> None:
        """Count anew."""
        self.statements.clear()
        self.rows = 0

    def scans(self) -> list[str]:
        """Statements that walk through all messages, tenants, keys or dead letters, and not through an index."""
        return super().read(lambda transaction: _scans(transaction, list(self.statements)))


def _scans(transaction: Transaction, statements: Iterable[str]) -> list[str]:
    found: list[str] = []
    for statement in statements:
        places = len(set(re.findall(r"\$\d+", statement)))
        steps = [row[-1] for row in transaction.execute(f"explain query plan {statement}", [None] * places)]
        found += [f"{step}: {statement}" for step in steps if _SCAN.match(step)]
    return found


class _Watching:
    def __init__(self, transaction: Transaction, watched: Watched) -> None:
        self._transaction = transaction
        self._watched = watched

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        rows = self._transaction.execute(sql, parameters)
        self._watched.statements[sql] += 1
        self._watched.rows += len(rows)
        return rows

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        given = list(rows)
        self._transaction.execute_many(sql, given)
        self._watched.statements[sql] += len(given)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "work.sqlite")


@pytest.fixture
def backend(watched: Watched) -> Iterator[Backend]:
    with SqlBackend(watched) as backend:
        backend.change("work", QueueChange(policy=QueuePolicy(max_waiting=None)), create=True)
        yield backend


def send(backend: Backend, tenants: Iterable[str], size: int = 1000) -> None:
    batch: list[OutgoingMessage] = []
    for tenant in tenants:
        batch.append(OutgoingMessage(tenant=tenant, body=tenant.encode()))
        if len(batch) == size:
            _keep(backend, batch)
            batch = []
    if batch:
        _keep(backend, batch)


def _keep(backend: Backend, batch: list[OutgoingMessage]) -> None:
    assert all(isinstance(result, SentMessage) for result in backend.send("work", batch))


class TestOneTenant:
    @pytest.mark.parametrize("many", sampled([40_000, 200_000]))
    def test_others_are_served_at_once_beside_a_tenant_with_very_many(
        self, backend: Backend, watched: Watched, many: int
    ) -> None:
        """And what that takes does not grow with its backlog: rows are found by index, and no more of them.

        `make soak` has a million.
        """
        cost = {}
        for size in (1_000, 2_000, many):  # the first makes the lanes
            send(backend, ["big"] * (size - depth(backend, "work")[0]))
            watched.begin()
            send(backend, [f"other-{number}" for number in range(OTHERS)])
            sending, watched.rows = watched.rows, 0
            leased = backend.lease(LeaseRequest(queue="work", count=2 * OTHERS, lease=60.0))
            assert {f"other-{number}" for number in range(OTHERS)} <= {one.tenant for one in leased.deliveries}
            cost[size] = (sending, watched.rows, sum(watched.statements.values()))
            assert watched.scans() == []
        assert all(later <= earlier * 1.2 for earlier, later in zip(cost[2_000], cost[many], strict=True))
        watched.begin()
        snapshot = backend.inspect("work", top=5)
        assert snapshot.tenants[0].tenant == "big"
        assert watched.rows < 1000
        assert watched.scans() == []

    def test_by_default_it_is_held_back_long_before_that_and_nobody_else_is(self, backend: Backend) -> None:
        """From a tenth of `max_waiting` on it may send as fast as the backlog could be drained, and ever less."""
        backend.change("work", QueueChange(policy=QueuePolicy(max_waiting=10_000, rate_under_backpressure=10.0)))
        results = [
            result
            for _ in range(5)
            for result in backend.send("work", [OutgoingMessage(tenant="big", body=b"")] * 1000)
        ]
        refused = [result for result in results if isinstance(result, RefusedMessage)]
        assert len(refused) >= 3900
        assert all(result.retry_after > 0 for result in refused)
        [other] = backend.send("work", [OutgoingMessage(tenant="other", body=b"")])
        assert isinstance(other, SentMessage)
        assert other.pressure < 0.01


class TestManyTenants:
    @pytest.mark.parametrize("count", sampled([8_000, 20_000, 50_000]))
    def test_very_many_with_one_message_each_are_all_served(
        self, backend: Backend, watched: Watched, count: int
    ) -> None:
        """`make soak` has a hundred thousand."""
        # Fewer lanes than by default, because a tenant's hand takes as long to deal as there are lanes.
        backend.change("work", QueueChange(policy=QueuePolicy(lanes=32)))
        tenants = [f"tenant-{number}" for number in range(count)]
        send(backend, tenants)
        snapshot = backend.inspect("work", top=20)
        assert sum(lane.ready for lane in snapshot.lanes) == count
        # They share the lanes: as many as one priority has, and about equally deep.
        assert len(snapshot.lanes) == snapshot.policy.lanes
        assert max(lane.ready for lane in snapshot.lanes) < 1.1 * count / snapshot.policy.lanes
        assert len(snapshot.tenants) == 20
        watched.begin()
        served = drain(backend, "work")
        assert len(served) == count
        assert set(served) == {tenant.encode() for tenant in tenants}
        assert watched.scans() == []
        assert depth(backend, "work") == (0, 0, 0, 0)

    @pytest.mark.parametrize("count", sampled([1000, 3000]))
    def test_very_many_that_exceed_their_rate_are_all_served(self, backend: Backend, count: int) -> None:
        """Each has a lane of its own then, of which some are looked at in turn."""
        backend.change("work", QueueChange(policy=QueuePolicy(limits=Limits(spill_rate=0.001, spill_burst=1.0))))
        tenants = [f"tenant-{number}" for number in range(count)]
        send(backend, tenants)
        send(backend, tenants)
        assert sum(lane.ready for lane in backend.inspect("work").lanes if lane.lane >= 0) == count
        served = Counter(drain(backend, "work"))
        assert set(served.values()) == {2}
        assert len(served) == count
        assert depth(backend, "work") == (0, 0, 0, 0)
