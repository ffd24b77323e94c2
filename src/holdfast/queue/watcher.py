"""Looks at a queue regularly, for metrics and alarms."""

import logging
import threading
from dataclasses import replace
from typing import Self

from holdfast._background import BackgroundLoop
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError
from holdfast._forks import register_after_fork
from holdfast._names import check_queue_name
from holdfast._types import Sink
from holdfast.calls.periodic import MAX_SLEEP, PeriodicSchedule
from holdfast.metrics.cardinality import MAX_BUSIEST_NAMES, check_max_busiest
from holdfast.queue.alarms import AlarmKind, AlarmRules, AlarmState, update_alarms
from holdfast.queue.backend import Backend, QueueSnapshot, Totals
from holdfast.queue.events import BackendErrorEvent, PollEvent, QueueObservation
from holdfast.queue.reading import PollCollector, build_reading

__all__ = ["QueueObservation", "Watcher"]

EVERY = 10.0
"""Seconds between two looks: each takes as long as the queue has lanes, a few milliseconds."""

log = logging.getLogger(__name__)


class Watcher:
    """A thread that looks at one queue every so often, each host at its own moment, and tells a sink what it sees.

    The sink gets a QueueSnapshot and a QueueReading for each look, a QueueAlarm for each alarm that opens or closes,
    and BackendErrorEvent if the store is away. The alarm on polls needs to hear of them, and that on the age of first
    attempts is exact if it does: let the worker tell the watcher too, with `Worker(sink=MultiSink(metrics, watcher))`.
    One that hears nothing goes by how long messages wait that are not spilled, so that it also notices if nobody works
    at all. Nothing is raised to whoever starts it. Thread-safe; use as a context manager, or call `start` and `stop`,
    which may be repeated. A forked child has to start its own.
    """

    def __init__(
        self,
        queue: str,
        backend: Backend,
        sink: Sink[QueueObservation],
        *,
        every: float = EVERY,
        rules: AlarmRules = AlarmRules(),  # noqa: B008 - frozen
        max_tenants: int = MAX_BUSIEST_NAMES,
        clock: Clock | None = None,
    ) -> None:
        self.queue = check_queue_name(queue)
        self._backend = backend
        self._sink = sink
        self._periodic = PeriodicSchedule(every, f"queue {queue}")
        self._rules = rules
        self._max_tenants = check_max_busiest(max_tenants)
        self._clock = clock or SystemClock()
        self._state = AlarmState()
        self._due: float | None = None
        """When the next look is due, in seconds since the epoch."""
        self._loop = BackgroundLoop(
            f"holdfast-{queue}-watcher", self._inspect_when_due, action=f"look at queue {queue}", logger=log
        )
        self.reset_after_fork()
        register_after_fork(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._polls = PollCollector(self._rules.first_attempt_age)
        self._previous_totals: Totals | None = None
        self._is_unavailable = False

    @property
    def open_alarms(self) -> frozenset[AlarmKind]:
        return self._state.open_alarms

    def emit(self, event: QueueObservation) -> None:
        """Hear what a worker on the queue did."""
        if isinstance(event, PollEvent) and event.queue == self.queue:
            with self._lock:
                self._polls.add(event)

    def inspect(self) -> QueueSnapshot | None:
        """Look once, now; None: it could not be done. Also what the thread does."""
        with self._looking:
            try:
                snapshot = self._backend.inspect(self.queue, top=self._max_tenants)
            except HoldfastError as error:
                self._report_unavailable(error)
                return None
            if self._is_unavailable:
                self._is_unavailable = False
                log.info("queue %s can be looked at again", self.queue)
            self._emit(snapshot)
            with self._lock:
                work = self._polls.take()
                self._polls.fresh_for = snapshot.policy.fresh_for
            reading = build_reading(snapshot, work, self._previous_totals)
            self._previous_totals = snapshot.totals
            self._state, changed = update_alarms(self._rules, self._state, reading)
            self._emit(replace(reading, alarms=self._state.list_states(self._rules)))
            for alarm in changed:
                self._emit(alarm)
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

    def _inspect_when_due(self) -> float:
        now = self._clock.wall()
        if self._due is None:
            self._due = self._periodic.next(now)
        elif self._due <= now or self._due - now > self._periodic.period:  # the clock may have been set back
            self.inspect()  # it stays due if this raises: the loop takes a step that does not look for a success
            self._due = self._periodic.next(now)
        return max(0.0, min(self._due - self._clock.wall(), MAX_SLEEP))

    def _report_unavailable(self, error: HoldfastError) -> None:
        # Once for all the time that it is away: the trouble itself is counted each time.
        log.log(
            logging.DEBUG if self._is_unavailable else logging.WARNING,
            "queue %s cannot be looked at, trying again every %g s: %s",
            self.queue,
            self._periodic.period,
            error,
        )
        self._is_unavailable = True
        self._emit(
            BackendErrorEvent(queue=self.queue, at=self._clock.wall(), operation="inspect", error=type(error).__name__)
        )

    def _emit(self, event: QueueObservation) -> None:
        try:
            self._sink.emit(event)
        except Exception:
            log.exception("the sink of queue %s failed; an event is lost", self.queue)
