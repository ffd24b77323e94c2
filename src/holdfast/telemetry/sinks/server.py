"""Telemetry to a Holdfast server: lines of embedded metric format, in batches, from a thread of its own."""

import http.client
import json
import logging
from collections import deque
from typing import Self
from urllib.parse import urlsplit

from holdfast._background import BackgroundLoop
from holdfast._backoff import Backoff, Jitter
from holdfast._forks import register_after_fork

logger = logging.getLogger("holdfast.telemetry")

MAX_HELD_LINES = 10_000
"""Lines kept while the server is away, about 8 MB; past that the oldest are dropped: fresh ones say more."""
MAX_BATCH_LINES = 500
"""Most lines in one request: some 400 KB, below the server's limit of 1 MiB."""
FLUSH_SECONDS = 0.25
_AWAY_BACKOFF = Backoff(base=FLUSH_SECONDS, cap=0.5, jitter=Jitter.EQUAL)
"""Half a second at most: the server waits 1.5 s for the late lines of a bin."""
_TIMEOUT = 5.0
_FAILURES = (OSError, http.client.HTTPException)


class ServerSink:
    """Sends every line to `POST /v1/telemetry`. Thread-safe; use as a context manager, or call `start` and `close`.

    A forked child begins with no lines, because its parent sends those it had, and sends its own if its parent did.
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
            backoff=_AWAY_BACKOFF,
            expected=_FAILURES,
            continue_after_fork=True,
        )

    def _reset(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=MAX_HELD_LINES)
        self._emitted = 0
        self.refused_lines = 0
        """Lines that the server did not take: not in embedded metric format, or of a workload it does not know."""
        self._sent = 0
        self._connection: http.client.HTTPConnection | None = None

    def reset_after_fork(self) -> None:
        self._disconnect()  # the parent's end of the connection stays open
        self._reset()

    @property
    def dropped_lines(self) -> int:
        """How many lines were given up so far because the server was away for too long."""
        return self._emitted - self._sent - len(self._lines)

    def emit(self, event: bytes) -> None:
        self._lines.append(event)
        self._emitted += 1

    def start(self) -> Self:
        self._loop.start()
        return self

    def close(self) -> None:
        """Try once more to send what is left, then stop. May be repeated."""
        self._loop.stop(timeout=None)
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 - a sink never raises
            logger.warning("cannot send telemetry, %d lines are left: %s", len(self._lines), error)
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
        answer = response.read()
        if response.status >= 500:
            raise http.client.HTTPException(f"the server answered {response.status}")
        if response.status >= 400:
            # Sending the same again would be refused again.
            self.refused_lines += body.count(b"\n") + 1
            logger.warning("the server refused telemetry: %s %s", response.status, answer[:200])
            return
        refused = _count_refused(answer)
        if refused:
            self.refused_lines += refused
            logger.warning("the server refused %d lines of telemetry: %s", refused, answer[:200])


def _count_refused(answer: bytes) -> int:
    """How many lines an accepted batch lost; none if the answer does not say."""
    try:
        return int(json.loads(answer)["refused"])
    except (ValueError, KeyError, TypeError):
        return 0
