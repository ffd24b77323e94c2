"""The definition of a metric alarm, with CloudWatch's fields and limits. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from operator import ge, gt, le, lt
from typing import ClassVar, NoReturn

from holdfast._alarm_options import SHORT_PERIODS
from holdfast._errors import InvalidValue
from holdfast.alarms.alarm import Alarm
from holdfast.alarms.metric_queries import MetricDataQuery, QueryPlan
from holdfast.alarms.statistics import (
    BASIC_STATISTICS,
    Statistic,
    StatisticKind,
    parse_alarm_statistic,
    parse_statistic,
)

HOUR = 3_600
DAY = 86_400
WEEK = 604_800
MAX_DIMENSIONS = 30


class ComparisonOperator(StrEnum):
    """The comparison with the threshold that a breaching datapoint meets."""

    GREATER_THAN_OR_EQUAL = "GreaterThanOrEqualToThreshold"
    GREATER_THAN = "GreaterThanThreshold"
    LESS_THAN = "LessThanThreshold"
    LESS_THAN_OR_EQUAL = "LessThanOrEqualToThreshold"


COMPARISONS: dict[ComparisonOperator, Callable[[float, float], bool]] = {
    ComparisonOperator.GREATER_THAN_OR_EQUAL: ge,
    ComparisonOperator.GREATER_THAN: gt,
    ComparisonOperator.LESS_THAN: lt,
    ComparisonOperator.LESS_THAN_OR_EQUAL: le,
}


class TreatMissingData(StrEnum):
    """The treatment of periods without data, if the other periods do not have enough data."""

    MISSING = "missing"
    IGNORE = "ignore"
    BREACHING = "breaching"
    NOT_BREACHING = "notBreaching"


class LowSampleCount(StrEnum):
    """The treatment of a percentile of few values."""

    EVALUATE = "evaluate"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAlarm(Alarm):
    """An alarm on one metric, or on an expression over several. Fields have CloudWatch's names."""

    TYPE: ClassVar[str] = "MetricAlarm"

    namespace: str = ""
    metric_name: str = ""
    dimensions: tuple[tuple[str, str], ...] = ()
    """Names and values."""
    statistic: str | None = None
    extended_statistic: str | None = None
    period: int | None = None
    """Seconds of one datapoint: 10, 20, 30 or a multiple of 60."""
    unit: str | None = None
    metrics: tuple[MetricDataQuery, ...] = ()
    """Queries of an alarm on metric math, instead of the fields above."""
    evaluation_periods: int
    """N: the number of datapoints that decide."""
    datapoints_to_alarm: int | None = None
    """M: the number of them that must breach. None means all."""
    threshold: float
    comparison_operator: ComparisonOperator
    treat_missing_data: TreatMissingData = TreatMissingData.MISSING
    evaluate_low_sample_count_percentile: LowSampleCount = LowSampleCount.EVALUATE
    plan: QueryPlan | None = field(init=False, default=None, repr=False, compare=False)
    """The checked `metrics`."""

    def __post_init__(self) -> None:
        Alarm.__post_init__(self)
        if self.metrics:
            self._check_metrics()
        else:
            self._check_metric()
        self._check_periods()
        if not math.isfinite(self.threshold):
            self._refuse(f"threshold {self.threshold}: expected a finite number")
        if self.evaluate_low_sample_count_percentile is LowSampleCount.IGNORE and (
            self.parsed_statistic is None or self.parsed_statistic.kind is not StatisticKind.PERCENTILE
        ):
            self._refuse("evaluate_low_sample_count_percentile: expected a percentile such as p99")

    @property
    def seconds(self) -> int:
        """Seconds of one datapoint."""
        return self.plan.period if self.plan is not None else self.period or 0

    @property
    def required_breaches(self) -> int:
        """M of "M out of N"."""
        return self.evaluation_periods if self.datapoints_to_alarm is None else self.datapoints_to_alarm

    @property
    def missing_data_treatment(self) -> TreatMissingData:
        """The treatment in force: for metrics of DynamoDB, CloudWatch always ignores missing data."""
        return TreatMissingData.IGNORE if self.namespace == "AWS/DynamoDB" else self.treat_missing_data

    @property
    def parsed_statistic(self) -> Statistic | None:
        """The statistic of each datapoint; None for metric math."""
        text = self.statistic or self.extended_statistic
        return parse_statistic(text) if text is not None else None

    def breaches(self, value: float) -> bool:
        """Return whether a datapoint breaches the threshold."""
        return COMPARISONS[self.comparison_operator](value, self.threshold)

    def _check_metrics(self) -> None:
        given = ("namespace", "metric_name", "dimensions", "statistic", "extended_statistic", "period", "unit")
        if unused := [name for name in given if getattr(self, name)]:
            self._refuse(f"{', '.join(unused)}: expected to be set in `metrics`, for each metric of the expression")
        try:
            object.__setattr__(self, "plan", QueryPlan(self.metrics))
        except InvalidValue as error:
            raise InvalidValue(f"alarm {self.alarm_name}: {error}") from error

    def _check_metric(self) -> None:
        if not self.metric_name or not self.namespace or self.period is None:
            self._refuse("expected namespace, metric_name and period, or metrics")
        if (self.statistic is None) == (self.extended_statistic is None):
            self._refuse("expected either statistic or extended_statistic")
        if len(self.dimensions) > MAX_DIMENSIONS:
            self._refuse(f"{len(self.dimensions)} dimensions: expected at most {MAX_DIMENSIONS}")
        if self.statistic is not None and self.statistic not in BASIC_STATISTICS:
            self._refuse(f"statistic {self.statistic}: expected {', '.join(BASIC_STATISTICS)}, or extended_statistic")
        if self.extended_statistic is not None:
            try:
                parse_alarm_statistic(self.extended_statistic)
            except InvalidValue as error:
                raise InvalidValue(f"alarm {self.alarm_name}: {error}") from error

    def _check_periods(self) -> None:
        seconds, number = self.seconds, self.evaluation_periods
        if seconds not in SHORT_PERIODS and (seconds < 60 or seconds % 60):
            self._refuse(f"period {seconds}: expected 10, 20, 30 or a multiple of 60 seconds")
        if number < 1:
            self._refuse(f"evaluation_periods {number}: expected at least 1")
        if not 1 <= self.required_breaches <= number:
            self._refuse(f"datapoints_to_alarm {self.datapoints_to_alarm}: expected 1 to evaluation_periods, {number}")
        longest = WEEK if seconds >= HOUR else DAY
        if seconds * number > longest:
            self._refuse(
                f"{number} periods of {seconds} seconds: expected at most {longest} seconds together, "
                "a week from a period of an hour on, otherwise a day"
            )

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidValue(f"alarm {self.alarm_name}: {problem}")
