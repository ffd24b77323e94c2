"""Read the alarms of a workload from the stores, for people: their tree, their states, their history, and reasons.

Works beside the process that evaluates them, and while none does.
"""

import threading
from collections.abc import Sequence

from holdfast._errors import NotFound
from holdfast.alarms.actions import SuppressedActions
from holdfast.alarms.alarm import AlarmState, StateValue
from holdfast.alarms.alarm_rule import RuleResult, format_alarm_rule
from holdfast.alarms.composite import CompositeAlarm
from holdfast.alarms.declaration import THROUGHPUT, AlarmDeclaration, MeasuredOperation
from holdfast.alarms.engine import SavedAlarms
from holdfast.alarms.explanation import Explanation, explain_alarm
from holdfast.alarms.history import HistoryItem
from holdfast.alarms.metric_alarm import MetricAlarm
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.alarms.throughput import USUAL_MINUTES
from holdfast.alarms.tree import AlarmTree, TreeBuilder
from holdfast.engines import Database
from holdfast.telemetry.bins import MINUTE
from holdfast.telemetry.history import load_store
from holdfast.telemetry.store import Tier
from holdfast.watch.alarm_store import AlarmStore
from holdfast.watch.alarm_views import (
    AlarmStateName,
    ExplainedAlarm,
    RulePart,
    ShownAlarm,
    ShownDatapoint,
    ShownSuppression,
    WorkloadAlarms,
)


class AlarmReader:
    """Reads the alarms of one workload. Thread-safe."""

    def __init__(self, declaration: AlarmDeclaration, store: AlarmStore) -> None:
        self._declaration = declaration
        self._store = store
        self._builder = TreeBuilder(declaration)
        self._lock = threading.Lock()
        self._tree: tuple[list[MeasuredOperation], AlarmTree] | None = None

    def list_alarms(self, *, include_all: bool = False) -> WorkloadAlarms:
        """Return the alarms: without `include_all`, of those about single operations only the ones in ALARM."""
        saved = self._store.load(self._declaration.workload)
        tree = self._get_tree(saved)
        alarms = [_show(tree, saved, name) for name in (*tree.composites, *tree.metrics)]
        values = [alarm.state for alarm in alarms]
        shown = [alarm for alarm in alarms if include_all or not alarm.is_about_operation or alarm.state == "ALARM"]
        counts: dict[AlarmStateName, int] = {value.value: values.count(value.value) for value in StateValue}
        return WorkloadAlarms(self._declaration.workload, saved.evaluated_at, counts, tree.roots, shown)

    def list_history(
        self, name: str | None = None, limit: int = 100, *, include_all: bool = False
    ) -> Sequence[HistoryItem]:
        """Return the latest history items of alarms, newest first. Raise NotFound for an unknown alarm.

        Without `name` and without `include_all`, leave out items about single operations, first states of OK, and the
        creation of alarms at the first start.
        """
        workload = self._declaration.workload
        found = self._store.list_history(workload, name, limit, include_details=include_all or name is not None)
        if name is not None and not found:
            tree = self._get_tree(self._store.load(workload))
            if name not in tree.metrics and name not in tree.composites:
                raise NotFound(f"there is no alarm {name}: see `holdfast alarms state --all`")
        return found

    def explain(self, name: str, telemetry: Database, bin_seconds: float) -> ExplainedAlarm:
        """Return the reason for the state of an alarm. Raise NotFound if there is no such alarm."""
        declaration, saved = self._declaration, self._store.load(self._declaration.workload)
        tree = self._get_tree(saved)
        tiers = [Tier.MINUTES, Tier.ZONES] if name in tree.metrics else []
        before = declaration.options.window + MINUTE
        if name in tree.metrics:
            series = tree.metrics[name].inputs.values()
            if any(each.metric == THROUGHPUT for each in series):
                before += (USUAL_MINUTES + 1) * MINUTE
            if tree.metrics[name].counts_contributors:
                tiers += [Tier.INSTANCES, Tier.LONG_INSTANCES]
        end = saved.evaluated_at or 0.0
        store, table = load_store(telemetry, declaration.workload, bin_seconds, tiers, (end - before, end))
        found = explain_alarm(tree, saved, name, RecentMetrics(declaration, store, table))
        return _build_explanation(declaration.workload, _show(tree, saved, name), saved.evaluated_at, found)

    def _get_tree(self, saved: SavedAlarms) -> AlarmTree:
        with self._lock:
            if self._tree is None or self._tree[0] != saved.measured:
                self._tree = saved.measured, self._builder.build(saved.measured)
            return self._tree[1]


