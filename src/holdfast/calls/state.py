"""What all calls to one dependency share in this process, for drivers and adapters; users see a `Dependency`."""

import logging
import math
import threading
from collections import deque
from typing import TYPE_CHECKING

from holdfast._errors import InvalidValue
from holdfast._forks import register_after_fork
from holdfast._types import Sink
from holdfast.calls.events import CallEvent, TimeoutChanged
from holdfast.calls.limits import InFlightCounter, Limit, TokenBucket
from holdfast.calls.retry import Retry, RetryAfter, RetryAfterScope, RetryAfterState, RetryBudget, RetryOwner
from holdfast.calls.runtime import Runtime
from holdfast.calls.timeout import LEARN_INTERVAL, MAX_SAMPLES, Estimator, Percentile, Timeouts

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from holdfast.calls.endpoints import Endpoint, Endpoints, ShardEndpoints
    from holdfast.calls.expiries import Expiries

CHANGED = 1.1
"""A timeout that has moved by this factor is told; smaller moves are noise."""

log = logging.getLogger("holdfast.calls.dependency")


class DependencyState:
    """The state that all functions calling one dependency share. Safe in threads, forks and several event loops."""

    def __init__(  # noqa: PLR0917 - made by `Dependency` alone, and each has a type of its own
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
        self.retry_owner = name if retry.max_attempts > 1 and retry.owner is not RetryOwner.BELOW else None
        """Sent to the layers below by calls that may be repeated: this layer retries, so those must not."""
        self.endpoints = endpoints
        self.runtime = runtime
        self.total = math.inf if timeouts.total is None else timeouts.total
        self.bucket = TokenBucket(budget)
        self.retry_after = RetryAfterState(retry_after)
        self.in_flight = InFlightCounter(limit)
        self.samples: deque[float] = deque(maxlen=MAX_SAMPLES)
        """Latencies that the attempt timeout has not learned from yet."""
        self._start(timeouts.connect, timeouts.attempt)
        self._sink = sink
        self.dropped_events = 0
        """Events that the sink failed to take."""
        self.update_fast_path()
        self.reset_after_fork()
        register_after_fork(self)
        runtime.add_dependency(self)

    def reset_after_fork(self) -> None:
        """Replace the lock and forget the event loops: in a forked child, those of the parent are gone."""
        self._lock = threading.Lock()
        self._by_loop: dict[AbstractEventLoop, Expiries] = {}
        self.last_expiries: Expiries | None = None
        """Those of the loop that was asked for last: nearly always there is one."""

    @property
    def sink(self) -> Sink[CallEvent] | None:
        return self._sink

    @sink.setter
    def sink(self, sink: Sink[CallEvent] | None) -> None:
        self._sink = sink
        self.dropped_events = 0
        self.update_fast_path()

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

    def learn_connect(self, seconds: float) -> None:
        """Take the seconds of one connection set-up into account; infinity: it did not come about in time."""
        with self._lock:
            after = self.connect_estimator.learn([seconds])
        self._report_timeout("connect", after)

    def learn(self, now: float) -> None:
        """Take the waiting latencies into account. Return at once if another thread does so already."""
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
        """Hand an event to the sink, if there is one; whatever the sink does, the call goes on."""
        if self._sink is None:
            return
        try:
            self._sink.emit(event)
        except Exception:
            self.dropped_events += 1
            if self.dropped_events == 1:  # a sink that fails once mostly fails for every event
                log.exception("the sink of dependency %s failed; its events are lost, and counted", self.name)

    def forget(self) -> None:
        """Begin anew: with a full budget, without a hint that holds, with the timeouts of the start."""
        self.bucket.fill()
        self.retry_after.until = -math.inf
        with self._lock:
            self.samples.clear()
            self._start(self.connect_estimator.policy, self.attempt_estimator.policy)

    def _start(self, connect: float | Percentile | None, attempt: float | Percentile | None) -> None:
        self.connect_estimator, self.attempt_estimator = Estimator(connect), Estimator(attempt)
        self.timeout = self.attempt_estimator.value
        """Seconds that an attempt may take now."""
        self.learn_at = self.runtime.monotonic() + LEARN_INTERVAL
        self._reported = {"attempt": self.timeout, "connect": self.connect_estimator.value}

    def update_fast_path(self) -> None:
        """Decide whether calls may take the fast path; repeat this when a condition below changes."""
        self.has_sink = self._sink is not None
        # With it, a call that succeeds at once has only to be measured: drivers do without a `Call`.
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
