"""Connections that are opened when needed, shared by threads, and never more than allowed.

Not psycopg_pool: that one connects in threads of its own and tells a waiting caller only that it took too long. Here
the caller's own thread connects, so a wrong password is an error at once, and the caller decides what to try again.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

from psycopg import pq

from holdfast._clock import Clock
from holdfast.engines.postgres.connection import PostgresConnection, is_disconnected

SURPLUS_SECONDS = 60.0
"""How long a connection above the minimum may lie idle: longer than the gaps inside a burst, short enough that the
server has it back soon after."""

_Waiter: TypeAlias = SimpleQueue[PostgresConnection | None]


class PoolTimeout(Exception):
    """No connection became free in time. Its text is why the last one could not be opened, or empty."""


class Pool:
    """At most `max_connections` connections, the one used last first.

    Waiting callers are served in order. Thread-safe.
    """

    def __init__(
        self, min_connections: int, max_connections: int, connect: Callable[[float], PostgresConnection], clock: Clock
    ) -> None:
        self._min_connections = min_connections
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._unopened = max_connections  # how many more may be opened
        self._idle: deque[tuple[PostgresConnection, float]] = deque()  # with the time since when; the last used last
        self._waiting: deque[_Waiter] = deque()
        self._closed = False
        self._last_connect_error = ""

    def acquire(self, wait: float) -> PostgresConnection:
        """Borrow a connection within about `wait` seconds. Raises PoolTimeout if all are in use, or as `connect`."""
        deadline = self._clock.monotonic() + wait
        connection = self._claim(wait)
        if connection is not None and is_disconnected(connection):
            connection.close()
            connection = None
        if connection is None:
            try:
                connection = self._connect(max(0.0, deadline - self._clock.monotonic()))
            except BaseException as error:
                self._last_connect_error = str(error)
                self._pass_on(None)
                raise
            self._last_connect_error = ""
        return connection

    def release(self, connection: PostgresConnection) -> None:
        """Return what was taken. One that is not fit for the next caller is closed instead of kept."""
        if not connection.closed and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            self._pass_on(connection)
        else:
            connection.close()
            self._pass_on(None)

    def close_idle(self) -> None:
        """Close what lies idle: after one connection was lost, the others are not to be trusted either."""
        with self._lock:
            forgotten = [connection for connection, _ in self._idle]
            self._idle.clear()
            self._unopened += len(forgotten)
        for connection in forgotten:
            connection.close()

    def close(self) -> None:
        """Close what lies idle now, and what is still borrowed as soon as it comes back. May be repeated."""
        with self._lock:
            self._closed = True
        self.close_idle()

    def _claim(self, wait: float) -> PostgresConnection | None:
        """Wait for an idle connection, or (None) for the right to open one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()[0]
            if self._unopened > 0:
                self._unopened -= 1
                return None
            waiter: _Waiter = SimpleQueue()
            self._waiting.append(waiter)
        try:
            return waiter.get(timeout=wait)
        except BaseException as error:  # the time is over, or the thread was interrupted
            was_served = self._withdraw(waiter)
            if isinstance(error, Empty):
                if was_served:
                    return waiter.get()
                raise PoolTimeout(self._last_connect_error) from None
            if was_served:
                self._pass_on(waiter.get())
            raise

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Stop waiting; returns whether that came too late, because the turn was handed something meanwhile."""
        with self._lock:
            if waiter not in self._waiting:
                return True
            self._waiting.remove(waiter)
            return False

    def _pass_on(self, connection: PostgresConnection | None) -> None:
        """Pass a connection, or the right to open one, to who waits longest; keep it when nobody does."""
        surplus: list[PostgresConnection] = []
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(connection)
            elif connection is None:
                self._unopened += 1
            else:
                now = self._clock.monotonic()
                self._idle.append((connection, now))
                while self._idle and (
                    self._closed
                    or (len(self._idle) > self._min_connections and self._idle[0][1] < now - SURPLUS_SECONDS)
                ):
                    surplus.append(self._idle.popleft()[0])
                    self._unopened += 1
        for unused in surplus:
            unused.close()
