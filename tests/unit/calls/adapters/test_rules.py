"""Whether a request may be repeated, and what it is called."""

import math
import subprocess
import sys
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    AttemptTimedOut,
    CallError,
    ConnectTimedOut,
    DeadlineExceeded,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    LimitReached,
    RetryAfterTooLong,
)
from holdfast.calls import Dependency, FailureKind, NoEndpoint, classify, current_attempt
from holdfast.calls.adapters.httpx.progress import to_httpx_error
from holdfast.calls.adapters.requests.body import to_requests_error
from holdfast.calls.adapters.rules import (
    DEFAULTS,
    IDEMPOTENT_METHODS,
    MIN_TIMEOUT,
    Origin,
    RequestOptions,
    add_headers,
    check_connections,
    count_ready,
    is_kept_open,
    late_answer_error,
    parse_options,
    parse_origin,
    plan_call,
    shorter_timeout,
)
from holdfast.calls.context import SCOPE
from holdfast.calls.scope import IncomingScope
from tests.table import rows

methods = st.sampled_from([*sorted(IDEMPOTENT_METHODS), "POST", "PATCH", "get", "post"])
options = st.builds(RequestOptions, idempotent=st.none() | st.booleans(), operation=st.none() | st.just("reserve"))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "put"])
def test_methods_that_are_idempotent_by_definition_may_be_repeated(method: str) -> None:
    assert plan_call(method, DEFAULTS, accepts_keys=False, is_repeatable=True).idempotent


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LINK"])
def test_others_may_not_unless_a_key_is_sent(method: str) -> None:
    plain = plan_call(method, DEFAULTS, accepts_keys=False, is_repeatable=True)
    accepts_keys = plan_call(method, DEFAULTS, accepts_keys=True, is_repeatable=True)
    assert (plain.idempotent, plain.send_key) == (False, False)
    assert (accepts_keys.idempotent, accepts_keys.send_key) == (True, True)


def sent(headers: dict[str, str], *, propagate: bool = True, send_key: bool = False) -> dict[str, str]:
    token = SCOPE.set(IncomingScope(math.inf, trace="00-their-trace"))
    try:
        Dependency("pricing").run(
            lambda: add_headers(headers, current_attempt(), propagate=propagate, send_key=send_key), idempotent=True
        )
    finally:
        SCOPE.reset(token)
    return headers


def test_an_attempt_sends_its_bounds_along_and_its_key_if_the_server_knows_keys() -> None:
    assert sent({}, propagate=False) == {}
    assert sent({}).keys() == {"holdfast-remaining", "holdfast-retry-owner", "traceparent"}
    assert sent({}, propagate=False, send_key=True).keys() == {"idempotency-key"}


def test_a_trace_and_a_key_that_a_request_has_already_stay() -> None:
    own = {"traceparent": "00-our-trace", "idempotency-key": "ours", "holdfast-retry-owner": "ours"}
    assert sent({**own}, send_key=True).items() >= {**own, "holdfast-retry-owner": "pricing"}.items()


@pytest.mark.parametrize(
    ("asked", "left", "expected"),
    [(None, math.inf, None), (3.0, math.inf, 3.0), (None, 2.0, 2.0), (3.0, 2.0, 2.0), (1.0, 2.0, 1.0)],
)
def test_the_sooner_of_two_timeouts_holds(asked: float | None, left: float, expected: float | None) -> None:
    assert shorter_timeout(asked, left) == expected
    assert shorter_timeout(asked, 0.0) == MIN_TIMEOUT


def test_an_answer_that_takes_longer_than_the_call_ends_with_its_deadline() -> None:
    error = Dependency("pricing").run(lambda: late_answer_error(current_attempt()), idempotent=True)
    assert "pricing: the deadline passed while the response was read" in str(error)


@given(methods, options, st.booleans())
def test_a_body_that_can_be_sent_once_is_never_repeated(method: str, asked: RequestOptions, accepts_keys: bool) -> None:
    plan = plan_call(method, asked, accepts_keys=accepts_keys, is_repeatable=False)
    assert (plan.idempotent, plan.send_key) == (False, False)


@given(methods, st.booleans(), st.booleans())
def test_what_the_request_says_counts(method: str, idempotent: bool, accepts_keys: bool) -> None:
    asked = RequestOptions(idempotent=idempotent)
    assert plan_call(method, asked, accepts_keys=accepts_keys, is_repeatable=True).idempotent is idempotent


