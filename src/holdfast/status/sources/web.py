"""HTTP client for sources and small requests: a GET, a POST, or a stream of server-sent events."""

import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 2.0
"""Seconds for connecting, and for each read: a source that needs longer counts as unavailable."""
STREAM_TIMEOUT_SECONDS = 40.0
"""Seconds without a byte after which a stream counts as dead: the server sends a keep-alive every 15 s."""
MAX_STORE_AGE_SECONDS = 15.0
"""A server that has not read its own store for this long counts as unavailable: it may have missed changes."""
MAX_RESPONSE_BYTES = 4 << 20
"""Enough for thousands of statuses; limits memory if a source misbehaves."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Status, headers (names in lower case) and body of a response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamEvent(NamedTuple):
    """One server-sent event."""

    id: str
    name: str
    data: bytes


def connect(address: str, timeout: float) -> http.client.HTTPConnection:
    """Return a connection to the server of a URL; it is opened by the first request."""
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout)


def http_get(address: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> HttpResponse:
    """GET the address over a new connection. Raise OSError or HTTPException without a response."""
    return _request("GET", address, None, headers, timeout)


def http_post(address: str, body: bytes, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> HttpResponse:
    """POST a body to the address over a new connection. Raise OSError or HTTPException without a response."""
    return _request("POST", address, body, headers, timeout)


def _request(method: str, address: str, body: bytes | None, headers: Mapping[str, str], timeout: float) -> HttpResponse:
    parts = urlsplit(address)
    connection = connect(address, timeout)
    try:
        connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), body, dict(headers))
        response = connection.getresponse()
        content = response.read(MAX_RESPONSE_BYTES)
        return HttpResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
    finally:
        connection.close()


def stream_events(
    address: str, headers: Mapping[str, str], on_open: Callable[[socket.socket], None] = lambda _: None
) -> Iterator[StreamEvent]:
    """Yield the events of a stream. Raise OSError or HTTPException.

    `on_open` receives the socket: shutting it down from another thread ends the wait for the next event.
    """
    connection = connect(address, TIMEOUT_SECONDS)
    try:
        connection.connect()
        stream = connection.sock  # the connection drops it when the server announces that it will close
        on_open(stream)
        connection.request("GET", urlsplit(address).path, headers=dict(headers))
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"GET {urlsplit(address).path} answered {response.status}")
        stream.settimeout(STREAM_TIMEOUT_SECONDS)
        event_id, name, data = "", "", b""
        while line := response.readline(MAX_RESPONSE_BYTES):
            field, _, value = line.rstrip(b"\r\n").partition(b": ")
            if field == b"id":
                event_id = value.decode()
            elif field == b"event":
                name = value.decode()
            elif field == b"data":
                data += value
            elif not line.strip() and name:  # an empty line ends an event
                yield StreamEvent(event_id, name, data)
                name, data = "", b""
    finally:
        connection.close()
