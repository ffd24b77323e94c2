"""Evaluate alarms every 10 or 60 seconds, save their states, report changes, and remove abandoned ones."""

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from holdfast._errors import InvalidValue
from holdfast._types import Zone
from holdfast.alarms.actions import AlarmAction, AlarmChange
from holdfast.alarms.alarm import AlarmState
from holdfast.alarms.engine import AlarmEngine, Evaluation
from holdfast.alarms.recent_metrics import RecentMetrics
from holdfast.telemetry.bins import LONG_TERM
from holdfast.watch.events import AlarmChanges, ChangedAlarm
from holdfast.watch.pauses import Pause, is_mostly_paused

if TYPE_CHECKING:
    from holdfast.alarms.declaration import AlarmDeclaration
    from holdfast.telemetry.series import SeriesTable
    from holdfast.telemetry.store import SeriesStore
    from holdfast.watch.alarm_store import AlarmStore

logger = logging.getLogger("holdfast.alarms")

MAX_STEPS = 15
"""Evaluations that are made up for, one after the other, after a pause or a restart."""
REMOVAL_SECONDS = 3600.0
"""Seconds between two looks for alarms of workloads that are no longer in the settings."""
MAX_UNSAVED = 10_000
"""Changes that are kept while the store is unavailable. With more, only the newest of each alarm is kept."""


class AlarmWatches:
    """The alarms of all workloads that a process watches. Not thread-safe."""

    def __init__(
        self,
        declarations: "Sequence[AlarmDeclaration]",
        series: "SeriesStore",
        table: "SeriesTable",
        store: "AlarmStore",
    ) -> None:
        self._store = store
        self._removed_at = -math.inf
        """Time of the last look for workloads that nobody watches any more."""
        self._watches: list[AlarmWatch] = []
        for declaration in declarations:
            try:
                self._watches.append(AlarmWatch(declaration, series, table, store))
            except InvalidValue as error:
                logger.warning("no alarms are evaluated: %s", error)

    def evaluate(
        self,
        end: float,
        zones_out: Mapping[str, Set[Zone] | None],
        pauses: Sequence[Pause],
        emit: Callable[[AlarmChanges], None],
    ) -> list[Exception]:
        """Evaluate and save the alarms of each workload, and emit the changes. Return errors.

        `zones_out` has the zones that are out of each workload; None if they are not known.
        """
        failures: list[Exception] = []
        for watch in self._watches:
            try:
                events = watch.evaluate(end, zones_out[watch.workload], pauses)
                try:
                    watch.save()
                finally:  # after that, or a page that is loaded in between would miss them
                    for event in events:
                        emit(event)
            except Exception as error:  # noqa: BLE001 - the caller raises it when everything else was saved
                failures.append(error)
        return failures

    def remove_abandoned(self, kept: Collection[str], now: float) -> None:
        """Remove the alarms of workloads, apart from those in `kept`, that no server has evaluated for a day.

        Look for them once in an hour. Raise HoldfastError if the store fails.
        """
        if now - self._removed_at < REMOVAL_SECONDS:
            return
        for name in self._store.remove_abandoned(kept, now - LONG_TERM):
            logger.info("removed the alarms of workload %s: no server has evaluated them for a day", name)
        self._removed_at = now


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
        self._window = declaration.options.window
        self._zones_out: Set[Zone] = self._engine.zones_out
        """The zones that were out at the last evaluation."""
        self._unsaved: Evaluation | None = None

    @property
    def workload(self) -> str:
        return self._workload

    def evaluate(
        self, end: float, zones_out: Set[Zone] | None = None, pauses: Sequence[Pause] = ()
    ) -> list[AlarmChanges]:
        """Evaluate every step that is complete at `end`, and was not evaluated yet. Return the changes.

        None means that the zones that are out are not known: they are the same as before, even before a restart. No
        state changes at a step in which this process was paused for most of the time.
        """
        self._zones_out = self._zones_out if zones_out is None else zones_out
        newest = end // self._step * self._step
        last = self._engine.evaluated_at
        if last is None or last > newest + self._step:  # never, or before the clock was set back
            last = newest - self._step
        number = min(round((newest - last) / self._step), max(MAX_STEPS, self._window // self._step))
        found = []
        for age in range(number - 1, -1, -1):
            at = newest - age * self._step
            is_paused = is_mostly_paused(at - self._step, at, pauses)
            if age >= MAX_STEPS:
                self._engine.skip(at, self._zones_out, is_paused=is_paused)
                continue
            evaluation = self._engine.evaluate(at, self._zones_out, is_paused=is_paused)
            self._unsaved = _merge(self._unsaved, evaluation)
            if changes := self._report(evaluation):
                found.append(AlarmChanges(self._workload, evaluation.at, changes))
        return found

    def save(self) -> None:
        """Save all changes since the last call. If it fails, call it again."""
        if self._unsaved is not None:
            self._store.save(self._workload, self._unsaved, self._engine.saved)
            self._unsaved = None

    def _report(self, evaluation: Evaluation) -> list[ChangedAlarm]:
        """Log changes and actions, and return them. A first state of OK is no news."""
        acting = {each.alarm.alarm_name for each in evaluation.actions if each.suppressed_by is None}
        found = []
        for change in evaluation.changes:
            alarm, old, new, suppressed_by = change
            if not change.is_news or alarm.alarm_name in self._engine.tree.about_operations:
                continue
            actions_run = alarm.alarm_name in acting and suppressed_by is None
            logger.log(
                logging.WARNING if actions_run else logging.INFO,
                "workload %s: alarm %s changed from %s to %s: %s%s",
                self._workload,
                alarm.alarm_name,
                old.state_value,
                new.state_value,
                new.state_reason,
                "" if suppressed_by is None else f" (actions are suppressed by {suppressed_by})",
            )
            found.append(_describe(change, actions_run=actions_run))
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
                change = AlarmChange(alarm, AlarmState(old), state)
                yield _describe(change, actions_run=True, was_suppressed=True)


def _describe(change: AlarmChange, *, actions_run: bool, was_suppressed: bool = False) -> ChangedAlarm:
    alarm, old, new, suppressed_by = change
    return ChangedAlarm(
        alarm.alarm_name,
        old.state_value,
        new.state_value,
        new.state_reason,
        bool(alarm.alarm_actions),
        alarm.alarm_description,
        new.state_updated_timestamp,
        actions_run,
        suppressed_by,
        was_suppressed,
    )


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
