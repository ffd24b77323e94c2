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
from holdfast.alarms.alarm import Alarm, AlarmState
from holdfast.alarms.alarm_rule import RuleResult, explain_rule
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
from holdfast.alarms.recent_metrics import MetricWindow, PeriodNote, RecentMetrics
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
    """All that an engine needs after a restart."""

    states: Mapping[str, AlarmState] = {}
    operations: Sequence[SeenOperation] = ()
    """In the order in which they were first measured, so that the tree stays the same."""
    evaluated_at: float | None = None
    """End of the last period that was evaluated."""
    notes: Sequence[PeriodNote] = ()
    """Facts about the last periods that measurements do not show."""

    @property
    def measured(self) -> list[MeasuredOperation]:
        return [MeasuredOperation(Operation(each.service, each.name), each.side) for each in self.operations]


class AlarmChange(NamedTuple):
    """An alarm that changed its state."""

    alarm: Alarm
    old: AlarmState
    new: AlarmState


class Evaluation(NamedTuple):
    """The result of one evaluation."""

    at: float
    """End of the period."""
    changes: Sequence[AlarmChange]
    removed: Sequence[str]
    """Names of alarms that exist no longer."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of an alarm, and the reason."""

    alarm: Alarm
    state: AlarmState
    decision: Decision | None = None
    """Of a metric alarm: the datapoints that decided, and by which rule."""
    datapoints: tuple[Datapoint, ...] = ()
    """Of a metric alarm: all datapoints of its evaluation range, oldest first."""
    inputs: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Of metric math: the series in the expression, oldest first."""
    result: RuleResult | None = None
    """Of a composite alarm: the value of its rule, and the parts that decided."""


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
        metrics.restore(saved.notes)
        self._builder = TreeBuilder(declaration)
        self._resource_users = {operation for _, operations in declaration.resources for operation in operations}
        self._seen = dict(zip(saved.measured, (each.seen_at for each in saved.operations), strict=True))
        self._evaluated_at = saved.evaluated_at
        self._states = dict(saved.states)
        self._grouped_rows: Mapping[SeriesReference, int] | None = None
        self._groups: list[_Group] = []
        self._codes = np.zeros(0, np.int8)
        """The state of each metric alarm, as an index of `STATES`."""
        self._removed: list[str] = []
        self._use(self._builder.build(self._seen))
        # The settings may have changed since they were saved.
        self._removed += [name for name in saved.states if name not in self._states]
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
    def saved_notes(self) -> list[PeriodNote]:
        """The notes about the last periods, to be saved."""
        return self._metrics.notes

    def evaluate(self, end: float, zones_out: Set[Zone] = frozenset(), *, is_paused: bool = False) -> Evaluation:
        """Evaluate all alarms with the data of the periods up to `end`, which is the end of one.

        Nothing changes if no process was running for most of the last period: nothing is stored of it, or `is_paused`.
        """
        window = self._metrics.read(end, self._table.width, zones_out, is_paused=is_paused)
        if not window.watched[-1]:
            self._evaluated_at = end
            return Evaluation(end, [], [])
        if self._update_operations(window.measured, end):
            self._rebuild()
            window = self._metrics.read(end, self._table.width, zones_out, is_paused=is_paused)
        values = self._compute_values(window)
        codes = self._table.evaluate(values, self._codes, watched=_find_watched(self._alarms, self._consumers, window))
        changes: list[AlarmChange] = []
        for row in np.flatnonzero(codes != self._codes).tolist():
            alarm = self._alarms[row].alarm
            old = self._states.get(alarm.alarm_name, AlarmState())
            new = evaluate_alarm(alarm, _build_datapoints(window, values[row]), old, end)
            self._states[alarm.alarm_name] = new
            changes.append(AlarmChange(alarm, old, new))
        self._codes = codes
        changed = [each.alarm.alarm_name for each in changes]
        for change in self.tree.graph.evaluate(self._states, changed, end, self._updated):
            self._states[change.alarm.alarm_name] = change.new
            changes.append(AlarmChange(*change))
        removed, self._removed = self._removed, []
        self._updated, self._evaluated_at = set(), end
        return Evaluation(end, changes, removed)

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
        known = {*after.metrics, *after.composites}
        self._removed += [name for name in (*before.metrics, *before.composites) if name not in known]

    def _use(self, tree: AlarmTree) -> None:
        """Prepare the evaluation of a tree."""
        self.tree = tree
        """All alarms."""
        self._alarms: list[WatchedMetric] = list(tree.metrics.values())
        self._consumers = _find_consumers(self._alarms)
        self._table = AlarmTable.of([each.alarm for each in self._alarms])
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

    `metrics` must have the data of the last evaluation. With the saved notes, and as many periods as the evaluation
    has, it gives the same datapoints.
    """
    state = saved.states.get(name, AlarmState())
    if name in tree.composites:
        composite = tree.composites[name]
        states = {each: saved.states.get(each, AlarmState()).state_value for each in composite.children}
        return Explanation(composite, state, result=explain_rule(composite.rule, states))
    if name not in tree.metrics:
        raise NotFound(f"there is no alarm {name}: see `holdfast alarms state --all`")
    watched = tree.metrics[name]
    alarm = watched.alarm
    if saved.evaluated_at is None:
        return Explanation(alarm, state)
    metrics.restore(saved.notes)
    width = max(get_evaluation_range(each.alarm) for each in tree.metrics.values())
    window = metrics.read(saved.evaluated_at, width)
    shown = slice(-get_evaluation_range(alarm), None)
    datapoints = _build_datapoints(window, _compute(_group([watched], window), 1, window)[0])[shown]
    inputs = {
        each.name if isinstance(each, Id) else each.rule: _list_values(
            window.values[window.rows.get(reference, -1), shown]
        )
        for each, reference in watched.inputs.items()
        if each is not None
    }
    decision = decide_state(alarm, datapoints, state.state_value)
    could_have_data = _find_watched([watched], _find_consumers([watched]), window)[0].tolist()
    if not window.watched[-1] or _is_kept(alarm, decision, could_have_data):
        decision = replace(decision, state=state.state_value, rule=EvaluationRule.NOT_WATCHED)
    return Explanation(alarm, state, decision, tuple(datapoints), inputs)


