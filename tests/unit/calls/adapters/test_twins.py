"""Errors of Holdfast that are errors of an HTTP library as well."""

import subprocess
import sys

import httpx
import pytest
import requests

from holdfast import (
    AttemptTimedOut,
    CallError,
    ConnectTimedOut,
    DeadlineExceeded,
    EngineUnavailable,
    HeldBack,
    HoldfastError,
    LimitReached,
)
from holdfast.calls import Kind, NoEndpoint, classify
from holdfast.calls.adapters.httpx.errors import as_httpx
from holdfast.calls.adapters.requests.errors import as_requests

BOTH = [
    (AttemptTimedOut, httpx.ReadTimeout, requests.ReadTimeout),
    (DeadlineExceeded, httpx.ReadTimeout, requests.ReadTimeout),
    (HeldBack, httpx.TransportError, requests.RequestException),
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
    for twin, library in ((as_httpx(error), of_httpx), (as_requests(error), of_requests)):
        assert isinstance(twin, kind)
        assert isinstance(twin, library)
        assert (str(twin), twin.slug, twin.__notes__) == ("what happened", error.slug, ["tried twice"])
        assert twin.__cause__ is error.__cause__
        assert classify(twin, lambda: 0.0).kind is classify(error, lambda: 0.0).kind


def test_a_connection_that_was_not_ready_in_time_is_a_connect_timeout() -> None:
    twin = as_httpx(ConnectTimedOut("no"))
    assert isinstance(twin, httpx.ConnectTimeout)
    assert classify(twin, lambda: 0.0).kind is Kind.UNSENT


def test_what_is_one_already_or_has_no_counterpart_stays_as_it_is() -> None:
    for other in (CallError("x"), EngineUnavailable("x")):
        assert as_httpx(other) is other
        assert as_requests(other) is other
    once, twice = as_httpx(HeldBack("x")), as_requests(HeldBack("x"))
    assert as_httpx(once) is once
    assert as_requests(twice) is twice


def test_a_twin_has_what_handlers_of_the_library_ask_for() -> None:
    of_httpx, of_requests = as_httpx(HeldBack("x")), as_requests(HeldBack("x"))
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
    twin = as_httpx(error)
    twin.add_note("another")
    assert (vars(twin)["sign"], twin.__notes__, error.__notes__) == (
        "settled",
        ["tried twice", "another"],
        ["tried twice"],
    )
