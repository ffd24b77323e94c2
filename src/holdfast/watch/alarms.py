"""Evaluate the alarms of a workload whenever a period is complete, save their states, and report changes."""

import logging
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from holdfast._types import Zone
from holdfast.alarms.alarm import StateValue
from holdfast.alarms.engine import AlarmChange, AlarmEngine
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
        self._unsaved: list[AlarmChange] = []
        self._removed: list[str] = []
        self._is_saved = True

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
            self._unsaved += evaluation.changes
            if len(self._unsaved) > MAX_UNSAVED:
                self._unsaved = list({each.alarm.alarm_name: each for each in self._unsaved}.values())
            self._removed += evaluation.removed
            self._is_saved = False
            if changes := self._report(evaluation.changes):
                found.append(AlarmChanges(self._workload, evaluation.at, changes))
        return found

    def save(self) -> None:
        """Save all changes since the last call. If it fails, call it again."""
        at = self._engine.evaluated_at
        if self._is_saved or at is None:
            return
        self._store.save(self._workload, at, self._engine.saved_operations, self._unsaved, self._removed)
        self._unsaved, self._removed, self._is_saved = [], [], True

    def _report(self, changes: Sequence[AlarmChange]) -> list[ChangedAlarm]:
        """Log changes, and return them. A first state of OK is no news."""
        found = []
        for alarm, old, new in changes:
            is_first = old.state_value is StateValue.INSUFFICIENT_DATA and new.state_value is StateValue.OK
            if is_first or alarm.alarm_name in self._engine.tree.about_operations:
                continue
            actions = alarm.get_actions(new.state_value)
            logger.log(
                logging.WARNING if actions else logging.INFO,
                "workload %s: alarm %s changed from %s to %s: %s",
                self._workload,
                alarm.alarm_name,
                old.state_value,
                new.state_value,
                new.state_reason,
            )
            found.append(
                ChangedAlarm(alarm.alarm_name, old.state_value, new.state_value, new.state_reason, bool(actions))
            )
        return found
