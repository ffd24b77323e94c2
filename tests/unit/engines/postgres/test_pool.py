import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import cast

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from holdfast.engines.postgres import pool as pool_module
from holdfast.engines.postgres.connection import PostgresConnection
from holdfast.engines.postgres.pool import SURPLUS_SECONDS, Pool, PoolTimeout
from holdfast.testing import FakeClock

STUCK = 30.0


class FakeConnection:
    """As much of a connection as a pool looks at; its own `pgconn` too."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False
        self.transaction_status = TransactionStatus.IDLE
        self.pipeline_status = PipelineStatus.OFF
        self.pgconn = self
        self._ours, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self._ours.fileno()

    def hang_up(self) -> None:
        self._theirs.close()

    def consume_input(self) -> None:
        if not self._ours.recv(1):
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def close(self) -> None:
        self.closed = True
        self._ours.close()
        self._theirs.close()


class FakeServer:
    def __init__(self) -> None:
        self.opened: list[FakeConnection] = []
        self.refusal: Exception | None = None

    def connect(self, timeout: float) -> PostgresConnection:
        if self.refusal is not None:
            raise self.refusal
        self.opened.append(FakeConnection(len(self.opened)))
        return cast("PostgresConnection", self.opened[-1])


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    for connection in server.opened:
        connection.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pool(server: FakeServer, clock: FakeClock) -> Pool:
    return Pool(1, 3, server.connect, clock)


def until_waiting(pool: Pool, count: int) -> None:
    deadline = time.monotonic() + STUCK
    while len(pool._waiting) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_connection_used_last_is_used_next(pool: Pool) -> None:
    first, second = pool.acquire(0), pool.acquire(0)
    pool.release(second)
    pool.release(first)
    assert pool.acquire(0) is first
    assert pool.acquire(0) is second


def test_no_more_connections_than_allowed_are_open(pool: Pool, server: FakeServer) -> None:
    for _ in range(3):
        pool.acquire(0)
    with pytest.raises(PoolTimeout) as caught:
        pool.acquire(0.001)
    assert str(caught.value) == ""
    assert len(server.opened) == 3


def test_who_waits_longest_is_served_first(server: FakeServer, clock: FakeClock) -> None:
    pool = Pool(1, 1, server.connect, clock)
    order: list[int] = []

    def borrow(number: int) -> None:
        connection = pool.acquire(STUCK)
        order.append(number)
        pool.release(connection)

    connection = pool.acquire(0)
    with ThreadPoolExecutor() as threads:
        waiting = []
        for number in range(4):
            waiting.append(threads.submit(borrow, number))
            until_waiting(pool, number + 1)
        pool.release(connection)
        for future in waiting:
            future.result(STUCK)
    assert order == [0, 1, 2, 3]
    assert len(server.opened) == 1


def test_a_failure_to_open_passes_the_turn_on(server: FakeServer, clock: FakeClock) -> None:
    pool = Pool(1, 1, server.connect, clock)
    taken = pool.acquire(0)
    server.refusal = ConnectionError("no entry")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(pool.acquire, STUCK)
        until_waiting(pool, 1)
        taken.close()
        pool.release(taken)
        with pytest.raises(ConnectionError):
            waiting.result(STUCK)
    with pytest.raises(ConnectionError):
        pool.acquire(0)
    server.refusal = None
    assert not pool.acquire(0).closed


def test_a_busy_pool_remembers_why_opening_failed(server: FakeServer, clock: FakeClock) -> None:
    pool = Pool(1, 2, server.connect, clock)
    pool.acquire(0)
    server.refusal = ConnectionError("no entry")
    with pytest.raises(ConnectionError):
        pool.acquire(0)
    pool._unopened = 0
    with pytest.raises(PoolTimeout, match="no entry"):
        pool.acquire(0.001)


@pytest.mark.parametrize("end", [Empty, KeyboardInterrupt])
def test_a_connection_handed_over_in_the_last_moment_is_not_lost(
    server: FakeServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    pool = Pool(1, 1, server.connect, clock)
    taken = pool.acquire(0)

    class LastMoment(SimpleQueue[PostgresConnection | None]):
        def get(self, block: bool = True, timeout: float | None = None) -> PostgresConnection | None:
            if timeout is not None:
                pool.release(taken)
                raise end
            return super().get()

    monkeypatch.setattr(pool_module, "SimpleQueue", LastMoment)
    if end is Empty:
        assert pool.acquire(1.0) is taken
    else:
        with pytest.raises(KeyboardInterrupt):
            pool.acquire(1.0)
        assert pool.acquire(0) is taken


@pytest.mark.parametrize("status", [TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.ACTIVE])
def test_a_connection_in_the_middle_of_something_is_not_kept(
    pool: Pool, server: FakeServer, status: TransactionStatus
) -> None:
    taken = pool.acquire(0)
    server.opened[0].transaction_status = status
    pool.release(taken)
    assert taken.closed
    assert pool.acquire(0) is not taken


def test_a_connection_that_cannot_leave_its_pipeline_is_not_kept(pool: Pool, server: FakeServer) -> None:
    taken = pool.acquire(0)
    server.opened[0].pipeline_status = PipelineStatus.ABORTED
    pool.release(taken)
    assert taken.closed


def test_an_idle_connection_that_the_server_ended_is_replaced(pool: Pool, server: FakeServer) -> None:
    taken = pool.acquire(0)
    pool.release(taken)
    server.opened[0].hang_up()
    assert pool.acquire(0) is not taken
    assert taken.closed


def test_idle_connections_above_the_minimum_are_closed_after_a_while(pool: Pool, clock: FakeClock) -> None:
    taken = [pool.acquire(0) for _ in range(3)]
    for connection in taken:
        pool.release(connection)
    clock.advance(SURPLUS_SECONDS + 1)
    pool.release(pool.acquire(0))
    assert [connection.closed for connection in taken] == [True, True, False]
    clock.advance(SURPLUS_SECONDS + 1)
    pool.release(pool.acquire(0))
    assert not taken[2].closed


def test_closing_also_reaches_what_is_borrowed(pool: Pool) -> None:
    borrowed, idle = pool.acquire(0), pool.acquire(0)
    pool.release(idle)
    pool.close()
    pool.close()
    assert idle.closed
    assert not borrowed.closed
    pool.release(borrowed)
    assert borrowed.closed
