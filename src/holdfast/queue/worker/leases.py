"""Settle messages, extend leases, stop handlers in time, and sweep the queue.

`Settler` and `Heartbeat` call the backend, each in its own thread. `Watchdog` works in memory only, because it must
stop a handler in time even if the database does not answer.
"""

import logging
import random
from collections.abc import Callable, Sequence

from holdfast._errors import EngineError, OutcomeUnknown
from holdfast._names import format_count
from holdfast.queue.events import AttemptEvent, AttemptResult
from holdfast.queue.message import Ack, Bury, ExtendLease, Release, RetryLater, Settlement
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage, WorkerContext
from holdfast.queue.worker.executors import HandlerExecutors

SETTLE_BATCH = 500
"""Messages that are settled in one transaction."""
SETTLE_WAIT = 0.1
"""Seconds to wait for a finished message before checking for a stop request."""
MAX_SETTLE_PAUSE = 1.0
"""Maximum seconds before another try: handled messages must be settled before they are delivered again."""
BEATS_PER_LEASE = 3
"""Heartbeats per lease: two may fail."""
MAX_BEAT_SECONDS = 1.0
"""Maximum seconds between checks for leases to extend."""
STOP_MARGIN_DIVISOR = 6
"""A handler is asked to stop when a sixth of its lease is left."""
MAX_START_WAIT = 1.0
"""Maximum seconds that a message waits here for its handler to begin: another worker may be quicker."""
MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL = 0.02, 0.25
CHECKS_PER_TIMEOUT = 4
"""Checks within the shortest timeout of all handlers."""
SWEEP_SECONDS = 60.0
"""Mean seconds between sweeps of one worker. Randomised, so that a fleet does not sweep all at the same time."""

log = logging.getLogger(__name__)


