"""Retry budgets of other libraries, for comparison: Finagle's and gRPC's. Not for production."""

from holdfast.calls.limits import TokenBucket
from holdfast.calls.retry import RetryBudget


class ObservingBucket(TokenBucket):
    """A bucket that also needs to know of new calls and failed attempts, which the engine does not report."""

    __slots__ = ()

    def on_call_begin(self, now: float) -> None:
        """Handle the beginning of a call."""

    def on_attempt_failed(self) -> None:
        """Handle the failure of an attempt."""


class RequestBucket(ObservingBucket):
    """A budget of a share of requests, successful or not, plus some retries per second.

    Finagle's has 20 % and 10 per second, kept for 10 seconds: https://finagle.github.io/blog/2016/02/08/retry-budgets
    """

    __slots__ = ("_at", "_per_second", "_share")

    def __init__(self, share: float, *, per_second: float = 0.0, kept: float = 10.0) -> None:
        # Unused tokens are kept: those per second for `kept` seconds, those of the share for a hundred requests.
        capacity = max(1.0, per_second * kept + share * 100)
        super().__init__(
            RetryBudget(capacity=capacity, cost=1.0, throttle_cost=1.0, first_attempt_tokens=0.0, min_retry_rate=0.0)
        )
        self._share = share
        self._per_second = per_second
        self._at = 0.0
        self.tokens = per_second * kept

    def on_call_begin(self, now: float) -> None:
        self.tokens += self._share + (now - self._at) * self._per_second
        self.tokens = min(self.budget.capacity, self.tokens)
        self._at = now

    def give(self, tokens: float) -> None:
        """Do nothing: successes return no tokens."""


class FailureBucket(ObservingBucket):
    """A budget from which failures take a token and to which successes return some. Retries need it over half full.

    gRPC's: https://github.com/grpc/proposal/blob/master/A6-client-retries.md#throttling-retry-attempts-and-hedged-rpcs
    """

    __slots__ = ("_ratio",)

    def __init__(self, capacity: float = 10.0, ratio: float = 0.1) -> None:
        super().__init__(
            RetryBudget(capacity=capacity, cost=0.0, throttle_cost=0.0, first_attempt_tokens=ratio, min_retry_rate=0.0)
        )
        self._ratio = ratio

    def on_attempt_failed(self) -> None:
        self.tokens = max(0.0, self.tokens - 1)

    def take(self, cost: float, now: float) -> float | None:  # noqa: ARG002 - the signature of TokenBucket
        self.is_exhausted = self.tokens <= self.budget.capacity / 2
        return None if self.is_exhausted else 0.0

    def give(self, tokens: float) -> None:  # noqa: ARG002
        self.tokens = min(self.budget.capacity, self.tokens + self._ratio)
