"""Has dropped what is too old, and forgotten what nobody needs any more, so that the store does not grow."""

import random

from holdfast.queue.worker.post import Post
from holdfast.queue.worker.routine import Routine

EVERY = 60.0
"""Seconds between sweeps of one worker, more or less: those of a fleet should not come all at once."""


class Sweeper:
    """Sweeps the queue about once a minute. Nothing waits for it: what is due is made ready by leases as well."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._is_first = True
        self.routine = Routine(post, "sweep", self.step)

    def step(self) -> float:
        """Sweep, but not at the start, when there is other work to do; seconds until the next time."""
        if self._is_first:
            self._is_first = False
        else:
            self._post.backend.sweep(self._post.queue)
        return EVERY * (0.5 + random.random())  # noqa: S311 - spreads, hides nothing
