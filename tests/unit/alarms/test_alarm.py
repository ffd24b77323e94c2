"""Fields and states that all alarms share."""

from dataclasses import replace

import msgspec
import pytest

from holdfast import InvalidValue
from holdfast.alarms import AlarmState, ComparisonOperator, MetricAlarm, StateValue
from holdfast.alarms.alarm import format_time

DEFINITION = MetricAlarm(
    alarm_name="a",
    namespace="shop",
    metric_name="5xx",
    statistic="Sum",
    period=60,
    evaluation_periods=1,
    threshold=1,
    comparison_operator=ComparisonOperator.GREATER_THAN,
)
NOON = 1_698_321_600.0


def test_names_and_actions_have_limits() -> None:
    for name in ("", "x" * 256):
        with pytest.raises(InvalidValue, match="expected 1 to 255 characters"):
            replace(DEFINITION, alarm_name=name)
    with pytest.raises(InvalidValue, match="alarm a: ok_actions has 6 actions: expected at most 5"):
        replace(DEFINITION, ok_actions=("mail",) * 6)


def test_actions_belong_to_a_state_and_can_be_disabled() -> None:
    alarm = replace(
        DEFINITION,
        ok_actions=("mail",),
        alarm_actions=("evacuate", "page"),
        insufficient_data_actions=("look",),
    )
    assert {state: alarm.get_actions(state) for state in StateValue} == {
        StateValue.OK: ("mail",),
        StateValue.ALARM: ("evacuate", "page"),
        StateValue.INSUFFICIENT_DATA: ("look",),
    }
    assert replace(alarm, actions_enabled=False).get_actions(StateValue.ALARM) == ()


def test_a_state_survives_encoding() -> None:
    state = AlarmState(StateValue.OK, "fine", "{}", NOON)
    assert msgspec.json.decode(msgspec.json.encode(state), type=AlarmState) == state
    assert format_time(NOON + 0.9876) == "2023-10-26T12:00:00.987+0000"