def _is_kept(alarm: MetricAlarm, decision: Decision, watched: Sequence[bool]) -> bool:
    """Return whether the treatment of periods in which nothing could be received would decide."""
    unwatched = min(decision.filled, sum(not each for each in watched[-alarm.evaluation_periods :]))
    breaching = sum(each.value is not None and alarm.breaches(each.value) for each in decision.evaluated)
    if alarm.missing_data_treatment is TreatMissingData.BREACHING:
        total, otherwise = breaching + decision.filled, breaching + decision.filled - unwatched
    else:
        total, otherwise = breaching, breaching + unwatched
    return (total >= alarm.required_breaches) != (otherwise >= alarm.required_breaches)


def _find_consumers(alarms: Sequence[WatchedMetric]) -> dict[Zone, list[int]]:
    """Return by zone the rows of the alarms on shared resources, as consumers in that zone measure them."""
    found: defaultdict[Zone, list[int]] = defaultdict(list)
    for row, each in enumerate(alarms):
        for zone in {series.zone for series in each.inputs.values() if series.side is Side.CLIENT and series.operation}:
            found[zone].append(row)
    return dict(found)


def _find_watched(
    alarms: Sequence[WatchedMetric], consumers: Mapping[Zone, list[int]], window: MetricWindow
) -> "NDArray[np.bool_]":
    """Return for each alarm the periods that could have data.

    Consumers in a zone that is out make no calls. If a zone reports nothing at all, no data about a shared resource
    says nothing about the resource.
    """
    watched = np.tile(np.array(window.watched), (len(alarms), 1))
    for position, (out, silent) in enumerate(zip(window.zones_out, window.silent_zones, strict=True)):
        for zone in out | silent:
            watched[consumers.get(zone, []), position] = False
    return watched


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
