"""Threads that do one thing again and again, whatever happens."""

import logging
import random
import threading
from collections.abc import Callable

from holdfast._backoff import Backoff, Jitter
from holdfast._errors import HoldfastError
from holdfast.queue.events import Trouble
from holdfast.queue.worker.post import Post

SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
"""Seconds before another try, when what keeps the messages cannot be reached: from the one, doubling, to the other."""

log = logging.getLogger(__name__)


class Routine:
    """A thread that takes one step after the other, until it is stopped. A step says how long to wait after it."""

    def __init__(
        self, post: Post, doing: str, step: Callable[[], float], *, longest_pause: float = LONGEST_PAUSE
    ) -> None:
        self._post = post
        self._doing = doing
        self._step = step
        self._backoff = Backoff(base=min(SHORTEST_PAUSE, longest_pause), cap=longest_pause, jitter=Jitter.EQUAL)
        self._failures = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{post.queue}-{doing}", daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether this step is the last one."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is under way."""
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait for the last step; false: it takes longer."""
        if self._thread.ident is not None:  # else it was never started
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def turn(self) -> float:
        """Take one step; seconds to wait before the next. A step that fails is taken again after growing pauses."""
        try:
            pause = self._step()
        except Exception as error:  # noqa: BLE001 - a worker goes on, whatever happens to a step
            self._failures += 1
            pause = self._backoff.delay(self._failures, 0.0, random.random)
            self._tell(error, pause)
            return pause
        self._failures = 0
        return pause

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = self.turn()
            if pause > 0:
                self._stopping.wait(pause)

    def _tell(self, error: Exception, pause: float) -> None:
        post = self._post
        log.warning(
            "queue %s: cannot %s, trying again in %.2f s: %s: %s",
            post.queue,
            self._doing,
            pause,
            type(error).__name__,
            error,
            exc_info=None if isinstance(error, HoldfastError) else error,
        )
        post.events.emit(Trouble(queue=post.queue, at=post.clock.wall(), doing=self._doing, error=type(error).__name__))
