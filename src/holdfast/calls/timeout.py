"""How long an attempt may take: a fixed time, or one that follows from the latencies of the dependency. Pure.

The rule is the one of https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/: accept a rate
of false timeouts, such as 0.1 %, and take the percentile of the latency that has this much above it.
"""

import math
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast.calls.histogram import Histogram

MAX_SAMPLES = 512
"""Latencies that wait to be learned from; of more than that in `LEARN_INTERVAL` seconds, only the last ones are."""
LEARN_INTERVAL = 0.5
"""Seconds between lessons: one takes up to half a millisecond, which no single call should pay often."""
DEFAULT_START = 5.0
"""Seconds; generous for most services, and not so long that a hanging one holds its callers for good."""
MIN_SAMPLES_ABOVE = 5
"""So many samples must lie above a percentile on average before it is believed: 5,000 for the 99.9th."""
WINDOW_SAMPLES_ABOVE = 50
"""So many samples above the percentile make a window; the last two are remembered: 50,000 for the 99.9th."""
FIXED_WINDOW = 50_000
"""The window of a dependency whose timeout is fixed, for those who ask for its percentiles."""
SHIFT_FACTOR = 4.0
"""More than this many times the accepted rate of timeouts is no chance: the latency is another one now."""
MIN_SHIFT_TIMEOUTS = 5
"""Timeouts that must have been seen before a shift is believed."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """Takes the timeout from the latency that is observed, so that `100 - percent` % of good answers are cut off."""

    percent: float = 99.9
    """The percentile; 99.9 accepts 0.1 % of false timeouts."""
    floor: float = 0.01
    """Seconds; a timeout is never shorter. A pause of the garbage collector, here or there, takes as long."""
    ceiling: float = 10.0
    """Seconds; a timeout is never longer, whatever was observed: threads and connections are held for that time."""
    start: float | None = None
    """Seconds until there are enough samples; None: five, within floor and ceiling, because nothing is known yet."""
    padding: float = 1.0
    """The timeout is at least the median and this share of it: a small shift must not time out everything."""
    network_latency: float = 0.0
    """Seconds that are added for the worst reasonable way through the network, for clients far away."""
    min_samples: int | None = None
    """Samples that make the percentile credible; None: five times as many as it takes to see one above it."""

    def __post_init__(self) -> None:
        if not 50 < self.percent < 100:
            raise InvalidValue(f"percentile {self.percent}: expected a number above 50 and below 100, such as 99.9")
        if not 0 < self.floor <= self.ceiling < math.inf:
            raise InvalidValue(f"timeout floor {self.floor} and ceiling {self.ceiling}: expected 0 < floor <= ceiling")
        if self.start is not None and not self.floor <= self.start <= self.ceiling:
            raise InvalidValue(f"timeout start {self.start}: expected {self.floor} to {self.ceiling} seconds")
        if not 0 <= self.padding < math.inf or not 0 <= self.network_latency < math.inf:
            raise InvalidValue(
                f"timeout padding {self.padding} and network_latency {self.network_latency}: expected 0 or more"
            )
        if self.min_samples is not None and self.min_samples < 1:
            raise InvalidValue(f"timeout min_samples {self.min_samples}: expected at least 1 sample")

    @property
    def accepted_false_timeouts(self) -> float:
        """The share of good answers that may be cut off: 0.001 for the 99.9th percentile."""
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
        """Samples after which a new window begins; this one and the one before it count."""
        return math.ceil(WINDOW_SAMPLES_ABOVE / self.accepted_false_timeouts)

    @property
    def start_timeout(self) -> float:
        """Seconds to begin with."""
        return self.clamp(DEFAULT_START) if self.start is None else self.start

    def clamp(self, seconds: float) -> float:
        """Within floor and ceiling."""
        return min(self.ceiling, max(self.floor, seconds))

    def choose(self, histogram: Histogram, current: float) -> float:
        """The timeout that fits what was seen, when `current` is the one that cut off what had not ended."""
        wanted = histogram.exceeded_by(self.accepted_false_timeouts)
        if wanted == math.inf:
            if histogram.unfinished_share <= self.accepted_false_timeouts:
                return current  # it was deadlines that cut off what could have told
            return self.clamp(current * _growth_factor(histogram, self.accepted_false_timeouts))
        return self.clamp(max(wanted, histogram.exceeded_by(0.5) * (1 + self.padding)) + self.network_latency)


def _growth_factor(histogram: Histogram, accepted: float) -> float:
    """Return the factor by which the timeout must grow: the tail above it is taken to go on halving as below it."""
    cut = histogram.unfinished_share
    nearer, farther = histogram.exceeded_by(min(0.5, 4 * cut)), histogram.exceeded_by(min(0.5, 2 * cut))
    growth = farther / nearer if nearer < farther < math.inf else 2.0
    return min(2.0, math.pow(growth, math.log2(cut / accepted)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The three times that bound a call, in seconds."""

    connect: float | Percentile = 3.0
    """For a connection, TLS included, where a lost packet costs a second. Apart from the attempt, as it is longer."""
    attempt: float | Percentile | None = Percentile()
    """For one attempt on a connection. None: the function bounds itself, and only the total counts."""
    total: float | None = 30.0
    """For the whole call with all attempts and the waits between them. None: only a deadline around it counts."""

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
    """The timeout of one dependency as it is now, and what it follows from. Not thread-safe."""

    __slots__ = ("_timeouts_in_a_row", "_window_samples", "histogram", "policy", "value")

    def __init__(self, policy: float | Percentile | None) -> None:
        self.policy = policy
        self.histogram = Histogram()
        self.value = policy.start_timeout if isinstance(policy, Percentile) else math.inf if policy is None else policy
        self._window_samples = 0
        self._timeouts_in_a_row = 0  # timeouts without an answer between them

    def learn(self, samples: list[float]) -> float:
        """Take new latencies into account, infinity for each timeout; returns the timeout from now on."""
        self.histogram.add(samples)
        self._window_samples += len(samples)
        policy = self.policy
        if not isinstance(policy, Percentile):
            self._rotate_after(FIXED_WINDOW)
            return self.value
        if self._has_shifted(samples, policy):
            # What was known is no longer true, and what was cut off says only that it takes longer. Without this the
            # timeout would be learned from the few quick answers alone, and stay where it cuts off the others.
            self.value = policy.clamp(2 * self.value)
            self.histogram.clear()
            self._window_samples = self._timeouts_in_a_row = 0
        elif self.histogram.total >= policy.samples_needed:
            # Cut-offs of before say nothing against the timeout that followed from them: they must not raise it again.
            if math.inf in samples or self.histogram.unfinished_share <= policy.accepted_false_timeouts:
                self.value = policy.choose(self.histogram, self.value)
            self._rotate_after(policy.window)
        return self.value

    def _has_shifted(self, samples: list[float], policy: Percentile) -> bool:
        """Whether more is cut off than chance explains: nothing but timeouts, or too many among all."""
        for seconds in samples:
            self._timeouts_in_a_row = self._timeouts_in_a_row + 1 if seconds == math.inf else 0
            if self._timeouts_in_a_row >= MIN_SHIFT_TIMEOUTS:
                return True
        return (
            self.histogram.unfinished >= MIN_SHIFT_TIMEOUTS
            and self.histogram.unfinished_share > SHIFT_FACTOR * policy.accepted_false_timeouts
        )

    def _rotate_after(self, window: int) -> None:
        if self._window_samples >= window:
            self.histogram.rotate()
            self._window_samples = 0
