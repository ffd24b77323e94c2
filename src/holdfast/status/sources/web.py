"""Plain HTTP for sources: one short question, or a stream of events."""

import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast._errors import InvalidValue

TIMEOUT_SECONDS = 2.0
"""For connecting, and for every wait for a part of an answer: a source that needs longer is silent."""
STREAM_TIMEOUT_SECONDS = 40.0
"""Without a byte for this long a stream counts as dead: the server sends a sign of life every 15 s."""
MAX_STORE_AGE_SECONDS = 15.0
"""A server that has not read its own store for this long counts as silent: it may not know what the others know."""
MAX_RESPONSE_BYTES = 4 << 20
"""Bytes that are read of an answer: thousands of statuses, and no end of memory for a source gone mad."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def check_address(address: str) -> str:
    """The address without a slash at its end. Raises InvalidValue if it cannot be one."""
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or any(character.isspace() for character in address):
        raise InvalidValue(f"address {address!r}: expected one such as http://127.0.0.1:8470")
    return address.rstrip("/")


def connect(address: str, timeout: float) -> http.client.HTTPConnection:
    """A connection to the server at a URL; nothing is sent yet."""
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout)


def http_get(address: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> HttpResponse:
    """GET the address, over a connection of its own. Raises OSError or HTTPException when there is no answer."""
    parts = urlsplit(address)
    connection = connect(address, timeout)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=dict(headers))
        response = connection.getresponse()
        body = response.read(MAX_RESPONSE_BYTES)
        return HttpResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
    finally:
        connection.close()


def stream_events(
    address: str, headers: Mapping[str, str], on_open: Callable[[socket.socket], None] = lambda _: None
) -> Iterator[tuple[str, str, bytes]]:
    """Yield the events of a stream, each as id, name and data. Raises OSError or HTTPException.

    `on_open` is told the socket: shutting it down from another thread ends the wait for the next event.
    """
    connection = connect(address, TIMEOUT_SECONDS)
    try:
        connection.connect()
        stream = connection.sock  # the connection forgets it when the server says that it will close
        on_open(stream)
        connection.request("GET", urlsplit(address).path, headers=dict(headers))
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"GET {urlsplit(address).path} answered {response.status}")
        stream.settimeout(STREAM_TIMEOUT_SECONDS)
        number, name, data = "", "", b""
        while line := response.readline(MAX_RESPONSE_BYTES):
            field, _, value = line.rstrip(b"\r\n").partition(b": ")
            if field == b"id":
                number = value.decode()
            elif field == b"event":
                name = value.decode()
            elif field == b"data":
                data += value
            elif not line.strip() and name:
                yield number, name, data
                name, data = "", b""
    finally:
        connection.close()
