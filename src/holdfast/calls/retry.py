"""When a call is retried: the policy, the budget, Retry-After, and the rule that combines them. Pure.

`limits.py` has the token bucket. Without successes it is empty after `capacity / cost` retries; calls that succeed fill
it again. Unlike a circuit breaker it has no modes: it never holds back a first attempt.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast._backoff import Backoff, Chance
from holdfast._errors import InvalidValue
from holdfast.calls.classify import Failure, FailureKind


class RetryAfterScope(StrEnum):
    """The attempts to a dependency that Retry-After delays."""

    RETRIES = "retries"
    """All retries, but not first attempts: one overloaded host behind a balancer must not stop calls to the others."""
    ALL = "all"
    """First attempts as well: for services that limit the client as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAfter:
    """The policy for Retry-After headers."""

    cap: float = 20.0
    """Maximum seconds. Longer values are cut: a wrong one must not stop the service for an hour."""
    scope: RetryAfterScope = RetryAfterScope.RETRIES
    spread: float = 0.25
    """Fraction of the wait that is randomly added at most, so that callers do not retry at the same time."""

    def __post_init__(self) -> None:
        if not 0 <= self.cap < math.inf or not 0 <= self.spread < math.inf:
            raise InvalidValue(f"retry_after cap {self.cap} and spread {self.spread}: expected 0 or more")
        object.__setattr__(self, "scope", RetryAfterScope(self.scope))


