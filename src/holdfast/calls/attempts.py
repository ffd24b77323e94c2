"""The attempts of one call as a loop, for code that does not fit into a function of its own."""

import math
from contextvars import Token
from typing import TYPE_CHECKING, Any

from holdfast._errors import InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import TimedAttempt
from holdfast.calls.classify import Failure
from holdfast.calls.context import SCOPE, Place, around, leave
from holdfast.calls.engine import Call
from holdfast.calls.scope import Scope

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState


class LoopAttempt(TimedAttempt, eq=False):
    """An attempt whose work stands in `with attempt:`."""

    turn: Any = None

    def __enter__(self) -> "LoopAttempt":
        if self.turn is None:
            raise InvalidValue("an attempt is made once, in its turn of the loop")
        self.turn.enter(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return bool(self.turn.leave(self, error))


class LoopCall(Call):
    """A call whose attempts are made in a loop; it has no result that could be judged."""

    shape = LoopAttempt

    def understand(self, result: Any, error: Exception | None) -> Failure | None:
        return None if error is None else super().understand(result, error)


class Attempts:
    """An iterator, synchronous and asynchronous, over attempts that are made `with attempt:`. For one call."""

    def __init__(self, core: "DependencyState", operation: Operation, *, idempotent: bool) -> None:
        self._core = core
        self._call = LoopCall(core, operation, around(), core.runtime.monotonic(), idempotent=idempotent)
        self._delay: float | None = None
        self._error: Exception | None = None
        self._given: LoopAttempt | None = None
        self._token: Token[Scope | Place] | None = None
        self._is_asynchronous = False

    def __iter__(self) -> "Attempts":
        return self

    def __next__(self) -> LoopAttempt:
        runtime = self._core.runtime
        while True:
            delay = self._next_delay()
            if delay is None:
                raise StopIteration
            if delay:
                runtime.clock.sleep(delay)
            given = self._give()
            try:
                if runtime.intercept is not None:
                    runtime.intercept.before(self._call.operation, given)
            except Exception:
                with given:  # as if its work had raised it
                    raise
            else:
                return given

    def __aiter__(self) -> "Attempts":
        self._is_asynchronous = True
        return self

    async def __anext__(self) -> LoopAttempt:
        runtime = self._core.runtime
        while True:
            delay = self._next_delay()
            if delay is None:
                raise StopAsyncIteration
            if delay:
                await runtime.clock.sleep_async(delay)
            given = self._give()
            try:
                if runtime.intercept is not None:
                    await runtime.intercept.before_async(self._call.operation, given)
            except Exception:
                with given:  # as if its work had raised it
                    raise
            else:
                return given

    def enter(self, attempt: LoopAttempt) -> None:
        """The attempt's work begins."""
        if attempt is not self._given or self._token is not None:
            raise InvalidValue("an attempt is made once, in its turn of the loop")
        error, self._error = self._error, None
        self._call.enter(error)
        if self._is_asynchronous and attempt.expires < math.inf:
            from holdfast.calls.expiries import watch

            watch(attempt)
        self._token = SCOPE.set(attempt)

    def leave(self, attempt: LoopAttempt, error: BaseException | None) -> bool:
        """The attempt's work has ended; whether its error is dealt with, because another attempt follows."""
        assert self._token is not None
        token = self._token
        self._given = self._token = self._delay = attempt.turn = None
        self._call.left()
        try:
            failure = self._understand(attempt, error)
        finally:
            leave(token)
        if error is not None and failure is None:
            return False  # not a failure: the program is told to stop, or the loop is left
        self._delay = self._call.settle(attempt, None, failure)
        if self._delay is None:
            if failure is not None and failure is not error:
                raise failure
            return False
        self._error = failure
        return True

    @staticmethod
    def _understand(attempt: LoopAttempt, error: BaseException | None) -> Exception | None:
        """The failure, which is a timeout if that is what cancelled the attempt."""
        if attempt.expiries is not None:
            from asyncio import CancelledError

            from holdfast.calls.expiries import cut_off, unwatch

            try:
                if isinstance(error, CancelledError):
                    return cut_off(attempt, error)
            finally:
                unwatch(attempt)
        return error if isinstance(error, Exception) else None

    def _next_delay(self) -> float | None:
        if self._given is not None:
            raise InvalidValue("the attempt was not made: put its work in `with attempt:`")
        return self._call.hold() if self._call.number == 0 else self._delay

    def _give(self) -> LoopAttempt:
        given = self._call.begin(self._error)
        assert isinstance(given, LoopAttempt)
        self._given, given.turn = given, self
        return given
