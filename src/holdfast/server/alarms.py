"""The alarms behind HTTP: reads them from the stores, beside the detection process that evaluates them."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast._errors import NotFound
from holdfast.config import Settings
from holdfast.engines import Database
from holdfast.telemetry import BIN_SECONDS
from holdfast.watch.alarm_views import ExplainedAlarm, WorkloadAlarms

if TYPE_CHECKING:
    from holdfast.alarms import HistoryItem
    from holdfast.watch.alarm_report import AlarmReader


class AlarmReports:
    """Answers questions about alarms. Thread-safe. Without settings there are no alarms."""

    def __init__(
        self, settings: Settings | None = None, open_database: Callable[[str], Database] | None = None
    ) -> None:
        self._workloads = {} if settings is None else {workload.name: workload for workload in settings.workload}
        self._bin_seconds = BIN_SECONDS if settings is None else settings.telemetry.bin_seconds
        self._open_database = open_database
        self._lock = threading.Lock()
        self._readers: dict[str, AlarmReader] = {}

    def list_alarms(self, workload: str | None, *, include_all: bool) -> list[WorkloadAlarms]:
        """Return the alarms of one workload, or of all. Raise NotFound for an unknown workload."""
        names = list(self._workloads) if workload is None else [workload]
        return [self._get_reader(name).list_alarms(include_all=include_all) for name in names]

    def list_history(
        self, workload: str | None, name: str | None, limit: int, *, include_all: bool
    ) -> "Sequence[HistoryItem]":
        """Return the latest changes of alarms, newest first. Raise NotFound for an unknown workload or alarm."""
        return self._get_reader(workload).list_history(name, limit, include_all=include_all)

    def explain(self, workload: str | None, name: str) -> ExplainedAlarm:
        """Return the reason for the state of an alarm. Raise NotFound for an unknown workload or alarm."""
        from holdfast.telemetry.history import SUBSYSTEM  # imports NumPy

        reader = self._get_reader(workload)
        return reader.explain(name, self._open(SUBSYSTEM), self._bin_seconds)

    def _get_reader(self, workload: str | None) -> "AlarmReader":
        from holdfast.watch.alarm_report import AlarmReader, choose_workload  # imports NumPy
        from holdfast.watch.alarm_store import AlarmStore
        from holdfast.watch.store import SUBSYSTEM

        name = choose_workload(list(self._workloads), workload)
        database = self._open(SUBSYSTEM)
        with self._lock:
            if name not in self._readers:
                settings = self._workloads[name]
                declaration = settings.alarms.to_declaration(name, settings.region, settings.zones)
                self._readers[name] = AlarmReader(declaration, AlarmStore(database))
            return self._readers[name]

    def _open(self, subsystem: str) -> Database:
        if self._open_database is None:
            raise NotFound("there are no alarms: no workload is configured")
        with self._lock:
            return self._open_database(subsystem)
