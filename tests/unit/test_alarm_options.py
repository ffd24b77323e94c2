"""The options of alarms: periods of CloudWatch, as far as measurements are kept for them."""

import pytest

from holdfast import InvalidValue
from holdfast._alarm_options import AlarmOptions, get_range


@pytest.mark.parametrize("period", [10, 20, 30, 60, 120, 300, 900])
def test_periods_of_cloudwatch_up_to_15_minutes_are_valid(period: int) -> None:
    options = AlarmOptions(period=period)
    assert options.step == (10 if period < 60 else 60)
    assert options.window == 7 * period


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"period": 5}, "period is 5: expected 10, 20, 30, or a multiple of 60"),
        ({"period": 45}, "period is 45: expected 10, 20, 30, or a multiple of 60"),
        ({"period": 90}, "period is 90"),
        ({"period": 960}, "up to 900 seconds, because measurements by instance are kept for 15 minutes"),
        ({"period": 30, "chi_squared_periods": 25}, "31 periods of 30 seconds are needed, but .* kept for 900 seconds"),
    ],
)
def test_other_periods_are_refused_with_the_reason(options: dict[str, int], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        AlarmOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("period", "seconds"), [(10, 10), (30, 30), (60, 60), (300, 60)])
def test_actions_are_suppressed_for_a_period_but_at_most_a_minute(period: int, seconds: int) -> None:
    assert AlarmOptions(period=period).suppression_period == seconds


@pytest.mark.parametrize(("extra_periods", "periods"), [(None, [3, 5, 7, 16]), (0, [1, 3, 5, 12]), (4, [5, 7, 9, 16])])
def test_the_evaluation_range_has_extra_periods_by_default_a_third(
    extra_periods: int | None, periods: list[int]
) -> None:
    assert [get_range(number, extra_periods) for number in (1, 3, 5, 12)] == periods
