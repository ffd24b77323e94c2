"""Fields that metric and composite alarms share, and their state. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

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
    """Time of the last change of `state_value`, in seconds since the epoch."""


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


def encode_json(data: object) -> str:
    """Return compact JSON."""
    return json.encode(data).decode()


def format_time(at: float) -> str:
    """Return a time as CloudWatch writes it in JSON, such as 2026-01-31T12:00:00.000+0000."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}+0000"
