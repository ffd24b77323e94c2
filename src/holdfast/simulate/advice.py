"""Which timeout fits measured latencies, by the rule of `Percentile`, and why; and how many calls at once."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast.calls.histogram import Histogram
from holdfast.calls.limits import Limit
from holdfast.calls.timeout import Percentile

MAX_REFUSED_SHARE = 1e-4
"""The share of calls that a limit may refuse by chance alone, when the dependency is as fast as it was."""
STANDARD_ERRORS = 1.96
"""Standard errors of a range that holds in 95 % of cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A timeout, and what it follows from. Times are seconds."""

    timeout: float
    count: int
    """Latencies that it follows from."""
    cut_off: int
    """Of these, those that had not ended when they were given up."""
    percentiles: dict[str, float]
    """Of the latencies: p50, p99, p99.9, and the one that was asked for."""
    mean: float
    """Of those that ended."""
    percentile: float
    """The percentile that was asked for, as `Percentile` counts it: within 3 %."""
    percentile_low: float
    """The percentile lies between this and `percentile_high` in 95 % of cases."""
    percentile_high: float | None
    """None: there are too few latencies to say."""
    samples_needed: int
    """Latencies that make the percentile credible."""
    false_timeouts: float
    """The share of these latencies that the timeout would have cut off."""
    reasons: tuple[str, ...]
    code: str
    """What to write."""
    limit: int | None = None
    """Calls at once, if the rate was given."""
    in_flight: float | None = None
    """Calls that are under way on average, if the rate was given."""

    @property
    def has_enough_samples(self) -> bool:
        """Whether there are enough latencies to believe it."""
        return self.count >= self.samples_needed


def advise(latencies: Iterable[float], policy: Percentile, *, rate: float | None = None) -> Advice:
    """Return the timeout for latencies in seconds, infinity for those that were cut off; for a `rate`, also a limit.

    Raise InvalidValue if there are none, or if more were cut off than the policy accepts: their latency is not known.
    """
    ordered = sorted(latencies)
    if not ordered or ordered[0] == math.inf:
        raise InvalidValue("no latencies that could be learned from: expected at least one request that has ended")
    if not ordered[0] >= 0:
        raise InvalidValue(f"latency {ordered[0]}: expected seconds, 0 or more")
    histogram = Histogram()
    histogram.add(ordered)
    count, cut = len(ordered), int(histogram.unfinished)
    if cut >= policy.accepted_false_timeouts * count and cut:
        raise InvalidValue(
            f"{cut:,} of {count:,} were cut off, and {_name_percentile(policy.percent)} accepts "
            f"{policy.accepted_false_timeouts * count:.3g}: "
            "how long they take is not known. Measure with a longer timeout, or accept more with a lower percentile"
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
        cut_off=cut,
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
    """Return the share of calls that a limit refuses by chance, whatever the latencies: Erlang's B formula."""
    share = 1.0
    for number in range(1, max_in_flight + 1):
        share = in_flight * share / (number + in_flight * share)
    return share


def _choose_limit(rate: float, mean: float) -> tuple[int, float]:
    """By Little's law, with headroom; and so many that chance alone fills them rarely, where they are few."""
    seconds = max(mean, 1e-6)
    max_in_flight = Limit.for_load(rate=rate, seconds=seconds).max_in_flight
    in_flight = rate * seconds
    while refused_share(max_in_flight, in_flight) > MAX_REFUSED_SHARE:
        max_in_flight += 1
    return max_in_flight, in_flight


def _name_percentile(percent: float) -> str:
    return f"p{percent:g}"


def _find_exceeded(ordered: Sequence[float], share: float) -> float:
    """The latency that this share exceeds: of few, the longest."""
    return ordered[max(0, len(ordered) - 1 - math.floor(len(ordered) * share + 1e-9))]


def _confidence_interval(ordered: Sequence[float], accepted: float) -> tuple[float, float | None]:
    """Between which of these latencies the percentile lies: how many exceed it varies as counts of rare things do."""
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
        f"{percentile} is {_format_seconds(wanted)}, as Percentile counts it, within 3 %: {share} of answers "
        "may be cut off"
    )
    padded = median * (1 + policy.padding)
    if padded > wanted:
        yield (
            f"padded to {_format_seconds(padded)}, which is p50 and {policy.padding:.0%} of it: the percentile is so "
            "close to p50 that a small shift would time out everything"
        )
    else:
        yield f"no padding: {_format_seconds(padded)}, which is p50 and {policy.padding:.0%} of it, is less"
    if policy.network_latency:
        yield f"{_format_seconds(policy.network_latency)} are added for the network"
    before = max(wanted, padded) + policy.network_latency
    if timeout > before:
        yield f"raised to the floor of {_format_seconds(policy.floor)}: a pause of the garbage collector takes as long"
    elif timeout < before:
        yield (
            f"cut to the ceiling of {_format_seconds(policy.ceiling)}: threads and connections are held for that "
            "time. More than accepted are cut off"
        )


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _format_code(policy: Percentile, timeout: float) -> str:
    """The policy as it would be written, beginning with the timeout that is known now."""
    default = Percentile()
    # Upwards, so that the beginning does not lie below the floor; three digits are more than is known.
    step = 10.0 ** (math.floor(math.log10(timeout)) - 2)
    start = min(policy.ceiling, float(f"{math.ceil(timeout / step) * step:.3g}"))
    words = [f"{policy.percent:g}", f"start={start:g}"]
    words += [
        f"{name}={getattr(policy, name):g}"
        for name in ("floor", "ceiling", "padding", "network_latency", "min_samples")
        if getattr(policy, name) != getattr(default, name)
    ]
    return f"Percentile({', '.join(words)})"
