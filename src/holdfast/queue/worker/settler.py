"""Says what became of messages, many at a time."""

import logging
from collections.abc import Sequence

from holdfast._errors import EngineError, OutcomeUnknown
from holdfast.queue.events import Ending, Handled
from holdfast.queue.message import Ack, Bury, Drop, ExtendLease, Outcome, Release, RetryLater, Settlement
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.routine import Routine
from holdfast.queue.worker.running import Finished, Running

AT_ONCE = 500
WAIT = 0.1
"""Seconds between looks whether to stop."""
LONGEST_PAUSE = 1.0
"""Seconds before another try at most: what was done must be said before it is done again."""

log = logging.getLogger(__name__)


class Settler:
    """Settles what is finished, and tries as long as it takes: what was done must not be done again.

    Also when the lease has ended: until another worker has the message, it counts.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self.routine = Routine(post, "settle", self.step, longest_pause=LONGEST_PAUSE)

    def step(self) -> float:
        """Settle what is finished; waits a moment for something that is."""
        finished = self._post.held.take_finished(AT_ONCE, WAIT)
        if finished:
            try:
                self._settle(finished)
            except EngineError:
                self._post.held.put_back(finished)
                raise
        return 0.0

    def _settle(self, finished: Sequence[Finished]) -> None:
        settlements = [Settlement(one.running.delivery.receipt, one.outcome) for one in finished]
        try:
            kept = self._post.backend.settle(settlements)
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
                    self._post.queue,
                    finished[0].running.delivery.id,
                )
                self._post.held.settled(finished)
                return
            for one in finished:  # whichever it is, the others must not suffer for it
                self._settle([one])
            return
        self._post.held.settled(finished)
        self._tell(finished, kept)

    def _tell(self, finished: Sequence[Finished], kept: Sequence[bool]) -> None:
        lost = [one for one, was_held in zip(finished, kept, strict=True) if not was_held and not one.is_uncertain]
        if lost:
            log.warning(
                "queue %s: what became of %d messages does not count, their leases had ended: %s",
                self._post.queue,
                len(lost),
                ", ".join(str(one.running.delivery.id) for one in lost[:10]),
            )
        if self._post.events.is_on:
            at = self._post.clock.wall()
            for one, was_held in zip(finished, kept, strict=True):
                if one.running.started is not None or not isinstance(one.outcome, Release):
                    self._post.events.emit(_event(one, at, counts=was_held or one.is_uncertain))


def lost(running: Running, at: float, seconds: float) -> Handled:
    """The event of a message that was lost while it was handled."""
    return Handled(delivery=running.delivery, at=at, seconds=seconds, ending=Ending.LOST, job=running.job)


def _event(one: Finished, at: float, *, counts: bool) -> Handled:
    return Handled(
        delivery=one.running.delivery,
        at=at,
        seconds=one.seconds,
        ending=ending_of(one.outcome) if counts else Ending.LOST,
        error=one.error,
        job=one.running.job,
    )


def ending_of(outcome: Outcome) -> Ending:
    """How an attempt has ended of which this became."""
    match outcome:
        case Ack():
            return Ending.DONE
        case RetryLater():
            return Ending.RETRIED if outcome.counts else Ending.POSTPONED
        case Bury() | Drop():
            return Ending.BURIED
        case Release() | ExtendLease():
            return Ending.RETURNED
