"""Cutting off attempts in an event loop: one timer for all of a dependency's, because they mostly expire in order."""

import math
from asyncio import AbstractEventLoop, CancelledError, TimerHandle, current_task, get_running_loop
from threading import get_ident
from typing import TYPE_CHECKING, Any

from holdfast.calls.attempt import TimedAttempt
from holdfast.calls.engine import TIMER_TOLERANCE

if TYPE_CHECKING:
    from holdfast.calls.runtime import Runtime


class Expiries:
    """The attempts of one dependency that are under way in one event loop, and when each must end.

    One timer serves all, where `asyncio.timeout` has one for each: attempts that share a timeout expire in the order in
    which they began, and nearly all are over long before that. Those out of order have timers of their own.
    """

    __slots__ = ("_timer", "armed_for", "latest", "loop", "pending", "runtime")

    def __init__(self, loop: AbstractEventLoop, runtime: "Runtime") -> None:
        self.loop = loop
        self.runtime = runtime
        self.pending: dict[TimedAttempt, float] = {}
        """When each is due, in this order."""
        self.latest = 0.0
        self.armed_for = math.inf
        """When the timer for all will fire; infinity: there is none."""
        self._timer: TimerHandle | None = None

    def arm(self, due: float) -> None:
        """Set the timer for all, in place of a later one."""
        if self._timer is not None:
            self._timer.cancel()
        self.armed_for = due
        self._timer = self.loop.call_later(min(due - self.runtime.monotonic(), self.runtime.poll_interval), self._fire)

    def arm_one(self, attempt: TimedAttempt) -> None:
        """Set a timer for one, at the time at which it must end as things are."""
        if attempt.timer is not None:
            attempt.timer.cancel()
        expires = attempt.expires
        left = min(expires - self.runtime.monotonic(), self.runtime.poll_interval)
        attempt.timer = self.loop.call_later(left, self._fire_one, attempt, expires)

    def _fire(self) -> None:
        """Cut off those whose time is over; set the timer for the next one."""
        while self.pending:
            attempt, due = next(iter(self.pending.items()))
            if due - self.runtime.monotonic() > TIMER_TOLERANCE:
                self.arm(due)
                return
            del self.pending[attempt]
            if attempt.expires == due:  # else it was given another time, and a timer of its own
                _cancel_attempt(attempt)
        self.armed_for, self._timer = math.inf, None

    def _fire_one(self, attempt: TimedAttempt, expires: float) -> None:
        if expires - self.runtime.monotonic() > TIMER_TOLERANCE:
            self.arm_one(attempt)
        else:
            _cancel_attempt(attempt)


def arm_timeout(attempt: TimedAttempt) -> None:
    """Cancel the current task when the attempt's time is over, unless it is `disarm_timeout`ed before that."""
    expiries = attempt.dependency.last_expiries
    # That the loop runs in this thread is what `get_running_loop` would say, which asks the system for the process as
    # well: 160 ns on CPython 3.11. A loop that keeps no such attribute is asked for.
    if expiries is None or getattr(expiries.loop, "_thread_id", None) != get_ident():
        expiries = attempt.dependency.expiries(get_running_loop())
    task: Any = current_task(expiries.loop)
    attempt.task = task
    attempt.cancelling = task.cancelling()
    attempt.expiries = expiries
    due = attempt.expires
    if due < expiries.latest and expiries.pending:
        expiries.arm_one(attempt)
        return
    expiries.latest = due
    expiries.pending[attempt] = due
    if due < expiries.armed_for:  # none, or one for attempts that are over and had more time
        expiries.arm(due)


def disarm_timeout(attempt: TimedAttempt) -> None:
    """The attempt is over, however it ended."""
    attempt.expiries.pending.pop(attempt, None)
    if attempt.timer is not None:
        attempt.timer.cancel()
        attempt.timer = None  # it holds the attempt
    if attempt.was_cancelled:
        attempt.task.uncancel()


def _cancel_attempt(attempt: TimedAttempt) -> None:
    if not attempt.was_cancelled:  # its own timer and that for all may fire in the same moment
        attempt.was_cancelled = True
        attempt.task.cancel()


def translate_cancellation(attempt: TimedAttempt, cancelled: CancelledError) -> Exception:
    """Return the error for our cancellation; raise `cancelled` if others cancel as well, as `asyncio.timeout` does."""
    if not attempt.was_cancelled or attempt.task.cancelling() > attempt.cancelling + 1:
        raise cancelled
    error = attempt.timeout_error()
    error.__cause__ = cancelled  # its traceback shows what the attempt was waiting for
    return error
