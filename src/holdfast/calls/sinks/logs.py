"""Events of calls as records of the standard library's logging, without a flood of them."""

import logging
import threading
from typing import Any

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._forks import renew_after_fork
from holdfast._log_gate import LogGate
from holdfast.calls.events import Attempted, CallEvent, Exhausted, GaveUp, Retrying, TimeoutChanged
from holdfast.calls.retry import IN_WORDS, Reason

__all__ = ["LogSink"]

PER_SECOND = 5
"""Enough to see what is going on; a dependency that is down fails a thousand times a second."""
EXHAUSTED_EVERY = 60.0
"""Seconds: a bucket on the edge is exhausted again and again, which is one incident."""
EXPECTED = frozenset({Reason.PERMANENT, Reason.OWNED})
"""Giving up for these is no incident: the answer was no, or another layer goes on."""


class LogSink:
    """Logs what happens to calls: failed attempts at DEBUG, retries at INFO, giving up and an empty budget at WARNING.

    Giving up is at INFO where it is nothing unusual: the failure is permanent, or another layer retries. Attempts that
    succeed are not logged. Of each kind and dependency at most `per_second` records are made, of an empty budget one a
    minute; the next record says how many were left out (`left_out`), and `close` tells the rest. Every record has its
    values in `extra`, for formatters that write JSON. Thread-safe; it blocks as long as the handlers of the logger do.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        per_second: int = PER_SECOND,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        if per_second < 1:
            raise InvalidValue(f"at most {per_second} log records per second: expected 1 or more")
        self._logger = logging.getLogger("holdfast.calls") if logger is None else logger
        self._clock = clock
        self._gates: dict[type[CallEvent], LogGate] = {
            kind: LogGate(per_second, 1.0) for kind in (Attempted, Retrying, GaveUp, TimeoutChanged)
        }
        self._gates[Exhausted] = LogGate(1, EXHAUSTED_EVERY)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Have a lock that nobody holds, after a fork."""
        self._lock = threading.Lock()

    def emit(self, event: CallEvent) -> None:
        level = level_of(event)
        if level is None or not self._logger.isEnabledFor(level):
            return
        name = dependency_of(event)
        with self._lock:
            left_out = self._gates[type(event)].admit(name, self._clock.monotonic())
        if left_out is None:
            return
        words = in_words(event)
        fields = fields_of(event)
        if left_out:
            words += f" ({left_out} more like it were left out)"
            fields["left_out"] = left_out
        self._logger.log(level, "%s", words, extra=fields)

    def close(self) -> None:
        """Tell how many records were left out since the last ones. May be repeated."""
        with self._lock:
            untold = [(kind, name, count) for kind, gate in self._gates.items() for name, count in gate.drain().items()]
        for kind, name, count in untold:
            fields = {"event": kind.__name__, "dependency": name, "left_out": count}
            self._logger.info("%s: %d more of %s were left out", name, count, kind.__name__, extra=fields)


def level_of(event: CallEvent) -> int | None:
    """How much an event matters; None: not at all."""
    match event:
        case Attempted():
            return None if event.failure is None else logging.DEBUG
        case GaveUp():
            return logging.INFO if event.reason in EXPECTED else logging.WARNING
        case Exhausted():
            return logging.WARNING
        case _:
            return logging.INFO


def dependency_of(event: CallEvent) -> str:
    """The name of the dependency that an event is about."""
    return event.dependency if isinstance(event, Exhausted | TimeoutChanged) else event.operation.service


def in_words(event: CallEvent) -> str:
    """The event as a sentence."""
    match event:
        case Attempted():
            what = event.status or event.code or event.error or "the result"
            return f"{event.operation}: attempt {event.number} failed after {event.seconds:.3f} s: {what}"
        case Retrying():
            return f"{event.operation}: attempt {event.number} in {event.delay:.3f} s, after a failure: {event.failure}"
        case GaveUp():
            attempts = "1 attempt" if event.number == 1 else f"{event.number} attempts"
            return f"{event.operation}: gave up after {attempts} in {event.seconds:.3f} s: {IN_WORDS[event.reason]}"
        case Exhausted():
            return f"{event.dependency}: the retry budget is exhausted; retries trickle until calls succeed again"
        case TimeoutChanged():
            return (
                f"{event.dependency}: the {event.what} timeout is {event.after:.3f} s now, after {event.before:.3f} s"
            )


def fields_of(event: CallEvent) -> dict[str, Any]:
    """The event's values by names that no attribute of a log record has; those that are None are left out."""
    fields: dict[str, Any] = {"event": type(event).__name__, "dependency": dependency_of(event)}
    for name in event.__slots__:
        value = getattr(event, name)
        if name == "operation":
            value = value.name
        if value is not None:
            fields[name] = value
    return fields
