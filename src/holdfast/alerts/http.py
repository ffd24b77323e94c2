"""One HTTP request to a receiver: with a limit for all of it, verified certificates, no redirects and no retries."""

import http.client
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import holdfast
from holdfast._errors import AttemptTimedOut
from holdfast.alerts.channel import DeliveryFailed
from holdfast.calls.classify import FailureKind

MAX_ANSWER_BYTES = 4096
"""Receivers answer with a few words. More is not read."""


def send_request(
    method: str, url: str, timeout: float, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> None:
    """Send a request. Return if the answer is 2xx; raise DeliveryFailed, AttemptTimedOut or OSError otherwise.

    No error contains the path of the URL, which may be a secret.
    """
    parts = urlsplit(url)
    receiver = f"{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        _connect(connection, receiver)
        with _Watchdog(connection.sock, timeout) as watchdog:
            try:
                connection.request(method, path, body, {"User-Agent": _USER_AGENT, **(headers or {})})
                response = connection.getresponse()
                response.read(MAX_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as error:
                if watchdog.has_fired or isinstance(error, TimeoutError):
                    raise AttemptTimedOut(f"{receiver} did not answer within {timeout:g} s") from error
                raise DeliveryFailed(f"{receiver} did not answer: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        answered = {name.lower(): value for name, value in response.getheaders()}
        raise DeliveryFailed.from_status(receiver, response.status, answered)


_USER_AGENT = f"holdfast-alerts/{holdfast.__version__}"


def _connect(connection: http.client.HTTPConnection, receiver: str) -> None:
    import ssl

    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        raise DeliveryFailed(
            f"{receiver} has no valid certificate: {error.verify_message}", FailureKind.PERMANENT
        ) from error
    except OSError as error:  # nothing was sent
        reason = error.strerror or str(error) or type(error).__name__
        raise DeliveryFailed(f"{receiver} cannot be reached: {reason}", FailureKind.UNSENT) from error


class _Watchdog:
    """Ends a connection after a time: a receiver that sends one byte at a time would otherwise keep it open."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.has_fired = False
        self._connection = connection
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def _end(self) -> None:
        self.has_fired = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "_Watchdog":
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
