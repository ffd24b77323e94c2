"""Bodies of requests that can be sent only once, and of responses that are read with a timeout."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator

import httpx

from holdfast.calls.adapters.httpx.progress import Progress


class SingleUseBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A request body that cannot be sent twice: a generator or a file."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> None:
        self._stream = stream
        self._is_begun = False

    def __iter__(self) -> Iterator[bytes]:
        self._begin()
        assert isinstance(self._stream, httpx.SyncByteStream)
        yield from self._stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._begin()
        assert isinstance(self._stream, httpx.AsyncByteStream)
        async for chunk in self._stream:
            yield chunk

    def _begin(self) -> None:
        if self._is_begun:
            raise httpx.StreamConsumed
        self._is_begun = True


class BoundedBody(httpx.SyncByteStream):
    """A response body, partly read, whose deadline is checked after every chunk."""

    def __init__(
        self, stream: httpx.SyncByteStream, progress: Progress, taken: list[bytes], rest: Iterator[bytes]
    ) -> None:
        self._stream = stream
        self._progress = progress
        self._taken = taken
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        self._progress.is_whole_call = True
        yield from self._taken
        while True:
            try:
                chunk = next(self._rest, None)
            except httpx.TimeoutException as error:
                self._progress.raise_translated(error)
                raise
            if chunk is None:
                return
            self._progress.check()
            yield chunk

    def close(self) -> None:
        self._stream.close()


class AsyncBoundedBody(httpx.AsyncByteStream):
    """A BoundedBody in an event loop, where the deadline also ends the wait for a chunk."""

    def __init__(
        self, stream: httpx.AsyncByteStream, progress: Progress, taken: list[bytes], rest: AsyncIterator[bytes]
    ) -> None:
        self._stream = stream
        self._progress = progress
        self._taken = taken
        self._rest = rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._progress.is_whole_call = True
        for chunk in self._taken:
            yield chunk
        while True:
            left = self._progress.left
            bound = asyncio.timeout(None if left == math.inf else left)
            try:
                async with bound:
                    chunk = await anext(self._rest)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                if bound.expired():
                    raise self._progress.timeout_error() from error
                raise
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def read_body(response: httpx.Response, progress: Progress, max_bytes: float) -> None:
    """Read about `max_bytes` of the body within the attempt; none with READ_LATER. The client reads the rest."""
    stream = response.stream
    assert isinstance(stream, httpx.SyncByteStream)
    taken: list[bytes] = []
    size, rest = 0, iter(stream)
    while size <= max_bytes:
        chunk = next(rest, None)
        if chunk is None:
            stream.close()  # frees the connection
            response.stream = httpx.ByteStream(b"".join(taken))
            return
        progress.check()
        taken.append(chunk)
        size += len(chunk)
    response.stream = BoundedBody(stream, progress, taken, rest)


async def read_body_async(response: httpx.Response, progress: Progress, max_bytes: float) -> None:
    """Read the body as `read_body` does. No checks are needed: the attempt's timeout cancels it."""
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    taken: list[bytes] = []
    size, rest = 0, aiter(stream)
    while size <= max_bytes:
        chunk = await anext(rest, None)
        if chunk is None:
            await stream.aclose()
            response.stream = httpx.ByteStream(b"".join(taken))
            return
        taken.append(chunk)
        size += len(chunk)
    response.stream = AsyncBoundedBody(stream, progress, taken, rest)
