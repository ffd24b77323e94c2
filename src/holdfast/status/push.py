"""Listening to a server's events: the reader's side of server-sent events."""

import http.client
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

SILENCE_SECONDS = 40.0
"""Without a byte for this long a stream counts as dead: the server sends a sign of life every 15 s."""


def connect(address: str, timeout: float = SILENCE_SECONDS) -> http.client.HTTPConnection:
    """A connection to the server at a base URL; nothing is sent yet."""
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout)


def events(
    address: str,
    headers: Mapping[str, str],
    opened: Callable[[http.client.HTTPConnection], None] = lambda _: None,
) -> Iterator[tuple[str, bytes]]:
    """The server's events, name and data, until it ends the stream.

    Raises OSError or HTTPException when the server cannot be heard. `opened` is told the connection: closing its
    socket from another thread ends the wait for the next event.
    """
    connection = connect(address)
    try:
        connection.connect()
        opened(connection)
        connection.request("GET", "/v1/events", headers=dict(headers))
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"GET /v1/events answered {response.status}")
        name, data = "", b""
        while line := response.readline():
            field, _, value = line.rstrip(b"\r\n").partition(b": ")
            if field == b"event":
                name = value.decode()
            elif field == b"data":
                data += value
            elif not line.strip() and name:
                yield name, data
                name, data = "", b""
    finally:
        connection.close()
