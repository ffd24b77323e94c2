"""What a worker does with the leases that it has: settle, extend, give up in time; and sweep the queue.

`Settler` and `Heartbeat` speak to the backend, each in a thread of its own. `Watch` touches nothing but memory: it must
end a handler in time although a database does not answer.
"""

import logging
import random
from collections.abc import Callable, Sequence

from holdfast._errors import EngineError, OutcomeUnknown
from holdfast.queue.events import Ending, Handled
from holdfast.queue.message import Ack, Bury, Drop, ExtendLease, Outcome, Release, RetryLater, Settlement
from holdfast.queue.worker.context import Finished, Running, WorkerContext
from holdfast.queue.worker.crews import Crews

AT_ONCE = 500
"""Messages that are settled in one step."""
WAIT = 0.1
"""Seconds between looks whether to stop."""
LONGEST_SETTLE_PAUSE = 1.0
"""Seconds before another attempt at most: what was done must be settled before it is done again."""
BEATS = 3
"""Heartbeats in the time of a lease: two may fail."""
LONGEST_BEAT = 1.0
"""Seconds between looks whether a lease has to be extended."""
MARGIN = 6
"""The last part of a lease, one of six, in which a handler is told to stop."""
LONGEST_WAIT = 1.0
"""Seconds for which a message waits here at most for its handler to begin: another worker may be quicker."""
SHORTEST_NAP, LONGEST_NAP = 0.02, 0.25
NAPS = 4
"""Looks in the time that the least patient handler has."""
EVERY = 60.0
"""Seconds between sweeps of one worker, more or less: those of a fleet should not come all at once."""

log = logging.getLogger(__name__)


class Settler:
    """Tells the backend what became of messages, many at a time, and tries for as long as it takes.

    What was done must not be done again. It tries after the end of a lease, too: the settlement counts until another
    worker has the message.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.loop = context.loop("settle", self.step, longest_pause=LONGEST_SETTLE_PAUSE)

    def step(self) -> float:
        """Settle the messages that are finished; wait a moment for the first one."""
        finished = self._context.held.take_finished(AT_ONCE, WAIT)
        if finished:
            try:
                self._settle(finished)
            except EngineError:
                self._context.held.put_back(finished)
                raise
        return 0.0

    def _settle(self, finished: Sequence[Finished]) -> None:
        settlements = [Settlement(one.running.delivery.receipt, one.outcome) for one in finished]
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
                    finished[0].running.delivery.id,
                )
                self._context.held.settled(finished)
                return
            for one in finished:  # whichever it is, the others must not suffer for it
                self._settle([one])
            return
        self._context.held.settled(finished)
        self._tell(finished, kept)

    def _tell(self, finished: Sequence[Finished], kept: Sequence[bool]) -> None:
        lost = [one for one, was_held in zip(finished, kept, strict=True) if not was_held and not one.is_uncertain]
        if lost:
            log.warning(
                "queue %s: what became of %d messages does not count, their leases had ended: %s",
                self._context.queue,
                len(lost),
                ", ".join(str(one.running.delivery.id) for one in lost[:10]),
            )
        if self._context.events.is_on:
            at = self._context.clock.wall()
            for one, was_held in zip(finished, kept, strict=True):
                if one.running.started is not None or not isinstance(one.outcome, Release):
                    ending = ending_of(one.outcome) if was_held or one.is_uncertain else Ending.LOST
                    self._context.events.emit(_event(one.running, at, one.seconds, ending, one.error))


def _event(running: Running, at: float, seconds: float, ending: Ending, error: str | None = None) -> Handled:
    return Handled(delivery=running.delivery, at=at, seconds=seconds, ending=ending, error=error, job=running.job)


def ending_of(outcome: Outcome) -> Ending:
    """Return how the attempt ended that has this outcome."""
    match outcome:
        case Ack():
            return Ending.DONE
        case RetryLater():
            return Ending.RETRIED if outcome.counts else Ending.POSTPONED
        case Bury() | Drop():
            return Ending.BURIED
        case Release() | ExtendLease():
            return Ending.RETURNED


class Watch:
    """Ends handlers whose time is over, also `grace` seconds after `is_out`. Releases messages that wait in vain."""

    def __init__(self, context: WorkerContext, crews: Crews, is_out: Callable[[], bool], grace: float) -> None:
        self._context = context
        self._crews = crews
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
        for running in context.held.all():
            timeout, started = running.options.timeout, running.started
            if running.ends - now <= context.lease / MARGIN:
                # It cannot be settled in time any more, or only by luck: whoever gets it next must not be beside us.
                self.give_up(running, "its lease could not be kept")
            elif started is not None and timeout is not None and now - started >= timeout:
                error = TimeoutError(f"the handler took longer than {timeout:g} s")
                self._end(running, context.handlers.failed(running, error, now - started), str(error))
            elif started is None and (is_stuck or (now - running.since >= LONGEST_WAIT and not running.is_patient)):
                self._end(running, Finished(running, Release()), "it waited too long")
        self._look_at_zone(now)
        nap = min(LONGEST_NAP, context.lease / MARGIN / 2, context.handlers.shortest_timeout / NAPS)
        return max(SHORTEST_NAP, nap)

    def hand_back(self, why: str, *, started: bool) -> None:
        """Release the messages that wait here and, with `started`, also those that are being handled."""
        now = self._context.clock.monotonic()
        for running in self._context.held.all():
            if running.started is None:
                self._end(running, Finished(running, Release()), why)
            elif started:
                self._end(running, Finished(running, Release(), now - running.started), why)

    def give_up(self, running: Running, why: str) -> None:
        """Forget a message whose lease is lost, or may be: it cannot be settled any more."""
        context = self._context
        if not context.held.lose(running):
            return
        self._interrupt(running, why)
        if running.started is not None and context.events.is_on:
            seconds = context.clock.monotonic() - running.started
            context.events.emit(_event(running, context.clock.wall(), seconds, Ending.LOST))

    def _end(self, running: Running, finished: Finished, why: str) -> None:
        if self._context.held.finish(finished):
            self._interrupt(running, why)

    def _interrupt(self, running: Running, why: str) -> None:
        running.handling.end(why)
        if running.interrupt is not None:
            log.warning("message %d of %s: its handler is ended: %s", running.delivery.id, self._context.queue, why)
            running.interrupt(running)

    def _look_for_stuck(self) -> bool:
        is_stuck = self._crews.is_stuck
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
        self.hand_back("the zone is out", started=now - self._out_since >= self._grace)


class Heartbeat:
    """Extends leases, apart from `Watch`, which must not wait for a database."""

    def __init__(self, context: WorkerContext, watch: Watch) -> None:
        self._context = context
        self._watch = watch
        self._nap = min(LONGEST_BEAT, context.lease / BEATS / 2)
        self.loop = context.loop("keep leases", self.step, longest_pause=self._nap)

    def step(self) -> float:
        """Extend the leases of which a third is over; return the seconds until the next look."""
        context = self._context
        now = context.clock.monotonic()
        due = [running for running in context.held.all() if running.ends - now <= context.lease * (1 - 1 / BEATS)]
        if not due:
            return self._nap
        kept = context.backend.settle(
            [Settlement(running.delivery.receipt, ExtendLease(context.lease)) for running in due]
        )
        for running, is_held in zip(due, kept, strict=True):
            if is_held:
                running.ends = now + context.lease
            else:  # or it was settled in the meantime, which the watch sees
                self._watch.give_up(running, "another worker has it")
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
        return EVERY * (0.5 + random.random())  # noqa: S311 - spreads, hides nothing
