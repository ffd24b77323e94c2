"""CloudWatch's statistics of the values of one period. Pure.

| statistic | value |
|---|---|
| `SampleCount`, `Sum`, `Average`, `Minimum`, `Maximum` | of all values |
| `p99.9` | the percentile |
| `TM(10%:90%)` | mean of the values between the bounds; `tm99` is `TM(:99%)`, `IQM` is `TM(25%:75%)` |
| `WM(10%:90%)`, `wm99` | mean after values outside of the bounds were moved to the nearest bound |
| `TC(10%:90%)`, `tc99` | number of values between the bounds |
| `TS(10%:90%)`, `ts99` | sum of the values between the bounds |
| `PR(100:300)` | share of the values between the bounds, in per cent |

Bounds are percentages of all values, or values if written without `%`. A lower bound is exclusive, an upper one
inclusive, and one of them may be left out. AWS does not publish how percentages of few values are rounded: here, the
bound `b%` of n sorted values lies after the value with the rank b * n / 100, rounded up. So `TC(:b%)` and `TC(b%:)` add
up to `SampleCount`, and the last value of `TM(:99%)` is the percentile `p99`.

Extended statistics need the values themselves, and none of them may be negative; otherwise there is no datapoint.
Values from a Histogram are rounded to the middles of their buckets, which are off by at most 4.5 %.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from holdfast._errors import InvalidValue
from holdfast.metrics.histogram import PER_DOUBLING, SMALLEST, Histogram


class StatisticKind(StrEnum):
    """The computation of a statistic."""

    SAMPLE_COUNT = "SampleCount"
    SUM = "Sum"
    AVERAGE = "Average"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"
    PERCENTILE = "p"
    TRIMMED_MEAN = "TM"
    WINSORIZED_MEAN = "WM"
    TRIMMED_COUNT = "TC"
    TRIMMED_SUM = "TS"
    PERCENTILE_RANK = "PR"


class Interpolation(StrEnum):
    """The computation of a percentile that lies between two values. AWS does not publish its own."""

    NEAREST_RANK = "nearest_rank"
    """The smallest value with at least that share of all values up to it: a value that was measured. The default."""
    LINEAR = "linear"
    """A value on the straight line between the two, as spreadsheets compute it."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A parsed statistic. Two spellings of one statistic are equal."""

    kind: StatisticKind
    lower: float | None = None
    upper: float | None = None
    """The percentile of `p`."""
    is_percentage: bool = False
    """Whether the bounds are percentages of the number of values, or values."""

    def __str__(self) -> str:
        if self.kind is StatisticKind.PERCENTILE:
            return f"p{_format_bound(self.upper)}"
        if not self.is_extended:
            return self.kind
        sign = "%" if self.is_percentage else ""
        bounds = (f"{_format_bound(each)}{sign}" if each is not None else "" for each in (self.lower, self.upper))
        return f"{self.kind}({':'.join(bounds)})"

    @property
    def is_extended(self) -> bool:
        """Whether an alarm has this as its `extended_statistic`."""
        return self.kind not in BASIC_STATISTICS

    @property
    def minimum_samples(self) -> float:
        """The number of values below which a percentile says little: 10 beyond it. 0 for other statistics."""
        if self.kind is not StatisticKind.PERCENTILE or self.upper is None:
            return 0.0
        beyond = min(self.upper, 100 - self.upper)
        return 1000 / beyond if beyond else math.inf


BASIC_STATISTICS = (
    StatisticKind.SAMPLE_COUNT,
    StatisticKind.SUM,
    StatisticKind.AVERAGE,
    StatisticKind.MINIMUM,
    StatisticKind.MAXIMUM,
)
"""The statistics that need only totals of the values."""
_NUMBER = r"\d{1,18}(?:\.\d{1,10})?"
_SHORT = re.compile(rf"(p|tm|wm|tc|ts)({_NUMBER})", re.ASCII)
_RANGE = re.compile(rf"(TM|WM|TC|TS|PR)\((?:({_NUMBER})(%?))?:(?:({_NUMBER})(%?))?\)", re.ASCII)


