"""How far an attempt with httpx has come, as httpcore tells it; and Holdfast's errors as httpx knows errors.

An attempt waits for a connection, sets one up, or is at work. `except httpx.HTTPError` goes on catching everything.
"""

import math
from collections.abc import Mapping, MutableMapping
from typing import Any

import httpx

from holdfast._errors import (
    AttemptTimedOut,
    ConnectTimedOut,
    DeadlineExceeded,
    HeldBack,
    HoldfastError,
    LimitReached,
)
from holdfast.calls.adapters.rules import twin_of
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


_TWINS: tuple[tuple[type[HoldfastError], type[HoldfastError]], ...] = (
    (AttemptTimedOut, HttpxAttemptTimedOut),
    (ConnectTimedOut, HttpxConnectTimedOut),
    (DeadlineExceeded, HttpxDeadlineExceeded),
    (HeldBack, HttpxHeldBack),
    (LimitReached, HttpxLimitReached),
    (NoEndpoint, HttpxNoEndpoint),
)
_QUEUED = ((ConnectTimedOut, HttpxPoolTimedOut), *_TWINS)


def as_httpx(error: HoldfastError, *, queued: bool = False) -> HoldfastError:
    """The same error, which is also one of httpx; as it is if it is that already, or has no counterpart there.

    `queued`: it happened while it waited for a connection of the pool.
    """
    if isinstance(error, httpx.HTTPError):
        return error
    return twin_of(error, _QUEUED if queued else _TWINS) or error


SHORTEST = 0.001
"""Seconds; a timeout of 0 would mean not to wait at all, which sockets answer with another error."""
POOL_SHARE = 0.9
"""Of an attempt's time, to wait for a connection of the pool: a little less than all of it, so that it is the pool
that says so. It proves that nothing was sent; a cancellation would not."""
DEFAULT = httpx.Timeout(5.0).as_dict()
"""What a client has that was not told otherwise: https://www.python-httpx.org/advanced/timeouts/. Nobody chose it, and
it would cut off whatever the dependency gives more time."""

# https://www.encode.io/httpcore/extensions/#trace, without the name of the module in front.
_OPENING = frozenset({"connect_tcp.started", "connect_unix_socket.started", "start_tls.started"})
_READY = "send_request_headers.started"
_AT_WORK = frozenset(
    {_READY, "send_request_body.started", "receive_response_headers.started", "receive_response_body.started"}
)


class Progress:
    """Follows one attempt: tells it when a connection is set up, and keeps httpx's timeouts within its time.

    httpcore reads the timeouts anew before each step, out of the mapping that is changed here. With `is_cut_off`,
    somebody else ends the attempt in time, and reading and writing keep the timeouts of the client.

    Waiting for a connection of the pool may take as long as an attempt; the attempt's time begins when there is one.
    """

    __slots__ = (
        "_asked",
        "_attempt",
        "_began",
        "_half_open",
        "_is_cut_off",
        "_is_default",
        "has_begun",
        "is_whole_call",
        "timeouts",
    )

    def __init__(self, attempt: Attempt, asked: Mapping[str, float | None], *, is_cut_off: bool = False) -> None:
        self._asked = asked
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
        attempt = self._attempt
        if not self.is_whole_call:
            return attempt.timeout
        left: float = attempt.limit - attempt.core.runtime.monotonic()
        return max(0.0, left)

    def saw(self, name: str, about: MutableMapping[str, Any]) -> None:
        """Take notice of a step, such as `connection.connect_tcp.started`."""
        step = name.partition(".")[2]
        attempt = self._attempt
        if step in _OPENING:
            attempt.connect_began()
            # What httpcore tells is what it is about to call with: so TCP and TLS together keep within the time.
            about["timeout"] = _sooner(about.get("timeout"), attempt.timeout)
        elif step in _AT_WORK:
            if step == _READY:
                self.has_begun = True
                attempt.ready(self._began)
            for way in ("read", "write"):
                left = self.left
                self.timeouts[way] = self._asked_for(way, left) if self._is_cut_off else self._within(way, left)

    async def saw_async(self, name: str, about: MutableMapping[str, Any]) -> None:
        """The same in an event loop, where a set-up may be cancelled: httpcore then leaves the socket open."""
        self.saw(name, about)
        step = name.partition(".")[2]
        if step == "connect_tcp.complete":
            self._half_open = about["return_value"]
        elif step == "start_tls.failed" and self._half_open is not None:
            await self._half_open.aclose()

    def check(self) -> None:
        """Raise if the time is over."""
        if self.left <= 0:
            raise self.late()

    def late(self) -> HoldfastError:
        """What to raise when the time is over."""
        attempt = self._attempt
        what = attempt.core.name
        if self.is_whole_call:
            return as_httpx(DeadlineExceeded(f"{what}: cut off, because the deadline has passed during the answer"))
        if attempt.expires >= attempt.limit:
            what = f"{what}: cut off, because the deadline has passed during attempt {attempt.number}"
            return as_httpx(DeadlineExceeded(what))
        what = f"{what}: attempt {attempt.number} was cut off after {attempt.core.timeout:.3f} s"
        return as_httpx(AttemptTimedOut(what))

    def understood(self, error: httpx.TimeoutException) -> Exception:
        """What to raise in place of a timeout of httpx: the error itself if it was the client's own, and not ours."""
        if isinstance(error, HoldfastError):
            return error
        name = self._attempt.core.name
        if isinstance(error, httpx.PoolTimeout):
            waited = self.timeouts["pool"]
            if waited is None or waited == self._asked.get("pool"):
                return error
            return as_httpx(ConnectTimedOut(f"{name}: no connection was free in {waited:.3f} s"), queued=True)
        if self.left > SHORTEST:
            return error
        if isinstance(error, httpx.ConnectTimeout) and self._attempt.expires < self._attempt.limit:
            return as_httpx(ConnectTimedOut(f"{name}: no connection in {self._attempt.core.connects.value:.3f} s"))
        return self.late()

    @property
    def is_queued(self) -> bool:
        """Whether the attempt was ended while it waited for a connection of the pool."""
        return self._attempt.queued

    def is_unsent(self) -> None:
        """The attempt was ended while it waited for a connection: it never had one, which proves that nothing was sent.

        Only for transports that tell their steps; of others nothing is known.
        """
        attempt = self._attempt
        if not self.has_begun and attempt.connecting_since is None:
            attempt.queued = True
            attempt.setup = attempt.core.runtime.monotonic() - self._began

    def _asked_for(self, way: str, left: float) -> float | None:
        """The client's own timeout; none if it is only the default, and there is another bound."""
        return None if self._is_default and left < math.inf else self._asked.get(way)

    def _within(self, way: str, left: float) -> float | None:
        return _sooner(self._asked_for(way, left), left)


def _sooner(asked: float | None, left: float) -> float | None:
    if left == math.inf:
        return asked
    return max(SHORTEST, left if asked is None else min(asked, left))
