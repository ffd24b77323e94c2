"""Compare three rules that choose a timeout, when latencies grow. Pure.

The rules: a fixed timeout, one learned from successes alone, and `Percentile`. Latencies are lognormal, and grow by a
factor in the middle of the run. A request that timed out shows only that it takes longer. A rule that ignores timeouts
therefore underestimates the latency.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from holdfast._errors import InvalidValue
from holdfast.calls.histogram import Histogram
from holdfast.calls.timeout import LEARN_INTERVAL, MAX_SAMPLES, Estimator, Percentile
from holdfast.simulate.virtual import seeded_random

MAX_RATE = MAX_SAMPLES / LEARN_INTERVAL
"""Maximum requests per second for which a Dependency learns from every latency."""

FIXED, SUCCESSES, PERCENTILE = "fixed", "successes alone", "Percentile"
RULES = (FIXED, SUCCESSES, PERCENTILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyShift:
    """A dependency whose latency grows, and the percentile for its timeout."""

    percent: float = 99.9
    median: float = 0.02
    """Median latency in seconds, before the change."""
    sigma: float = 0.5
    """Standard deviation of the logarithm. The 99.9th percentile is 4.7 medians with 0.5, and 22 with 1."""
    factor: float = 6.0
    """Factor by which all latencies grow in the middle."""
    windows: int = 12
    """Number of windows of `Percentile.window` requests: 50,000 for p99.9. Rules use the last one or two windows."""
    rate: float = 200.0
    """Requests per second. Each rule updates its timeout every half second, from all latencies of that time."""
    seed: int = 1

    def __post_init__(self) -> None:
        policy = self.policy
        if not 0 < self.median < math.inf or not 0 < self.factor < math.inf:
            raise InvalidValue(f"median {self.median} and factor {self.factor}: expected more than 0")
        if not 0 < self.sigma <= 3:
            raise InvalidValue(f"sigma {self.sigma}: expected more than 0, and 3 at most")
        if not 2 <= self.windows <= 1000:
            raise InvalidValue(f"{self.windows} windows: expected 2 to 1000")
        if not 1 / LEARN_INTERVAL <= self.rate <= MAX_RATE:
            raise InvalidValue(
                f"rate {self.rate}: expected {1 / LEARN_INTERVAL:g} to {MAX_RATE:g} requests per second, "
                "so that every latency is used"
            )
        shortest, longest = sorted((self.ideal_timeout(0), self.ideal_timeout(self.windows)))
        if shortest < policy.floor or longest > policy.ceiling:
            raise InvalidValue(
                f"median {self.median}, sigma {self.sigma}, factor {self.factor}: the ideal timeouts would be "
                f"{shortest:.3g} to {longest:.3g} s; expected {policy.floor:g} to {policy.ceiling:g} s, "
                "the bounds of Percentile"
            )

    @property
    def policy(self) -> Percentile:
        """The options of `Percentile`, without `median_margin`, which would hide what it learns if sigma is small."""
        return Percentile(self.percent, median_margin=0.0)

    @property
    def first_slow_window(self) -> int:
        """Index of the first window with longer latencies."""
        return self.windows // 2

    def ideal_timeout(self, window: int) -> float:
        """Return the ideal timeout for a window in seconds: exactly the accepted share times out."""
        grown = self.factor if window >= self.first_slow_window else 1.0
        return self.median * grown * math.exp(self.sigma * NormalDist().inv_cdf(self.percent / 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The result of one rule, that is one way to choose the timeout, in one window."""

    false_timeouts: float
    """The share of requests that timed out. All of them would have succeeded."""
    timeout: float
    """Timeout at the end of the window, in seconds."""
    max_timeout: float
    """Longest timeout in the window, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """The results of three rules for the timeout in one window: fixed, from successes alone, and `Percentile`."""

    number: int
    ideal_timeout: float
    """The ideal timeout in seconds."""
    rules: dict[str, RuleResult]
    """The result of each rule by its name, for the same latencies."""


class SuccessesOnly:
    """A common but wrong rule, for comparison: the percentile of the successful requests, over the same windows."""

    def __init__(self, policy: Percentile) -> None:
        self.value = policy.start_timeout
        self._policy = policy
        self._histogram = Histogram()
        self._window_samples = 0

    def learn(self, samples: list[float]) -> float:
        """Learn from latencies, except timeouts, and return the new timeout."""
        self._histogram.add(seconds for seconds in samples if seconds < math.inf)
        self._window_samples += len(samples)
        if self._histogram.total >= self._policy.samples_needed:
            self.value = self._policy.clamp(self._histogram.exceeded_by(self._policy.accepted_false_timeouts))
            if self._window_samples >= self._policy.window:
                self._histogram.rotate()
                self._window_samples = 0
        return self.value


def compare(options: LatencyShift) -> Iterator[WindowResult]:
    """Yield the results of all rules, window by window."""
    policy = options.policy
    rules: dict[str, Estimator | SuccessesOnly] = {
        FIXED: Estimator(options.ideal_timeout(0)),
        SUCCESSES: SuccessesOnly(policy),
        PERCENTILE: Estimator(policy),
    }
    chance = seeded_random("timeout", options.seed)
    together = max(1, round(options.rate * LEARN_INTERVAL))
    for number in range(options.windows):
        right = options.ideal_timeout(number)
        middle = math.log(options.median * (options.factor if number >= options.first_slow_window else 1.0))
        cut, longest = dict.fromkeys(rules, 0), dict.fromkeys(rules, 0.0)
        left = policy.window
        while left:
            some = min(left, together)
            left -= some
            latencies = [chance.lognormvariate(middle, options.sigma) for _ in range(some)]
            for name, rule in rules.items():
                timeout = rule.value
                longest[name] = max(longest[name], timeout)
                samples = [seconds if seconds <= timeout else math.inf for seconds in latencies]
                cut[name] += samples.count(math.inf)
                rule.learn(samples)
        seen = {
            name: RuleResult(false_timeouts=cut[name] / policy.window, timeout=rule.value, max_timeout=longest[name])
            for name, rule in rules.items()
        }
        yield WindowResult(number=number, ideal_timeout=right, rules=seen)
