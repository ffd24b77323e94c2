"""Write events as rate-limited records of the standard library's logging."""

import logging
import threading
from typing import ClassVar, Self

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast._log_limiter import LogLimiter
from holdfast.metrics.exporter import EXPORTERS, ExportContext, Exporter
from holdfast.metrics.instruments import LogLine

MAX_RECORDS_PER_SECOND = 5
"""Enough to see what happens; a dependency that is down fails a thousand times a second."""


@EXPORTERS.register("logs")
class LogExporter(Exporter):
    """An exporter that logs events that need attention, with their fields in `extra`, for JSON formatters.

    At most `per_second` records a second are written per subject and event. Some events are limited further, alarms
    never. The next record has the number of suppressed ones (`suppressed`), and `close` reports the rest. Successes are
    not logged. Thread-safe; it blocks as long as the logger's handlers do. By name it is `logs` or `logs:LOGGER`.
    """

    uses_attributes: ClassVar[bool] = False
    uses_logs: ClassVar[bool] = True

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        per_second: int = MAX_RECORDS_PER_SECOND,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        if per_second < 1:
            raise InvalidValue(f"per_second is {per_second}: expected 1 or more log records per second")
        self._logger = logger
        self._per_second = per_second
        self._clock = clock
        self._gates: dict[tuple[str, float], LogLimiter] = {}
        self.reset_after_fork()
        register_after_fork(self)

    @classmethod
    def open(cls, argument: str, context: ExportContext) -> Self:  # noqa: ARG003 - independent of the process
        return cls(logging.getLogger(argument) if argument else None)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def log(self, line: LogLine) -> None:
        logger = self._logger or logging.getLogger(line.logger)
        if not logger.isEnabledFor(line.level):
            return
        suppressed = self._admit(line)
        if suppressed is None:
            return
        message, fields = line.message(), line.fields()
        if suppressed:
            message += f" ({suppressed} more like it were left out)"
            fields = {**fields, "suppressed": suppressed}  # a copy: another exporter may get the same dictionary
        logger.log(line.level, "%s", message, extra=fields)

    def flush(self) -> None:
        """Log the number of records suppressed since the last ones."""
        with self._lock:
            unreported = [(name, gate.pop_suppressed()) for (name, _), gate in self._gates.items()]
        for name, kinds in unreported:
            logger = self._logger or logging.getLogger(name)
            for kind, count in kinds.items():
                logger.info("%s: %d more were left out", kind, count, extra={"kind": kind, "suppressed": count})

    def _admit(self, line: LogLine) -> int | None:
        """Return the number of similar records suppressed before `line`, or None if `line` must be suppressed."""
        if not line.interval:
            return 0
        max_records = self._per_second if line.interval <= 1 else 1
        with self._lock:
            gate = self._gates.setdefault((line.logger, line.interval), LogLimiter(max_records, line.interval))
            return gate.admit(f"{line.subject}: {line.event}", self._clock.monotonic())
