"""Fields that metric and composite alarms share, their state, and their history in CloudWatch's shape. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct, json

from holdfast._errors import InvalidValue

MAX_NAME = 255
MAX_ACTIONS = 5
"""Maximum actions of an alarm in one state."""
INITIAL_REASON = "Unchecked: Initial alarm creation"


class StateValue(StrEnum):
    """The three states of an alarm."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class AlarmState(Struct, frozen=True):
    """The state of one alarm. The default is the state of an alarm that was never evaluated."""

    state_value: StateValue = StateValue.INSUFFICIENT_DATA
    state_reason: str = INITIAL_REASON
    state_reason_data: str | None = None
    """JSON, or None before the first change."""
    state_updated_timestamp: float = 0.0
    """When `state_value` changed last, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The part of a definition that metric and composite alarms share. Fields have CloudWatch's names."""

    TYPE: ClassVar[str]
    """CloudWatch's AlarmType."""

    alarm_name: str
    alarm_description: str = ""
    actions_enabled: bool = True
    ok_actions: tuple[str, ...] = ()
    alarm_actions: tuple[str, ...] = ()
    insufficient_data_actions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.alarm_name) <= MAX_NAME:
            raise InvalidValue(f"alarm name {self.alarm_name[:40]!r}: expected 1 to {MAX_NAME} characters")
        for name in ("ok_actions", "alarm_actions", "insufficient_data_actions"):
            if len(getattr(self, name)) > MAX_ACTIONS:
                raise InvalidValue(
                    f"alarm {self.alarm_name}: {name} has {len(getattr(self, name))} actions: "
                    f"expected at most {MAX_ACTIONS}"
                )

    def get_actions(self, state: StateValue) -> tuple[str, ...]:
        """Return the actions to run when the alarm changes to `state`."""
        if not self.actions_enabled:
            return ()
        match state:
            case StateValue.OK:
                return self.ok_actions
            case StateValue.ALARM:
                return self.alarm_actions
            case _:
                return self.insufficient_data_actions


class HistoryItemType(StrEnum):
    """The kinds of history items that Holdfast writes."""

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


def build_state_update(
    alarm: Alarm, old: AlarmState, new: AlarmState, suppressed_by: StrEnum | None = None
) -> HistoryItem:
    """Return the history item of a change of state. `suppressed_by` names the reason if no action runs now."""
    new_state = _describe_state(new)
    if suppressed_by is not None:
        new_state["actionsSuppressedBy"] = suppressed_by.value
        new_state["actionsSuppressedReason"] = f"Actions suppressed by {suppressed_by.value}"
    return HistoryItem(
        alarm.alarm_name,
        alarm.TYPE,
        new.state_updated_timestamp,
        HistoryItemType.STATE_UPDATE,
        summarize_update(old.state_value, new.state_value),
        encode_json({"version": "1.0", "oldState": _describe_state(old), "newState": new_state}),
    )


def summarize_update(old: StateValue, new: StateValue) -> str:
    """Return the summary of a change of state, worded as CloudWatch does."""
    return f"Alarm updated from {old} to {new}"


def build_configuration_update(alarm: Alarm, verb: str, at: float, configuration: Mapping[str, object]) -> HistoryItem:
    """Return the history item of an alarm that was `created`, `updated` or `deleted`."""
    data = {"version": "1.0", "type": verb.removesuffix("d").capitalize(), f"{verb}Alarm": configuration}
    summary = f'Alarm "{alarm.alarm_name}" {verb}'
    kind = HistoryItemType.CONFIGURATION_UPDATE
    return HistoryItem(alarm.alarm_name, alarm.TYPE, at, kind, summary, encode_json(data))


def build_action(alarm: Alarm, action: str, at: float, error: str | None = None) -> HistoryItem:
    """Return the history item of an action that was run, or that failed with `error`."""
    data = {
        "actionState": "Succeeded" if error is None else "Failed",
        "notificationResource": action,
        "error": error,
    }
    summary = f"Successfully executed action {action}" if error is None else f"Failed to execute action {action}"
    return HistoryItem(alarm.alarm_name, alarm.TYPE, at, HistoryItemType.ACTION, summary, encode_json(data))


def encode_json(data: object) -> str:
    """Return compact JSON."""
    return json.encode(data).decode()


def format_time(at: float) -> str:
    """Return a time as CloudWatch writes it in JSON, such as 2026-01-31T12:00:00.000+0000."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}+0000"


def _describe_state(state: AlarmState) -> dict[str, Any]:
    described: dict[str, Any] = {"stateValue": state.state_value, "stateReason": state.state_reason}
    if state.state_reason_data is not None:
        described["stateReasonData"] = json.decode(state.state_reason_data)
    return described
