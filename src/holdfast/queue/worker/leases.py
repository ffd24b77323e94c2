"""What a worker does with the leases that it has: settle, extend, give up in time; and sweep the queue.

`Settler` and `Heartbeat` speak to the backend, each in a thread of its own. `Watchdog` touches nothing but memory: it
must end a handler in time although a database does not answer.
"""

import logging
import random
from collections.abc import Callable, Sequence

from holdfast._errors import EngineError, OutcomeUnknown
from holdfast.queue.events import AttemptEvent, AttemptResult
from holdfast.queue.message import Ack, Bury, Disposition, Drop, ExtendLease, Release, RetryLater, Settlement
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage, WorkerContext
from holdfast.queue.worker.executors import HandlerExecutors

SETTLE_BATCH = 500
"""Messages that are settled in one step."""
SETTLE_WAIT = 0.1
"""Seconds between looks whether to stop."""
MAX_SETTLE_PAUSE = 1.0
"""Seconds before another attempt at most: what was done must be settled before it is done again."""
BEATS_PER_LEASE = 3
"""Heartbeats in the time of a lease: two may fail."""
MAX_BEAT_SECONDS = 1.0
"""Seconds between looks whether a lease has to be extended."""
STOP_MARGIN = 6
"""The last part of a lease, one of six, in which a handler is told to stop."""
MAX_START_WAIT = 1.0
"""Seconds for which a message waits here at most for its handler to begin: another worker may be quicker."""
MIN_NAP, MAX_NAP = 0.02, 0.25
NAPS_PER_TIMEOUT = 4
"""Looks in the time that the least patient handler has."""
SWEEP_SECONDS = 60.0
"""Seconds between sweeps of one worker, more or less: those of a fleet should not come all at once."""

log = logging.getLogger(__name__)


