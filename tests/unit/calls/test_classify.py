"""Which failures are worth another attempt."""

import asyncio
import errno
import http.client
import socket
import ssl
import urllib.error
from email.utils import formatdate
from typing import Any

import botocore.exceptions as boto
import httpcore
import httpx
import pytest
import requests
import urllib3.exceptions as urllib3

from holdfast import HoldfastError, InvalidValue
from holdfast._errors import AttemptTimedOut, ConnectTimedOut, DeadlineExceeded, EngineUnavailable, LimitReached
from holdfast.calls import Failure, FailureKind, classify
from holdfast.calls.adapters.httpx import HttpxConnectTimedOut
from holdfast.calls.classify import PERMANENT, SINGLE_REQUEST, of_status
from holdfast.calls.engine import set_attribute
from tests.table import rows

NOW = 1_750_000_000.0


def wall() -> float:
    return NOW


def kind(error: BaseException) -> FailureKind:
    return classify(error, wall).kind


REQUEST = httpx.Request("GET", "http://127.0.0.1/")
POST = httpx.Request("POST", "http://127.0.0.1/")
POOL: Any = None
REFUSED = urllib3.NewConnectionError(POOL, "refused")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), FailureKind.UNSENT),
        (socket.gaierror(), FailureKind.UNSENT),
        (ConnectionResetError(), FailureKind.TRANSIENT),
        (BrokenPipeError(), FailureKind.TRANSIENT),
        (TimeoutError(), FailureKind.TIMEOUT),
        (ssl.SSLCertVerificationError(), FailureKind.PERMANENT),
        (ssl.SSLError(), FailureKind.TRANSIENT),
        (ValueError(), FailureKind.PERMANENT),
        (OSError(), FailureKind.PERMANENT),
        (OSError(errno.EHOSTUNREACH, "no route"), FailureKind.TRANSIENT),
        (asyncio.IncompleteReadError(b"", 1), FailureKind.TRANSIENT),
        (http.client.IncompleteRead(b""), FailureKind.TRANSIENT),
        (http.client.BadStatusLine("?"), FailureKind.TRANSIENT),
        (http.client.CannotSendRequest(), FailureKind.PERMANENT),
        (urllib.error.URLError(ConnectionRefusedError()), FailureKind.TRANSIENT),
        (urllib.error.URLError(socket.gaierror()), FailureKind.TRANSIENT),
        (urllib.error.URLError(TimeoutError()), FailureKind.TIMEOUT),
        (urllib.error.URLError(ssl.SSLCertVerificationError()), FailureKind.PERMANENT),
        (urllib.error.URLError("no host given"), FailureKind.PERMANENT),
        (AttemptTimedOut(), FailureKind.TIMEOUT),
        (ConnectTimedOut(), FailureKind.UNSENT),
        (DeadlineExceeded(), FailureKind.TIMEOUT),
        (EngineUnavailable(), FailureKind.UNSENT),
        (LimitReached(), FailureKind.PERMANENT),
        (HoldfastError(), FailureKind.PERMANENT),
        (httpx.ConnectError("", request=REQUEST), FailureKind.TRANSIENT),
        (httpx.ConnectError("", request=POST), FailureKind.UNSENT),
        (httpx.ConnectTimeout("", request=POST), FailureKind.UNSENT),
        (httpx.PoolTimeout("", request=POST), FailureKind.UNSENT),
        (httpcore.ConnectError(), FailureKind.UNSENT),
        (HttpxConnectTimedOut(""), FailureKind.UNSENT),
        (httpx.ReadTimeout("", request=REQUEST), FailureKind.TIMEOUT),
        (httpx.ReadError("", request=REQUEST), FailureKind.TRANSIENT),
        (httpx.RemoteProtocolError("", request=REQUEST), FailureKind.TRANSIENT),
        (httpx.LocalProtocolError("", request=REQUEST), FailureKind.PERMANENT),
        (httpx.InvalidURL(""), FailureKind.PERMANENT),
        (requests.ConnectTimeout(), FailureKind.TRANSIENT),
        (requests.ConnectTimeout(request=requests.Request("POST", "http://127.0.0.1/").prepare()), FailureKind.UNSENT),
        (requests.ReadTimeout(), FailureKind.TIMEOUT),
        (requests.ConnectionError(), FailureKind.TRANSIENT),
        (requests.exceptions.SSLError(), FailureKind.PERMANENT),
        (requests.exceptions.ChunkedEncodingError(), FailureKind.TRANSIENT),
        (requests.exceptions.MissingSchema(), FailureKind.PERMANENT),
        (requests.exceptions.RetryError(urllib3.MaxRetryError(POOL, "/", ConnectionError())), FailureKind.TRANSIENT),
        (urllib3.MaxRetryError(POOL, "/", urllib3.ReadTimeoutError(POOL, "/", "")), FailureKind.TIMEOUT),
        (urllib3.MaxRetryError(POOL, "/", urllib3.SSLError()), FailureKind.PERMANENT),
        (urllib3.MaxRetryError(POOL, "/", urllib3.ProxyError("", REFUSED)), FailureKind.TRANSIENT),
        (REFUSED, FailureKind.TRANSIENT),
        (urllib3.MaxRetryError(POOL, "/", urllib3.ResponseError("too many redirects")), FailureKind.PERMANENT),
        (boto.EndpointConnectionError(endpoint_url="x", error="y"), FailureKind.UNSENT),
        (boto.ConnectTimeoutError(endpoint_url="x"), FailureKind.UNSENT),
        (boto.ReadTimeoutError(endpoint_url="x"), FailureKind.TIMEOUT),
        (boto.ConnectionClosedError(endpoint_url="x"), FailureKind.TRANSIENT),
        (boto.SSLError(endpoint_url="x", error=OSError()), FailureKind.PERMANENT),
        (boto.NoCredentialsError(), FailureKind.PERMANENT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exceptions_are_known_by_what_they_prove(error: BaseException, expected: FailureKind) -> None:
    assert kind(error) is expected


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_error_that_wraps_a_refused_connection_proves_that_nothing_was_sent_unless_a_redirect_may_have_led_to_it(
    method: str,
) -> None:
    """Redirects turn the methods of requests that are carried out into GET, and keep the method of others."""
    wrapped = urllib3.MaxRetryError(POOL, "/", REFUSED)
    error = requests.ConnectionError(wrapped, request=requests.Request(method, "http://127.0.0.1/").prepare())
    assert kind(wrapped) is FailureKind.TRANSIENT
    assert kind(error) is (FailureKind.TRANSIENT if method == "GET" else FailureKind.UNSENT)
    set_attribute(error, SINGLE_REQUEST, True)
    assert kind(error) is FailureKind.UNSENT, "an adapter sends each request by itself"


def test_an_error_that_wraps_a_broken_connection_proves_nothing() -> None:
    assert (
        kind(requests.ConnectionError(urllib3.ProtocolError("gone", ConnectionResetError()))) is FailureKind.TRANSIENT
    )
    deep: BaseException = ValueError()
    for _ in range(9):
        deep = requests.ConnectionError(deep)
    assert kind(deep) is FailureKind.TRANSIENT


def test_a_certificate_that_is_not_valid_is_not_tried_again_whoever_says_so() -> None:
    error = httpx.ConnectError("", request=REQUEST)
    error.__cause__ = OSError()
    error.__cause__.__context__ = ssl.SSLCertVerificationError()
    assert kind(error) is FailureKind.PERMANENT


def test_what_failed_before_proves_nothing_of_what_failed_after_it() -> None:
    error = httpx.ReadError("", request=REQUEST)
    error.__context__ = ConnectionRefusedError()
    assert kind(error) is FailureKind.TRANSIENT


@rows(
    ("status", "expected"),
    [
        *((status, FailureKind.TRANSIENT) for status in (408, 425, 500, 502, 503, 504)),
        (429, FailureKind.THROTTLED),
        *((status, FailureKind.PERMANENT) for status in (400, 401, 403, 404, 409, 422, 501, 505)),
    ],
)
def test_server_errors_are_repeated_and_client_errors_are_not(status: int, expected: FailureKind) -> None:
    answer = of_status(status, {}, wall)
    assert answer == Failure(expected, status)
    for error in (
        httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(status)),
        requests.HTTPError(response=response_of(status)),
        urllib.error.HTTPError("/", status, "", http.client.HTTPMessage(), None),
        urllib3.MaxRetryError(POOL, "/", urllib3.ResponseError(f"too many {status} error responses")),
        aiohttp_error("ClientResponseError", status=status, headers=None),
    ):
        assert classify(error, wall) == answer


