"""Withhold the actions of a composite alarm while another alarm, its suppressor, explains the trouble. Pure.

A transition of the composite alarm makes its actions pending.

| suppressor | event | then |
|---|---|---|
| in ALARM | transition | withhold |
| not in ALARM | transition | start the wait period, and drop a running timer |
| enters ALARM, also at the end of the wait period | | drop a running timer, and withhold |
| leaves ALARM | | start the extension period |
| | end of the wait or extension period | run the actions of the current state, if they are pending |
| is replaced | | drop a running timer; withhold, or start a wait period if actions are pending |

So an alarm that went to ALARM and back to OK during the wait period runs its OK actions once.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from holdfast._errors import InvalidValue
from holdfast.alarms.alarm import StateValue


class SuppressedBy(StrEnum):
    """The reasons for which actions do not run now."""

    WAIT_PERIOD = "WaitPeriod"
    EXTENSION_PERIOD = "ExtensionPeriod"
    ALARM = "Alarm"


@dataclass(frozen=True, slots=True)
class Suppressor:
    """The suppressor of a composite alarm, and its two periods in seconds."""

    alarm: str
    wait_period: int
    """Seconds that actions wait for the suppressor to enter ALARM."""
    extension_period: int
    """Seconds that actions are withheld after the suppressor left ALARM."""

    def __post_init__(self) -> None:
        for name in ("wait_period", "extension_period"):
            if getattr(self, name) < 0:
                raise InvalidValue(f"suppressor {self.alarm}: {name} {getattr(self, name)}: expected 0 or more seconds")


@dataclass(frozen=True, slots=True)
class Suppression:
    """The actions of one composite alarm: whether they are pending, and the reason if they do not run."""

    state: StateValue = StateValue.INSUFFICIENT_DATA
    """The current state of the composite alarm."""
    is_pending: bool = False
    suppressed_by: SuppressedBy | None = None
    until: float | None = None
    """End of the wait or extension period; None if neither runs."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The composite alarm has changed its state."""

    at: float
    state: StateValue
    suppressor_is_alarm: bool


@dataclass(frozen=True, slots=True)
class SuppressorChanged:
    """The suppressor has entered or left ALARM."""

    at: float
    is_alarm: bool


@dataclass(frozen=True, slots=True)
class SuppressorReplaced:
    """The composite alarm was given another suppressor."""

    at: float
    is_alarm: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    at: float


SuppressionEvent: TypeAlias = Transition | SuppressorChanged | SuppressorReplaced | Tick


@dataclass(frozen=True, slots=True)
class DueActions:
    """The actions of `state` have to run. They became due at `at`."""

    at: float
    state: StateValue


def update_suppression(
    suppressor: Suppressor | None, suppression: Suppression, event: SuppressionEvent
) -> tuple[Suppression, tuple[DueActions, ...]]:
    """Return the suppression after an event, and the actions that are due. Events must be in order of time.

    Without a suppressor, actions are due with each transition.
    """
    # A timer that ended before the event acts on the state before the event. A suppressor that enters ALARM at the very
    # end of the wait period is in time: alarms are evaluated at such ends.
    is_in_time = isinstance(event, SuppressorChanged) and event.is_alarm and suppression.until == event.at
    expired, due = (suppression, ()) if is_in_time else _expire(suppression, event.at)
    after = _handle(suppressor, expired, event)
    after, more = _expire(after, event.at)
    return after, due + more


def _handle(suppressor: Suppressor | None, before: Suppression, event: SuppressionEvent) -> Suppression:
    is_pending = before.is_pending
    match event:
        case Tick():
            return before
        case Transition(at, state, is_alarm):
            return _hold(suppressor, Suppression(state, is_pending=True), at, is_alarm=is_alarm)
        case SuppressorReplaced(at, is_alarm):
            return _hold(suppressor, Suppression(before.state, is_pending), at, is_alarm=is_alarm)
        case _:
            extension = 0 if suppressor is None else suppressor.extension_period
            return replace(
                before,
                suppressed_by=SuppressedBy.ALARM if event.is_alarm else SuppressedBy.EXTENSION_PERIOD,
                until=None if event.is_alarm else event.at + extension,
            )


def _hold(suppressor: Suppressor | None, before: Suppression, at: float, *, is_alarm: bool) -> Suppression:
    """Withhold actions while the suppressor is in ALARM; otherwise wait if there are some."""
    if suppressor is not None and is_alarm:
        return replace(before, suppressed_by=SuppressedBy.ALARM)
    if not before.is_pending:
        return before
    wait = 0 if suppressor is None else suppressor.wait_period
    return replace(before, suppressed_by=SuppressedBy.WAIT_PERIOD, until=at + wait)


def _expire(before: Suppression, now: float) -> tuple[Suppression, tuple[DueActions, ...]]:
    if before.until is None or before.until > now:
        return before, ()
    due = (DueActions(before.until, before.state),) if before.is_pending else ()
    return Suppression(before.state), due
