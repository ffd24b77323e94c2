"""Run the detection loop: count measurements, evaluate complete bins, record verdicts and act on them."""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock, SystemClock
from holdfast._errors import Conflict, HoldfastError, InvalidValue, NotFound
from holdfast._log_limiter import LogLimiter
from holdfast._types import Sink, Verdict, VerdictKind
from holdfast.detect import DETECTORS
from holdfast.engines import Database
from holdfast.telemetry import BIN_SECONDS, Bin, BinDelta, BinKey, Deployment, build_window
from holdfast.telemetry.bins import LONG_TERM, MEDIUM_TERM, SHORT_TERM, RequestRow
from holdfast.telemetry.collector import DEFAULT_LATENESS, GRACE_SECONDS, Arrivals, Collector
from holdfast.telemetry.query import SeriesAnswer, SeriesQuery
from holdfast.telemetry.series import SeriesLimits, SeriesTable
from holdfast.watch.deploy_store import DeployStore
from holdfast.watch.events import CurrentVerdict, VerdictChange, WatchEvent
from holdfast.watch.pauses import PauseMeter
from holdfast.watch.store import WatchStore
from holdfast.watch.traffic import TrafficMeter, TrafficSample
from holdfast.watch.workload import (
    NO_WHOLE_BIN,
    VerdictHandler,
    WatchedState,
    WatchedWorkload,
    build_unknown_verdict,
    start_workload,
)

if TYPE_CHECKING:
    from holdfast.telemetry.history import TelemetryHistory
    from holdfast.watch.alarms import AlarmWatches
    from holdfast.watch.learning import HistoryLearner

logger = logging.getLogger("holdfast.watch")

TICK_SECONDS = 0.25
"""How often the loop checks for complete bins."""
TRAFFIC_SECONDS = 1.0
"""How often listeners get a traffic sample: slow enough for a person to follow."""
KEPT_TRAFFIC_SAMPLES = 120
"""Two minutes, for a page that is opened later."""
STALE_BINS = 3
"""Bins after which a window that could not be evaluated is skipped: newer ones say more."""
OVERFLOW_LOG_SECONDS = 3600.0
LEAST_HISTORY = 600.0
"""Seconds of stored measurements from before the start from which on a detector without a state learns from them, and
again when the stored ones have become more by this much."""
HISTORY_PAUSE = 1.0
"""Seconds without late measurements after which earlier ones count as complete: they come in several batches."""
START_TOLERANCE = 0.001
"""Seconds by which a bin may begin before the loop and still count as whole."""
NO_REQUESTS = "no zone reports any request"


