"""How much one process sends to a dependency: calls under way at once, and tokens that pay for retries.

By Little's law, R requests per second of W seconds each are R x W under way. A dependency that hangs raises W, until no
thread, task or connection is left for anything else. A limit contains that: it refuses further calls at once.
"""

import math
import threading
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast.calls.retry import RetryBudget


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many attempts at once."""

    max_in_flight: int

    def __post_init__(self) -> None:
        if self.max_in_flight < 1:
            raise InvalidValue(f"limit of {self.max_in_flight} calls at once: expected at least 1")

    @classmethod
    def for_load(cls, *, rate: float, seconds: float, headroom: float = 2.0) -> "Limit":
        """The limit for `rate` calls per second that take `seconds` each, times `headroom` for bursts."""
        if not (0 < rate < math.inf and 0 < seconds < math.inf and 1 <= headroom < math.inf):
            raise InvalidValue(
                f"rate {rate} of {seconds} seconds, headroom {headroom}: expected more than 0, and headroom at least 1"
            )
        return cls(math.ceil(rate * seconds * headroom))


class InFlightCounter:
    """Counts the attempts that are under way. Thread-safe; a forked child has none."""

    __slots__ = ("__weakref__", "_lock", "count", "max_count")

    def __init__(self, limit: Limit | None) -> None:
        self.max_count = math.inf if limit is None else limit.max_in_flight
        self.reset_after_fork()
        register_after_fork(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def enter(self) -> bool:
        """Count one more. False: there are as many as may be."""
        with self._lock:
            if self.count >= self.max_count:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Count one less."""
        with self._lock:
            self.count = max(0, self.count - 1)  # a call that began before a fork ends in the child as well


TRICKLE_SHARE = 10
"""Of this many retries that the tokens do not pay for, at most one goes out: a large fleet would else trickle a lot."""


class TokenBucket:
    """The tokens of one dependency. Thread-safe; a forked child begins with what its parent had."""

    __slots__ = ("__weakref__", "_lock", "_next_trickle", "_refused", "budget", "is_exhausted", "tokens")

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        self.reset_after_fork()
        self.fill()
        register_after_fork(self)

    def fill(self) -> None:
        """Be as at the start."""
        with self._lock:
            self.tokens = self.budget.capacity
            self.is_exhausted = False
            """Whether the last retry that was asked for was refused."""
            self._next_trickle = -math.inf
            self._refused = 0

    def reset_after_fork(self) -> None:
        """Have a lock that nobody holds: in a forked child the thread that held it does not exist."""
        self._lock = threading.Lock()

    def take(self, cost: float, now: float) -> float | None:
        """Pay for one retry; what was paid, nothing for one of the trickle. None: it must not be sent."""
        with self._lock:
            if self.tokens >= cost:
                self.tokens -= cost
                self.is_exhausted = False
                return cost
            self._refused += 1
            if self._refused >= TRICKLE_SHARE and self.budget.trickle > 0 and now >= self._next_trickle:
                self._refused = 0
                self._next_trickle = now + 1 / self.budget.trickle
                return 0.0
            self.is_exhausted = True
            return None

    def give(self, tokens: float) -> None:
        """Put tokens in, after a success; a full bucket stays full."""
        with self._lock:
            tokens += self.tokens
            self.tokens = tokens if tokens < self.budget.capacity else self.budget.capacity  # noqa: FURB136 - quicker
