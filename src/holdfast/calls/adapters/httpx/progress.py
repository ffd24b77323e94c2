"""How far an attempt with httpx has come, as httpcore tells it; Holdfast's errors are errors of httpx as well."""

import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import httpx

from holdfast._errors import AttemptTimedOut, ConnectTimedOut, DeadlineExceeded, HeldBack, HoldfastError, LimitReached
from holdfast.calls.adapters.rules import SHORTEST, Twins, late_answer, sooner, twin_of
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


class HttpxHeldBack(_WithoutRequest, HeldBack, httpx.TransportError):
    """The server asked every caller to wait, and longer than there is time."""


class HttpxLimitReached(_WithoutRequest, LimitReached, httpx.TransportError):
    """As many calls to the dependency as may be are under way."""


class HttpxNoEndpoint(_WithoutRequest, NoEndpoint, httpx.ConnectError):
    """Every zone that has endpoints is out."""


_TWINS: Twins = (
    (AttemptTimedOut, HttpxAttemptTimedOut),
    (ConnectTimedOut, HttpxConnectTimedOut),
    (DeadlineExceeded, HttpxDeadlineExceeded),
    (HeldBack, HttpxHeldBack),
    (LimitReached, HttpxLimitReached),
    (NoEndpoint, HttpxNoEndpoint),
)
_QUEUED = ((ConnectTimedOut, HttpxPoolTimedOut), *_TWINS)


def as_httpx(error: HoldfastError, *, queued: bool = False) -> HoldfastError:
    """Return the error as its counterpart in httpx, if there is one. `queued`: it waited for a free connection."""
    if isinstance(error, httpx.HTTPError):
        return error
    return twin_of(error, _QUEUED if queued else _TWINS) or error


Trace = Callable[[str, MutableMapping[str, Any]], Any]
"""The extension of httpcore that is told of each step."""

POOL_SHARE = 0.9
"""Of an attempt's time, to wait for the pool: less than all, as a timeout of the pool proves that nothing was sent."""
DEFAULT = httpx.Timeout(5.0).as_dict()
"""https://www.python-httpx.org/advanced/timeouts/. Nobody chose it, and it would undercut the dependency's own."""

# https://www.encode.io/httpcore/extensions/#trace, without the name of the module in front.
_OPENING = frozenset({"connect_tcp.started", "connect_unix_socket.started", "start_tls.started"})
_READY = "send_request_headers.started"
_AT_WORK = frozenset(
    {_READY, "send_request_body.started", "receive_response_headers.started", "receive_response_body.started"}
)


class Progress:
    """Follows one attempt: tells it when a connection is set up, and keeps httpx's timeouts within its time.

    httpcore reads the timeouts anew before each step, out of the mapping that is changed here. With `is_cut_off`, the
    event loop ends the attempt in time, and reading and writing keep the timeouts of the client. `user_trace` is told
    of each step as well. Waiting for a connection may take as long as an attempt, whose time begins after that.
    """

    def __init__(
        self,
        attempt: Attempt,
        asked: Mapping[str, float | None],
        *,
        is_cut_off: bool = False,
        user_trace: Trace | None = None,
    ) -> None:
        self._asked = asked
        self._user_trace = user_trace
        self._attempt = attempt
        self._began = attempt.core.runtime.monotonic()
        self._half_open: Any = None
        self._is_cut_off = is_cut_off
        self._is_default = asked == DEFAULT
        self.has_begun = False
        """Whether a request has begun to be sent."""
        self.is_whole_call = False
        """Whether what is read now may take as long as the whole call, and not only as the attempt."""
        self.timeouts: dict[str, float | None] = {
            **asked,
            "pool": self._within("pool", POOL_SHARE * attempt.timeout),
            "connect": self._within("connect", attempt.connect_timeout),
        }

    @property
    def left(self) -> float:
        """Seconds for what is being done now."""
        return self._attempt.call_timeout if self.is_whole_call else self._attempt.timeout

    def saw(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Take notice of a step, such as `connection.connect_tcp.started`."""
        self._follow(name.partition(".")[2], about)
        if self._user_trace is not None:
            self._user_trace(name, about)

    async def saw_async(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Take notice of a step in an event loop, where a set-up may be cancelled: httpcore leaves the socket open."""
        step = name.partition(".")[2]
        self._follow(step, about)
        if step == "connect_tcp.complete":
            self._half_open = about["return_value"]
        elif step == "start_tls.failed" and self._half_open is not None:
            await self._half_open.aclose()
        if self._user_trace is not None:
            await self._user_trace(name, about)

    def _follow(self, step: str, about: MutableMapping[str, Any]) -> None:
        attempt = self._attempt
        if step in _OPENING:
            attempt.connect_began()
            # What httpcore tells is what it is about to call with: so TCP and TLS together keep within the time.
            about["timeout"] = sooner(about.get("timeout"), attempt.timeout)
        elif step in _AT_WORK:
            if step == _READY:
                self.has_begun = True
                attempt.ready(self._began)
            for way in ("read", "write"):
                left = self.left
                self.timeouts[way] = self._asked_for(way, left) if self._is_cut_off else self._within(way, left)

    def check(self) -> None:
        """Raise if the time is over."""
        if self.left <= 0:
            raise self.late()

    def late(self) -> HoldfastError:
        """Return what to raise when the time is over."""
        return as_httpx(late_answer(self._attempt) if self.is_whole_call else self._attempt.timed_out())

    def raise_understood(self, error: BaseException) -> None:
        """Raise our own error in place of a timeout of httpx, if it was ours and not the client's."""
        ours = self.understood(error) if isinstance(error, httpx.TimeoutException) else error
        if ours is not error:
            raise ours from error

    def understood(self, error: httpx.TimeoutException) -> Exception:
        """Return what to raise in place of a timeout of httpx: the error itself if it was the client's own."""
        if isinstance(error, HoldfastError):
            return error
        attempt, name = self._attempt, self._attempt.core.name
        if isinstance(error, httpx.PoolTimeout):
            waited = self.timeouts["pool"]
            if waited is None or waited == self._asked.get("pool"):
                return error
            return as_httpx(ConnectTimedOut(f"{name}: no connection was free in {waited:.3f} s"), queued=True)
        if self.left > SHORTEST:
            return error
        if isinstance(error, httpx.ConnectTimeout) and attempt.expires < attempt.limit:
            return as_httpx(ConnectTimedOut(f"{name}: no connection in {attempt.core.connect_estimator.value:.3f} s"))
        return self.late()

    def is_unsent(self) -> None:
        """Note that nothing was sent, if it never had a connection. Only for transports that tell their steps."""
        attempt = self._attempt
        if not self.has_begun and attempt.connecting_since is None:
            attempt.queued = True
            attempt.setup = attempt.core.runtime.monotonic() - self._began

    def _asked_for(self, way: str, left: float) -> float | None:
        """The client's own timeout; none if it is only the default, and there is another bound."""
        return None if self._is_default and left < math.inf else self._asked.get(way)

    def _within(self, way: str, left: float) -> float | None:
        return sooner(self._asked_for(way, left), left)
