"""Send telemetry to a Holdfast server: lines of embedded metric format, in batches, from a background thread."""

import http.client
import logging
from collections import deque
from typing import Self
from urllib.parse import urlsplit

import msgspec

from holdfast._background import BackgroundLoop
from holdfast._backoff import Backoff, Jitter
from holdfast._forks import register_after_fork

logger = logging.getLogger("holdfast.telemetry")

MAX_HELD_LINES = 10_000
"""Lines held while the server is unavailable, about 8 MB. Above that the oldest are dropped: fresh ones matter more."""
MAX_BATCH_LINES = 500
"""Maximum lines in one request: some 400 KB, below the server's limit of 1 MiB."""
FLUSH_SECONDS = 0.25
_UNAVAILABLE_BACKOFF = Backoff(base=FLUSH_SECONDS, cap=0.5, jitter=Jitter.EQUAL)
"""Half a second at most: the server waits 1.5 s for the late lines of a bin."""
_TIMEOUT = 5.0
_FAILURES = (OSError, http.client.HTTPException)


class ServerSink:
    """A sink that sends lines to `POST /v1/telemetry`. Thread-safe; a context manager, or call `start` and `close`.

    After a fork, the child drops inherited lines, which the parent sends, and sends its own if the parent was started.
    """

    def __init__(self, address: str, *, token: str | None = None) -> None:
        self._address = urlsplit(address)
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._reset()
        register_after_fork(self)  # before the loop, so that the child's thread finds no lines of the parent
        self._loop = BackgroundLoop(
            "holdfast-sink",
            self._flush,
            action="send telemetry",
            logger=logger,
            backoff=_UNAVAILABLE_BACKOFF,
            expected=_FAILURES,
            continue_after_fork=True,
        )

    def _reset(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=MAX_HELD_LINES)
        self._emitted = 0
        self.refused_lines = 0
        """Lines that the server refused: not in embedded metric format, or of an unknown workload or zone."""
        self._sent = 0
        self._connection: http.client.HTTPConnection | None = None

    def reset_after_fork(self) -> None:
        self._disconnect()  # the parent's connection stays open
        self._reset()

    @property
    def dropped_lines(self) -> int:
        """Lines dropped because the server was unavailable for too long."""
        return self._emitted - self._sent - len(self._lines)

    def emit(self, event: bytes) -> None:
        self._lines.append(event)
        self._emitted += 1

    def start(self) -> Self:
        self._loop.start()
        return self

    def close(self) -> None:
        """Try once more to send the remaining lines, then stop. May be repeated."""
        self._loop.stop(timeout=None)
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 - a sink never raises
            logger.warning("cannot send telemetry, %s not sent: %s", _format_lines(len(self._lines)), error)
        self._disconnect()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _flush(self) -> float:
        while self._lines:
            batch = [self._lines.popleft() for _ in range(min(MAX_BATCH_LINES, len(self._lines)))]
            try:
                self._send(b"\n".join(batch))
            except _FAILURES:
                self._disconnect()
                room = MAX_HELD_LINES - len(self._lines)
                self._lines.extendleft(reversed(batch[len(batch) - min(room, len(batch)) :]))
                raise
            self._sent += len(batch)
        return FLUSH_SECONDS

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, body: bytes) -> None:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._address.hostname or "", self._address.port, timeout=_TIMEOUT)
        self._connection.request("POST", "/v1/telemetry", body, self._headers)
        response = self._connection.getresponse()
        answer = _parse_answer(response.read())
        if response.status >= 500:
            raise http.client.HTTPException(f"the server answered {response.status}")
        if response.status >= 400:  # sending the same lines again would be useless
            refused, reason = body.count(b"\n") + 1, f"HTTP {response.status}: {answer.detail or 'no reason given'}"
        else:
            refused, reason = answer.refused, f"first reason: {answer.reason or 'none given'}"
        if refused:
            self.refused_lines += refused
            logger.warning("the server refused %s of telemetry; %s", _format_lines(refused), reason[:250])


class _Answer(msgspec.Struct, frozen=True):
    refused: int = 0
    reason: str | None = None
    detail: str | None = None  # only of a problem


def _parse_answer(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, ValueError):
        return _Answer()


def _format_lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"
