"""Explain the saved state of an alarm: the datapoints, or the parts of its rule, that decided. Needs NumPy.

Pure, and tested together with the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast._errors import NotFound
from holdfast.alarms.actions import SuppressedActions
from holdfast.alarms.alarm import Alarm, AlarmState
from holdfast.alarms.alarm_rule import RuleResult, explain_rule
from holdfast.alarms.datapoints import ExpectedData, build_datapoints, compute_datapoints, group_alarms, list_values
from holdfast.alarms.engine import SavedAlarms
from holdfast.alarms.metric_alarm import MetricAlarm, TreatMissingData
from holdfast.alarms.metric_evaluation import (
    Datapoint,
    Decision,
    EvaluationRule,
    decide_state,
    get_evaluation_range,
)
from holdfast.alarms.metric_math import Id
from holdfast.alarms.recent_metrics import MetricWindow, RecentMetrics
from holdfast.alarms.tree import AlarmTree
from holdfast.alarms.tree_metrics import WatchedMetric


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of an alarm, and the reason."""

    alarm: Alarm
    state: AlarmState
    decision: Decision | None = None
    """The datapoints that decided a metric alarm, and the rule."""
    datapoints: tuple[Datapoint, ...] = ()
    """All datapoints in the evaluation range of a metric alarm, oldest first."""
    inputs: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """The series in an expression of metric math, oldest first."""
    result: RuleResult | None = None
    """The value of the rule of a composite alarm, and the parts that decided."""
    suppressed: SuppressedActions | None = None
    """The actions of a composite alarm with a suppressor."""


def explain_alarm(tree: AlarmTree, saved: SavedAlarms, name: str, metrics: RecentMetrics) -> Explanation:
    """Return the reason for the saved state of an alarm. Raise NotFound if there is no such alarm.

    `metrics` must have the data of the last evaluation. With the saved notes, and as many periods as the evaluation
    has, it gives the same datapoints.
    """
    state = saved.states.get(name, AlarmState())
    if name in tree.composites:
        composite = tree.composites[name]
        states = {each: saved.states.get(each, AlarmState()).state_value for each in composite.children}
        result = explain_rule(composite.rule, states)
        return Explanation(composite, state, result=result, suppressed=saved.suppressed.get(name))
    if name not in tree.metrics:
        raise NotFound(f"there is no alarm {name}: see `holdfast alarms state --all`")
    watched = tree.metrics[name]
    alarm = watched.alarm
    if saved.evaluated_at is None:
        return Explanation(alarm, state)
    metrics.notes.restore(saved.notes)
    extra_periods = metrics.options.extra_periods
    # The usual throughput is that before the widest range of all alarms.
    width = max(get_evaluation_range(each.alarm, extra_periods) for each in tree.metrics.values())
    window = metrics.read(saved.evaluated_at, width)
    shown = slice(-get_evaluation_range(alarm, extra_periods), None)
    values = compute_datapoints(group_alarms([watched], window), 1, window)[0]
    datapoints = build_datapoints(window, values)[shown]
    inputs = {
        each.name if isinstance(each, Id) else each.rule: list_values(
            window.values[window.rows.get(reference, -1), shown]
        )
        for each, reference in watched.inputs.items()
        if each is not None
    }
    decision = decide_state(alarm, datapoints, state.state_value, extra_periods)
    if (reason := _find_reason_to_keep(watched, decision, window)) is not None:
        decision = replace(decision, state=state.state_value, rule=reason)
    return Explanation(alarm, state, decision, tuple(datapoints), inputs)


def _find_reason_to_keep(watched: WatchedMetric, decision: Decision, window: MetricWindow) -> EvaluationRule | None:
    """Return the reason for which the alarm keeps its state instead of the decision; None if the decision counts."""
    alarm = watched.alarm
    if not window.is_current or _is_kept(alarm, decision, window.watched):
        return EvaluationRule.NOT_RUNNING
    if not _is_kept(alarm, decision, ExpectedData([watched]).find_watched(window)[0].tolist()):
        return None
    return EvaluationRule.INSTANCES_UNKNOWN if watched.counts_contributors else EvaluationRule.ZONE_WITHOUT_DATA


def _is_kept(alarm: MetricAlarm, decision: Decision, watched: Sequence[bool]) -> bool:
    """Return whether the treatment of periods in which nothing could be received would decide."""
    unwatched = min(decision.filled, sum(not each for each in watched[-alarm.evaluation_periods :]))
    breaching = sum(each.value is not None and alarm.breaches(each.value) for each in decision.evaluated)
    if alarm.missing_data_treatment is TreatMissingData.BREACHING:
        total, otherwise = breaching + decision.filled, breaching + decision.filled - unwatched
    else:
        total, otherwise = breaching, breaching + unwatched
    return (total >= alarm.required_breaches) != (otherwise >= alarm.required_breaches)
