"""The synchronous driver: makes the attempts, sleeps between them."""

from collections.abc import Callable, Coroutine
from functools import wraps
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast._errors import InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import SCOPE, place_here
from holdfast.calls.engine import Call, refusal

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState

Function = TypeVar("Function", bound=Callable[..., Any])

found: Callable[[], Any] = SCOPE.get


def bind(  # noqa: C901 - the short way is written out: every call of a function is a tenth of what it costs
    core: "DependencyState", function: Function, operation: Operation, *, idempotent: bool
) -> Function:
    """Return the function, called as the dependency's policies say.

    A first attempt that succeeds is made right here and not by `Call`: nearly every call is one, and its cost counts.
    """
    runtime, bucket, note = core.runtime, core.bucket, core.samples.append
    claim = core.retry_owner if idempotent else None
    manner = (operation, idempotent)  # in one, because each name from out here is paid for by every call
    is_new = True

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912
        nonlocal is_new
        place = found()
        if place.thread != get_ident():
            place = place_here()
        outer = place.inner
        monotonic = runtime.monotonic  # apart from its call, because CPython 3.11 makes that quicker: 20 ns
        started = monotonic()
        limit = started + core.total
        owner = claim
        if not core.has_fast_path:
            return pursue(Call(core, manner[0], outer, started, idempotent=manner[1]), function, args, kwargs)
        if outer is not None:
            if outer.expires < limit:
                limit = outer.expires
                if limit <= started:
                    raise refusal(manner[0])
            if outer.owner is not None:
                owner = outer.owner
        expires = started + core.timeout
        attempt = Attempt(expires if expires < limit else limit, owner, outer, core, limit)  # noqa: FURB136 - quicker
        place.inner = attempt
        try:
            result = function(*args, **kwargs) if kwargs else function(*args)
        except Exception as caught:  # noqa: BLE001 - understood by the engine
            error = caught
        else:
            if is_new:
                refuse_coroutine(result, manner[0])
                is_new = False
            ended = monotonic()
            note(ended - started - attempt.setup)
            if ended >= core.learn_at:
                core.learn(ended)
            if bucket.tokens < bucket.budget.capacity:
                bucket.give(bucket.budget.refund)
            return result
        finally:
            place.inner = outer
        whole = Call(core, manner[0], outer, started, idempotent=manner[1])
        whole.adopt(attempt)
        try:
            return pursue(whole, function, args, kwargs, attempt, error)
        finally:
            del error  # it holds this frame, and the frame must not hold it

    return cast("Function", call)


def pursue(  # noqa: C901, PLR0912, PLR0917 - a driver's own loop
    call: Call,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempt: Attempt | None = None,
    error: Exception | None = None,
) -> Any:
    """Make attempts until one is the last; the first one may have failed already."""
    result: Any = None
    runtime = call.core.runtime
    sleep, intercept, is_limited = runtime.clock.sleep, runtime.intercept, call.core.running.most < inf
    if intercept is not None:
        function = intercept.around(call.operation, function)
    if attempt is None:
        wait = call.hold()
        if wait:
            sleep(wait)
    try:
        while True:
            if attempt is None:
                attempt = call.begin(error)
                if is_limited:
                    call.enter(error)
                error = None
                place = found()
                if place.thread != get_ident():
                    place = place_here()
                place.inner = attempt
                try:
                    result = function(*args, **kwargs)
                except Exception as caught:  # noqa: BLE001 - understood by the engine
                    error = caught
                else:
                    refuse_coroutine(result, call.operation)
                finally:
                    place.inner = call.outer
                    if is_limited:
                        call.left()
            delay = call.settle(attempt, result, error)
            if delay is None:
                if error is None:
                    return result
                raise error
            if delay:
                sleep(delay)
            attempt = None
    finally:
        error = None  # its traceback holds this frame, and the frame must not hold it


def refuse_coroutine(result: object, operation: Operation) -> None:
    """Raise InvalidValue for a coroutine, which has done nothing yet: it would be neither bounded nor repeated."""
    if hasattr(result, "send") and isinstance(result, Coroutine):  # in this order: it is quicker to be no coroutine
        result.close()  # one that is never awaited would complain on top
        raise InvalidValue(f"{operation} returned a coroutine: make it `async def`, or use run_async()")
