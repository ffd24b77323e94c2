"""Ends handlers whose time is over, and hands back what should not wait here. Touches nothing but memory."""

import logging
from collections.abc import Callable

from holdfast.queue.message import Release
from holdfast.queue.worker.crews import Crews
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.routine import Routine
from holdfast.queue.worker.running import Finished, Running
from holdfast.queue.worker.settler import lost

MARGIN = 6
"""The last part of a lease, one of so many, in which a handler is told to stop."""
LONGEST_WAIT = 1.0
"""Seconds for which a message waits here at most for its handler to begin: another worker may be quicker."""
SHORTEST_NAP, LONGEST_NAP = 0.02, 0.25
NAPS = 4
"""Looks in the time that the least patient handler has."""

log = logging.getLogger(__name__)


class Watch:
    """Looks after what the worker holds. `is_out` says whether its zone is out, `grace` how long handlers have then."""

    def __init__(self, post: Post, crews: Crews, is_out: Callable[[], bool], grace: float) -> None:
        self._post = post
        self._crews = crews
        self._is_out = is_out
        self._grace = grace
        self._out_since: float | None = None
        self._was_stuck = False
        self.routine = Routine(post, "watch", self.step)

    def step(self) -> float:
        """Do what is due; seconds until something else may be."""
        post = self._post
        now = post.clock.monotonic()
        is_stuck = self._look_for_stuck()
        for running in post.held.all():
            timeout, started = running.options.timeout, running.started
            if running.ends - now <= post.lease / MARGIN:
                # It cannot be settled in time any more, or only by luck: whoever gets it next must not be beside us.
                self.give_up(running, "its lease could not be kept")
            elif started is not None and timeout is not None and now - started >= timeout:
                error = TimeoutError(f"the handler took longer than {timeout:g} s")
                self._end(running, post.handlers.failed(running, error, now - started), str(error))
            elif started is None and (is_stuck or (now - running.since >= LONGEST_WAIT and not running.is_patient)):
                self._end(running, Finished(running, Release()), "it waited too long")
        self._look_at_zone(now)
        nap = min(LONGEST_NAP, post.lease / MARGIN / 2, post.handlers.shortest_timeout / NAPS)
        return max(SHORTEST_NAP, nap)

    def hand_back(self, why: str, *, started: bool) -> None:
        """Let other workers have what waits here and, with `started`, also what is being handled."""
        now = self._post.clock.monotonic()
        for running in self._post.held.all():
            if running.started is None:
                self._end(running, Finished(running, Release()), why)
            elif started:
                self._end(running, Finished(running, Release(), now - running.started), why)

    def give_up(self, running: Running, why: str) -> None:
        """A message is not this worker's any more, or not for sure: there is nothing to say of it."""
        post = self._post
        if not post.held.lose(running):
            return
        self._interrupt(running, why)
        if running.started is not None and post.events.is_on:
            seconds = post.clock.monotonic() - running.started
            post.events.emit(lost(running, post.clock.wall(), seconds))

    def _end(self, running: Running, finished: Finished, why: str) -> None:
        if self._post.held.finish(finished):
            self._interrupt(running, why)

    def _interrupt(self, running: Running, why: str) -> None:
        running.handling.end(why)
        if running.interrupt is not None:
            log.warning("message %d of %s: its handler is ended: %s", running.delivery.id, self._post.queue, why)
            running.interrupt(running)

    def _look_for_stuck(self) -> bool:
        is_stuck = self._crews.is_stuck
        if is_stuck and not self._was_stuck:
            log.error(
                "queue %s: handlers hang that were given up, and there is no room for more beside them: "
                "no messages are taken until some of them return",
                self._post.queue,
            )
        elif self._was_stuck and not is_stuck:
            log.warning("queue %s: handlers that hung have returned, messages are taken again", self._post.queue)
        self._was_stuck = is_stuck
        return is_stuck

    def _look_at_zone(self, now: float) -> None:
        """In a zone that is out, nothing waits, and handlers have a while to end."""
        if not self._is_out():
            self._out_since = None
            return
        if self._out_since is None:
            self._out_since = now
        self.hand_back("the zone is out", started=now - self._out_since >= self._grace)
