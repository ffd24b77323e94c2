"""Events as records of the standard library's logging, without a flood of them."""

import logging
import threading
from typing import ClassVar, Self

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast._log_limiter import LogLimiter
from holdfast.metrics.exporter import EXPORTERS, Exporter, ExportTarget
from holdfast.metrics.instruments import LogLine

PER_SECOND = 5
"""Enough to see what is going on; a dependency that is down fails a thousand times a second."""


@EXPORTERS.register("logs")
class LogExporter(Exporter):
    """Logs what needs attention, with the values of each event in `extra`, for formatters that write JSON.

    Of each kind of event and what it is about, at most `per_second` records a second are made, of some fewer, and of
    alarms all; the next record says how many were left out (`suppressed`), and `close` tells the rest. What goes well
    is not logged. Thread-safe; it blocks as long as the handlers of the logger do.
    By name it is `logs` or `logs:LOGGER`.
    """

    uses_attributes: ClassVar[bool] = False
    uses_logs: ClassVar[bool] = True

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        per_second: int = PER_SECOND,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        if per_second < 1:
            raise InvalidValue(f"at most {per_second} log records per second: expected 1 or more")
        self._logger = logger
        self._per_second = per_second
        self._clock = clock
        self._gates: dict[tuple[str, float], LogLimiter] = {}
        self.reset_after_fork()
        register_after_fork(self)

    @classmethod
    def open(cls, argument: str, target: ExportTarget) -> Self:  # noqa: ARG003 - the same for all
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
            fields = fields | {
                "suppressed": suppressed
            }  # not into a dictionary that another exporter may be given, too
        logger.log(line.level, "%s", message, extra=fields)

    def flush(self) -> None:
        """Tell how many records were left out since the last ones."""
        with self._lock:
            untold = [(name, gate.pop_suppressed()) for (name, _), gate in self._gates.items()]
        for name, kinds in untold:
            logger = self._logger or logging.getLogger(name)
            for kind, count in kinds.items():
                logger.info("%s: %d more were left out", kind, count, extra={"kind": kind, "suppressed": count})

    def _admit(self, line: LogLine) -> int | None:
        """Return how many records like it were left out before it; None: leave this one out, too."""
        if not line.every:
            return 0
        most = self._per_second if line.every <= 1 else 1
        with self._lock:
            gate = self._gates.setdefault((line.logger, line.every), LogLimiter(most, line.every))
            return gate.admit(f"{line.subject}: {line.event}", self._clock.monotonic())
