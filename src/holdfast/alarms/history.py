"""The history of alarms, in the shape of CloudWatch: changes of state, of configuration, and actions. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, json

from holdfast.alarms.actions import AlarmAction, AlarmChange
from holdfast.alarms.alarm import AlarmState, encode_json
from holdfast.alarms.configuration import ConfigurationChange, SavedDefinition
from holdfast.alarms.engine import Evaluation


class HistoryItemType(StrEnum):
    """The kinds of history items."""

    CONFIGURATION_UPDATE = "ConfigurationUpdate"
    STATE_UPDATE = "StateUpdate"
    ACTION = "Action"


class HistoryItem(Struct, frozen=True, rename="pascal"):
    """An event in the life of an alarm. Encoded as JSON, it has the members of CloudWatch's AlarmHistoryItem."""

    alarm_name: str
    alarm_type: str
    timestamp: float
    history_item_type: HistoryItemType
    history_summary: str
    history_data: str
    """JSON."""


class HistoryEntry(NamedTuple):
    """A history item, and whether a list of news about a workload leaves it out."""

    item: HistoryItem
    is_detail: bool
    """Whether it is about a single operation, is a first state of OK, or was there from the first start."""


def build_history(evaluation: Evaluation, definitions: Mapping[str, SavedDefinition]) -> list[HistoryEntry]:
    """Return the history of an evaluation. Items of one alarm are in the order in which they happened."""
    about_operations = {name for name, each in definitions.items() if each.is_about_operation}
    return [
        *(
            HistoryEntry(build_configuration_update(each), each.is_first or each.definition.is_about_operation)
            for each in evaluation.configuration
            if each.is_recorded
        ),
        *(
            HistoryEntry(build_state_update(each), not each.is_news or each.alarm.alarm_name in about_operations)
            for each in evaluation.changes
        ),
        *(HistoryEntry(build_action(each), is_detail=False) for each in evaluation.actions),
    ]


def build_state_update(change: AlarmChange) -> HistoryItem:
    """Return the history item of a change of state."""
    alarm, old, new, suppressed_by = change
    new_state = _describe_state(new)
    if suppressed_by is not None:
        new_state["actionsSuppressedBy"] = suppressed_by.value
        new_state["actionsSuppressedReason"] = f"Actions suppressed by {suppressed_by.value}"
    return HistoryItem(
        alarm.alarm_name,
        alarm.TYPE,
        new.state_updated_timestamp,
        HistoryItemType.STATE_UPDATE,
        f"Alarm updated from {old.state_value} to {new.state_value}",
        encode_json({"version": "1.0", "oldState": _describe_state(old), "newState": new_state}),
    )


def build_configuration_update(change: ConfigurationChange) -> HistoryItem:
    """Return the history item of an alarm that was created, changed or deleted."""
    name, verb, definition, at, configuration, *_ = change
    data = {"version": "1.0", "type": verb.removesuffix("d").capitalize(), f"{verb}Alarm": configuration}
    kind = HistoryItemType.CONFIGURATION_UPDATE
    return HistoryItem(name, definition.alarm_type, at, kind, f'Alarm "{name}" {verb}', encode_json(data))


def build_action(action: AlarmAction) -> HistoryItem:
    """Return the history item of an action that ran, or that was withheld."""
    alarm, suppressed_by = action.alarm, action.suppressed_by
    data: dict[str, Any] = {"actionState": "Succeeded", "notificationResource": action.action}
    summary = f"Successfully executed action {action.action}"
    if suppressed_by is not None:
        data |= {"actionState": "Suppressed", "actionsSuppressedBy": suppressed_by}
        summary = f"Suppressed action {action.action} by {suppressed_by}"
    data["stateValue"] = action.state.state_value
    return HistoryItem(alarm.alarm_name, alarm.TYPE, action.at, HistoryItemType.ACTION, summary, encode_json(data))


def _describe_state(state: AlarmState) -> dict[str, Any]:
    described: dict[str, Any] = {"stateValue": state.state_value, "stateReason": state.state_reason}
    if state.state_reason_data is not None:
        described["stateReasonData"] = json.decode(state.state_reason_data)
    return described
