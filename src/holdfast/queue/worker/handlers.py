"""Find the function that handles a message, and turn its result into a disposition."""

import logging
import math
import random
import traceback
from functools import partial

import msgspec

from holdfast._clock import Clock
from holdfast._errors import InvalidValue
from holdfast._names import format_count
from holdfast.calls.context import SCOPE
from holdfast.calls.runtime import PROCESS
from holdfast.calls.scope import IncomingScope, Scope
from holdfast.queue.job import CURRENT_MESSAGE, PackedCall, Postpone, Reject, is_asynchronous, unpack_call
from holdfast.queue.message import MAX_DURATION, Bury, Delivery, RetryLater
from holdfast.queue.queue import HandlerScope, Queue
from holdfast.queue.rules.disposition import decide_after_failure
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage

MAX_REASON = 500
"""Characters of a reason that are stored with a dead letter: its beginning, which people filter by."""
MAX_DETAIL = 16_384
"""Characters of a traceback that are stored with a dead letter: its end, which says what happened."""
FALLBACK_DELAY = 1.0
"""Seconds until another attempt, if the disposition of a message cannot be computed."""

log = logging.getLogger(__name__)


class UnknownJob(LookupError):
    """A message calls a job that this worker does not know."""


class NoAttemptLeft(Exception):
    """A message was delivered more often than its handler's `max_attempts`, because workers crashed."""


class Handlers:
    """The handlers of one queue."""

    def __init__(self, queue: Queue, max_attempts: int, clock: Clock, max_delay: float | None = None) -> None:
        if not queue.jobs and queue.handler is None:
            raise InvalidValue(
                f"queue {queue.name} has no jobs and no handler: define one with @queue.job or @queue.handle"
            )
        for job in queue.jobs.values():
            job.prepare()
        self._queue = queue
        self._max_attempts = max_attempts
        self._clock = clock
        self._max_delay = MAX_DURATION if max_delay is None else max_delay
        self._is_async = queue.handler is not None and is_asynchronous(queue.handler)

    @property
    def min_timeout(self) -> float:
        """The shortest timeout of all handlers in seconds, or infinity."""
        options = [self._queue.handler_options, *(job.options for job in self._queue.jobs.values())]
        return min((one.timeout for one in options if one.timeout is not None), default=math.inf)

    def find(self, message: LeasedMessage) -> bool:
        """Find a message's handler, and return whether it is async. Raise InvalidValue, UnknownJob or NoAttemptLeft."""
        queue, delivery = self._queue, message.delivery
        packed = _unpack_call(delivery) if queue.jobs else None
        job = None if packed is None else queue.jobs.get(packed.job)
        if packed is None or job is None:
            if queue.handler is not None:
                message.call, message.options = partial(queue.handler, delivery), queue.handler_options
                _require_attempt(message)
                return self._is_async
            if packed is None:
                raise InvalidValue("the body calls no job, and the queue has no handler for other messages")
            raise UnknownJob(f"this worker has no job {packed.job}")
        message.call = partial(job.function, **job.decode_arguments(packed.arguments))
        message.options, message.job = job.options, job.name
        _require_attempt(message)
        return job.is_async

    def enter(self, message: LeasedMessage) -> None:
        """Set message, deadline and trace in the current context. It belongs to the handler: nothing is restored."""
        delivery, timeout = message.delivery, message.options.timeout
        expires = math.inf
        if delivery.deadline is not None:
            expires = PROCESS.monotonic() + max(0.0, delivery.deadline - self._clock.wall())
        scope: Scope = IncomingScope(expires, None, None, delivery.trace)
        if timeout is not None:
            scope = HandlerScope(min(expires, PROCESS.monotonic() + timeout), None, scope)
        SCOPE.set(scope)
        CURRENT_MESSAGE.set(message.current_message)

    def finish_unfit(self, message: LeasedMessage, error: Exception) -> FinishedMessage:
        """Return the disposition of a message without a handler. An unknown job is retried: others may know it."""
        if not isinstance(error, NoAttemptLeft | InvalidValue):
            return self.finish_failed(message, error, 0.0)
        reason = str(error) if isinstance(error, NoAttemptLeft) else _format_reason(error)
        return FinishedMessage(message, Bury(reason), error=type(error).__name__, reason=reason)

    def finish_failed(self, message: LeasedMessage, error: BaseException, seconds: float) -> FinishedMessage:
        """Return the disposition of a message whose handler raised any exception. Does not raise."""
        name, reason, detail = type(error).__name__, None, None
        try:
            if not isinstance(error, Postpone):
                reason, detail = _format_reason(error), _format_detail(error)
            disposition = self._decide_disposition(message, error, reason or name, detail or "")
        except BaseException:  # a message without a disposition would stay leased forever
            log.exception(
                "message %d of %s: its handler raised %s, and deciding on a retry failed; it is retried in %g s, or "
                "buried if this was its last attempt",
                message.delivery.id,
                message.delivery.queue,
                name,
                FALLBACK_DELAY,
            )
            is_last = message.delivery.attempt >= self._get_max_attempts(message)
            disposition = Bury(name) if is_last else RetryLater(FALLBACK_DELAY)
        return FinishedMessage(message, disposition, seconds, name, reason, detail)

    def _decide_disposition(
        self, message: LeasedMessage, error: BaseException, reason: str, detail: str
    ) -> RetryLater | Bury:
        match error:
            case Postpone():
                return RetryLater(min(self._max_delay, max(0.0, float(error.seconds))), is_attempt=False)
            case Reject():
                return Bury(_get_text(error)[:MAX_REASON] or type(error).__name__, detail)
            case _:
                disposition = decide_after_failure(
                    message.delivery.attempt,
                    self._get_max_attempts(message),
                    reason,
                    detail,
                    backoff=message.options.backoff,
                    chance=random.random,
                )
                if isinstance(disposition, RetryLater) and disposition.delay > self._max_delay:
                    return RetryLater(self._max_delay)
                return disposition

    def _get_max_attempts(self, message: LeasedMessage) -> int:
        return message.options.max_attempts or self._max_attempts


def _require_attempt(message: LeasedMessage) -> None:
    attempt, max_attempts = message.delivery.attempt, message.options.max_attempts
    if max_attempts is not None and attempt > max_attempts:
        deliveries = format_count(attempt - 1, "delivery", "deliveries")
        raise NoAttemptLeft(f"gave up after {deliveries}: its handler has max_attempts {max_attempts}")


def _unpack_call(delivery: Delivery) -> PackedCall | None:
    try:
        return unpack_call(delivery.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # not a call, invalid text, nested too deeply
        return None


def _format_reason(error: BaseException) -> str:
    name, text = type(error).__name__, _get_text(error)
    return (f"{name}: {text}" if text else name)[:MAX_REASON]


def _format_detail(error: BaseException) -> str:
    return _make_storable("".join(traceback.format_exception(error)))[-MAX_DETAIL:]


def _get_text(error: BaseException) -> str:
    try:
        return _make_storable(str(error))
    except Exception:  # noqa: BLE001 - an error without a readable text is still an error
        return "(exception text not available)"


def _make_storable(text: str) -> str:
    """Replace characters that databases reject (NUL, surrogates): one would prevent settling a whole batch."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
