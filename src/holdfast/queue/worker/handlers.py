"""From a message to the function that handles it, and from how that ends to what becomes of the message."""

import logging
import math
import random
import traceback
from functools import partial

import msgspec

from holdfast._clock import Clock
from holdfast._errors import InvalidValue
from holdfast.calls.context import SCOPE
from holdfast.calls.runtime import PROCESS
from holdfast.calls.scope import Incoming, Scope
from holdfast.queue.job import HANDLING, Packed, Postpone, Reject, is_asynchronous, unpack
from holdfast.queue.message import LONGEST, Bury, Delivery, RetryLater
from holdfast.queue.queue import HandlerTime, Queue
from holdfast.queue.rules.disposition import after_failure
from holdfast.queue.worker.context import Finished, Running

REASON = 500
"""Characters of a reason that are kept with a dead letter: its beginning, which people filter by."""
DETAIL = 16_384
"""Characters of a traceback that are kept with a dead letter: its end, which says what happened."""
SOON = 1.0
"""Seconds until another attempt, when it cannot be said what should become of a message."""

log = logging.getLogger(__name__)


class NoJob(LookupError):
    """A message calls a job that is not known here."""


class NoAttemptLeft(Exception):
    """A message was delivered more often than its handler wants to be tried: workers have died with it."""


class Handlers:
    """The handlers of one queue."""

    def __init__(self, queue: Queue, attempts: int, clock: Clock, longest_delay: float | None = None) -> None:
        if not queue.jobs and queue.handler is None:
            raise InvalidValue(
                f"queue {queue.name} has no jobs and no handler: nothing could be done with its messages"
            )
        for job in queue.jobs.values():
            job.prepare()
        self._queue = queue
        self._attempts = attempts
        self._clock = clock
        self._longest_delay = LONGEST if longest_delay is None else longest_delay
        self._is_async = queue.handler is not None and is_asynchronous(queue.handler)

    @property
    def shortest_timeout(self) -> float:
        """Seconds that the least patient of them has."""
        options = [self._queue.handler_options, *(job.options for job in self._queue.jobs.values())]
        return min((one.timeout for one in options if one.timeout is not None), default=math.inf)

    def find(self, running: Running) -> bool:
        """Find the handler of a message: is it to be awaited? Raises InvalidValue, NoJob, or NoAttemptLeft."""
        queue, delivery = self._queue, running.delivery
        packed = _packed(delivery) if queue.jobs else None
        job = None if packed is None else queue.jobs.get(packed.job)
        if packed is None or job is None:
            if queue.handler is not None:
                running.call, running.options = partial(queue.handler, delivery), queue.handler_options
                _require_attempt(running)
                return self._is_async
            if packed is None:
                raise InvalidValue("a body that calls no job, in a queue without a handler for others")
            raise NoJob(f"there is no job {packed.job} here")
        running.call = partial(job.function, **job.arguments(packed.arguments))
        running.options, running.job = job.options, job.name
        _require_attempt(running)
        return job.is_async

    def enter(self, running: Running) -> None:
        """Set message, deadline and trace in the context of a handler, which is its own: nothing is put back."""
        delivery, timeout = running.delivery, running.options.timeout
        expires = math.inf
        if delivery.deadline is not None:
            expires = PROCESS.monotonic() + max(0.0, delivery.deadline - self._clock.wall())
        scope: Scope = Incoming(expires, None, None, delivery.trace)
        if timeout is not None:
            scope = HandlerTime(min(expires, PROCESS.monotonic() + timeout), None, scope)
        SCOPE.set(scope)
        HANDLING.set(running.handling)

    def unfit(self, running: Running, error: Exception) -> Finished:
        """Return what becomes of a message that no handler takes. Others may know a job that is not known here."""
        if not isinstance(error, NoAttemptLeft | InvalidValue):
            return self.failed(running, error, 0.0)
        reason = str(error) if isinstance(error, NoAttemptLeft) else _reason(error)
        return Finished(running, Bury(reason), error=type(error).__name__)

    def failed(self, running: Running, error: BaseException, seconds: float) -> Finished:
        """What becomes of a message whose handler has raised, whatever that was. Does not raise itself."""
        name = type(error).__name__
        try:
            outcome = self._disposition(running, error, name)
        except BaseException:  # a message of which nothing becomes would be held for ever
            log.exception(
                "message %d of %s: its handler raised a %s, of which nothing can be made",
                running.delivery.id,
                running.delivery.queue,
                name,
            )
            is_last = running.delivery.attempt >= self._attempts_of(running)
            outcome = Bury(name) if is_last else RetryLater(SOON)
        return Finished(running, outcome, seconds, name)

    def _disposition(self, running: Running, error: BaseException, name: str) -> RetryLater | Bury:
        match error:
            case Postpone():
                return RetryLater(min(self._longest_delay, max(0.0, float(error.seconds))), counts=False)
            case Reject():
                return Bury(_text(error)[:REASON] or name, _detail(error))
            case _:
                outcome = after_failure(
                    running.delivery.attempt,
                    self._attempts_of(running),
                    _reason(error),
                    _detail(error),
                    backoff=running.options.backoff,
                    chance=random.random,
                )
                if isinstance(outcome, RetryLater) and outcome.delay > self._longest_delay:
                    return RetryLater(self._longest_delay)
                return outcome

    def _attempts_of(self, running: Running) -> int:
        return running.options.attempts or self._attempts


def _require_attempt(running: Running) -> None:
    attempt, attempts = running.delivery.attempt, running.options.attempts
    if attempts is not None and attempt > attempts:
        raise NoAttemptLeft(f"given up after {attempt - 1} deliveries: its handler may have {attempts}")


def _packed(delivery: Delivery) -> Packed | None:
    try:
        return unpack(delivery.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # text that is none, lists in lists in lists
        return None


def _reason(error: BaseException) -> str:
    name, text = type(error).__name__, _text(error)
    return (f"{name}: {text}" if text else name)[:REASON]


def _detail(error: BaseException) -> str:
    return _storable("".join(traceback.format_exception(error)))[-DETAIL:]


def _text(error: BaseException) -> str:
    try:
        return _storable(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot even be written down is one all the same
        return "its text cannot be had"


def _storable(text: str) -> str:
    """Without what databases do not take in a text: one such letter must not keep a whole batch from being settled."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
