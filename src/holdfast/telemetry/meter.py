"""Measure the work of a process by zone: a decorator for functions, and a block for any other code."""

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from holdfast._errors import InvalidValue
from holdfast._names import check_workload_name, parse_zone
from holdfast._types import Operation, Outcome, RequestDetail, Side, Sink, Zone
from holdfast.calls.context import current_scope
from holdfast.calls.periodic import host_name
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.scope import find_trace, get_trace_id

__all__ = ["ClientErrors", "MeasuredBlock", "Meter"]

log = logging.getLogger("holdfast.telemetry")

Function = TypeVar("Function", bound=Callable[..., Any])
ClientErrors: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Exceptions that are the caller's fault: their types, or a function that returns whether one is."""

OK, CLIENT_ERROR, CLIENT_GONE, FAULT, TIMED_OUT = 200, 400, 499, 500, 504
"""Statuses of work that has none of its own. 499 was introduced by nginx for a client that does not wait."""


class Meter:
    """Measures the work of one process, and reports it to `sink`. As thread-safe as the sink.

    `instance` is the name of this process; None means the host's name. The middleware has a meter of its own: use this
    one for work that is no HTTP request, such as messages of a consumer, RPC calls and batch jobs.
    """

    def __init__(
        self,
        workload: str,
        *,
        zone: Zone,
        sink: Sink[Outcome],
        instance: str | None = None,
        side: Side = Side.SERVER,
        runtime: Runtime = PROCESS,
    ) -> None:
        self.workload = check_workload_name(workload)
        self.zone = parse_zone(zone)
        self.instance = instance or host_name()
        self.dropped_outcomes = 0
        """Outcomes for which the sink raised. Not locked, so approximate with several threads."""
        self._sink = sink
        self._side = side
        self._runtime = runtime

    def measured(
        self, operation: Operation | str | None = None, *, client_errors: ClientErrors = ()
    ) -> Callable[[Function], Function]:
        """Return a decorator that reports every call of a function or coroutine function, and how long it took.

        The operation is by default the function's qualified name. An exception is a fault, unless `client_errors` says
        that the caller caused it. A generator cannot be measured: use `measure` in its body.
        """
        if callable(operation):
            raise InvalidValue(f"{operation!r} is no operation: write @meter.measured(), with parentheses")

        def decorate(function: Function) -> Function:
            if isinstance(function, type):
                raise InvalidValue(f"{function!r} is a class: decorate its methods")
            by_call = getattr(function, "__call__", None)  # noqa: B004 - the method itself, to see whether it is async
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise InvalidValue(
                    f"{function!r} is a generator: a call only creates it; use `with meter.measure(...)` in its body"
                )
            name = operation if operation is not None else getattr(function, "__qualname__", type(function).__name__)
            measured = self._name(name)
            call: Any
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(by_call):

                @wraps(function)
                async def call(*args: Any, **kwargs: Any) -> Any:
                    with MeasuredBlock(self, measured, client_errors):
                        return await function(*args, **kwargs)
            else:

                @wraps(function)
                def call(*args: Any, **kwargs: Any) -> Any:
                    with MeasuredBlock(self, measured, client_errors):
                        return function(*args, **kwargs)

            return call  # type: ignore[no-any-return]

        return decorate

    def measure(self, operation: Operation | str, *, client_errors: ClientErrors = ()) -> "MeasuredBlock":
        """Return a context manager that reports one piece of work. It works in coroutines as well."""
        return MeasuredBlock(self, self._name(operation), client_errors)

    def report(self, operation: Operation, *, seconds: float, detail: RequestDetail, is_ignored: bool = False) -> None:
        """Report a finished request. Log the first error of a sink that raises, and count all."""
        group, took = detail.status_class, (seconds,)
        try:
            self._sink.emit(
                Outcome(
                    workload=self.workload,
                    operation=operation,
                    zone=self.zone,
                    instance=self.instance,
                    at=self._runtime.clock.wall(),
                    side=self._side,
                    count_2xx=1 if group == 2 else 0,
                    count_3xx=1 if group == 3 else 0,
                    count_4xx=1 if group == 4 else 0,
                    count_5xx=1 if group == 5 else 0,
                    success_seconds=took if group < 5 else (),
                    fault_seconds=took if group == 5 else (),
                    is_ignored=is_ignored,
                    detail=detail,
                )
            )
        except Exception:
            self.dropped_outcomes += 1
            if self.dropped_outcomes == 1:  # a sink that fails once usually fails for every outcome
                log.exception("the sink for outcomes of %s raised; further ones are only counted", self.workload)

    def now(self) -> float:
        """Return the monotonic time."""
        return self._runtime.monotonic()

    def _name(self, operation: Operation | str) -> Operation:
        return operation if isinstance(operation, Operation) else Operation(self.workload, operation)


class MeasuredBlock:
    """One piece of work, from entering the block to leaving it. Make a new one for each `with`.

    If the block ends without an exception, the status is that set in `status`, or 200. An exception counts as 500, or
    400 if `client_errors` says that the caller caused it; if the block has set a status of 400 or more, that counts.
    Cancelled work counts as 504 after the current deadline, and before it as 499, which is no fault of the zone.
    """

    __slots__ = ("_began", "_client_errors", "_meter", "_operation", "is_cache_refresh", "path", "source_ip", "status")

    def __init__(self, meter: Meter, operation: Operation, client_errors: ClientErrors = ()) -> None:
        self.status: int | None = None
        """The HTTP status that describes the result, such as 429; None means by the exception."""
        self.path = ""
        """For the log line: what was asked for."""
        self.source_ip = ""
        """For the log line: the address of the client."""
        self.is_cache_refresh = False
        """For the log line: whether the work had to refresh a local cache."""
        self._meter = meter
        self._operation = operation
        self._client_errors = client_errors
        self._began: float | None = None

    def __enter__(self) -> Self:
        if self._began is not None:
            raise InvalidValue(f"this block of {self._operation} was entered before: make a new one for each `with`")
        self._began = self._meter.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._began is not None
        scope, now = current_scope(), self._meter.now()
        has_expired = scope is not None and now >= scope.expires
        detail = RequestDetail(
            status=self._choose_status(error, has_expired=has_expired),
            trace=get_trace_id(find_trace(scope)),
            path=self.path,
            source_ip=self.source_ip,
            is_cache_refresh=self.is_cache_refresh,
        )
        self._meter.report(self._operation, seconds=now - self._began, detail=detail)

    def _choose_status(self, error: BaseException | None, *, has_expired: bool) -> int:
        if error is None:
            return OK if self.status is None else self.status
        if self.status is not None and self.status >= 400:
            return self.status
        if not isinstance(error, Exception):
            return TIMED_OUT if has_expired else CLIENT_GONE
        return CLIENT_ERROR if self._is_client_error(error) else FAULT

    def _is_client_error(self, error: Exception) -> bool:
        found = self._client_errors
        if isinstance(found, tuple | type):
            return isinstance(error, found)
        try:
            return found(error)
        except Exception:
            log.exception("client_errors of %s raised; the work counts as a fault", self._operation)
            return False