@pytest.mark.parametrize("status", [100, 200, 204, 304, 399])
def test_an_answer_that_is_no_error_is_no_failure(status: int) -> None:
    assert of_status(status, {}, wall) is None


def response_of(status: int) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    return response


def aiohttp_error(name: str, *bases: type[Exception], **attributes: Any) -> Exception:
    """An exception with the name and attributes of one of aiohttp, which is not installed here."""
    made = type(name, bases or (Exception,), {"__module__": "aiohttp.client_exceptions", **attributes})()
    assert isinstance(made, Exception)
    return made


def test_exceptions_of_aiohttp_are_known_by_their_names() -> None:
    assert kind(aiohttp_error("ClientPayloadError")) is FailureKind.TRANSIENT
    assert kind(aiohttp_error("ConnectionTimeoutError", TimeoutError)) is FailureKind.TRANSIENT
    assert kind(aiohttp_error("ClientConnectorError", OSError)) is FailureKind.TRANSIENT
    assert kind(aiohttp_error("ClientResponseError", status=200)) is FailureKind.PERMANENT, "it was not understood"
    assert kind(aiohttp_error("ClientResponseError", status=None)) is FailureKind.PERMANENT


def test_an_exception_whose_attributes_cannot_be_read_is_known_by_its_class() -> None:
    class Odd(ConnectionResetError):
        def __getattr__(self, name: str) -> object:
            raise KeyError(name)

    assert kind(Odd()) is FailureKind.TRANSIENT


