"""Count and limit the connections of a server, and report those that it closes."""

import asyncio
import http
import logging
from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.server import ServerState

from holdfast._clock import Clock
from holdfast._log_limiter import LogLimiter
from holdfast.server.metrics import RefusedConnection

logger = logging.getLogger("holdfast.server")

WRITE_SECONDS = 30.0
"""Time in which a client must read, once 64 KiB wait for it: those who do not read would use up all connections."""
CONNECTIONS_PER_RESERVED = 20
"""One connection of this many is kept for requests that balancers, hosts and scrapers repeat."""
_LOG_SECONDS = 10.0
"""Between two log records about the same kind of refusal."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason to close a connection."""

    reason: str
    """The label of the metric."""
    detail: str
    status: http.HTTPStatus | None = None
    """The status of the answer to an incomplete request, or None if the connection is closed without an answer."""
    level: int = logging.INFO


_SLOW_READER = Refusal("write_timeout", "the client did not read in time")
TOO_MANY = Refusal(
    "connection_limit",
    "too many connections (server.max_connections): only health, metrics and statuses are answered",
    http.HTTPStatus.SERVICE_UNAVAILABLE,
    logging.WARNING,
)


class Connection(asyncio.Protocol):
    """The connection of one client, which is closed if the client does not read in time."""

    client: tuple[str, int] | None
    loop: asyncio.AbstractEventLoop
    server_state: "Connections"
    transport: asyncio.Transport
    _write_deadline: TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(WRITE_SECONDS, self.abort, _SLOW_READER)

    def resume_writing(self) -> None:
        self._clear_write_deadline()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_write_deadline()
        super().connection_lost(exc)

    def _clear_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def abort(self, refusal: Refusal) -> None:
        """Close the connection at once, without an answer."""
        self.server_state.report(refusal, self.client)
        self.transport.abort()


class Connections(ServerState):
    """The open connections of a server, and their limits. Not thread-safe: belongs to one event loop."""

    def __init__(
        self,
        max_connections: int,
        on_refused: Callable[[RefusedConnection], None],
        clock: Clock,
    ) -> None:
        super().__init__()
        self.max_connections = max_connections
        self.max_busy = max_connections - max(1, max_connections // CONNECTIONS_PER_RESERVED)
        """Connections that may have a request in progress, without those kept for health, metrics and statuses."""
        self.waiting: dict[Connection, None] = {}
        """Connections without a request in progress; the one that has waited longest is first."""
        self._on_refused = on_refused
        self._clock = clock
        self._log_limiter = LogLimiter(1, _LOG_SECONDS)

    @property
    def open_count(self) -> int:
        return len(self.connections)

    @property
    def busy_count(self) -> int:
        return len(self.connections) - len(self.waiting)

    def make_room(self) -> None:
        """Close the connection that has waited longest for a request if there are too many connections."""
        if len(self.connections) > self.max_connections and self.waiting:
            protocol = next(iter(self.waiting))
            self.remove(protocol)
            protocol.abort(TOO_MANY)

    def remove(self, protocol: Connection) -> None:
        """Forget a connection. May be repeated."""
        self.connections.discard(protocol)
        self.waiting.pop(protocol, None)

    def report(self, refusal: Refusal, client: tuple[str, int] | None) -> None:
        """Count a refused connection, and log it unless one of its kind was logged just now."""
        self._on_refused(RefusedConnection(refusal.reason))
        suppressed = self._log_limiter.admit(refusal.reason, self._clock.monotonic())
        if suppressed is not None:
            logger.log(
                refusal.level,
                "connection closed: %s",
                refusal.detail,
                extra={
                    "reason": refusal.reason,
                    "client.address": client[0] if client else None,
                    "connections": self.open_count,
                    "suppressed": suppressed,
                },
            )
