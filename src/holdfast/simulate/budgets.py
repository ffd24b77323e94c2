"""Retry budgets of others, to compare with: paid for by requests, or closed by failures. Not for production."""

from holdfast.calls.limits import TokenBucket
from holdfast.calls.retry import RetryBudget


class ObservingBucket(TokenBucket):
    """A bucket that is told more than the engine tells: that a call begins, and that an attempt has failed."""

    __slots__ = ()

    def on_call_begin(self, now: float) -> None:
        """A call begins."""

    def on_attempt_failed(self) -> None:
        """An attempt has failed."""


class RequestBucket(ObservingBucket):
    """Retries are a share of requests, whether these succeed or not, and a few per second besides.

    Finagle's has 20 % and 10 per second, kept for 10 seconds: https://finagle.github.io/blog/2016/02/08/retry-budgets
    """

    __slots__ = ("_at", "_per_second", "_share")

    def __init__(self, share: float, *, per_second: float = 0.0, kept: float = 10.0) -> None:
        # What is not used is kept for some seconds; of the share, for as much as a hundred requests bring in.
        capacity = max(1.0, per_second * kept + share * 100)
        super().__init__(RetryBudget(capacity=capacity, cost=1.0, throttle_cost=1.0, refund=0.0, trickle=0.0))
        self._share = share
        self._per_second = per_second
        self._at = 0.0
        self.tokens = per_second * kept

    def on_call_begin(self, now: float) -> None:
        self.tokens += self._share + (now - self._at) * self._per_second
        self.tokens = min(self.budget.capacity, self.tokens)
        self._at = now

    def give(self, tokens: float) -> None:
        """Successes pay for nothing."""


class FailureBucket(ObservingBucket):
    """Every failure takes a token, every success gives some back; there are retries while it is more than half full.

    gRPC's: https://github.com/grpc/proposal/blob/master/A6-client-retries.md#throttling-retry-attempts-and-hedged-rpcs
    """

    __slots__ = ("_ratio",)

    def __init__(self, capacity: float = 10.0, ratio: float = 0.1) -> None:
        super().__init__(RetryBudget(capacity=capacity, cost=0.0, throttle_cost=0.0, refund=ratio, trickle=0.0))
        self._ratio = ratio

    def on_attempt_failed(self) -> None:
        self.tokens = max(0.0, self.tokens - 1)

    def take(self, cost: float, now: float) -> float | None:  # noqa: ARG002 - the bucket's own signature
        self.is_exhausted = self.tokens <= self.budget.capacity / 2
        return None if self.is_exhausted else 0.0

    def give(self, tokens: float) -> None:  # noqa: ARG002
        self.tokens = min(self.budget.capacity, self.tokens + self._ratio)
