"""One run of a worker, from its start to its end."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.queue.worker.crews import Crews
from holdfast.queue.worker.feeder import Feeder
from holdfast.queue.worker.heartbeat import Heartbeat
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.settler import Settler
from holdfast.queue.worker.sweeper import Sweeper
from holdfast.queue.worker.watch import Watch

if TYPE_CHECKING:
    import asyncio

SETTLE_SECONDS = 5.0
"""How long a worker that stops tries to say what became of its last messages."""
RETURN_SECONDS = 1.0
"""How long it waits for handlers that were told to stop."""

log = logging.getLogger(__name__)


class Shift:
    """The parts of a worker at work: each can be looked at, and driven by hand, before `start`."""

    def __init__(
        self,
        post: Post,
        *,
        grace: float,
        is_out: Callable[[], bool] = lambda: False,
        loop: "asyncio.AbstractEventLoop | None" = None,
    ) -> None:
        self.post = post
        self._grace = grace
        self.crews = Crews(post, loop)
        self.settler = Settler(post)
        self.watch = Watch(post, self.crews, is_out, grace)
        self.heartbeat = Heartbeat(post, self.watch)
        self.feeder = Feeder(post, self.crews, is_out)
        self.sweeper = Sweeper(post)
        parts = (self.settler, self.watch, self.heartbeat, self.feeder, self.sweeper)
        self._routines = [part.routine for part in parts]

    def start(self) -> None:
        """Begin."""
        for routine in self._routines:
            routine.start()

    def stop(self) -> None:
        """Take no more, let handlers end, hand back what is left: what takes messages ends first, what settles last."""
        try:
            self._finish()
        finally:
            for routine in self._routines:
                routine.stop()
            for routine in self._routines:
                routine.join(RETURN_SECONDS)

    def _finish(self) -> None:
        held, clock = self.post.held, self.post.clock
        until = clock.monotonic() + self._grace
        self.feeder.routine.stop()
        # Those that have not begun, at once; those that it is just being given, when it has them.
        self.watch.hand_back("the worker stops", started=False)
        self.feeder.routine.join(SETTLE_SECONDS)
        self.watch.hand_back("the worker stops", started=False)
        if not held.wait_empty(max(0.0, until - clock.monotonic())):
            self.watch.hand_back("the worker stops, and there was no more time", started=True)
        self.crews.stop()
        if not self.crews.join(RETURN_SECONDS):
            log.warning("queue %s: some handlers have not returned; they end with the process", self.post.queue)
        if not held.wait_empty(SETTLE_SECONDS):
            log.warning(
                "queue %s: %d messages could not be settled, and will be delivered again", self.post.queue, len(held)
            )
