"""Evaluate the alarms of a workload whenever a period is complete, save their states, and report changes."""

import logging
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from holdfast._types import Zone
from holdfast.alarms.actions import AlarmAction
from holdfast.alarms.engine import AlarmEngine, Evaluation
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.watch.events import AlarmChanges, ChangedAlarm

if TYPE_CHECKING:
    from holdfast.alarms.declaration import AlarmDeclaration
    from holdfast.telemetry.series import SeriesTable
    from holdfast.telemetry.store import SeriesStore
    from holdfast.watch.alarm_store import AlarmStore

logger = logging.getLogger("holdfast.alarms")

MAX_PERIODS = 15
"""Periods that are evaluated one after the other if several are complete, after a pause or a restart."""
MAX_UNSAVED = 10_000
"""Changes that are kept while the store is unavailable. With more, only the newest of each alarm is kept."""


class AlarmWatch:
    """The alarms of one workload. Not thread-safe."""

    def __init__(
        self, declaration: "AlarmDeclaration", series: "SeriesStore", table: "SeriesTable", store: "AlarmStore"
    ) -> None:
        """Raise InvalidValue if bins of telemetry do not fit the period of the alarms."""
        self._workload = declaration.workload
        self._step = declaration.options.step
        self._store = store
        metrics = RecentMetrics(declaration, series, table)
        self._engine = AlarmEngine(declaration, metrics, store.load(declaration.workload))
        self._unsaved: Evaluation | None = None

    @property
    def workload(self) -> str:
        return self._workload

    def evaluate(self, end: float, zones_out: Set[Zone] = frozenset()) -> list[AlarmChanges]:
        """Evaluate every period that is complete at `end`, and was not evaluated yet. Return the changes."""
        newest = end // self._step * self._step
        last = self._engine.evaluated_at
        if last is None or last > newest + self._step:  # never, or before the clock was set back
            last = newest - self._step
        number = min(MAX_PERIODS, round((newest - last) / self._step))
        found = []
        for age in range(number - 1, -1, -1):
            evaluation = self._engine.evaluate(newest - age * self._step, zones_out)
            self._unsaved = _merge(self._unsaved, evaluation)
            if changes := self._report(evaluation):
                found.append(AlarmChanges(self._workload, evaluation.at, changes))
        return found

    def save(self) -> None:
        """Save all changes since the last call. If it fails, call it again."""
        if self._unsaved is not None:
            self._store.save(self._workload, self._unsaved, self._engine.saved_operations, self._engine.suppressed)
            self._unsaved = None

    def _report(self, evaluation: Evaluation) -> list[ChangedAlarm]:
        """Log changes and actions, and return them. A first state of OK is no news."""
        acting = {each.alarm.alarm_name for each in evaluation.actions if each.suppressed_by is None}
        found = []
        for change in evaluation.changes:
            alarm, old, new, suppressed_by = change
            if not change.is_news or alarm.alarm_name in self._engine.tree.about_operations:
                continue
            has_actions = alarm.alarm_name in acting and suppressed_by is None
            logger.log(
                logging.WARNING if has_actions else logging.INFO,
                "workload %s: alarm %s changed from %s to %s: %s%s",
                self._workload,
                alarm.alarm_name,
                old.state_value,
                new.state_value,
                new.state_reason,
                "" if suppressed_by is None else f" (actions are suppressed by {suppressed_by})",
            )
            values = old.state_value, new.state_value, new.state_reason
            found.append(ChangedAlarm(alarm.alarm_name, *values, has_actions, suppressed_by))
        # First those that were withheld: they are about earlier changes.
        return [*self._report_late(evaluation.actions), *found]

    def _report_late(self, actions: Sequence[AlarmAction]) -> Iterator[ChangedAlarm]:
        """Log and yield the alarms whose actions were withheld, and run now."""
        for alarm, _, _, old, state, _, was_suppressed in actions:
            if was_suppressed:
                logger.warning(
                    "workload %s: alarm %s is %s; its actions were suppressed until now: %s",
                    self._workload,
                    alarm.alarm_name,
                    state.state_value,
                    state.state_reason,
                )
                values = old, state.state_value, state.state_reason
                yield ChangedAlarm(alarm.alarm_name, *values, has_actions=True, was_suppressed=True)


def _merge(first: Evaluation | None, second: Evaluation) -> Evaluation:
    """Return the outcome of two evaluations, within the limit."""
    if first is None:
        return second
    changes = [*first.changes, *second.changes]
    actions = [*first.actions, *second.actions]
    configuration = [*first.configuration, *second.configuration]
    if len(changes) + len(actions) + len(configuration) > MAX_UNSAVED:
        changes = list({each.alarm.alarm_name: each for each in changes}.values())
        actions = list({each.alarm.alarm_name: each for each in actions}.values())
        configuration = list({each.alarm_name: each for each in configuration}.values())
    return Evaluation(second.at, changes, actions, configuration)