class RetryAfterState:
    """The time until which Retry-After delays attempts. Not locked: if threads race, the earlier time may remain."""

    __slots__ = ("policy", "seconds", "until")

    def __init__(self, policy: RetryAfter) -> None:
        self.policy = policy
        self.until = -math.inf
        self.seconds = 0.0

    def record(self, seconds: float, now: float) -> None:
        """Record a Retry-After received `now`. It has no effect if it ends before the recorded one."""
        seconds = min(seconds, self.policy.cap)
        if now + seconds > self.until:
            self.until = now + seconds
            self.seconds = seconds

    def delay(self, now: float, chance: Callable[[], float]) -> float:
        """Return the seconds to wait before an attempt at `now`; 0 if no Retry-After is in effect."""
        if self.until <= now:
            return 0.0
        return self.until - now + chance() * self.policy.spread * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """The token bucket that pays for retries.

    The capacity is that of botocore's `standard` mode. There a retry costs 5, or 10 after a timeout. The costs here are
    those of a mode that botocore contains but has not released: a third of the retries, so that an overloaded service
    recovers sooner.
    """

    capacity: float = 500.0
    """Tokens of a full bucket: 35 retries without any success. 0 leaves only `min_retry_rate`."""
    cost: float = 14.0
    """Tokens for a retry, returned if it succeeds."""
    throttle_cost: float = 5.0
    """Tokens for a retry after throttling: fewer, because a throttling server is alive, and the delay is longer."""
    first_attempt_tokens: float = 1.0
    """Tokens added by a call that succeeds at its first attempt, or at a retry that took none (`min_retry_rate`)."""
    min_retry_rate: float = 0.5
    """Retries per second that are sent although no tokens are left; at most one for 24 calls that fail."""

    def __post_init__(self) -> None:
        for name in ("capacity", "cost", "throttle_cost", "first_attempt_tokens", "min_retry_rate"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidValue(f"budget {name} {getattr(self, name)}: expected 0 or more")


class RetryTokens(Protocol):
    """A source of tokens for retries, such as `TokenBucket`."""

    @property
    def budget(self) -> RetryBudget:
        """The options of the bucket."""

    def take(self, cost: float, now: float) -> float | None:
        """Take tokens for one retry at monotonic time `now`. Return the tokens taken, or None to refuse the retry."""


# Module-level names, because reading a member of an enumeration takes 65 ns in CPython 3.11.
_PERMANENT, _UNSENT, _THROTTLED = FailureKind.PERMANENT, FailureKind.UNSENT, FailureKind.THROTTLED


class RetryOwner(StrEnum):
    """The layer of a stack of services that retries. Only one should, because attempts of several layers multiply."""

    OUTERMOST = "outermost"
    """This layer, unless an outer layer retries already."""
    HERE = "here"
    """This layer, even if an outer one retries, because it retries far more cheaply. Set outer layers to `BELOW`."""
    BELOW = "below"
    """An inner layer. This layer makes one attempt."""


class GiveUpReason(StrEnum):
    """The reason why no further attempt follows."""

    PERMANENT = "permanent"
    NOT_IDEMPOTENT = "not_idempotent"
    NOT_OWNER = "not_owner"
    MAX_ATTEMPTS = "max_attempts"
    DEADLINE = "deadline"
    BUDGET = "budget"
    LIMIT = "limit"
    RETRY_AFTER = "retry_after"


REASON_TEXT = {
    GiveUpReason.PERMANENT: "the same request would fail again",
    GiveUpReason.NOT_IDEMPOTENT: "the server may have carried it out, and it is not idempotent",
    GiveUpReason.NOT_OWNER: "another layer retries",
    GiveUpReason.MAX_ATTEMPTS: "max_attempts is reached",
    GiveUpReason.DEADLINE: "no time is left before the deadline",
    GiveUpReason.BUDGET: "the retry budget is exhausted",
    GiveUpReason.LIMIT: "the limit of attempts in flight is reached",
    GiveUpReason.RETRY_AFTER: "Retry-After ends past the deadline",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy for retries: which failures, how many, and how soon."""

    max_attempts: int = 3
    """Maximum attempts, including the first. 1 disables retries."""
    backoff: Backoff = Backoff()  # noqa: RUF009 - frozen
    throttled_backoff: Backoff = Backoff(base=1.0)  # noqa: RUF009
    """Delays after throttling. botocore begins with a second after every failure."""
    owner: RetryOwner = RetryOwner.OUTERMOST
    eventually_consistent: frozenset[int | str] = frozenset()
    """HTTP statuses and error codes that mean that a recent change is not visible yet, such as 404 after a create."""
    classify: Callable[[Exception], Failure | None] | None = None
    """Classifies an exception. If it returns None, the built-in rules apply."""
    classify_result: Callable[[Any], Failure | None] | None = None
    """Classifies a result, for functions that return failures instead of raising. None means success."""

    def __post_init__(self) -> None:
        attempts: object = self.max_attempts
        if type(attempts) is not int or attempts < 1:
            raise InvalidValue(f"retry max_attempts {attempts!r}: expected a whole number, at least 1")
        codes: object = self.eventually_consistent
        if not isinstance(codes, frozenset | set) or not all(map(_is_status_or_code, codes)):
            raise InvalidValue(
                f"eventually_consistent is {codes!r}: expected a set of statuses, such as 404, and codes"
            )
        object.__setattr__(self, "owner", RetryOwner(self.owner))


def _is_status_or_code(value: object) -> bool:
    """Return whether `value` is a status as a number or an error code as text. A status as text would never match."""
    return isinstance(value, int) or (isinstance(value, str) and not value.isdecimal())


class NextAttempt(msgspec.Struct, frozen=True, gc=False):
    """The decision to retry after `delay` seconds."""

    delay: float
    cost: float
    """Tokens taken for the retry."""


class GiveUp(msgspec.Struct, frozen=True):
    """The decision not to retry."""

    reason: GiveUpReason


def decide(
    retry: Retry,
    failure: Failure,
    *,
    number: int,
    idempotent: bool,
    has_other_owner: bool,
    now: float,
    expires: float,
    previous: float,
    bucket: RetryTokens,
    retry_after: RetryAfterState,
    chance: Chance,
) -> NextAttempt | GiveUp:
    """Decide what follows the failure of attempt `number`. Take tokens last: only for retries that will be sent."""
    kind = failure.kind
    if kind is _PERMANENT:
        return GiveUp(GiveUpReason.PERMANENT)
    if failure.retry_after is not None:
        retry_after.record(failure.retry_after, now)
    if kind is not _UNSENT and not idempotent:
        return GiveUp(GiveUpReason.NOT_IDEMPOTENT)
    if retry.max_attempts > 1 and has_other_owner:
        return GiveUp(GiveUpReason.NOT_OWNER)
    if number >= retry.max_attempts:
        return GiveUp(GiveUpReason.MAX_ATTEMPTS)
    backoff = retry.throttled_backoff if kind is _THROTTLED else retry.backoff
    delay = backoff.delay(number, previous, chance)
    if retry_after.until > now:
        delay = max(delay, retry_after.delay(now, chance))
    if now + delay >= expires:
        return GiveUp(GiveUpReason.DEADLINE)
    cost = bucket.budget.throttle_cost if kind is _THROTTLED else bucket.budget.cost
    paid = bucket.take(cost, now)
    return GiveUp(GiveUpReason.BUDGET) if paid is None else NextAttempt(delay, paid)
