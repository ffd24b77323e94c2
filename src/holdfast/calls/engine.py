"""What every driver does between two attempts of a call: decide, count, tell the sink. Neither sleeps nor calls."""

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast._errors import DeadlineExceeded, HeldBack, LimitReached
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import PERMANENT, Failure, Kind, classify
from holdfast.calls.events import Attempted, Exhausted, GaveUp, Retrying
from holdfast.calls.retry import IN_WORDS, GiveUp, HintsHold, Owner, Reason, decide
from holdfast.calls.scope import Scope

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState

log = logging.getLogger(__name__)

EARLY = 0.001
"""Seconds that the timer of an event loop may be early: uvloop counts in milliseconds."""

# Looked up once, as in `retry.py`.
_PERMANENT, _TIMEOUT, _UNSENT = Kind.PERMANENT, Kind.TIMEOUT, Kind.UNSENT
_HERE, _BELOW = Owner.HERE, Owner.BELOW
_SETTLED = "_holdfast_settled"
"""Set on an error that a call has raised, for calls around it."""


class Call:
    """One call with all its attempts. Drivers take turns with it: `begin`, `enter`, the attempt, `left`, `settle`."""

    shape: ClassVar[type[Attempt]] = Attempt
    """Of what its attempts are made."""

    def __init__(
        self, core: "DependencyState", operation: Operation, outer: Scope | None, started: float, *, idempotent: bool
    ) -> None:
        self.core = core
        self.number = 0
        self.owned_by: str | None = None
        self.owner = core.retry_owner if idempotent else None
        self.outer = outer
        self.expires = started + core.total
        if outer is not None:
            self.expires = min(self.expires, outer.expires)
            if outer.owner is not None and core.retry.owner is not _HERE:
                self.owner = self.owned_by = outer.owner
            elif self.owner is None:
                self.owner = outer.owner  # it repeats nothing itself: those below have the owner that it has
        self.operation = operation
        self.idempotent = idempotent
        self._started = self._began = started
        self._delay = 0.0
        self._cost = core.bucket.budget.refund
        self._attempt: Attempt | None = None
        self._last: Failure | None = None

    def hold(self) -> float:
        """Seconds to wait before the first attempt, because the server asked for it. Raises HeldBack if in vain."""
        core = self.core
        if core.hold.hints.hold is not HintsHold.ALL:
            return 0.0
        seconds = core.hold.wait(self._started, core.runtime.chance)
        if seconds and self._started + seconds >= self.expires:
            self._gave_up(Reason.HELD, self._started)
            raise HeldBack(f"{self.operation}: the server asked to be left alone for {seconds:.1f} s more")
        return seconds

    def begin(self, error: Exception | None = None) -> Attempt:
        """The next attempt. Raises if there is no time for it: the `error` before it, if there was one."""
        core = self.core
        now = core.runtime.monotonic()
        if self.expires <= now:
            self._gave_up(Reason.DEADLINE, now)
            if error is not None:
                error.add_note(self._note(Reason.DEADLINE, now))
            try:
                raise error or refusal(self.operation)
            finally:
                error = None  # its traceback holds this frame, and the frame must not hold it
        self.number += 1
        self._began = now
        before = self._attempt
        expires = now + core.timeout
        self._attempt = attempt = self.shape(
            expires if expires < self.expires else self.expires,  # noqa: FURB136 - quicker than `min`
            self.owner,
            self.outer,
            core,
            self.expires,
            self.number,
        )
        if before is not None and before.shared is not None:
            attempt.shared = before.shared
            attempt.shared.move_on()
        return attempt

    def enter(self, error: Exception | None = None) -> None:
        """The attempt goes out now. Raises if too many are under way: the `error` before it, if there was one."""
        core = self.core
        if core.running.most < math.inf and not core.running.enter():
            self.number -= 1  # it is not made
            now = core.runtime.monotonic()
            self._gave_up(Reason.LIMIT, now)
            if error is not None:
                error.add_note(self._note(Reason.LIMIT, now))
            try:
                raise error or LimitReached(
                    f"{self.operation}: {core.running.most} calls are under way, which is the limit: "
                    "it is slow now, or the limit is low"
                )
            finally:
                error = None

    def adopt(self, attempt: Attempt) -> None:
        """Take over an attempt that a driver made by itself, in place of the one that was begun, if any."""
        self.number = attempt.number
        self._attempt = attempt

    def left(self) -> None:
        """The attempt is over, however it ended."""
        if self.core.running.most < math.inf:
            self.core.running.leave()

    def settle(self, attempt: Attempt, result: Any, error: Exception | None) -> float | None:
        """Return the seconds to wait before the next attempt; None: there is none. A final `error` gets a note why."""
        core = self.core
        now = core.runtime.monotonic()
        failure = self.understand(result, error)
        self.learn(attempt, failure, now)
        if core.has_sink:
            self._report(attempt, failure, error, now)
        if failure is None:
            if core.bucket.tokens < core.bucket.budget.capacity:
                core.bucket.give(self._cost)
            return None
        self._last = failure
        refused_before = core.bucket.exhausted
        step = decide(
            core.retry,
            failure,
            number=self.number,
            idempotent=self.idempotent,
            owned=self.owned_by is not None or core.retry.owner is _BELOW,
            now=now,
            expires=self.expires,
            previous=self._delay,
            bucket=core.bucket,
            hold=core.hold,
            chance=core.runtime.chance,
        )
        if isinstance(step, GiveUp):
            if step.reason is Reason.BUDGET and not refused_before:
                core.emit(Exhausted(dependency=core.name, at=core.runtime.clock.wall(), tokens=core.bucket.tokens))
            self._gave_up(step.reason, now)
            if error is not None:
                if self.number > 1 or step.reason is not Reason.PERMANENT:
                    error.add_note(self._note(step.reason, now))
                with suppress(AttributeError):  # of a class that takes none
                    setattr(error, _SETTLED, True)
            return None
        self._delay, self._cost = step.delay, step.cost or core.bucket.budget.refund
        if core.has_sink:
            at, number = core.runtime.clock.wall(), self.number + 1
            core.emit(Retrying(operation=self.operation, at=at, number=number, delay=step.delay, failure=failure.kind))
        return step.delay

    def understand(self, result: Any, error: Exception | None) -> Failure | None:
        """What an attempt's end means; None: it succeeded. Adapters that know more of their errors add to it."""
        retry = self.core.retry
        if error is None:
            return None if retry.judge is None else retry.judge(result)
        failure = self._classify(error)
        if failure.kind is _PERMANENT:
            if retry.eventual and not retry.eventual.isdisjoint({failure.status, failure.code}):
                return Failure(Kind.EVENTUAL, failure.status, failure.code, failure.after)
        elif failure.kind is _UNSENT and getattr(error, _SETTLED, False):
            # Another call failed inside of this one: of what else this one had sent by then, it proves nothing.
            return Failure(Kind.TRANSIENT, failure.status, failure.code, failure.after)
        return failure

    def _classify(self, error: Exception) -> Failure:
        """Judged by the caller's own rule first; whatever a rule raises, the error itself must not be lost."""
        own = self.core.retry.classify
        try:
            failure = None if own is None else own(error)
            return classify(error, self.core.runtime.clock.wall) if failure is None else failure
        except Exception:
            log.exception("%s: what %r means could not be found out; it is not repeated", self.operation, error)
            return PERMANENT

    def learn(self, attempt: Attempt, failure: Failure | None, now: float) -> None:
        """Note the latency of an answer, good or bad; infinity for a timeout, below 0 if the deadline cut it off."""
        core = self.core
        if failure is None or (failure.kind is _PERMANENT and failure.status is not None):
            core.samples.append(now - self._began - attempt.setup)
        elif failure.kind is _TIMEOUT:
            core.samples.append(math.inf if attempt.expires < self.expires else -(now - self._began - attempt.setup))
        elif failure.kind is _UNSENT and attempt.connecting_since is not None and now >= attempt.expires - EARLY:
            core.learn_connect(math.inf)  # one that was refused at once says nothing of how long connections take
        if now >= core.learn_at:
            core.learn(now)

    def _report(self, attempt: Attempt, failure: Failure | None, error: Exception | None, now: float) -> None:
        core = self.core
        place, known = attempt.place, failure or PERMANENT
        core.emit(
            Attempted(
                operation=self.operation,
                at=core.runtime.clock.wall(),
                number=self.number,
                seconds=now - self._began,
                failure=None if failure is None else failure.kind,
                status=known.status,
                code=known.code,
                error=None if error is None else type(error).__name__,
                zone=None if place is None else place.zone,
                address=None if place is None else place.address,
            )
        )

    def _gave_up(self, reason: Reason, now: float) -> None:
        core = self.core
        if not core.has_sink:
            return
        core.emit(
            GaveUp(
                operation=self.operation,
                at=core.runtime.clock.wall(),
                number=self.number,
                reason=reason,
                seconds=now - self._started,
                failure=None if self._last is None else self._last.kind,
                owner=self.owned_by,
            )
        )

    def _note(self, reason: Reason, now: float) -> str:
        attempts = "1 attempt" if self.number == 1 else f"{self.number} attempts"
        whose = f" ({self.owned_by})" if reason is Reason.OWNED and self.owned_by else ""
        seconds = now - self._started
        return f"holdfast: {self.operation}: {attempts} in {seconds:.3f} s, no more: {IN_WORDS[reason]}{whose}"


def refusal(operation: Operation) -> DeadlineExceeded:
    """What a call that begins after its deadline is answered with."""
    return DeadlineExceeded(f"{operation}: refused, because the deadline had passed before it began")
