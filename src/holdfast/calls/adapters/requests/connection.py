"""Connections of urllib3 that tell the attempt when they are set up, and keep within its time."""

import http.client
import ssl
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from holdfast.calls.adapters.rules import sooner
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import around


def attempt_here() -> Attempt | None:
    """The attempt that this thread makes now, if it makes one."""
    scope = around()
    return scope if isinstance(scope, Attempt) else None


def wait_at_most(answer: Any, seconds: float | None) -> None:
    """Bound each further read of an answer, if it still has a socket, as `botocore.compat.set_socket_timeout` does."""
    file = getattr(getattr(answer, "_fp", None), "fp", None)
    found = getattr(getattr(file, "raw", None), "_sock", None)
    if found is not None:
        found.settimeout(seconds)


class Lines:
    """What an answer is read from, which remembers whether it came to an end instead of to the next line."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.has_ended = False

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._file.readline(limit)
        self.has_ended = not line
        return line

    def close(self) -> None:
        self._file.close()


class Whole(http.client.HTTPResponse):
    """Refuses an answer that ends among its headers; the standard library takes that for a good one without a body."""

    def begin(self) -> None:
        if self.headers is not None:
            return
        file = self.fp
        lines = Lines(file)
        self.fp = lines
        try:
            super().begin()
        finally:
            if self.fp is lines:
                self.fp = file
        if lines.has_ended:
            raise http.client.RemoteDisconnected("the connection was closed in the middle of the headers")


class Measured(HTTPConnection):
    """A connection whose set-up counts apart from the attempt, TLS included."""

    response_class = Whole

    def connect(self) -> None:
        attempt = attempt_here()
        if attempt is None:
            super().connect()
            return
        with attempt.connecting():
            self.timeout = sooner(self.timeout, attempt.timeout)
            self._set_up()
        if self.sock is not None:
            self.sock.settimeout(sooner(None, attempt.timeout))

    def _new_conn(self) -> Any:
        made = super()._new_conn()
        attempt = attempt_here()
        if attempt is not None:
            made.settimeout(sooner(self.timeout, attempt.timeout))  # for TLS: what TCP has left
        return made

    def request(self, *args: Any, **kwargs: Any) -> None:
        attempt = attempt_here()
        if attempt is not None and self.sock is not None:
            self.sock.settimeout(sooner(None, attempt.timeout))
        super().request(*args, **kwargs)

    def getresponse(self) -> Any:
        attempt = attempt_here()
        if attempt is not None:
            self.timeout = sooner(self.timeout, attempt.timeout)
        return super().getresponse()

    def _set_up(self) -> None:
        """Connect; what breaks TLS off says that nothing was sent, which urllib3's own errors do not."""
        try:
            super().connect()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            raise NewConnectionError(self, f"The connection broke while it was set up: {error}") from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"No connection to {self.host} in time (TLS included)") from error


class MeasuredTls(Measured, HTTPSConnection):
    """The same with TLS."""


class Pool(HTTPConnectionPool):
    """Connections to one host; waiting for one of a full pool takes no longer than the attempt may."""

    ConnectionCls = Measured

    def _get_conn(self, timeout: float | None = None) -> Any:
        attempt = attempt_here()
        return super()._get_conn(timeout if attempt is None else sooner(timeout, attempt.timeout))


class TlsPool(Pool, HTTPSConnectionPool):
    """The same with TLS."""

    ConnectionCls = MeasuredTls


POOLS = {"http": Pool, "https": TlsPool}
"""What a PoolManager makes its pools of."""
