"""The timeout for measured latencies, by the rule of `Percentile`, with reasons; and a limit of concurrent calls."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast.calls.histogram import Histogram
from holdfast.calls.limits import Limit
from holdfast.calls.timeout import Percentile

MAX_REFUSED_SHARE = 1e-4
"""The share of calls that a limit may refuse at random while the dependency is as fast as measured."""
STANDARD_ERRORS = 1.96
"""Standard errors of a 95 % confidence interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A recommended timeout, and the figures behind it. Times are seconds."""

    timeout: float
    count: int
    """Number of latencies."""
    timeouts: int
    """Number of these that are timeouts."""
    percentiles: dict[str, float]
    """p50, p99, p99.9, and the requested percentile of the latencies."""
    mean: float
    """Mean without the timeouts."""
    percentile: float
    """The requested percentile as `Percentile` estimates it, to within 3 %."""
    percentile_low: float
    """Lower end of the percentile's 95 % confidence interval."""
    percentile_high: float | None
    """Upper end of the interval; None if there are too few latencies."""
    samples_needed: int
    """Latencies needed for a reliable percentile."""
    false_timeouts: float
    """The share of these latencies that would have timed out."""
    reasons: tuple[str, ...]
    code: str
    """The policy as Python code."""
    limit: int | None = None
    """Maximum concurrent calls, if the rate was given."""
    in_flight: float | None = None
    """Mean number of concurrent calls, if the rate was given."""

    @property
    def has_enough_samples(self) -> bool:
        """True if there are enough latencies for a reliable percentile."""
        return self.count >= self.samples_needed


def advise(latencies: Iterable[float], policy: Percentile, *, rate: float | None = None) -> Advice:
    """Return a timeout for latencies in seconds, with infinity for timeouts. With `rate`, also recommend a limit.

    Raise InvalidValue without latencies, or with more timeouts than the policy accepts: their latency is unknown.
    """
    ordered = sorted(latencies)
    if not ordered or ordered[0] == math.inf:
        raise InvalidValue("no latencies to learn from: expected at least one request that completed")
    if not ordered[0] >= 0:
        raise InvalidValue(f"latency {ordered[0]}: expected seconds, 0 or more")
    histogram = Histogram()
    histogram.add(ordered)
    count, cut = len(ordered), int(histogram.timed_out)
    if cut >= policy.accepted_false_timeouts * count and cut:
        raise InvalidValue(
            f"{cut:,} of {count:,} timed out, and {_name_percentile(policy.percent)} accepts "
            f"{policy.accepted_false_timeouts * count:.3g}: "
            "their latency is unknown. Measure with a longer timeout, or accept more with a lower percentile"
        )
    timeout = policy.choose(histogram, policy.start_timeout)
    lowest, highest = _confidence_interval(ordered, policy.accepted_false_timeouts)
    ended = ordered[: count - cut]
    mean = math.fsum(ended) / len(ended)
    limit, in_flight = (None, None) if rate is None else _choose_limit(rate, mean)
    shown = sorted({50.0, 99.0, 99.9, policy.percent})
    return Advice(
        timeout=timeout,
        count=count,
        timeouts=cut,
        percentiles={_name_percentile(percent): _find_exceeded(ordered, 1 - percent / 100) for percent in shown},
        mean=mean,
        percentile=histogram.exceeded_by(policy.accepted_false_timeouts),
        percentile_low=lowest,
        percentile_high=highest,
        samples_needed=policy.samples_needed,
        false_timeouts=(count - bisect_right(ordered, timeout)) / count,
        reasons=tuple(_reasons(policy, histogram, timeout)),
        code=_format_code(policy, timeout),
        limit=limit,
        in_flight=in_flight,
    )


def refused_share(max_in_flight: int, in_flight: float) -> float:
    """Return the share of calls that a limit refuses at random: Erlang's B formula, valid for any latencies."""
    share = 1.0
    for number in range(1, max_in_flight + 1):
        share = in_flight * share / (number + in_flight * share)
    return share


def _choose_limit(rate: float, mean: float) -> tuple[int, float]:
    """Return a limit and the mean in flight: by Little's law, with headroom, and enough for peaks of small loads."""
    seconds = max(mean, 1e-6)
    max_in_flight = Limit.for_load(rate=rate, seconds=seconds).max_in_flight
    in_flight = rate * seconds
    while refused_share(max_in_flight, in_flight) > MAX_REFUSED_SHARE:
        max_in_flight += 1
    return max_in_flight, in_flight


def _name_percentile(percent: float) -> str:
    return f"p{percent:g}"


def _find_exceeded(ordered: Sequence[float], share: float) -> float:
    """Return the latency that this share of them exceeds; the longest if there are few."""
    return ordered[max(0, len(ordered) - 1 - math.floor(len(ordered) * share + 1e-9))]


def _confidence_interval(ordered: Sequence[float], accepted: float) -> tuple[float, float | None]:
    """Return the percentile's 95 % confidence interval, from a Poisson count of the latencies above it."""
    expected = len(ordered) * accepted
    error = STANDARD_ERRORS * math.sqrt(expected)
    lowest = _find_exceeded(ordered, min(0.5, (expected + error) / len(ordered)))
    if expected - error < 1:
        return lowest, None
    highest = _find_exceeded(ordered, (expected - error) / len(ordered))
    return lowest, None if highest == math.inf else highest


def _reasons(policy: Percentile, histogram: Histogram, timeout: float) -> Iterator[str]:
    wanted, median = histogram.exceeded_by(policy.accepted_false_timeouts), histogram.exceeded_by(0.5)
    percentile, share = _name_percentile(policy.percent), f"{policy.accepted_false_timeouts:.3%}"
    yield (
        f"{percentile} is {_format_seconds(wanted)}, as Percentile estimates it, to within 3 %: {share} of "
        "responses may time out"
    )
    above_median = median * (1 + policy.median_margin)
    if above_median > wanted:
        yield (
            f"raised to {_format_seconds(above_median)}, which is p50 plus {policy.median_margin:.0%}: the percentile "
            "is so close to p50 that a small change of latency would time out every request"
        )
    else:
        yield f"p50 plus {policy.median_margin:.0%} is {_format_seconds(above_median)}, which is less"
    if policy.network_latency:
        yield f"{_format_seconds(policy.network_latency)} added for the network"
    before = max(wanted, above_median) + policy.network_latency
    if timeout > before:
        yield f"raised to the floor of {_format_seconds(policy.floor)}: a garbage collection takes about as long"
    elif timeout < before:
        yield (
            f"lowered to the ceiling of {_format_seconds(policy.ceiling)}: threads and connections are blocked for "
            "that time. More responses than accepted will time out"
        )


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _format_code(policy: Percentile, timeout: float) -> str:
    """Return the policy as Python code, with the recommended timeout as `start`."""
    default = Percentile()
    # Rounded up, so that `start` is not below the floor, to three digits, which is more than the precision.
    step = 10.0 ** (math.floor(math.log10(timeout)) - 2)
    start = min(policy.ceiling, float(f"{math.ceil(timeout / step) * step:.3g}"))
    words = [f"{policy.percent:g}", f"start={start:g}"]
    words += [
        f"{name}={getattr(policy, name):g}"
        for name in ("floor", "ceiling", "median_margin", "network_latency", "min_samples")
        if getattr(policy, name) != getattr(default, name)
    ]
    return f"Percentile({', '.join(words)})"
