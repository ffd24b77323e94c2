"""How many retries a dependency is sent: as many as its successes pay for, then a few at a fixed rate.

This is also what stops retries when the dependency is unhealthy: without successes the bucket runs dry within
`capacity / cost` retries, and fills again with the successes of ordinary calls. There is no mode to fall into or to
come back from, as a circuit breaker has: first attempts always go out. Pure. `bucket.py` keeps the tokens.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from holdfast._errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
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


class Tokens(Protocol):
    """Tokens to pay for retries with; `Bucket` has them."""

    @property
    def budget(self) -> Budget:
        """The sizes."""

    def take(self, cost: float, now: float) -> float | None:
        """Pay for one retry, at a monotonic time; what was paid. None: there is nothing left to pay with."""
