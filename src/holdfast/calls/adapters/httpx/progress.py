"""The progress of an attempt, from httpcore's trace events, and Holdfast's errors as errors of httpx."""

import math
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import httpx

from holdfast._errors import (
    AttemptTimedOut,
    ConnectTimedOut,
    DeadlineExceeded,
    HoldfastError,
    LimitReached,
    RetryAfterTooLong,
)
from holdfast.calls.adapters.rules import MIN_TIMEOUT, ErrorPairs, late_answer_error, shorter_timeout, translate_error
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import SINGLE_REQUEST
from holdfast.calls.endpoints import NoEndpoint
from holdfast.calls.engine import set_attribute


class _WithoutRequest:
    """A base for errors without a request: httpx sets it on errors it makes itself, but does not make these."""

    _request: Any = None


class HttpxAttemptTimedOut(_WithoutRequest, AttemptTimedOut, httpx.ReadTimeout):
    """One attempt timed out. The server may have done the work anyway."""


class HttpxConnectTimedOut(_WithoutRequest, ConnectTimedOut, httpx.ConnectTimeout):
    """No connection was established in time. Nothing was sent."""


class HttpxPoolTimedOut(_WithoutRequest, ConnectTimedOut, httpx.PoolTimeout):
    """No connection of the pool was free in time. Nothing was sent."""


class HttpxDeadlineExceeded(_WithoutRequest, DeadlineExceeded, httpx.ReadTimeout):
    """The deadline of the call has passed."""


class HttpxRetryAfterTooLong(_WithoutRequest, RetryAfterTooLong, httpx.TransportError):
    """Retry-After, with scope `all`, ends past the deadline."""


class HttpxLimitReached(_WithoutRequest, LimitReached, httpx.TransportError):
    """The limit of concurrent attempts is reached."""


class HttpxNoEndpoint(_WithoutRequest, NoEndpoint, httpx.ConnectError):
    """Every zone that has endpoints is out, or no endpoints are known."""


_ERROR_PAIRS: ErrorPairs = (
    (AttemptTimedOut, HttpxAttemptTimedOut),
    (ConnectTimedOut, HttpxConnectTimedOut),
    (DeadlineExceeded, HttpxDeadlineExceeded),
    (RetryAfterTooLong, HttpxRetryAfterTooLong),
    (LimitReached, HttpxLimitReached),
    (NoEndpoint, HttpxNoEndpoint),
)
_QUEUED_ERROR_PAIRS = ((ConnectTimedOut, HttpxPoolTimedOut), *_ERROR_PAIRS)


def to_httpx_error(error: HoldfastError, *, timed_out_in_pool: bool = False) -> HoldfastError:
    """Return the error as one of httpx: PoolTimeout if `timed_out_in_pool`. Without a counterpart it is unchanged."""
    if isinstance(error, httpx.HTTPError):
        return error
    return translate_error(error, _QUEUED_ERROR_PAIRS if timed_out_in_pool else _ERROR_PAIRS) or error


Trace = Callable[[str, MutableMapping[str, Any]], Any]
"""A callback for httpcore's trace events."""

POOL_SHARE = 0.9
"""Fraction of an attempt's timeout to wait for the pool. A pool timeout must come first: it proves nothing was sent."""
DEFAULT = httpx.Timeout(5.0).as_dict()
"""httpx's default: https://www.python-httpx.org/advanced/timeouts/. It must not undercut the dependency's timeouts."""

# https://www.encode.io/httpcore/extensions/#trace, without the module prefix.
_CONNECT_STEPS = frozenset({"connect_tcp.started", "connect_unix_socket.started", "start_tls.started"})
_FIRST_REQUEST_STEP = "send_request_headers.started"
_REQUEST_STEPS = frozenset(
    {
        _FIRST_REQUEST_STEP,
        "send_request_body.started",
        "receive_response_headers.started",
        "receive_response_body.started",
    }
)


class RemainingTimeout(float):
    """The timeout of a synchronous read or write. httpcore passes one on to all reads of a response's headers.

    As a number, it is the timeout when it was made.
    """

    __slots__ = ("_phase", "_progress")

    def __new__(cls, seconds: float, _progress: "Progress", _phase: str) -> "RemainingTimeout":
        return super().__new__(cls, seconds)

    def __init__(self, _seconds: float, progress: "Progress", phase: str) -> None:
        self._progress = weakref.ref(progress)  # which has this in its `timeouts`, and lives as long as its request
        self._phase = phase

    def now(self) -> float | None:
        """Return the current timeout in seconds: 0 if no time is left, None for no timeout."""
        progress = self._progress()
        if progress is None:
            return float(self)
        left = progress.left
        return 0.0 if left <= 0 else progress.bounded_timeout(self._phase, left)


