"""The events of calls, as frozen values for sinks. Pure."""

from dataclasses import dataclass

from holdfast._types import Operation, Zone
from holdfast.calls.classify import FailureKind
from holdfast.calls.retry import GiveUpReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt has ended."""

    operation: Operation
    """Its `service` is the name of the dependency."""
    at: float
    """When it ended, in seconds since the epoch."""
    number: int
    seconds: float
    failure: FailureKind | None = None
    """None if it succeeded."""
    status: int | None = None
    code: str | None = None
    error: str | None = None
    """Class name of the exception."""
    zone: Zone | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """Another attempt follows after a delay."""

    operation: Operation
    at: float
    number: int
    """Number of the attempt that follows."""
    delay: float
    failure: FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """The call has failed: no further attempt follows."""

    operation: Operation
    at: float
    attempts: int
    """Attempts made; 0 if the call was refused before the first."""
    reason: GiveUpReason
    seconds: float
    """Duration of the whole call."""
    failure: FailureKind | None = None
    """Why the last attempt failed; None if there was no attempt."""
    retry_owner: str | None = None
    """The layer that retries instead, if the reason is `not_owner`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExhausted:
    """The retry budget of a dependency is used up. Until calls succeed, retries are limited to `min_retry_rate`."""

    dependency: str
    at: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutChanged:
    """A timeout that follows the latency has changed by more than a tenth."""

    dependency: str
    at: float
    timeout: str
    """`attempt` or `connect`."""
    before: float
    after: float
    samples: float


CallEvent = AttemptEnded | Retrying | GaveUp | BudgetExhausted | TimeoutChanged
"""All events of a dependency, for its sink."""
