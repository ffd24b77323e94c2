"""What is particular to httpx: streams, traces, other transports underneath, tasks that are cancelled."""

import asyncio
import contextlib
import gc
import io
import itertools
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpcore
import httpx
import pytest

from holdfast import ConnectTimedOut, HoldfastError, InvalidValue
from holdfast.calls import (
    Backoff,
    Failure,
    FailureKind,
    Jitter,
    Limit,
    Percentile,
    Retry,
    RetryBudget,
    Timeouts,
    deadline,
)
from holdfast.calls.adapters.httpx import (
    AsyncHoldfastTransport,
    HoldfastTransport,
    HttpxAttemptTimedOut,
    HttpxConnectTimedOut,
    HttpxDeadlineExceeded,
    HttpxPoolTimedOut,
    call_options,
)
from holdfast.calls.adapters.httpx.pool import free_connections
from holdfast.calls.adapters.httpx.progress import Progress
from holdfast.calls.context import SCOPE
from holdfast.calls.events import CallEvent, GaveUp, Retrying
from holdfast.calls.scope import IncomingScope
from tests.integration.calls.clients import AT_ONCE, Events, failures, pricing
from tests.integration.calls.servers import (
    Link,
    Seen,
    Server,
    answer,
    chunks,
    drop,
    drop_in_body,
    drop_in_chunks,
    hang,
    hang_in_body,
    trickle,
)


def count_progress() -> int:
    return sum(isinstance(it, Progress) for it in gc.get_objects())


def test_a_request_leaves_nothing_behind_for_the_garbage_collector() -> None:
    with (
        Server([answer()]) as server,
        httpx.Client(transport=HoldfastTransport(pricing())) as client,
    ):
        client.get(server.url)
        gc.collect()
        gc.disable()
        try:
            before = count_progress()
            client.get(server.url)
            assert count_progress() == before
        finally:
            gc.enable()


# Bodies of answers


def test_a_body_that_does_not_say_how_long_it_is_is_the_clients_to_read() -> None:
    dependency = pricing()
    with Server([drop_in_chunks]) as server, httpx.Client(transport=HoldfastTransport(dependency)) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(server.url)
        assert len(server.seen) == 1
    assert failures(dependency) == [None]


def test_such_a_body_is_part_of_the_attempt_if_the_request_says_so() -> None:
    dependency = pricing()
    with (
        Server([drop_in_chunks, chunks(b"all ", b"of it")]) as server,
        httpx.Client(transport=HoldfastTransport(dependency)) as client,
    ):
        assert client.get(server.url, extensions=call_options(stream=False)).content == b"all of it"
    assert failures(dependency) == [FailureKind.TRANSIENT, None]


@pytest.mark.parametrize(("max_buffered_bytes", "options"), [(99, {}), (1_000, call_options(stream=True))])
def test_a_body_is_handed_over_if_it_is_long_or_the_request_says_so(
    max_buffered_bytes: int, options: dict[str, Any]
) -> None:
    transport = HoldfastTransport(pricing(), max_buffered_bytes=max_buffered_bytes)
    with Server([drop_in_body]) as server, httpx.Client(transport=transport) as client:
        with client.stream("GET", server.url, extensions=options) as response:
            body = response.iter_raw()
            assert next(body) == b"only this"
            with pytest.raises(httpx.RemoteProtocolError):
                next(body)
        assert len(server.seen) == 1


def test_a_compressed_body_reaches_the_client_as_any_other() -> None:
    import gzip

    with (
        Server([answer(200, gzip.compress(b"9.99"), Content_Encoding="gzip")]) as server,
        httpx.Client(transport=HoldfastTransport(pricing())) as client,
    ):
        assert client.get(server.url).text == "9.99"


def test_a_failed_answer_that_is_long_can_be_streamed_to_its_end() -> None:
    dependency = pricing(retry=Retry(max_attempts=2, backoff=AT_ONCE))
    parts = [bytes([number]) * 40_000 for number in range(5)]
    with (
        Server([answer(503), chunks(*parts, status=503)]) as server,
        httpx.Client(transport=HoldfastTransport(dependency)) as client,
        client.stream("GET", server.url) as response,
    ):
        assert response.status_code == 503
        assert b"".join(response.iter_raw()) == b"".join(parts)


