"""How far an attempt with httpx has come, as httpcore tells it; Holdfast's errors are errors of httpx as well."""

import math
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
from holdfast.calls.endpoints import NoEndpoint


class _WithoutRequest:
    """An error whose request is not known: httpx sets it, and does not get to see these errors being made."""

    _request: Any = None


class HttpxAttemptTimedOut(_WithoutRequest, AttemptTimedOut, httpx.ReadTimeout):
    """One attempt took longer than it may; the server may have done the work all the same."""


class HttpxConnectTimedOut(_WithoutRequest, ConnectTimedOut, httpx.ConnectTimeout):
    """No connection came about in time; nothing was sent."""


class HttpxPoolTimedOut(_WithoutRequest, ConnectTimedOut, httpx.PoolTimeout):
    """No connection of the pool was free in time; nothing was sent."""


class HttpxDeadlineExceeded(_WithoutRequest, DeadlineExceeded, httpx.ReadTimeout):
    """The time for the whole of it is over."""


class HttpxRetryAfterTooLong(_WithoutRequest, RetryAfterTooLong, httpx.TransportError):
    """The server asked every caller to wait, and longer than there is time."""


class HttpxLimitReached(_WithoutRequest, LimitReached, httpx.TransportError):
    """As many calls to the dependency as may be are under way."""


class HttpxNoEndpoint(_WithoutRequest, NoEndpoint, httpx.ConnectError):
    """Every zone that has endpoints is out."""


_ERROR_PAIRS: ErrorPairs = (
    (AttemptTimedOut, HttpxAttemptTimedOut),
    (ConnectTimedOut, HttpxConnectTimedOut),
    (DeadlineExceeded, HttpxDeadlineExceeded),
    (RetryAfterTooLong, HttpxRetryAfterTooLong),
    (LimitReached, HttpxLimitReached),
    (NoEndpoint, HttpxNoEndpoint),
)
_QUEUED_ERROR_PAIRS = ((ConnectTimedOut, HttpxPoolTimedOut), *_ERROR_PAIRS)


def to_httpx_error(error: HoldfastError, *, is_queued: bool = False) -> HoldfastError:
    """Return the error as its counterpart in httpx, if there is one. `is_queued`: it waited for a free connection."""
    if isinstance(error, httpx.HTTPError):
        return error
    return translate_error(error, _QUEUED_ERROR_PAIRS if is_queued else _ERROR_PAIRS) or error


Trace = Callable[[str, MutableMapping[str, Any]], Any]
"""The extension of httpcore that is told of each step."""

POOL_SHARE = 0.9
"""Of an attempt's time, to wait for the pool: less than all, as a timeout of the pool proves that nothing was sent."""
DEFAULT = httpx.Timeout(5.0).as_dict()
"""https://www.python-httpx.org/advanced/timeouts/. Nobody chose it, and it would undercut the dependency's own."""

# https://www.encode.io/httpcore/extensions/#trace, without the name of the module in front.
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


class Progress:
    """Follows one attempt: tells it when a connection is set up, and keeps httpx's timeouts within its time.

    httpcore reads the timeouts anew before each step, out of the mapping that is changed here. With `is_cancellable`,
    the event loop ends the attempt in time, and reading and writing keep the timeouts of the client. `user_trace` is
    told
    of each step as well. Waiting for a connection may take as long as an attempt, whose time begins after that.
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
        """Whether a request has begun to be sent."""
        self.is_whole_call = False
        """Whether what is read now may take as long as the whole call, and not only as the attempt."""
        self.timeouts: dict[str, float | None] = {
            **client_timeouts,
            "pool": self._bounded_timeout("pool", POOL_SHARE * attempt.timeout),
            "connect": self._bounded_timeout("connect", attempt.connect_timeout),
        }

    @property
    def left(self) -> float:
        """Seconds for what is being done now."""
        return self._attempt.call_timeout if self.is_whole_call else self._attempt.timeout

    def on_step(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Take notice of a step, such as `connection.connect_tcp.started`."""
        self._update(name.partition(".")[2], about)
        if self._user_trace is not None:
            self._user_trace(name, about)

    async def on_step_async(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Take notice of a step in an event loop, where a set-up may be cancelled: httpcore leaves the socket open."""
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
            # What httpcore tells is what it is about to call with: so TCP and TLS together keep within the time.
            about["timeout"] = shorter_timeout(about.get("timeout"), attempt.timeout)
        elif step in _REQUEST_STEPS:
            if step == _FIRST_REQUEST_STEP:
                self.has_begun = True
                attempt.connection_ready(self._began)
            for phase in ("read", "write"):
                left = self.left
                self.timeouts[phase] = (
                    self._client_timeout(phase, left) if self._is_cancellable else self._bounded_timeout(phase, left)
                )

    def check(self) -> None:
        """Raise if the time is over."""
        if self.left <= 0:
            raise self.timeout_error()

    def timeout_error(self) -> HoldfastError:
        """Return what to raise when the time is over."""
        return to_httpx_error(late_answer_error(self._attempt) if self.is_whole_call else self._attempt.timeout_error())

    def raise_translated(self, error: BaseException) -> None:
        """Raise our own error in place of a timeout of httpx, if it was ours and not the client's."""
        ours = self.translate_timeout(error) if isinstance(error, httpx.TimeoutException) else error
        if ours is not error:
            raise ours from error

    def translate_timeout(self, error: httpx.TimeoutException) -> Exception:
        """Return what to raise in place of a timeout of httpx: the error itself if it was the client's own."""
        if isinstance(error, HoldfastError):
            return error
        attempt, name = self._attempt, self._attempt.dependency.name
        if isinstance(error, httpx.PoolTimeout):
            waited = self.timeouts["pool"]
            if waited is None or waited == self._client_timeouts.get("pool"):
                return error
            return to_httpx_error(ConnectTimedOut(f"{name}: no connection was free in {waited:.3f} s"), is_queued=True)
        if self.left > MIN_TIMEOUT:
            return error
        if isinstance(error, httpx.ConnectTimeout) and attempt.expires < attempt.call_expires:
            return to_httpx_error(
                ConnectTimedOut(f"{name}: no connection in {attempt.dependency.connect_estimator.value:.3f} s")
            )
        return self.timeout_error()

    def mark_unsent(self) -> None:
        """Note that nothing was sent, if it never had a connection. Only for transports that tell their steps."""
        attempt = self._attempt
        if not self.has_begun and attempt.connecting_since is None:
            attempt.is_queued = True
            attempt.setup_seconds = attempt.dependency.runtime.monotonic() - self._began

    def _client_timeout(self, phase: str, left: float) -> float | None:
        """The client's own timeout; none if it is only the default, and there is another bound."""
        return None if self._is_default and left < math.inf else self._client_timeouts.get(phase)

    def _bounded_timeout(self, phase: str, left: float) -> float | None:
        return shorter_timeout(self._client_timeout(phase, left), left)
