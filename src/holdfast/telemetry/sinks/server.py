"""Send telemetry to a Holdfast server: lines of embedded metric format, in batches, from a background thread."""

import gzip
import http.client
import random
import re
import time
from urllib.parse import urlsplit

import msgspec

from holdfast._background import RetryLater
from holdfast._backoff import Backoff, Jitter
from holdfast._errors import InvalidValue
from holdfast._log_limiter import LogLimiter
from holdfast._names import check_address, format_count
from holdfast.calls.classify import parse_retry_after
from holdfast.telemetry.sinks.buffered import FLUSH_SECONDS, Batch, BufferedSink, logger

__all__ = ["ServerSink"]

BATCH_HEADER = "X-Holdfast-Batch"
"""A random id of the batch. It is the same when a batch is sent again, so that the server can drop a duplicate."""
MAX_RETRY_AFTER = 60.0
"""Maximum seconds to wait for a server that sends Retry-After. Meanwhile the buffer drops the oldest lines."""
_UNAVAILABLE_BACKOFF = Backoff(base=FLUSH_SECONDS, cap=0.5, jitter=Jitter.EQUAL)
"""Half a second at most: the server waits 1.5 s for the late lines of a bin."""
_TIMEOUT = 5.0
_FAILURES = (OSError, http.client.HTTPException)
_CLOSED_WHILE_IDLE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
_FASTEST = 1
"""Level of gzip. Lines are similar to each other, so the fastest level already saves more than 90 %."""
_PRINTABLE = re.compile(r"[!-~]+")
_SPREAD = 0.25
"""Part of Retry-After that is added at random, so that senders do not return at the same moment."""


class ServerSink(BufferedSink):
    """A sink that sends lines to `POST /v1/telemetry`. See BufferedSink.

    It compresses batches once the server has said in a response that it accepts `gzip` (RFC 7694). Raise InvalidValue
    if the address is not an HTTP URL, or the token contains a character that no token has, such as a line end.
    """

    def __init__(self, address: str, *, token: str | None = None) -> None:
        self._address = urlsplit(check_address(address))
        if token is not None and not _PRINTABLE.fullmatch(token):  # the message must not contain it
            raise InvalidValue(
                "token: expected text without spaces and line ends, such as `file.read().strip()`, or None without one"
            )
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        super().__init__(action="send telemetry", expected=_FAILURES, backoff=_UNAVAILABLE_BACKOFF)

    def _reset(self) -> None:
        super()._reset()
        self.refused_lines = 0
        """Lines that the server refused: not in embedded metric format, or of an unknown workload or zone."""
        self.late_requests = 0
        """Requests that the server stored, but that arrived too late for a verdict."""
        self.too_late_requests = 0
        """Requests that the server dropped, because they arrived too late to be stored."""
        self._connection: http.client.HTTPConnection | None = None
        self._accepts_gzip = False
        self._log_limiter = LogLimiter(1, 60.0)  # a sender with a wrong token is refused four times a second

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, batch: Batch) -> None:
        body = b"\n".join(batch.lines)
        headers = self._headers | {BATCH_HEADER: batch.id}
        if self._accepts_gzip:
            body = gzip.compress(body, _FASTEST, mtime=0)
            headers["Content-Encoding"] = "gzip"
        response, content = self._post(body, headers)
        answer, status = _parse_answer(content), response.status
        if status in (408, 429) or status >= 500:
            raise _build_error(response)
        if status == 415 and self._accepts_gzip:  # another server, of an older version, behind the same address
            self._accepts_gzip = False
            raise RetryLater("the server does not accept gzip", FLUSH_SECONDS)
        if status == 413 and len(batch.lines) > 1:  # the lines go into smaller batches, from now on
            self._max_batch_lines = (len(batch.lines) + 1) // 2
            return
        if 300 <= status < 400:  # a proxy sends elsewhere: the server has not got the lines
            location = response.getheader("Location") or "nowhere"
            raise http.client.HTTPException(f"the answer is a redirect to {location[:200]}: use its address instead")
        if status < 300:
            self._accepts_gzip = "gzip" in (response.getheader("Accept-Encoding") or "").lower()
            self.late_requests += answer.late
            self.too_late_requests += answer.too_late
            self._report_refused(answer.refused, f"first reason: {answer.reason or 'none given'}")
        else:  # sending the same lines again would be useless
            reason = f"HTTP {status}: {answer.detail or 'no reason given'}"
            if status == 401 and "Authorization" not in self._headers:
                reason = "HTTP 401: there is no token: set HOLDFAST_TOKEN, or pass `token=` to ServerSink"
            self._report_refused(len(batch.lines), reason)
        self._count_sent(batch, len(batch.lines))

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request and return the response. If an idle connection turns out to be closed, open a new one."""
        is_reused = self._connection is not None
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._address.hostname or "", self._address.port, timeout=_TIMEOUT)
        try:
            self._connection.request("POST", f"{self._address.path}/v1/telemetry", body, headers)
            response = self._connection.getresponse()
            return response, response.read()
        except _CLOSED_WHILE_IDLE:
            self._disconnect()
            if is_reused:
                return self._post(body, headers)
            raise

    def _report_refused(self, refused: int, reason: str) -> None:
        if refused:
            self.refused_lines += refused
            if self._log_limiter.admit("refused", time.monotonic()) is not None:
                count = format_count(refused, "line")
                logger.warning("the server refused %s of telemetry; %s", count, reason[:250])


def _build_error(response: http.client.HTTPResponse) -> Exception:
    """Return the error after which a batch is sent again: when the server asks for it, or after the backoff."""
    reason = f"the server answered {response.status}"
    headers = {name.lower(): value for name, value in response.getheaders()}
    seconds = parse_retry_after(headers, time.time)
    if seconds is None:
        return http.client.HTTPException(reason)
    spread = 1 + _SPREAD * random.random()  # noqa: S311 - no secret
    return RetryLater(reason, max(FLUSH_SECONDS, min(seconds, MAX_RETRY_AFTER)) * spread)


class _Answer(msgspec.Struct, frozen=True):
    refused: int = 0
    reason: str | None = None
    late: int = 0
    too_late: int = 0
    detail: str | None = None  # only of a problem


def _parse_answer(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, ValueError):
        return _Answer()
