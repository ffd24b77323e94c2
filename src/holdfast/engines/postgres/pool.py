"""A bounded pool of connections, which threads share and open when needed.

Not psycopg_pool, which connects in its own threads, and reports only a timeout to a waiting caller. Here the caller's
thread connects, so that a wrong password raises immediately, and the caller decides what to retry.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeAlias

from psycopg import pq

from holdfast._clock import Clock
from holdfast.engines.postgres.connection import PostgresConnection, is_disconnected, is_stuck

SURPLUS_SECONDS = 60.0
"""Maximum idle time of a connection above the minimum: longer than the gaps within a burst of calls, and short enough
to return it to the server soon after."""

_Grant: TypeAlias = PostgresConnection | None
"""A connection, or None for the right to open one."""
_Waiter: TypeAlias = SimpleQueue[_Grant]


class _IdleConnection(NamedTuple):
    connection: PostgresConnection
    since: float


class PoolTimeout(Exception):
    """No connection became free in time. Its text is the error of the last attempt to open one, or empty."""


class Pool:
    """A thread-safe pool of at most `max_connections`, the last used first. Waiting callers are served in order."""

    def __init__(
        self, min_connections: int, max_connections: int, connect: Callable[[float], PostgresConnection], clock: Clock
    ) -> None:
        self._min_connections = min_connections
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._unopened = max_connections  # the number of connections that may still be opened
        self._idle: deque[_IdleConnection] = deque()  # the most recently used last
        self._waiting: deque[_Waiter] = deque()
        self._closed = False
        self._last_connect_error = ""

    def acquire(self, wait: float) -> PostgresConnection:
        """Return a connection within about `wait` seconds. Raise PoolTimeout if all are in use, or as `connect`."""
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
        """Return a connection to the pool. Close it if the next caller cannot use it."""
        is_idle = not connection.closed and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if is_idle and not is_stuck(connection):
            self._pass_on(connection)
        else:
            connection.close()
            self._pass_on(None)

    def close_idle(self) -> None:
        """Close the idle connections: after one connection was lost, the others are probably lost, too."""
        with self._lock:
            closing = [idle.connection for idle in self._idle]
            self._idle.clear()
            self._unopened += len(closing)
        for connection in closing:
            connection.close()

    def close(self) -> None:
        """Close idle connections now, and those in use when they are released. May be repeated."""
        with self._lock:
            self._closed = True
        self.close_idle()

    def _claim(self, wait: float) -> _Grant:
        """Wait for an idle connection, or for the right to open one."""
        with self._lock:
            if self._idle:
                return self._idle.pop().connection
            if self._unopened > 0:
                self._unopened -= 1
                return None
            waiter: _Waiter = SimpleQueue()
            self._waiting.append(waiter)
        try:
            return waiter.get(timeout=wait)
        except BaseException as error:  # the wait timed out, or the thread was interrupted
            was_served = self._withdraw(waiter)
            if isinstance(error, Empty):
                if was_served:
                    return waiter.get()
                raise PoolTimeout(self._last_connect_error) from None
            if was_served:
                self._pass_on(waiter.get())
            raise

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Stop waiting. Return True if it is too late, because the waiter has already been served."""
        with self._lock:
            if waiter not in self._waiting:
                return True
            self._waiting.remove(waiter)
            return False

    def _pass_on(self, connection: _Grant) -> None:
        """Pass a connection, or the right to open one, to the first waiter. Keep it if no caller waits."""
        surplus: list[PostgresConnection] = []
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(connection)
            elif connection is None:
                self._unopened += 1
            else:
                now = self._clock.monotonic()
                self._idle.append(_IdleConnection(connection, now))
                while self._idle and (
                    self._closed
                    or (len(self._idle) > self._min_connections and self._idle[0].since < now - SURPLUS_SECONDS)
                ):
                    surplus.append(self._idle.popleft().connection)
                    self._unopened += 1
        for unused in surplus:
            unused.close()
