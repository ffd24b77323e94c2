"""The asynchronous driver: makes the attempts, cancels those that time out, and sleeps between them."""

from asyncio import CancelledError, current_task
from collections.abc import Callable
from functools import wraps
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast._types import Operation
from holdfast.calls.attempt import TimedAttempt
from holdfast.calls.context import NO_SCOPES, SCOPE, ThreadScopes, current_task_scope
from holdfast.calls.engine import Call, deadline_passed_error
from holdfast.calls.expiries import arm_timeout, disarm_timeout, translate_cancellation
from holdfast.calls.scope import find_options

if TYPE_CHECKING:
    from holdfast.calls.state import DependencyState

Function = TypeVar("Function", bound=Callable[..., Any])

get_scope: Callable[[], Any] = SCOPE.get
set_scope, reset_scope = SCOPE.set, SCOPE.reset


class TimedCall(Call):
    """A call whose attempts are cancelled on timeout."""

    attempt_class = TimedAttempt


def bind_async(  # noqa: C901, PLR0915 - the fast path is inlined, as in `drive.py`
    dependency: "DependencyState", function: Function, operation: Operation, *, idempotent: bool
) -> Function:
    """Return `function` with the dependency's timeouts, retries and budget. As in `drive.py`, there is a fast path."""
    runtime, bucket, add_sample = dependency.runtime, dependency.bucket, dependency.samples.append
    retry_owner = dependency.retry_owner if idempotent else None
    options = (operation, idempotent)  # a single closure variable, because each one slows down every call

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        outer = get_scope()
        if outer is NO_SCOPES:
            outer = None
        elif type(outer) is ThreadScopes:
            outer = current_task_scope()
        monotonic = runtime.monotonic  # a local variable is 20 ns faster in CPython 3.11
        started = monotonic()
        call_expires = started + dependency.total
        owner = retry_owner
        if not dependency.has_fast_path or (
            dependency.was_overridden and find_options(dependency, outer) is not dependency
        ):
            engine_call = TimedCall(dependency, options[0], outer, started, idempotent=options[1])
            return await run_attempts(engine_call, function, args, kwargs)
        if outer is not None:
            if outer.expires < call_expires:
                call_expires = outer.expires
                if call_expires <= started:
                    raise deadline_passed_error(options[0])
            if outer.retry_owner is not None:
                owner = outer.retry_owner
        expires = started + dependency.timeout
        if call_expires < expires:  # noqa: PLR1730 - faster
            expires = call_expires
        expiries = dependency.last_expiries
        if (  # the most frequent case of `arm_timeout`, inlined
            expiries is not None
            and getattr(expiries.loop, "_thread_id", None) == get_ident()
            and expiries.latest <= expires < inf
            and expires >= expiries.armed_for
        ):
            task: Any = current_task(expiries.loop)
            attempt = TimedAttempt(
                expires,
                owner,
                outer,
                dependency,
                call_expires,
                expiries=expiries,
                task=task,
                cancelling=task.cancelling(),
            )
            expiries.latest = expires
            expiries.pending[attempt] = expires
        else:
            attempt = TimedAttempt(expires, owner, outer, dependency, call_expires)
            if expires < inf:
                arm_timeout(attempt)
        token = set_scope(attempt)
        error: Exception | None
        try:
            result = await function(*args, **kwargs) if kwargs else await function(*args)
        except Exception as caught:  # noqa: BLE001 - the engine classifies it
            error, result = caught, None
        except CancelledError as caught:
            error, result = translate_cancellation(attempt, caught), None
        else:
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
            if attempt.expiries is not None and (
                attempt.expiries.pending.pop(attempt, None) is None or attempt.timer is not None
            ):
                disarm_timeout(attempt)
            try:  # noqa: SIM105 - faster
                reset_scope(token)
            except ValueError:
                pass  # the coroutine is closed in another context
        engine_call = TimedCall(dependency, options[0], outer, started, idempotent=options[1])
        engine_call.adopt(attempt)
        try:
            return await run_attempts(engine_call, function, args, kwargs, attempt, error, result)
        finally:
            del error  # breaks the reference cycle of error, traceback and frame

    return cast("Function", call)


async def run_attempts(  # noqa: C901, PLR0912, PLR0917 - a driver's own loop
    call: "TimedCall",
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempt: Any = None,
    error: Exception | None = None,
    result: Any = None,
) -> Any:
    """Make attempts until one succeeds or is the last. `attempt`, with `error` or `result`, is one made before."""
    runtime = call.dependency.runtime
    sleep, interceptor = runtime.clock.sleep_async, runtime.interceptor
    if interceptor is not None:
        function = interceptor.wrap_async(call.operation, function)
    if attempt is None:
        wait = call.initial_delay()
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
                        arm_timeout(attempt)
                    token = set_scope(attempt)
                    result = await function(*args, **kwargs)
                except Exception as caught:  # noqa: BLE001
                    error = caught
                except CancelledError as caught:
                    error = translate_cancellation(attempt, caught)
                finally:
                    if attempt.expiries is not None:
                        disarm_timeout(attempt)
                    call.leave()
                    if token is not None:
                        try:  # noqa: SIM105 - faster
                            reset_scope(token)
                        except ValueError:
                            pass  # the coroutine is closed in another context
            delay = call.end_attempt(attempt, result, error)
            if delay is None:
                if error is None:
                    return result
                raise error
            if delay:
                await sleep(delay)
            attempt = None
    finally:
        error = None  # breaks the reference cycle of error, traceback and frame
