"""Decide which actions of alarms run after an evaluation, and which a suppressor withholds. Pure.

An action runs when its alarm changes its state, or, if the alarm has a suppressor, when `suppression` lets it. A first
state of OK is no news, and runs no action.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import Struct

from holdfast.alarms.alarm import Alarm, AlarmState, StateValue
from holdfast.alarms.composite import CompositeAlarm
from holdfast.alarms.suppression import (
    SuppressedBy,
    Suppression,
    SuppressionEvent,
    Suppressor,
    SuppressorChanged,
    SuppressorReplaced,
    Tick,
    Transition,
    update_suppression,
)


class AlarmChange(NamedTuple):
    """An alarm that changed its state."""

    alarm: Alarm
    old: AlarmState
    new: AlarmState
    suppressed_by: SuppressedBy | None = None
    """The reason if its actions do not run now."""

    @property
    def is_news(self) -> bool:
        """Whether people should know. A first state of OK is what they expect."""
        is_first = self.old.state_value is StateValue.INSUFFICIENT_DATA and not self.old.state_updated_timestamp
        return not is_first or self.new.state_value is not StateValue.OK


class AlarmAction(NamedTuple):
    """An action of an alarm that runs, or that is withheld for now."""

    alarm: Alarm
    action: str
    at: float
    old: StateValue
    """The state that actions ran for last."""
    state: AlarmState
    """The state that the action is for."""
    suppressed_by: SuppressedBy | None = None
    """None if the action runs."""
    was_suppressed: bool = False
    """Whether the action was withheld before it ran."""


class SuppressedActions(Struct, frozen=True):
    """The actions of an alarm with a suppressor, to be saved."""

    suppressor: str
    suppression: Suppression
    old: StateValue
    """The state that actions ran for last."""


class ActionControl:
    """The actions of all alarms of a workload. Not thread-safe."""

    def __init__(self, saved: Mapping[str, SuppressedActions]) -> None:
        self._suppressed = dict(saved)
        self._alarms: list[CompositeAlarm] = []

    @property
    def suppressed(self) -> Mapping[str, SuppressedActions]:
        """The actions of alarms with a suppressor, by the name of the alarm."""
        return self._suppressed

    def use(self, composites: Mapping[str, CompositeAlarm]) -> None:
        """Replace the alarms."""
        self._suppressed = {name: kept for name, kept in self._suppressed.items() if name in composites}
        self._alarms = [
            alarm for name, alarm in composites.items() if alarm.suppressor is not None or name in self._suppressed
        ]

    def update(
        self, changes: Sequence[AlarmChange], states: Mapping[str, AlarmState], at: float
    ) -> tuple[list[AlarmChange], list[AlarmAction]]:
        """Return the changes, those with withheld actions marked, and the actions. Both are in the order of `changes`.

        `states` has the states after the changes. Call it at each evaluation: timers end also without a change.
        """
        by_name = {change.alarm.alarm_name: change for change in changes}
        actions: dict[str, list[AlarmAction]] = {}
        for alarm in self._alarms:
            change, found = self._update_alarm(alarm, by_name, states, at)
            actions[alarm.alarm_name] = found
            if change is not None:
                by_name[alarm.alarm_name] = change
        for name, change in by_name.items():
            if name not in actions and change.is_news:
                actions[name] = list(_run(change.alarm, change.old.state_value, change.new, at))
        ordered = [*by_name, *(name for name in actions if name not in by_name)]
        return list(by_name.values()), [each for name in ordered for each in actions.get(name, ())]

    def _update_alarm(
        self,
        alarm: CompositeAlarm,
        changes: Mapping[str, AlarmChange],
        states: Mapping[str, AlarmState],
        at: float,
    ) -> tuple[AlarmChange | None, list[AlarmAction]]:
        name, suppressor = alarm.alarm_name, alarm.suppressor
        change, state = changes.get(name), states.get(name, AlarmState())
        before = state if change is None else change.old
        kept = self._suppressed.get(name)
        is_on = suppressor is not None and _is_alarm(states.get(suppressor.alarm))
        suppression = Suppression(before.state_value) if kept is None else _limit(kept.suppression, suppressor, at)
        old = before.state_value if kept is None or not suppression.is_pending else kept.old
        actions: list[AlarmAction] = []
        event = _find_event(suppressor, kept, changes, at, is_on=is_on)
        suppression, due = update_suppression(suppressor, suppression, event)
        for _ in due:
            actions += _run(alarm, old, before, at, was_suppressed=True)
            old = before.state_value
        if change is not None and not change.is_news:
            suppression = replace(suppression, state=change.new.state_value)
        elif change is not None:
            if not suppression.is_pending:
                old = before.state_value
            transition = Transition(at, change.new.state_value, is_on)
            suppression, due = update_suppression(suppressor, suppression, transition)
            change = change._replace(suppressed_by=suppression.suppressed_by)
            actions += _run(alarm, old, state, at, suppressed_by=suppression.suppressed_by)
            old = state.state_value if due else old
        if suppressor is None:
            del self._suppressed[name]
            self._alarms = [each for each in self._alarms if each is not alarm]
        else:
            self._suppressed[name] = SuppressedActions(suppressor.alarm, suppression, old)
        return change, actions


def _find_event(
    suppressor: Suppressor | None,
    kept: SuppressedActions | None,
    changes: Mapping[str, AlarmChange],
    at: float,
    *,
    is_on: bool,
) -> SuppressionEvent:
    if kept is not None and (suppressor is None or kept.suppressor != suppressor.alarm):
        return SuppressorReplaced(at, is_on)
    changed = None if suppressor is None else changes.get(suppressor.alarm)
    if changed is not None and _is_alarm(changed.old) is not is_on:
        return SuppressorChanged(at, is_on)
    return Tick(at)


def _limit(suppression: Suppression, suppressor: Suppressor | None, at: float) -> Suppression:
    """Return a suppression whose timer does not run longer than its period: the clock may have been set back."""
    if suppression.until is None or suppressor is None:
        return suppression
    is_waiting = suppression.suppressed_by is SuppressedBy.WAIT_PERIOD
    seconds = suppressor.wait_period if is_waiting else suppressor.extension_period
    return replace(suppression, until=min(suppression.until, at + seconds))


def _is_alarm(state: AlarmState | None) -> bool:
    return state is not None and state.state_value is StateValue.ALARM


def _run(
    alarm: Alarm,
    old: StateValue,
    state: AlarmState,
    at: float,
    *,
    suppressed_by: SuppressedBy | None = None,
    was_suppressed: bool = False,
) -> Iterator[AlarmAction]:
    for action in alarm.get_actions(state.state_value):
        yield AlarmAction(alarm, action, at, old, state, suppressed_by, was_suppressed)
