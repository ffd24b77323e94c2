"""The connection pool of httpcore: reads within the time left, and a workaround for slots that it leaks.

A synchronous client reads headers with the same timeout for each read, so a server that sends them byte by byte could
take any time. `bound_reads` replaces the pool's network backend, whose interface is public, by one that shortens it.

httpcore leaks them (https://github.com/encode/httpcore/issues/1093) in two cases. A request that is abandoned just when
the pool has assigned a connection leaves a connection that is never opened. A request that is cancelled while its
response is being closed stays in the list of requests. Each leak takes one of `max_connections`, until all calls wait.

There is no public API for it. Only this module uses httpcore's internals; if they change, it logs one warning.
"""

# ruff: noqa: SLF001 - see above

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

import httpcore
import httpx

from holdfast.calls.adapters.httpx.progress import RemainingTimeout

_NEEDED = ("_requests", "_connections", "_assign_requests_to_connections", "_optional_thread_lock")

logger = logging.getLogger("holdfast.calls")
_closing: set[asyncio.Task[None]] = set()
"""References to running tasks, because the event loop keeps only weak ones."""
_warned: set[str] = set()


PIECE = 65_536
"""Bytes to write with one timeout."""


class BoundedStream(httpcore.NetworkStream):
    """A connection whose reads and writes take at most the time left for their attempt or call."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _find_timeout(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            seconds = _find_timeout(timeout, httpcore.WriteTimeout)
            self._stream.write(buffer[start : start + PIECE], seconds)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return BoundedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class BoundedBackend(httpcore.NetworkBackend):
    """A network backend whose connections are BoundedStreams."""

    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        return BoundedStream(self._backend.connect_tcp(*args, **kwargs))

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        return BoundedStream(self._backend.connect_unix_socket(*args, **kwargs))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


def bound_reads(transport: object) -> None:
    """Let the new connections of httpx's own synchronous transport observe each request's RemainingTimeout."""
    pool = _pool_of(transport)
    backend = getattr(pool, "_network_backend", None)
    if backend is not None and not isinstance(backend, BoundedBackend):
        pool._network_backend = BoundedBackend(backend)


def _find_timeout(timeout: float | None, error: type[Exception]) -> float | None:
    if not isinstance(timeout, RemainingTimeout):
        return timeout
    seconds = timeout.now()
    if seconds == 0:
        raise error("the attempt has timed out")
    return seconds


class PooledBody(httpx.AsyncByteStream):
    """A response body whose connection returns to the pool even if closing it fails or is cancelled."""

    def __init__(self, stream: httpx.AsyncByteStream, transport: object, request: httpx.Request) -> None:
        self._stream = stream
        self._transport = transport
        self._request = request
        self._is_complete = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk
        self._is_complete = True

    async def aclose(self) -> None:
        is_returned = False
        try:
            await self._stream.aclose()
            # An incomplete body has closed itself before, and may have been cancelled while doing so.
            is_returned = self._is_complete
        finally:
            if not is_returned:
                await free_connections_async(self._transport, self._request)


def free_connections(transport: object, request: httpx.Request) -> None:
    """Release the pool slots of a finished request and of leaked connections."""
    for connection in _remove_connections(transport, request):
        with suppress(Exception):  # it must not hide the error of the attempt
            connection.close()


async def free_connections_async(transport: object, request: httpx.Request) -> None:
    """Release the pool slots immediately, and close the connections in a task that no cancellation interrupts."""
    connections = _remove_connections(transport, request)
    if connections:
        await asyncio.shield(_start_task(_close(connections)))


async def _close(connections: list[Any]) -> None:
    for connection in connections:
        with suppress(Exception):
            await connection.aclose()


def _start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    return task


def _remove_connections(transport: object, request: httpx.Request) -> list[Any]:
    """Remove the request and leaked connections from the pool, assign waiting requests, and return what to close."""
    pool = _pool_of(transport)
    if pool is None:
        return []
    with pool._optional_thread_lock:
        # httpx passes the mapping of its request's extensions on to httpcore's request, which identifies it.
        pool._requests = [held for held in pool._requests if held.request.extensions is not request.extensions]
        used = {id(held.connection) for held in pool._requests}
        # A connection that is neither assigned to a request nor idle has leaked.
        lost = [it for it in pool._connections if id(it) not in used and not it.is_idle() and not it.is_closed()]
        pool._connections = [it for it in pool._connections if it not in lost]
        return [*lost, *pool._assign_requests_to_connections()]


def _pool_of(transport: object) -> Any:
    """Return the pool of one of httpx's own transports, or None for another transport or an unknown kind of pool."""
    if not isinstance(transport, httpx.HTTPTransport | httpx.AsyncHTTPTransport):
        return None
    pool = getattr(transport, "_pool", None)
    missing = [name for name in _NEEDED if not hasattr(pool, name)]
    if not missing:
        return pool
    kind = type(pool).__name__
    if kind not in _warned:
        _warned.add(kind)
        logger.warning(
            "the connection pool %s of httpx has no %s: attempts that time out may leak its connections",
            kind,
            ", ".join(missing),
        )
    return None
