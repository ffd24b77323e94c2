"""The tokens that a dependency's retries are paid with, and who may take them."""

import math
import threading

from holdfast._forks import renew_after_fork
from holdfast.calls.budget import Budget

TRICKLE_SHARE = 10
"""Of so many retries that the tokens do not pay for at most one goes out: a fleet of processes that make few calls each
would else trickle as much as it sends."""


class Bucket:
    """The tokens of one dependency. Thread-safe; a forked child begins with what its parent had."""

    __slots__ = ("__weakref__", "_lock", "_next_trickle", "_refused", "budget", "exhausted", "tokens")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tokens = budget.capacity
        self.exhausted = False
        """Whether the last retry that was asked for was refused."""
        self._next_trickle = -math.inf
        self._refused = 0
        self.renew()
        renew_after_fork(self)

    def fill(self) -> None:
        """Be as at the start."""
        with self._lock:
            self.tokens = self.budget.capacity
            self.exhausted = False
            self._next_trickle = -math.inf
            self._refused = 0

    def renew(self) -> None:
        """Have a lock that nobody holds: in a forked child the thread that held it does not exist."""
        self._lock = threading.Lock()

    def take(self, cost: float, now: float) -> float | None:
        """Pay for one retry; what was paid, nothing for one of the trickle. None: it must not be sent."""
        with self._lock:
            if self.tokens >= cost:
                self.tokens -= cost
                self.exhausted = False
                return cost
            self._refused += 1
            if self._refused >= TRICKLE_SHARE and self.budget.trickle > 0 and now >= self._next_trickle:
                self._refused = 0
                self._next_trickle = now + 1 / self.budget.trickle
                return 0.0
            self.exhausted = True
            return None

    def give(self, tokens: float) -> None:
        """Put tokens in, after a success; a full bucket stays full."""
        with self._lock:
            tokens += self.tokens
            self.tokens = tokens if tokens < self.budget.capacity else self.budget.capacity  # noqa: FURB136 - quicker
