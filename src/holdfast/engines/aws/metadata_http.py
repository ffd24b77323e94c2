"""HTTP requests to metadata services: without a proxy, and bounded in time and size.

Proxies cannot reach the services of a host, and a service that is not there must not delay the start of a process.
"""

import io
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast._errors import EngineError, EngineUnavailable, InvalidValue, NotAllowed

TRIES = 2
MAX_BYTES = 4 * 1024 * 1024
"""Largest answer. A Kubernetes node, which lists its images, is the longest, with some ten kilobytes."""
_TEMPORARY = frozenset({429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})


class NoAnswer(EngineUnavailable):
    """No answer came, or one that is not HTTP."""


class Answer(NamedTuple):
    """The answer to a request. Names of headers are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def fetch(
    url: str, *, headers: Mapping[str, str] = _NO_HEADERS, seconds: float, tls: ssl.SSLContext | None = None
) -> Answer:
    """Return a successful answer. Try again once if the service does not answer, or says that it failed."""
    failure: EngineUnavailable | None = None
    for _ in range(TRIES):
        try:
            answer = request(url, headers=headers, seconds=seconds, tls=tls)
            require_success(url, answer.status, "access is refused")
        except EngineUnavailable as error:
            failure = error
        else:
            return answer
    assert failure is not None
    raise failure


def require_success(url: str, status: int, refused: str) -> None:
    """Raise an error unless the status is 200. `refused` explains 401 and 403."""
    if status in _TEMPORARY:
        raise EngineUnavailable(f"{url} failed with {status}")
    if status in _REFUSED:
        raise NotAllowed(f"{url} answered {status}: {refused}")
    if status != 200:
        raise EngineError(f"{url} answered {status}")


def request(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] = _NO_HEADERS,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request, without a proxy, and return the answer. Raise EngineUnavailable after `seconds`."""
    deadline = time.monotonic() + seconds
    connection = _connect(url, seconds, tls)
    parts = urlsplit(url)
    try:
        with closing(connection):
            connection.request(method, f"{parts.path or '/'}{parts.query and f'?{parts.query}'}", headers=dict(headers))
            bounded: Any = _BoundedSocket(connection.sock, deadline)
            with HTTPResponse(bounded, method=method) as response:
                response.begin()
                body = b"".join(_read_chunks(response))
                return Answer(response.status, body, {key.lower(): value for key, value in response.getheaders()})
    except TimeoutError as error:
        raise NoAnswer(f"{url} did not answer in {seconds:.2g} s") from error
    except (OSError, HTTPException) as error:
        raise NoAnswer(f"{url} does not answer ({str(error) or type(error).__name__})") from error
    except ValueError as error:  # a header with a line break, or a host that has no encoding
        raise InvalidValue(f"{url} cannot be asked: {error}") from error


def _connect(url: str, seconds: float, tls: ssl.SSLContext | None) -> HTTPConnection:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidValue(f"address {url!r} cannot be read: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidValue(f"address {url!r}: expected one such as http://host:port")
    if parts.scheme == "https":
        return HTTPSConnection(parts.hostname, port, timeout=seconds, context=tls)
    return HTTPConnection(parts.hostname, port, timeout=seconds)


def _read_chunks(response: HTTPResponse) -> Iterator[bytes]:
    total = 0
    while chunk := response.read(65_536):
        total += len(chunk)
        if total > MAX_BYTES:
            raise HTTPException(f"more than {MAX_BYTES} bytes")
        yield chunk


class _BoundedSocket(io.RawIOBase):
    """Reads a socket until a deadline. The timeout of a socket alone bounds each read, and not all of them."""

    def __init__(self, source: socket, deadline: float) -> None:
        self._source = source
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return this as a buffered file, as HTTPResponse asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._source.settimeout(left)
        return self._source.recv_into(buffer)
