"""The asynchronous driver: makes the attempts, cuts off those that take too long, sleeps between them."""

from asyncio import CancelledError, current_task
from collections.abc import Callable
from functools import wraps
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast._types import Operation
from holdfast.calls.attempt import TimedAttempt
from holdfast.calls.context import NOWHERE, SCOPE, Place, around_task
from holdfast.calls.engine import Call, refusal
from holdfast.calls.expiries import cut_off, unwatch, watch

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState

Function = TypeVar("Function", bound=Callable[..., Any])

found: Callable[[], Any] = SCOPE.get
enter, leave = SCOPE.set, SCOPE.reset


class TimedCall(Call):
    """A call whose attempts can be cut off."""

    shape = TimedAttempt


def bind_async(  # noqa: C901, PLR0915 - the short way is written out, as in `drive.py`
    core: "DependencyState", function: Function, operation: Operation, *, idempotent: bool
) -> Function:
    """The function, awaited as the dependency's policies say. As in `drive.py`, a first success takes a short way."""
    runtime, bucket, note = core.runtime, core.bucket, core.samples.append
    claim = core.retry_owner if idempotent else None
    manner = (operation, idempotent)  # in one, because each name from out here is paid for by every call

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        outer = found()
        if outer is NOWHERE:
            outer = None
        elif type(outer) is Place:
            outer = around_task()
        monotonic = runtime.monotonic  # apart from its call, because CPython 3.11 makes that quicker: 20 ns
        started = monotonic()
        limit = started + core.total
        owner = claim
        if not core.has_fast_path:
            whole = TimedCall(core, manner[0], outer, started, idempotent=manner[1])
            return await pursue(whole, function, args, kwargs)
        if outer is not None:
            if outer.expires < limit:
                limit = outer.expires
                if limit <= started:
                    raise refusal(manner[0])
            if outer.owner is not None:
                owner = outer.owner
        expires = started + core.timeout
        if limit < expires:  # noqa: PLR1730 - quicker
            expires = limit
        attempt = TimedAttempt(expires, owner, outer, core, limit)
        if expires < inf:
            expiries = core.last_expiries
            if (  # what `watch` does for nearly all of them, written out
                expiries is not None
                and getattr(expiries.loop, "_thread_id", None) == get_ident()
                and expires >= expiries.latest
                and expires >= expiries.armed_for
            ):
                task: Any = current_task(expiries.loop)
                attempt.task = task
                attempt.cancelling = task.cancelling()
                attempt.expiries = expiries
                expiries.latest = expires
                expiries.pending[attempt] = expires
            else:
                watch(attempt)
        token = enter(attempt)
        try:
            result = await function(*args, **kwargs) if kwargs else await function(*args)
        except Exception as caught:  # noqa: BLE001 - understood by the engine
            error = caught
        except CancelledError as caught:
            error = cut_off(attempt, caught)
        else:
            ended = monotonic()
            note(ended - started - attempt.setup)
            if ended >= core.learn_at:
                core.learn(ended)
            if bucket.tokens < bucket.budget.capacity:
                bucket.give(bucket.budget.refund)
            return result
        finally:
            # First, because a coroutine that is closed in another context cannot leave.
            if attempt.expiries is not None and (
                attempt.expiries.pending.pop(attempt, None) is None or attempt.timer is not None
            ):
                unwatch(attempt)
            leave(token)
        whole = TimedCall(core, manner[0], outer, started, idempotent=manner[1])
        whole.adopt(attempt)
        try:
            return await pursue(whole, function, args, kwargs, attempt, error)
        finally:
            del error  # it holds this frame, and the frame must not hold it

    return cast("Function", call)


async def pursue(  # noqa: C901, PLR0912, PLR0917 - a driver's own loop
    call: "TimedCall",
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempt: Any = None,
    error: Exception | None = None,
) -> Any:
    """Make attempts until one is the last; the first one may have failed already."""
    result: Any = None
    runtime = call.core.runtime
    sleep, intercept = runtime.clock.sleep_async, runtime.intercept
    if intercept is not None:
        function = intercept.around_async(call.operation, function)
    if attempt is None:
        wait = call.hold()
        if wait:
            await sleep(wait)
    try:
        while True:
            if attempt is None:
                attempt = call.begin(error)
                call.enter(error)
                error = token = None
                try:
                    if attempt.expires < inf:
                        watch(attempt)
                    token = enter(attempt)
                    result = await function(*args, **kwargs)
                except Exception as caught:  # noqa: BLE001
                    error = caught
                except CancelledError as caught:
                    error = cut_off(attempt, caught)
                finally:
                    if attempt.expiries is not None:
                        unwatch(attempt)
                    call.left()
                    if token is not None:
                        leave(token)  # last: a coroutine that is closed in another context cannot leave
            delay = call.settle(attempt, result, error)
            if delay is None:
                if error is None:
                    return result
                raise error
            if delay:
                await sleep(delay)
            attempt = None
    finally:
        error = None  # its traceback holds this frame, and the frame must not hold it
