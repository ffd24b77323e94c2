"""The steps of a call that all drivers share: decide, count, emit events. Does not sleep, and calls no function."""

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast._errors import DeadlineExceeded, LimitReached, RetryAfterTooLong
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.classify import PERMANENT, Failure, FailureKind, classify
from holdfast.calls.events import AttemptEnded, BudgetExhausted, GaveUp, Retrying
from holdfast.calls.histogram import TIMED_OUT, censored_at
from holdfast.calls.retry import REASON_TEXT, GiveUp, GiveUpReason, RetryAfterScope, RetryOwner, decide
from holdfast.calls.scope import Scope, find_options

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState, OverriddenOptions

log = logging.getLogger(__name__)

TIMER_TOLERANCE = 0.001
"""Seconds by which the timer of an event loop may fire early: uvloop counts in milliseconds."""

# Looked up once, as in `retry.py`.
_PERMANENT, _TIMEOUT, _UNSENT = FailureKind.PERMANENT, FailureKind.TIMEOUT, FailureKind.UNSENT
_HERE, _BELOW = RetryOwner.HERE, RetryOwner.BELOW
_LATE = Failure(_TIMEOUT)
_RAISED_BY_CALL = "_holdfast_raised_by_call"
"""Attribute set on an error that a call has raised, for calls around it."""


