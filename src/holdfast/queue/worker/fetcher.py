"""Lease messages for the executors. `Quarantine` runs a message that may have crashed workers on its own."""

import logging
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.queue.backend import LeaseRequest, LeaseResult
from holdfast.queue.events import PollEvent
from holdfast.queue.message import Release
from holdfast.queue.rules.leasing import (
    PERIOD,
    Pace,
    compute_caps,
    messages_to_request,
    pace_after_fetch,
    pace_after_handling,
)
from holdfast.queue.worker.context import FinishedMessage, LeasedMessage, WorkerContext
from holdfast.queue.worker.executors import HandlerExecutors

IDLE_SECONDS = 1.0
"""Seconds after which an idle worker polls, even without a notification."""
STOP_CHECK_SECONDS = 0.1
"""Seconds between checks for a stop request."""
MIN_WAKE_PAUSE = 0.001
MAX_WAKE_PAUSE = 0.02
"""Backoff in seconds after wake-ups that found no message, because other workers leased it first: from the minimum,
doubling."""
MEASURE_SECONDS = 0.02
"""Seconds between measurements of how fast messages are handled."""
SUSPECT_DEATHS = 2
"""Crashes of workers after which a message is quarantined. One may have other reasons."""
QUARANTINE_WAIT = 10.0
"""Seconds that a quarantined message waits for the other handlers of this process to end. Then it starts anyway."""

log = logging.getLogger(__name__)


class _Measurement(NamedTuple):
    at: float
    handled: int
    busy_seconds: float


class Fetcher:
    """Leases messages and passes them to the executors."""

    def __init__(self, context: WorkerContext, executors: HandlerExecutors, is_zone_out: Callable[[], bool]) -> None:
        self._context = context
        self._executors = executors
        self._is_out = is_zone_out
        self._quarantine = Quarantine(context, executors)
        # Random, because it decides which leases are for the backlog, for low priorities and for spilled messages, and
        # workers that start together must not all choose the same.
        self._leased_so_far = random.randrange(PERIOD)  # noqa: S311 - not for cryptography
        self._caps: dict[str, int] = {}
        self._pace = Pace()
        self._measured = _Measurement(context.clock.monotonic(), 0, 0.0)
        self._was_woken = False
        self._empty_wakes = 0
        self.is_leasing = False
        """Whether a lease request is in progress, or its messages are not yet counted."""
        self.is_stopping = False
        """Whether to lease no more. Messages of a lease in progress are released."""
        self.loop = context.loop("lease", lambda: STOP_CHECK_SECONDS if self.is_stopping else self.step())

    def step(self) -> float:
        """Lease messages if any are wanted, or wait a moment."""
        context = self._context
        if not self._executors.can_accept() or self._is_out():
            return STOP_CHECK_SECONDS
        if self._quarantine.step():
            return 0.0
        self._measure()
        count = messages_to_request(context.concurrency, self._pace, len(context.leased))
        if not count:
            context.leased.wait_for_change(STOP_CHECK_SECONDS)
            return 0.0
        began = context.clock.monotonic()
        self.is_leasing = True
        try:
            leased = context.backend.lease(
                LeaseRequest(
                    queue=context.queue,
                    count=count,
                    lease=context.lease,
                    leased_so_far=self._leased_so_far,
                    caps=self._caps,
                )
            )
            self._pace = pace_after_fetch(self._pace, context.clock.monotonic() - began)
            self._distribute(leased, began)
            if context.events.is_enabled:
                context.events.emit(
                    PollEvent(queue=context.queue, at=context.clock.wall(), requested=count, result=leased)
                )
        finally:
            self.is_leasing = False
        self._caps = compute_caps(
            leased.tenants,
            sum(seen.leased for seen in leased.tenants.values()),
            are_others_waiting=leased.are_others_waiting,
        )
        if leased.deliveries:
            self._empty_wakes = 0
            return 0.0
        self._empty_wakes += self._was_woken
        return self._idle(
            IDLE_SECONDS if leased.next_due is None else min(IDLE_SECONDS, max(MIN_WAKE_PAUSE, leased.next_due))
        )

    def _idle(self, seconds: float) -> float:
        """Wait for messages until `seconds` are over or the worker stops. Return the seconds to pause after that."""
        self._was_woken = False
        while not self.is_stopping and seconds > 0:
            if self._context.backend.wait(self._context.queue, min(STOP_CHECK_SECONDS, seconds)):
                self._was_woken = True
                return (
                    min(MAX_WAKE_PAUSE, MIN_WAKE_PAUSE * 2 ** min(10, self._empty_wakes - 2))
                    if self._empty_wakes > 1
                    else 0.0
                )
            seconds -= STOP_CHECK_SECONDS
        self._empty_wakes = 0
        return 0.0

    def _distribute(self, leased: LeaseResult, began: float) -> None:
        context = self._context
        self._leased_so_far += len(leased.deliveries)
        ends = began + context.lease
        messages = [LeasedMessage(delivery, began, ends) for delivery in leased.deliveries]
        context.leased.add(messages)
        for_threads: list[LeasedMessage] = []
        for_loop: list[LeasedMessage] = []
        for one in messages:
            try:
                is_async = context.handlers.find(one)
            except Exception as error:  # noqa: BLE001 - one faulty message must not affect the others
                context.leased.finish(context.handlers.finish_unfit(one, error))
            else:
                if not self._quarantine.keep(one, is_async=is_async):
                    (for_loop if is_async else for_threads).append(one)
        if self.is_stopping or self._is_out():
            for one in (*for_threads, *for_loop):
                context.leased.finish(FinishedMessage(one, Release()))
            return
        try:
            _submit(context, self._executors, for_threads, is_async=False)
        finally:
            _submit(context, self._executors, for_loop, is_async=True)

    def _measure(self) -> None:
        leased, before = self._context.leased, self._measured
        now = _Measurement(self._context.clock.monotonic(), leased.handled, leased.busy_seconds)
        elapsed = now.at - before.at
        if elapsed >= MEASURE_SECONDS:
            handled, busy = now.handled - before.handled, now.busy_seconds - before.busy_seconds
            self._pace = pace_after_handling(self._pace, handled, busy, elapsed)
            self._measured = now


