"""One service that is called, and everything that its callers share. Start reading at `Dependency`."""

import inspect
import logging
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from holdfast._errors import InvalidValue
from holdfast._forks import renew_after_fork
from holdfast._types import Operation, Sink
from holdfast.calls.events import CallEvent, TimeoutChanged
from holdfast.calls.hints import Hints, HintsHold, Hold
from holdfast.calls.limits import Bucket, Limit, Running
from holdfast.calls.retry import Budget, Owner, Retry
from holdfast.calls.runtime import PROCESS, Runtime
from holdfast.calls.timeout import Estimator, Percentile, Timeouts

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from holdfast.calls.attempts import Attempts
    from holdfast.calls.endpoints import Endpoint, Endpoints, ShardEndpoints
    from holdfast.calls.expiries import Expiries

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
Function = TypeVar("Function", bound=Callable[..., Any])

SAMPLES = 512
"""Latencies that wait to be looked at; of more than that in `LOOK_EVERY` seconds, the last ones are."""
LOOK_EVERY = 0.5
"""Seconds between looks at them: a look takes up to half a millisecond, which no single call should pay often."""
CHANGED = 1.1
"""A timeout that has moved by this factor is told; smaller moves are noise."""

log = logging.getLogger(__name__)


class Dependency:
    """A service that is called: its timeouts, its retries, and the state that all functions calling it share.

    Make one for each service and keep it; functions that call the service are decorated with `call`. Policies are
    frozen values. Safe in threads, in forked processes and in several event loops; what it knows is this process's.
    """

    def __init__(
        self,
        name: str,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen, as all policies are
        retry: Retry = Retry(),  # noqa: B008
        budget: Budget = Budget(),  # noqa: B008
        hints: Hints = Hints(),  # noqa: B008
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
        _expect("budget", budget, Budget)
        _expect("hints", hints, Hints)
        _expect("limit", limit, Limit | None)
        self.name = name
        self.retry = retry
        self.claim = name if retry.attempts > 1 and retry.owner is not Owner.BELOW else None
        """The name that calls which can be repeated tell the layers below: that of whoever does so."""
        self.endpoints = endpoints
        self.runtime = runtime
        self.total = math.inf if timeouts.total is None else timeouts.total
        self.bucket = Bucket(budget)
        self.hold = Hold(hints)
        self.running = Running(limit)
        self.connects = Estimator(timeouts.connect)
        self.attempts_seen = Estimator(timeouts.attempt)
        self.timeout = self.attempts_seen.value
        """Seconds that an attempt may take now."""
        self.waiting: deque[float] = deque(maxlen=SAMPLES)
        self.look_at = runtime.monotonic() + LOOK_EVERY
        self._told = {"attempt": self.timeout, "connect": self.connects.value}
        self._sink = sink
        self.lost_events = 0
        """Events that the sink failed to take."""
        self.is_heard = False
        """Whether there is a sink."""
        self.plain = False
        """Whether a call that succeeds at once has nothing to do but to be measured."""
        self.set_plain()
        self._lock = threading.Lock()
        self._by_loop: dict[AbstractEventLoop, Expiries] = {}
        self.last_expiries: Expiries | None = None
        """Those of the loop that was asked for last: nearly always there is one."""
        renew_after_fork(self)
        runtime.join(self)

    @property
    def sink(self) -> Sink[CallEvent] | None:
        """Where events go; may be set at any time. None: nothing is paid for them."""
        return self._sink

    @sink.setter
    def sink(self, sink: Sink[CallEvent] | None) -> None:
        self._sink = sink
        self.lost_events = 0
        self.set_plain()

    @property
    def tokens(self) -> float:
        """What is left of the retry budget."""
        return self.bucket.tokens

    @property
    def in_flight(self) -> int:
        """Attempts that are under way; counted only if there is a limit."""
        return self.running.count

    def latency(self, percent: float) -> float | None:
        """The percentile of the latency in seconds, as far as it was observed; None without samples.

        Infinity: it cannot be told, because more than that share of the attempts were cut off.
        """
        if not 0 < percent < 100:
            raise InvalidValue(f"percentile {percent}: expected a number above 0 and below 100")
        self.look(self.runtime.monotonic())
        seen = self.attempts_seen.seen
        return seen.above(1 - percent / 100) if seen.total else None

    def call(self, *, idempotent: bool, operation: str | None = None) -> Callable[[Function], Function]:
        """Decorate a function that calls the service, synchronous or not; its signature stays.

        `idempotent` says whether doing it twice is doing it once: if not, it is repeated only when nothing was sent.
        `operation` names it in events, else the function's name does. An attempt of an asynchronous function is
        cancelled when its time is over; a synchronous one cannot be, so hand `current_attempt().timeout` to its client.
        """
        _expect("idempotent", idempotent, bool)

        def decorate(function: Function) -> Function:
            if not callable(function):
                raise InvalidValue(f"{function!r} to call {self.name} with: expected a function")
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise InvalidValue(
                    f"{function.__qualname__} is a generator: loop over attempts() inside of it, and yield after each"
                )
            named = Operation(self.name, operation or _name_of(function))
            if _is_asynchronous(function):
                from holdfast.calls.drive_async import bind_async

                return bind_async(self, function, named, idempotent=idempotent)
            from holdfast.calls.drive import bind

            return bind(self, function, named, idempotent=idempotent)

        return decorate

    def run(
        self,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        idempotent: bool,
        operation: str | None = None,
    ) -> Result:
        """Call a function once, with all that `call` does for decorated ones."""
        if _is_asynchronous(function):
            raise InvalidValue(f"{_name_of(function)} is asynchronous: await run_async() instead")
        return self.call(idempotent=idempotent, operation=operation)(function)(*arguments)

    async def run_async(
        self,
        function: Callable[[*Arguments], Awaitable[Result]],
        *arguments: *Arguments,
        idempotent: bool,
        operation: str | None = None,
    ) -> Result:
        """Await a function once, with all that `call` does for decorated ones."""
        from holdfast.calls.drive_async import bind_async

        _expect("idempotent", idempotent, bool)
        named = Operation(self.name, operation or _name_of(function))
        result: Result = await bind_async(self, function, named, idempotent=idempotent)(*arguments)
        return result

    def attempts(self, *, idempotent: bool, operation: str = "attempts") -> "Attempts":
        """Loop over the attempts of one call, with `for` or `async for`; the work stands in `with attempt:`.

        The loop ends with the attempt that succeeds; the last failure leaves it as it was raised.
        """
        from holdfast.calls.attempts import Attempts

        _expect("idempotent", idempotent, bool)
        return Attempts(self, Operation(self.name, operation), idempotent=idempotent)

    # What follows is for drivers and adapters.

    def endpoint(self, tried: tuple[str, ...]) -> "Endpoint":
        """Where the next attempt goes."""
        if self.endpoints is None:
            raise InvalidValue(f"dependency {self.name} has no endpoints: give it some when it is made")
        return self.endpoints.next(tried)

    def expiries(self, loop: "AbstractEventLoop") -> "Expiries":
        """The attempts that are under way in an event loop, to be cut off in time."""
        last = self.last_expiries
        if last is not None and last.loop is loop:
            return last
        from holdfast.calls.expiries import Expiries

        with self._lock:
            found = self._by_loop.get(loop)
            if found is None:
                self._by_loop = {other: kept for other, kept in self._by_loop.items() if not other.is_closed()}
                found = self._by_loop[loop] = Expiries(loop, self.runtime)
            self.last_expiries = found
            return found

    def connected(self, seconds: float) -> None:
        """A connection took so long to set up; infinity: it did not come about in time."""
        with self._lock:
            after = self.connects.learn([seconds])
        self._tell_timeout("connect", after)

    def look(self, now: float) -> None:
        """Learn from the latencies that wait. Returns at once if another thread is at it."""
        self.look_at = now + LOOK_EVERY
        if not self._lock.acquire(blocking=False):
            return
        try:
            waiting = self.waiting
            samples = [waiting.popleft() for _ in range(len(waiting))]
            self.timeout = self.attempts_seen.learn(samples)
        finally:
            self._lock.release()
        self._tell_timeout("attempt", self.timeout)

    def emit(self, event: CallEvent) -> None:
        """Hand an event to the sink, if there is one; whatever the sink does, the call goes on."""
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except Exception:
            self.lost_events += 1
            if self.lost_events == 1:  # a sink that fails once mostly fails for every event
                log.exception("the sink of dependency %s failed; its events are lost, and counted", self.name)

    def renew(self) -> None:
        """Have a lock that nobody holds, and no event loop: after a fork, those of the parent are gone."""
        self._lock = threading.Lock()
        self._by_loop = {}
        self.last_expiries = None

    def forget(self) -> None:
        """Begin anew: with a full budget, without a hint that holds, with the timeouts of the start."""
        self.bucket.fill()
        self.hold.until = -math.inf
        with self._lock:
            self.waiting.clear()
            self.connects = Estimator(self.connects.policy)
            self.attempts_seen = Estimator(self.attempts_seen.policy)
            self.timeout = self.attempts_seen.value
            self._told = {"attempt": self.timeout, "connect": self.connects.value}
            self.look_at = self.runtime.monotonic() + LOOK_EVERY

    def set_plain(self) -> None:
        """Find out whether calls may take the short way; to be repeated when what decides it has changed."""
        self.is_heard = self._sink is not None
        self.plain = (
            not self.is_heard
            and self.runtime.intercept is None
            and self.running.most == math.inf
            and self.retry.judge is None
            and self.retry.owner is not Owner.HERE
            and self.hold.hints.hold is HintsHold.RETRIES
        )

    def _tell_timeout(self, what: str, after: float) -> None:
        before = self._told[what]
        if self._sink is None or before / CHANGED < after < before * CHANGED:
            return
        self._told[what] = after
        estimator = self.attempts_seen if what == "attempt" else self.connects
        if isinstance(estimator.policy, Percentile):
            at, samples = self.runtime.clock.wall(), estimator.seen.total
            self.emit(
                TimeoutChanged(dependency=self.name, at=at, what=what, before=before, after=after, samples=samples)
            )


def _name_of(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _is_asynchronous(function: Callable[..., Any]) -> bool:
    by_call = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that is called like a function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(by_call)


def _expect(name: str, value: object, kind: Any) -> None:
    """Raise InvalidValue for what would be found out only when something fails, long after it was written."""
    if not isinstance(value, kind):
        words = getattr(kind, "__name__", str(kind))
        raise InvalidValue(f"{name} is {value!r}: expected {'True or False' if kind is bool else words}")