def test_so_can_one_in_an_event_loop() -> None:
    dependency = pricing(retry=Retry(max_attempts=2, backoff=Backoff(base=9.0, cap=9.0, jitter=Jitter.NONE)))
    parts = [bytes([number]) * 40_000 for number in range(5)]

    async def stream(url: str) -> bytes:
        async with (
            httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency)) as client,
            client.stream("GET", url) as response,
        ):
            return b"".join([chunk async for chunk in response.aiter_raw()])

    with Server([chunks(*parts, status=503)]) as server, deadline(2.0):
        assert asyncio.run(stream(server.url)) == b"".join(parts)
        assert len(server.seen) == 1


def test_the_deadline_ends_a_body_within_the_attempt_as_well() -> None:
    head = b"HTTP/1.1 200 Said\r\nContent-Length: 1000000\r\n\r\n"
    with (
        Server([trickle(head)]) as server,
        httpx.Client(transport=HoldfastTransport(pricing())) as client,
        deadline(1.0),
        pytest.raises(HttpxDeadlineExceeded),
    ):
        client.get(server.url)


def test_a_body_that_can_be_sent_once_is_not_begun_again_even_if_told_that_nothing_was_sent() -> None:
    dependency = pricing(retry=Retry(backoff=AT_ONCE, classify=lambda error: Failure(FailureKind.UNSENT)))
    file = io.BytesIO(b"rows")
    with Server([drop]) as server, httpx.Client(transport=HoldfastTransport(dependency)) as client:
        with pytest.raises(httpx.StreamConsumed):
            client.put(server.url, content=file, headers={"Content-Length": "4"})
        assert [seen.body for seen in server.seen] == [b"rows"]


def test_a_long_failed_answer_is_kept_when_there_is_no_time_for_the_next_attempt() -> None:
    long = b"x" * 200_000
    dependency = pricing(retry=Retry(backoff=Backoff(base=5.0, cap=5.0, jitter=Jitter.NONE)))
    with (
        Server([answer(503, long)]) as server,
        httpx.Client(transport=HoldfastTransport(dependency)) as client,
        deadline(2.0),
    ):
        assert client.get(server.url).content == long
        assert len(server.seen) == 1


# Judgements


def test_a_judgement_sees_the_body_and_is_asked_once_about_each_answer() -> None:
    asked: list[str] = []

    def classify_result(response: httpx.Response) -> Failure | None:
        asked.append(response.text)
        return Failure(FailureKind.TRANSIENT) if response.json()["state"] == "busy" else None

    busy, done = b'{"state": "busy"}', b'{"state": "done"}'
    dependency = pricing(retry=Retry(backoff=AT_ONCE, classify_result=classify_result))
    with (
        Server([answer(200, busy), answer(400, busy), answer(200, done)]) as server,
        httpx.Client(transport=HoldfastTransport(dependency)) as client,
    ):
        response = client.get(server.url)
        assert (response.json(), response.elapsed.total_seconds() > 0) == ({"state": "done"}, True)
    assert asked == [busy.decode(), busy.decode(), done.decode()]
    assert failures(dependency) == [FailureKind.TRANSIENT, FailureKind.TRANSIENT, None]


def test_an_answer_that_was_judged_can_still_be_streamed() -> None:
    dependency = pricing(
        retry=Retry(classify_result=lambda response: None if response.text else Failure(FailureKind.TRANSIENT))
    )

    async def stream(url: str) -> bytes:
        async with (
            httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency)) as client,
            client.stream("GET", url) as response,
        ):
            return b"".join([chunk async for chunk in response.aiter_raw()])

    with Server([answer(200, b"9.99")]) as server:
        assert asyncio.run(stream(server.url)) == b"9.99"


def test_a_judgement_of_errors_sees_the_body_as_well() -> None:
    def classify(error: Exception) -> Failure | None:
        assert isinstance(error, httpx.HTTPStatusError)
        return Failure(FailureKind.TRANSIENT) if error.response.text == "later" else None

    dependency = pricing(retry=Retry(backoff=AT_ONCE, classify=classify))
    with (
        Server([answer(400, b"later"), answer()]) as server,
        httpx.Client(transport=HoldfastTransport(dependency)) as client,
    ):
        assert client.get(server.url).text == "fine"


# Whose time was over


def test_a_synchronous_attempt_that_took_too_long_is_told_as_holdfast_tells_it() -> None:
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.5), retry=Retry(max_attempts=1))
    with Server([hang]) as server, httpx.Client(transport=HoldfastTransport(dependency)) as client:
        with pytest.raises(HttpxAttemptTimedOut) as caught:
            client.get(server.url)
        with deadline(0.5), pytest.raises(HttpxDeadlineExceeded):
            client.get(server.url)
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)
    assert failures(dependency) == [FailureKind.TIMEOUT, FailureKind.TIMEOUT]