class Call:
    """One call with all its attempts. For each, drivers call `begin`, `enter`, the function, `leave`, `end_attempt`."""

    attempt_class: ClassVar[type[Attempt]] = Attempt
    """The class of its attempts."""

    def __init__(
        self,
        dependency: "DependencyState",
        operation: Operation,
        outer: Scope | None,
        started: float,
        *,
        idempotent: bool,
    ) -> None:
        self.dependency = dependency
        options: DependencyState | OverriddenOptions = dependency
        if dependency.was_overridden:
            options = find_options(dependency, outer)
        self.options = options
        self.number = 0
        self.owned_by: str | None = None
        self.retry_owner = options.retry_owner if idempotent else None
        self.outer = outer
        self.expires = started + options.total
        if outer is not None:
            self.expires = min(self.expires, outer.expires)
            if outer.retry_owner is not None and options.retry.owner is not _HERE:
                self.retry_owner = self.owned_by = outer.retry_owner
            elif self.retry_owner is None:  # it does not retry, so the layers below keep the owner that it got
                self.retry_owner = outer.retry_owner
        self.operation = operation
        self.idempotent = idempotent
        self._started = self._began = started
        self._delay = 0.0
        self._cost = dependency.bucket.budget.first_attempt_tokens
        self._attempt: Attempt | None = None
        self._last: Failure | None = None

    def initial_delay(self) -> float:
        """Return the seconds that Retry-After delays the first attempt. Raise RetryAfterTooLong past the deadline."""
        dependency = self.dependency
        if dependency.retry_after.policy.scope is not RetryAfterScope.ALL:
            return 0.0
        seconds = dependency.retry_after.delay(self._started, dependency.runtime.chance)
        if seconds and self._started + seconds >= self.expires:
            self._emit_gave_up(GiveUpReason.RETRY_AFTER, self._started)
            raise RetryAfterTooLong(f"{self.operation}: Retry-After asks to wait {seconds:.1f} s, past the deadline")
        return seconds

    def begin(self, error: Exception | None = None) -> Attempt:
        """Return the next attempt. After the deadline, raise the previous `error`, or DeadlineExceeded without one."""
        dependency = self.dependency
        now = dependency.runtime.monotonic()
        if self.expires <= now:
            self._give_up(error, GiveUpReason.DEADLINE, now)
            try:
                raise error or deadline_passed_error(self.operation)
            finally:
                error = None  # breaks the reference cycle of error, traceback and frame
        self.number += 1
        self._began = now
        before = self._attempt
        expires = now + self.options.timeout
        self._attempt = attempt = self.attempt_class(
            expires if expires < self.expires else self.expires,  # noqa: FURB136 - faster than `min`
            self.retry_owner,
            self.outer,
            dependency,
            self.expires,
            self.number,
        )
        if before is not None and before.call_state is not None:
            attempt.call_state = before.call_state
            attempt.call_state.start_next_attempt()
        return attempt

    def enter(self, error: Exception | None = None) -> None:
        """Count the attempt as in flight. At the limit, raise the previous `error`, or LimitReached without one."""
        dependency = self.dependency
        if dependency.in_flight.max_count < math.inf and not dependency.in_flight.enter():
            self.number -= 1  # the attempt is not made
            now = dependency.runtime.monotonic()
            self._give_up(error, GiveUpReason.LIMIT, now)
            try:
                raise error or LimitReached(
                    f"{self.operation}: the limit of attempts in flight, {dependency.in_flight.max_count}, is reached: "
                    "the dependency is slow, or the limit is too low"
                )
            finally:
                error = None

    def adopt(self, attempt: Attempt) -> None:
        """Continue with an attempt that the driver made itself, as if `begin` had returned it."""
        self.number = attempt.number
        self._attempt = attempt

    def leave(self) -> None:
        """Count the attempt as no longer in flight, whether it succeeded or not."""
        if self.dependency.in_flight.max_count < math.inf:
            self.dependency.in_flight.leave()

    def end_attempt(self, attempt: Attempt, result: Any, error: Exception | None) -> float | None:
        """Return the seconds to wait before the next attempt, or None if `error` is final, which then gets a note.

        Without an error, raise DeadlineExceeded if the attempt has succeeded after the deadline.
        """
        dependency = self.dependency
        now = dependency.runtime.monotonic()
        if error is None and now >= self.expires:
            late = late_result_error(self.operation, result)
            self.learn(attempt, _LATE, now)
            if dependency.has_sink:
                self._report(attempt, _LATE, late, now)
            self._last = _LATE
            self._give_up(late, GiveUpReason.DEADLINE, now)
            try:
                raise late
            finally:
                del late  # breaks the reference cycle of error, traceback and frame
        failure = self.classify_outcome(result, error)
        self.learn(attempt, failure, now)
        if dependency.has_sink:
            self._report(attempt, failure, error, now)
        if failure is None:
            if dependency.bucket.tokens < dependency.bucket.budget.capacity:
                dependency.bucket.give(self._cost)
            return None
        self._last = failure
        retry, refused_before = self.options.retry, dependency.bucket.is_exhausted
        step = decide(
            retry,
            failure,
            number=self.number,
            idempotent=self.idempotent,
            has_other_owner=self.owned_by is not None or retry.owner is _BELOW,
            now=now,
            expires=self.expires,
            previous=self._delay,
            bucket=dependency.bucket,
            retry_after=dependency.retry_after,
            chance=dependency.runtime.chance,
        )
        if isinstance(step, GiveUp):
            if step.reason is GiveUpReason.BUDGET and not refused_before:
                dependency.emit(
                    BudgetExhausted(
                        dependency=dependency.name, at=dependency.runtime.clock.wall(), tokens=dependency.bucket.tokens
                    )
                )
            self._give_up(error, step.reason, now)
            return None
        self._delay, self._cost = step.delay, step.cost or dependency.bucket.budget.first_attempt_tokens
        if dependency.has_sink:
            at, number = dependency.runtime.clock.wall(), self.number + 1
            dependency.emit(
                Retrying(operation=self.operation, at=at, number=number, delay=step.delay, failure=failure.kind)
            )
        return step.delay

    def classify_outcome(self, result: Any, error: Exception | None) -> Failure | None:
        """Return the failure of an attempt, or None if it succeeded. Adapters override it to refine their errors."""
        retry = self.dependency.retry
        if error is None:
            return None if retry.classify_result is None else retry.classify_result(result)
        failure = self._classify(error)
        if failure.kind is _PERMANENT:
            if retry.eventually_consistent and not retry.eventually_consistent.isdisjoint(
                {failure.status, failure.code}
            ):
                return Failure(FailureKind.NOT_VISIBLE_YET, failure.status, failure.code, failure.retry_after)
        elif failure.kind is _UNSENT and get_attribute(error, _RAISED_BY_CALL):
            # A nested call sent nothing. This call may have sent something before that.
            return Failure(FailureKind.TRANSIENT, failure.status, failure.code, failure.retry_after)
        return failure

    def _classify(self, error: Exception) -> Failure:
        """Classify `error` by `Retry.classify`, then by built-in rules. A rule that raises does not hide `error`."""
        dependency = self.dependency
        try:
            return classify(error, dependency.runtime.clock.wall, dependency.retry.classify)
        except Exception:
            log.exception("%s: could not classify %r; treating it as permanent, without a retry", self.operation, error)
            return PERMANENT

    def learn(self, attempt: Attempt, failure: Failure | None, now: float) -> None:
        """Record the latency of a response, good or bad; a lower bound if the call's deadline ended the attempt."""
        dependency = self.dependency
        if failure is not None and failure.kind is _UNSENT:
            if attempt.connecting_since is not None and now >= attempt.expires - TIMER_TOLERANCE:
                dependency.learn_connect(TIMED_OUT)  # a refused connection says nothing about the latency: no sample
        elif self.options.fixed_timeout is not None:
            pass  # the timeout must not be learned from attempts with another one
        elif failure is None or (failure.kind is _PERMANENT and failure.status is not None):
            dependency.samples.append(now - self._began - attempt.setup_seconds)
        elif failure.kind is _TIMEOUT:
            dependency.samples.append(
                TIMED_OUT if attempt.expires < self.expires else censored_at(now - self._began - attempt.setup_seconds)
            )
        if now >= dependency.learn_at:
            dependency.learn(now)

    def _report(self, attempt: Attempt, failure: Failure | None, error: Exception | None, now: float) -> None:
        dependency = self.dependency
        endpoint, known = attempt.chosen_endpoint, failure or PERMANENT
        dependency.emit(
            AttemptEnded(
                operation=self.operation,
                at=dependency.runtime.clock.wall(),
                number=self.number,
                seconds=now - self._began,
                failure=None if failure is None else failure.kind,
                status=known.status,
                code=known.code,
                error=None if error is None else type(error).__name__,
                zone=None if endpoint is None else endpoint.zone,
                address=None if endpoint is None else endpoint.address,
            )
        )

    def _give_up(self, error: Exception | None, reason: GiveUpReason, now: float) -> None:
        """Emit that no further attempt follows, and say so in `error`, which the caller gets."""
        self._emit_gave_up(reason, now)
        if error is not None:
            if self.number > 1 or reason is not GiveUpReason.PERMANENT:
                self._add_note(error, reason, now)
            set_attribute(error, _RAISED_BY_CALL, True)

    def _emit_gave_up(self, reason: GiveUpReason, now: float) -> None:
        dependency = self.dependency
        if not dependency.has_sink:
            return
        dependency.emit(
            GaveUp(
                operation=self.operation,
                at=dependency.runtime.clock.wall(),
                attempts=self.number,
                reason=reason,
                seconds=now - self._started,
                failure=None if self._last is None else self._last.kind,
                retry_owner=self.owned_by,
            )
        )

    def _add_note(self, error: Exception, reason: GiveUpReason, now: float) -> None:
        """Add a note on the attempts to `error`, in place of that of an earlier call which raised the same object."""
        attempts = "1 attempt" if self.number == 1 else f"{self.number} attempts"
        owner = f" ({self.owned_by})" if reason is GiveUpReason.NOT_OWNER and self.owned_by else ""
        before, after = f"holdfast: {self.operation}: gave up after ", f": {REASON_TEXT[reason]}{owner}"
        known = get_attribute(error, "__notes__")
        notes = [
            note
            for note in (known if isinstance(known, list) else ())
            if not (isinstance(note, str) and note.startswith(before) and note.endswith(after))
        ]
        notes.append(f"{before}{attempts} in {now - self._started:.3f} s{after}")
        set_attribute(error, "__notes__", notes)


def set_attribute(error: BaseException, name: str, value: object) -> None:
    """Set an attribute that is not the error's own, even if its class allows no changes, as a frozen dataclass."""
    with suppress(Exception):
        BaseException.__setattr__(error, name, value)


def get_attribute(error: BaseException, name: str) -> Any:
    """Return an attribute that `set_attribute` has set, or None. Do not ask `__getattr__`, which may raise anything."""
    return vars(error).get(name)


def late_result_error(operation: Operation, result: object) -> DeadlineExceeded:
    """Return the error for a call that succeeded after its deadline. It has the result, if there is one."""
    hint = "" if result is None else "; the error has the result"
    error = DeadlineExceeded(f"{operation}: succeeded, but after the deadline{hint}")
    error.result = result
    return error


def deadline_passed_error(operation: Operation) -> DeadlineExceeded:
    """Return the error for a call that begins after its deadline."""
    return DeadlineExceeded(f"{operation}: refused, because the deadline had passed before it began")
