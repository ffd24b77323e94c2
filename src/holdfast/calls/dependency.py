"""A service that is called, with the policies and state that its callers share. Start reading at `Dependency`."""

import inspect
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Sink
from holdfast.calls.context import override
from holdfast.calls.events import CallEvent
from holdfast.calls.limits import Limit
from holdfast.calls.retry import Retry, RetryAfter, RetryBudget
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.state import DependencyState
from holdfast.calls.timeout import Timeouts

if TYPE_CHECKING:
    from holdfast.calls.attempt_loop import AttemptLoop
    from holdfast.calls.endpoints import Endpoints, ShardEndpoints

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
Function = TypeVar("Function", bound=Callable[..., Any])
Method = TypeVar("Method", bound=Callable[..., Any])


def _explain_missing_parentheses(method: Method) -> Method:
    """Make `@dependency.call` without parentheses raise InvalidValue, instead of Python's error about arguments."""

    @wraps(method)
    def call(self: "Dependency", *functions: object, **options: Any) -> Any:
        if functions:
            raise InvalidValue(
                f"call of {self.name} got {functions[0]!r}: write @dependency.call(idempotent=True) above a function "
                "that may be repeated, with parentheses, or idempotent=False if it may not"
            )
        return method(self, **options)

    return cast("Method", call)


