"""What happens to calls, one frozen value for each thing, for sinks. Pure."""

from dataclasses import dataclass

from holdfast._types import Operation, Zone
from holdfast.calls.classify import FailureKind
from holdfast.calls.retry import GiveUpReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt has ended."""

    operation: Operation
    """The dependency is its service."""
    at: float
    """When it ended, in seconds since the epoch."""
    number: int
    seconds: float
    failure: FailureKind | None = None
    """None: it succeeded."""
    status: int | None = None
    code: str | None = None
    error: str | None = None
    """The name of the exception's class."""
    zone: Zone | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A further attempt follows after a delay."""

    operation: Operation
    at: float
    number: int
    """Of the attempt that follows."""
    delay: float
    failure: FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """No further attempt follows, and the caller gets the failure."""

    operation: Operation
    at: float
    attempts: int
    """Attempts that were made; 0: refused before the first."""
    reason: GiveUpReason
    seconds: float
    """From the beginning of the call."""
    failure: FailureKind | None = None
    retry_owner: str | None = None
    """Who retries instead, if the reason is `not_owner`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExhausted:
    """The budget of a dependency is used up: from now on only the trickle is retried, until calls succeed again."""

    dependency: str
    at: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutChanged:
    """A timeout that follows the latency has moved by more than a tenth."""

    dependency: str
    at: float
    timeout: str
    """`attempt` or `connect`."""
    before: float
    after: float
    samples: float


CallEvent = AttemptEnded | Retrying | GaveUp | BudgetExhausted | TimeoutChanged
