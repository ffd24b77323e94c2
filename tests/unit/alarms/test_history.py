"""History in CloudWatch's shape."""

import json

import msgspec
import pytest

from holdfast.alarms import (
    AlarmAction,
    AlarmChange,
    AlarmState,
    CompositeAlarm,
    ConfigurationChange,
    ConfigurationVerb,
    Evaluation,
    HistoryItem,
    SavedDefinition,
    StateValue,
    SuppressedBy,
)
from holdfast.alarms.history import build_action, build_configuration_update, build_history, build_state_update

NOON = 1_698_321_600.0
ALARM = CompositeAlarm(alarm_name="a", alarm_rule="FALSE")
BROKEN = AlarmState(StateValue.ALARM, "broken", '{"version":"1.0"}', NOON)
DEFINITION = SavedDefinition("CompositeAlarm", "0123456789abcdef", is_about_operation=False)


def encode(item: HistoryItem) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(item)
    found["HistoryData"] = json.loads(str(found["HistoryData"]))
    return found


def test_a_change_of_state_is_recorded_with_both_states() -> None:
    assert encode(build_state_update(AlarmChange(ALARM, AlarmState(), BROKEN))) == {
        "AlarmName": "a",
        "AlarmType": "CompositeAlarm",
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
    change = AlarmChange(ALARM, AlarmState(), BROKEN, SuppressedBy.WAIT_PERIOD)
    data = json.loads(build_state_update(change).history_data)
    assert data["newState"]["actionsSuppressedBy"] == "WaitPeriod"
    assert data["newState"]["actionsSuppressedReason"] == "Actions suppressed by WaitPeriod"


@pytest.mark.parametrize(("verb", "kind"), [("created", "Create"), ("updated", "Update"), ("deleted", "Delete")])
def test_changes_of_the_definition_are_recorded(verb: str, kind: str) -> None:
    change = ConfigurationChange("a", ConfigurationVerb(verb), DEFINITION, NOON, {"alarmName": "a"})
    item = encode(build_configuration_update(change))
    assert (item["AlarmName"], item["AlarmType"], item["Timestamp"]) == ("a", "CompositeAlarm", NOON)
    assert item["HistorySummary"] == f'Alarm "a" {verb}'
    assert item["HistoryItemType"] == "ConfigurationUpdate"
    assert item["HistoryData"] == {"version": "1.0", "type": kind, f"{verb}Alarm": {"alarmName": "a"}}


def test_actions_are_recorded_whether_they_run_or_are_suppressed() -> None:
    ran = AlarmAction(ALARM, "page", NOON, StateValue.OK, BROKEN)
    assert encode(build_action(ran)) == {
        "AlarmName": "a",
        "AlarmType": "CompositeAlarm",
        "Timestamp": NOON,
        "HistoryItemType": "Action",
        "HistorySummary": "Successfully executed action page",
        "HistoryData": {"actionState": "Succeeded", "notificationResource": "page", "stateValue": "ALARM"},
    }
    withheld = encode(build_action(ran._replace(suppressed_by=SuppressedBy.ALARM)))
    assert withheld["HistorySummary"] == "Suppressed action page by Alarm"
    assert withheld["HistoryData"] == {
        "actionState": "Suppressed",
        "actionsSuppressedBy": "Alarm",
        "notificationResource": "page",
        "stateValue": "ALARM",
    }


def test_the_items_of_an_evaluation_are_in_the_order_of_events() -> None:
    created = ConfigurationChange("a", ConfigurationVerb.CREATED, DEFINITION, NOON, {})
    about_operation = msgspec.structs.replace(DEFINITION, is_about_operation=True)
    evaluation = Evaluation(
        NOON,
        [AlarmChange(ALARM, AlarmState(), BROKEN)],
        [AlarmAction(ALARM, "page", NOON, StateValue.OK, BROKEN)],
        [
            created,
            created._replace(definition=about_operation),
            created._replace(definition=about_operation, verb=ConfigurationVerb.UPDATED),
            created._replace(definition=about_operation, verb=ConfigurationVerb.DELETED),
        ],
    )
    assert [(entry.item.history_summary, entry.is_detail) for entry in build_history(evaluation, {})] == [
        ('Alarm "a" created', False),
        ('Alarm "a" updated', True),
        ("Alarm updated from INSUFFICIENT_DATA to ALARM", False),
        ("Successfully executed action page", False),
    ]


def test_a_first_ok_the_first_creation_and_all_about_operations_are_details_and_changes_by_traffic_are_left_out() -> (
    None
):
    healthy = AlarmState(StateValue.OK, "fine", None, NOON)
    quiet = AlarmState(StateValue.INSUFFICIENT_DATA, "no data", None, NOON)
    about_operation = CompositeAlarm(alarm_name="a/b", alarm_rule="FALSE")
    changes = [(ALARM, AlarmState(), healthy), (ALARM, quiet, healthy), (about_operation, healthy, BROKEN)]
    updated = ConfigurationChange("a", ConfigurationVerb.UPDATED, DEFINITION, NOON, {})
    configuration = [updated, updated._replace(is_first=True), updated._replace(is_by_traffic=True)]
    evaluation = Evaluation(NOON, [AlarmChange(*each) for each in changes], [], configuration)
    definitions = {"a": DEFINITION, "a/b": msgspec.structs.replace(DEFINITION, is_about_operation=True)}
    assert [entry.is_detail for entry in build_history(evaluation, definitions)] == [False, True, True, False, True]
