"""Which timeout fits measured latencies, by the rule of `Percentile`, and why; and how many calls at once."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast._errors import InvalidValue
from holdfast.calls.histogram import Histogram
from holdfast.calls.limits import Limit
from holdfast.calls.timeout import Percentile

REFUSED = 1e-4
"""The share of calls that a limit may refuse by chance alone, when the dependency is as fast as it was."""
SURE = 1.96
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
    wanted: float
    """The percentile that was asked for, as `Percentile` counts it: within 3 %."""
    lowest: float
    """The percentile lies between this and `highest` in 95 % of cases."""
    highest: float | None
    """None: there are too few latencies to say."""
    needed: int
    """Latencies that make the percentile credible."""
    false_timeouts: float
    """The share of these latencies that the timeout would have cut off."""
    reasons: tuple[str, ...]
    code: str
    """What to write."""
    limit: int | None = None
    """Calls at once, if the rate was given."""
    under_way: float | None = None
    """Calls that are under way on average, if the rate was given."""

    @property
    def is_enough(self) -> bool:
        """Whether there are enough latencies to believe it."""
        return self.count >= self.needed


def advise(latencies: Iterable[float], policy: Percentile, *, rate: float | None = None) -> Advice:
    """Return the timeout for latencies in seconds, infinity for those that were cut off; for a `rate`, also a limit.

    Raise InvalidValue if there are none, or if more were cut off than the policy accepts: their latency is not known.
    """
    ordered = sorted(latencies)
    if not ordered or ordered[0] == math.inf:
        raise InvalidValue("no latencies that could be learned from: expected at least one request that has ended")
    if not ordered[0] >= 0:
        raise InvalidValue(f"latency {ordered[0]}: expected seconds, 0 or more")
    seen = Histogram()
    seen.add(ordered)
    count, cut = len(ordered), int(seen.unbounded)
    if cut >= policy.accepted * count and cut:
        raise InvalidValue(
            f"{cut:,} of {count:,} were cut off, and {_name(policy.percent)} accepts {policy.accepted * count:.3g}: "
            "how long they take is not known. Measure with a longer timeout, or accept more with a lower percentile"
        )
    timeout = policy.choose(seen, policy.first)
    lowest, highest = _between(ordered, policy.accepted)
    ended = ordered[: count - cut]
    mean = math.fsum(ended) / len(ended)
    limit, under_way = (None, None) if rate is None else _limit(rate, mean)
    shown = sorted({50.0, 99.0, 99.9, policy.percent})
    return Advice(
        timeout=timeout,
        count=count,
        cut_off=cut,
        percentiles={_name(percent): _exceeded(ordered, 1 - percent / 100) for percent in shown},
        mean=mean,
        wanted=seen.above(policy.accepted),
        lowest=lowest,
        highest=highest,
        needed=policy.samples_needed,
        false_timeouts=(count - bisect_right(ordered, timeout)) / count,
        reasons=tuple(_reasons(policy, seen, timeout)),
        code=_code(policy, timeout),
        limit=limit,
        under_way=under_way,
    )


def refused(most: int, under_way: float) -> float:
    """Return the share of calls that a limit refuses by chance, whatever the latencies: Erlang's B formula."""
    share = 1.0
    for number in range(1, most + 1):
        share = under_way * share / (number + under_way * share)
    return share


def _limit(rate: float, mean: float) -> tuple[int, float]:
    """By Little's law, with headroom; and so many that chance alone fills them rarely, where they are few."""
    seconds = max(mean, 1e-6)
    most = Limit.for_load(rate=rate, seconds=seconds).most
    under_way = rate * seconds
    while refused(most, under_way) > REFUSED:
        most += 1
    return most, under_way


def _name(percent: float) -> str:
    return f"p{percent:g}"


def _exceeded(ordered: Sequence[float], share: float) -> float:
    """The latency that this share exceeds: of few, the longest."""
    return ordered[max(0, len(ordered) - 1 - math.floor(len(ordered) * share + 1e-9))]


def _between(ordered: Sequence[float], accepted: float) -> tuple[float, float | None]:
    """Between which of these latencies the percentile lies: how many exceed it varies as counts of rare things do."""
    expected = len(ordered) * accepted
    error = SURE * math.sqrt(expected)
    lowest = _exceeded(ordered, min(0.5, (expected + error) / len(ordered)))
    if expected - error < 1:
        return lowest, None
    highest = _exceeded(ordered, (expected - error) / len(ordered))
    return lowest, None if highest == math.inf else highest


def _reasons(policy: Percentile, seen: Histogram, timeout: float) -> Iterator[str]:
    wanted, median = seen.above(policy.accepted), seen.above(0.5)
    percentile, share = _name(policy.percent), f"{policy.accepted:.3%}"
    yield f"{percentile} is {_told(wanted)}, as Percentile counts it, within 3 %: {share} of answers may be cut off"
    padded = median * (1 + policy.padding)
    if padded > wanted:
        yield (
            f"padded to {_told(padded)}, which is p50 and {policy.padding:.0%} of it: the percentile is so close to "
            "p50 that a small shift would time out everything"
        )
    else:
        yield f"no padding: {_told(padded)}, which is p50 and {policy.padding:.0%} of it, is less"
    if policy.network:
        yield f"{_told(policy.network)} are added for the network"
    before = max(wanted, padded) + policy.network
    if timeout > before:
        yield f"raised to the floor of {_told(policy.floor)}: a pause of the garbage collector takes as long"
    elif timeout < before:
        yield (
            f"cut to the ceiling of {_told(policy.ceiling)}: threads and connections are held for that time. More than "
            "accepted are cut off"
        )


def _told(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _code(policy: Percentile, timeout: float) -> str:
    """The policy as it would be written, beginning with the timeout that is known now."""
    default = Percentile()
    # Upwards, so that the beginning does not lie below the floor; three digits are more than is known.
    step = 10.0 ** (math.floor(math.log10(timeout)) - 2)
    start = min(policy.ceiling, float(f"{math.ceil(timeout / step) * step:.3g}"))
    words = [f"{policy.percent:g}", f"start={start:g}"]
    words += [
        f"{name}={getattr(policy, name):g}"
        for name in ("floor", "ceiling", "padding", "network", "enough")
        if getattr(policy, name) != getattr(default, name)
    ]
    return f"Percentile({', '.join(words)})"
