"""The chi-squared test over errors per zone, with the examples and the table of critical values of its source."""

import math
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Zone
from holdfast.alarms import ChiSquaredEvent, find_outlier
from holdfast.alarms.chi_squared import get_tail_probability
from tests.table import every_row

AZ1, AZ2, AZ3, AZ4 = (Zone(f"use1-az{number}") for number in range(1, 5))
CRITICAL_VALUES = {
    1: (1.323, 2.706, 3.841, 6.635, 10.828),
    2: (2.773, 4.605, 5.991, 9.210, 13.816),
    3: (4.108, 6.251, 7.815, 11.345, 16.266),
    4: (5.385, 7.779, 9.488, 13.277, 18.467),
}
BELOW = (0.75, 0.90, 0.95, 0.99, 0.999)


def test_the_worked_example_is_not_significant() -> None:
    found = find_outlier({AZ1: 20, AZ2: 20, AZ3: 25, AZ4: 35})
    assert (found.statistic, found.degrees_of_freedom, found.expected) == (6.0, 3, 25.0)
    assert found.probability == pytest.approx(0.1116, abs=1e-4)
    assert not found.is_significant
    assert found.farthest == AZ4
    assert found.flags == {AZ1: 0, AZ2: 0, AZ3: 0, AZ4: 0}


def test_the_table_of_critical_values_comes_out() -> None:
    """The table is rounded to three digits, so the probability is as near as the slope times half a thousandth."""

    def check(row: tuple[int, float, float]) -> None:
        freedom, value, below = row
        assert (
            get_tail_probability(value - 0.0006, freedom) >= 1 - below >= get_tail_probability(value + 0.0006, freedom)
        )

    every_row(
        [
            (freedom, value, below)
            for freedom, values in CRITICAL_VALUES.items()
            for value, below in zip(values, BELOW, strict=True)
        ],
        check,
    )


def integrate_density(x: float, freedom: int) -> float:
    """Return the probability up to x by Simpson's rule over the square root of the variable, where it is smooth."""
    steps = 4000
    end = math.sqrt(x)
    scale = 2.0 / (2 ** (freedom / 2) * math.gamma(freedom / 2))

    def density(root: float) -> float:
        power = root ** (freedom - 1) if freedom > 1 else 1.0
        return scale * power * math.exp(-root * root / 2)

    weights = [1, *[4, 2] * (steps // 2 - 1), 4, 1]
    return end / steps / 3 * math.fsum(w * density(end * i / steps) for i, w in enumerate(weights))


@given(st.floats(1e-6, 60), st.integers(1, 12))
def test_the_tail_is_what_integration_leaves(x: float, freedom: int) -> None:
    assert get_tail_probability(x, freedom) == pytest.approx(1 - integrate_density(x, freedom), abs=1e-9)


def test_extreme_values_neither_overflow_nor_leave_the_range() -> None:
    assert get_tail_probability(0, 3) == 1.0
    assert get_tail_probability(1e6, 3) == 0.0
    assert get_tail_probability(1e300, 4) == 0.0
    assert get_tail_probability(1e-300, 400) == 1.0
    assert 0.4 < get_tail_probability(2000, 2000) < 0.5


@pytest.mark.parametrize(("x", "freedom"), [(1.0, 0), (-1.0, 2), (math.nan, 2), (math.inf, 2)])
def test_values_outside_of_the_distribution_are_refused(x: float, freedom: int) -> None:
    with pytest.raises(InvalidValue, match="degrees of freedom"):
        get_tail_probability(x, freedom)


def test_a_significant_difference_flags_the_farthest_zone_only() -> None:
    found = find_outlier({AZ1: 5, AZ2: 40, AZ3: 4})
    assert found.is_significant
    assert found.flags == {AZ1: 0, AZ2: 1, AZ3: 0}
    assert find_outlier({AZ1: 100, AZ2: 100, AZ3: 0}).farthest == AZ3  # the source's rule: far below counts as well
    assert not find_outlier({AZ1: 5, AZ2: 40, AZ3: 4}, significance=1e-12).is_significant


def test_ties_go_to_the_first_zone_and_too_little_data_flags_none() -> None:
    assert find_outlier({AZ1: 30, AZ2: 0}).farthest == AZ1
    for errors in ({}, {AZ1: 9.0}, {AZ1: 0.0, AZ2: 0.0}):
        found = find_outlier(errors)
        assert (found.statistic, found.probability, found.is_significant) == (0.0, 1.0, False)
        assert set(found.flags.values()) <= {0}


@pytest.mark.parametrize("count", [-1.0, 1e16, math.nan])
def test_impossible_counts_are_refused(count: float) -> None:
    with pytest.raises(InvalidValue, match="errors of zone use1-az2"):
        find_outlier({AZ1: 1, AZ2: count})


EVENT = """{
  "timestamp": "2023-03-15T15:26:37.527Z", "namespace": "multi-az/frontend", "metricName": "5xx",
  "dimensions": [{"Name": "Region", "Value": "us-east-1"}, {"Name": "Controller", "Value": "Home"}],
  "period": 60, "stat": "Sum", "unit": "Count", "chiSquareMetricName": "multi-az/chi-squared",
  "azs": ["use1-az2", "use1-az4", "use1-az6"]
}"""


def test_an_event_looks_at_the_last_complete_minute_and_gives_a_value_for_each_zone() -> None:
    event = msgspec.json.decode(EVENT, type=ChiSquaredEvent)
    start, end = (datetime.fromtimestamp(at, UTC) for at in event.get_window())
    assert (start, end) == (datetime(2023, 3, 15, 15, 25, tzinfo=UTC), datetime(2023, 3, 15, 15, 26, tzinfo=UTC))
    local = msgspec.structs.replace(event, timestamp=event.timestamp.replace(tzinfo=None))
    assert local.get_window() == event.get_window()
    data = event.build_metric_data(find_outlier({Zone("use1-az2"): 50, Zone("use1-az4"): 2}))
    assert [each["Value"] for each in data] == [1, 0, 0]
    assert data[0] == {
        "MetricName": "multi-az/chi-squared",
        "Dimensions": [
            {"Name": "Region", "Value": "us-east-1"},
            {"Name": "Controller", "Value": "Home"},
            {"Name": "AZ-ID", "Value": "use1-az2"},
        ],
        "Timestamp": start,
        "Value": 1,
    }