@given(methods, options, st.booleans())
def test_a_key_is_sent_only_where_it_is_needed(method: str, asked: RequestOptions, accepts_keys: bool) -> None:
    plan = plan_call(method, asked, accepts_keys=accepts_keys, is_repeatable=True)
    if plan.send_key:
        assert accepts_keys
        assert plan.idempotent
        assert method.upper() not in IDEMPOTENT_METHODS


def test_a_call_is_named_by_its_method_or_as_the_request_says() -> None:
    assert plan_call("get", DEFAULTS, accepts_keys=False, is_repeatable=True).operation == "GET"
    assert (
        plan_call("GET", RequestOptions(operation="price"), accepts_keys=False, is_repeatable=True).operation == "price"
    )


def test_options_are_nothing_or_themselves_or_a_mapping() -> None:
    asked = RequestOptions(idempotent=True, operation="reserve", stream=False)
    assert parse_options(None) is DEFAULTS
    assert parse_options(asked) is asked
    assert parse_options({"idempotent": True, "operation": "reserve", "stream": False}) == asked
    assert parse_options({}) == DEFAULTS


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, "a mapping with any of idempotent, operation, stream"),
        ({"idempotant": True}, "a mapping with any of idempotent, operation, stream"),
        ({"idempotent": "yes"}, "idempotent is 'yes': expected True, False or None"),
        ({"stream": 1}, "stream is 1"),
        ({"operation": ""}, "operation is '': expected a name"),
        ({"operation": 7}, "operation is 7: expected a name"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: Any, expected: str) -> None:
    with pytest.raises(InvalidValue, match=expected):
        parse_options(given)


@pytest.mark.parametrize(
    ("address", "expected", "netloc"),
    [
        ("10.0.0.1:8080", Origin("http", "10.0.0.1", 8080), "10.0.0.1:8080"),
        ("pricing.internal", Origin("http", "pricing.internal", None), "pricing.internal"),
        ("https://pricing.internal", Origin("https", "pricing.internal", None), "pricing.internal"),
        ("https://pricing.internal:443/", Origin("https", "pricing.internal", 443), "pricing.internal"),
        ("http://pricing:443", Origin("http", "pricing", 443), "pricing:443"),
        ("[fd00::1]:8080", Origin("http", "fd00::1", 8080), "[fd00::1]:8080"),
        ("https://[fd00::1]", Origin("https", "fd00::1", None), "[fd00::1]"),
    ],
)
def test_an_address_is_host_and_port_or_a_url(address: str, expected: Origin, netloc: str) -> None:
    assert parse_origin(address, "http") == expected
    assert expected.netloc == netloc


def test_an_address_without_a_scheme_has_that_of_the_request() -> None:
    assert parse_origin("pricing:9", "https").scheme == "https"


@rows(
    "address",
    ["", "http://", "ftp://pricing", "http://pricing/path", "http://pricing?a=1", "http://me@pricing", "pricing:x",
     "pricing:70000", "http://[fd00::1", "http://pricing#top"],
)  # fmt: skip
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue, match="expected host:port"):
        parse_origin(address, "http")


@given(st.sampled_from(["http", "https"]), st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,2}", fullmatch=True),
       st.none() | st.integers(1, 65_535))  # fmt: skip
def test_what_the_host_header_says_leads_back_to_the_same_place(scheme: str, host: str, port: int | None) -> None:
    origin = parse_origin(host if port is None else f"{host}:{port}", scheme)
    default = {"http": 80, "https": 443}[scheme]
    again = parse_origin(origin.netloc, scheme)
    assert (again.scheme, again.host, again.port or default) == (scheme, host, port or default)


def test_those_that_are_ready_are_counted_whatever_happened_to_others() -> None:
    assert count_ready("http://a", [True, OSError("no"), True, False]) == 2


def test_if_none_is_ready_the_first_error_is_raised_with_a_note() -> None:
    with pytest.raises(OSError, match="first") as caught:
        count_ready("http://a", [False, OSError("first"), OSError("second")])
    assert caught.value.__notes__ == ["holdfast: warm-up of http://a: none of 3 connections is ready"]


