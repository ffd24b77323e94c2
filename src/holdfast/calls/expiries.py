"""Timeouts of attempts in an event loop: a dependency's attempts share a timer, as they mostly expire in order."""

import math
from asyncio import AbstractEventLoop, CancelledError, TimerHandle, current_task, get_running_loop
from threading import get_ident
from typing import TYPE_CHECKING, Any

from holdfast.calls.attempt import TimedAttempt
from holdfast.calls.engine import TIMER_TOLERANCE

if TYPE_CHECKING:
    from holdfast.calls.runtime import Runtime


class Expiries:
    """The timeouts of one dependency's attempts in one event loop.

    Attempts share one timer, where `asyncio.timeout` has one for each: attempts with the same timeout expire in the
    order in which they began, and nearly all end long before. An attempt out of this order has its own timer.
    """

    __slots__ = ("_timer", "armed_for", "latest", "loop", "pending", "runtime")

    def __init__(self, loop: AbstractEventLoop, runtime: "Runtime") -> None:
        self.loop = loop
        self.runtime = runtime
        self.pending: dict[TimedAttempt, float] = {}
        """Monotonic time at which each attempt times out, in ascending order."""
        self.latest = 0.0
        self.armed_for = math.inf
        """Monotonic time at which the shared timer fires; infinity if it is not set."""
        self._timer: TimerHandle | None = None

    def arm(self, due: float) -> None:
        """Set the shared timer, replacing a later one."""
        if self._timer is not None:
            self._timer.cancel()
        self.armed_for = due
        self._timer = self.loop.call_later(min(due - self.runtime.monotonic(), self.runtime.poll_interval), self._fire)

    def arm_one(self, attempt: TimedAttempt) -> None:
        """Set a separate timer for `attempt`, at its current `expires`."""
        if attempt.timer is not None:
            attempt.timer.cancel()
        expires = attempt.expires
        left = min(expires - self.runtime.monotonic(), self.runtime.poll_interval)
        attempt.timer = self.loop.call_later(left, self._fire_one, attempt, expires)

    def _fire(self) -> None:
        """Cancel the attempts that have timed out, and set the timer for the next one."""
        while self.pending:
            attempt, due = next(iter(self.pending.items()))
            if due - self.runtime.monotonic() > TIMER_TOLERANCE:
                self.arm(due)
                return
            del self.pending[attempt]
            if attempt.expires == due:  # otherwise its timeout has changed, and it has its own timer
                _cancel_attempt(attempt)
        self.armed_for, self._timer = math.inf, None

    def _fire_one(self, attempt: TimedAttempt, expires: float) -> None:
        if expires - self.runtime.monotonic() > TIMER_TOLERANCE:
            self.arm_one(attempt)
        else:
            _cancel_attempt(attempt)


def arm_timeout(attempt: TimedAttempt) -> None:
    """Cancel the current task when the attempt times out, unless `disarm_timeout` is called before that."""
    expiries = attempt.dependency.last_expiries
    # Compare thread ids, because `get_running_loop` also asks the system for the process id, which takes 160 ns on
    # CPython 3.11. A loop without this attribute takes the slow path.
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
    if due < expiries.armed_for:  # no timer, or a later one for attempts that have ended
        expiries.arm(due)


def disarm_timeout(attempt: TimedAttempt) -> None:
    """Remove the timeout of an attempt that has ended."""
    attempt.expiries.pending.pop(attempt, None)
    if attempt.timer is not None:
        attempt.timer.cancel()
        attempt.timer = None  # it refers to the attempt
    if attempt.was_cancelled:
        attempt.task.uncancel()


def _cancel_attempt(attempt: TimedAttempt) -> None:
    if not attempt.was_cancelled:  # its own timer and the shared one may fire at the same moment
        attempt.was_cancelled = True
        attempt.task.cancel()


def translate_cancellation(attempt: TimedAttempt, cancelled: CancelledError) -> Exception:
    """Return the timeout error for our own cancellation. As `asyncio.timeout` does, raise `cancelled` for any other."""
    if not attempt.was_cancelled or attempt.task.cancelling() > attempt.cancelling + 1:
        raise cancelled
    error = attempt.timeout_error()
    error.__cause__ = cancelled  # its traceback shows where the attempt was waiting
    return error
