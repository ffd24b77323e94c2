"""The state that all calls to a dependency share in this process. For drivers and adapters; users see `Dependency`."""

import logging
import math
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast._types import Sink
from holdfast.calls.events import CallEvent, TimeoutChanged
from holdfast.calls.limits import InFlightCounter, Limit, TokenBucket
from holdfast.calls.retry import Retry, RetryAfter, RetryAfterScope, RetryAfterState, RetryBudget, RetryOwner
from holdfast.calls.runtime import Runtime
from holdfast.calls.scope import Scope, find_options
from holdfast.calls.timeout import LEARN_INTERVAL, MAX_SAMPLES, Estimator, Percentile, Timeouts

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from holdfast.calls.endpoints import Endpoint, Endpoints, ShardEndpoints
    from holdfast.calls.expiries import Expiries

CHANGED = 1.1
"""Factor by which a timeout must change to be reported; smaller changes are noise."""

log = logging.getLogger("holdfast.calls.dependency")


class DependencyState:
    """The state that all functions calling one dependency share. Safe in threads, forks and several event loops."""

    def __init__(  # noqa: PLR0917 - only `Dependency` calls it, and each parameter has another type
        self,
        name: str,
        timeouts: Timeouts,
        retry: Retry,
        budget: RetryBudget,
        retry_after: RetryAfter,
        limit: Limit | None,
        endpoints: "Endpoints | ShardEndpoints | None",
        sink: Sink[CallEvent] | None,
        runtime: Runtime,
    ) -> None:
        self.name = name
        self.retry = retry
        self.retry_owner = _find_owner(name, retry)
        """Sent by idempotent calls to the layers below, which must not retry because this layer does."""
        self.endpoints = endpoints
        self.runtime = runtime
        self.total = math.inf if timeouts.total is None else timeouts.total
        self.bucket = TokenBucket(budget)
        self.retry_after = RetryAfterState(retry_after)
        self.in_flight = InFlightCounter(limit)
        self.samples: deque[float] = deque(maxlen=MAX_SAMPLES)
        """Samples that the attempt timeout has not learned from yet, as `Histogram.add` takes them."""
        self._start(timeouts.connect, timeouts.attempt)
        self._sink = sink
        self.dropped_events = 0
        """Events for which the sink raised."""
        self.fixed_timeout: float | None = None
        """As in OverriddenOptions."""
        self.was_overridden = False
        """Whether there may be scopes with other options for its calls. Work in them may outlive their blocks."""
        self.update_fast_path()
        self.reset_after_fork()
        register_after_fork(self)
        runtime.add_dependency(self)

    def reset_after_fork(self) -> None:
        """Replace the lock and drop the event loops, in a forked child: those of the parent are gone."""
        self._lock = threading.Lock()
        self._by_loop: dict[AbstractEventLoop, Expiries] = {}
        self.last_expiries: Expiries | None = None
        """Cache for the event loop used last: nearly always there is only one."""

    @property
    def sink(self) -> Sink[CallEvent] | None:
        return self._sink

    @sink.setter
    def sink(self, sink: Sink[CallEvent] | None) -> None:
        self._sink = sink
        self.dropped_events = 0
        self.update_fast_path()

    def endpoint(self, tried: tuple[str, ...]) -> "Endpoint":
        """Return the endpoint for the next attempt. Raise InvalidValue if the dependency has no endpoints."""
        if self.endpoints is None:
            raise InvalidValue(f"dependency {self.name} has no endpoints: pass Dependency(endpoints=...)")
        return self.endpoints.next(tried)

    def expiries(self, loop: "AbstractEventLoop") -> "Expiries":
        """Return the timeouts of the attempts in progress in `loop`."""
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

    def override(
        self,
        scope: Scope | None,
        *,
        max_attempts: int | None,
        attempt_timeout: float | None,
        total_timeout: float | None,
    ) -> "OverriddenOptions":
        """Return the options for calls in a block inside `scope`. None keeps an option that calls in `scope` have."""
        Timeouts(attempt=attempt_timeout, total=total_timeout)  # raises for an invalid one
        current: DependencyState | OverriddenOptions = find_options(self, scope)
        retry = current.retry if max_attempts is None else replace(current.retry, max_attempts=max_attempts)
        self.was_overridden = True
        return OverriddenOptions(
            dependency=self,
            retry=retry,
            retry_owner=_find_owner(self.name, retry),
            total=current.total if total_timeout is None else total_timeout,
            fixed_timeout=current.fixed_timeout if attempt_timeout is None else attempt_timeout,
        )

    def learn_connect(self, seconds: float) -> None:
        """Learn from one connection set-up, in seconds, or TIMED_OUT."""
        with self._lock:
            after = self.connect_estimator.learn([seconds])
        self._report_timeout("connect", after)

    def learn(self, now: float) -> None:
        """Learn from the collected samples. Return immediately if another thread is learning already."""
        self.learn_at = now + LEARN_INTERVAL
        if not self._lock.acquire(blocking=False):
            return
        try:
            samples = self.samples
            self.timeout = self.attempt_estimator.learn([samples.popleft() for _ in range(len(samples))])
        finally:
            self._lock.release()
        self._report_timeout("attempt", self.timeout)

    def emit(self, event: CallEvent) -> None:
        """Pass an event to the sink, if there is one. Log and count a sink that raises: the call continues."""
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except Exception:
            self.dropped_events += 1
            if self.dropped_events == 1:  # a sink that fails once usually fails for every event
                log.exception("the sink of dependency %s raised; further dropped events are only counted", self.name)

    def forget(self) -> None:
        """Reset to the initial state: a full budget, no Retry-After in effect, the initial timeouts."""
        self.bucket.fill()
        self.retry_after.until = -math.inf
        with self._lock:
            self.samples.clear()
            self._start(self.connect_estimator.policy, self.attempt_estimator.policy)

    def _start(self, connect: float | Percentile | None, attempt: float | Percentile | None) -> None:
        self.connect_estimator, self.attempt_estimator = Estimator(connect), Estimator(attempt)
        self.timeout = self.attempt_estimator.value
        """Current attempt timeout in seconds."""
        self.learn_at = self.runtime.monotonic() + LEARN_INTERVAL
        self._reported = {"attempt": self.timeout, "connect": self.connect_estimator.value}

    def update_fast_path(self) -> None:
        """Decide whether calls may take the fast path. Call it again when a condition below changes."""
        self.has_sink = self._sink is not None
        # On it, drivers only measure a call whose first attempt succeeds, and make no `Call`.
        self.has_fast_path = (
            not self.has_sink
            and self.runtime.interceptor is None
            and self.in_flight.max_count == math.inf
            and self.retry.classify_result is None
            and self.retry.owner is not RetryOwner.HERE
            and self.retry_after.policy.scope is RetryAfterScope.RETRIES
        )

    def _report_timeout(self, timeout: str, after: float) -> None:
        before = self._reported[timeout]
        if self._sink is None or before / CHANGED < after < before * CHANGED:
            return
        self._reported[timeout] = after
        estimator = self.attempt_estimator if timeout == "attempt" else self.connect_estimator
        if isinstance(estimator.policy, Percentile):
            at, seen = self.runtime.clock.wall(), estimator.histogram.total
            self.emit(
                TimeoutChanged(dependency=self.name, at=at, timeout=timeout, before=before, after=after, samples=seen)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverriddenOptions:
    """The options of calls in a block of `Dependency.override`, by the names that DependencyState has for its own."""

    dependency: DependencyState
    retry: Retry
    retry_owner: str | None
    total: float
    fixed_timeout: float | None
    """The attempt timeout in seconds; None for that of the dependency, which learns only from attempts with it."""

    @property
    def timeout(self) -> float:
        """Current attempt timeout in seconds."""
        return self.dependency.timeout if self.fixed_timeout is None else self.fixed_timeout


def _find_owner(name: str, retry: Retry) -> str | None:
    return name if retry.max_attempts > 1 and retry.owner is not RetryOwner.BELOW else None