def test_an_exception_that_wraps_itself_is_permanent() -> None:
    error = urllib.error.URLError("")
    error.reason = error
    assert kind(error) is FailureKind.PERMANENT


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([ConnectionResetError(), TimeoutError()], Failure(FailureKind.TRANSIENT)),
        ([TimeoutError(), ExceptionGroup("", [TimeoutError()])], Failure(FailureKind.TIMEOUT)),
        ([ConnectionRefusedError()], Failure(FailureKind.TRANSIENT)),
        ([ConnectionResetError(), KeyError()], Failure(FailureKind.PERMANENT)),
    ],
)
def test_a_group_is_worth_another_attempt_if_all_in_it_are(errors: list[Exception], expected: Failure) -> None:
    """Tasks beside a connection that was refused may have sent something."""
    assert classify(ExceptionGroup("", errors), wall) == expected


def test_a_group_keeps_what_the_servers_said() -> None:
    def answered(status: int, **headers: str) -> Exception:
        response = httpx.Response(status, headers=headers)
        return httpx.HTTPStatusError("", request=REQUEST, response=response)

    throttled = [answered(429, **{"retry-after": "3"}), answered(503, **{"retry-after": "7"}), answered(503)]
    assert classify(ExceptionGroup("", throttled), wall) == Failure(FailureKind.THROTTLED, retry_after=7)
    missing = Failure(FailureKind.PERMANENT, 404)
    assert classify(ExceptionGroup("", [answered(404), answered(404), answered(500)]), wall) == missing
    assert classify(ExceptionGroup("", [answered(404), answered(403)]), wall) == Failure(FailureKind.PERMANENT)


def test_ones_own_judgement_goes_first_inside_of_a_group_as_well() -> None:
    busy = Failure(FailureKind.THROTTLED)
    group = ExceptionGroup("", [ConnectionResetError(), KeyError()])
    assert classify(group, wall, lambda error: busy if isinstance(error, KeyError) else None) == busy
    assert classify(group, wall, lambda error: PERMANENT if error is group else None) is PERMANENT


@pytest.mark.parametrize(
    "response",
    [
        {"Error": "text"},
        {"Error": {"Code": ["x"]}, "ResponseMetadata": "text"},
        {"ResponseMetadata": {"HTTPStatusCode": "503"}},
        {"Error": None, "ResponseMetadata": None},
    ],
)
def test_a_response_of_another_shape_is_left_aside(response: object) -> None:
    error = ConnectionResetError()
    error.response = response  # type: ignore[attr-defined]
    assert classify(error, wall) == Failure(FailureKind.TRANSIENT)


@pytest.mark.parametrize("headers", [None, "text", {"retry-after": None}, {"retry-after": 7}, {"retry-after": "soon"}])
def test_headers_of_another_shape_hold_nothing_back(headers: Any) -> None:
    found = of_status(503, headers, wall)
    assert found is not None
    assert found.retry_after == (7 if headers == {"retry-after": 7} else None)


def client_error(code: str, status: int = 400, **headers: str) -> boto.ClientError:
    response: Any = {
        "Error": {"Code": code},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return boto.ClientError(response, "PutItem")


def test_codes_of_aws_are_understood() -> None:
    assert classify(client_error("ThrottlingException"), wall) == Failure(
        FailureKind.THROTTLED, 400, "ThrottlingException"
    )
    assert kind(client_error("RequestTimeout")) is FailureKind.TRANSIENT
    assert kind(client_error("Whatever", 503)) is FailureKind.TRANSIENT
    assert kind(client_error("ResourceNotFoundException")) is FailureKind.PERMANENT
    assert kind(boto.ClientError({}, "PutItem")) is FailureKind.PERMANENT


def test_the_servers_hint_is_read_from_the_answer() -> None:
    answered = httpx.Response(503, headers={"Retry-After": "7"})
    assert classify(httpx.HTTPStatusError("", request=REQUEST, response=answered), wall).retry_after == 7
    assert classify(client_error("SlowDown", 503, **{"x-amz-retry-after": "1500"}), wall).retry_after == 1.5
    assert of_status(429, {"retry-after": formatdate(NOW + 3, usegmt=True)}, wall) == Failure(
        FailureKind.THROTTLED, 429, retry_after=3.0
    )
    hinted = of_status(404, {"retry-after": "3"}, wall)
    assert hinted is not None
    assert hinted.retry_after is None


def test_an_exception_with_some_other_response_is_known_by_its_class() -> None:
    error = ConnectionResetError()
    error.response = object()  # type: ignore[attr-defined]
    assert kind(error) is FailureKind.TRANSIENT
    error.response = httpx.Response(200)  # type: ignore[attr-defined]
    assert kind(error) is FailureKind.TRANSIENT


def test_a_mistake_in_the_code_is_not_repeated() -> None:
    assert kind(InvalidValue()) is kind(KeyError()) is kind(AssertionError()) is FailureKind.PERMANENT


def test_what_an_adapter_has_found_out_already_is_believed() -> None:
    error = ConnectionResetError()
    error.holdfast_failure = Failure(FailureKind.THROTTLED, 429)  # type: ignore[attr-defined]
    assert classify(error, wall) == Failure(FailureKind.THROTTLED, 429)
