"""The attempts of one call as a loop, for code that is not a function of its own."""

import math
from contextvars import Token
from typing import TYPE_CHECKING, Any

from holdfast._errors import InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import TimedAttempt
from holdfast.calls.classify import Failure
from holdfast.calls.context import SCOPE, ThreadScopes, current_scope, reset_scope
from holdfast.calls.engine import Call
from holdfast.calls.scope import Scope

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState


class LoopAttempt(TimedAttempt, eq=False):
    """An attempt whose work is the block of `with attempt:`."""

    loop: Any = None

    def __enter__(self) -> "LoopAttempt":
        if self.loop is None:
            raise InvalidValue("an attempt is made once, in its own iteration of the loop")
        self.loop.enter(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return bool(self.loop.leave(self, error))


class LoopCall(Call):
    """A call whose attempts are made in a loop. It has no result to classify."""

    attempt_class = LoopAttempt

    def classify_outcome(self, result: Any, error: Exception | None) -> Failure | None:
        return None if error is None else super().classify_outcome(result, error)


class AttemptLoop:
    """A synchronous and asynchronous iterator over the attempts of one call, each made in `with attempt:`."""

    def __init__(self, dependency: "DependencyState", operation: Operation, *, idempotent: bool) -> None:
        self._dependency = dependency
        self._call = LoopCall(
            dependency, operation, current_scope(), dependency.runtime.monotonic(), idempotent=idempotent
        )
        self._delay: float | None = None
        self._error: Exception | None = None
        self._current: LoopAttempt | None = None
        self._token: Token[Scope | ThreadScopes] | None = None
        self._is_asynchronous = False

    def __iter__(self) -> "AttemptLoop":
        return self

    def __next__(self) -> LoopAttempt:
        runtime = self._dependency.runtime
        while True:
            delay = self._next_delay()
            if delay is None:
                raise StopIteration
            if delay:
                runtime.clock.sleep(delay)
            attempt = self._begin_attempt()
            try:
                if runtime.interceptor is not None:
                    runtime.interceptor.before_attempt(self._call.operation, attempt)
            except Exception:
                with attempt:  # as if its work had raised it
                    raise
            else:
                return attempt

    def __aiter__(self) -> "AttemptLoop":
        self._is_asynchronous = True
        return self

    async def __anext__(self) -> LoopAttempt:
        runtime = self._dependency.runtime
        while True:
            delay = self._next_delay()
            if delay is None:
                raise StopAsyncIteration
            if delay:
                await runtime.clock.sleep_async(delay)
            attempt = self._begin_attempt()
            try:
                if runtime.interceptor is not None:
                    await runtime.interceptor.before_attempt_async(self._call.operation, attempt)
            except Exception:
                with attempt:  # as if its work had raised it
                    raise
            else:
                return attempt

    def enter(self, attempt: LoopAttempt) -> None:
        """Start the attempt. Raise InvalidValue if it is not the current one, or has started before."""
        if attempt is not self._current or self._token is not None:
            raise InvalidValue("an attempt is made once, in its own iteration of the loop")
        error, self._error = self._error, None
        self._call.enter(error)
        if self._is_asynchronous and attempt.expires < math.inf:
            from holdfast.calls.expiries import arm_timeout

            arm_timeout(attempt)
        self._token = SCOPE.set(attempt)

    def leave(self, attempt: LoopAttempt, error: BaseException | None) -> bool:
        """Finish the attempt. Return True to suppress `error`, because another attempt follows."""
        assert self._token is not None
        token = self._token
        self._current = self._token = self._delay = attempt.loop = None
        self._call.leave()
        try:
            failure = self._find_failure(attempt, error)
        finally:
            reset_scope(token)
        if error is not None and failure is None:
            return False  # not a failure: KeyboardInterrupt, a cancellation from outside, or the like
        self._delay = self._call.end_attempt(attempt, None, failure)
        if self._delay is None:
            if failure is not None and failure is not error:
                raise failure
            return False
        self._error = failure
        return True

    @staticmethod
    def _find_failure(attempt: LoopAttempt, error: BaseException | None) -> Exception | None:
        """Return the failure of the attempt, which is a timeout error if the timeout cancelled it, or None."""
        if attempt.expiries is not None:
            from asyncio import CancelledError

            from holdfast.calls.expiries import disarm_timeout, translate_cancellation

            try:
                if isinstance(error, CancelledError):
                    return translate_cancellation(attempt, error)
            finally:
                disarm_timeout(attempt)
        return error if isinstance(error, Exception) else None

    def _next_delay(self) -> float | None:
        if self._current is not None:
            raise InvalidValue("the attempt was not made: put its work in `with attempt:`")
        return self._call.initial_delay() if self._call.number == 0 else self._delay

    def _begin_attempt(self) -> LoopAttempt:
        attempt = self._call.begin(self._error)
        assert isinstance(attempt, LoopAttempt)
        self._current, attempt.loop = attempt, self
        return attempt
