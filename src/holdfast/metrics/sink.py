"""The sink of a part: turns its events into measurements and log lines for one or several exporters."""

import logging
from collections.abc import Sequence
from typing import Generic, TypeVar

from holdfast.metrics.exporter import Exporter
from holdfast.metrics.instruments import Instrument, LogLine, Measurement

Event = TypeVar("Event")

log = logging.getLogger(__name__)


class MetricsSink(Generic[Event]):
    """A sink that measures and describes events for exporters. A part overrides `measure`, `describe`, or both.

    An exporter that raises does not affect the others. Its first failure is logged; `failures` counts all.
    """

    instruments: Sequence[Instrument] = ()

    def __init__(self, *exporters: Exporter) -> None:
        self.exporters = exporters
        self.failures = 0
        """Batches and lines lost because an exporter raised."""
        self._logged: set[int] = set()  # ids: an exporter need not be hashable
        self._logs = tuple(exporter for exporter in exporters if exporter.uses_logs)
        self._recorders = tuple(exporter for exporter in exporters if type(exporter).record is not Exporter.record)
        self._uses_attributes = any(exporter.uses_attributes for exporter in self._recorders)
        for exporter in exporters:
            exporter.declare(self.instruments)

    def measure(self, event: Event) -> Sequence[Measurement]:  # noqa: ARG002 - for subclasses
        """Return the measurements of an event."""
        return ()

    def describe(self, event: Event) -> LogLine | None:  # noqa: ARG002 - for subclasses
        """Return the event as a log line, or None if it is not worth one."""
        return None

    def emit(self, event: Event) -> None:
        if self._recorders:
            measurements = self.measure(event)
            for exporter in self._recorders:
                try:
                    exporter.record(measurements)
                except Exception as error:  # noqa: BLE001 - a failing exporter must not disturb the measured work
                    self._count_failure(exporter, error)
        if self._logs and (line := self.describe(event)) is not None:
            for exporter in self._logs:
                try:
                    exporter.log(line)
                except Exception as error:  # noqa: BLE001 - as above
                    self._count_failure(exporter, error)

    def _count_failure(self, exporter: Exporter, error: Exception) -> None:
        self.failures += 1
        if id(exporter) not in self._logged:
            self._logged.add(id(exporter))
            log.error("the exporter %r failed; its further failures are only counted", exporter, exc_info=error)
