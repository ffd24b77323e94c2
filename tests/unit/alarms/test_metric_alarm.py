"""Definitions of metric alarms, and their limits."""

import math
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.alarms import (
    ComparisonOperator,
    LowSampleCount,
    MetricAlarm,
    MetricDataQuery,
    MetricStat,
    TreatMissingData,
)
from tests.table import every_row


def alarm(**changed: Any) -> MetricAlarm:
    given: dict[str, Any] = {
        "alarm_name": "slow",
        "namespace": "shop",
        "metric_name": "SuccessLatency",
        "statistic": "Average",
        "period": 60,
        "evaluation_periods": 5,
        "datapoints_to_alarm": 3,
        "threshold": 0.5,
        "comparison_operator": ComparisonOperator.GREATER_THAN,
    }
    return MetricAlarm(**(given | changed))


STAT = MetricStat(namespace="shop", metric_name="5xx", period=300, stat="Sum")
MATH: dict[str, Any] = {
    "namespace": "",
    "metric_name": "",
    "statistic": None,
    "period": None,
    "metrics": (MetricDataQuery(id="m1", metric_stat=STAT),),
}


def test_wrong_values_are_refused_with_the_name_of_the_alarm() -> None:
    def check(row: tuple[dict[str, Any], str]) -> None:
        changed, message = row
        with pytest.raises(InvalidValue, match=message):
            alarm(**changed)

    rows: list[tuple[dict[str, Any], str]] = [
        ({"alarm_name": ""}, "expected 1 to 255 characters"),
        ({"period": 15}, "alarm slow: period 15: expected 10, 20, 30 or a multiple of 60"),
        ({"period": 90}, "period 90"),
        ({"period": 0}, "period 0"),
        ({"evaluation_periods": 0}, "evaluation_periods 0"),
        ({"datapoints_to_alarm": 6}, "datapoints_to_alarm 6: expected 1 to evaluation_periods, 5"),
        ({"datapoints_to_alarm": 0}, "datapoints_to_alarm 0"),
        ({"evaluation_periods": 1441}, "1441 periods of 60 seconds: expected at most 86400"),
        ({"evaluation_periods": 169, "period": 3600}, "expected at most 604800"),
        ({"threshold": math.nan}, "threshold nan"),
        ({"namespace": ""}, "expected namespace, metric_name and period, or metrics"),
        ({"metric_name": ""}, "expected namespace, metric_name and period, or metrics"),
        ({"period": None}, "expected namespace, metric_name and period, or metrics"),
        ({"statistic": None}, "expected either statistic or extended_statistic"),
        ({"extended_statistic": "p99"}, "expected either statistic or extended_statistic"),
        ({"statistic": "p99"}, "statistic p99: expected SampleCount, Sum, .*, or extended_statistic"),
        ({"statistic": None, "extended_statistic": "TM(:99%)"}, "alarm slow: extended statistic TM"),
        ({"dimensions": (("a", "b"),) * 31}, "31 dimensions"),
        (
            {"evaluate_low_sample_count_percentile": LowSampleCount.IGNORE},
            "evaluate_low_sample_count_percentile: expected a percentile",
        ),
        (MATH | {"evaluate_low_sample_count_percentile": LowSampleCount.IGNORE}, "expected a percentile"),
        (MATH | {"statistic": "Sum", "unit": "Count"}, "statistic, unit: expected to be set in `metrics`"),
        (MATH | {"metrics": (MetricDataQuery(id="e1", expression="m1 +"),)}, "alarm slow: query e1: expected a number"),
    ]
    every_row(rows, check)


def test_the_longest_times_are_a_day_and_from_an_hour_on_a_week() -> None:
    assert alarm(evaluation_periods=1440).seconds == 60
    assert alarm(evaluation_periods=168, period=3600).seconds == 3600
    assert [alarm(period=each).seconds for each in (10, 20, 30)] == [10, 20, 30]
    assert alarm(**MATH).seconds == 300


def test_an_alarm_without_datapoints_to_alarm_needs_all() -> None:
    assert alarm().required_breaches == 3
    assert alarm(datapoints_to_alarm=None).required_breaches == 5


def test_each_operator_compares_with_the_threshold() -> None:
    found = {
        operator: [alarm(comparison_operator=operator).breaches(value) for value in (0.4, 0.5, 0.6)]
        for operator in ComparisonOperator
    }
    assert found == {
        ComparisonOperator.GREATER_THAN_OR_EQUAL: [False, True, True],
        ComparisonOperator.GREATER_THAN: [False, False, True],
        ComparisonOperator.LESS_THAN: [True, False, False],
        ComparisonOperator.LESS_THAN_OR_EQUAL: [True, True, False],
    }


def test_the_treatment_of_missing_data_is_the_given_one_except_for_dynamodb() -> None:
    breaching = TreatMissingData.BREACHING
    assert alarm(treat_missing_data=breaching).missing_data_treatment is breaching
    dynamodb = alarm(treat_missing_data=breaching, namespace="AWS/DynamoDB")
    assert dynamodb.missing_data_treatment is TreatMissingData.IGNORE
