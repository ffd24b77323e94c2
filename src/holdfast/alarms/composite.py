"""Composite alarms: their definition, the graph of alarms that they form, and their evaluation. Pure.

A composite alarm is in ALARM if its rule is true, and in OK if not; INSUFFICIENT_DATA only before its first evaluation.
After a change, only those composite alarms are evaluated that depend on a changed alarm, in an order in which each one
follows the alarms that it depends on.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

from holdfast._errors import InvalidValue
from holdfast.alarms.alarm import Alarm, AlarmState, StateValue, encode_json, format_time
from holdfast.alarms.alarm_rule import (
    Rule,
    evaluate_rule,
    explain_rule,
    find_children,
    get_alarm_name,
    parse_alarm_rule,
)
from holdfast.alarms.suppression import Suppressor

MAX_PARENTS = 150
"""Maximum composite alarms that use the same alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeAlarm(Alarm):
    """An alarm on the states of other alarms. Fields have CloudWatch's names."""

    TYPE: ClassVar[str] = "CompositeAlarm"

    alarm_rule: str
    actions_suppressor: str | None = None
    """Name or ARN of the alarm that withholds the actions while it is in ALARM."""
    actions_suppressor_wait_period: int | None = None
    actions_suppressor_extension_period: int | None = None
    rule: Rule = field(init=False, repr=False, compare=False)
    """The parsed `alarm_rule`."""
    children: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Names of the alarms in the rule."""
    suppressor: Suppressor | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        Alarm.__post_init__(self)
        try:
            rule = parse_alarm_rule(self.alarm_rule)
        except InvalidValue as error:
            raise InvalidValue(f"alarm {self.alarm_name}: {error}") from error
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "children", find_children(rule))
        object.__setattr__(self, "suppressor", self._build_suppressor())

    def _build_suppressor(self) -> Suppressor | None:
        wait, extension = self.actions_suppressor_wait_period, self.actions_suppressor_extension_period
        if (self.actions_suppressor is None) is (wait is None) is (extension is None):
            if self.actions_suppressor is None or wait is None or extension is None:
                return None
            return Suppressor(get_alarm_name(self.actions_suppressor), wait, extension)
        raise InvalidValue(
            f"alarm {self.alarm_name}: expected actions_suppressor, actions_suppressor_wait_period and "
            "actions_suppressor_extension_period together, or none of them"
        )


class StateChange(NamedTuple):
    """A composite alarm that changed its state."""

    alarm: CompositeAlarm
    old: AlarmState
    new: AlarmState


class AlarmGraph:
    """Metric and composite alarms, and which depends on which. Immutable."""

    def __init__(self, metric_alarms: Collection[str], composites: Iterable[CompositeAlarm]) -> None:
        """Check all references. Raise InvalidValue for an unknown alarm, a name used twice, or a cycle."""
        given = tuple(composites)
        self.composites = {each.alarm_name: each for each in given}
        names = Counter([*metric_alarms, *(each.alarm_name for each in given)])
        known = frozenset(names)
        if twice := sorted(name for name, number in names.items() if number > 1):
            raise InvalidValue(f"alarms: expected every name once, found several named {', '.join(twice)}")
        self._parents: defaultdict[str, list[str]] = defaultdict(list)
        for name, alarm in self.composites.items():
            _check_references(alarm, known)
            for child in alarm.children:
                self._parents[child].append(name)
        for child, parents in self._parents.items():
            if len(parents) > MAX_PARENTS:
                raise InvalidValue(
                    f"alarm {child}: {len(parents)} composite alarms use it: expected {MAX_PARENTS} at most"
                )
        self.order: tuple[str, ...] = _sort(self.composites)
        """The names of composite alarms, each after the composite alarms that it depends on."""
        self._positions = {name: position for position, name in enumerate(self.order)}

    def get_parents(self, name: str) -> tuple[str, ...]:
        """Return the names of the composite alarms whose rules use an alarm."""
        return tuple(self._parents.get(name, ()))

    def evaluate(
        self,
        states: Mapping[str, AlarmState],
        changed: Iterable[str],
        now: float,
        updated: Collection[str] = (),
    ) -> list[StateChange]:
        """Return the changes of composite alarms that follow from changes of the alarms `changed`, in order.

        `states` has the states of metric alarms after their change, and of composite alarms before it. A composite
        alarm that is missing in it is new, and is evaluated, too, as are `updated` ones, whose rule has changed.
        """
        current = _CurrentStates(states)
        created = {name for name in self.order if name not in states}
        causes: defaultdict[str, list[str]] = defaultdict(list)
        for child in dict.fromkeys(changed):
            for parent in self._parents.get(child, ()):
                causes[parent].append(child)
        waiting = [self._positions[name] for name in {*causes, *created, *updated}]
        heapify(waiting)
        queued = set(waiting)
        changes: list[StateChange] = []
        while waiting:
            name = self.order[heappop(waiting)]
            alarm = self.composites[name]
            old = current.get_state(name)
            value = StateValue.ALARM if evaluate_rule(alarm.rule, current) else StateValue.OK
            if value is old.state_value:
                continue
            if name in created or not causes[name]:
                verb = "created and its" if name in created else "updated and its new"
                reason = f"{name} was {verb} alarm rule evaluates to {value}"
                triggers = alarm.children
            else:
                triggers = _find_triggers(alarm.rule, current, causes[name])
                reason = _describe_transition(triggers[-1], current.get_state(triggers[-1]))
            new = AlarmState(value, reason, _build_reason_data(triggers, current), now)
            current.change(name, new)
            changes.append(StateChange(alarm, old, new))
            for parent in self._parents.get(name, ()):
                causes[parent].append(name)
                if (position := self._positions[parent]) not in queued:
                    queued.add(position)
                    heappush(waiting, position)
        return changes


class _CurrentStates(dict[str, StateValue]):
    """The states of all alarms by name. They are read on demand, so that an evaluation copies only those it uses."""

    def __init__(self, states: Mapping[str, AlarmState]) -> None:
        super().__init__()
        self._states = states
        self._changed: dict[str, AlarmState] = {}

    def __missing__(self, name: str) -> StateValue:
        value = self[name] = self.get_state(name).state_value
        return value

    def get_state(self, name: str) -> AlarmState:
        return self._changed.get(name) or self._states.get(name) or AlarmState()

    def change(self, name: str, state: AlarmState) -> None:
        self._changed[name] = state
        self[name] = state.state_value


def _find_triggers(rule: Rule, states: Mapping[str, StateValue], causes: Sequence[str]) -> tuple[str, ...]:
    """Return the changed alarms that decided."""
    deciding = {name for name, _ in explain_rule(rule, states).find_deciding_alarms()}
    return tuple(name for name in causes if name in deciding) or tuple(causes)


def _describe_transition(name: str, state: AlarmState) -> str:
    moment = datetime.fromtimestamp(state.state_updated_timestamp, UTC)
    return f"{name} transitioned to {state.state_value} at {moment:%A %d %B, %Y %H:%M:%S} UTC"


def _build_reason_data(triggers: Sequence[str], current: _CurrentStates) -> str:
    described = []
    for name in triggers:
        state = current.get_state(name)
        at = format_time(state.state_updated_timestamp)
        described.append({"arn": name, "state": {"value": state.state_value, "timestamp": at}})
    return encode_json({"triggeringAlarms": described})


def _check_references(alarm: CompositeAlarm, known: frozenset[str]) -> None:
    name = alarm.alarm_name
    if unknown := [child for child in alarm.children if child not in known]:
        raise InvalidValue(f"alarm {name}: there is no alarm {', '.join(unknown)}: check the names in its rule")
    if alarm.suppressor is not None and alarm.suppressor.alarm not in known - {name}:
        raise InvalidValue(
            f"alarm {name}: actions_suppressor {alarm.suppressor.alarm}: expected the name of another alarm"
        )


def _sort(composites: Mapping[str, CompositeAlarm]) -> tuple[str, ...]:
    """Return names so that each follows those that it depends on. Raise InvalidValue that names a cycle."""
    missing = {name: sum(child in composites for child in alarm.children) for name, alarm in composites.items()}
    parents: defaultdict[str, list[str]] = defaultdict(list)
    for name, alarm in composites.items():
        for child in alarm.children:
            parents[child].append(name)
    ordered = [name for name, number in missing.items() if not number]
    for name in ordered:  # grows while it is read
        for parent in parents[name]:
            missing[parent] -= 1
            if not missing[parent]:
                ordered.append(parent)
    if len(ordered) < len(composites):
        cycle = _find_cycle({name: composites[name] for name in composites if missing[name]})
        raise InvalidValue(f"alarms: {' -> '.join(cycle)} depend on each other in a cycle: change one of their rules")
    return tuple(ordered)


def _find_cycle(remaining: Mapping[str, CompositeAlarm]) -> list[str]:
    """Return a cycle, with its first alarm at the end again. Each of `remaining` depends on another one of them."""
    path: list[str] = []
    name = next(iter(remaining))
    while name not in path:
        path.append(name)
        name = next(child for child in remaining[name].children if child in remaining)
    return [*path[path.index(name) :], name]
