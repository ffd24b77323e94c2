"""The two transports, thin drivers over `HttpxExchange`."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Self, TypeVar

import httpx

from holdfast._errors import ConnectTimedOut, InvalidValue
from holdfast.calls.adapters.httpx.body import read_body, read_body_async
from holdfast.calls.adapters.httpx.exchange import HttpxExchange, TransportOptions, refuse_retries
from holdfast.calls.adapters.httpx.pool import PooledBody, bound_reads, free_connections, free_connections_async
from holdfast.calls.adapters.httpx.progress import Progress, Trace, to_httpx_error
from holdfast.calls.adapters.rules import check_connections, count_ready, is_kept_open
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import current_attempt
from holdfast.calls.dependency import Dependency, state_of
from holdfast.calls.state import DependencyState


def _finish(response: httpx.Response) -> bool | Exception:
    try:
        response.read()
    except httpx.HTTPError as error:
        return error
    finally:
        response.close()
    return is_kept_open(response.http_version, response.headers)


async def _finish_async(response: httpx.Response) -> bool | Exception:
    try:
        await response.aread()
    except httpx.HTTPError as error:
        return error
    finally:
        await response.aclose()
    return is_kept_open(response.http_version, response.headers)


def _warm_up_progress(dependency: DependencyState) -> Progress:
    until = dependency.runtime.monotonic() + dependency.connect_estimator.value
    progress = Progress(Attempt(until, None, None, dependency, until), {})
    progress.is_whole_call = True
    return progress


def _build_request(request: httpx.Request, progress: Progress, trace: Trace) -> httpx.Request:
    extensions = {"timeout": progress.timeouts, "trace": trace}
    return httpx.Request(request.method, request.url, headers=request.headers, extensions=extensions)


MAX_BUFFERED_BYTES = 1_048_576
"""A body with at most this `content-length` is read within the attempt: an acceptable amount of memory."""


Inner = TypeVar("Inner", httpx.BaseTransport, httpx.AsyncBaseTransport)


class _Transport(Generic[Inner]):
    """The base of both transports: a dependency, and the transport of httpx that sends its requests."""

    _default: type[Inner]

    def __init__(
        self,
        dependency: Dependency,
        transport: Inner | None = None,
        *,
        idempotency_key: bool = False,
        propagate: bool = True,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
    ) -> None:
        refuse_retries(transport)
        self._dependency = dependency
        self._state = state_of(dependency)
        self._transport: Inner = self._default() if transport is None else transport
        self._options = TransportOptions(
            idempotency_key=idempotency_key, propagate=propagate, max_buffered_bytes=max_buffered_bytes
        )


class HoldfastTransport(_Transport[httpx.BaseTransport], httpx.BaseTransport):
    """A transport that gives the requests of a synchronous client a dependency's timeouts, retries and budget.

    GET, HEAD, OPTIONS, TRACE, PUT and DELETE are retried. Other methods are retried only if nothing was sent, unless
    the request has `extensions=call_options(idempotent=True)`, or if the server honours the header that
    `idempotency_key=True` sends. An iterator or a file as body is sent once. Each redirect is a separate call.

    The dependency classifies 4xx and 5xx responses as failures; the caller gets the last one as an ordinary response.
    `propagate=False` does not send the deadline and the retry owner: use it for third-party services. Endpoints of the
    dependency replace scheme, host and port of *every* URL: mount the transport for the service's own name
    (`mounts={"all://pricing": ...}`), so that redirects to other hosts are not affected.

    The attempt's timeout covers sending, waiting for the response, and bodies with a `content-length` of at most
    `max_buffered_bytes`: a body that breaks off is retried. The caller reads other bodies later, and only the call's
    deadline applies. Waiting for a connection and its set-up come before the attempt's timeout starts.

    The shorter of the client's and Holdfast's timeouts applies. httpx's default, 5 seconds for each of the four, counts
    as not set if the dependency has a bound; if you want it, set 4.99. Holdfast's timeouts raise `HttpxAttemptTimedOut`
    and similar errors, the client's raise the errors of httpx. `Retry.classify_result` and `Retry.classify` see the
    body of a response if the attempt covers it.

    Each read and each write takes at most the time left, so that slow headers and bodies end in time as well. Not
    covered: a DNS look-up, which cannot be interrupted. With an inner transport that is not one of httpx, each read has
    the time that was left when the response began. Retries of the inner transport must be off. Thread-safe.
    """

    _default = httpx.HTTPTransport

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bound_reads(self._transport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        exchange = HttpxExchange(self._state, request, self._options)
        plan = exchange.plan
        try:
            self._dependency.run(self._attempt, exchange, idempotent=plan.idempotent, operation=plan.operation)
        except BaseException as error:  # noqa: BLE001 - raised, unless it carries the response
            if not exchange.carries_response(error):
                _close(exchange)
                raise exchange.translate(error)  # noqa: B904 - it copies the cause
        return exchange.get_response()

    def warm_up(self, url: str | httpx.URL, connections: int = 1, *, method: str = "HEAD") -> int:
        """Open connections, including TLS, before there is traffic. Return the number that is ready.

        Each connection sends a request that must have no side effects; any response will do. All of them together take
        at most the connect timeout. Raise the first error if none is ready. The pool of the inner transport must be
        large enough (`max_keepalive_connections`) and keep them (`keepalive_expiry`). Warm up each endpoint separately.
        """
        check_connections(connections)
        request, dependency, transport = _warm_up_request(method, url), self._state, self._transport

        def open_one(progress: Progress) -> httpx.Response | Exception:
            sent = _build_request(request, progress, progress.on_step)
            try:
                return transport.handle_request(sent)
            except Exception as error:  # noqa: BLE001 - count_ready raises it
                free_connections(transport, sent)
                return error

        with ThreadPoolExecutor(connections, thread_name_prefix="holdfast-warm-up") as threads:
            opened = list(threads.map(open_one, [_warm_up_progress(dependency) for _ in range(connections)]))
        return count_ready(str(url), [it if isinstance(it, Exception) else _finish(it) for it in opened])

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        self._transport.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._transport.__exit__(*exception)

    def _attempt(self, exchange: HttpxExchange) -> httpx.Response:
        _close(exchange)
        attempt = current_attempt()
        request, progress = exchange.begin(attempt, asynchronous=False)
        try:
            exchange.response = response = self._transport.handle_request(request)
            read_body(response, progress, exchange.bytes_to_read(attempt, response))
        except BaseException as error:
            try:
                _close(exchange)
            finally:
                free_connections(self._transport, request)
            progress.raise_translated(error)
            raise
        return exchange.raise_for_status(response)


class AsyncHoldfastTransport(_Transport[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """A HoldfastTransport for asynchronous clients, in asyncio.

    It covers everything: an attempt that times out is cancelled, and its connection closed. Waiting for the next chunk
    of a body that the caller reads later ends at the call's deadline.
    """

    _default = httpx.AsyncHTTPTransport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = HttpxExchange(self._state, request, self._options)
        run, plan = self._dependency.run_async, exchange.plan
        try:
            await run(self._attempt, exchange, idempotent=plan.idempotent, operation=plan.operation)
        except BaseException as error:  # noqa: BLE001 - raised, unless it carries the response
            if not exchange.carries_response(error):
                await _close_async(exchange)
                raise exchange.translate(error)  # noqa: B904 - it copies the cause
        return exchange.get_response()

    async def warm_up(self, url: str | httpx.URL, connections: int = 1, *, method: str = "HEAD") -> int:
        """Open connections before there is traffic, as `HoldfastTransport.warm_up` does."""
        check_connections(connections)
        request, dependency, transport = _warm_up_request(method, url), self._state, self._transport

        async def open_one(progress: Progress) -> httpx.Response:
            sent = _build_request(request, progress, progress.on_step_async)
            try:
                async with asyncio.timeout(progress.left):
                    response = await transport.handle_async_request(sent)
            except BaseException as error:
                await free_connections_async(transport, sent)
                if not isinstance(error, TimeoutError):
                    raise
                late = ConnectTimedOut(
                    f"{dependency.name}: no connection in {dependency.connect_estimator.value:.3f} s"
                )
                raise to_httpx_error(late) from error
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = PooledBody(response.stream, transport, sent)
            return response

        tasks = [asyncio.create_task(open_one(_warm_up_progress(dependency))) for _ in range(connections)]
        try:
            opened = await asyncio.gather(*tasks, return_exceptions=True)
            outcomes = [it if isinstance(it, BaseException) else await _finish_async(it) for it in opened]
        finally:
            for task in tasks:
                if task.done() and not task.cancelled() and task.exception() is None:
                    await task.result().aclose()
        return count_ready(str(url), outcomes)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._transport.__aexit__(*exception)

    async def _attempt(self, exchange: HttpxExchange) -> httpx.Response:
        await _close_async(exchange)
        attempt = current_attempt()
        request, progress = exchange.begin(attempt, asynchronous=True)
        try:
            exchange.response = response = await self._transport.handle_async_request(request)
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = PooledBody(response.stream, self._transport, request)
            await read_body_async(response, progress, exchange.bytes_to_read(attempt, response))
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and isinstance(self._transport, httpx.AsyncHTTPTransport):
                progress.mark_unsent()
            try:
                await _close_async(exchange)
            finally:
                await free_connections_async(self._transport, request)
            progress.raise_translated(error)
            raise
        return exchange.raise_for_status(response)


def _close(exchange: HttpxExchange) -> None:
    """Close the last response, which the client will not read."""
    response, exchange.response = exchange.response, None
    if response is not None:
        response.close()


async def _close_async(exchange: HttpxExchange) -> None:
    response, exchange.response = exchange.response, None
    if response is not None:
        await response.aclose()


def _warm_up_request(method: str, url: str | httpx.URL) -> httpx.Request:
    request = httpx.Request(method, url)
    if request.url.scheme not in {"http", "https"} or not request.url.host:
        raise InvalidValue(f"{str(url)!r} to warm up: expected a URL such as https://pricing.internal/health")
    return request