def parse_statistic(text: str) -> Statistic:
    """Return the statistic that `text` names, or raise InvalidValue."""
    if text in BASIC_STATISTICS:
        return Statistic(StatisticKind(text))
    if text == "IQM":
        return Statistic(StatisticKind.TRIMMED_MEAN, 25.0, 75.0, is_percentage=True)
    if match := _SHORT.fullmatch(text):
        kind, percent = match[1], float(match[2])
        if percent > 100:
            raise InvalidValue(f"statistic {text}: expected a percentage from 0 to 100")
        return Statistic(
            StatisticKind.PERCENTILE if kind == "p" else StatisticKind(kind.upper()), None, percent, is_percentage=True
        )
    if match := _RANGE.fullmatch(text):
        return _build_range(text, match)
    raise InvalidValue(
        f"statistic {text[:60]!r}: expected SampleCount, Sum, Average, Minimum, Maximum, IQM, one such as p99 or tm99,"
        " or one such as TM(10%:90%), TC(:200) or PR(100:)"
    )


def parse_alarm_statistic(text: str) -> Statistic:
    """Return the extended statistic of an alarm, or raise InvalidValue.

    CloudWatch takes fewer statistics in alarms than in graphs: TM, WM, TC and TS only with percentages from 10 to 90.
    """
    statistic = parse_statistic(text)
    if not statistic.is_extended:
        raise InvalidValue(f"extended statistic {text}: set it as `statistic` instead")
    if text[:2] in ("TM", "WM", "TC", "TS"):
        bounds = [each for each in (statistic.lower, statistic.upper) if each is not None]
        if not statistic.is_percentage or not all(10 <= each <= 90 for each in bounds):
            raise InvalidValue(f"extended statistic {text}: an alarm takes only percentages from 10% to 90%")
    return statistic


def _build_range(text: str, match: re.Match[str]) -> Statistic:
    kind = StatisticKind(match[1])
    lower, upper = (float(each) if each is not None else None for each in match.group(2, 4))
    signs = {sign for sign in match.group(3, 5) if sign is not None}
    if lower is None and upper is None:
        raise InvalidValue(f"statistic {text}: expected at least one bound")
    if len(signs) > 1:
        raise InvalidValue(f"statistic {text}: expected % after both bounds, or after none")
    is_percentage = signs == {"%"}
    if is_percentage and kind is StatisticKind.PERCENTILE_RANK:
        raise InvalidValue(f"statistic {text}: expected values without %, because PR returns a percentage")
    if is_percentage and max(lower or 0, upper or 0) > 100:
        raise InvalidValue(f"statistic {text}: expected percentages from 0% to 100%")
    if lower is not None and upper is not None and lower >= upper:
        raise InvalidValue(f"statistic {text}: expected a lower bound below the upper one")
    return Statistic(kind, lower, upper, is_percentage)


def _format_bound(bound: float | None) -> str:
    return f"{bound:.10f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values of one period."""

    count: int
    sum: float
    minimum: float
    maximum: float
    values: tuple[tuple[float, int], ...] | None
    """Each value and how often it occurs, sorted; None if only the totals are known."""

    @classmethod
    def of_counts(cls, counts: Mapping[float, int]) -> "Distribution":
        """Return a distribution of known values, each with its number of occurrences.

        If 3 of 100 requests failed, they are `{0: 97, 1: 3}`: their Sum is 3 and their Average 0.03.
        """
        values = tuple(sorted((float(value), count) for value, count in counts.items() if count))
        if not values:
            return cls(0, 0.0, 0.0, 0.0, ())
        total = math.fsum(value * count for value, count in values)
        return cls(sum(count for _, count in values), total, values[0][0], values[-1][0], values)

    @classmethod
    def of_totals(cls, count: int, total: float, minimum: float, maximum: float) -> "Distribution":
        """Return a distribution with known totals. Its values are known only if they are all equal."""
        is_known = not count or minimum == maximum
        return cls(count, total, minimum, maximum, ((minimum, count),) if is_known else None)

    @classmethod
    def of_histogram(cls, histogram: Histogram) -> "Distribution":
        """Return a distribution with the middles of the buckets as values, but exact totals."""
        low, high = histogram.min, histogram.max
        middles = [(2.0 ** ((index + 0.5) / PER_DOUBLING), count) for index, count in sorted(histogram.buckets.items())]
        if histogram.zeros:
            middles.insert(0, (min(low, SMALLEST), histogram.zeros))
        # A middle may lie outside of all values.
        values = tuple((min(max(value, low), high), count) for value, count in middles)
        return cls(histogram.count, histogram.sum, low, high, values)


