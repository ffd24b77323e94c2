"""Bodies of requests that can be sent again, and of responses that are read in time."""

from collections.abc import Iterator
from typing import Any

import requests
from requests import exceptions
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError, SSLError

from holdfast._errors import AttemptTimedOut, DeadlineExceeded
from holdfast.calls.adapters.requests_errors import as_requests
from holdfast.calls.attempt import Attempt

CHUNK = 65_536


def is_repeatable(request: requests.PreparedRequest) -> bool:
    """Whether the body can be sent twice: bytes, or a file that can be wound back; not an iterator."""
    return request.body is None or isinstance(request.body, bytes | bytearray | str) or _is_file(request)


def rewind(request: requests.PreparedRequest) -> None:
    """Begin a file again, where it stood when the request was made."""
    if _is_file(request):
        requests.utils.rewind_body(request)


def _is_file(request: requests.PreparedRequest) -> bool:
    return isinstance(getattr(request, "_body_position", None), int)


def take_in(response: requests.Response, attempt: Attempt) -> None:
    """Read the whole body within the attempt; raises what requests would, and AttemptTimedOut when it takes too long.

    `Response.content` would wait for as many bytes as it asks for, each of them for as long as a read may take.
    """
    chunks = []
    while chunk := _read(response):
        chunks.append(chunk)
        if attempt.timeout <= 0:
            raise as_requests(_late(attempt))
    response._content = b"".join(chunks)  # noqa: SLF001 - where `content` looks; there is no other way in
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


def _late(attempt: Attempt) -> AttemptTimedOut | DeadlineExceeded:
    what = f"{attempt.core.name}: attempt {attempt.number} was cut off during the answer"
    if attempt.expires >= attempt.limit:
        return DeadlineExceeded(f"{what}, because the deadline has passed")
    return AttemptTimedOut(what)


class BoundedResponse(requests.Response):
    """An answer whose body is handed over as it comes: the call's deadline is looked at after every chunk."""

    _attempt: Attempt | None = None

    @classmethod
    def of(cls, response: requests.Response, attempt: Attempt) -> "BoundedResponse":
        """The same answer, bounded by the call that an attempt belongs to."""
        bounded = cls()
        bounded.__dict__.update(response.__dict__)
        bounded._attempt = attempt
        return bounded

    def iter_content(self, chunk_size: int | None = 1, decode_unicode: bool = False) -> Iterator[Any]:
        for chunk in super().iter_content(chunk_size, decode_unicode):
            attempt = self._attempt
            if attempt is not None and attempt.limit <= attempt.core.world.monotonic():
                raise as_requests(
                    DeadlineExceeded(f"{attempt.core.name}: cut off, because the deadline has passed during the answer")
                )
            yield chunk
