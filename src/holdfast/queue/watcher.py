"""Inspect a queue regularly, for metrics and alarms."""

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

__all__ = ["QueueObservation", "QueueWatcher"]

WATCH_INTERVAL_SECONDS = 10.0
"""Seconds between two snapshots. Each takes a few milliseconds, growing with the number of lanes."""

log = logging.getLogger(__name__)


class QueueWatcher:
    """A thread that inspects one queue every `interval` seconds, at a host-specific offset, and reports to a sink.

    The sink gets a QueueSnapshot and a QueueReading each time, a QueueAlarm for each alarm that opens or closes, and a
    BackendErrorEvent if the backend is unavailable. Pass events of workers to the watcher as well, with
    `Worker(sink=MultiSink(metrics, watcher))`: the alarm on polls needs them, and the age of first attempts is exact
    only with them. Without them it is estimated from waiting messages that are not spilled, so that the watcher also
    notices if no worker is active. Errors are logged, not raised. Thread-safe; use as a context manager, or call
    `start` and `stop`, which may be repeated. A forked child must start its own watcher.
    """

    def __init__(
        self,
        queue: str,
        backend: Backend,
        sink: Sink[QueueObservation],
        *,
        interval: float = WATCH_INTERVAL_SECONDS,
        rules: AlarmRules = AlarmRules(),  # noqa: B008 - frozen
        max_tenants: int = MAX_BUSIEST_NAMES,
        clock: Clock | None = None,
    ) -> None:
        self.queue = check_queue_name(queue)
        self._backend = backend
        self._sink = sink
        self._periodic = PeriodicSchedule(interval, f"queue {queue}")
        self._rules = rules
        self._max_tenants = check_max_busiest(max_tenants)
        self._clock = clock or SystemClock()
        self._state = AlarmState()
        self._due: float | None = None
        """When the next snapshot is due, in seconds since the epoch."""
        self._loop = BackgroundLoop(
            f"holdfast-{queue}-watcher", self._inspect_when_due, action=f"inspect queue {queue}", logger=log
        )
        self.reset_after_fork()
        register_after_fork(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._inspecting = threading.Lock()
        self._polls = PollCollector(self._rules.first_attempt_age)
        self._previous_totals: Totals | None = None
        self._is_unavailable = False

    @property
    def open_alarms(self) -> frozenset[AlarmKind]:
        return self._state.open_alarms

    def emit(self, event: QueueObservation) -> None:
        """Receive an event of a worker. Events of other queues are ignored."""
        if isinstance(event, PollEvent) and event.queue == self.queue:
            with self._lock:
                self._polls.add(event)

    def inspect(self) -> QueueSnapshot | None:
        """Inspect the queue now, and report to the sink. Return None if that failed. The thread calls this, too."""
        with self._inspecting:
            try:
                snapshot = self._backend.inspect(self.queue, top=self._max_tenants)
            except HoldfastError as error:
                self._report_unavailable(error)
                return None
            if self._is_unavailable:
                self._is_unavailable = False
                log.info("queue %s can be inspected again", self.queue)
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
        """Stop the thread. Returns when a snapshot in progress is finished."""
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
            self.inspect()  # stays due if this raises: the loop counts any step without an error as a success
            self._due = self._periodic.next(now)
        return max(0.0, min(self._due - self._clock.wall(), MAX_SLEEP))

    def _report_unavailable(self, error: HoldfastError) -> None:
        # Warn once per outage; the sink gets an event each time.
        log.log(
            logging.DEBUG if self._is_unavailable else logging.WARNING,
            "queue %s cannot be inspected, trying again every %g s: %s",
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
            log.exception("the sink of queue %s raised an error; the event is dropped", self.queue)
