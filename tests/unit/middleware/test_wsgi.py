"""The driver for WSGI, under a validator of the protocol on both sides where the protocol is kept."""

import gc
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from holdfast import DeadlineExceeded
from holdfast._types import Operation, RequestDetail
from holdfast.calls import remaining
from holdfast.calls.context import current_scope
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import IncomingScope
from holdfast.middleware import MiddlewareOptions, WsgiMiddleware, mark_cache_refresh
from holdfast.testing import FakeClock
from tests.unit.middleware.fakes import HERE, Broken, Kept, Zones, fake_runtime

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TEXT = [("Content-Type", "text/plain")]


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


def fine(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", TEXT)
    return [b"fine"]


def fail() -> None:
    raise ZeroDivisionError


class Server:
    """Asks an application as a server does."""

    def __init__(self, app: App, **variables: str) -> None:
        self.environ: dict[str, Any] = {"QUERY_STRING": "", "SCRIPT_NAME": "", "PATH_INFO": "/", **variables}
        setup_testing_defaults(self.environ)
        self.environ["wsgi.errors"] = io.StringIO()
        self.status = ""
        self.headers: dict[str, str] = {}
        self.has_sent = False
        self.pieces: Any = app(self.environ, self.start_response)

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        if exc_info is not None and self.has_sent:
            raise exc_info[1]
        self.status, self.headers = status, dict(headers)
        return self.write

    def write(self, data: bytes) -> None:
        self.has_sent = True

    def close(self) -> None:
        if hasattr(self.pieces, "close"):
            self.pieces.close()

    def read(self) -> bytes:
        try:
            found = []
            for piece in self.pieces:
                self.has_sent = True
                found.append(piece)
            return b"".join(found)
        finally:
            self.close()


def wrap(app: App, sink: Kept | Broken | None, runtime: Runtime, **options: Any) -> App:
    around = {name: options.pop(name) for name in ("zones", "operation") if name in options}
    service = MiddlewareOptions(workload="shop", zone=HERE, instance="i-1", **options)
    return WsgiMiddleware(app, service, sink=sink, runtime=runtime, **around)


def checked(app: App, sink: Kept | Broken | None, runtime: Runtime, **options: Any) -> App:
    """The same, with both sides held to PEP 3333."""
    checked: App = validator(wrap(validator(app), sink, runtime, **options))
    return checked


# Bounds


def test_bounds_hold_in_the_application_in_every_piece_and_in_close_and_nowhere_else(runtime: Runtime) -> None:
    seen: list[Any] = []

    class Pieces:
        def __iter__(self) -> Iterator[bytes]:
            seen.append(current_scope())
            for _ in range(2):
                seen.append(current_scope())
                yield b"x"

        def close(self) -> None:
            seen.append(current_scope())

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        seen.extend((current_scope(), remaining(runtime=runtime)))
        start_response("200 OK", TEXT)
        return Pieces()

    headers = {
        "HTTP_HOLDFAST_REMAINING": "1.5",
        "HTTP_HOLDFAST_RETRY_OWNER": "cart",
        "HTTP_TRACEPARENT": TRACE,
    }
    server = Server(wrap(app, None, runtime), **headers)
    assert current_scope() is None
    assert next(server.pieces) == b"x"
    assert current_scope() is None
    assert server.read() == b"x"
    bounds = seen[0]
    assert isinstance(bounds, IncomingScope)
    assert (seen.pop(1), bounds.retry_owner, bounds.trace) == (1.5, "cart", TRACE)
    assert all(one is bounds for one in seen)
    assert len(seen) == 5


def test_a_request_that_is_late_is_refused_without_the_application(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise AssertionError("called for nobody")

    server = Server(checked(app, sink, runtime), HTTP_HOLDFAST_REMAINING="0")
    assert json.loads(server.read())["type"] == "urn:holdfast:problem:deadline-exceeded"
    assert server.status == "504 Gateway Timeout"
    assert sink.counts == ["5xx 0"]
    assert sink.outcomes[0].is_ignored


def test_a_refusal_of_a_head_request_has_no_body_but_its_length(runtime: Runtime) -> None:
    server = Server(wrap(fine, None, runtime), REQUEST_METHOD="HEAD", HTTP_HOLDFAST_REMAINING="0")
    assert server.read() == b""
    assert int(server.headers["content-length"]) > 0


# Outcomes


def test_a_request_is_reported_once_with_its_place_and_latency(runtime: Runtime, clock: FakeClock, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["werkzeug.request"] = SimpleNamespace(url_rule=SimpleNamespace(rule="/users/<id>"))
        start_response("200 OK", TEXT)
        clock.advance(1.0)
        yield b"a"
        clock.advance(1.0)
        yield b"b"

    server = Server(wrap(app, sink, runtime))
    assert next(server.pieces) == b"a"
    assert sink.outcomes == []
    assert server.read() == b"b"
    (told,) = sink.outcomes
    assert sink.counts == ["2xx 2"]
    assert (told.workload, told.zone, told.instance, told.at) == ("shop", HERE, "i-1", clock.wall())
    assert told.operation == Operation("shop", "GET /users/<id>")
    assert not told.is_ignored


def test_an_ordinary_answer_passes_as_it_is(runtime: Runtime, sink: Kept) -> None:
    server = Server(checked(fine, sink, runtime))
    assert (server.read(), server.status) == (b"fine", "200 OK")
    assert sink.counts == ["2xx 0"]


def test_a_server_that_counts_the_pieces_still_can(runtime: Runtime) -> None:
    assert len(Server(wrap(fine, None, runtime)).pieces) == 1
    assert not hasattr(Server(wrap(lambda environ, start: iter(()), None, runtime)).pieces, "__len__")


def test_an_exception_is_a_fault_and_is_raised_on(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Server(wrap(app, sink, runtime))
    assert sink.counts == ["5xx 0"]


def test_an_exception_in_the_middle_of_the_body_is_a_fault_whatever_the_status(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Server(wrap(app, sink, runtime)).read()
    assert sink.counts == ["5xx 0"]


def test_an_application_that_changes_its_mind_before_anything_is_sent_counts_with_the_last_status(
    runtime: Runtime, sink: Kept
) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        try:
            fail()
        except ZeroDivisionError:
            start_response("503 Service Unavailable", TEXT, sys.exc_info())
        return [b"sorry"]

    server = Server(checked(app, sink, runtime))
    assert (server.read(), server.status) == (b"sorry", "503 Service Unavailable")
    assert sink.counts == ["5xx 0"]


def test_an_application_that_changes_its_mind_too_late_gets_its_own_error_back(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        yield b"a"
        try:
            fail()
        except ZeroDivisionError:
            start_response("503 Service Unavailable", TEXT, sys.exc_info())

    with pytest.raises(ZeroDivisionError):
        Server(wrap(app, sink, runtime)).read()
    assert sink.counts == ["5xx 0"]


def test_a_client_that_leaves_in_the_middle_is_no_fault_and_the_application_is_closed(
    runtime: Runtime, sink: Kept
) -> None:
    closed: list[bool] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(True)

    server = Server(wrap(app, sink, runtime))
    next(server.pieces)
    server.close()
    server.close()
    assert closed == [True]
    assert sink.counts == ["2xx 0"]


def test_a_body_that_nobody_ever_read_counts_as_a_client_that_left(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        yield b"a"

    Server(wrap(app, sink, runtime)).close()
    assert sink.counts == ["4xx 0"]


def test_a_body_that_was_abandoned_is_reported_all_the_same(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        yield b"a"
        yield b"b"

    server = Server(wrap(app, sink, runtime))
    next(server.pieces)
    del server
    gc.collect()
    assert sink.counts == ["2xx 0"]


def test_a_client_that_is_gone_when_the_application_writes_is_no_fault(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", TEXT)
        write(b"a")
        return []

    class Cut(Server):
        def write(self, data: bytes) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Cut(wrap(app, sink, runtime))
    Server(wrap(app, sink, runtime)).read()
    assert sink.counts == ["2xx 0", "2xx 0"]


def test_an_error_while_closing_is_raised_on_and_the_answer_counts_as_it_was(runtime: Runtime, sink: Kept) -> None:
    class Pieces(list[bytes]):
        def close(self) -> None:
            raise ZeroDivisionError

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        return Pieces([b"a"])

    with pytest.raises(ZeroDivisionError):
        Server(wrap(app, sink, runtime)).read()
    assert sink.counts == ["2xx 0"]


def test_an_outcome_has_the_details_of_its_request_but_no_query(runtime: Runtime, sink: Kept) -> None:
    variables = {
        "SCRIPT_NAME": "/shop",
        "PATH_INFO": "/caf\u00c3\u00a9",  # the bytes of UTF-8, each as a character: so WSGI wants it
        "QUERY_STRING": "token=secret",
        "HTTP_HOST": "shop.example.com",
        "HTTP_TRACEPARENT": TRACE,
        "REMOTE_ADDR": "203.0.113.7",
    }
    for options in ({}, {"report_source_ip": True}):
        assert Server(checked(fine, sink, runtime, **options), **variables).read() == b"fine"
    detail = RequestDetail(status=200, trace=TRACE[3:35], path="/shop/caf\u00e9", host="shop.example.com")
    assert [outcome.detail for outcome in sink.outcomes] == [detail, replace(detail, source_ip="203.0.113.7")]


def test_a_path_that_is_no_text_does_no_harm(runtime: Runtime, sink: Kept) -> None:
    assert Server(wrap(fine, sink, runtime), PATH_INFO="/\u00ff\u20ac").read() == b"fine"
    assert [outcome.detail and outcome.detail.path for outcome in sink.outcomes] == ["/\ufffd?"]


def test_a_handler_can_say_that_it_refreshes_a_cache(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        mark_cache_refresh()
        return fine(environ, start_response)

    Server(checked(app, sink, runtime)).read()
    Server(checked(fine, sink, runtime)).read()
    assert [outcome.detail and outcome.detail.is_cache_refresh for outcome in sink.outcomes] == [True, False]


def test_a_sink_that_raises_reaches_nobody(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    assert Server(checked(fine, Broken(), runtime)).read() == b"fine"
    assert "further ones are only counted" in caplog.text


def test_the_route_of_bottle_is_known_and_a_path_is_never_a_name(runtime: Runtime, sink: Kept) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["bottle.route"] = SimpleNamespace(rule="/items/<id>")
        return fine(environ, start_response)

    Server(wrap(app, sink, runtime), PATH_INFO="/items/1").read()
    Server(wrap(fine, sink, runtime), PATH_INFO="/wp-admin.php").read()
    own = wrap(fine, sink, runtime, operation=lambda environ: Operation("users", environ["PATH_INFO"]))
    Server(own, PATH_INFO="/me").read()
    assert [one.operation.name for one in sink.outcomes] == ["GET /items/<id>", "GET unmatched", "/me"]


# Past the deadline


def respond_to(clock: FakeClock) -> App:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        clock.advance(61.0)
        raise DeadlineExceeded("pricing: refused")

    return app


def gives_up_in_its_body(clock: FakeClock) -> App:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        clock.advance(61.0)
        yield from respond_to(clock)(environ, start_response)

    return app


@pytest.mark.parametrize("app", [respond_to, gives_up_in_its_body])
@pytest.mark.parametrize(("given", "counts"), [("2", "5xx"), ("0.09", "4xx"), ("soon", "5xx")])
def test_an_application_that_gives_up_because_its_deadline_has_passed_is_answered_for(
    app: Callable[[FakeClock], App], given: str, counts: str, runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    server = Server(wrap(app(clock), sink, runtime), HTTP_HOLDFAST_REMAINING=given)
    assert json.loads(server.read())["type"] == "urn:holdfast:problem:deadline-exceeded"
    assert server.status == "504 Gateway Timeout"
    assert [one.partition(" ")[0] for one in sink.counts] == [counts]


@pytest.mark.parametrize("app", [respond_to, gives_up_in_its_body])
def test_the_same_for_a_head_request_has_no_body(
    app: Callable[[FakeClock], App], runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    server = Server(wrap(app(clock), sink, runtime), REQUEST_METHOD="HEAD")
    assert server.read() == b""
    assert server.status == "504 Gateway Timeout"
    assert len(sink.outcomes) == 1


def test_an_application_that_gives_up_in_time_or_after_it_began_to_answer_is_not_answered_for(
    runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    def in_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise DeadlineExceeded("one of its own")

    def began(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", TEXT)
        clock.advance(61.0)
        raise DeadlineExceeded

    for app in (in_time, began):
        with pytest.raises(DeadlineExceeded):
            Server(wrap(app, sink, runtime))
    assert [one.count_5xx for one in sink.outcomes] == [1, 1]


@pytest.mark.parametrize(("given", "counts"), [("2", ["5xx 3"]), ("0.05", ["4xx 3"]), ("soon", ["2xx 3"])])
def test_an_answer_after_the_callers_deadline_is_for_nobody(
    given: str, counts: list[str], runtime: Runtime, clock: FakeClock, sink: Kept
) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        clock.advance(3.0)
        return fine(environ, start_response)

    assert Server(wrap(app, sink, runtime), HTTP_HOLDFAST_REMAINING=given).read() == b"fine"
    assert sink.counts == counts


# The zone


def test_health_checks_obey_the_zone_and_are_never_outcomes(runtime: Runtime, sink: Kept, zones: Zones) -> None:
    app = checked(fine, sink, runtime, zones=zones)
    assert Server(app, PATH_INFO="/health").read() == b"fine"
    zones.are_out = frozenset({HERE})
    server = Server(app, PATH_INFO="/health")
    assert json.loads(server.read())["type"] == "urn:holdfast:problem:zone-out"
    assert server.status == "503 Service Unavailable"
    assert sink.outcomes == []
    assert Server(app, PATH_INFO="/").read() == b"fine"
    assert sink.counts == ["2xx 0"]


def test_a_health_path_is_found_under_where_the_application_is_mounted(runtime: Runtime, zones: Zones) -> None:
    zones.are_out = frozenset({HERE})
    server = Server(
        wrap(fine, None, runtime, zones=zones, health_path="/shop/health"), SCRIPT_NAME="/shop", PATH_INFO="/health"
    )
    server.read()
    assert server.status == "503 Service Unavailable"


def test_a_service_that_refuses_says_when_to_come_back(runtime: Runtime, sink: Kept, zones: Zones) -> None:
    zones.are_out = frozenset({HERE})
    server = Server(checked(fine, sink, runtime, zones=zones, refuse_while_out=True))
    server.read()
    assert (server.status, server.headers["retry-after"]) == ("503 Service Unavailable", "8")
    assert [one.is_ignored for one in sink.outcomes] == [True]
