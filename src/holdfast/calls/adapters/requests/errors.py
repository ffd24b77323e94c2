"""Holdfast's refusals and timeouts as requests knows errors: `except requests.RequestException` catches everything."""

from requests import exceptions

from holdfast._errors import (
    AttemptTimedOut,
    DeadlineExceeded,
    HeldBack,
    HoldfastError,
    LimitReached,
)
from holdfast.calls.adapters.rules import twin_of
from holdfast.calls.endpoints import NoEndpoint


class RequestsAttemptTimedOut(AttemptTimedOut, exceptions.ReadTimeout):
    """One attempt took longer than it may; the server may have done the work all the same."""

    request = response = None  # set by requests, which does not get to see these errors being made


class RequestsDeadlineExceeded(DeadlineExceeded, exceptions.ReadTimeout):
    """The time for the whole of it is over."""

    request = response = None


class RequestsHeldBack(HeldBack, exceptions.RequestException):
    """The server asked every caller to wait, and longer than there is time."""

    request = response = None


class RequestsLimitReached(LimitReached, exceptions.RequestException):
    """As many calls to the dependency as may be are under way."""

    request = response = None


class RequestsNoEndpoint(NoEndpoint, exceptions.ConnectionError):
    """Every zone that has endpoints is out."""

    request = response = None


_TWINS: tuple[tuple[type[HoldfastError], type[HoldfastError]], ...] = (
    (AttemptTimedOut, RequestsAttemptTimedOut),
    (DeadlineExceeded, RequestsDeadlineExceeded),
    (HeldBack, RequestsHeldBack),
    (LimitReached, RequestsLimitReached),
    (NoEndpoint, RequestsNoEndpoint),
)


def as_requests(error: HoldfastError) -> HoldfastError:
    """The same error, which is also one of requests; as it is if it is that already, or has no counterpart there."""
    if isinstance(error, exceptions.RequestException):
        return error
    return twin_of(error, _TWINS) or error
