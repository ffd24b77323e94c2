"""Evaluate all alarms of one workload, period after period. Pure: it reads a store of measurements in memory.

An evaluation computes the datapoints of all metric alarms at once. Only alarms whose state changes are then looked at
one by one, and only composite alarms that depend on one of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from holdfast._errors import NotFound
from holdfast._types import Operation, Side, Zone
from holdfast.alarms.actions import ActionControl, AlarmAction, AlarmChange, SuppressedActions
from holdfast.alarms.alarm import Alarm, AlarmState
from holdfast.alarms.alarm_rule import RuleResult, explain_rule
from holdfast.alarms.configuration import ConfigurationChange, DefinitionLog, SavedDefinition
from holdfast.alarms.declaration import AlarmDeclaration, MeasuredOperation, SeriesReference
from holdfast.alarms.metric_alarm import MetricAlarm, TreatMissingData
from holdfast.alarms.metric_evaluation import (
    Datapoint,
    Decision,
    EvaluationRule,
    decide_state,
    evaluate_alarm,
    get_evaluation_range,
)
from holdfast.alarms.metric_math import Id, InsightRuleMetric
from holdfast.alarms.metric_queries import QueryPlan
from holdfast.alarms.recent_metrics import MetricWindow, RecentMetrics
from holdfast.alarms.tree import AlarmTree, TreeBuilder
from holdfast.alarms.tree_metrics import WatchedMetric
from holdfast.alarms.vectorized import STATES, AlarmTable
from holdfast.telemetry.bins import LONG_TERM

Inputs: TypeAlias = Mapping[Id | InsightRuleMetric | None, SeriesReference]

_CODES = {state: code for code, state in enumerate(STATES)}


class SeenOperation(Struct, frozen=True, array_like=True):
    """An operation that has alarms, and the end of the last period in which it was measured."""

    service: str
    name: str
    side: Side
    seen_at: float


class SavedAlarms(Struct, frozen=True):
    """The state that an engine needs after a restart."""

    states: Mapping[str, AlarmState] = {}
    operations: Sequence[SeenOperation] = ()
    """In the order in which they were first measured, so that the tree stays the same."""
    evaluated_at: float | None = None
    """End of the last period that was evaluated."""
    suppressed: Mapping[str, SuppressedActions] = {}
    """The actions of alarms with a suppressor."""
    definitions: Mapping[str, SavedDefinition] = {}

    @property
    def measured(self) -> list[MeasuredOperation]:
        return [MeasuredOperation(Operation(each.service, each.name), each.side) for each in self.operations]


class Evaluation(NamedTuple):
    """The result of one evaluation, or of several."""

    at: float
    """End of the newest period."""
    changes: Sequence[AlarmChange] = ()
    actions: Sequence[AlarmAction] = ()
    configuration: Sequence[ConfigurationChange] = ()
    """Alarms that were created, changed or deleted since the last evaluation."""


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


class _Group(NamedTuple):
    """Metric alarms with the same expression, which are computed together."""

    plan: QueryPlan | None
    rows: "NDArray[np.int64]"
    """The rows of these alarms."""
    inputs: "dict[Id | InsightRuleMetric | None, NDArray[np.int64]]"
    """The rows of their series in the window."""


class AlarmEngine:
    """The alarms of one workload, and their states. Not thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, metrics: RecentMetrics, saved: SavedAlarms | None = None) -> None:
        saved = saved or SavedAlarms()
        self._metrics = metrics
        self._extra_periods = declaration.options.extra_periods
        self._builder = TreeBuilder(declaration)
        self._resource_users = {operation for _, operations in declaration.resources for operation in operations}
        self._seen = dict(zip(saved.measured, (each.seen_at for each in saved.operations), strict=True))
        self._evaluated_at = saved.evaluated_at
        self._states = dict(saved.states)
        self._grouped_rows: Mapping[SeriesReference, int] | None = None
        self._groups: list[_Group] = []
        self._codes = np.zeros(0, np.int8)
        """The state of each metric alarm, as an index of `STATES`."""
        self._actions = ActionControl(saved.suppressed)
        self._definitions = DefinitionLog(saved.definitions)
        self._logged_tree: AlarmTree | None = None
        self._use(self._builder.build(self._seen))
        self._updated: set[str] = set(self.tree.composites) & self._states.keys()

    @property
    def evaluated_at(self) -> float | None:
        """End of the last period that was evaluated."""
        return self._evaluated_at

    @property
    def states(self) -> Mapping[str, AlarmState]:
        """The states of all alarms by name. Those of alarms that were never evaluated are missing."""
        return self._states

    @property
    def saved_operations(self) -> list[SeenOperation]:
        """The operations that have alarms, to be saved."""
        return [SeenOperation(each.service, each.name, side, at) for (each, side), at in self._seen.items()]

    @property
    def suppressed(self) -> Mapping[str, SuppressedActions]:
        """The actions of alarms with a suppressor, to be saved."""
        return self._actions.suppressed

    @property
    def definitions(self) -> Mapping[str, SavedDefinition]:
        """The definitions of all alarms, to be saved."""
        return self._definitions.known

    def evaluate(self, end: float, zones_out: Set[Zone] = frozenset()) -> Evaluation:
        """Evaluate all alarms with the data of the periods up to `end`, which is the end of one.

        No state changes if nothing is stored of the time since the last evaluation: no process was running to receive
        data. Actions that were withheld until then run nevertheless.
        """
        window = self._metrics.read(end, self._table.width, zones_out)
        if not window.is_current:
            self._evaluated_at = end
            return Evaluation(end, *self._actions.update([], self._states, end))
        if self._update_operations(window.measured, end):
            self._rebuild()
            window = self._metrics.read(end, self._table.width, zones_out)
        values = self._compute_values(window)
        codes = self._table.evaluate(values, self._codes, watched=self._find_watched(window))
        changes: list[AlarmChange] = []
        for row in np.flatnonzero(codes != self._codes).tolist():
            alarm = self._alarms[row].alarm
            old = self._states.get(alarm.alarm_name, AlarmState())
            new = evaluate_alarm(alarm, _build_datapoints(window, values[row]), old, end, self._extra_periods)
            self._states[alarm.alarm_name] = new
            changes.append(AlarmChange(alarm, old, new))
        self._codes = codes
        changed = [each.alarm.alarm_name for each in changes]
        for change in self.tree.graph.evaluate(self._states, changed, end, self._updated):
            self._states[change.alarm.alarm_name] = change.new
            changes.append(AlarmChange(*change))
        self._updated, self._evaluated_at = set(), end
        return Evaluation(end, *self._actions.update(changes, self._states, end), self._log_definitions(end))

    def _log_definitions(self, at: float) -> list[ConfigurationChange]:
        if self._logged_tree is self.tree:
            return []
        self._logged_tree = self.tree
        return self._definitions.update(self.tree, at)

    def _find_watched(self, window: MetricWindow) -> "NDArray[np.bool_]":
        """Return for each alarm the periods that could have data. Consumers in a zone that is out make no calls."""
        watched = np.tile(np.array(window.watched), (len(self._alarms), 1))
        watched[self._contributor_rows] = window.contributors_watched
        for position, zones in enumerate(window.zones_out):
            for zone in zones:
                watched[self._consumers.get(zone, []), position] = False
        return watched

    def _update_operations(self, measured: Mapping[MeasuredOperation, float], end: float) -> bool:
        """Note when operations were measured. Return whether the tree changes."""
        before = list(self._seen)
        for each in sorted(measured, key=str):
            if each.side is not Side.CLIENT:
                self._seen[each] = max(measured[each], self._seen.get(each, 0.0))
        self._seen = {each: at for each, at in self._seen.items() if end - at <= LONG_TERM}
        return list(self._seen) != before

    def _rebuild(self) -> None:
        before = self.tree
        self._use(self._builder.build(self._seen))
        after = self.tree
        users = [MeasuredOperation(each, Side.CLIENT) for each in self._resource_users]
        self._metrics.restrict([*self._seen, *users])
        self._updated |= {
            name
            for name, alarm in after.composites.items()
            if name in before.composites and alarm != before.composites[name]
        }

    def _use(self, tree: AlarmTree) -> None:
        """Prepare the evaluation of a tree."""
        self.tree = tree
        """All alarms."""
        self._actions.use(tree.composites)
        self._alarms: list[WatchedMetric] = list(tree.metrics.values())
        self._consumers: defaultdict[Zone, list[int]] = defaultdict(list)
        """By zone, the rows of the alarms on shared resources."""
        self._contributor_rows = [row for row, each in enumerate(self._alarms) if _counts_contributors(each)]
        for row, each in enumerate(self._alarms):
            for zone in {series.zone for series in each.inputs.values() if series.side is Side.CLIENT}:
                self._consumers[zone].append(row)
        self._table = AlarmTable.of([each.alarm for each in self._alarms], self._extra_periods)
        self._grouped_rows = None
        for name in [name for name in self._states if name not in tree.metrics and name not in tree.composites]:
            del self._states[name]
        values = [self._states.get(each.alarm.alarm_name, AlarmState()).state_value for each in self._alarms]
        self._codes = np.array([_CODES[value] for value in values], np.int8)

    def _compute_values(self, window: MetricWindow) -> "NDArray[np.float64]":
        """Return the datapoints of all metric alarms."""
        if self._grouped_rows is not window.rows:
            self._groups = _group(self._alarms, window)
            self._grouped_rows = window.rows
        return _compute(self._groups, len(self._alarms), window)