def test_if_the_server_keeps_none_that_is_said() -> None:
    with pytest.raises(CallError, match="http://a: the server closes each connection"):
        count_ready("http://a", [False, False])


@pytest.mark.parametrize(
    ("version", "said", "expected"),
    [
        ("HTTP/1.1", {}, True),
        ("HTTP/2", {}, True),
        ("HTTP/1.1", {"connection": "close"}, False),
        ("HTTP/1.1", {"connection": "Upgrade, Close"}, False),
        ("HTTP/1.0", {}, False),
        ("HTTP/1.0", {"connection": "Keep-Alive"}, True),
    ],
)
def test_a_connection_stays_open_unless_version_or_header_say_otherwise(
    version: str, said: dict[str, str], expected: bool
) -> None:
    assert is_kept_open(version, said) is expected


def test_at_least_one_connection_must_be_meant() -> None:
    check_connections(1)
    with pytest.raises(InvalidValue, match="of 0 connections"):
        check_connections(0)


BOTH = [
    (AttemptTimedOut, httpx.ReadTimeout, requests.ReadTimeout),
    (DeadlineExceeded, httpx.ReadTimeout, requests.ReadTimeout),
    (RetryAfterTooLong, httpx.TransportError, requests.RequestException),
    (LimitReached, httpx.TransportError, requests.RequestException),
    (NoEndpoint, httpx.ConnectError, requests.ConnectionError),
]


@pytest.mark.parametrize(("kind", "of_httpx", "of_requests"), BOTH)
def test_an_error_has_a_twin_that_both_kinds_of_clauses_catch(
    kind: type[HoldfastError], of_httpx: type[Exception], of_requests: type[Exception]
) -> None:
    error = kind("what happened")
    error.add_note("tried twice")
    error.__cause__ = ValueError("why")
    for twin, library in ((to_httpx_error(error), of_httpx), (to_requests_error(error), of_requests)):
        assert isinstance(twin, kind)
        assert isinstance(twin, library)
        assert (str(twin), twin.slug, twin.__notes__) == ("what happened", error.slug, ["tried twice"])
        assert twin.__cause__ is error.__cause__
        assert classify(twin, lambda: 0.0).kind is classify(error, lambda: 0.0).kind


def test_a_connection_that_was_not_ready_in_time_is_a_connect_timeout() -> None:
    twin = to_httpx_error(ConnectTimedOut("no"))
    assert isinstance(twin, httpx.ConnectTimeout)
    assert classify(twin, lambda: 0.0).kind is FailureKind.UNSENT


def test_what_is_one_already_or_has_no_counterpart_stays_as_it_is() -> None:
    for other in (CallError("x"), EngineUnavailable("x")):
        assert to_httpx_error(other) is other
        assert to_requests_error(other) is other
    once, twice = to_httpx_error(RetryAfterTooLong("x")), to_requests_error(RetryAfterTooLong("x"))
    assert to_httpx_error(once) is once
    assert to_requests_error(twice) is twice


def test_a_twin_has_what_handlers_of_the_library_ask_for() -> None:
    of_httpx, of_requests = to_httpx_error(RetryAfterTooLong("x")), to_requests_error(RetryAfterTooLong("x"))
    assert isinstance(of_httpx, httpx.RequestError)
    with pytest.raises(RuntimeError, match="has not been set"):
        _ = of_httpx.request
    of_httpx.request = httpx.Request("GET", "http://pricing")
    assert of_httpx.request.url.host == "pricing"
    assert isinstance(of_requests, requests.RequestException)
    assert (of_requests.request, of_requests.response) == (None, None)


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_without_the_library_the_message_says_what_to_install(library: str) -> None:
    script = f"import sys; sys.modules['{library}'] = None; import holdfast.calls.adapters.{library}"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"MissingExtra: the {library} adapter needs the extra '{library}'" in outcome.stderr


def test_what_a_call_has_left_on_its_error_goes_along() -> None:
    error = ConnectTimedOut("no connection")
    error.add_note("tried twice")
    error.sign = "settled"  # type: ignore[attr-defined]
    twin = to_httpx_error(error)
    twin.add_note("another")
    assert (vars(twin)["sign"], twin.__notes__, error.__notes__) == (
        "settled",
        ["tried twice", "another"],
        ["tried twice"],
    )
