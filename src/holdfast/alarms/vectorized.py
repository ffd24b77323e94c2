"""Evaluate many metric alarms at once, by the same rules as `metric_evaluation`. Pure. Needs NumPy.

One row is one alarm. Only alarms whose state changes need a reason: evaluate those with `evaluate_alarm`, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast._errors import InvalidValue, MissingExtra
from holdfast.alarms.alarm import StateValue
from holdfast.alarms.metric_alarm import ComparisonOperator, LowSampleCount, MetricAlarm, TreatMissingData
from holdfast.alarms.metric_evaluation import get_evaluation_range

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("alarms", "server") from error

STATES = (StateValue.OK, StateValue.ALARM, StateValue.INSUFFICIENT_DATA)
"""States by their code."""
OK, ALARM, INSUFFICIENT_DATA = range(3)


@dataclass(frozen=True, slots=True)
class AlarmTable:
    """The rules of many alarms as columns."""

    thresholds: "NDArray[np.float64]"
    upward: "NDArray[np.bool_]"
    """Whether values above the threshold breach."""
    inclusive: "NDArray[np.bool_]"
    """Whether the threshold itself breaches."""
    numbers: "NDArray[np.int64]"
    """Evaluation periods."""
    required: "NDArray[np.int64]"
    """Datapoints to alarm."""
    ranges: "NDArray[np.int64]"
    minimum_samples: "NDArray[np.float64]"
    """Number of samples below which an alarm keeps its state; 0 for an alarm that does not count samples."""
    breaching: "NDArray[np.bool_]"
    """The treatments of missing data, one column each; `missing` is none of them."""
    not_breaching: "NDArray[np.bool_]"
    ignore: "NDArray[np.bool_]"

    @classmethod
    def of(cls, alarms: Sequence[MetricAlarm], extra_periods: int | None = None) -> "AlarmTable":
        """Return the table of `alarms`, in their order. `get_evaluation_range` describes `extra_periods`."""
        rows = [_build_row(alarm, extra_periods) for alarm in alarms]
        columns: list[NDArray[Any]] = [
            np.array([row[index] for row in rows], kind)
            for index, kind in enumerate((float, bool, bool, int, int, int, float, bool, bool, bool))
        ]
        return cls(*columns)

    @property
    def width(self) -> int:
        """Number of periods that `evaluate` needs: the longest evaluation range."""
        return int(self.ranges.max(initial=0))

    def evaluate(
        self,
        values: "NDArray[np.float64]",
        states: "NDArray[np.int8]",
        samples: "NDArray[np.float64] | None" = None,
        watched: "NDArray[np.bool_] | None" = None,
    ) -> "NDArray[np.int8]":
        """Return the new state of each alarm, as an index of `STATES`.

        `values` has a row for each alarm and a column for each period, oldest first; NaN means no data. Periods before
        an alarm's evaluation range are not used. `samples` are the sample counts of `values`, if any alarm needs them.
        `watched` says of each period, for all alarms or for each, whether data could have been received. An alarm keeps
        its state if the treatment of periods in which it could not would decide.
        """
        if values.shape[0] != len(self.thresholds) or values.shape[1] < self.width:
            raise InvalidValue(
                f"values of alarms: shape {values.shape}: expected {len(self.thresholds)} rows and at least "
                f"{self.width} columns"
            )
        ages = np.arange(values.shape[1], 0, -1)
        real = ~np.isnan(values) & (ages <= self.ranges[:, None])
        ranks = np.cumsum(real[:, ::-1], axis=1)[:, ::-1]
        used = real & (ranks <= self.numbers[:, None])
        number_used = used.sum(axis=1)
        breaching = (used & self._compare(values)).sum(axis=1)
        filled = self.numbers - number_used

        fills = self.breaching | self.not_breaching
        total = breaching + np.where(self.breaching, filled, 0)
        enough = filled == 0
        oldest_age = np.where(used, ages, 0).max(axis=1, initial=0)
        is_alarm = total >= self.required
        is_decided = enough | fills | is_alarm | (breaching < number_used)
        is_old = ~self.ignore & (number_used > 0) & (oldest_age >= self.required)
        without_data = np.where(self.ignore, states, INSUFFICIENT_DATA)
        undecided = np.where(number_used == 0, without_data, np.where(is_old, ALARM, states))
        found = np.where(is_decided, np.where(is_alarm, ALARM, OK), undecided)
        if samples is not None:
            number_of_samples = np.where(used, samples, 0.0).sum(axis=1)
            found = np.where((number_used > 0) & (number_of_samples < self.minimum_samples), states, found)
        if watched is not None:
            is_newest = ages <= self.numbers[:, None]
            unwatched = np.minimum(filled, (~watched & is_newest).sum(axis=1))
            otherwise = total + np.where(self.breaching, -unwatched, unwatched) >= self.required
            found = np.where(fills & (otherwise != is_alarm), states, found)
        return found.astype(np.int8)

    def _compare(self, values: "NDArray[np.float64]") -> "NDArray[np.bool_]":
        """Return where values breach. NaN never does."""
        thresholds = self.thresholds[:, None]
        beyond = np.where(self.upward[:, None], values > thresholds, values < thresholds)
        found: NDArray[np.bool_] = beyond | (self.inclusive[:, None] & (values == thresholds))
        return found


def _build_row(alarm: MetricAlarm, extra_periods: int | None) -> tuple[float | bool, ...]:
    operator, treatment = alarm.comparison_operator, alarm.missing_data_treatment
    statistic = alarm.parsed_statistic
    is_low = alarm.evaluate_low_sample_count_percentile is LowSampleCount.IGNORE and statistic is not None
    return (
        alarm.threshold,
        operator in (ComparisonOperator.GREATER_THAN, ComparisonOperator.GREATER_THAN_OR_EQUAL),
        operator in (ComparisonOperator.LESS_THAN_OR_EQUAL, ComparisonOperator.GREATER_THAN_OR_EQUAL),
        alarm.evaluation_periods,
        alarm.required_breaches,
        get_evaluation_range(alarm, extra_periods),
        statistic.minimum_samples if is_low and statistic is not None else 0.0,
        treatment is TreatMissingData.BREACHING,
        treatment is TreatMissingData.NOT_BREACHING,
        treatment is TreatMissingData.IGNORE,
    )
