"""Timeouts: fixed, or learned from the latencies of the dependency. Pure.

The rule is that of https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/: choose an
acceptable rate of false timeouts, such as 0.1 %, and use the corresponding percentile of the latency.
"""

import math
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast.calls.histogram import TIMED_OUT, Histogram

MAX_SAMPLES = 512
"""Samples collected between two updates. Of more than that in `LEARN_INTERVAL` seconds, only the last ones are used."""
LEARN_INTERVAL = 0.5
"""Seconds between updates of the timeout. An update takes up to half a millisecond, too much for every call."""
DEFAULT_START = 5.0
"""Seconds; generous for most services, but short enough not to block callers of a hanging one for long."""
MIN_SAMPLES_ABOVE = 5
"""Expected samples above a percentile before it is used: 5,000 samples for the 99.9th."""
WINDOW_SAMPLES_ABOVE = 50
"""Expected samples above the percentile in a window: 50,000 samples for the 99.9th. The last two windows are kept."""
FIXED_WINDOW = 50_000
"""Samples in a window if the timeout is fixed. They are used only for `Dependency.latency`."""
SHIFT_FACTOR = 4.0
"""Timeouts above this many times the accepted rate mean that the latency has changed: chance does not explain them."""
MIN_SHIFT_TIMEOUTS = 5
"""Minimum timeouts before the latency is taken to have changed."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """A timeout at a percentile of the observed latency, so that `100 - percent` % of good responses time out."""

    percent: float = 99.9
    """The percentile; 99.9 accepts 0.1 % of false timeouts."""
    floor: float = 0.01
    """Minimum timeout in seconds. A garbage collection on either side takes about as long."""
    ceiling: float = 10.0
    """Maximum timeout in seconds. Threads and connections are blocked for that time."""
    start: float | None = None
    """Timeout in seconds until there are enough samples. None means 5, within floor and ceiling."""
    median_margin: float = 1.0
    """The timeout is at least the median latency * (1 + median_margin), so by default twice the median: a small change
    of latency must not time out every request."""
    network_latency: float = 0.0
    """Seconds added for the worst reasonable network latency of remote clients."""
    min_samples: int | None = None
    """Samples needed before the percentile is used. None means enough for five above it: 5,000 for 99.9."""

    def __post_init__(self) -> None:
        if not 50 < self.percent < 100:
            raise InvalidValue(f"percentile {self.percent}: expected a number above 50 and below 100, such as 99.9")
        if not 0 < self.floor <= self.ceiling < math.inf:
            raise InvalidValue(f"timeout floor {self.floor} and ceiling {self.ceiling}: expected 0 < floor <= ceiling")
        if self.start is not None and not self.floor <= self.start <= self.ceiling:
            raise InvalidValue(f"timeout start {self.start}: expected {self.floor} to {self.ceiling} seconds")
        if not 0 <= self.median_margin < math.inf or not 0 <= self.network_latency < math.inf:
            raise InvalidValue(
                f"timeout median_margin {self.median_margin} and network_latency {self.network_latency}: "
                "expected 0 or more"
            )
        if self.min_samples is not None and self.min_samples < 1:
            raise InvalidValue(f"timeout min_samples {self.min_samples}: expected at least 1 sample")

    @property
    def accepted_false_timeouts(self) -> float:
        """The share of good responses that may time out: 0.001 for the 99.9th percentile."""
        return round(1 - self.percent / 100, 12)  # 0.001, and not 0.0009999999999998899

    @property
    def samples_needed(self) -> int:
        return (
            self.min_samples
            if self.min_samples is not None
            else math.ceil(MIN_SAMPLES_ABOVE / self.accepted_false_timeouts)
        )

    @property
    def window(self) -> int:
        """Number of samples in a window. The current window and the one before it count."""
        return math.ceil(WINDOW_SAMPLES_ABOVE / self.accepted_false_timeouts)

    @property
    def start_timeout(self) -> float:
        """Initial timeout in seconds."""
        return self.clamp(DEFAULT_START) if self.start is None else self.start

    def clamp(self, seconds: float) -> float:
        """Limit `seconds` to the range from floor to ceiling."""
        return min(self.ceiling, max(self.floor, seconds))

    def choose(self, histogram: Histogram, current: float) -> float:
        """Return the timeout for the observed latencies; `current` is the timeout under which they were measured."""
        wanted = histogram.exceeded_by(self.accepted_false_timeouts)
        if wanted == math.inf:
            if histogram.share_above_longest <= self.accepted_false_timeouts:
                return current  # few attempts timed out; deadlines ended those that would show the percentile
            return self.clamp(current * _growth_factor(histogram, self.accepted_false_timeouts))
        return self.clamp(max(wanted, histogram.exceeded_by(0.5) * (1 + self.median_margin)) + self.network_latency)


def _growth_factor(histogram: Histogram, accepted: float) -> float:
    """Return the factor by which the timeout must grow.

    Assumes that every halving of the share of slower responses needs the same factor of latency as the last one.
    """
    cut = histogram.share_above_longest
    nearer, farther = histogram.exceeded_by(min(0.5, 4 * cut)), histogram.exceeded_by(min(0.5, 2 * cut))
    growth = farther / nearer if nearer < farther < math.inf else 2.0
    return min(2.0, math.pow(growth, math.log2(cut / accepted)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The three timeouts of a call, in seconds."""

    connect: float | Percentile = 3.0
    """For a new connection, including TLS. Separate from the attempt, because a lost packet costs a second here."""
    attempt: float | Percentile | None = Percentile()
    """For one attempt on a connection. None: the function has its own timeout, and only `total` applies."""
    total: float | None = 30.0
    """For the whole call, with all attempts and delays. None: only a deadline around the call applies."""

    def __post_init__(self) -> None:
        for name in ("connect", "attempt", "total"):
            value = getattr(self, name)
            if value is None and name != "connect":
                continue
            if isinstance(value, Percentile) and name != "total":
                continue
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidValue(f"{name} timeout {value!r}: expected seconds, more than 0")


