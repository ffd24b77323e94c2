"""What all calls to one dependency share in this process: its policies, budget, timeouts and latencies.

For drivers and adapters; users see a `Dependency`.
"""

import logging
import math
import threading
from collections import deque
from typing import TYPE_CHECKING

from holdfast._errors import InvalidValue
from holdfast._forks import renew_after_fork
from holdfast._types import Sink
from holdfast.calls.events import CallEvent, TimeoutChanged
from holdfast.calls.limits import Bucket, Limit, Running
from holdfast.calls.retry import Budget, Hints, HintsHold, Hold, Owner, Retry
from holdfast.calls.runtime import Runtime
from holdfast.calls.timeout import Estimator, Percentile, Timeouts

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from holdfast.calls.endpoints import Endpoint, Endpoints, ShardEndpoints
    from holdfast.calls.expiries import Expiries

SAMPLES = 512
"""Latencies that wait to be looked at; of more than that in `LOOK_EVERY` seconds, the last ones are."""
LOOK_EVERY = 0.5
"""Seconds between looks at them: a look takes up to half a millisecond, which no single call should pay often."""
CHANGED = 1.1
"""A timeout that has moved by this factor is told; smaller moves are noise."""

log = logging.getLogger("holdfast.calls.dependency")


class DependencyState:
    """The state that all functions calling one dependency share. Safe in threads, forks and several event loops."""

    def __init__(
        self,
        name: str,
        *,
        timeouts: Timeouts,
        retry: Retry,
        budget: Budget,
        hints: Hints,
        limit: Limit | None,
        endpoints: "Endpoints | ShardEndpoints | None",
        sink: Sink[CallEvent] | None,
        runtime: Runtime,
    ) -> None:
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