def compute_statistic(
    statistic: Statistic, values: Distribution, interpolation: Interpolation = Interpolation.NEAREST_RANK
) -> float | None:
    """Return a statistic of the values of one period, or None if there is no datapoint."""
    if not values.count:
        return None
    match statistic.kind:
        case StatisticKind.SAMPLE_COUNT:
            return float(values.count)
        case StatisticKind.SUM:
            return values.sum
        case StatisticKind.AVERAGE:
            return values.sum / values.count
        case StatisticKind.MINIMUM:
            return values.minimum
        case StatisticKind.MAXIMUM:
            return values.maximum
    if values.values is None or values.minimum < 0:
        return None
    if statistic.kind is StatisticKind.PERCENTILE:
        return _compute_percentile(values.values, values.count, statistic.upper or 0.0, interpolation)
    return _compute_trimmed(statistic, values, values.values)


def _compute_percentile(
    values: tuple[tuple[float, int], ...], count: int, percent: float, interpolation: Interpolation
) -> float:
    if interpolation is Interpolation.NEAREST_RANK:
        return _get_value(values, max(1, _get_rank(percent, count)))
    position = (count - 1) * percent / 100
    below = math.floor(position)
    low, high = _get_value(values, below + 1), _get_value(values, min(below + 2, count))
    return low + (high - low) * (position - below)


def _compute_trimmed(statistic: Statistic, values: Distribution, pairs: tuple[tuple[float, int], ...]) -> float | None:
    kept = _trim_ranks(statistic, values.count, pairs) if statistic.is_percentage else _trim_values(statistic, pairs)
    number = sum(count for _, count in kept)
    is_whole = number == values.count
    total = values.sum if is_whole else math.fsum(value * count for value, count in kept)
    match statistic.kind:
        case StatisticKind.TRIMMED_COUNT:
            return float(number)
        case StatisticKind.TRIMMED_SUM:
            return total
        case StatisticKind.PERCENTILE_RANK:
            return 100 * number / values.count
        case StatisticKind.WINSORIZED_MEAN if not is_whole:
            return _compute_winsorized_mean(statistic, values.count, pairs, kept)
    return total / number if number else None


def _compute_winsorized_mean(
    statistic: Statistic, count: int, pairs: tuple[tuple[float, int], ...], kept: list[tuple[float, int]]
) -> float | None:
    if not statistic.is_percentage:
        low, high = statistic.lower or 0.0, math.inf if statistic.upper is None else statistic.upper
    elif kept:
        low, high = kept[0][0], kept[-1][0]
    else:
        return None
    return math.fsum(min(max(value, low), high) * number for value, number in pairs) / count


def _trim_ranks(statistic: Statistic, count: int, pairs: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    first = 0 if statistic.lower is None else _get_rank(statistic.lower, count)
    last = count if statistic.upper is None else _get_rank(statistic.upper, count)
    kept = []
    seen = 0
    for value, number in pairs:
        inside = min(seen + number, last) - max(seen, first)
        seen += number
        if inside > 0:
            kept.append((value, inside))
    return kept


def _trim_values(statistic: Statistic, pairs: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    low = -math.inf if statistic.lower is None else statistic.lower
    high = math.inf if statistic.upper is None else statistic.upper
    return [(value, number) for value, number in pairs if low < value <= high]


def _get_rank(percent: float, count: int) -> int:
    """Return the number of values up to a percentage. Rounding first absorbs errors of binary fractions."""
    return math.ceil(round(percent * count / 100, 6))


def _get_value(values: tuple[tuple[float, int], ...], rank: int) -> float:
    return values[bisect_left(list(accumulate(count for _, count in values)), rank)][0]
