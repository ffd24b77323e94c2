"""Looks at a queue regularly, for metrics and alarms."""

import logging
import threading
from dataclasses import replace
from typing import Self

from holdfast._background import BackgroundLoop
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError
from holdfast._forks import renew_after_fork
from holdfast._names import queue_of
from holdfast._types import Sink
from holdfast.calls.periodic import LONGEST_SLEEP, Periodic
from holdfast.metrics.names import MOST_BUSIEST, check_most_busiest
from holdfast.queue.alarms import AlarmRules, AlarmState, What, step
from holdfast.queue.backend import Backend, Snapshot, Totals
from holdfast.queue.events import Observed, Polled, Trouble
from holdfast.queue.reading import Recent, reading_of

__all__ = ["Observed", "Watcher"]

EVERY = 10.0
"""Seconds between two looks: each takes as long as the queue has lanes, a few milliseconds."""

log = logging.getLogger(__name__)


class Watcher:
    """A thread that looks at one queue every so often, each host at its own moment, and tells a sink what it sees.

    The sink gets a Snapshot and a Reading for each look, a QueueAlarm for each alarm that opens or closes, and Trouble
    if the store is away. The alarm on polls needs to hear of them, and that on the age of first attempts is exact if it
    does: let the worker tell the watcher too, with `Worker(sink=Several(metrics, watcher))`. One that hears nothing
    goes by how long messages wait that are not spilled, so that it also notices if nobody works at all. Nothing is
    raised to whoever starts it. Thread-safe; use as a context manager, or call `start` and `stop`, which may be
    repeated. A forked child has to start its own.
    """

    def __init__(
        self,
        queue: str,
        backend: Backend,
        sink: Sink[Observed],
        *,
        every: float = EVERY,
        rules: AlarmRules = AlarmRules(),  # noqa: B008 - frozen
        most_tenants: int = MOST_BUSIEST,
        clock: Clock | None = None,
    ) -> None:
        self.queue = queue_of(queue)
        self._backend = backend
        self._sink = sink
        self._periodic = Periodic(every, f"queue {queue}")
        self._rules = rules
        self._most_tenants = check_most_busiest(most_tenants)
        self._clock = clock or SystemClock()
        self._state = AlarmState()
        self._due: float | None = None
        """When the next look is due, in seconds since the epoch."""
        self._loop = BackgroundLoop(
            f"holdfast-{queue}-watcher", self._look_when_due, doing=f"look at queue {queue}", logger=log
        )
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._recent = Recent(self._rules.first_attempt_age)
        self._before: Totals | None = None
        self._is_away = False

    @property
    def alarms(self) -> frozenset[What]:
        return self._state.is_open

    def emit(self, event: Observed) -> None:
        """Hear what a worker on the queue did."""
        if isinstance(event, Polled) and event.queue == self.queue:
            with self._lock:
                self._recent.add(event)

    def look(self) -> Snapshot | None:
        """Look once, now; None: it could not be done. Also what the thread does."""
        with self._looking:
            try:
                snapshot = self._backend.look(self.queue, top=self._most_tenants)
            except HoldfastError as error:
                self._away(error)
                return None
            if self._is_away:
                self._is_away = False
                log.info("queue %s can be looked at again", self.queue)
            self._tell(snapshot)
            with self._lock:
                work = self._recent.take()
                self._recent.fresh_for = snapshot.policy.fresh_for
            reading = reading_of(snapshot, work, self._before)
            self._before = snapshot.totals
            self._state, changed = step(self._rules, self._state, reading)
            self._tell(replace(reading, alarms=self._state.standing(self._rules)))
            for alarm in changed:
                self._tell(alarm)
            return snapshot

    def start(self) -> Self:
        if not self._loop.is_running:
            self._due = None
        self._loop.start()
        return self

    def stop(self) -> None:
        """Look no more. Returns when a look that is under way has ended."""
        self._loop.stop(None)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _look_when_due(self) -> float:
        now = self._clock.wall()
        if self._due is None:
            self._due = self._periodic.next(now)
        elif self._due <= now or self._due - now > self._periodic.period:  # the clock may have been set back
            self.look()  # it stays due if this raises: the loop takes a step that does not look for a success
            self._due = self._periodic.next(now)
        return max(0.0, min(self._due - self._clock.wall(), LONGEST_SLEEP))

    def _away(self, error: HoldfastError) -> None:
        # Once for all the time that it is away: the trouble itself is counted each time.
        log.log(
            logging.DEBUG if self._is_away else logging.WARNING,
            "queue %s cannot be looked at, trying again every %g s: %s",
            self.queue,
            self._periodic.period,
            error,
        )
        self._is_away = True
        self._tell(Trouble(queue=self.queue, at=self._clock.wall(), doing="look", error=type(error).__name__))

    def _tell(self, event: Observed) -> None:
        try:
            self._sink.emit(event)
        except Exception:
            log.exception("the sink of queue %s failed; an event is lost", self.queue)
