"""Options of a workload's alarms: their names, limits and defaults, for the settings and for the library. Pure.

It is apart from `holdfast.alarms`, so that reading settings does not import NumPy.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast._errors import InvalidValue
from holdfast.telemetry.bins import LONG_TERM, MINUTE, SHORT_TERM

SHORT_PERIODS = (10, 20, 30)
"""Periods below a minute, in seconds. CloudWatch has no others."""
MAX_PERIOD = 900
"""Longest period in seconds. Measurements by instance are kept for as long: a restart can still count contributors."""
MAX_PATTERN = 5
"""Datapoints that decide the alarms with the longest pattern, 3 of 5."""
USUAL_SECONDS = 3600.0
"""Seconds before the evaluation range that the usual share of each zone comes from."""


class AlarmOptions(Struct, frozen=True, kw_only=True):
    """Thresholds of a workload's alarms, and the choices that AWS does not publish."""

    period: Annotated[int, Meta(ge=10, le=900)] = 60
    """Seconds of one datapoint. A minute, as most alarms in CloudWatch have. With 10, alarms are six times as quick."""
    min_availability: Annotated[float, Meta(gt=0, le=100)] = 99.0
    """Per cent of requests without a fault, below which a datapoint breaches. Healthy services stay above 99."""
    latency_statistic: Annotated[str, Meta(pattern=r"^(Average|Minimum|Maximum|(p|tm|wm)[0-9][0-9]?([.][0-9]+)?)$")] = (
        "p90"
    )
    """The 90th percentile shows slowness that the mean hides, and ignores a few outliers."""
    max_latency: Annotated[float, Meta(gt=0, le=3600)] = 0.5
    """Seconds above which a datapoint, or a single request of an instance, is slow. People notice longer waits."""
    contributors: Annotated[int, Meta(ge=0, le=100_000)] = 2
    """More instances must contribute before a zone is to blame. Two instances are cheaper to replace than a zone."""
    contributor_share: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    """They must also be more than this share of the zone's instances. In a large zone a few are always bad."""
    throughput_drop: Annotated[float, Meta(gt=0, le=100)] = 50.0
    """Per cent by which a zone's share of requests must fall below that of the last hour.

    With two zones, the return of one halves the share of the other: a drop of 50 %, and not more.
    """
    chi_squared_periods: Annotated[int, Meta(ge=1, le=60)] = 1
    """Datapoints whose faults one outlier test adds up. One finds an outlier soonest; rare faults need several."""
    extra_periods: Annotated[int, Meta(ge=0, le=20)] | None = None
    """Periods before the evaluation periods that may replace missing datapoints. AWS does not publish their number.

    None means a third of the evaluation periods, but at least 2: it gives the only published range, 5 for 3 periods.
    """
    percentile_interpolation: Literal["nearest_rank", "linear"] = "nearest_rank"
    """Computation of a percentile between two values, which AWS does not publish. `Interpolation` describes both."""

    def __post_init__(self) -> None:
        period = self.period
        if not 10 <= period <= MAX_PERIOD or (period not in SHORT_PERIODS and period % 60):
            raise InvalidValue(
                f"alarms: period is {period}: expected 10, 20, 30, or a multiple of 60 up to {MAX_PERIOD} seconds, "
                "because measurements by instance are kept for 15 minutes"
            )
        if self.window > self.kept:
            raise InvalidValue(
                f"alarms: {self.window // period} periods of {period} seconds are needed, but measurements are kept "
                f"for {self.kept:.0f} seconds: lower chi_squared_periods, extra_periods or period"
            )

    @property
    def step(self) -> int:
        """Seconds between two evaluations: 10 for periods below a minute, otherwise 60. Windows slide by as much."""
        return 10 if self.period < MINUTE else 60

    @property
    def window(self) -> int:
        """Seconds of measurements that one evaluation needs, without the hour before for the usual throughput."""
        return self.period * (get_range(MAX_PATTERN, self.extra_periods) + self.chi_squared_periods - 1)

    @property
    def kept(self) -> float:
        """Seconds for which measurements with bins of `step` seconds are kept, after the hour of usual throughput."""
        return SHORT_TERM if self.period < MINUTE else LONG_TERM - USUAL_SECONDS

    @property
    def suppression_period(self) -> int:
        """Seconds of the wait period and of the extension period of actions: one period, at most a minute.

        Two alarms about the same trouble may differ by one datapoint, so they need no longer wait. AWS advises 60 s;
        with a period of 10 s, that would triple the time until an action.
        """
        return min(self.period, 60)


def get_range(number: int, extra_periods: int | None = None) -> int:
    """Return the evaluation range: `number` evaluation periods, and `extra_periods` before them."""
    return number + (max(number // 3, 2) if extra_periods is None else extra_periods)
