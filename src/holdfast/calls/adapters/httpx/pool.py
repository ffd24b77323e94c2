"""Gives back what an attempt that ended badly still holds in the connection pool of httpcore.

httpcore loses such places for good (https://github.com/encode/httpcore/issues/1093): a request that is given up just
when the pool has found a connection for it leaves one behind that is never opened, and one that is cancelled while its
answer is being closed stays among the requests. Each takes one of `max_connections`, until every call waits in vain.

There is no public way to do this. Only this module knows httpcore's insides; if they have changed, it only warns, once.
"""

# ruff: noqa: SLF001 - see above

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

import httpx

_NEEDED = ("_requests", "_connections", "_assign_requests_to_connections", "_optional_thread_lock")

logger = logging.getLogger("holdfast.calls")
_closing: set[asyncio.Task[None]] = set()
"""The event loop itself does not keep its tasks."""
_warned: set[str] = set()


class PooledBody(httpx.AsyncByteStream):
    """The body of an answer, on a connection that the pool gets back however closing it ends."""

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
            is_returned = (
                self._is_complete
            )  # one that broke off has closed itself, and may have been cancelled meanwhile
        finally:
            if not is_returned:
                await free_connections_async(self._transport, self._request)


def free_connections(transport: object, request: httpx.Request) -> None:
    """Free the places of a request that is over, and of connections that nobody uses."""
    for connection in _remove_connections(transport, request):
        with suppress(Exception):  # what the attempt failed with is what counts
            connection.close()


async def free_connections_async(transport: object, request: httpx.Request) -> None:
    """The same in an event loop: the places are free at once, and no cancellation keeps connections from closing."""
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
    """Connections to close, which are in the pool no more; those who wait have got their places."""
    pool = _pool_of(transport)
    if pool is None:
        return []
    with pool._optional_thread_lock:
        # The request that httpx makes for httpcore has the extensions of its own, the very mapping.
        pool._requests = [held for held in pool._requests if held.request.extensions is not request.extensions]
        used = {id(held.connection) for held in pool._requests}
        # A connection is at work for a request or idle: that of no request, and not idle, will never be either.
        lost = [it for it in pool._connections if id(it) not in used and not it.is_idle() and not it.is_closed()]
        pool._connections = [it for it in pool._connections if it not in lost]
        return [*lost, *pool._assign_requests_to_connections()]


def _pool_of(transport: object) -> Any:
    """The pool of one of httpx's own transports; None: it is another, or the pool is not as it was."""
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
            "the connection pool %s of httpx has no %s: places of attempts that are cut off may be lost",
            kind,
            ", ".join(missing),
        )
    return None
