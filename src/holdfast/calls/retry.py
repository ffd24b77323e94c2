"""When a call is repeated: the policy, the budget, the server's hints, and the rule that follows them. Pure.

`limits.py` keeps the tokens. Without successes a bucket runs dry within `capacity / cost` retries, and it fills again
with those of ordinary calls. Unlike a circuit breaker it has no modes: first attempts always go out.
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
    """Whom a server's hint holds back, of those that call the same dependency."""

    RETRIES = "retries"
    """Every caller's retries. One overloaded host behind a balancer does not stop the calls to the others."""
    ALL = "all"
    """First attempts as well: for services that limit the client as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAfter:
    """How far a server is believed that says when to come back."""

    cap: float = 20.0
    """Seconds; a longer hint is cut: a wrong one must not stop the service for an hour."""
    scope: RetryAfterScope = RetryAfterScope.RETRIES
    spread: float = 0.25
    """Share of a hint that is added by chance, so that those who waited together do not come back together."""

    def __post_init__(self) -> None:
        if not 0 <= self.cap < math.inf or not 0 <= self.spread < math.inf:
            raise InvalidValue(f"retry_after cap {self.cap} and spread {self.spread}: expected 0 or more")
        object.__setattr__(self, "scope", RetryAfterScope(self.scope))


class RetryAfterState:
    """Until when a dependency wants to be left alone. Threads may race on it: the later hint stays, or nearly so."""

    __slots__ = ("policy", "seconds", "until")

    def __init__(self, policy: RetryAfter) -> None:
        self.policy = policy
        self.until = -math.inf
        self.seconds = 0.0

    def record(self, seconds: float, now: float) -> None:
        """Take a hint; one that ends before another that holds changes nothing."""
        seconds = min(seconds, self.policy.cap)
        if now + seconds > self.until:
            self.until = now + seconds
            self.seconds = seconds

    def delay(self, now: float, chance: Callable[[], float]) -> float:
        """Seconds to wait before an attempt at `now`; 0 when nothing holds."""
        if self.until <= now:
            return 0.0
        return self.until - now + chance() * self.policy.spread * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """The sizes of a bucket of tokens; the default has botocore's."""

    capacity: float = 500.0
    """Tokens of a full bucket: 35 retries in a row before a single success. 0: only the trickle."""
    cost: float = 14.0
    """Tokens that a retry takes; a retry that succeeds gives them back."""
    throttle_cost: float = 5.0
    """Tokens that a retry takes after the server said that it is too much: it lives, and the delay is longer."""
    refund: float = 1.0
    """Tokens that a call gives that succeeds at its first attempt."""
    trickle: float = 0.5
    """Retries per second that go out when the tokens are gone, and at most one of ten that were asked for."""

    def __post_init__(self) -> None:
        for name in ("capacity", "cost", "throttle_cost", "refund", "trickle"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidValue(f"budget {name} {getattr(self, name)}: expected 0 or more")


class RetryTokens(Protocol):
    """Tokens to pay for retries with; `TokenBucket` has them."""

    @property
    def budget(self) -> RetryBudget:
        """The sizes."""

    def take(self, cost: float, now: float) -> float | None:
        """Pay for one retry, at a monotonic time; what was paid. None: there is nothing left to pay with."""


# Looked up once: in CPython 3.11 each look at a member of an enumeration takes 65 ns.
_PERMANENT, _UNSENT, _THROTTLED = FailureKind.PERMANENT, FailureKind.UNSENT, FailureKind.THROTTLED


class RetryOwner(StrEnum):
    """Which layer of a stack of services retries; one only, because attempts of layers multiply."""

    OUTERMOST = "outermost"
    """This one, unless a layer above it does already."""
    HERE = "here"
    """This one, whoever is above: it repeats far more cheaply. Those above must say `BELOW`, or attempts multiply."""
    BELOW = "below"
    """None here: leave it to the layers below, and make one attempt."""


class GiveUpReason(StrEnum):
    """Why there is no further attempt."""

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
    GiveUpReason.NOT_IDEMPOTENT: "it may have been carried out, and is not idempotent",
    GiveUpReason.NOT_OWNER: "the retries belong to another layer",
    GiveUpReason.MAX_ATTEMPTS: "no more attempts are allowed",
    GiveUpReason.DEADLINE: "there is no time left",
    GiveUpReason.BUDGET: "the retry budget is exhausted",
    GiveUpReason.LIMIT: "as many calls as may be are under way",
    GiveUpReason.RETRY_AFTER: "the server asked to wait longer than there is time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What is repeated, how often and how soon."""

    max_attempts: int = 3
    """At most so many, the first one included; 1: no retries."""
    backoff: Backoff = Backoff()  # noqa: RUF009 - frozen
    throttled_backoff: Backoff = Backoff(base=1.0)  # noqa: RUF009
    """The waits after the server said that it is too much; botocore's are the same."""
    owner: RetryOwner = RetryOwner.OUTERMOST
    eventual: frozenset[int | str] = frozenset()
    """HTTP statuses and error codes that may turn into success when a change has spread, such as 404 after a create."""
    classify: Callable[[Exception], Failure | None] | None = None
    """Your own judgement of an exception; None from it leaves it to the built-in one."""
    classify_result: Callable[[Any], Failure | None] | None = None
    """Your judgement of a result: some functions return their failures. None: it is a success."""

    def __post_init__(self) -> None:
        attempts: object = self.max_attempts
        if type(attempts) is not int or attempts < 1:
            raise InvalidValue(f"retry max_attempts {attempts!r}: expected a whole number, at least 1, the first one")
        eventual: object = self.eventual
        if not isinstance(eventual, frozenset | set) or not all(map(_is_status_or_code, eventual)):
            raise InvalidValue(f"retry eventual {eventual!r}: expected a set of statuses, such as 404, and codes")
        object.__setattr__(self, "owner", RetryOwner(self.owner))


def _is_status_or_code(value: object) -> bool:
    """A status by number, or a service's own code: a status that is text would never be found."""
    return isinstance(value, int) or (isinstance(value, str) and not value.isdecimal())


class NextAttempt(msgspec.Struct, frozen=True, gc=False):
    """Repeat it after a delay."""

    delay: float
    cost: float
    """Tokens that were paid for it."""


class GiveUp(msgspec.Struct, frozen=True):
    """Do not repeat it."""

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
    """Decide what follows from the failure of attempt `number`. Take tokens last: only for what will be sent."""
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