class Quarantine:
    """Runs a message that may crash its worker. Meanwhile this process leases no other, which a crash would interrupt.

    Of several such messages it keeps one, and releases the others. Used by `Fetcher`, in its thread only.
    """

    def __init__(self, context: WorkerContext, executors: HandlerExecutors) -> None:
        self._context = context
        self._executors = executors
        self._suspect: LeasedMessage | None = None
        self._is_async = False
        self._has_begun = False

    def keep(self, message: LeasedMessage, *, is_async: bool) -> bool:
        """Quarantine or release a message that may have crashed workers. Return whether it is one."""
        if message.delivery.expired_leases < SUSPECT_DEATHS:
            return False
        if self._suspect is None:
            self._suspect, self._is_async, self._has_begun = message, is_async, False
            message.can_wait = True
        else:
            self._context.leased.finish(FinishedMessage(message, Release()))
        return True

    def step(self) -> bool:
        """Start the quarantined message if it is time. Return whether there is one, so that nothing may be leased."""
        suspect, context = self._suspect, self._context
        if suspect is None:
            return False
        if suspect.is_decided:  # handled or released
            self._suspect = None
            return False
        has_company = len(context.leased) > 1
        if not self._has_begun and (
            not has_company or context.clock.monotonic() - suspect.leased_at >= QUARANTINE_WAIT
        ):
            self._has_begun = True
            log.warning(
                "message %d of %s, tenant %s: %d workers crashed while they had it; running it in quarantine",
                suspect.delivery.id,
                context.queue,
                suspect.delivery.tenant,
                suspect.delivery.expired_leases,
            )
            _submit(context, self._executors, [suspect], is_async=self._is_async)
        context.leased.wait_for_change(STOP_CHECK_SECONDS)
        return True


def _submit(
    context: WorkerContext, executors: HandlerExecutors, some: Sequence[LeasedMessage], *, is_async: bool
) -> None:
    if not some:
        return
    try:
        executors.submit(some, is_async=is_async)
    except BaseException:  # there is no thread, and none can be started: other workers may have some
        for one in some:
            context.leased.finish(FinishedMessage(one, Release()))
        raise