class Progress:
    """The progress of one attempt. Reports the connection set-up to it, and adjusts httpx's timeouts to its own.

    httpcore reads the timeouts before each step from the mapping that is changed here. With `is_cancellable`, the event
    loop cancels the attempt on timeout, and reads and writes keep the client's timeouts. `user_trace` gets each event
    as well. Waiting for a connection may take as long as an attempt, whose timeout starts after that.
    """

    def __init__(
        self,
        attempt: Attempt,
        client_timeouts: Mapping[str, float | None],
        *,
        is_cancellable: bool = False,
        user_trace: Trace | None = None,
    ) -> None:
        self._client_timeouts = client_timeouts
        self._user_trace = user_trace
        self._attempt = attempt
        self._began = attempt.dependency.runtime.monotonic()
        self._half_open: Any = None
        self._is_cancellable = is_cancellable
        self._is_default = client_timeouts == DEFAULT
        self.has_begun = False
        """Whether sending has begun."""
        self.is_whole_call = False
        """Whether the call's deadline applies instead of the attempt's timeout."""
        self.timeouts: dict[str, float | None] = {
            **client_timeouts,
            "pool": self.bounded_timeout("pool", POOL_SHARE * attempt.timeout),
            "connect": self.bounded_timeout("connect", attempt.connect_timeout),
        }

    @property
    def left(self) -> float:
        """Seconds left for the attempt, or for the call if `is_whole_call`."""
        return self._attempt.call_timeout if self.is_whole_call else self._attempt.timeout

    def on_step(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Handle a trace event, such as `connection.connect_tcp.started`."""
        self._update(name.partition(".")[2], about)
        if self._user_trace is not None:
            self._user_trace(name, about)

    async def on_step_async(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Handle a trace event in an event loop. Close the socket of a cancelled set-up, which httpcore leaves open."""
        step = name.partition(".")[2]
        self._update(step, about)
        if step == "connect_tcp.complete":
            self._half_open = about["return_value"]
        elif step == "start_tls.failed" and self._half_open is not None:
            await self._half_open.aclose()
        if self._user_trace is not None:
            await self._user_trace(name, about)

    def _update(self, step: str, about: MutableMapping[str, Any]) -> None:
        attempt = self._attempt
        if step in _CONNECT_STEPS:
            attempt.begin_connect()
            # httpcore passes its arguments for the step. Shortening the timeout bounds TCP and TLS together.
            about["timeout"] = shorter_timeout(about.get("timeout"), attempt.timeout)
        elif step in _REQUEST_STEPS:
            if step == _FIRST_REQUEST_STEP:
                self.has_begun = True
                attempt.connection_ready(self._began)
            for phase in ("read", "write"):
                left = self.left
                if self._is_cancellable:
                    self.timeouts[phase] = self._client_timeout(phase, left)
                    continue
                seconds = self.bounded_timeout(phase, left)
                self.timeouts[phase] = None if seconds is None else RemainingTimeout(seconds, self, phase)

    def check(self) -> None:
        """Raise the timeout error if no time is left."""
        if self.left <= 0:
            raise self.timeout_error()

    def timeout_error(self) -> HoldfastError:
        """Return the error to raise when no time is left."""
        return to_httpx_error(late_answer_error(self._attempt) if self.is_whole_call else self._attempt.timeout_error())

    def raise_translated(self, error: BaseException) -> None:
        """Raise Holdfast's error instead of a timeout of httpx, if the timeout was Holdfast's and not the client's.

        Mark other errors as those of a single request.
        """
        set_attribute(error, SINGLE_REQUEST, True)
        ours = self.translate_timeout(error) if isinstance(error, httpx.TimeoutException) else error
        if ours is not error:
            raise ours from error

    def translate_timeout(self, error: httpx.TimeoutException) -> Exception:
        """Return the error to raise for a timeout of httpx: `error` itself if the timeout was the client's."""
        if isinstance(error, HoldfastError):
            return error
        attempt, name = self._attempt, self._attempt.dependency.name
        if isinstance(error, httpx.PoolTimeout):
            waited = self.timeouts["pool"]
            if waited is None or waited == self._client_timeouts.get("pool"):
                return error
            return to_httpx_error(
                ConnectTimedOut(f"{name}: no connection was free in {waited:.3f} s"), timed_out_in_pool=True
            )
        if self.left > MIN_TIMEOUT:
            return error
        if isinstance(error, httpx.ConnectTimeout) and attempt.expires < attempt.call_expires:
            return to_httpx_error(
                ConnectTimedOut(f"{name}: no connection in {attempt.dependency.connect_estimator.value:.3f} s")
            )
        return self.timeout_error()

    def mark_unsent(self) -> None:
        """Mark an attempt that never had a connection as unsent. Only for transports that emit trace events."""
        attempt = self._attempt
        if not self.has_begun and attempt.connecting_since is None:
            attempt.timed_out_in_pool = True
            attempt.setup_seconds = attempt.dependency.runtime.monotonic() - self._began

    def _client_timeout(self, phase: str, left: float) -> float | None:
        """Return the client's timeout; None if it is httpx's default and another bound applies."""
        return None if self._is_default and left < math.inf else self._client_timeouts.get(phase)

    def bounded_timeout(self, phase: str, left: float) -> float | None:
        """Return the shorter of the client's timeout and the seconds left."""
        return shorter_timeout(self._client_timeout(phase, left), left)