class WorkloadWatcher:
    """The detection loop. `ingest` and `answer` may be called from any thread; the rest happens in a background thread.

    Use as a context manager, or call `start` and `close`. Without an `evacuator` it only reports verdicts.
    It shows detectors the deploys in the DeployStore of the same database.
    `events` is the sink for traffic samples, verdicts and changed alarms. With `history`, a database, the loop keeps
    the measurements of the last day, and evaluates alarms; this needs NumPy.
    """

    def __init__(
        self,
        workloads: Sequence[WatchedWorkload],
        store: WatchStore,
        *,
        evacuator: VerdictHandler | None = None,
        events: Sink[WatchEvent] | None = None,
        history: Database | None = None,
        bin_seconds: float = BIN_SECONDS,
        limits: SeriesLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._store = store
        self._deploys = DeployStore(store.database)
        self._evacuator = evacuator
        self._events = events
        self._table = SeriesTable(limits)
        self._collector = Collector(self._table, bin_seconds)
        self._lock = threading.Lock()
        """Held while measurements are added and read, never while a database is used."""
        self._watched = {
            workload.name: start_workload(workload, store, bin_seconds, self._clock.wall()) for workload in workloads
        }
        self._history = None if history is None else self._open_history(history)
        self._alarms = None if self._history is None else self._open_alarms(workloads, self._history)
        self._late_at: float | None = self._clock.wall() - HISTORY_PAUSE
        """When late measurements arrived that no detector has learned from; at the start, the saved ones count."""
        for recorded in store.list_open_verdicts():
            if recorded.workload in self._watched:
                # Opened before a restart. The first window closes it, unless its zone is out or the verdict repeats.
                self._watched[recorded.workload].open[recorded.id] = recorded.to_verdict()
        self._pauses = PauseMeter(self._clock)
        self._traffic = TrafficMeter()
        self._overflow_log = LogLimiter(1, OVERFLOW_LOG_SECONDS)
        self._traffic_sent_at = self._clock.wall()
        self._recent_traffic: deque[TrafficSample] = deque(maxlen=KEPT_TRAFFIC_SAMPLES)
        self._loop = BackgroundLoop(
            "holdfast-watch",
            self._step,
            action="watch the workloads",
            logger=logger,
            backoff=constant_backoff(TICK_SECONDS),
        )

    @property
    def bin_seconds(self) -> float:
        return self._collector.seconds

    def ingest(
        self,
        deltas: Iterable[BinDelta],
        lateness: float = DEFAULT_LATENESS,
        *,
        requests: Mapping[int, Sequence[RequestRow]] | None = None,
    ) -> Arrivals:
        """Add measurements of a source that may be late by `lateness` seconds. Return the outcome of their requests.

        `requests` are single requests by the number of their bin of `bin_seconds`. Raise InvalidValue if a delta covers
        more than a minute.
        """
        taken = list(deltas)
        for delta in taken:
            self._collector.require_resolution(delta.seconds)
        with self._lock:
            now = self._clock.wall()
            self._add_traffic(taken, requests or {}, now - lateness - self._collector.minute)
            arrivals = self._collector.add_requests(requests or {}, now, lateness)
            arrivals.merge(self._collector.add(taken, now, lateness))
            if arrivals.late:
                self._late_at = now
            is_logged = arrivals.overflowed and self._overflow_log.admit("", self._clock.monotonic()) is not None
        if is_logged:
            logger.warning(
                "requests are counted as `other`, because a workload has too many operations, instances or series: %s; "
                "look for identifiers in their names, or raise telemetry.max_operations, max_instances or max_series",
                self.overflowed_requests(),
            )
        return arrivals

    def answer(self, query: SeriesQuery) -> SeriesAnswer:
        """Answer a query about the measurements of the last day. Raise NotFound for a workload that is not watched."""
        self._require_watched(query.workload)
        if self._history is None:
            raise InvalidValue("this watcher keeps no measurements: give it a database as `history`")
        with self._lock:
            stored = self._history.snapshot(query.workload)
        return stored.answer(query, self._clock.wall())  # without the lock: a query over a day takes seconds

    def overflowed_requests(self) -> Mapping[str, Mapping[str, int]]:
        """Return the requests counted as `other` because of a limit, by workload and name of the limit."""
        with self._lock:
            return self._table.overflowed()

    def current_verdicts(self) -> Mapping[str, Verdict]:
        """Return the verdict of the latest window of each workload: UNKNOWN until there is a whole bin of data."""
        return {name: watched.current for name, watched in self._watched.items()}

    def evaluated_until(self) -> float | None:
        """Return the end of the latest window that was evaluated for every workload; None if one has none yet."""
        ends = [watched.evaluated_until for watched in self._watched.values()]
        return min((end for end in ends if end is not None), default=None) if None not in ends else None

    def recent_traffic(self) -> Sequence[TrafficSample]:
        """Return the traffic samples of the last two minutes, oldest first."""
        return list(self._recent_traffic)

    def start(self) -> "WorkloadWatcher":
        """Start watching, in a background thread. May be repeated."""
        self._pauses.start()
        self._loop.start()
        return self

    def close(self) -> None:
        """Stop after the current window has been evaluated, and save the bins that have ended. May be repeated."""
        self._loop.stop(timeout=None)
        self._pauses.close()
        now = self._clock.wall()
        # Without waiting for late measurements, or a restart would lose a second bin besides that in progress.
        for error in self._keep(self._pop_complete(now + GRACE_SECONDS), now):
            logger.warning("cannot save the last measurements: %s", error)

    def __enter__(self) -> "WorkloadWatcher":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def tick(self) -> None:
        """Evaluate every complete bin. The background thread calls it."""
        self._pauses.beat()
        now = self._clock.wall()
        if not 0 <= now - self._traffic_sent_at < TRAFFIC_SECONDS:
            self._send_traffic(now)
        complete = self._pop_complete(now)
        failures = [error for watched in self._watched.values() if (error := self._catch_up(watched, now)) is not None]
        late_at = self._late_at
        has_history = self._has_new_history(now, late_at)
        if complete or has_history:
            failures += self._keep(complete, now)
        if has_history:
            self._begin_learning(now, late_at)
        if failures:
            raise failures[0]

    def _pop_complete(self, now: float) -> Sequence[tuple[int, Mapping[BinKey, Bin]]]:
        """Return the bins that are complete at `now`. They wait for the detector."""
        with self._lock:
            complete = self._collector.pop_complete(now)
        for number, bins in complete:
            for watched in self._watched.values():
                watched.pending.append((number * self.bin_seconds, bins))
        return complete

    def _keep(self, complete: Sequence[tuple[int, Mapping[BinKey, Bin]]], now: float) -> list[Exception]:
        """Add complete bins and late measurements to the history, and save it. Return the error, if any."""
        with self._lock:
            late, late_minutes = self._collector.pop_late(), self._collector.pop_late_minutes()
            if self._history is None:
                self._forget_series(complete, now)
                return []
            self._history.add(complete, late, late_minutes, now)
        # Without the lock: only this thread changes the stored measurements.
        failures: list[Exception] = []
        if complete:  # not if it stops between the ends of two bins
            end = (complete[-1][0] + 1) * self.bin_seconds
            failures += self._evaluate_alarms(end, now)
        try:
            self._history.save(now)
        except HoldfastError as error:
            failures.append(error)
        return failures

    def _evaluate_alarms(self, end: float, now: float) -> list[Exception]:
        """Evaluate the alarms of all workloads, and remove those of other workloads. Return errors."""
        if self._alarms is None:
            return []
        zones_out = {name: watched.zones_out for name, watched in self._watched.items()}
        failures = self._alarms.evaluate(end, zones_out, self._pauses.list_pauses(), self._emit)
        try:
            self._alarms.remove_abandoned(self._watched, now)
        except HoldfastError as error:
            failures.append(error)
        return failures

    def _forget_series(self, complete: Sequence[tuple[int, Mapping[BinKey, Bin]]], now: float) -> None:
        """Forget the series without measurements for a while, as a history does with those that it no longer keeps."""
        for number, bins in complete:
            self._table.mark_seen(map(self._table.number, bins), (number + 1) * self.bin_seconds)
        self._table.forget(now, SHORT_TERM, LONG_TERM)

    def _catch_up(self, watched: WatchedState, now: float) -> Exception | None:
        """Evaluate the pending bins of one workload; return the error that stopped it, if any."""
        watched.watched_since = min(watched.watched_since, now)  # the clock may be set back
        if watched.learner is not None:
            try:
                state = watched.learner.learn(watched.detector, watched.state, self._clock)
            except HoldfastError as error:  # a store is unavailable
                return error
            except Exception as error:  # noqa: BLE001 - raised when all workloads were evaluated
                watched.learner = None
                return error
            if state is None:
                self._skip_stale(watched, now)
                return None
            self._end_learning(watched, watched.learner, state)
        self._skip_stale(watched, now)
        while watched.pending:
            start, bins = watched.pending[0]
            if start + self.bin_seconds > watched.watched_since:  # earlier bins are empty
                try:
                    self._run_detector(watched, start, bins)
                except Exception as error:  # noqa: BLE001 - raised when all workloads were evaluated
                    return error
            watched.pending.popleft()  # only now: a window whose verdict could not be stored is evaluated again
        return None

    def _skip_stale(self, watched: WatchedState, now: float) -> None:
        """Drop the bins that could not be evaluated in time: a store was unavailable, and their data is outdated."""
        limit = now - STALE_BINS * self.bin_seconds - GRACE_SECONDS
        while watched.pending and (end := watched.pending[0][0] + self.bin_seconds) < limit:
            watched.pending.popleft()
            logger.warning(
                "workload %s: skipped the window that ended %.0f s ago, because it could not be evaluated in time; "
                "there is no verdict for it",
                watched.name,
                now - end,
            )
            self._set_current(watched, build_unknown_verdict(watched.name, end, "the last window was not evaluated"))

    def _has_new_history(self, now: float, late_at: float | None) -> bool:
        """Return whether there may be more stored measurements for detectors that had no state."""
        is_complete = late_at is not None and not 0 <= now - late_at < HISTORY_PAUSE
        return self._history is not None and is_complete and any(each.learns for each in self._watched.values())

    def _begin_learning(self, now: float, late_at: float | None) -> None:
        """Let detectors without a state learn, if there are enough stored measurements from before the start.

        While a zone fails or is out, a detector that has evaluated live windows keeps its evidence instead.
        """
        assert self._history is not None
        for watched in self._watched.values():
            is_quiet = not watched.zones_out and all(each.kind is VerdictKind.UNKNOWN for each in watched.open.values())
            if watched.learns and watched.learner is None and (is_quiet or watched.evaluated_until is None):
                count = self._history.store.count_bins(watched.name, now - MEDIUM_TERM, watched.watched_since)
                seconds = count * self.bin_seconds
                if seconds - watched.learned_seconds >= LEAST_HISTORY:
                    watched.learner = self._build_learner(watched, self._history, now)
                    watched.learned_seconds = seconds
        with self._lock:
            if self._late_at == late_at:  # else more has arrived meanwhile
                self._late_at = None

    def _build_learner(self, watched: WatchedState, history: "TelemetryHistory", now: float) -> "HistoryLearner":
        from holdfast.watch.learning import HistoryLearner  # imports NumPy

        def list_deployments(end: float) -> list[Deployment]:
            return [each.to_deployment() for each in self._deploys.list_for_window(watched.name, end)]

        watched.state = DETECTORS.get(watched.detector_name).state_type()
        with self._lock:
            stored = history.snapshot(watched.name)
        return HistoryLearner(
            stored,
            watched.name,
            watched.zones,
            self.bin_seconds,
            now,
            states={} if self._evacuator is None else self._evacuator.read_states(watched.name),
            resources=watched.resources,
            list_deployments=list_deployments,
        )

    def _end_learning(self, watched: WatchedState, learner: "HistoryLearner", state: Any) -> None:
        """Continue with live windows, and the learned state."""
        watched.state, watched.learner = state, None
        while watched.pending and watched.pending[0][0] + self.bin_seconds / 2 < learner.end:
            watched.pending.popleft()
        logger.info(
            "workload %s: detector %s has learned from %d stored windows",
            watched.name,
            watched.detector_name,
            learner.windows,
        )

    def _add_traffic(
        self, deltas: Sequence[BinDelta], requests: Mapping[int, Sequence[RequestRow]], since: float
    ) -> None:
        """Count arriving measurements as traffic of now, without those from before `since`: they are history."""
        rows = (rows for number, rows in requests.items() if number * self.bin_seconds >= since)
        self._traffic.add((each for each in deltas if each.start >= since), chain.from_iterable(rows))

    def _open_history(self, database: Database) -> "TelemetryHistory":
        from holdfast.telemetry.history import TelemetryHistory  # imports NumPy

        return TelemetryHistory(database, self._table, self.bin_seconds, list(self._watched), self._clock.wall())

    def _open_alarms(self, workloads: Sequence[WatchedWorkload], history: "TelemetryHistory") -> "AlarmWatches":
        from holdfast.watch.alarm_store import AlarmStore  # imports NumPy
        from holdfast.watch.alarms import AlarmWatches

        declarations = [workload.alarms for workload in workloads if workload.alarms is not None]
        return AlarmWatches(declarations, history.store, self._table, AlarmStore(self._store.database))

    def _require_watched(self, workload: str) -> None:
        if workload not in self._watched:
            raise NotFound(f"workload {workload} is not watched: expected one of {', '.join(self._watched)}")

    def _step(self) -> float:
        self.tick()
        return TICK_SECONDS

    def _run_detector(self, watched: WatchedState, start: float, bins: Mapping[BinKey, Bin]) -> None:
        """Evaluate a window, record the verdict, and act on it."""
        states = {} if self._evacuator is None else self._evacuator.read_states(watched.name)
        end = start + self.bin_seconds
        window = build_window(
            watched.name,
            watched.zones,
            start,
            self.bin_seconds,
            bins,
            states={zone: state for zone, state in states.items() if zone in watched.zones},
            deployments=[each.to_deployment() for each in self._deploys.list_for_window(watched.name, end)],
            resources=watched.resources,
        )
        watched.zones_out = window.zones_out
        state, verdict = watched.detector.step(watched.state, window)
        is_part = start < watched.watched_since - START_TOLERANCE
        missing = NO_WHOLE_BIN if is_part else ""
        if not any(cells.requests.any() for cells in window.cells.values()):
            missing = NO_REQUESTS
        # Too few measurements can show a failure, but not that a workload is healthy, or that a failure has ended.
        is_unknown = verdict.kind is VerdictKind.HEALTHY and missing != ""
        now = self._clock.wall()
        closed = [
            known
            for known in watched.open.values()
            if known.id != verdict.id and not known.is_about(window.zones_out) and not is_part and not is_unknown
        ]
        is_new = verdict.kind is not VerdictKind.HEALTHY and verdict.id not in watched.open
        current = build_unknown_verdict(watched.name, end, missing) if is_unknown else verdict
        self._store.record(
            watched.name,
            watched.detector_name,
            state,
            now,
            opened=verdict if is_new else None,
            closed=[known.id for known in closed],
            current=current,
        )
        for known in closed:
            self._report(known, now, is_closed=True)
            del watched.open[known.id]
        if is_new:
            self._report(verdict, now, is_closed=False)
            watched.open[verdict.id] = verdict
        self._act(watched, verdict, is_new=is_new)
        watched.state = state
        watched.evaluated_until = end
        self._set_current(watched, current)

    def _act(self, watched: WatchedState, verdict: Verdict, *, is_new: bool) -> None:
        """Evacuate the zone of a verdict, if its detector may."""
        if verdict.kind is VerdictKind.HEALTHY or not verdict.is_confirmed or self._evacuator is None:
            return
        if not watched.may_evacuate:
            if is_new and verdict.kind is VerdictKind.ISOLATED:
                logger.warning(
                    "not evacuating zone %s for %s: verdicts of detector %s only advise; evacuate it with "
                    "`holdfast zone evacuate`, or add the detector to evacuation.detectors",
                    verdict.zone,
                    watched.name,
                    watched.detector_name,
                )
            return
        try:
            self._evacuator.evacuate(verdict, frozenset(watched.zones))
        except Conflict as error:  # another zone is out, or was taken out: the next window decides again
            logger.info("not evacuating zone %s for %s: %s", verdict.zone, watched.name, error)

    def _set_current(self, watched: WatchedState, verdict: Verdict) -> None:
        watched.current = verdict
        self._emit(CurrentVerdict(verdict))

    def _report(self, verdict: Verdict, at: float, *, is_closed: bool) -> None:
        logger.warning(
            "%s verdict %s (%s): %s", "closed" if is_closed else "opened", verdict.id, verdict.kind, verdict.summary
        )
        self._emit(VerdictChange(verdict, at, is_closed))

    def _send_traffic(self, now: float) -> None:
        with self._lock:
            sample = self._traffic.pop(now, {name: watched.zones for name, watched in self._watched.items()})
        self._traffic_sent_at = now
        self._recent_traffic.append(sample)
        self._emit(sample)

    def _emit(self, event: WatchEvent) -> None:
        if self._events is not None:
            self._events.emit(event)