def explain_alarm(tree: AlarmTree, saved: SavedAlarms, name: str, metrics: RecentMetrics) -> Explanation:
    """Return the reason for the saved state of an alarm. Raise NotFound if there is no such alarm.

    `metrics` must have the data of the last evaluation.
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
    extra_periods = metrics.options.extra_periods
    window = metrics.read(saved.evaluated_at, get_evaluation_range(alarm, extra_periods))
    datapoints = _build_datapoints(window, _compute(_group([watched], window), 1, window)[0])
    inputs = {
        each.name if isinstance(each, Id) else each.rule: _list_values(window.values[window.rows.get(reference, -1)])
        for each, reference in watched.inputs.items()
        if each is not None
    }
    decision = decide_state(alarm, datapoints, state.state_value, extra_periods)
    if _is_kept(alarm, decision, window.contributors_watched if _counts_contributors(watched) else window.watched):
        decision = replace(decision, state=state.state_value, rule=EvaluationRule.NOT_WATCHED)
    return Explanation(alarm, state, decision, tuple(datapoints), inputs)


def _counts_contributors(watched: WatchedMetric) -> bool:
    return any(isinstance(each, InsightRuleMetric) for each in watched.inputs)


def _is_kept(alarm: MetricAlarm, decision: Decision, watched: Sequence[bool]) -> bool:
    """Return whether the treatment of periods in which nothing could be received would decide."""
    unwatched = min(decision.filled, sum(not each for each in watched[-alarm.evaluation_periods :]))
    breaching = sum(each.value is not None and alarm.breaches(each.value) for each in decision.evaluated)
    if alarm.missing_data_treatment is TreatMissingData.BREACHING:
        total, otherwise = breaching + decision.filled, breaching + decision.filled - unwatched
    else:
        total, otherwise = breaching, breaching + unwatched
    return (total >= alarm.required_breaches) != (otherwise >= alarm.required_breaches)


def _group(alarms: Sequence[WatchedMetric], window: MetricWindow) -> list[_Group]:
    """Group alarms by their expression."""
    rows, without = window.rows, len(window.values) - 1
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, each in enumerate(alarms):
        found[_describe_expressions(each)].append(row)
    groups = []
    for members in found.values():
        watched = [alarms[row] for row in members]
        # The names of contributor rules differ between zones: those of the first alarm stand for all.
        names = list(watched[0].inputs)
        columns = [[rows.get(reference, without) for reference in each.inputs.values()] for each in watched]
        inputs = {name: np.array([column[index] for column in columns]) for index, name in enumerate(names)}
        groups.append(_Group(watched[0].alarm.plan, np.array(members), inputs))
    return groups


def _compute(groups: Sequence[_Group], number: int, window: MetricWindow) -> "NDArray[np.float64]":
    """Return the datapoints of `number` alarms, which are in these groups."""
    values = np.empty((number, window.values.shape[1]))
    for group in groups:
        series = {each: window.values[rows] for each, rows in group.inputs.items()}
        if group.plan is None:
            values[group.rows] = series[None]
        else:
            values[group.rows] = group.plan.evaluate(
                {each: found for each, found in series.items() if each is not None}
            )
    return values


def _describe_expressions(watched: WatchedMetric) -> tuple[str, ...]:
    return tuple(
        "INSIGHT_RULE_METRIC" if "INSIGHT_RULE_METRIC" in (query.expression or "") else query.expression or query.id
        for query in watched.alarm.metrics
    )


def _build_datapoints(window: MetricWindow, values: "NDArray[np.float64]") -> list[Datapoint]:
    return [Datapoint(start, value) for start, value in zip(window.starts, _list_values(values), strict=True)]


def _list_values(values: "NDArray[np.float64]") -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN
