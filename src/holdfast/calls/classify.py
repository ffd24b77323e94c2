"""The kinds of failures, and the kind of an exception or HTTP status. Pure.

Covers exceptions of the standard library, HTTP clients and botocore. Exceptions of other libraries are recognised by
name, so that none of these has to be installed or imported.
"""

import errno
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast._errors import AttemptTimedOut, ConnectTimedOut, DeadlineExceeded, EngineUnavailable, HoldfastError


class FailureKind(StrEnum):
    """The kind of a failure, which decides whether a retry may follow."""

    UNSENT = "unsent"
    """Nothing was sent: no connection was established, not even one to be redirected. Always safe to retry."""
    TRANSIENT = "transient"
    """The server or the network failed. The server may have done the work."""
    THROTTLED = "throttled"
    """The server is rate limiting: HTTP 429 or an AWS throttling code."""
    TIMEOUT = "timeout"
    """No response in time. The server may have done the work, or may still do it."""
    NOT_VISIBLE_YET = "not_visible_yet"
    """The server does not know of a recent change yet, such as a 404 just after a create."""
    PERMANENT = "permanent"
    """The same request will fail again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The classified failure of one attempt."""

    kind: FailureKind
    status: int | None = None
    """HTTP status, or None without a response."""
    code: str | None = None
    """The service's own error code, such as ThrottlingException."""
    retry_after: float | None = None
    """Seconds to wait, from Retry-After."""


PERMANENT = Failure(FailureKind.PERMANENT)
_UNSENT = Failure(FailureKind.UNSENT)
_TRANSIENT = Failure(FailureKind.TRANSIENT)
_TIMEOUT = Failure(FailureKind.TIMEOUT)

TRANSIENT_STATUSES = frozenset({408, 425, 500, 502, 503, 504})
"""408: the server timed out waiting for the request; 425: too early in a TLS connection. 501 and 505 are permanent."""
THROTTLED_STATUSES = frozenset({429})

UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL})
"""They can end an established connection as well, so they do not prove that nothing was sent."""
MAX_WRAPPED_DEPTH = 4
"""Levels of wrapped exceptions to inspect: requests wraps urllib3's, which wrap the socket's."""

# The lists of botocore, in `retries/standard.py`.
TRANSIENT_CODES = frozenset({"RequestTimeout", "RequestTimeoutException", "InternalError", "InternalFailure"})
THROTTLED_CODES = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "RequestThrottled"),
        *("TooManyRequestsException", "ProvisionedThroughputExceededException", "TransactionInProgressException"),
        *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown"),
        *("PriorRequestNotComplete", "EC2ThrottledException"),
    }
)

_HTTPX = {
    "ConnectError": _UNSENT,
    "ConnectTimeout": _UNSENT,
    "PoolTimeout": _UNSENT,
    "TimeoutException": _TIMEOUT,
    "NetworkError": _TRANSIENT,
    "RemoteProtocolError": _TRANSIENT,
}
_BY_NAME: dict[str, Failure] = {
    "socket.gaierror": _UNSENT,
    "asyncio.exceptions.IncompleteReadError": _TRANSIENT,
    "http.client.BadStatusLine": _TRANSIENT,
    "http.client.IncompleteRead": _TRANSIENT,
    "ssl.SSLCertVerificationError": PERMANENT,
    "ssl.SSLError": _TRANSIENT,
    **{f"{library}.{name}": failure for library in ("httpx", "httpcore") for name, failure in _HTTPX.items()},
    # requests and urllib3; for `requests.ConnectionError`, the wrapped exception decides: see `_refine_by_wrapped`.
    "requests.exceptions.ConnectTimeout": _UNSENT,
    "requests.exceptions.SSLError": PERMANENT,
    "requests.exceptions.Timeout": _TIMEOUT,
    "requests.exceptions.ConnectionError": _TRANSIENT,
    "requests.exceptions.ChunkedEncodingError": _TRANSIENT,
    "urllib3.exceptions.NewConnectionError": _UNSENT,
    "urllib3.exceptions.ConnectTimeoutError": _UNSENT,
    "urllib3.exceptions.SSLError": PERMANENT,
    "urllib3.exceptions.TimeoutError": _TIMEOUT,
    "urllib3.exceptions.ProtocolError": _TRANSIENT,
    "aiohttp.client_exceptions.ClientConnectorError": _UNSENT,
    "aiohttp.client_exceptions.ConnectionTimeoutError": _UNSENT,
    "aiohttp.client_exceptions.ServerTimeoutError": _TIMEOUT,
    "aiohttp.client_exceptions.ClientConnectionError": _TRANSIENT,
    "aiohttp.client_exceptions.ClientPayloadError": _TRANSIENT,
    "botocore.exceptions.EndpointConnectionError": _UNSENT,
    "botocore.exceptions.ConnectTimeoutError": _UNSENT,
    "botocore.exceptions.SSLError": PERMANENT,
    "botocore.exceptions.ReadTimeoutError": _TIMEOUT,
    "botocore.exceptions.ConnectionError": _TRANSIENT,
    "botocore.exceptions.HTTPClientError": _TRANSIENT,
}
# Looked up along the MRO of an exception: the nearest listed class counts.
_BY_CLASS: dict[type[BaseException], Failure] = {
    AttemptTimedOut: _TIMEOUT,
    ConnectTimedOut: _UNSENT,
    DeadlineExceeded: _TIMEOUT,  # perhaps raised inside this very attempt
    EngineUnavailable: _UNSENT,
    HoldfastError: PERMANENT,
    ConnectionRefusedError: _UNSENT,
    ConnectionError: _TRANSIENT,
    TimeoutError: _TIMEOUT,
}