class Settler:
    """Tells the backend what became of messages, many at a time, and tries for as long as it takes.

    What was done must not be done again. It tries after the end of a lease, too: the settlement counts until another
    worker has the message.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.loop = context.loop("settle", self.step, max_pause=MAX_SETTLE_PAUSE)

    def step(self) -> float:
        """Settle the messages that are finished; wait a moment for the first one."""
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
            kept = self._context.backend.settle(settlements)
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
            for one in finished:  # whichever it is, the others must not suffer for it
                self._settle([one])
            return
        self._context.leased.remove_settled(finished)
        self._report(finished, kept)

    def _report(self, finished: Sequence[FinishedMessage], kept: Sequence[bool]) -> None:
        lost = [one for one, was_held in zip(finished, kept, strict=True) if not was_held and not one.is_uncertain]
        if lost:
            log.warning(
                "queue %s: what became of %d messages does not count, their leases had ended: %s",
                self._context.queue,
                len(lost),
                ", ".join(str(one.message.delivery.id) for one in lost[:10]),
            )
        if self._context.events.is_enabled:
            at = self._context.clock.wall()
            for one, was_held in zip(finished, kept, strict=True):
                if one.message.started_at is not None or not isinstance(one.disposition, Release):
                    ending = get_attempt_result(one.disposition) if was_held or one.is_uncertain else AttemptResult.LOST
                    self._context.events.emit(_event(one.message, at, one.seconds, ending, one.error))


def _event(
    message: LeasedMessage, at: float, seconds: float, ending: AttemptResult, error: str | None = None
) -> AttemptEvent:
    return AttemptEvent(delivery=message.delivery, at=at, seconds=seconds, result=ending, error=error, job=message.job)


def get_attempt_result(disposition: Disposition) -> AttemptResult:
    """Return how the attempt ended that has this disposition."""
    match disposition:
        case Ack():
            return AttemptResult.ACKED
        case RetryLater():
            return AttemptResult.RETRIED if disposition.is_attempt else AttemptResult.POSTPONED
        case Bury() | Drop():
            return AttemptResult.BURIED
        case Release() | ExtendLease():
            return AttemptResult.RELEASED


class Watchdog:
    """Ends handlers whose time is over, also `grace` seconds after `is_out`. Releases messages that wait in vain."""

    def __init__(
        self, context: WorkerContext, executors: HandlerExecutors, is_out: Callable[[], bool], grace: float
    ) -> None:
        self._context = context
        self._executors = executors
        self._is_out = is_out
        self._grace = grace
        self._out_since: float | None = None
        self._was_stuck = False
        self.loop = context.loop("watch", self.step)

    def step(self) -> float:
        """End the handlers whose time is over; return the seconds until the next look."""
        context = self._context
        now = context.clock.monotonic()
        is_stuck = self._look_for_stuck()
        for message in context.leased.list_undecided():
            timeout, started = message.options.timeout, message.started_at
            if message.lease_ends_at - now <= context.lease / STOP_MARGIN:
                # It cannot be settled in time any more, or only by luck: whoever gets it next must not be beside us.
                self.abandon(message, "its lease could not be kept")
            elif started is not None and timeout is not None and now - started >= timeout:
                error = TimeoutError(f"the handler took longer than {timeout:g} s")
                self._end(message, context.handlers.finish_failed(message, error, now - started), str(error))
            elif started is None and (is_stuck or (now - message.leased_at >= MAX_START_WAIT and not message.can_wait)):
                self._end(message, FinishedMessage(message, Release()), "it waited too long")
        self._look_at_zone(now)
        nap = min(MAX_NAP, context.lease / STOP_MARGIN / 2, context.handlers.min_timeout / NAPS_PER_TIMEOUT)
        return max(MIN_NAP, nap)

    def release(self, why: str, *, include_started: bool) -> None:
        """Release the messages that wait here and, with `include_started`, also those that are being handled."""
        now = self._context.clock.monotonic()
        for message in self._context.leased.list_undecided():
            if message.started_at is None:
                self._end(message, FinishedMessage(message, Release()), why)
            elif include_started:
                self._end(message, FinishedMessage(message, Release(), now - message.started_at), why)

    def abandon(self, message: LeasedMessage, why: str) -> None:
        """Forget a message whose lease is lost, or may be: it cannot be settled any more."""
        context = self._context
        if not context.leased.forget(message):
            return
        self._interrupt(message, why)
        if message.started_at is not None and context.events.is_enabled:
            seconds = context.clock.monotonic() - message.started_at
            context.events.emit(_event(message, context.clock.wall(), seconds, AttemptResult.LOST))

    def _end(self, message: LeasedMessage, finished: FinishedMessage, why: str) -> None:
        if self._context.leased.finish(finished):
            self._interrupt(message, why)

    def _interrupt(self, message: LeasedMessage, why: str) -> None:
        message.current_message.end(why)
        if message.interrupt is not None:
            log.warning("message %d of %s: its handler is ended: %s", message.delivery.id, self._context.queue, why)
            message.interrupt(message)

    def _look_for_stuck(self) -> bool:
        is_stuck = self._executors.is_stuck
        if is_stuck and not self._was_stuck:
            log.error(
                "queue %s: handlers hang that were given up, and there is no room for more beside them: "
                "no messages are taken until some of them return",
                self._context.queue,
            )
        elif self._was_stuck and not is_stuck:
            log.warning("queue %s: handlers that hung have returned, messages are taken again", self._context.queue)
        self._was_stuck = is_stuck
        return is_stuck

    def _look_at_zone(self, now: float) -> None:
        """In a zone that is out, release what waits, and give handlers `grace` seconds to end."""
        if not self._is_out():
            self._out_since = None
            return
        if self._out_since is None:
            self._out_since = now
        self.release("the zone is out", include_started=now - self._out_since >= self._grace)


class Heartbeat:
    """Extends leases, apart from `Watchdog`, which must not wait for a database."""

    def __init__(self, context: WorkerContext, watchdog: Watchdog) -> None:
        self._context = context
        self._watchdog = watchdog
        self._nap = min(MAX_BEAT_SECONDS, context.lease / BEATS_PER_LEASE / 2)
        self.loop = context.loop("keep leases", self.step, max_pause=self._nap)

    def step(self) -> float:
        """Extend the leases of which a third is over; return the seconds until the next look."""
        context = self._context
        now = context.clock.monotonic()
        due = [
            message
            for message in context.leased.list_undecided()
            if message.lease_ends_at - now <= context.lease * (1 - 1 / BEATS_PER_LEASE)
        ]
        if not due:
            return self._nap
        kept = context.backend.settle(
            [Settlement(message.delivery.receipt, ExtendLease(context.lease)) for message in due]
        )
        for message, is_held in zip(due, kept, strict=True):
            if is_held:
                message.lease_ends_at = now + context.lease
            else:  # or it was settled in the meantime, which the watchdog sees
                self._watchdog.abandon(message, "another worker has it")
        return self._nap


class Sweeper:
    """Sweeps the queue about once a minute. Nothing waits for it: what is due is made ready by leases as well."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._is_first = True
        self.loop = context.loop("sweep", self.step)

    def step(self) -> float:
        """Sweep, but not at the start, when there is other work to do; return the seconds until the next time."""
        if self._is_first:
            self._is_first = False
        else:
            self._context.backend.sweep(self._context.queue)
        return SWEEP_SECONDS * (0.5 + random.random())  # noqa: S311 - spreads, hides nothing
