"""Every request has a trace and one line in the log."""

import asyncio
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.access import get_trace_id, log_access

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def scope_with(*headers: tuple[bytes, bytes], **changes: Any) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": "/v1/x", "headers": headers, "client": ("127.0.0.1", 1), **changes}


def trace_for(traceparent: str | bytes) -> str:
    value = traceparent.encode("latin-1") if isinstance(traceparent, str) else traceparent
    return get_trace_id(scope_with((b"traceparent", value)))


@pytest.mark.parametrize(
    "traceparent",
    [
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-00",
        f"cc-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01-what-the-future-brings",
    ],
)
def test_the_trace_of_the_caller_is_taken_over(traceparent: str) -> None:
    assert trace_for(traceparent) == TRACE


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "nonsense",
        TRACE,
        f"00-{TRACE}",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01\n",
        f"00-{TRACE}-{PARENT}-011",
        f"cc-{TRACE}-{PARENT}-01more",
        f"ff-{TRACE}-{PARENT}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f" 00-{TRACE}-{PARENT}-01",
        "é" * 55,
    ],
)
def test_a_trace_that_is_malformed_or_all_zero_is_replaced(traceparent: str) -> None:
    trace = trace_for(traceparent)
    assert re.fullmatch("[0-9a-f]{32}", trace)
    assert trace not in (TRACE, "0" * 32)


@given(st.binary(max_size=80))
def test_any_header_gives_a_trace_that_can_be_logged(value: bytes) -> None:
    assert re.fullmatch("(?!0{32})[0-9a-f]{32}", trace_for(value))


def test_a_request_without_a_trace_gets_one_and_keeps_it() -> None:
    scope, other = scope_with(), scope_with()
    assert get_trace_id(scope) == get_trace_id(scope)
    assert get_trace_id(scope) != get_trace_id(other)


class App:
    """Answers with a status, or dies of an error."""

    def __init__(self, status: int | None = 200, error: Exception | None = None) -> None:
        self.status = status
        self.error = error
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["type"])
        if self.status is not None:
            await send({"type": "http.response.start", "status": self.status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        if self.error is not None:
            raise self.error


def request(app: App, scope: dict[str, Any]) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    asyncio.run(log_access(app)(scope, receive, send))  # type: ignore[arg-type]
    return sent


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "holdfast.access")
    return caplog


def test_a_request_is_logged_by_the_names_of_opentelemetry(logged: pytest.LogCaptureFixture) -> None:
    sent = request(App(404), scope_with((b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    (record,) = logged.records
    fields = vars(record)
    assert record.getMessage() == "GET /v1/x 404"
    assert record.levelno == logging.INFO
    assert fields["trace_id"] == TRACE
    assert fields["http.request.method"] == "GET"
    assert fields["url.path"] == "/v1/x"
    assert fields["http.response.status_code"] == 404
    assert fields["http.server.request.duration"] >= 0
    assert fields["client.address"] == "127.0.0.1"


QUIET = ["/health", "/ready", "/status/use1-az1", "/status/use1-az1/shop", "/v1/status"]


@pytest.mark.parametrize("path", QUIET)
def test_what_machines_ask_again_and_again_is_logged_for_debugging_only(
    logged: pytest.LogCaptureFixture, path: str
) -> None:
    request(App(), scope_with(path=path))
    assert [record.levelno for record in logged.records] == [logging.DEBUG]


@pytest.mark.parametrize("path", QUIET)
def test_what_is_not_logged_is_answered_all_the_same(caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.INFO, "holdfast.access")
    sent = request(App(500), scope_with(path=path))
    assert sent[0]["status"] == 500
    assert caplog.records == []


@pytest.mark.parametrize("path", ["/v1/status/events", "/v1/status/history", "/v1/zones/use1-az1", "/statuses"])
def test_who_listens_looks_back_or_changes_something_is_logged(logged: pytest.LogCaptureFixture, path: str) -> None:
    request(App(), scope_with(path=path))
    assert [record.levelno for record in logged.records] == [logging.INFO]


def test_a_request_that_dies_without_an_answer_is_logged_as_500(logged: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="why"):
        request(App(None, ValueError("why")), scope_with(client=None))
    (record,) = logged.records
    assert vars(record)["http.response.status_code"] == 500
    assert vars(record)["client.address"] is None


class Reader:
    """Reads a body, before it answers or afterwards."""

    def __init__(self, *, answers_first: bool) -> None:
        self.answers_first = answers_first
        self.last: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.answers_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        while self.last is None or self.last.get("more_body"):
            self.last = await receive()
        if self.last["type"] == "http.disconnect" and not self.answers_first:
            raise ValueError("as Litestar does")


@pytest.mark.parametrize("answers_first", [False, True])
def test_a_client_that_disconnects_before_its_request_is_complete_is_no_failure(
    logged: pytest.LogCaptureFixture, answers_first: bool
) -> None:
    messages = iter([{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        pass

    reader = Reader(answers_first=answers_first)
    asyncio.run(log_access(reader)(scope_with(), receive, send))  # type: ignore[arg-type]
    (record,) = logged.records
    assert record.getMessage() == ("GET /v1/x 200" if answers_first else "GET /v1/x disconnected")
    assert vars(record)["http.response.status_code"] == (200 if answers_first else None)
    assert reader.last["type"] == ("http.disconnect" if answers_first else "http.request")


def test_what_is_no_request_is_passed_on_and_not_logged(logged: pytest.LogCaptureFixture) -> None:
    app = App(None)
    request(app, {"type": "lifespan"})
    assert app.seen == ["lifespan"]
    assert logged.records == []
