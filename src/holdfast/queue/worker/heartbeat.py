"""Keeps leases while handlers are at work."""

from holdfast.queue.message import ExtendLease, Settlement
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.routine import Routine
from holdfast.queue.worker.watch import Watch

BEATS = 3
"""Heartbeats in the time of a lease: two may fail."""
LONGEST_NAP = 1.0


class Heartbeat:
    """Makes leases longer. A thread apart from the one that ends handlers, which must not wait for a database."""

    def __init__(self, post: Post, watch: Watch) -> None:
        self._post = post
        self._watch = watch
        self._nap = min(LONGEST_NAP, post.lease / BEATS / 2)
        self.routine = Routine(post, "keep leases", self.step, longest_pause=self._nap)

    def step(self) -> float:
        """Make longer what has lasted for a third of its time; seconds until others may have."""
        post = self._post
        now = post.clock.monotonic()
        due = [running for running in post.held.all() if running.ends - now <= post.lease * (1 - 1 / BEATS)]
        if not due:
            return self._nap
        kept = post.backend.settle([Settlement(running.delivery.receipt, ExtendLease(post.lease)) for running in due])
        for running, is_held in zip(due, kept, strict=True):
            if is_held:
                running.ends = now + post.lease
            else:  # or it was settled in the meantime, which the watch sees
                self._watch.give_up(running, "another worker has it")
        return self._nap
