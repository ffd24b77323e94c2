"""Which failures are worth another attempt."""

import asyncio
import errno
import socket
import ssl
from email.utils import formatdate
from typing import Any

import botocore.exceptions as boto
import httpx
import pytest
import requests
import urllib3.exceptions as urllib3

from holdfast import HoldfastError, InvalidValue
from holdfast._errors import AttemptTimedOut, ConnectTimedOut, DeadlineExceeded, EngineUnavailable, LimitReached
from holdfast.calls import Failure, FailureKind, classify
from holdfast.calls.classify import of_status

NOW = 1_750_000_000.0


def wall() -> float:
    return NOW


def kind(error: BaseException) -> FailureKind:
    return classify(error, wall).kind


REQUEST = httpx.Request("GET", "http://127.0.0.1/")
POOL: Any = None


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
        (AttemptTimedOut(), FailureKind.TIMEOUT),
        (ConnectTimedOut(), FailureKind.UNSENT),
        (DeadlineExceeded(), FailureKind.TIMEOUT),
        (EngineUnavailable(), FailureKind.UNSENT),
        (LimitReached(), FailureKind.PERMANENT),
        (HoldfastError(), FailureKind.PERMANENT),
        (httpx.ConnectError("", request=REQUEST), FailureKind.UNSENT),
        (httpx.ConnectTimeout("", request=REQUEST), FailureKind.UNSENT),
        (httpx.PoolTimeout("", request=REQUEST), FailureKind.UNSENT),
        (httpx.ReadTimeout("", request=REQUEST), FailureKind.TIMEOUT),
        (httpx.ReadError("", request=REQUEST), FailureKind.TRANSIENT),
        (httpx.RemoteProtocolError("", request=REQUEST), FailureKind.TRANSIENT),
        (httpx.LocalProtocolError("", request=REQUEST), FailureKind.PERMANENT),
        (httpx.InvalidURL(""), FailureKind.PERMANENT),
        (requests.ConnectTimeout(), FailureKind.UNSENT),
        (requests.ReadTimeout(), FailureKind.TIMEOUT),
        (requests.ConnectionError(), FailureKind.TRANSIENT),
        (requests.exceptions.SSLError(), FailureKind.PERMANENT),
        (requests.exceptions.ChunkedEncodingError(), FailureKind.TRANSIENT),
        (requests.exceptions.MissingSchema(), FailureKind.PERMANENT),
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


def test_an_error_that_wraps_a_refused_connection_proves_that_nothing_was_sent() -> None:
    refused = urllib3.NewConnectionError(POOL, "refused")
    wrapped = requests.ConnectionError(urllib3.MaxRetryError(POOL, "/", refused))
    assert kind(wrapped) is FailureKind.UNSENT


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


@pytest.mark.parametrize(
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
    ):
        assert classify(error, wall) == answer


@pytest.mark.parametrize("status", [100, 200, 204, 304, 399])
def test_an_answer_that_is_no_error_is_no_failure(status: int) -> None:
    assert of_status(status, {}, wall) is None


def response_of(status: int) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    return response


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
