"""Bodies of requests that can be sent once, and of responses that are read in time: all, in part, or later."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator

import httpx

from holdfast.calls.adapters.httpx.progress import Progress


class SingleUseBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a request that would be another one, or empty, the second time: a generator, a file."""

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
    """The body of a response, of which the beginning may have been read; the time is looked at after every chunk."""

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
    """The same, in an event loop: waiting for a chunk ends when the time is over."""

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
    """Read up to `max_bytes` bytes of the body within the attempt; below 0: all of it."""
    stream = response.stream
    assert isinstance(stream, httpx.SyncByteStream)
    taken: list[bytes] = []
    size, rest = 0, iter(stream)
    while size <= max_bytes:
        chunk = next(rest, None)
        if chunk is None:
            stream.close()  # the connection is free again
            response.stream = httpx.ByteStream(b"".join(taken))
            return
        progress.check()
        taken.append(chunk)
        size += len(chunk)
    response.stream = BoundedBody(stream, progress, taken, rest)


async def read_body_async(response: httpx.Response, progress: Progress, max_bytes: float) -> None:
    """The same; what ends it in time is the end of the attempt."""
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
