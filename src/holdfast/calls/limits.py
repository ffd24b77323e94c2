"""Limits on what one process sends to a dependency: attempts in flight, and tokens for retries.

By Little's law, R requests per second that take W seconds each are R x W in flight. A dependency that hangs raises W,
until no thread, task or connection is left for other work. A limit prevents that: it refuses more attempts immediately.
"""

import math
import threading
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast.calls.retry import RetryBudget


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum number of concurrent attempts."""

    max_in_flight: int

    def __post_init__(self) -> None:
        if self.max_in_flight < 1:
            raise InvalidValue(f"limit of {self.max_in_flight} concurrent attempts: expected at least 1")

    @classmethod
    def for_load(cls, *, rate: float, seconds: float, headroom: float = 2.0) -> "Limit":
        """Return the limit for `rate` calls per second that take `seconds` each, times `headroom` for bursts."""
        if not (0 < rate < math.inf and 0 < seconds < math.inf and 1 <= headroom < math.inf):
            raise InvalidValue(
                f"rate {rate} of {seconds} seconds, headroom {headroom}: expected more than 0, and headroom at least 1"
            )
        return cls(math.ceil(rate * seconds * headroom))


class InFlightCounter:
    """The number of attempts in flight. Thread-safe; a forked child starts at 0."""

    __slots__ = ("__weakref__", "_lock", "count", "max_count")

    def __init__(self, limit: Limit | None) -> None:
        self.max_count = math.inf if limit is None else limit.max_in_flight
        self.reset_after_fork()
        register_after_fork(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def enter(self) -> bool:
        """Add one attempt. Return False, and add none, if the limit is reached."""
        with self._lock:
            if self.count >= self.max_count:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Remove one attempt."""
        with self._lock:
            self.count = max(0, self.count - 1)  # an attempt that began before a fork also ends in the child


UNPAID_PER_FREE_RETRY = 25
"""Of this many retries for which there are no tokens, at most one is sent, and the others are refused: otherwise a
large fleet, or one with few calls, would send many. When such a free retry fails, its call asks for another retry,
which counts as the first of the next 25. So there is one free retry for 24 calls that fail: 25 / 24 = 1.042 requests
for each call."""


class TokenBucket:
    """The retry tokens of one dependency. Thread-safe; a forked child starts with a copy of its parent's."""

    __slots__ = ("__weakref__", "_lock", "_next_free_retry", "_unpaid", "budget", "is_exhausted", "tokens")

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        self.reset_after_fork()
        self.fill()
        register_after_fork(self)

    def fill(self) -> None:
        """Reset to a full bucket."""
        with self._lock:
            self.tokens = self.budget.capacity
            self.is_exhausted = False
            """Whether the last request for tokens was refused."""
            self._next_free_retry = -math.inf
            self._unpaid = 0

    def reset_after_fork(self) -> None:
        """Replace the lock, in a forked child: the thread that held it does not exist there."""
        self._lock = threading.Lock()

    def take(self, cost: float, now: float) -> float | None:
        """Take tokens for a retry. Return the tokens taken, 0 for one within `min_retry_rate`, or None to refuse it."""
        with self._lock:
            if self.tokens >= cost:
                self.tokens -= cost
                self.is_exhausted = False
                return cost
            self._unpaid += 1
            min_rate = self.budget.min_retry_rate
            if self._unpaid >= UNPAID_PER_FREE_RETRY and min_rate > 0 and now >= self._next_free_retry:
                self._unpaid = 0
                self._next_free_retry = now + 1 / min_rate
                return 0.0
            self.is_exhausted = True
            return None

    def give(self, tokens: float) -> None:
        """Add tokens after a success, up to the capacity."""
        with self._lock:
            tokens += self.tokens
            self.tokens = tokens if tokens < self.budget.capacity else self.budget.capacity  # noqa: FURB136 - faster
