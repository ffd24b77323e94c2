"""Asks for messages, as many as can be handled."""

import random
from collections.abc import Callable, Sequence

from holdfast.queue.backend import Leased, LeaseRequest
from holdfast.queue.events import Polled
from holdfast.queue.message import Release
from holdfast.queue.rules.leasing import (
    PERIOD,
    Pace,
    messages_to_request,
    next_caps,
    pace_after_fetch,
    pace_after_handling,
)
from holdfast.queue.worker.alone import Alone
from holdfast.queue.worker.crews import Crews
from holdfast.queue.worker.post import Post
from holdfast.queue.worker.routine import Routine
from holdfast.queue.worker.running import Finished, Running

IDLE = 1.0
"""Seconds after which an idle worker looks, even if nobody has told it anything."""
GLANCE = 0.1
"""Seconds between looks whether to stop."""
SHORT = 0.001
LONG = 0.02
"""Seconds to wait when the bell rings in vain, as that of a busy store does: from the one, doubling, to the other."""
MEASURE = 0.02
"""Seconds between measurements of how fast messages are handled."""


class Feeder:
    """Leases messages and gives them to those who run the handlers."""

    def __init__(self, post: Post, crews: Crews, is_out: Callable[[], bool]) -> None:
        self._post = post
        self._crews = crews
        self._is_out = is_out
        self._alone = Alone(post, crews)
        # Workers of a fleet that start together would otherwise all have the same turns for the same shares.
        self._before = random.randrange(PERIOD)  # noqa: S311 - spreads, hides nothing
        self._caps: dict[str, int] = {}
        self._pace = Pace()
        self._measured = (post.clock.monotonic(), 0, 0.0)
        self._was_told = False
        self._in_vain = 0
        self.is_asking = False
        """Whether messages may be on their way here that nobody knows of yet."""
        self.routine = Routine(post, "lease", self.step)

    def step(self) -> float:
        """Ask for messages, if any are wanted, or wait a moment."""
        post = self._post
        if not self._crews.can_take() or self._is_out():
            return GLANCE
        if self._alone.step():
            return 0.0
        self._measure()
        count = messages_to_request(post.concurrency, self._pace, len(post.held))
        if not count:
            post.held.wait_changed(GLANCE)
            return 0.0
        began = post.clock.monotonic()
        self.is_asking = True
        try:
            leased = post.backend.lease(
                LeaseRequest(queue=post.queue, count=count, lease=post.lease, before=self._before, caps=self._caps)
            )
            self._pace = pace_after_fetch(self._pace, post.clock.monotonic() - began)
            self._give(leased, began)
            if post.events.is_on:
                post.events.emit(Polled(queue=post.queue, at=post.clock.wall(), wanted=count, leased=leased))
        finally:
            self.is_asking = False
        self._caps = next_caps(
            leased.tenants, sum(seen.leased for seen in leased.tenants.values()), others_wait=leased.others_wait
        )
        if leased.deliveries:
            self._in_vain = 0
            return 0.0
        self._in_vain += self._was_told
        return self._idle(IDLE if leased.next_due is None else min(IDLE, max(SHORT, leased.next_due)))

    def _idle(self, seconds: float) -> float:
        """Wait for messages, and not much longer than the worker has to stop; how long to wait after that."""
        self._was_told = False
        while not self.routine.is_stopping and seconds > 0:
            if self._post.backend.wait(self._post.queue, min(GLANCE, seconds)):
                self._was_told = True
                return min(LONG, SHORT * 2 ** min(10, self._in_vain - 2)) if self._in_vain > 1 else 0.0
            seconds -= GLANCE
        self._in_vain = 0
        return 0.0

    def _give(self, leased: Leased, began: float) -> None:
        post = self._post
        self._before += len(leased.deliveries)
        ends = began + post.lease
        running = [Running(delivery, began, ends) for delivery in leased.deliveries]
        post.held.add(running)
        for_threads: list[Running] = []
        for_loop: list[Running] = []
        for one in running:
            try:
                is_async = post.handlers.find(one)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a message, the others are not to blame
                post.held.finish(post.handlers.unfit(one, error))
            else:
                if not self._alone.keep(one, is_async=is_async):
                    (for_loop if is_async else for_threads).append(one)
        if self.routine.is_stopping or self._is_out():
            for one in (*for_threads, *for_loop):
                post.held.finish(Finished(one, Release()))
            return
        try:
            self._hand_over(for_threads, is_async=False)
        finally:
            self._hand_over(for_loop, is_async=True)

    def _hand_over(self, some: Sequence[Running], *, is_async: bool) -> None:
        if not some:
            return
        try:
            self._crews.give(some, is_async=is_async)
        except BaseException:  # there is no thread, and none can be started: other workers may have some
            for one in some:
                self._post.held.finish(Finished(one, Release()))
            raise

    def _measure(self) -> None:
        now, handled, busy = self._post.clock.monotonic(), self._post.held.handled, self._post.held.busy
        then, handled_then, busy_then = self._measured
        if now - then >= MEASURE:
            self._pace = pace_after_handling(self._pace, handled - handled_then, busy - busy_then, now - then)
            self._measured = (now, handled, busy)
