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
from holdfast.calls import Failure, Kind, classify
from holdfast.calls.classify import of_status

NOW = 1_750_000_000.0


def wall() -> float:
    return NOW


def kind(error: BaseException) -> Kind:
    return classify(error, wall).kind


REQUEST = httpx.Request("GET", "http://127.0.0.1/")
POOL: Any = None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), Kind.UNSENT),
        (socket.gaierror(), Kind.UNSENT),
        (ConnectionResetError(), Kind.TRANSIENT),
        (BrokenPipeError(), Kind.TRANSIENT),
        (TimeoutError(), Kind.TIMEOUT),
        (ssl.SSLCertVerificationError(), Kind.PERMANENT),
        (ssl.SSLError(), Kind.TRANSIENT),
        (ValueError(), Kind.PERMANENT),
        (OSError(), Kind.PERMANENT),
        (OSError(errno.EHOSTUNREACH, "no route"), Kind.TRANSIENT),
        (asyncio.IncompleteReadError(b"", 1), Kind.TRANSIENT),
        (AttemptTimedOut(), Kind.TIMEOUT),
        (ConnectTimedOut(), Kind.UNSENT),
        (DeadlineExceeded(), Kind.TIMEOUT),
        (EngineUnavailable(), Kind.UNSENT),
        (LimitReached(), Kind.PERMANENT),
        (HoldfastError(), Kind.PERMANENT),
        (httpx.ConnectError("", request=REQUEST), Kind.UNSENT),
        (httpx.ConnectTimeout("", request=REQUEST), Kind.UNSENT),
        (httpx.PoolTimeout("", request=REQUEST), Kind.UNSENT),
        (httpx.ReadTimeout("", request=REQUEST), Kind.TIMEOUT),
        (httpx.ReadError("", request=REQUEST), Kind.TRANSIENT),
        (httpx.RemoteProtocolError("", request=REQUEST), Kind.TRANSIENT),
        (httpx.LocalProtocolError("", request=REQUEST), Kind.PERMANENT),
        (httpx.InvalidURL(""), Kind.PERMANENT),
        (requests.ConnectTimeout(), Kind.UNSENT),
        (requests.ReadTimeout(), Kind.TIMEOUT),
        (requests.ConnectionError(), Kind.TRANSIENT),
        (requests.exceptions.SSLError(), Kind.PERMANENT),
        (requests.exceptions.ChunkedEncodingError(), Kind.TRANSIENT),
        (requests.exceptions.MissingSchema(), Kind.PERMANENT),
        (boto.EndpointConnectionError(endpoint_url="x", error="y"), Kind.UNSENT),
        (boto.ConnectTimeoutError(endpoint_url="x"), Kind.UNSENT),
        (boto.ReadTimeoutError(endpoint_url="x"), Kind.TIMEOUT),
        (boto.ConnectionClosedError(endpoint_url="x"), Kind.TRANSIENT),
        (boto.SSLError(endpoint_url="x", error=OSError()), Kind.PERMANENT),
        (boto.NoCredentialsError(), Kind.PERMANENT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exceptions_are_known_by_what_they_prove(error: BaseException, expected: Kind) -> None:
    assert kind(error) is expected


def test_an_error_that_wraps_a_refused_connection_proves_that_nothing_was_sent() -> None:
    refused = urllib3.NewConnectionError(POOL, "refused")
    wrapped = requests.ConnectionError(urllib3.MaxRetryError(POOL, "/", refused))
    assert kind(wrapped) is Kind.UNSENT


def test_an_error_that_wraps_a_broken_connection_proves_nothing() -> None:
    assert kind(requests.ConnectionError(urllib3.ProtocolError("gone", ConnectionResetError()))) is Kind.TRANSIENT
    deep: BaseException = ValueError()
    for _ in range(9):
        deep = requests.ConnectionError(deep)
    assert kind(deep) is Kind.TRANSIENT


def test_a_certificate_that_is_not_valid_is_not_tried_again_whoever_says_so() -> None:
    error = httpx.ConnectError("", request=REQUEST)
    error.__cause__ = OSError()
    error.__cause__.__context__ = ssl.SSLCertVerificationError()
    assert kind(error) is Kind.PERMANENT


def test_what_failed_before_proves_nothing_of_what_failed_after_it() -> None:
    error = httpx.ReadError("", request=REQUEST)
    error.__context__ = ConnectionRefusedError()
    assert kind(error) is Kind.TRANSIENT


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, Kind.TRANSIENT) for status in (408, 425, 500, 502, 503, 504)),
        (429, Kind.THROTTLED),
        *((status, Kind.PERMANENT) for status in (400, 401, 403, 404, 409, 422, 501, 505)),
    ],
)
def test_server_errors_are_repeated_and_client_errors_are_not(status: int, expected: Kind) -> None:
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
    assert classify(client_error("ThrottlingException"), wall) == Failure(Kind.THROTTLED, 400, "ThrottlingException")
    assert kind(client_error("RequestTimeout")) is Kind.TRANSIENT
    assert kind(client_error("Whatever", 503)) is Kind.TRANSIENT
    assert kind(client_error("ResourceNotFoundException")) is Kind.PERMANENT
    assert kind(boto.ClientError({}, "PutItem")) is Kind.PERMANENT


def test_the_servers_hint_is_read_from_the_answer() -> None:
    answered = httpx.Response(503, headers={"Retry-After": "7"})
    assert classify(httpx.HTTPStatusError("", request=REQUEST, response=answered), wall).after == 7
    assert classify(client_error("SlowDown", 503, **{"x-amz-retry-after": "1500"}), wall).after == 1.5
    assert of_status(429, {"retry-after": formatdate(NOW + 3, usegmt=True)}, wall) == Failure(
        Kind.THROTTLED, 429, after=3.0
    )
    hinted = of_status(404, {"retry-after": "3"}, wall)
    assert hinted is not None
    assert hinted.after is None


def test_an_exception_with_some_other_response_is_known_by_its_class() -> None:
    error = ConnectionResetError()
    error.response = object()  # type: ignore[attr-defined]
    assert kind(error) is Kind.TRANSIENT
    error.response = httpx.Response(200)  # type: ignore[attr-defined]
    assert kind(error) is Kind.TRANSIENT


def test_a_mistake_in_the_code_is_not_repeated() -> None:
    assert kind(InvalidValue()) is kind(KeyError()) is kind(AssertionError()) is Kind.PERMANENT


def test_what_an_adapter_has_found_out_already_is_believed() -> None:
    error = ConnectionResetError()
    error.holdfast_failure = Failure(Kind.THROTTLED, 429)  # type: ignore[attr-defined]
    assert classify(error, wall) == Failure(Kind.THROTTLED, 429)
