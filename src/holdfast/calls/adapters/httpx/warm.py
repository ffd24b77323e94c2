"""Connections of httpx that are opened before there is traffic.

There is no way to ask httpx for a connection alone. A request without effects opens one, and answers that are held
until all have come keep the requests from sharing it.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx

from holdfast._errors import ConnectTimedOut
from holdfast.calls.adapters.httpx.errors import as_httpx
from holdfast.calls.adapters.httpx.exchange import Tell
from holdfast.calls.adapters.httpx.pool import Lent, give_back, give_back_async
from holdfast.calls.adapters.httpx.progress import Progress
from holdfast.calls.adapters.rules import check_connections, ready_among, stays_open
from holdfast.calls.attempt import Attempt
from holdfast.calls.state import DependencyState


def warm(core: DependencyState, transport: httpx.BaseTransport, request: httpx.Request, connections: int) -> int:
    """Open so many connections at once; how many of them are ready."""
    check_connections(connections)

    def open_one(progress: Progress) -> httpx.Response | Exception:
        sent = _with(request, progress, progress.saw)
        try:
            return transport.handle_request(sent)
        except Exception as error:  # noqa: BLE001 - told when all are back
            give_back(transport, sent)
            return error

    with ThreadPoolExecutor(connections, thread_name_prefix="holdfast-warm-up") as threads:
        opened = list(threads.map(open_one, [_progress(core) for _ in range(connections)]))
    return ready_among(str(request.url), [it if isinstance(it, Exception) else _finish(it) for it in opened])


def _finish(response: httpx.Response) -> bool | Exception:
    try:
        response.read()
    except httpx.HTTPError as error:
        return error
    finally:
        response.close()
    return stays_open(response.http_version, response.headers)


async def warm_async(
    core: DependencyState, transport: httpx.AsyncBaseTransport, request: httpx.Request, connections: int
) -> int:
    """The same, in an event loop."""
    check_connections(connections)

    async def open_one(progress: Progress) -> httpx.Response:
        sent = _with(request, progress, progress.saw_async)
        try:
            async with asyncio.timeout(progress.left):
                response = await transport.handle_async_request(sent)
        except BaseException as error:
            await give_back_async(transport, sent)
            if not isinstance(error, TimeoutError):
                raise
            late = ConnectTimedOut(f"{core.name}: no connection in {core.connects.value:.3f} s")
            raise as_httpx(late) from error
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = Lent(response.stream, transport, sent)
        return response

    tasks = [asyncio.create_task(open_one(_progress(core))) for _ in range(connections)]
    try:
        opened = await asyncio.gather(*tasks, return_exceptions=True)
        outcomes = [it if isinstance(it, BaseException) else await _finish_async(it) for it in opened]
    finally:
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().aclose()
    return ready_among(str(request.url), outcomes)


async def _finish_async(response: httpx.Response) -> bool | Exception:
    try:
        await response.aread()
    except httpx.HTTPError as error:
        return error
    finally:
        await response.aclose()
    return stays_open(response.http_version, response.headers)


def _progress(core: DependencyState) -> Progress:
    until = core.runtime.monotonic() + core.connects.value
    progress = Progress(Attempt(until, None, None, core, until), {})
    progress.is_whole_call = True
    return progress


def _with(request: httpx.Request, progress: Progress, tell: Tell) -> httpx.Request:
    extensions = {"timeout": progress.timeouts, "trace": tell}
    return httpx.Request(
        request.method, request.url, headers=request.headers, stream=request.stream, extensions=extensions
    )