def test_the_clients_own_timeout_is_told_as_httpx_tells_it() -> None:
    transport = HoldfastTransport(pricing(retry=Retry(max_attempts=1)))
    with (
        Server([hang]) as server,
        httpx.Client(transport=transport, timeout=httpx.Timeout(10.0, read=0.05)) as client,
        pytest.raises(httpx.ReadTimeout) as caught,
    ):
        client.get(server.url)
    assert not isinstance(caught.value, HoldfastError)


def test_a_synchronous_connection_that_took_too_long_is_told_as_such() -> None:
    dependency = pricing(timeouts=Timeouts(connect=0.06, attempt=2.0), retry=Retry(max_attempts=1))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with (
        Server([answer()], tls=context, before_tls=Link.until_gone) as server,
        httpx.Client(transport=HoldfastTransport(dependency)) as client,
        pytest.raises(HttpxConnectTimedOut, match=r"no connection in 0\.060 s"),
    ):
        client.post(server.url)
    assert failures(dependency) == [FailureKind.UNSENT]


def test_so_is_a_deadline_that_passes_in_a_body_that_is_handed_over() -> None:
    with (
        Server([hang_in_body]) as server,
        httpx.Client(transport=HoldfastTransport(pricing())) as client,
        deadline(0.8),
        client.stream("GET", server.url, extensions=call_options(stream=True)) as response,
        pytest.raises(HttpxDeadlineExceeded, match="while the response was read"),
    ):
        response.read()


# The pool


def is_at_rest(pool: Any) -> bool:
    """Whether everything that was taken from a pool is back."""
    return not pool._requests and all(connection.is_idle() for connection in pool.connections)


def now_and_then(link: Link, _: Seen) -> bool:
    """Answer two of three requests, and never the third."""
    return (hang if next(TURNS) % 3 == 2 else answer())(link, _)


TURNS = itertools.count()
CALLERS, CALLS = 20, 10
HURRIED = Timeouts(connect=2.0, attempt=0.05, total=10.0)


def test_callers_that_are_cut_off_leave_their_places_in_the_pool() -> None:
    dependency = pricing(timeouts=HURRIED, budget=RetryBudget(cost=0))

    async def all_at_once(server: Server) -> None:
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=3))
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency, inner)) as client:

            async def caller() -> None:
                for _ in range(CALLS):
                    with contextlib.suppress(httpx.TimeoutException):
                        await client.get(server.url)

            await asyncio.gather(*[caller() for _ in range(CALLERS)])
            assert is_at_rest(inner._pool), inner._pool.connections

    with Server([now_and_then]) as server:
        asyncio.run(all_at_once(server))


def test_so_do_threads() -> None:
    dependency = pricing(timeouts=HURRIED, budget=RetryBudget(cost=0))
    inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=3))
    with Server([now_and_then]) as server, httpx.Client(transport=HoldfastTransport(dependency, inner)) as client:

        def call(_: int) -> None:
            # Any error: httpcore may close an idle connection that it has just given to another thread.
            with contextlib.suppress(httpx.TransportError):
                client.get(server.url)

        with ThreadPoolExecutor(CALLERS) as threads:
            list(threads.map(call, range(CALLS * CALLERS)))
        assert is_at_rest(inner._pool), inner._pool.connections


def test_a_task_that_is_cancelled_just_when_it_gets_a_connection_leaves_it() -> None:
    queued = asyncio.Event()

    class Telling(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if self._pool._requests:
                asyncio.get_running_loop().call_soon(queued.set)  # when it waits
            return await super().handle_async_request(request)

    async def cancel(server: Server) -> None:
        inner = Telling(limits=httpx.Limits(max_connections=1))
        async with (
            httpx.AsyncClient(transport=inner) as holder,
            httpx.AsyncClient(transport=AsyncHoldfastTransport(pricing(), inner)) as client,
        ):

            async def hold() -> None:
                try:
                    await holder.get(server.url)
                finally:
                    waiting.cancel()  # before it can take notice of the connection that was just made for it

            holding = asyncio.create_task(hold())
            assert await asyncio.to_thread(server.arrived.acquire, timeout=5)
            waiting = asyncio.create_task(client.get(server.url))
            await queued.wait()
            holding.cancel()
            await asyncio.wait([holding, waiting])
            assert (holding.cancelled(), waiting.cancelled(), is_at_rest(inner._pool)) == (True, True, True)
            assert (await client.get(server.url)).text == "fine"

    with Server([hang, answer()]) as server:
        asyncio.run(cancel(server))


def test_a_task_that_is_cancelled_while_its_answer_is_closed_leaves_its_place() -> None:
    async def cancel_when_closing(name: str, _: Any) -> None:
        if name == "http11.response_closed.started":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    async def cancel(server: Server, **how: Any) -> None:
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=1))
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(pricing(), inner)) as client:
            extensions = {"trace": cancel_when_closing, **how}
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(client.get(server.url, extensions=extensions))
            assert is_at_rest(inner._pool)
            assert (await client.get(server.url)).text == "fine"

    for act in (answer(), drop_in_body):
        for how in ({}, call_options(stream=True)):
            with Server([act, answer()]) as server:
                asyncio.run(cancel(server, **how))