class Estimator:
    """The current timeout of one dependency, and the samples behind it. Not thread-safe."""

    __slots__ = ("_timeouts_in_a_row", "_window_samples", "histogram", "policy", "value")

    def __init__(self, policy: float | Percentile | None) -> None:
        self.policy = policy
        self.histogram = Histogram()
        self.value = policy.start_timeout if isinstance(policy, Percentile) else math.inf if policy is None else policy
        self._window_samples = 0
        self._timeouts_in_a_row = 0  # timeouts without an answer between them

    def learn(self, samples: list[float]) -> float:
        """Learn from new samples, as `Histogram.add` takes them, and return the new timeout."""
        self.histogram.add(samples)
        self._window_samples += len(samples)
        policy = self.policy
        if not isinstance(policy, Percentile):
            self._rotate_after(FIXED_WINDOW)
            return self.value
        if self._has_shifted(samples, policy):
            # The old samples are no longer valid, and timeouts show only that requests take longer. Without this step,
            # the timeout would follow the few fast responses, and continue to time out all others.
            self.value = policy.clamp(2 * self.value)
            self.histogram.clear()
            self._window_samples = self._timeouts_in_a_row = 0
        elif self.histogram.total >= policy.samples_needed:
            # Earlier timeouts have raised this timeout already: only new ones may raise it again.
            if TIMED_OUT in samples or self.histogram.share_above_longest <= policy.accepted_false_timeouts:
                self.value = policy.choose(self.histogram, self.value)
            self._rotate_after(policy.window)
        return self.value

    def _has_shifted(self, samples: list[float], policy: Percentile) -> bool:
        """Return whether there are more timeouts than chance explains: several in a row, or too large a share."""
        for seconds in samples:
            self._timeouts_in_a_row = self._timeouts_in_a_row + 1 if seconds == TIMED_OUT else 0
            if self._timeouts_in_a_row >= MIN_SHIFT_TIMEOUTS:
                return True
        return (
            self.histogram.timed_out >= MIN_SHIFT_TIMEOUTS
            and self.histogram.share_above_longest > SHIFT_FACTOR * policy.accepted_false_timeouts
        )

    def _rotate_after(self, window: int) -> None:
        if self._window_samples >= window:
            self.histogram.rotate()
            self._window_samples = 0