def choose_workload(workloads: Sequence[str], wanted: str | None) -> str:
    """Return the workload that a question is about. Raise NotFound if it is not known, or there are several."""
    if wanted is None and len(workloads) == 1:
        return workloads[0]
    if wanted in workloads and wanted is not None:
        return wanted
    known = ", ".join(workloads) or "none is configured"
    problem = "name a workload" if wanted is None else f"there is no workload {wanted} in the settings"
    raise NotFound(f"{problem}: expected one of {known}")


def _show(tree: AlarmTree, saved: SavedAlarms, name: str) -> ShownAlarm:
    alarm, state = tree.get_alarm(name), saved.states.get(name, AlarmState())
    return ShownAlarm(
        name=name,
        type=alarm.TYPE,
        state=state.state_value.value,
        since=state.state_updated_timestamp or None,
        reason=state.state_reason,
        description=alarm.alarm_description,
        has_actions=bool(alarm.alarm_actions),
        children=tree.get_children(name),
        is_about_operation=name in tree.about_operations,
    )


def _build_explanation(
    workload: str, shown: ShownAlarm, evaluated_at: float | None, found: Explanation
) -> ExplainedAlarm:
    alarm = found.alarm
    if isinstance(alarm, CompositeAlarm) and found.result is not None:
        part = _build_part(found.result)
        verdict = "true, so the alarm is in ALARM" if part.value else "false, so the alarm is OK"
        decided_by = f"the rule is {verdict}"
        suppressed = _build_suppressed(found.suppressed)
        return ExplainedAlarm(
            workload, shown, evaluated_at, alarm.alarm_rule, None, decided_by, parts=part, suppressed=suppressed
        )
    assert isinstance(alarm, MetricAlarm)
    decision = found.decision
    used = frozenset() if decision is None else {each.timestamp for each in decision.evaluated}
    return ExplainedAlarm(
        workload,
        shown,
        evaluated_at,
        _describe_condition(alarm),
        str(alarm.missing_data_treatment),
        "it was never evaluated" if decision is None else decision.rule.value,
        [
            ShownDatapoint(
                each.timestamp,
                each.value,
                each.value is not None and alarm.breaches(each.value),
                each.timestamp in used,
            )
            for each in found.datapoints
        ],
        found.inputs,
    )


def _build_suppressed(found: SuppressedActions | None) -> ShownSuppression | None:
    if found is None or found.suppression.suppressed_by is None:
        return None
    suppression = found.suppression
    return ShownSuppression(str(suppression.suppressed_by), found.suppressor, suppression.until, suppression.is_pending)


def _describe_condition(alarm: MetricAlarm) -> str:
    what = next((each.expression for each in alarm.metrics if each.return_data), None)
    if what is None:
        what = f"{alarm.statistic or alarm.extended_statistic} of {alarm.metric_name}"
    words = {"GreaterThanOrEqualToThreshold": ">=", "GreaterThanThreshold": ">", "LessThanThreshold": "<"}
    sign = words.get(alarm.comparison_operator, "<=")
    return (
        f"{what} {sign} {alarm.threshold:g}, in {alarm.required_breaches} of {alarm.evaluation_periods} "
        f"datapoints of {alarm.seconds} s"
    )


def _build_part(result: RuleResult) -> RulePart:
    return RulePart(
        format_alarm_rule(result.rule),
        result.value,
        {name: state.value for name, state in result.states},
        [_build_part(each) for each in result.deciding],
    )
