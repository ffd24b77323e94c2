"""Evaluate the alarms of a workload whenever a period is complete, save their states, and report changes."""

import logging
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from holdfast._types import Zone
from holdfast.alarms.alarm import StateValue
from holdfast.alarms.engine import AlarmChange, AlarmEngine
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.watch.events import AlarmChanges, ChangedAlarm
from holdfast.watch.pauses import Pause, is_mostly_paused

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
        self._period = declaration.options.period
        self._store = store
        metrics = RecentMetrics(declaration, series, table)
        self._engine = AlarmEngine(declaration, metrics, store.load(declaration.workload))
        last = self._engine.saved_notes[-1:]
        self._zones_out: Set[Zone] = frozenset(
            zone for note in last if note.start + self._period == self._engine.evaluated_at for zone in note.zones_out
        )
        """The zones that were out in the last period that was evaluated."""
        self._unsaved: list[AlarmChange] = []
        self._removed: list[str] = []
        self._is_saved = True

    @property
    def workload(self) -> str:
        return self._workload

    def evaluate(
        self, end: float, zones_out: Set[Zone] | None = None, pauses: Sequence[Pause] = ()
    ) -> list[AlarmChanges]:
        """Evaluate every period that is complete at `end`, and was not evaluated yet. Return the changes.

        None means that the zones that are out are not known: they are the same as before, even before a restart. No
        state changes by a period in which this process was paused for most of the time.
        """
        self._zones_out = self._zones_out if zones_out is None else zones_out
        newest = end // self._period * self._period
        last = self._engine.evaluated_at
        if last is None or last > newest + self._period:  # never, or before the clock was set back
            last = newest - self._period
        number = min(MAX_PERIODS, round((newest - last) / self._period))
        found = []
        for age in range(number - 1, -1, -1):
            at = newest - age * self._period
            is_paused = is_mostly_paused(at - self._period, at, pauses)
            evaluation = self._engine.evaluate(at, self._zones_out, is_paused=is_paused)
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
        engine = self._engine
        self._store.save(
            self._workload, at, engine.saved_operations, self._unsaved, self._removed, notes=engine.saved_notes
        )
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
                ChangedAlarm(
                    alarm.alarm_name,
                    old.state_value,
                    new.state_value,
                    new.state_reason,
                    bool(actions),
                    alarm.alarm_description,
                )
            )
        return found
