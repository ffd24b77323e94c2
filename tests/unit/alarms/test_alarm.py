"""History in CloudWatch's shape."""

import json
from dataclasses import replace

import msgspec
import pytest

from holdfast import InvalidValue
from holdfast.alarms import AlarmState, ComparisonOperator, HistoryItem, MetricAlarm, StateValue
from holdfast.alarms.alarm import build_action, build_configuration_update, build_state_update, format_time
from holdfast.alarms.suppression import SuppressedBy

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


def encode(item: HistoryItem) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(item)
    found["HistoryData"] = json.loads(str(found["HistoryData"]))
    return found


def test_a_change_of_state_is_recorded_with_both_states() -> None:
    old = AlarmState()
    new = AlarmState(StateValue.ALARM, "broken", '{"version":"1.0"}', NOON)
    assert encode(build_state_update(DEFINITION, old, new)) == {
        "AlarmName": "a",
        "AlarmType": "MetricAlarm",
        "Timestamp": NOON,
        "HistoryItemType": "StateUpdate",
        "HistorySummary": "Alarm updated from INSUFFICIENT_DATA to ALARM",
        "HistoryData": {
            "version": "1.0",
            "oldState": {"stateValue": "INSUFFICIENT_DATA", "stateReason": "Unchecked: Initial alarm creation"},
            "newState": {"stateValue": "ALARM", "stateReason": "broken", "stateReasonData": {"version": "1.0"}},
        },
    }


def test_a_suppressed_change_names_the_cause() -> None:
    new = AlarmState(StateValue.ALARM, "broken", None, NOON)
    data = json.loads(build_state_update(DEFINITION, AlarmState(), new, SuppressedBy.WAIT_PERIOD).history_data)
    assert data["newState"]["actionsSuppressedBy"] == "WaitPeriod"
    assert data["newState"]["actionsSuppressedReason"] == "Actions suppressed by WaitPeriod"


@pytest.mark.parametrize(("verb", "kind"), [("created", "Create"), ("updated", "Update"), ("deleted", "Delete")])
def test_changes_of_the_definition_are_recorded(verb: str, kind: str) -> None:
    item = encode(build_configuration_update(DEFINITION, verb, NOON, {"AlarmName": "a"}))
    assert item["HistorySummary"] == f'Alarm "a" {verb}'
    assert item["HistoryItemType"] == "ConfigurationUpdate"
    assert item["HistoryData"] == {"version": "1.0", "type": kind, f"{verb}Alarm": {"AlarmName": "a"}}


def test_actions_are_recorded_whether_they_succeed_or_fail() -> None:
    succeeded, failed = build_action(DEFINITION, "page", NOON), build_action(DEFINITION, "page", NOON, "no route")
    assert (succeeded.history_item_type, succeeded.history_summary) == ("Action", "Successfully executed action page")
    assert json.loads(succeeded.history_data)["actionState"] == "Succeeded"
    assert failed.history_summary == "Failed to execute action page"
    assert json.loads(failed.history_data) == {
        "actionState": "Failed",
        "notificationResource": "page",
        "error": "no route",
    }


def test_a_state_survives_encoding() -> None:
    state = AlarmState(StateValue.OK, "fine", "{}", NOON)
    assert msgspec.json.decode(msgspec.json.encode(state), type=AlarmState) == state
    assert format_time(NOON + 0.9876) == "2023-10-26T12:00:00.987+0000"
