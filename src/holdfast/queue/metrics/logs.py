"""What happens in queues as records of the standard library's logging, without a flood of them."""

import logging
import threading
from typing import Any

from holdfast._clock import Clock, SystemClock
from holdfast._errors import InvalidValue
from holdfast._forks import renew_after_fork
from holdfast._log_gate import LogGate
from holdfast.calls.sinks.logs import PER_SECOND
from holdfast.queue.alarms import QueueAlarm
from holdfast.queue.events import Ending, Handled, Polled
from holdfast.queue.metrics.tally import Observed

__all__ = ["LogQueueSink"]

_ENDING_LEVELS = {Ending.RETRIED: logging.INFO, Ending.POSTPONED: logging.DEBUG, Ending.BURIED: logging.WARNING}


class LogQueueSink:
    """Logs what needs attention: alarms that open, and messages that are buried, at WARNING; retries at INFO.

    An alarm that closes is at INFO. What goes well is not logged, nor what workers log themselves. Of each queue and
    kind at most `per_second` records are made, apart from alarms, of which all are; the next record says how many were
    left out. Every record has its values in `extra`, for formatters that write JSON. Thread-safe; it blocks as long as
    the handlers of the logger do.
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
        self._logger = logging.getLogger("holdfast.queue") if logger is None else logger
        self._gate = LogGate(per_second, 1.0)
        self._clock = clock
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Have a lock that nobody holds, after a fork."""
        self._lock = threading.Lock()

    def emit(self, event: Observed) -> None:
        level = level_of(event)
        if level is None or not self._logger.isEnabledFor(level):
            return
        fields = fields_of(event)
        left_out: int | None = 0
        if not isinstance(event, QueueAlarm):
            kind = f"{fields['queue']} {fields['event']} {fields.get('ending', '')}"
            with self._lock:
                left_out = self._gate.admit(kind, self._clock.monotonic())
        if left_out is None:
            return
        words = in_words(event)
        if left_out:
            words += f" ({left_out} more like it were left out)"
            fields["left_out"] = left_out
        self._logger.log(level, "%s", words, extra=fields)


def level_of(event: Observed) -> int | None:
    """How much an event matters; None: not at all, or a worker has logged it already."""
    match event:
        case QueueAlarm():
            return logging.WARNING if event.is_open else logging.INFO
        case Handled():
            return _ENDING_LEVELS.get(event.ending)
        case Polled():
            return logging.WARNING if event.leased.buried else None
        case _:
            return None


def in_words(event: Observed) -> str:
    """The event as a sentence."""
    match event:
        case QueueAlarm():
            return event.sentence
        case Handled():
            delivery = event.delivery
            why = f": {event.error}" if event.error else ""
            return (
                f"queue {delivery.queue}: message {delivery.id} of tenant {delivery.tenant} was {event.ending} "
                f"after attempt {delivery.attempt}, in {event.seconds:.3f} s{why}"
            )
        case Polled():
            return (
                f"queue {event.queue}: {event.leased.buried} messages were buried, because none of the workers that "
                "they were delivered to was heard of again"
            )
        case _:
            return f"queue {event.queue}: {type(event).__name__}"


def fields_of(event: Observed) -> dict[str, Any]:
    """The event's values by names that no attribute of a log record has; those that are None are left out."""
    fields: dict[str, Any] = {"event": type(event).__name__}
    match event:
        case QueueAlarm():
            fields |= {name: getattr(event, name) for name in event.__slots__} | {"what": str(event.what)}
        case Handled():
            delivery = event.delivery
            fields |= {"queue": delivery.queue, "tenant": delivery.tenant, "message_id": delivery.id}
            fields |= {"attempt": delivery.attempt, "ending": str(event.ending), "seconds": event.seconds}
            fields |= {"error": event.error, "job": event.job, "trace": delivery.trace, "at": event.at}
        case Polled():
            fields |= {"queue": event.queue, "at": event.at, "abandoned": event.leased.buried}
        case _:
            fields |= {"queue": event.queue, "at": event.at}
    return {name: value for name, value in fields.items() if value is not None}
