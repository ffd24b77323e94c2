"""Leases messages for the crews. `Quarantine` keeps one that may have killed its workers from taking others along."""

import logging
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
from holdfast.queue.worker.context import Finished, Running, WorkerContext
from holdfast.queue.worker.crews import Crews

IDLE = 1.0
"""Seconds after which an idle worker looks, even if nobody has told it anything."""
GLANCE = 0.1
"""Seconds between looks whether to stop."""
SHORT = 0.001
LONG = 0.02
"""Seconds to wait when the bell rings in vain, as that of a busy store does: from the one, doubling, to the other."""
MEASURE = 0.02
"""Seconds between measurements of how fast messages are handled."""
SUSPECT = 2
"""Workers that must have died with a message before it is a suspect: one is killed now and then for other reasons."""
PATIENCE = 10.0
"""Seconds for which a suspect waits until the other handlers here have ended. They may take hours: it begins then."""

log = logging.getLogger(__name__)


class Feeder:
    """Leases messages and gives them to those who run the handlers."""

    def __init__(self, context: WorkerContext, crews: Crews, is_out: Callable[[], bool]) -> None:
        self._context = context
        self._crews = crews
        self._is_out = is_out
        self._quarantine = Quarantine(context, crews)
        # Workers of a fleet that start together would otherwise all have the same turns for the same shares.
        self._before = random.randrange(PERIOD)  # noqa: S311 - spreads, hides nothing
        self._caps: dict[str, int] = {}
        self._pace = Pace()
        self._measured = (context.clock.monotonic(), 0, 0.0)
        self._was_told = False
        self._in_vain = 0
        self.is_asking = False
        """Whether messages may be on their way here that nobody knows of yet."""
        self.is_stopping = False
        """Whether to lease no more. What is on its way is released."""
        self.loop = context.loop("lease", lambda: GLANCE if self.is_stopping else self.step())

    def step(self) -> float:
        """Lease messages, if any are wanted, or wait a moment."""
        context = self._context
        if not self._crews.can_take() or self._is_out():
            return GLANCE
        if self._quarantine.step():
            return 0.0
        self._measure()
        count = messages_to_request(context.concurrency, self._pace, len(context.held))
        if not count:
            context.held.wait_changed(GLANCE)
            return 0.0
        began = context.clock.monotonic()
        self.is_asking = True
        try:
            leased = context.backend.lease(
                LeaseRequest(
                    queue=context.queue, count=count, lease=context.lease, before=self._before, caps=self._caps
                )
            )
            self._pace = pace_after_fetch(self._pace, context.clock.monotonic() - began)
            self._give(leased, began)
            if context.events.is_on:
                context.events.emit(Polled(queue=context.queue, at=context.clock.wall(), wanted=count, leased=leased))
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
        """Wait for messages, but not long after the worker was told to stop; return how long to wait after that."""
        self._was_told = False
        while not self.is_stopping and seconds > 0:
            if self._context.backend.wait(self._context.queue, min(GLANCE, seconds)):
                self._was_told = True
                return min(LONG, SHORT * 2 ** min(10, self._in_vain - 2)) if self._in_vain > 1 else 0.0
            seconds -= GLANCE
        self._in_vain = 0
        return 0.0

    def _give(self, leased: Leased, began: float) -> None:
        context = self._context
        self._before += len(leased.deliveries)
        ends = began + context.lease
        running = [Running(delivery, began, ends) for delivery in leased.deliveries]
        context.held.add(running)
        for_threads: list[Running] = []
        for_loop: list[Running] = []
        for one in running:
            try:
                is_async = context.handlers.find(one)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a message, the others are not to blame
                context.held.finish(context.handlers.unfit(one, error))
            else:
                if not self._quarantine.keep(one, is_async=is_async):
                    (for_loop if is_async else for_threads).append(one)
        if self.is_stopping or self._is_out():
            for one in (*for_threads, *for_loop):
                context.held.finish(Finished(one, Release()))
            return
        try:
            _hand_over(context, self._crews, for_threads, is_async=False)
        finally:
            _hand_over(context, self._crews, for_loop, is_async=True)

    def _measure(self) -> None:
        now, handled, busy = self._context.clock.monotonic(), self._context.held.handled, self._context.held.busy
        then, handled_then, busy_then = self._measured
        if now - then >= MEASURE:
            self._pace = pace_after_handling(self._pace, handled - handled_then, busy - busy_then, now - then)
            self._measured = (now, handled, busy)


class Quarantine:
    """Has a suspect handled alone: while it is, there is no other message in this process that could die with it.

    Of several suspects it keeps one, and releases the others. Used by `Feeder`, in its thread only.
    """

    def __init__(self, context: WorkerContext, crews: Crews) -> None:
        self._context = context
        self._crews = crews
        self._suspect: Running | None = None
        self._is_async = False
        self._has_begun = False

    def keep(self, running: Running, *, is_async: bool) -> bool:
        """Return whether a message is a suspect. If so, it is kept here, or released."""
        if running.delivery.deaths < SUSPECT:
            return False
        if self._suspect is None:
            self._suspect, self._is_async, self._has_begun = running, is_async, False
            running.is_patient = True
        else:
            self._context.held.finish(Finished(running, Release()))
        return True

    def step(self) -> bool:
        """Begin with the suspect if it is time; return whether there is one, so that nothing may be leased."""
        suspect, context = self._suspect, self._context
        if suspect is None:
            return False
        if suspect.is_over:  # handled, or handed back
            self._suspect = None
            return False
        has_company = len(context.held) > 1
        if not self._has_begun and (not has_company or context.clock.monotonic() - suspect.since >= PATIENCE):
            self._has_begun = True
            log.warning(
                "message %d of %s, tenant %s: %d workers were not heard of again that had it; it is handled alone",
                suspect.delivery.id,
                context.queue,
                suspect.delivery.tenant,
                suspect.delivery.deaths,
            )
            _hand_over(context, self._crews, [suspect], is_async=self._is_async)
        context.held.wait_changed(GLANCE)
        return True


def _hand_over(context: WorkerContext, crews: Crews, some: Sequence[Running], *, is_async: bool) -> None:
    if not some:
        return
    try:
        crews.give(some, is_async=is_async)
    except BaseException:  # there is no thread, and none can be started: other workers may have some
        for one in some:
            context.held.finish(Finished(one, Release()))
        raise