def test_a_place_that_others_have_lost_is_found_again() -> None:
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.05))
    inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=1))
    with Server([answer()]) as server, httpx.Client(transport=HoldfastTransport(dependency, inner)) as client:
        lost = inner._pool.create_connection(httpcore.URL(server.url).origin)
        inner._pool._connections.append(lost)
        assert client.get(server.url).text == "fine"
    assert failures(dependency) == [FailureKind.UNSENT, None]


def test_a_pool_that_is_not_as_it_was_is_left_alone_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Another:
        """A pool of some other version."""

    with httpx.HTTPTransport() as inner:
        pool, inner._pool = inner._pool, Another()  # type: ignore[assignment]
        request = httpx.Request("GET", "http://pricing/")
        free_connections(inner, request)
        free_connections(inner, request)
        inner._pool = pool
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the connection pool Another of httpx has no _requests, _connections, ")


def test_waiting_in_vain_for_a_free_connection_is_told_as_such_and_says_nothing_of_new_ones() -> None:
    dependency = pricing(timeouts=Timeouts(connect=Percentile(start=2.0), attempt=0.05), retry=Retry(max_attempts=1))
    inner = httpx.HTTPTransport(limits=httpx.Limits(max_connections=1))
    with (
        Server([hang_in_body]) as server,
        httpx.Client(transport=inner) as holder,
        httpx.Client(transport=HoldfastTransport(dependency, inner)) as client,
        holder.stream("GET", server.url),
        pytest.raises(HttpxPoolTimedOut, match=r"pricing: no connection was free in 0\.0\d\d s"),
    ):
        client.post(server.url)
    assert failures(dependency) == [FailureKind.UNSENT]
    assert dependency._state.connect_estimator.histogram.total == 0