_WRAPPERS = frozenset(
    {
        "urllib.error.URLError",
        # The last attempt decides: before it, urllib3 repeated only what was not sent, or what may be sent twice. For
        # requests that it was redirected to, see `_may_be_redirected`.
        "urllib3.exceptions.MaxRetryError",
        "urllib3.exceptions.ProxyError",
        "requests.exceptions.RetryError",
    }
)
"""Exceptions that mean what the exception inside them means."""
_MAY_FOLLOW_REDIRECTS = ("urllib.", "urllib3.", "requests.", "httpx.", "aiohttp.")
"""Modules of clients that may have followed a redirect, after a request that was carried out."""
SINGLE_REQUEST = "holdfast_single_request"
"""Attribute that an adapter sets on the error of a request: it sends each by itself, and follows no redirect."""
_STATUS_ATTRIBUTES = {"urllib.error.HTTPError": "code", "aiohttp.client_exceptions.ClientResponseError": "status"}
"""The attribute for the HTTP status, of exceptions that have `headers` and no `response`."""
_TOO_MANY = re.compile(r"too many (\d{3}) error responses")
"""The message of urllib3's ResponseError, after retries by `status_forcelist`."""


def classify(
    error: BaseException, wall: Callable[[], float], own: Callable[[Any], Failure | None] | None = None
) -> Failure:
    """Return the failure that an exception means. An unknown exception is permanent: it is probably a bug.

    `own` is asked first, about each exception of a group as well; None means that these rules apply.
    """
    judged = None if own is None else own(error)
    if judged is not None:
        return judged
    try:
        judged, response = getattr(error, "holdfast_failure", None), getattr(error, "response", None)
    except Exception:  # noqa: BLE001 - of its own `__getattr__`; in some versions, urllib's HTTPError has one
        response = None
    if isinstance(judged, Failure):
        return judged  # set by an adapter, which had the response itself
    if response is not None:
        answered = _answered(response, wall)
        if answered is not None:
            return answered
    found = _BY_CLASS.get(type(error))
    if found is not None:
        return found
    if isinstance(error, BaseExceptionGroup):
        return _combine([classify(inner, wall, own) for inner in error.exceptions])
    inner = _unwrap(error)
    found = _answered_itself(inner, wall) or _listed(inner)
    if found is None:
        return PERMANENT
    found = _refine_by_wrapped(inner, found)
    return _TRANSIENT if found is _UNSENT and _may_be_redirected(error) else found


def _combine(failures: list[Failure]) -> Failure:
    """Return the failure of work whose concurrent parts failed like this: a retry repeats all of it."""
    permanent = {failure for failure in failures if failure.kind is FailureKind.PERMANENT}
    if permanent:
        return permanent.pop() if len(permanent) == 1 else PERMANENT
    kinds = {failure.kind for failure in failures}
    kind = FailureKind.TRANSIENT  # even if all are UNSENT: parts that have not failed may have sent something
    if FailureKind.THROTTLED in kinds:
        kind = FailureKind.THROTTLED
    elif kinds == {FailureKind.TIMEOUT}:
        kind = FailureKind.TIMEOUT
    hints = [failure.retry_after for failure in failures if failure.retry_after is not None]
    return Failure(kind, retry_after=max(hints, default=None))


def _names(error: BaseException) -> Iterator[str]:
    return (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)


def _unwrap(error: BaseException) -> BaseException:
    """Return the exception inside of those that only wrap it; `error` if there is none."""
    for inner in (error, *_inside(error, _content)):
        if _WRAPPERS.isdisjoint(_names(inner)):
            return inner
    return error


