"""Evaluate all alarms of one workload, period after period. Pure: it reads a store of measurements in memory.

An evaluation computes the datapoints of all metric alarms at once. Only alarms whose state changes are then looked at
one by one, and only composite alarms that depend on one of them.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from holdfast._types import Operation, Side, Zone
from holdfast.alarms.actions import ActionControl, AlarmAction, AlarmChange, SuppressedActions
from holdfast.alarms.alarm import AlarmState
from holdfast.alarms.configuration import ConfigurationChange, DefinitionLog, SavedDefinition
from holdfast.alarms.datapoints import AlarmGroup, ExpectedData, build_datapoints, compute_datapoints, group_alarms
from holdfast.alarms.declaration import AlarmDeclaration, MeasuredOperation, SeriesReference
from holdfast.alarms.metric_evaluation import evaluate_alarm
from holdfast.alarms.recent_metrics import MetricWindow, RecentMetrics
from holdfast.alarms.step_notes import StepNote
from holdfast.alarms.tree import AlarmTree, TreeBuilder
from holdfast.alarms.tree_metrics import WatchedMetric
from holdfast.alarms.vectorized import STATES, AlarmTable
from holdfast.telemetry.bins import LONG_TERM

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
    """The definitions of all alarms, by name."""
    notes: Sequence[StepNote] = ()
    """Facts about the last evaluation steps that measurements do not show."""

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


class AlarmEngine:
    """The alarms of one workload, and their states. Not thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, metrics: RecentMetrics, saved: SavedAlarms | None = None) -> None:
        saved = saved or SavedAlarms()
        self._metrics = metrics
        metrics.notes.restore(saved.notes)
        self._extra_periods = declaration.options.extra_periods
        self._builder = TreeBuilder(declaration)
        self._resource_users = {operation for _, operations in declaration.resources for operation in operations}
        self._seen = dict(zip(saved.measured, (each.seen_at for each in saved.operations), strict=True))
        self._evaluated_at = saved.evaluated_at
        self._states = dict(saved.states)
        self._grouped_rows: Mapping[SeriesReference, int] | None = None
        self._groups: list[AlarmGroup] = []
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
    def saved(self) -> SavedAlarms:
        """The state that has to be saved after an evaluation."""
        return SavedAlarms(
            self._states,
            [SeenOperation(each.service, each.name, side, at) for (each, side), at in self._seen.items()],
            self._evaluated_at,
            self._actions.suppressed,
            self._definitions.known,
            self._metrics.notes.saved,
        )

    @property
    def zones_out(self) -> frozenset[Zone]:
        """The zones that were out at the last evaluation, even before a restart."""
        at = self._evaluated_at
        return frozenset() if at is None else self._metrics.notes.find_zones_out_at(at)

    def skip(self, end: float, zones_out: Set[Zone] = frozenset(), *, is_paused: bool = False) -> None:
        """Note the zones that were out, and a pause, without an evaluation. Later evaluations need both."""
        self._metrics.notes.add(end, zones_out, is_paused=is_paused)

    def evaluate(self, end: float, zones_out: Set[Zone] = frozenset(), *, is_paused: bool = False) -> Evaluation:
        """Evaluate all alarms with the data of the periods up to `end`, which is the end of an evaluation step.

        No state changes if Holdfast did not run for most of that step: nothing is stored of its end, or `is_paused`.
        Actions that were withheld until then run nevertheless.
        """
        self._metrics.notes.add(end, zones_out, is_paused=is_paused)
        window = self._metrics.read(end, self._table.width)
        if not window.is_current:
            self._evaluated_at = end
            return Evaluation(end, *self._actions.update([], self._states, end))
        configuration = self._log_definitions(end)
        if self._update_operations(window.measured, end):
            self._rebuild()
            configuration += self._log_definitions(end)
            window = self._metrics.read(end, self._table.width)
        values = self._compute_values(window)
        codes = self._table.evaluate(values, self._codes, watched=self._expected.find_watched(window))
        changes: list[AlarmChange] = []
        for row in np.flatnonzero(codes != self._codes).tolist():
            alarm = self._alarms[row].alarm
            old = self._states.get(alarm.alarm_name, AlarmState())
            new = evaluate_alarm(alarm, build_datapoints(window, values[row]), old, end, self._extra_periods)
            self._states[alarm.alarm_name] = new
            changes.append(AlarmChange(alarm, old, new))
        self._codes = codes
        changed = [each.alarm.alarm_name for each in changes]
        for change in self.tree.graph.evaluate(self._states, changed, end, self._updated):
            self._states[change.alarm.alarm_name] = change.new
            changes.append(AlarmChange(*change))
        self._updated, self._evaluated_at = set(), end
        return Evaluation(end, *self._actions.update(changes, self._states, end), configuration)

    def _log_definitions(self, at: float) -> list[ConfigurationChange]:
        """Return the changes of definitions. Settings change only with a restart, so later changes are by traffic."""
        if self._logged_tree is self.tree:
            return []
        is_by_traffic, self._logged_tree = self._logged_tree is not None, self.tree
        return self._definitions.update(self.tree, at, is_by_traffic=is_by_traffic)

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
        self._expected = ExpectedData(self._alarms)
        self._table = AlarmTable.of([each.alarm for each in self._alarms], self._extra_periods)
        self._grouped_rows = None
        for name in [name for name in self._states if name not in tree.metrics and name not in tree.composites]:
            del self._states[name]
        values = [self._states.get(each.alarm.alarm_name, AlarmState()).state_value for each in self._alarms]
        self._codes = np.array([_CODES[value] for value in values], np.int8)

    def _compute_values(self, window: MetricWindow) -> "NDArray[np.float64]":
        """Return the datapoints of all metric alarms."""
        if self._grouped_rows is not window.rows:
            self._groups = group_alarms(self._alarms, window)
            self._grouped_rows = window.rows
        return compute_datapoints(self._groups, len(self._alarms), window)
