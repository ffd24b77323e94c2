"""The driver for ASGI, message by message."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import DeadlineExceeded, InvalidValue
from holdfast._types import Operation, RequestDetail, Side
from holdfast.calls import deadline, remaining
from holdfast.calls.context import current_scope
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import IncomingScope
from holdfast.middleware import AsgiMiddleware, MiddlewareOptions, mark_cache_refresh
from holdfast.testing import FakeClock
from tests.unit.middleware.fakes import HERE, Broken, Kept, Zones, fake_runtime

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CLIENT_GONE: dict[str, Any] = {"type": "http.disconnect"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runtime(clock: FakeClock) -> Runtime:
    return fake_runtime(clock)


@pytest.fixture
def sink() -> Kept:
    return Kept()


@pytest.fixture
def zones() -> Zones:
    return Zones()


def start(status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": []}


def body(data: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def fine(scope: Any, receive: Receive, send: Send) -> None:
    await send(start())
    await send(body(b"fine"))


def ask(
    app: App,
    *,
    path: str = "/",
    method: str = "GET",
    headers: dict[str, str] | None = None,
    incoming: Iterable[Any] = (),
    kind: str = "http",
    send_error: Exception | None = None,
    client: tuple[str, int] | None = ("203.0.113.7", 4711),
) -> list[Any]:
    """Send one request; returns the messages that came back."""
    sent: list[Any] = []
    messages = iter(incoming)

    async def receive() -> Any:
        return next(messages, {"type": "http.request", "body": b"", "more_body": False})

    async def send(message: Any) -> None:
        if send_error is not None:
            raise send_error
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    scope: dict[str, Any] = {
        "type": kind,
        "path": path,
        "query_string": b"token=secret",
        "method": method,
        "headers": raw,
    }
    scope["client"] = client

    async def main() -> None:
        assert current_scope() is None
        try:
            await app(scope, receive, send)
        finally:
            assert current_scope() is None, "the request's bounds were left behind"

    asyncio.run(main())
    return sent


def service(**options: Any) -> MiddlewareOptions:
    return MiddlewareOptions(workload="shop", zone=HERE, instance="i-1", **options)


def wrap(app: App, sink: Kept | Broken | None, runtime: Runtime, **options: Any) -> AsgiMiddleware:
    around = {name: options.pop(name) for name in ("zones", "operation") if name in options}
    return AsgiMiddleware(app, service(**options), sink=sink, runtime=runtime, **around)


# Bounds


def test_calls_inside_see_the_deadline_the_owner_and_the_trace_that_came_in(runtime: Runtime) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        seen.extend((current_scope(), remaining(runtime=runtime)))
        await fine(scope, receive, send)

    headers = {"holdfast-remaining": "1.5", "holdfast-retry-owner": "cart", "traceparent": TRACE}
    ask(wrap(app, None, runtime), headers=headers)
    bounds, left = seen
    assert isinstance(bounds, IncomingScope)
    assert (left, bounds.retry_owner, bounds.trace) == (1.5, "cart", TRACE)


def test_a_request_that_is_late_is_refused_without_the_application(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise AssertionError("called for nobody")

    first, second = ask(wrap(app, sink, runtime), headers={"holdfast-remaining": "0.000000"})
    assert first["status"] == 504
    assert json.loads(second["body"])["type"] == "urn:holdfast:problem:deadline-exceeded"
    assert sink.counts == ["5xx 0"]
    assert sink.outcomes[0].is_ignored


def test_a_refusal_of_a_head_request_has_no_body_but_its_length(runtime: Runtime) -> None:
    first, second = ask(wrap(fine, None, runtime), method="HEAD", headers={"holdfast-remaining": "0"})
    assert second["body"] == b""
    assert int(dict(first["headers"])[b"content-length"]) > 0


def test_headers_that_make_no_sense_are_no_headers(runtime: Runtime) -> None:
    assert (
        ask(wrap(fine, None, runtime), headers={"holdfast-remaining": "soon", "traceparent": "ä"})[0]["status"] == 200
    )


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_what_is_not_http_passes_untouched(kind: str, runtime: Runtime, sink: Kept) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        seen.append((current_scope(), receive.__qualname__, send.__qualname__))

    ask(wrap(app, sink, runtime), kind=kind)
    assert [one[0] for one in seen] == [None]
    assert "_WatchedChannels" not in seen[0][1] + seen[0][2]
    assert sink.outcomes == []


# Outcomes


def test_a_request_is_reported_once_with_its_place_and_latency(runtime: Runtime, clock: FakeClock, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        scope["path_template"] = "/users/{id}"
        clock.advance(0.25)
        await fine(scope, receive, send)

    ask(wrap(app, sink, runtime), path="/users/7")
    (told,) = sink.outcomes
    assert sink.counts == ["2xx 0.25"]
    expected = ("shop", HERE, "i-1", clock.wall(), Side.SERVER)
    assert (told.workload, told.zone, told.instance, told.at, told.side) == expected
    assert told.operation == Operation("shop", "GET /users/{id}")
    assert not told.is_ignored


def test_the_latency_ends_with_the_last_byte_and_not_with_what_is_done_afterwards(
    runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        clock.advance(1.0)
        await send(body(b"a", more=True))
        clock.advance(1.0)
        assert sink.outcomes == []
        await send(body(b"b"))
        clock.advance(60.0)
        raise RuntimeError("a task in the background")

    with pytest.raises(RuntimeError):
        ask(wrap(app, sink, runtime))
    assert sink.counts == ["2xx 2"]


@pytest.mark.parametrize(
    "last", [{"type": "http.response.pathsend", "path": "/x"}, {"type": "http.response.zerocopysend", "file": 1}]
)
def test_files_that_the_server_sends_end_a_response_as_well(last: Any, runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.debug"})
        await send(start())
        await send(last)
        assert len(sink.outcomes) == 1

    ask(wrap(app, sink, runtime))


@pytest.mark.parametrize("status", [204, 302, 404, 500])
def test_answers_count_by_their_class(status: int, runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start(status))
        await send(body())

    ask(wrap(app, sink, runtime))
    assert sink.counts == [f"{status // 100}xx 0"]


def test_an_exception_is_a_fault_and_is_raised_on(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(wrap(app, sink, runtime))
    assert sink.counts == ["5xx 0"]


def test_an_exception_after_the_response_began_is_a_fault_whatever_its_status(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start(200))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(wrap(app, sink, runtime))
    assert sink.counts == ["5xx 0"]


@pytest.mark.parametrize("messages", [[], [start()], [start(), body(b"half", more=True)]])
def test_a_response_that_is_not_finished_is_a_fault(messages: list[Any], runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    ask(wrap(app, sink, runtime))
    assert sink.counts == ["5xx 0"]


def test_a_client_that_left_before_the_answer_is_no_fault_whatever_the_application_does_then(
    runtime: Runtime, sink: Kept
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        raise RuntimeError("the client is gone")

    async def frames_it(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        await send(start(500))
        await send(body())

    with pytest.raises(RuntimeError):
        ask(wrap(app, sink, runtime), incoming=[CLIENT_GONE])
    ask(wrap(frames_it, sink, runtime), incoming=[CLIENT_GONE])
    assert sink.counts == ["4xx 0", "4xx 0"]


def test_a_client_that_left_in_the_middle_counts_with_the_status_that_it_saw(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start(200))
        await receive()
        raise RuntimeError("the client is gone")

    with pytest.raises(RuntimeError):
        ask(wrap(app, sink, runtime), incoming=[CLIENT_GONE])
    assert sink.counts == ["2xx 0"]


def test_a_client_that_is_still_there_is_not_taken_to_have_left(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ask(wrap(app, sink, runtime))
    assert sink.counts == ["5xx 0"]


def test_a_send_that_fails_because_the_client_is_gone_is_no_fault(runtime: Runtime, sink: Kept) -> None:
    with pytest.raises(BrokenPipeError):
        ask(wrap(fine, sink, runtime), send_error=BrokenPipeError())
    assert sink.counts == ["4xx 0"]


def test_a_request_that_is_cancelled_is_reported_and_no_fault(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        ask(wrap(app, sink, runtime))
    assert sink.counts == ["4xx 0"]


XRAY = "1-5759e988-bd862e3fe1be46a994272793"


def test_an_outcome_has_the_details_of_its_request_but_no_query_and_no_address(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start(429))
        await send(body())

    headers = {"host": "shop.example.com", "traceparent": TRACE, "x-amzn-trace-id": f"Root={XRAY}"}
    ask(wrap(app, sink, runtime), path="/items/7", headers=headers)
    expected = RequestDetail(status=429, trace=TRACE[3:35], path="/items/7", host="shop.example.com")
    assert [outcome.detail for outcome in sink.outcomes] == [expected]


@pytest.mark.parametrize(("client", "reported"), [(("203.0.113.7", 4711), "203.0.113.7"), (None, "")])
def test_the_clients_address_is_reported_if_asked_for_and_known(
    client: tuple[str, int] | None, reported: str, runtime: Runtime, sink: Kept
) -> None:
    ask(wrap(fine, sink, runtime, report_source_ip=True), client=client, headers={"x-amzn-trace-id": f"Root={XRAY}"})
    assert [outcome.detail for outcome in sink.outcomes] == [
        RequestDetail(status=200, trace=XRAY, path="/", source_ip=reported)
    ]


def test_a_status_that_no_response_had_is_reported_as_it_is_counted(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        ask(wrap(app, sink, runtime))
    ask(wrap(fine, sink, runtime), headers={"holdfast-remaining": "0"})
    assert [outcome.detail and outcome.detail.status for outcome in sink.outcomes] == [499, 504]


def test_a_handler_can_say_that_it_refreshes_a_cache_also_inside_a_deadline_of_its_own(
    runtime: Runtime, sink: Kept
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        with deadline(1.0, runtime=runtime):
            mark_cache_refresh()
        await fine(scope, receive, send)

    mark_cache_refresh()
    ask(wrap(fine, sink, runtime))
    ask(wrap(app, sink, runtime))
    assert [outcome.detail and outcome.detail.is_cache_refresh for outcome in sink.outcomes] == [False, True]


def test_a_sink_that_raises_reaches_nobody(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    app = wrap(fine, Broken(), runtime)
    assert [ask(app)[0]["status"] for _ in range(3)] == [200, 200, 200]
    [record] = caplog.records
    assert "further ones are only counted" in record.getMessage(), "once: more would flood the log"
    assert app._gate.meter is not None
    assert app._gate.meter.dropped_outcomes == 3


def test_an_operation_is_what_you_say_it_is(runtime: Runtime, sink: Kept) -> None:
    ask(wrap(fine, sink, runtime, operation=lambda scope: Operation("users", scope["path"])), path="/me")
    assert [one.operation for one in sink.outcomes] == [Operation("users", "/me")]


def test_a_name_that_cannot_be_had_reaches_nobody(
    runtime: Runtime, sink: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(wrap(fine, sink, runtime, operation=lambda scope: scope["none"]))[0]["status"] == 200
    assert "could not find the operation of a request" in caplog.text
    assert [one.operation for one in sink.outcomes] == [Operation("shop", "unmatched")]


def test_the_route_of_fastapi_is_known_and_a_path_is_never_a_name(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path="/items/{id}")
        await fine(scope, receive, send)

    ask(wrap(app, sink, runtime), path="/items/1")
    ask(wrap(fine, sink, runtime), path="/wp-admin.php")
    assert [one.operation.name for one in sink.outcomes] == ["GET /items/{id}", "GET unmatched"]


def test_without_a_sink_nothing_is_reported(runtime: Runtime) -> None:
    assert ask(wrap(fine, None, runtime))[1]["body"] == b"fine"


# Past the deadline


class Twin(DeadlineExceeded, OSError):
    """As adapters raise it."""


@pytest.mark.parametrize("kind", [DeadlineExceeded, Twin])
@pytest.mark.parametrize(
    ("given", "counts"),
    [({"holdfast-remaining": "2"}, "5xx 61"), ({"holdfast-remaining": "0.09"}, "4xx 61"), ({}, "5xx 61")],
)
def test_an_application_that_gives_up_because_its_deadline_has_passed_is_answered_for(
    kind: type[Exception], given: dict[str, str], counts: str, runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        clock.advance(61.0)
        raise kind("pricing: refused")

    first, second = ask(wrap(app, sink, runtime), headers=given)
    assert first["status"] == 504
    assert json.loads(second["body"])["type"] == "urn:holdfast:problem:deadline-exceeded"
    assert sink.counts == [counts]
    assert ask(wrap(app, sink, runtime, late_status=503), headers=given)[0]["status"] == 503


def test_a_deadline_that_is_not_the_requests_own_is_an_exception_like_others(runtime: Runtime, sink: Kept) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise DeadlineExceeded("one of its own")

    with pytest.raises(DeadlineExceeded):
        ask(wrap(app, sink, runtime), headers={"holdfast-remaining": "2"})
    assert sink.counts == ["5xx 0"]


def test_an_application_that_gives_up_after_it_began_to_answer_or_for_nobody_is_not_answered_for(
    runtime: Runtime, clock: FakeClock
) -> None:
    async def began(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        clock.advance(61.0)
        raise DeadlineExceeded

    async def gone(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        clock.advance(61.0)
        raise DeadlineExceeded

    for app in (began, gone):
        with pytest.raises(DeadlineExceeded):
            ask(wrap(app, None, runtime), incoming=[CLIENT_GONE])


@pytest.mark.parametrize(
    ("given", "after", "counts"),
    [("2", 2.5, "5xx 2.5"), ("2", 1.9, "5xx 1.9"), ("2", 1.0, "4xx 1"), ("0.05", 0.5, "4xx 0.5"), ("", 61.0, "5xx 61")],
)
def test_a_client_that_waited_until_its_deadline_and_left_is_a_fault_if_the_time_was_fair(
    given: str, after: float, counts: str, runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        clock.advance(after)
        await receive()

    ask(wrap(app, sink, runtime), headers={"holdfast-remaining": given}, incoming=[CLIENT_GONE])
    assert sink.counts == [counts]


def test_a_client_that_left_early_is_no_fault_however_long_the_application_goes_on(
    runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        clock.advance(100.0)
        await receive()

    ask(wrap(app, sink, runtime), headers={"holdfast-remaining": "2"}, incoming=[CLIENT_GONE, CLIENT_GONE])
    assert sink.counts == ["4xx 100"]


def test_an_answer_after_the_callers_deadline_is_for_nobody_and_one_in_time_counts_as_it_is(
    runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    async def late(scope: Any, receive: Receive, send: Send) -> None:
        clock.advance(3.0)
        await fine(scope, receive, send)

    async def in_time(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        clock.advance(3.0)
        await send(body())

    for app in (late, in_time):
        ask(wrap(app, sink, runtime), headers={"holdfast-remaining": "2"})
    ask(wrap(late, sink, runtime, default_deadline=1.0))
    assert sink.counts == ["5xx 3", "2xx 3", "2xx 3"]


# The zone


def test_a_health_check_is_the_applications_own_while_the_zone_is_in_and_never_an_outcome(
    runtime: Runtime, sink: Kept, zones: Zones
) -> None:
    assert ask(wrap(fine, sink, runtime, zones=zones), path="/health")[1]["body"] == b"fine"
    assert zones.asked == ["shop"]
    assert sink.outcomes == []


def test_while_the_zone_is_out_only_the_health_check_says_so(runtime: Runtime, sink: Kept, zones: Zones) -> None:
    zones.are_out = frozenset({HERE})
    app = wrap(fine, sink, runtime, zones=zones)
    assert ask(app, path="/health")[0]["status"] == 503
    assert ask(app, path="/")[0]["status"] == 200
    assert sink.counts == ["2xx 0"]


def test_another_zone_that_is_out_is_none_of_our_business(runtime: Runtime, zones: Zones) -> None:
    zones.are_out = frozenset({HERE[:-1] + "2"})  # type: ignore[arg-type]
    assert ask(wrap(fine, None, runtime, zones=zones), path="/health")[0]["status"] == 200


def test_a_service_that_refuses_says_when_to_come_back(runtime: Runtime, sink: Kept, zones: Zones) -> None:
    zones.are_out = frozenset({HERE})
    app = wrap(fine, sink, runtime, zones=zones, refuse_while_out=True)
    answer = ask(app)[0]
    assert (answer["status"], dict(answer["headers"])[b"retry-after"]) == (503, b"8")
    assert [one.is_ignored for one in sink.outcomes] == [True]
    zones.are_out = frozenset()
    assert ask(app)[0]["status"] == 200


def test_the_health_path_is_yours_to_choose(runtime: Runtime, zones: Zones) -> None:
    zones.are_out = frozenset({HERE})
    app = wrap(fine, None, runtime, zones=zones, health_path="/ready")
    assert [ask(app, path=path)[0]["status"] for path in ("/health", "/ready")] == [200, 503]


def test_a_sink_or_a_view_needs_the_zone_and_a_refusal_needs_a_view(sink: Kept, zones: Zones) -> None:
    nowhere = MiddlewareOptions(workload="shop")
    with pytest.raises(InvalidValue, match="a sink, but no zone"):
        AsgiMiddleware(fine, nowhere, sink=sink)
    with pytest.raises(InvalidValue, match="a view of zones, but no zone"):
        AsgiMiddleware(fine, nowhere, zones=zones)
    with pytest.raises(InvalidValue, match="expected a view"):
        AsgiMiddleware(fine, service(refuse_while_out=True))


# Cutting off


async def an_hour_later() -> None:
    """Move the event loop's own time on, so that its timers are due."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + 3600.0  # type: ignore[method-assign]
    for _ in range(3):
        await asyncio.sleep(0)


