"""Bodies of requests and responses, and Holdfast's errors as errors of requests."""

from collections.abc import Iterator
from typing import Any

import requests
from requests import exceptions
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError, SSLError

from holdfast._errors import AttemptTimedOut, DeadlineExceeded, HoldfastError, LimitReached, RetryAfterTooLong
from holdfast.calls.adapters.requests.connection import set_read_timeout
from holdfast.calls.adapters.rules import ErrorPairs, late_answer_error, shorter_timeout, translate_error
from holdfast.calls.attempt import Attempt
from holdfast.calls.endpoints import NoEndpoint


class _WithoutRequest:
    """A base for errors without a request: requests sets it on errors it makes itself, but does not make these."""

    request: Any = None
    response: Any = None


class RequestsAttemptTimedOut(_WithoutRequest, AttemptTimedOut, exceptions.ReadTimeout):
    """One attempt timed out. The server may have done the work anyway."""


class RequestsDeadlineExceeded(_WithoutRequest, DeadlineExceeded, exceptions.ReadTimeout):
    """The deadline of the call has passed."""


class RequestsRetryAfterTooLong(_WithoutRequest, RetryAfterTooLong, exceptions.RequestException):
    """Retry-After, with scope `all`, ends past the deadline."""


class RequestsLimitReached(_WithoutRequest, LimitReached, exceptions.RequestException):
    """The limit of concurrent attempts is reached."""


class RequestsNoEndpoint(_WithoutRequest, NoEndpoint, exceptions.ConnectionError):
    """Every zone that has endpoints is out, or no endpoints are known."""


_ERROR_PAIRS: ErrorPairs = (
    (AttemptTimedOut, RequestsAttemptTimedOut),
    (DeadlineExceeded, RequestsDeadlineExceeded),
    (RetryAfterTooLong, RequestsRetryAfterTooLong),
    (LimitReached, RequestsLimitReached),
    (NoEndpoint, RequestsNoEndpoint),
)


def to_requests_error(error: HoldfastError) -> HoldfastError:
    """Return the error as a RequestException, or unchanged if it is one or has no counterpart."""
    if isinstance(error, exceptions.RequestException):
        return error
    return translate_error(error, _ERROR_PAIRS) or error


CHUNK = 65_536


def is_repeatable(request: requests.PreparedRequest) -> bool:
    """Return whether the body can be sent twice: bytes, or a file that can be rewound, but not an iterator."""
    return request.body is None or isinstance(request.body, bytes | bytearray | str) or _is_file(request)


def rewind(request: requests.PreparedRequest) -> None:
    """Rewind a file to its position when the request was made. Do nothing for other bodies."""
    if _is_file(request):
        requests.utils.rewind_body(request)


def _is_file(request: requests.PreparedRequest) -> bool:
    return isinstance(getattr(request, "_body_position", None), int)


def read_body(response: requests.Response, attempt: Attempt, read_timeout: float | None) -> None:
    """Read the body. The attempt's timeout applies to all of it, `read_timeout` in seconds to each read."""
    chunks = []
    while True:
        set_read_timeout(response.raw, shorter_timeout(read_timeout, attempt.timeout))
        chunk = _read(response)
        if not chunk:
            break
        chunks.append(chunk)
        if attempt.timeout <= 0:
            raise to_requests_error(attempt.timeout_error())
    response._content = b"".join(chunks)  # noqa: SLF001 - read by `content`; there is no public setter
    response._content_consumed = True  # type: ignore[attr-defined] # noqa: SLF001
    response.raw.release_conn()


def _read(response: requests.Response) -> bytes:
    try:
        chunk: bytes | None = response.raw.read1(CHUNK, decode_content=True)
    except ProtocolError as error:
        raise exceptions.ChunkedEncodingError(error, request=response.request) from error
    except DecodeError as error:
        raise exceptions.ContentDecodingError(error, request=response.request) from error
    except ReadTimeoutError as error:
        raise exceptions.ReadTimeout(error, request=response.request) from error
    except SSLError as error:
        raise exceptions.SSLError(error, request=response.request) from error
    return chunk or b""


class BoundedResponse(requests.Response):
    """A response whose body the caller streams. The call's deadline applies to it, the attempt's timeout does not."""

    _attempt: Attempt | None = None
    _read_timeout: float | None = None
    """The session's timeout for each read, in seconds; None for no timeout."""

    @classmethod
    def of(cls, response: requests.Response, attempt: Attempt, read_timeout: float | None) -> "BoundedResponse":
        """Return a copy of `response` with the deadline of the attempt's call."""
        bounded = cls()
        bounded.__dict__.update(response.__dict__)
        bounded._attempt, bounded._read_timeout = attempt, read_timeout
        # For callers that read from `raw`.
        set_read_timeout(bounded.raw, shorter_timeout(read_timeout, attempt.call_timeout))
        return bounded

    def iter_content(self, chunk_size: int | None = 1, decode_unicode: bool = False) -> Iterator[Any]:
        chunks = super().iter_content(chunk_size, decode_unicode)
        attempt = self._attempt
        if attempt is None:
            yield from chunks
            return
        while True:
            set_read_timeout(self.raw, shorter_timeout(self._read_timeout, attempt.call_timeout))
            try:
                chunk = next(chunks, None)
            except exceptions.ConnectionError as error:
                if attempt.call_timeout > 0:
                    raise
                raise to_requests_error(late_answer_error(attempt)) from error
            if chunk is None:
                return
            if attempt.call_timeout <= 0:
                raise to_requests_error(late_answer_error(attempt))
            yield chunk