class Dependency:
    """A service that is called: its timeouts, its retries, and the state that all functions calling it share.

    Make one for each service and keep it. Decorate functions that call the service with `call`. Policies are frozen
    values. Safe in threads, forked processes and several event loops. Its state is not shared between processes.
    """

    def __init__(
        self,
        name: str,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen, as all policies are
        retry: Retry = Retry(),  # noqa: B008
        budget: RetryBudget = RetryBudget(),  # noqa: B008
        retry_after: RetryAfter = RetryAfter(),  # noqa: B008
        limit: Limit | None = None,
        endpoints: "Endpoints | ShardEndpoints | None" = None,
        sink: Sink[CallEvent] | None = None,
        runtime: Runtime = PROCESS,
    ) -> None:
        _expect("dependency name", name, str)
        if not name or not name.isprintable():
            raise InvalidValue(f"dependency name {name!r}: expected printable text, as it appears in logs and metrics")
        _expect("timeouts", timeouts, Timeouts)
        _expect("retry", retry, Retry)
        _expect("budget", budget, RetryBudget)
        _expect("retry_after", retry_after, RetryAfter)
        _expect("limit", limit, Limit | None)
        self._state = DependencyState(name, timeouts, retry, budget, retry_after, limit, endpoints, sink, runtime)

    @property
    def name(self) -> str:
        """The name in logs, metrics and errors."""
        return self._state.name

    @property
    def endpoints(self) -> "Endpoints | ShardEndpoints | None":
        """The endpoints to choose from, or None if the calling functions choose."""
        return self._state.endpoints

    @property
    def sink(self) -> Sink[CallEvent] | None:
        """The sink for events, which may be set at any time. None means no events, which costs nothing."""
        return self._state.sink

    @sink.setter
    def sink(self, sink: Sink[CallEvent] | None) -> None:
        self._state.sink = sink

    @property
    def dropped_events(self) -> int:
        """Events for which the sink raised."""
        return self._state.dropped_events

    @property
    def timeout(self) -> float:
        """Current timeout of an attempt, in seconds."""
        return self._state.timeout

    @property
    def connect_timeout(self) -> float:
        """Current timeout of a connection set-up, in seconds."""
        return self._state.connect_estimator.value

    @property
    def tokens(self) -> float:
        """Tokens left in the retry budget."""
        return self._state.bucket.tokens

    @property
    def in_flight(self) -> int:
        """Attempts in flight; 0 without a limit, because they are not counted then."""
        return self._state.in_flight.count

    @property
    def limit(self) -> int | None:
        """Maximum number of concurrent attempts, or None for no limit."""
        max_in_flight = self._state.in_flight.max_count
        return None if max_in_flight == math.inf else int(max_in_flight)

    def latency(self, percent: float) -> float | None:
        """Return a percentile of recent latencies, in seconds. Return None if there are no latencies yet.

        Return infinity if the attempts at that percentile timed out.
        """
        if not 0 < percent < 100:
            raise InvalidValue(f"percentile {percent}: expected a number above 0 and below 100")
        state = self._state
        state.learn(state.runtime.monotonic())
        histogram = state.attempt_estimator.histogram
        return histogram.exceeded_by(1 - percent / 100) if histogram.total else None

    @_explain_missing_parentheses
    def call(self, *, idempotent: bool, operation: str | None = None) -> Callable[[Function], Function]:
        """Return a decorator for a function, synchronous or not, that calls the service. It keeps the signature.

        `idempotent`: whether repeating it has the same effect as doing it once. If not, it is retried only when nothing
        was sent. `operation` is its name in events; the default is the function's name. An attempt of an asynchronous
        function is cancelled on timeout. A synchronous one cannot be: pass `current_attempt().timeout` to its client.
        """
        _expect("idempotent", idempotent, bool)

        return lambda function: self._bind(function, idempotent=idempotent, operation=operation)

    def _bind(self, function: Function, *, idempotent: bool, operation: str | None) -> Function:
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self._bind(function.__func__, idempotent=idempotent, operation=operation))
        if not callable(function):
            raise InvalidValue(f"{function!r} to call {self.name}: expected a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidValue(f"{function.__qualname__} is a generator: loop over attempts() and yield after each")
        named = Operation(self.name, operation or _name_of(function))
        if _is_asynchronous(function):
            from holdfast.calls.drive_async import bind_async

            return bind_async(self._state, function, named, idempotent=idempotent)
        from holdfast.calls.drive import bind

        return bind(self._state, function, named, idempotent=idempotent)

    def run(
        self,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        idempotent: bool,
        operation: str | None = None,
    ) -> Result:
        """Call a function now, with the timeouts and retries that `call` gives to decorated ones."""
        if _is_asynchronous(function):
            raise InvalidValue(f"{_name_of(function)} is asynchronous: await run_async() instead")
        _expect("idempotent", idempotent, bool)
        return self._bind(function, idempotent=idempotent, operation=operation)(*arguments)

    async def run_async(
        self,
        function: Callable[[*Arguments], Awaitable[Result]],
        *arguments: *Arguments,
        idempotent: bool,
        operation: str | None = None,
    ) -> Result:
        """Await a function now, with the timeouts and retries that `call` gives to decorated ones."""
        from holdfast.calls.drive_async import bind_async

        _expect("idempotent", idempotent, bool)
        named = Operation(self.name, operation or _name_of(function))
        result: Result = await bind_async(self._state, function, named, idempotent=idempotent)(*arguments)
        return result

    def override(
        self,
        *,
        max_attempts: int | None = None,
        attempt_timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> AbstractContextManager[None]:
        """Return a block in which calls of this dependency, of any kind, have other options. None keeps an option.

        Timeouts are in seconds. The block applies to its own context, and to tasks started there, as a deadline does.
        Attempts with `attempt_timeout` are not used to learn the timeout.
        """
        return override(
            self._state, max_attempts=max_attempts, attempt_timeout=attempt_timeout, total_timeout=total_timeout
        )

    def attempts(self, *, idempotent: bool, operation: str = "attempts") -> "AttemptLoop":
        """Return an iterator, sync and async, over the attempts of one call, each made in a block `with attempt:`."""
        from holdfast.calls.attempt_loop import AttemptLoop

        _expect("idempotent", idempotent, bool)
        return AttemptLoop(self._state, Operation(self.name, operation), idempotent=idempotent)


def state_of(dependency: Dependency) -> DependencyState:
    """Return the state of a dependency, for adapters and drivers. Raise InvalidValue for any other object."""
    if not isinstance(dependency, Dependency):
        raise InvalidValue(f"dependency is {dependency!r}: expected a Dependency")
    return dependency._state  # noqa: SLF001 - only here


def _name_of(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _is_asynchronous(function: Callable[..., Any]) -> bool:
    by_call = getattr(type(function), "__call__", None)  # noqa: B004 - for callable objects
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(by_call)


def _expect(name: str, value: object, kind: Any) -> None:
    """Raise InvalidValue for a value of another type, which would otherwise only show when a call fails."""
    if not isinstance(value, kind):
        words = getattr(kind, "__name__", str(kind))
        raise InvalidValue(f"{name} is {value!r}: expected {'True or False' if kind is bool else words}")