def test_so_it_is_where_the_attempt_is_cut_off_in_the_meantime() -> None:
    dependency = pricing(timeouts=Timeouts(connect=Percentile(start=2.0), attempt=0.05), retry=Retry(max_attempts=1))

    class Patient(httpx.AsyncHTTPTransport):
        """Waits for the pool for longer than it is told, as one does whose event loop is busy."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            request.extensions["timeout"]["pool"] = 5.0
            return await super().handle_async_request(request)

    async def wait(server: Server) -> None:
        inner = Patient(limits=httpx.Limits(max_connections=1))
        async with (
            httpx.AsyncClient(transport=inner) as holder,
            httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency, inner)) as client,
            holder.stream("GET", server.url),
        ):
            await client.post(server.url)

    with (
        Server([hang_in_body]) as server,
        pytest.raises(HttpxPoolTimedOut, match=r"pricing: no connection was free in 0\.050 s"),
    ):
        asyncio.run(wait(server))
    assert failures(dependency) == [FailureKind.UNSENT]
    assert dependency._state.connect_estimator.histogram.total == 0


# Traces


def test_a_trace_of_the_callers_own_goes_on() -> None:
    steps: list[str] = []
    with Server([answer()]) as server, httpx.Client(transport=HoldfastTransport(pricing())) as client:
        client.get(server.url, extensions={"trace": lambda name, about: steps.append(name)})
    assert {"connection.connect_tcp.started", "http11.response_closed.complete"} <= set(steps)


def test_an_asynchronous_trace_goes_on_as_well() -> None:
    steps: list[str] = []

    async def trace(name: str, about: Any) -> None:
        steps.append(name)

    async def get(url: str) -> None:
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(pricing())) as client:
            await client.get(url, extensions={"trace": trace})

    with Server([answer()]) as server:
        asyncio.run(get(server.url))
    assert {"connection.connect_tcp.started", "http11.response_closed.complete"} <= set(steps)


@pytest.mark.parametrize(("own", "sent"), [({}, "00-incoming"), ({"traceparent": "00-own"}, "00-own")])
def test_the_trace_that_came_in_is_sent_on_unless_there_is_another(own: dict[str, str], sent: str) -> None:
    token = SCOPE.set(IncomingScope(float("inf"), trace="00-incoming"))
    try:
        with Server([answer()]) as server, httpx.Client(transport=HoldfastTransport(pricing())) as client:
            client.get(server.url, headers=own)
    finally:
        SCOPE.reset(token)
    assert server.seen[0].headers["traceparent"] == sent


# Other transports underneath


def test_a_transport_that_retries_by_itself_is_refused() -> None:
    with httpx.HTTPTransport(retries=2) as inner, pytest.raises(InvalidValue, match="retries=2"):
        HoldfastTransport(pricing(), inner)
    with pytest.raises(InvalidValue, match="retries=1"):
        AsyncHoldfastTransport(pricing(), httpx.AsyncHTTPTransport(retries=1))


def test_any_other_transport_may_be_underneath() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(503 if len(seen) == 1 else 200, text="fine")

    dependency = pricing()
    with httpx.Client(transport=HoldfastTransport(dependency, httpx.MockTransport(handle))) as client:
        assert client.get("http://pricing/").text == "fine"
    assert [request.headers["holdfast-retry-owner"] for request in seen] == ["pricing", "pricing"]
    assert failures(dependency) == [FailureKind.TRANSIENT, None]


def test_of_a_transport_that_tells_nothing_it_is_not_taken_that_nothing_was_sent() -> None:
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.15))
    sent = []

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            await asyncio.Event().wait()
            raise AssertionError

    async def post() -> None:
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency, Silent())) as client:
            await client.post("http://pricing/")

    with pytest.raises(httpx.ReadTimeout):
        asyncio.run(post())
    assert (len(sent), failures(dependency)) == (1, [FailureKind.TIMEOUT])


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.HTTPStatusError("no", request=request, response=httpx.Response(404))


def test_an_error_of_the_transport_underneath_that_has_an_answer_stays_an_error() -> None:
    transport = HoldfastTransport(pricing(), httpx.MockTransport(refuse))
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.HTTPStatusError):
        client.get("http://pricing/")


def test_so_does_one_of_an_asynchronous_transport() -> None:
    async def get() -> None:
        transport = AsyncHoldfastTransport(pricing(), httpx.MockTransport(refuse))
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://pricing/")

    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(get())


def test_without_a_timeout_of_the_clients_own_the_attempts_counts() -> None:
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.15))
    with (
        Server([hang, answer()]) as server,
        httpx.Client(transport=HoldfastTransport(dependency), timeout=None) as client,
    ):
        assert client.get(server.url).text == "fine"


def test_options_that_do_not_exist_are_refused() -> None:
    with (
        httpx.Client(transport=HoldfastTransport(pricing())) as client,
        pytest.raises(InvalidValue, match="idempotent"),
    ):
        client.get("http://127.0.0.1:9", extensions={"holdfast": {"idempotant": True}})


def test_options_may_be_a_plain_mapping() -> None:
    with Server([drop, answer()]) as server, httpx.Client(transport=HoldfastTransport(pricing())) as client:
        client.post(server.url, extensions={"holdfast": {"idempotent": True, "operation": "reserve"}})
        assert len(server.seen) == 2


def test_a_warm_up_whose_answer_breaks_off_is_not_ready() -> None:
    with (
        Server([drop_in_body]) as server,
        HoldfastTransport(pricing()) as transport,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        transport.warm_up(server.url, 2, method="GET")


def test_so_is_one_in_an_event_loop() -> None:
    async def warm_up(url: str) -> None:
        async with AsyncHoldfastTransport(pricing()) as transport:
            await transport.warm_up(url, 2, method="GET")

    with Server([drop_in_body]) as server, pytest.raises(httpx.RemoteProtocolError):
        asyncio.run(warm_up(server.url))


def test_a_url_to_warm_up_must_be_one() -> None:
    with HoldfastTransport(pricing()) as transport, pytest.raises(InvalidValue, match="such as https"):
        transport.warm_up("pricing")


# In an event loop


def test_a_task_that_is_cancelled_ends_and_its_connection_is_closed() -> None:
    dependency = pricing(limit=Limit(1))

    async def cancel(server: Server) -> None:
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=1))
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency, inner)) as client:
            task = asyncio.create_task(client.get(server.url))
            assert await asyncio.to_thread(server.arrived.acquire, timeout=5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert dependency.in_flight == 0
            assert await asyncio.to_thread(server.closed.acquire, timeout=5)
            assert (await client.get(server.url)).text == "fine"

    with Server([hang, answer()]) as server:
        asyncio.run(cancel(server))
        assert len(server.seen) == 2


def test_a_task_that_is_cancelled_between_two_attempts_leaves_nothing_open() -> None:
    dependency = pricing(retry=Retry(backoff=Backoff(base=9.0, cap=9.0, jitter=Jitter.NONE)))

    async def cancel(server: Server) -> None:
        retrying = asyncio.Event()

        class Watching:
            def emit(self, event: CallEvent) -> None:
                if isinstance(event, Retrying):
                    retrying.set()

        dependency.sink = Watching()
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency)) as client:
            task = asyncio.create_task(client.get(server.url))
            await retrying.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.closed.acquire, timeout=5)

    with Server([answer(503, b"x" * 3_000_000)]) as server:
        asyncio.run(cancel(server))


def test_each_attempt_is_cut_off_in_its_own_time() -> None:
    """While one of them sets up a connection slowly, or hangs, the others neither wait for it nor end with it."""
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.15), retry=Retry(max_attempts=1))

    def by_path(link: Link, seen: Seen) -> bool:
        return (hang if seen.path == "/hang" else answer())(link, seen)

    async def all_at_once(server: Server) -> list[httpx.Response | BaseException]:
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency)) as client:
            paths = ["/hang", "/", "/", "/hang", "/"]
            return await asyncio.gather(*[client.get(server.url + path) for path in paths], return_exceptions=True)

    with Server([by_path]) as server:
        outcomes = asyncio.run(all_at_once(server))
    assert [isinstance(outcome, httpx.ReadTimeout) for outcome in outcomes] == [True, False, False, True, False]


def test_a_body_that_hangs_in_the_middle_is_cut_off_where_reads_are_not_bounded_at_all() -> None:
    dependency = pricing(timeouts=Timeouts(connect=2.0, attempt=0.15))

    async def get(url: str) -> str:
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency), timeout=None) as client:
            return (await client.get(url)).text

    with Server([hang_in_body, answer()]) as server:
        assert asyncio.run(get(server.url)) == "fine"
    assert failures(dependency) == [FailureKind.TIMEOUT, None]


def test_a_warm_up_that_is_cancelled_leaves_nothing_open() -> None:
    async def cancel(server: Server) -> None:
        async with AsyncHoldfastTransport(pricing()) as transport:
            task = asyncio.create_task(transport.warm_up(server.url, 2))
            for _ in range(2):
                assert await asyncio.to_thread(server.arrived.acquire, timeout=5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(2):
                assert await asyncio.to_thread(server.closed.acquire, timeout=5)

    with Server([answer(), hang]) as server:
        asyncio.run(cancel(server))


def test_a_warm_up_whose_tls_hangs_says_so() -> None:
    dependency = pricing(timeouts=Timeouts(connect=0.06))

    async def warm_up(server: Server) -> None:
        async with AsyncHoldfastTransport(dependency) as transport:
            await transport.warm_up(server.url)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with Server([answer()], tls=context, before_tls=Link.until_gone) as server:
        with pytest.raises(httpx.ConnectTimeout) as caught:
            asyncio.run(warm_up(server))
        assert server.closed.acquire(timeout=5), "the socket of the set-up that was cut off is closed"
    assert "none of 1 connections is ready" in caught.value.__notes__[0]


def test_a_connection_that_is_cut_off_while_it_is_set_up_is_told_as_such() -> None:
    dependency = pricing(timeouts=Timeouts(connect=0.06, attempt=2.0), retry=Retry(max_attempts=1))

    async def post(url: str) -> None:
        async with httpx.AsyncClient(transport=AsyncHoldfastTransport(dependency), timeout=None) as client:
            await client.post(url)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with Server([answer()], tls=context, before_tls=Link.until_gone) as server:
        with pytest.raises(httpx.ConnectTimeout) as caught:
            asyncio.run(post(server.url))
        assert server.closed.acquire(timeout=5)
    # By httpx's own timeout or by Holdfast's, whichever comes first: they are the same.
    assert isinstance(caught.value, ConnectTimedOut | httpx.ConnectTimeout)
    assert isinstance(dependency.sink, Events)
    assert [event.failure for event in dependency.sink if isinstance(event, GaveUp)] == [FailureKind.UNSENT]
