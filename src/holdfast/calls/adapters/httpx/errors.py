"""Holdfast's refusals and timeouts as httpx knows errors: `except httpx.HTTPError` goes on catching everything."""

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
from holdfast.calls.endpoints import NoEndpoint


class HttpxAttemptTimedOut(AttemptTimedOut, httpx.ReadTimeout):
    """One attempt took longer than it may; the server may have done the work all the same."""

    _request = None  # set by httpx, which does not get to see these errors being made


class HttpxConnectTimedOut(ConnectTimedOut, httpx.ConnectTimeout):
    """No connection came about in time; nothing was sent."""

    _request = None


class HttpxPoolTimedOut(ConnectTimedOut, httpx.PoolTimeout):
    """No connection of the pool was free in time; nothing was sent."""

    _request = None


class HttpxDeadlineExceeded(DeadlineExceeded, httpx.ReadTimeout):
    """The time for the whole of it is over."""

    _request = None


class HttpxHeldBack(HeldBack, httpx.TransportError):
    """The server asked every caller to wait, and longer than there is time."""

    _request = None


class HttpxLimitReached(LimitReached, httpx.TransportError):
    """As many calls to the dependency as may be are under way."""

    _request = None


class HttpxNoEndpoint(NoEndpoint, httpx.ConnectError):
    """Every zone that has endpoints is out."""

    _request = None


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
