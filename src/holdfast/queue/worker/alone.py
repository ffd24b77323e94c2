"""Handles a message alone that may be what its workers died of, so that it takes no others with it."""

import logging

from holdfast.queue.message import Release
from holdfast.queue.worker.crews import Crews
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.running import Finished, Running

SUSPECT = 2
"""Workers that must have died with a message in their hands: one is killed now and then for reasons of its own."""
PATIENCE = 10.0
"""Seconds for which it waits until the others here have ended. Then it begins all the same: they may take hours."""
GLANCE = 0.1

log = logging.getLogger(__name__)


class Alone:
    """Sees to it that a suspect is the only message in this process while it is handled.

    Of several, it keeps one, and hands the others back. For `Feeder`, in whose thread all of this happens.
    """

    def __init__(self, post: Post, crews: Crews) -> None:
        self._post = post
        self._crews = crews
        self._suspect: Running | None = None
        self._is_async = False
        self._has_begun = False

    def keep(self, running: Running, *, is_async: bool) -> bool:
        """Whether a message is a suspect, and so not to be handled now."""
        if running.delivery.deaths < SUSPECT:
            return False
        if self._suspect is None:
            self._suspect, self._is_async, self._has_begun = running, is_async, False
            running.is_patient = True
        else:
            self._post.held.finish(Finished(running, Release()))
        return True

    def step(self) -> bool:
        """Begin with the suspect if it is time; whether there is one, so that no more messages may be taken."""
        suspect, post = self._suspect, self._post
        if suspect is None:
            return False
        if suspect.is_over:  # handled, or handed back
            self._suspect = None
            return False
        has_company = len(post.held) > 1
        if not self._has_begun and (not has_company or post.clock.monotonic() - suspect.since >= PATIENCE):
            self._has_begun = True
            log.warning(
                "message %d of %s, tenant %s: %d workers were not heard of again that had it; it is handled alone",
                suspect.delivery.id,
                post.queue,
                suspect.delivery.tenant,
                suspect.delivery.deaths,
            )
            try:
                self._crews.give([suspect], is_async=self._is_async)
            except BaseException:  # there is no thread for it, and none can be started
                post.held.finish(Finished(suspect, Release()))
                raise
        post.held.wait_changed(GLANCE)
        return True
