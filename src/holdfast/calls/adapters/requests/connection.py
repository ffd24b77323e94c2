"""urllib3 connections that report their set-up to the attempt, and observe its timeout."""

import http.client
import io
import ssl
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from holdfast.calls.adapters.rules import shorter_timeout
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import current_scope

PIECE = 65_536
"""Bytes to write with one timeout."""


def find_attempt() -> Attempt | None:
    """Return the current attempt, or None outside of one."""
    scope = current_scope()
    return scope if isinstance(scope, Attempt) else None


def set_read_timeout(answer: Any, seconds: float | None) -> None:
    """Set the timeout of further reads, if the response still has a socket. As `botocore.compat.set_socket_timeout`."""
    file = getattr(getattr(answer, "_fp", None), "fp", None)
    found = getattr(getattr(file, "raw", None), "_sock", None)
    if found is not None:
        found.settimeout(seconds)


def set_timeout(sock: Any, attempt: Attempt) -> None:
    """Shorten the timeout of a socket to the time left for the attempt. Raise TimeoutError if there is none."""
    left = attempt.timeout
    if left <= 0:
        raise TimeoutError("the attempt has timed out")
    sock.settimeout(shorter_timeout(sock.gettimeout(), left))


class LineReader:
    """A file wrapper that records whether the end was reached instead of another line."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.has_ended = False

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._file.readline(limit)
        self.has_ended = not line
        return line

    def close(self) -> None:
        self._file.close()


class BoundedFile(io.RawIOBase):
    """A socket's file whose every read takes at most the time left for the attempt, in which the response began."""

    def __init__(self, file: Any, attempt: Attempt) -> None:
        self._file = file
        self._sock = file._sock  # noqa: SLF001 - as `set_read_timeout` finds it
        self._attempt = attempt

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        number: int = self._file.fileno()
        return number

    def readinto(self, buffer: Any) -> int | None:
        if find_attempt() is self._attempt:  # otherwise the caller reads it, after the attempt
            set_timeout(self._sock, self._attempt)
        read: int | None = self._file.readinto(buffer)
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


class CompleteResponse(http.client.HTTPResponse):
    """A response within the attempt's time. If it ends within its headers, it raises: others take it for complete."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        attempt = find_attempt()
        if attempt is not None and isinstance(self.fp, io.BufferedReader):
            self.fp = io.BufferedReader(BoundedFile(self.fp.detach(), attempt))

    def begin(self) -> None:
        if self.headers is not None:
            return
        file = self.fp
        lines = LineReader(file)
        self.fp = lines
        try:
            super().begin()
        finally:
            if self.fp is lines:
                self.fp = file
        if lines.has_ended:
            raise http.client.RemoteDisconnected("the server closed the connection in the middle of the headers")


class MeasuredConnection(HTTPConnection):
    """A connection whose set-up, including TLS, is timed separately from the attempt."""

    response_class = CompleteResponse

    def connect(self) -> None:
        attempt = find_attempt()
        if attempt is None:
            super().connect()
            return
        with attempt.connecting():
            self.timeout = shorter_timeout(self.timeout, attempt.timeout)
            self._set_up()
        if self.sock is not None:
            self.sock.settimeout(shorter_timeout(None, attempt.timeout))

    def _new_conn(self) -> Any:
        made = super()._new_conn()
        attempt = find_attempt()
        if attempt is not None:
            made.settimeout(shorter_timeout(self.timeout, attempt.timeout))  # for TLS: the time that TCP has left
        return made

    def request(self, *args: Any, **kwargs: Any) -> None:
        attempt = find_attempt()
        if attempt is not None and self.sock is not None:
            self.sock.settimeout(shorter_timeout(None, attempt.timeout))
        super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        attempt = find_attempt()
        if attempt is None or self.sock is None or not isinstance(data, bytes):
            super().send(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            set_timeout(self.sock, attempt)
            super().send(view[start : start + PIECE])

    def getresponse(self) -> Any:
        attempt = find_attempt()
        if attempt is not None:
            self.timeout = shorter_timeout(self.timeout, attempt.timeout)
        return super().getresponse()

    def _set_up(self) -> None:
        """Connect. Translate errors during TLS into errors that prove that nothing was sent, as urllib3's do not."""
        try:
            super().connect()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            raise NewConnectionError(self, f"The connection broke while it was set up: {error}") from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"No connection to {self.host} in time (TLS included)") from error


class MeasuredTlsConnection(MeasuredConnection, HTTPSConnection):
    """A MeasuredConnection with TLS."""


class BoundedPool(HTTPConnectionPool):
    """The connections to one host. The attempt's timeout applies to waiting for a connection of a full pool."""

    ConnectionCls = MeasuredConnection

    def _get_conn(self, timeout: float | None = None) -> Any:
        attempt = find_attempt()
        return super()._get_conn(timeout if attempt is None else shorter_timeout(timeout, attempt.timeout))


class BoundedTlsPool(BoundedPool, HTTPSConnectionPool):
    """A BoundedPool with TLS."""

    ConnectionCls = MeasuredTlsConnection


POOLS = {"http": BoundedPool, "https": BoundedTlsPool}
"""Pool classes for a PoolManager, by scheme."""