def _answered_itself(error: BaseException, wall: Callable[[], float]) -> Failure | None:
    """Return the failure of an exception that has the status of a response, but not the response."""
    for name in _names(error):
        if name == "urllib3.exceptions.ResponseError":
            status = _TOO_MANY.search(str(error))
            return None if status is None else of_status(int(status[1]), {}, wall)
        if name in _STATUS_ATTRIBUTES:
            said = getattr(error, _STATUS_ATTRIBUTES[name], None)
            return of_status(said, getattr(error, "headers", None), wall) if isinstance(said, int) else None
    return None


def _listed(error: BaseException) -> Failure | None:
    for kind in type(error).__mro__:
        found = _BY_CLASS.get(kind) or _BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}")
        if found is not None:
            return found
    if isinstance(error, OSError) and error.errno in UNREACHABLE:
        return _TRANSIENT
    return None


def of_status(status: int, headers: Mapping[str, str] | None, wall: Callable[[], float]) -> Failure | None:
    """Return the failure that an HTTP status means, or None below 400."""
    if status < 400:
        return None
    kind = _kind_of(status, None)
    return Failure(
        kind, status, retry_after=None if kind is FailureKind.PERMANENT else parse_retry_after(_mapping(headers), wall)
    )


def _kind_of(status: int, code: str | None) -> FailureKind:
    if status in THROTTLED_STATUSES or code in THROTTLED_CODES:
        return FailureKind.THROTTLED
    if status in TRANSIENT_STATUSES or code in TRANSIENT_CODES:
        return FailureKind.TRANSIENT
    return FailureKind.PERMANENT


def _answered(response: Any, wall: Callable[[], float]) -> Failure | None:
    """Return the failure in an exception's `response`: a mapping in botocore, an object in HTTP clients."""
    if isinstance(response, Mapping):
        metadata, error = _mapping(response.get("ResponseMetadata")), _mapping(response.get("Error"))
        code, status = error.get("Code"), metadata.get("HTTPStatusCode")
        code, status = code if isinstance(code, str) else None, status if isinstance(status, int) else 0
        if not code and not status:
            return None
        return Failure(
            _kind_of(status, code), status, code, parse_retry_after(_mapping(metadata.get("HTTPHeaders")), wall)
        )
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        return None
    return of_status(status, getattr(response, "headers", {}), wall)


def _mapping(value: Any) -> Any:
    """Return `value`, or an empty mapping if it has no `get`."""
    return value if hasattr(value, "get") else {}


def _refine_by_wrapped(error: BaseException, found: Failure) -> Failure:
    """Refine `found` by the wrapped exceptions: in requests and urllib3 an argument or `reason`, in httpx the cause."""
    if found is _TRANSIENT and any(_listed(inner) is _UNSENT for inner in _inside(error, _content)):
        return _UNSENT
    # Causes must not turn a failure into UNSENT: __context__ may be an error that was only being handled.
    if found is _UNSENT and any(_listed(inner) is PERMANENT for inner in _inside(error, _cause)):
        return PERMANENT  # an invalid certificate
    return found


def _may_be_redirected(error: BaseException) -> bool:
    """Return whether the failed request may be the target of a redirect, whose first request was carried out."""
    own = vars(error)
    if isinstance(error, HoldfastError) or own.get(SINGLE_REQUEST):
        return False
    if not any(name.startswith(_MAY_FOLLOW_REDIRECTS) for name in _names(error)):
        return False
    request = own.get("request") or own.get("_request")  # of requests and httpx; others do not tell
    # A redirect that keeps another method than these asks to send the request again: it was not carried out.
    return getattr(request, "method", "GET") in {"GET", "HEAD"}


def _inside(error: BaseException, step: Callable[[BaseException], object]) -> Iterator[BaseException]:
    for _ in range(MAX_WRAPPED_DEPTH):
        inner = step(error)
        if not isinstance(inner, BaseException):
            return
        yield inner
        error = inner


def _content(error: BaseException) -> object:
    own = vars(error)
    inside = (own.get("reason"), own.get("original_error"), *error.args[:1])
    return next((inner for inner in inside if isinstance(inner, BaseException)), None)


def _cause(error: BaseException) -> object:
    return error.__cause__ or error.__context__


def parse_retry_after(headers: Mapping[str, str], wall: Callable[[], float]) -> float | None:
    """Return the seconds that a response's headers ask to wait, or None without a valid header.

    Reads `x-amz-retry-after` in milliseconds first, because it is finer, then `Retry-After` in seconds or as a date
    (RFC 9110, 10.2.3). The mapping must be case-insensitive, or have names in lower case.
    """
    milliseconds = _number(headers.get("x-amz-retry-after", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value: Any = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not isinstance(value, str) or not value:
        return seconds
    from email.utils import parsedate_to_datetime  # takes 15 ms, and few servers send a date

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - wall())
    except (ValueError, OverflowError):
        return None


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (ValueError, TypeError):
        return None
    return number if 0 <= number < math.inf else None
