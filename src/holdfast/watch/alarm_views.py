"""The views of alarms that people see: their tree and states, and reasons. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

AlarmStateName: TypeAlias = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]


class ShownAlarm(Struct, frozen=True):
    """An alarm and its state."""

    name: str
    type: str
    """MetricAlarm or CompositeAlarm."""
    state: AlarmStateName
    since: float | None
    """Time of the last change of the state; None if the alarm was never evaluated."""
    reason: str
    description: str
    has_actions: bool
    """Whether it is a conclusion about a zone or a resource: the last alarm of a chain."""
    children: Sequence[str]
    """Names of the alarms in its rule; a metric alarm has none."""
    is_about_operation: bool


class WorkloadAlarms(Struct, frozen=True):
    """The alarms of one workload."""

    workload: str
    evaluated_at: float | None
    """End of the last period that was evaluated; None if none was."""
    counts: Mapping[AlarmStateName, int]
    """Number of alarms in each state."""
    roots: Sequence[str]
    """Names of the alarms that no other one uses."""
    alarms: Sequence[ShownAlarm]


class ShownDatapoint(Struct, frozen=True):
    """A datapoint of a metric alarm."""

    start: float
    value: float | None
    """None if the period has no data."""
    is_breaching: bool
    is_used: bool
    """Whether it decided."""


class RulePart(Struct, frozen=True):
    """A part of a composite alarm's rule, and the parts of it that decided."""

    rule: str
    value: bool
    states: Mapping[str, AlarmStateName]
    """The states of the alarms that decided."""
    deciding: Sequence["RulePart"]


class ShownSuppression(Struct, frozen=True):
    """The actions of an alarm that are withheld now."""

    by: str
    """WaitPeriod, Alarm or ExtensionPeriod."""
    suppressor: str
    """Name of the alarm that withholds them."""
    until: float | None
    """End of the wait or extension period; None while the suppressor is in ALARM."""
    is_pending: bool
    """Whether actions will run then, because the alarm has changed its state meanwhile."""


class ExplainedAlarm(Struct, frozen=True):
    """An alarm, its state, and the reason."""

    workload: str
    alarm: ShownAlarm
    evaluated_at: float | None
    condition: str
    """The condition for ALARM: a comparison of datapoints, or the rule."""
    missing_data: str | None
    """The treatment of periods without data by a metric alarm."""
    decided_by: str
    """The rule of evaluation that decided."""
    datapoints: Sequence[ShownDatapoint] = ()
    """Oldest first."""
    inputs: Mapping[str, Sequence[float | None]] = {}
    """The series in the expression, oldest first."""
    parts: RulePart | None = None
    suppressed: ShownSuppression | None = None
    """None if no suppressor withholds the actions of the alarm."""