class Settler:
    """Settles finished messages in batches, and tries until it succeeds.

    Handled messages must not be handled again. So it tries even after a lease has expired: the settlement is valid
    until the message becomes ready again.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.loop = context.loop("settle", self.step, max_pause=MAX_SETTLE_PAUSE)

    def step(self) -> float:
        """Settle the finished messages. Waits a moment for the first one."""
        finished = self._context.leased.take_finished(SETTLE_BATCH, SETTLE_WAIT)
        if finished:
            try:
                self._settle(finished)
            except EngineError:
                self._context.leased.put_back(finished)
                raise
        return 0.0

    def _settle(self, finished: Sequence[FinishedMessage]) -> None:
        settlements = [Settlement(one.message.delivery.receipt, one.disposition) for one in finished]
        try:
            accepted = self._context.backend.settle(settlements)
        except OutcomeUnknown:
            for one in finished:
                one.is_uncertain = True
            raise
        except EngineError:
            raise
        except Exception:
            if len(finished) == 1:
                log.exception(
                    "queue %s: message %d cannot be settled, and will be delivered again",
                    self._context.queue,
                    finished[0].message.delivery.id,
                )
                self._context.leased.remove_settled(finished)
                return
            for one in finished:  # one of them is the cause: settle the others anyway
                self._settle([one])
            return
        self._context.leased.remove_settled(finished)
        self._report(finished, accepted)

    def _report(self, finished: Sequence[FinishedMessage], accepted: Sequence[bool]) -> None:
        lost = [
            one for one, was_valid in zip(finished, accepted, strict=True) if not was_valid and not one.is_uncertain
        ]
        if lost:
            log.warning(
                "queue %s: %s refused because of expired leases: %s",
                self._context.queue,
                format_count(len(lost), "settlement"),
                ", ".join(str(one.message.delivery.id) for one in lost[:10]),
            )
        if self._context.events.is_enabled:
            at = self._context.clock.wall()
            for one, was_valid in zip(finished, accepted, strict=True):
                if one.message.started_at is not None or not isinstance(one.disposition, Release):
                    ending = (
                        get_attempt_result(one.disposition)
                        if was_valid or one.is_uncertain
                        else AttemptResult.LEASE_LOST
                    )
                    self._context.events.emit(_event(one, at, ending))


def _event(one: FinishedMessage, at: float, ending: AttemptResult) -> AttemptEvent:
    return AttemptEvent(
        delivery=one.message.delivery,
        at=at,
        seconds=one.seconds,
        result=ending,
        error=one.error,
        reason=one.reason,
        detail=one.detail,
        job=one.message.job,
    )


def get_attempt_result(disposition: Ack | RetryLater | Bury | Release) -> AttemptResult:
    """Return the result of an attempt that ended with this disposition."""
    match disposition:
        case Ack():
            return AttemptResult.ACKED
        case RetryLater():
            return AttemptResult.RETRIED if disposition.is_attempt else AttemptResult.POSTPONED
        case Bury():
            return AttemptResult.BURIED
        case Release():
            return AttemptResult.RELEASED


class Watchdog:
    """Stops handlers: at their timeout, shortly before their lease expires, and if their zone stays out.

    If the zone is out, handlers have `shutdown_timeout` seconds to finish.

    Also releases messages that wait too long for their handlers.
    """

    def __init__(
        self,
        context: WorkerContext,
        executors: HandlerExecutors,
        is_zone_out: Callable[[], bool],
        shutdown_timeout: float,
    ) -> None:
        self._context = context
        self._executors = executors
        self._is_out = is_zone_out
        self._shutdown_timeout = shutdown_timeout
        self._out_since: float | None = None
        self._was_stuck = False
        self.loop = context.loop("watch", self.step, action="stop handlers that take too long", uses_backend=False)

    def step(self) -> float:
        """Stop handlers whose time is over. Return the seconds until the next check."""
        context = self._context
        now = context.clock.monotonic()
        is_stuck = self._check_stuck()
        for message in context.leased.list_undecided():
            timeout, started = message.options.timeout, message.started_at
            if message.lease_ends_at - now <= context.lease / STOP_MARGIN_DIVISOR:
                # Too late to settle it safely. Stop now, so that two workers do not handle it at the same time.
                self.abandon(message, "its lease could not be extended")
            elif started is not None and timeout is not None and now - started >= timeout:
                error = TimeoutError(f"the handler took longer than {timeout:g} s")
                self._end(message, context.handlers.finish_failed(message, error, now - started), str(error))
            elif started is None and (is_stuck or (now - message.leased_at >= MAX_START_WAIT and not message.can_wait)):
                self._end(message, FinishedMessage(message, Release()), "it waited too long for its handler to begin")
        self._check_zone(now)
        interval = min(
            MAX_CHECK_INTERVAL,
            context.lease / STOP_MARGIN_DIVISOR / 2,
            context.handlers.min_timeout / CHECKS_PER_TIMEOUT,
        )
        return max(MIN_CHECK_INTERVAL, interval)

    def release(self, why: str, *, include_started: bool) -> None:
        """Release the messages that wait here and, with `include_started`, also those being handled."""
        now = self._context.clock.monotonic()
        for message in self._context.leased.list_undecided():
            if message.started_at is None:
                self._end(message, FinishedMessage(message, Release()), why)
            elif include_started:
                self._end(message, FinishedMessage(message, Release(), now - message.started_at), why)

    def abandon(self, message: LeasedMessage, why: str) -> None:
        """Forget a message whose lease is lost, or may be, and stop its handler: it cannot be settled any more."""
        context = self._context
        if not context.leased.forget(message):
            return
        self._interrupt(message, why)
        if message.started_at is not None and context.events.is_enabled:
            seconds = context.clock.monotonic() - message.started_at
            lost = FinishedMessage(message, Release(), seconds)
            context.events.emit(_event(lost, context.clock.wall(), AttemptResult.LEASE_LOST))

    def _end(self, message: LeasedMessage, finished: FinishedMessage, why: str) -> None:
        if self._context.leased.finish(finished):
            self._interrupt(message, why)

    def _interrupt(self, message: LeasedMessage, why: str) -> None:
        message.current_message.end(why)
        if message.interrupt is not None:
            log.warning("message %d of %s: stopping its handler: %s", message.delivery.id, self._context.queue, why)
            message.interrupt(message)

    def _check_stuck(self) -> bool:
        is_stuck = self._executors.is_stuck
        if is_stuck and not self._was_stuck:
            log.error(
                "queue %s: handlers have not returned after they were told to stop, so no more can start and no "
                "messages are leased. Restart the process; set timeouts on the calls that handlers make",
                self._context.queue,
            )
        elif self._was_stuck and not is_stuck:
            log.warning("queue %s: hanging handlers have returned, messages are leased again", self._context.queue)
        self._was_stuck = is_stuck
        return is_stuck

    def _check_zone(self, now: float) -> None:
        """If the zone is out, release waiting messages, and all others after `shutdown_timeout` seconds."""
        if not self._is_out():
            self._out_since = None
            return
        if self._out_since is None:
            self._out_since = now
        self.release("the zone is out", include_started=now - self._out_since >= self._shutdown_timeout)


class Heartbeat:
    """Extends leases. Separate from `Watchdog`, which must not wait for a database."""

    def __init__(self, context: WorkerContext, watchdog: Watchdog) -> None:
        self._context = context
        self._watchdog = watchdog
        self._interval = min(MAX_BEAT_SECONDS, context.lease / BEATS_PER_LEASE / 2)
        self.loop = context.loop("extend", self.step, action="extend leases", max_pause=self._interval)

    def step(self) -> float:
        """Extend leases of which a third has passed. Return the seconds until the next check."""
        context = self._context
        now = context.clock.monotonic()
        due = [
            message
            for message in context.leased.list_undecided()
            if message.lease_ends_at - now <= context.lease * (1 - 1 / BEATS_PER_LEASE)
        ]
        if not due:
            return self._interval
        accepted = context.backend.settle(
            [Settlement(message.delivery.receipt, ExtendLease(context.lease)) for message in due]
        )
        for message, is_still_leased in zip(due, accepted, strict=True):
            if is_still_leased:
                message.lease_ends_at = now + context.lease
            else:  # or it was settled meanwhile: then `abandon` does nothing
                self._watchdog.abandon(message, "another worker has it")
        return self._interval


class Sweeper:
    """Sweeps the queue about once a minute. Nothing depends on it: lease requests also make due messages ready."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._is_first = True
        self.loop = context.loop("sweep", self.step)

    def step(self) -> float:
        """Sweep, except at the start, when there is other work. Return the seconds until the next sweep."""
        if self._is_first:
            self._is_first = False
        else:
            self._context.backend.sweep(self._context.queue)
        return SWEEP_SECONDS * (0.5 + random.random())  # noqa: S311 - not for cryptography
