"""Find the zone whose number of errors differs most from the others, by a chi-squared test. Pure.

The test asks how likely the counts are if every zone were equally likely to have each error. It ignores how the traffic
is shared between zones, and the zone farthest from the expected count may be one with few errors: give it counts of
zones with equal traffic, and combine it with other signs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast._errors import InvalidValue
from holdfast._types import Zone

SIGNIFICANCE = 0.05
"""Probability up to which a difference is significant: the usual 5 %."""
MAX_ERRORS = 1e15
"""Maximum errors of one zone: floats count exactly up to this."""
EVENT_WINDOW = 60.0
"""Seconds of errors that one ChiSquaredEvent looks at: its schedule sends one event a minute."""


@dataclass(frozen=True, slots=True)
class ChiSquaredResult:
    """The outcome of one test."""

    statistic: float
    degrees_of_freedom: int
    probability: float
    """The probability of counts at least as uneven, if errors are spread evenly."""
    expected: float
    """Errors that each zone would have if they were spread evenly."""
    farthest: Zone | None
    """The zone whose count is farthest from `expected`, the first of several; None without zones."""
    is_significant: bool
    flags: Mapping[Zone, int]
    """For each zone 1 if the result is significant and the zone is the farthest, otherwise 0."""


def find_outlier(errors: Mapping[Zone, float], significance: float = SIGNIFICANCE) -> ChiSquaredResult:
    """Test the numbers of errors of all zones in one window of time."""
    for zone, count in errors.items():
        if not 0 <= count <= MAX_ERRORS:
            raise InvalidValue(f"errors of zone {zone}: {count}: expected 0 to {MAX_ERRORS:.0e}")
    expected = sum(errors.values()) / len(errors) if errors else 0.0
    statistic = sum((count - expected) ** 2 for count in errors.values()) / expected if expected else 0.0
    freedom = max(0, len(errors) - 1)
    probability = get_tail_probability(statistic, freedom) if freedom else 1.0
    farthest = max(errors, key=lambda zone: abs(errors[zone] - expected), default=None)
    is_significant = probability <= significance
    flags = {zone: int(is_significant and zone == farthest) for zone in errors}
    return ChiSquaredResult(statistic, freedom, probability, expected, farthest, is_significant, flags)


def get_tail_probability(x: float, degrees_of_freedom: int) -> float:
    """Return the probability that a chi-squared variable is `x` or more. Closed form: a finite sum for each parity."""
    if degrees_of_freedom < 1 or not 0 <= x < math.inf:
        raise InvalidValue(
            f"chi-squared tail of {x} with {degrees_of_freedom} degrees of freedom: expected 0 or more, and at least 1"
        )
    half = x / 2
    if not half:
        return 1.0
    if degrees_of_freedom % 2:
        first, powers = math.erfc(math.sqrt(half)), [i + 0.5 for i in range(degrees_of_freedom // 2)]
    else:
        first, powers = 0.0, [float(i) for i in range(degrees_of_freedom // 2)]
    # Each term is half^p / gamma(p + 1) * e^-half, in logarithms because both factors may overflow.
    terms = [math.exp(power * math.log(half) - math.lgamma(power + 1) - half) for power in powers]
    return min(1.0, math.fsum([first, *terms]))


class Dimension(Struct, frozen=True, rename="pascal"):
    """A label of a metric in CloudWatch."""

    name: str
    value: str


class ChiSquaredEvent(Struct, frozen=True, rename={"metric_name": "metricName", "result_name": "chiSquareMetricName"}):
    """The event that starts one test in AWS: the metric with the errors, its zones, and the metric for the result."""

    timestamp: datetime
    namespace: str
    metric_name: str
    dimensions: Sequence[Dimension]
    """Dimensions of the metric except `AZ-ID`."""
    period: int
    stat: str
    unit: str
    result_name: str
    azs: Sequence[Zone]

    def get_window(self) -> tuple[float, float]:
        """Return start and end of the last complete minute before `timestamp`, in seconds since the epoch."""
        moment = self.timestamp if self.timestamp.tzinfo else self.timestamp.replace(tzinfo=UTC)
        end = moment.timestamp() // EVENT_WINDOW * EVENT_WINDOW
        return end - EVENT_WINDOW, end

    def build_metric_data(self, result: ChiSquaredResult) -> list[dict[str, Any]]:
        """Return the MetricData of a PutMetricData call: one value of 0 or 1 for each zone."""
        start, _ = self.get_window()
        labels = [{"Name": each.name, "Value": each.value} for each in self.dimensions]
        return [
            {
                "MetricName": self.result_name,
                "Dimensions": [*labels, {"Name": "AZ-ID", "Value": zone}],
                "Timestamp": datetime.fromtimestamp(start, UTC),
                "Value": result.flags.get(zone, 0),
            }
            for zone in self.azs
        ]