async def hangs(scope: Any, receive: Receive, send: Send) -> None:
    await an_hour_later()
    await asyncio.Event().wait()


def test_a_handler_that_overruns_is_cut_off_if_that_is_wanted(sink: Kept, runtime: Runtime) -> None:
    first, second = ask(wrap(hangs, sink, runtime, cancel_overruns=True))
    assert (first["status"], json.loads(second["body"])["status"]) == (504, 504)
    assert [one.count_5xx for one in sink.outcomes] == [1]
    assert not sink.outcomes[0].is_ignored


def test_a_handler_that_has_begun_to_answer_is_not_cut_off(sink: Kept, runtime: Runtime) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        await an_hour_later()
        await send(body())

    messages = ask(wrap(app, sink, runtime, cancel_overruns=True))
    assert [message["type"] for message in messages] == ["http.response.start", "http.response.body"]
    assert [one.count_2xx for one in sink.outcomes] == [1]


def test_a_handler_that_answers_while_it_is_cut_off_has_the_last_word(sink: Kept, runtime: Runtime) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        try:
            await hangs(scope, receive, send)
        finally:
            await send(start(503))
            await send(body())

    (first, _) = ask(wrap(app, sink, runtime, cancel_overruns=True))
    assert first["status"] == 503


def test_a_handler_that_swallows_the_cancellation_is_answered_for(sink: Kept, runtime: Runtime) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        try:
            await hangs(scope, receive, send)
        except asyncio.CancelledError:
            return

    assert ask(wrap(app, sink, runtime, cancel_overruns=True))[0]["status"] == 504


def test_a_timeout_of_the_handlers_own_is_an_exception_like_others(sink: Kept, runtime: Runtime) -> None:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        ask(wrap(app, sink, runtime, cancel_overruns=True))
    assert sink.counts == ["5xx 0"]


def test_without_any_deadline_nothing_is_cut_off(sink: Kept, runtime: Runtime) -> None:
    assert (
        ask(wrap(fine, sink, runtime, cancel_overruns=True, default_deadline=None, max_deadline=None))[0]["status"]
        == 200
    )
