"""The synchronous driver: makes the attempts and sleeps between them."""

import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast._errors import InvalidValue
from holdfast._types import Operation
from holdfast.calls.attempt import Attempt
from holdfast.calls.context import SCOPE, new_thread_scopes
from holdfast.calls.engine import Call, deadline_passed_error
from holdfast.calls.scope import find_options

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState

Function = TypeVar("Function", bound=Callable[..., Any])

get_scope: Callable[[], Any] = SCOPE.get


def bind(  # noqa: C901, PLR0915 - the fast path is inlined: each function call would add a tenth to its cost
    dependency: "DependencyState", function: Function, operation: Operation, *, idempotent: bool
) -> Function:
    """Return `function` with the dependency's timeouts, retries and budget.

    The first attempt does not use `Call`: nearly every call succeeds at it, so its cost counts.
    """
    runtime, bucket, add_sample = dependency.runtime, dependency.bucket, dependency.samples.append
    retry_owner = dependency.retry_owner if idempotent else None
    options = (operation, idempotent)  # a single closure variable, because each one slows down every call
    is_new = True

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912
        nonlocal is_new
        scopes = get_scope()
        if scopes.thread != get_ident():
            scopes = new_thread_scopes()
        outer = scopes.innermost
        monotonic = runtime.monotonic  # a local variable is 20 ns faster in CPython 3.11
        started = monotonic()
        call_expires = started + dependency.total
        owner = retry_owner
        if not dependency.has_fast_path or (
            dependency.was_overridden and find_options(dependency, outer) is not dependency
        ):
            return run_attempts(
                Call(dependency, options[0], outer, started, idempotent=options[1]), function, args, kwargs
            )
        if outer is not None:
            if outer.expires < call_expires:
                call_expires = outer.expires
                if call_expires <= started:
                    raise deadline_passed_error(options[0])
            if outer.retry_owner is not None:
                owner = outer.retry_owner
        expires = started + dependency.timeout
        attempt = Attempt(expires if expires < call_expires else call_expires, owner, outer, dependency, call_expires)  # noqa: FURB136 - faster
        scopes.innermost = attempt
        error: Exception | None
        try:
            result = function(*args, **kwargs) if kwargs else function(*args)
        except Exception as caught:  # noqa: BLE001 - the engine classifies it
            error, result = caught, None
        else:
            if is_new:
                refuse_awaitable(result, options[0])
                is_new = False
            ended = monotonic()
            if ended < call_expires:
                add_sample(ended - started - attempt.setup_seconds)
                if ended >= dependency.learn_at:
                    dependency.learn(ended)
                if bucket.tokens < bucket.budget.capacity:
                    bucket.give(bucket.budget.first_attempt_tokens)
                return result
            error = None  # `end_attempt` raises, because it is late
        finally:
            scopes.innermost = outer
        engine_call = Call(dependency, options[0], outer, started, idempotent=options[1])
        engine_call.adopt(attempt)
        try:
            return run_attempts(engine_call, function, args, kwargs, attempt, error, result)
        finally:
            del error  # breaks the reference cycle of error, traceback and frame

    return cast("Function", call)


def run_attempts(  # noqa: C901, PLR0912, PLR0917 - a driver's own loop
    call: Call,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempt: Attempt | None = None,
    error: Exception | None = None,
    result: Any = None,
) -> Any:
    """Make attempts until one succeeds or is the last. `attempt`, with `error` or `result`, is one made before."""
    runtime = call.dependency.runtime
    sleep, interceptor, is_limited = runtime.clock.sleep, runtime.interceptor, call.dependency.in_flight.max_count < inf
    if interceptor is not None:
        function = interceptor.wrap(call.operation, function)
    if attempt is None:
        wait = call.initial_delay()
        if wait:
            sleep(wait)
    try:
        while True:
            if attempt is None:
                attempt = call.begin(error)
                if is_limited:
                    call.enter(error)
                error = None
                scopes = get_scope()
                if scopes.thread != get_ident():
                    scopes = new_thread_scopes()
                scopes.innermost = attempt
                try:
                    result = function(*args, **kwargs)
                except Exception as caught:  # noqa: BLE001 - the engine classifies it
                    error = caught
                else:
                    if result is not None:  # saves the call for functions without a result
                        refuse_awaitable(result, call.operation)
                finally:
                    scopes.innermost = call.outer
                    if is_limited:
                        call.leave()
            delay = call.end_attempt(attempt, result, error)
            if delay is None:
                if error is None:
                    return result
                raise error
            if delay:
                sleep(delay)
            attempt = None
    finally:
        error = None  # breaks the reference cycle of error, traceback and frame


def refuse_awaitable(result: object, operation: Operation) -> None:
    """Raise InvalidValue for a coroutine or an unfinished future: timeouts and retries would not apply to its result.

    Other objects that can be awaited are results, such as the operations and calls of Google's clients.
    """
    found = type(result)
    if not hasattr(found, "__await__") and not hasattr(found, "add_done_callback"):
        return  # soon, because nearly every result is neither
    if isinstance(result, Coroutine):
        kind = "coroutine"
        result.close()  # no one will await it
    elif isinstance(result, _find_future_classes()) and not result.done():
        kind = found.__name__
    else:
        return
    raise InvalidValue(
        f"{operation} returned a {kind}, which is not finished: make it `async def`, use run_async(), or wait for it "
        "in the function"
    )


def _find_future_classes() -> tuple[Any, ...]:
    """Return the classes of futures, of those modules that are imported: only these can have made one."""
    modules = (sys.modules.get("asyncio"), sys.modules.get("concurrent.futures"))
    return tuple(getattr(module, "Future", ()) for module in modules)
